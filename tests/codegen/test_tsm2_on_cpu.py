"""The kernels of TSM2X that our own is compared with, emulated: exact on integers; and the paper's model, which gives its thresholds."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from codegen.test_thin_on_cpu import laid

from bilinear.emulator import compile_on_cpu, skip_reason, without_barrier
from bilinear.ir.element import ELEMENTS, IN_ARRAYS

needs_emulator = pytest.mark.skipif(skip_reason() is not None, reason=skip_reason() or "")
SHAPES = ((70, 37, 8, 1), (33, 129, 5, 2), (300, 8, 8, 3), (1, 1, 1, 1), (64, 64, 16, 2))
"""m, k, n and tcf, with blocks of 32 threads."""


@pytest.fixture
def tsm2(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import tsm2

    return tsm2


def difference(tsm2: Any, kernel: Any, text: str, shape: tuple[int, int, int], beta: int) -> Any:
    """What is wrong with C where old values are NaN if they are not to be read."""
    (m, k, n), dtype = shape, kernel.element.name
    generator = np.random.default_rng(m + k)
    a, b, old = (generator.integers(-8, 9, extents).astype(dtype) for extents in ((m, k), (k, n), (m, n)))
    left, right, out = (laid(x, False, 3) for x in (a, b, old if beta else np.full_like(old, np.nan)))
    module = compile_on_cpu(text, {kernel.name: kernel.c_types})
    arguments = tsm2.launch_arguments(left, right, out, np.dtype(dtype).type(beta))
    module.launch(kernel.name, kernel.blocks(m), kernel.t1, arguments, order="random", seed=k)
    return out - (a @ b + beta * old)


@pytest.mark.sample(3)
@needs_emulator
@pytest.mark.parametrize("dtype", IN_ARRAYS)
@pytest.mark.parametrize("name", ["V0", "V1", "V2", "V3", "Opt1", "Opt2"])
def test_every_variant_is_exact(tsm2: Any, name: str, dtype: str) -> None:
    for number, (m, k, n, tcf) in enumerate(SHAPES):
        kernel = tsm2.variant_of(name, ELEMENTS[dtype], n, 32, 4, tcf if name.startswith("Opt") else 1, by_columns=number % 2 == 0)
        for beta in (0, 2):
            assert not difference(tsm2, kernel, tsm2.source(kernel), (m, k, n), beta).any(), (m, k, n, tcf, beta)


@needs_emulator
@pytest.mark.parametrize("name", ["V2", "V3", "Opt2"])
def test_several_tiles_of_columns_are_exact(tsm2: Any, name: str) -> None:
    kernel = tsm2.Tsm2Kernel(name, ELEMENTS["float32"], 32, 4, 8, tcf=2 if name == "Opt2" else 1)
    for beta in (0, -3):
        assert not difference(tsm2, kernel, tsm2.source(kernel), (100, 70, 11), beta).any()


@pytest.mark.sample(1)
@needs_emulator
@pytest.mark.parametrize("name", ["V2", "V3", "Opt2"])
def test_every_barrier_is_needed(tsm2: Any, name: str) -> None:
    kernel = tsm2.variant_of(name, ELEMENTS["float64"], 4, 32, 4, tcf=2 if name == "Opt2" else 1)
    texts = [text for _, text in without_barrier(tsm2.source(kernel))]
    wrong = [np.nan_to_num(difference(tsm2, kernel, text, (64, 100, 9), 0), nan=1.0).any() for text in texts]
    assert wrong == ([True, True, False, False] if name == "Opt2" else [False, False, True, True])


def test_the_model_gives_the_thresholds_of_the_paper(tsm2: Any) -> None:
    """Section 4.2, doubles: about 40 on a K40c, 6 on an M40, 50 on a P100 and an A100, 70 on a V100 (67 by the figures of table 2)."""
    for peak, bandwidth, wanted in ((1430, 288, 40), (213, 288, 6), (4600, 720, 51), (7500, 900, 67), (9700, 1555, 50)):
        assert round(tsm2.threshold(tsm2.Chip(peak, bandwidth), 8)) == wanted


def test_the_model_says_what_bounds_a_kernel(tsm2: Any) -> None:
    k40c, m40 = (tsm2.Chip(peak, 288, processors=15, shared_bytes=49152) for peak in (1430, 213))
    kernel = tsm2.variant_of("V3", ELEMENTS["float64"], 16, 128, 4)
    assert tsm2.estimate(kernel, k40c, 20480, 20480, 16).bound == "memory"
    assert tsm2.estimate(kernel, m40, 20480, 20480, 16).bound == "compute"
    few = tsm2.variant_of("Opt1", ELEMENTS["float64"], 16, 128, 4, tcf=64)
    assert tsm2.estimate(few, k40c, 15360, 16, 16, rows_bound=True).bound == "latency"
    whole = tsm2.estimate(kernel, k40c, 20480, 20480, 16)
    assert math.isclose(whole.occupancy, 49152 / (16 * 8))  # registers would do for 65536 / ((48 + 8) * 2 + 24)
