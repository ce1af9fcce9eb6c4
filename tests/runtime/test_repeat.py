"""Repeated multiplies on a pretended GPU: they take few calls, and notice every change. Results are compared on integers."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from artifact.built_folders import needs_emulator
from choices import running
from each_case import each
from numpy.lib.array_utils import byte_bounds
from runtime.pretended_gpu import Array, Gpu

import bilinear
from bilinear.backends import cuda_executor
from bilinear.backends.caches import keep
from bilinear.errors import BilinearError
from bilinear.ir.element import IN_ARRAYS
from bilinear.ir.matrix import layout_of
from bilinear.ir.tile import SMALL, TILES, USUAL, beside
from bilinear.runtime import repeat
from bilinear.runtime.decide import Decision

pytestmark = needs_emulator

PACKAGE = str(Path(bilinear.__file__).parent)
WINOGRAD: dict[str, Any] = {"algorithm": "winograd", "levels": 1}
IN_PLACE: dict[str, Any] = {"algorithm": "msmes", "levels": 1}


def operands(seed: int, n: int = 16) -> tuple[list[Any], list[Array]]:
    generator = np.random.default_rng(seed)
    whole = [generator.integers(-4, 5, (n, n)).astype(float) for _ in range(3)]
    return whole, [Array(x.copy()) for x in whole]


def kept(gpu: Gpu, **options: Any) -> None:
    """Run a multiply twice, so that it is kept."""
    (x, y, _), (*_, c) = operands(9)
    for _ in range(2):
        c.host[...] = np.nan
        bilinear.matmul(Array(x.copy()), Array(y.copy()), c, **options)
        np.testing.assert_array_equal(c.host, x @ y)
    assert len(repeat._repeats) == 1
    gpu.launches.clear()
    gpu.library = 0


@pytest.mark.sample(4)
@pytest.mark.parametrize(("dtype", "tile"), [(dtype, tile) for dtype in IN_ARRAYS for tile in TILES[dtype]])
def test_a_plan_runs_in_its_tile_and_strips_in_theirs(dtype: str, tile: str, gpu: Gpu) -> None:
    known, generator = TILES[dtype], np.random.default_rng(5)
    x, y = generator.integers(-4, 5, (17, 17)).astype(dtype), generator.integers(-4, 5, (17, 16)).astype(dtype)
    choice = bilinear.plan(17, 17, 16, dtype, device="h200", levels=("winograd",))
    choice = replace(choice, candidates=(running(choice.chosen, tile=tile), *choice.candidates[1:]))
    wanted = [known[beside(dtype, tile, USUAL)], known[beside(dtype, tile, SMALL)], known[tile]]
    for _ in range(2):  # the second call is a repeat
        gpu.tiles.clear()
        np.testing.assert_array_equal(bilinear.matmul(Array(x.copy()), Array(y.copy()), plan=choice).host, x @ y)
        assert gpu.tiles == wanted, "the rest of the sum, a row, the core"


def test_products_that_add_to_one_block_at_once(gpu: Gpu) -> None:
    options: dict[str, Any] = {**IN_PLACE, "inputs": "restore"}
    (x, y, z), (a, b, c) = operands(7)
    launches = []
    for contention in ("colours", "atomics", "atomics"):  # the third call is a repeat
        gpu.launches.clear()
        c.host[...] = z
        bilinear.matmul(a, b, c, alpha=2, beta=-1, contention=contention, **options)
        np.testing.assert_array_equal(c.host, 2 * (x @ y) - z)
        launches.append(len(gpu.launches))
    assert launches == [7, 5, 5]
    refused: list[tuple[str, dict[str, Any]]] = [
        ("E513", options | {"contention": "tickets"}),
        ("E557", {"contention": "atomics"}),
        ("E557", WINOGRAD | {"contention": "atomics"}),
        ("E557", options | {"contention": "atomics", "levels": 0}),
        ("E557", options | {"contention": "atomics", "modulus": 7}),
        ("E820", options | {"contention": "atomics", "reproducible": "bitwise"}),
    ]
    for code, given in refused:
        with pytest.raises(BilinearError, match=code):
            bilinear.matmul(a, b, c, **given)
    for u, v in ((x, y), (Array(x.astype(np.float16)), Array(y.astype(np.float16)))):
        with pytest.raises(BilinearError, match=r"E557.*only a GPU's"):
            bilinear.matmul(u, v, contention="atomics", **options)
    np.testing.assert_array_equal(c.host, 2 * (x @ y) - z)


def own_calls(call: Callable[[], object]) -> int:
    """How many functions of the package a call enters, without the emulator's."""
    entered: list[str] = []

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE) and "emulator" not in frame.f_code.co_filename:
            entered.append(frame.f_code.co_name)

    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    return len(entered)


@pytest.mark.parametrize(
    ("options", "most"),
    [({}, 6), ({"levels": 0}, 6), (WINOGRAD, 16), (IN_PLACE | {"inputs": "consume"}, 21), (IN_PLACE | {"inputs": "restore"}, 33)],
)
def test_a_repeat_enters_few_functions(options: dict[str, Any], most: int, gpu: Gpu) -> None:
    """A function costs some tenths of a microsecond, and each launch is one. The count shows growing host time on any machine."""
    gpu.runs = "text"  # a reference enters functions of the package, which count
    kept(gpu, **options)
    _, (a, b, c) = operands(2)
    assert own_calls(lambda: bilinear.matmul(a, b, c, **options)) <= most
    bilinear.matmul(a, b, **options)
    assert own_calls(lambda: bilinear.matmul(a, b, **options)) <= most + 2, "a fresh result, and whether the stream is captured"
    assert gpu.launches or gpu.library


@pytest.mark.parametrize(("options", "looks"), [({}, []), (WINOGRAD, ["access", "access"]), ({"algorithm": bilinear.load("winograd")}, [])])
def test_a_repeat_looks_twice_for_a_file_of_a_shipped_name(options: dict[str, Any], looks: list[str], gpu: Gpu) -> None:
    kept(gpu, **options)
    _, (a, b, c) = operands(2)
    asked: list[str] = []

    def watch(_: FrameType, event: str, function: Any) -> None:
        if event == "c_call" and function.__module__ == os.open.__module__:
            asked.append(function.__name__)

    sys.setprofile(watch)
    try:
        bilinear.matmul(a, b, c, **options)
    finally:
        sys.setprofile(None)
    assert asked == looks


@each("options", [{}, WINOGRAD, IN_PLACE | {"inputs": "restore"}])
@each("given", [True, False])
def test_other_arrays_and_factors(options: dict[str, Any], given: bool, gpu: Gpu) -> None:
    for seed, (alpha, beta) in enumerate([(1, 0), (1, 0), (2, 0), (2.5, 0.5), (-1, 1), (0, 0)]):
        if beta and not given:
            continue
        (x, y, z), (a, b, c) = operands(seed)
        wanted = alpha * (x @ y) + beta * z
        found = bilinear.matmul(a, b, c if given else None, alpha=alpha, beta=beta, **options)
        np.testing.assert_array_equal(found.host, wanted)
        assert (found is c) == given


def test_what_overwrites_goes_on_to_add_where_it_is_asked_to(gpu: Gpu) -> None:
    for seed, beta in enumerate([2, 2, 0, 0, 2]):
        (x, y, z), (a, b, c) = operands(seed)
        bilinear.matmul(a, b, c, beta=beta, algorithm="winograd_depth_first", levels=1)
        np.testing.assert_array_equal(c.host, x @ y + beta * z)


def test_each_algorithm_and_each_number_of_levels_is_its_own(gpu: Gpu) -> None:
    _, (a, b, c) = operands(1)
    wanted: list[tuple[Any, int]] = [("winograd", 1), ("strassen", 1), ("winograd", 2), (bilinear.load("strassen"), 1), ("msmes", 1)]
    ran: list[Any] = []
    for _ in range(2):
        for algorithm, levels in wanted:
            gpu.launches.clear()
            bilinear.matmul(a, b, c, algorithm=algorithm, levels=levels, inputs="consume" if algorithm == "msmes" else "preserve")
            ran.append([name for name, _ in gpu.launches])
    assert ran[: len(wanted)] == ran[len(wanted) :]
    assert ran[1] == ran[3] and len({tuple(names) for names in ran}) == len(wanted) - 1


@pytest.mark.parametrize("options", [WINOGRAD, {}])
def test_with_alpha_0_the_operands_are_not_read(options: dict[str, Any], gpu: Gpu) -> None:
    kept(gpu, **options)
    _, (a, b, c) = operands(1)
    a.host[...] = np.nan
    np.testing.assert_array_equal(bilinear.matmul(a, b, c, alpha=0, **options).host, np.zeros((16, 16)))


@pytest.mark.parametrize("options", [WINOGRAD, {}])
def test_out_that_now_overlaps_an_operand(options: dict[str, Any], gpu: Gpu) -> None:
    kept(gpu, **options)
    (x, y, _), (a, b, _) = operands(1)
    bilinear.matmul(a, b, a, **options)
    np.testing.assert_array_equal(a.host, x @ y)
    bilinear.matmul(Array(x), b, b, **options)
    np.testing.assert_array_equal(b.host, x @ y)
    wide = np.zeros((17, 16))
    wide[:16] = x
    bilinear.matmul(Array(wide[:16]), Array(y), Array(wide[1:]), **options)
    np.testing.assert_array_equal(wide[1:], x @ y)


def test_a_call_whose_arrays_overlap_decides_nothing_for_others(gpu: Gpu) -> None:
    """On a described GPU `auto` may have a plan for these layouts, but not if `out` is an operand; so such a call is not kept."""
    (x, y, _), (a, b, c) = operands(3)
    bilinear.matmul(a, b, a)
    np.testing.assert_array_equal(a.host, x @ y)
    assert not repeat._repeats
    bilinear.matmul(Array(x.copy()), b, c)
    assert len(repeat._repeats) == 1


def test_alpha_0_scales_what_is_there(gpu: Gpu) -> None:
    (*_, z), (a, b, c) = operands(4)
    a.host[...] = np.nan
    for factor in (2, 4):
        bilinear.matmul(a, b, c, alpha=0, beta=2, levels=0)
        np.testing.assert_array_equal(c.host, factor * z)


@pytest.mark.parametrize("inputs", ["restore", "consume"])
def test_operands_that_now_overlap_are_refused(inputs: Any, gpu: Gpu) -> None:
    kept(gpu, **IN_PLACE, inputs=inputs)
    _, (a, _, c) = operands(1)
    with pytest.raises(BilinearError) as caught:
        bilinear.matmul(a, Array(a.host[:]), c, **IN_PLACE, inputs=inputs)
    assert [d.code for d in caught.value.diagnostics] == ["E523"]
    with pytest.raises(BilinearError, match="E523"):
        bilinear.matmul(a, c, c, **IN_PLACE, inputs=inputs)
    assert not gpu.launches


def test_operands_may_go_on_to_be_one_where_they_are_only_read(gpu: Gpu) -> None:
    kept(gpu, **WINOGRAD)
    (x, _, _), (a, _, c) = operands(1)
    np.testing.assert_array_equal(bilinear.matmul(a, a, c, **WINOGRAD).host, x @ x)


def test_values_are_looked_at_each_time(gpu: Gpu) -> None:
    """A call clears the flag that an earlier call may have set."""
    kept(gpu, **IN_PLACE, inputs="restore")
    (x, y, _), (a, b, c) = operands(1)
    for bad in (np.nan, np.inf, None, -np.inf):
        for array, name in ((a, "a"), (b, "b")):
            a.host[...], b.host[...] = x, y
            if bad is None:
                bilinear.matmul(a, b, c, **IN_PLACE, inputs="restore")
                np.testing.assert_array_equal(c.host, x @ y)
                continue
            array.host[15, 15] = bad
            gpu.launches.clear()
            with pytest.raises(BilinearError, match=rf"E524\]: {name} has"):
                bilinear.matmul(a, b, c, **IN_PLACE, inputs="restore")
            assert not gpu.launches
    assert len(cuda_executor._idle_flags) == 1


def test_the_flag_of_a_look_that_was_interrupted_is_not_used_again(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(gpu, **IN_PLACE, inputs="restore")
    (flag,) = cuda_executor._idle_flags
    _, (a, b, c) = operands(1)
    with monkeypatch.context() as patch:
        patch.setattr(cuda_executor.CudaExecutor, "wait", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            bilinear.matmul(a, b, c, **IN_PLACE, inputs="restore")
    kept(gpu, **IN_PLACE, inputs="restore")
    assert cuda_executor._idle_flags and flag not in cuda_executor._idle_flags


def test_memory_that_is_short_is_told(gpu: Gpu) -> None:
    kept(gpu, **WINOGRAD)

    def none_left(_: int) -> None:
        raise MemoryError("pool")

    gpu.allocate = none_left
    _, (a, b, c) = operands(1)
    with pytest.raises(MemoryError, match=r"winograd.* needs a workspace of"):
        bilinear.matmul(a, b, c, **WINOGRAD)


@each(
    ("options", "code"),
    [
        ({"levels": True}, "E514"),
        ({"levels": 1.0}, "E514"),
        ({"workspace": False}, "E534"),
        ({"workspace": 0}, "E535"),
        ({"workspace": "none"}, "E535"),
        ({"inputs": "restore"}, "E525"),
        ({"alpha": np.ones(2)}, "E528"),
        ({"alpha": 1j}, "E528"),
        ({"tolerance": True}, "E532"),
    ],
)
def test_options_that_are_refused_are_refused_again(options: dict[str, Any], code: str, gpu: Gpu) -> None:
    """Even if they are equal to valid ones: True == 1."""
    kept(gpu, **WINOGRAD)
    _, (a, b, c) = operands(1)
    with pytest.raises(BilinearError, match=code):
        bilinear.matmul(a, b, c, **WINOGRAD | options)
    assert not gpu.launches


def test_the_environment_is_asked_at_every_call(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(gpu, **WINOGRAD)
    monkeypatch.setenv("BILINEAR_USE_LIBRARY", "1")
    (x, y, _), (a, b, c) = operands(1)
    np.testing.assert_array_equal(bilinear.matmul(a, b, c, **WINOGRAD).host, x @ y)
    assert gpu.library == 1 and not gpu.launches


@pytest.mark.parametrize("kind", [str, Path])
def test_a_file_is_read_at_every_call(kind: Any, gpu: Gpu, tmp_path: Path) -> None:
    file = kind(tmp_path / "own.bl")
    for seed, name in enumerate(("strassen", "winograd")):
        Path(file).write_bytes((Path(PACKAGE).parent / "algorithms" / f"{name}.bl").read_bytes())
        gpu.launches.clear()
        (x, y, _), (a, b, c) = operands(seed)
        np.testing.assert_array_equal(bilinear.matmul(a, b, c, algorithm=file, levels=1).host, x @ y)
        assert {launch[0].split("_")[0] for launch in gpu.launches} == {name}
    assert len(repeat._repeats) == 2, "one for each content"


def test_streams_are_entered(gpu: Gpu) -> None:
    kept(gpu, **WINOGRAD)

    class Stream:
        def __enter__(self) -> None:
            gpu.stream = 5

        def __exit__(self, *_: object) -> None:
            gpu.stream = 77

    _, (a, b, c) = operands(1)
    bilinear.matmul(a, b, c, **WINOGRAD, stream=Stream())
    assert {stream for _, stream in gpu.launches} == {5}
    gpu.launches.clear()
    bilinear.matmul(a, b, c, **WINOGRAD)
    assert {stream for _, stream in gpu.launches} == {77}


def test_what_is_kept_is_bounded(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeat, "MOST_REPEATS", 2)
    for n in (8, 10, 12, 8):
        (x, y, _), (a, b, c) = operands(n, n)
        np.testing.assert_array_equal(bilinear.matmul(a, b, c, **WINOGRAD).host, x @ y)
        assert len(repeat._repeats) <= 2


def test_the_oldest_goes_and_no_other() -> None:
    found: dict[int, int] = {}
    for number in range(9):
        keep(found, number, -number, 5)
        assert found == {n: -n for n in range(max(0, number - 4), number + 1)}
    keep(found, 8, 80, 6)
    assert found == {4: -4, 5: -5, 6: -6, 7: -7, 8: 80}


def test_what_may_overlap_is_found_from_addresses() -> None:
    """An array reaches from its first to its last byte, also with negative strides. A new result overlaps nothing."""
    generator, memory = random.Random(2), np.zeros((9, 10))
    found = set()
    for _ in range(3000):
        a, b, c = (memory[_part(generator, 9), _part(generator, 10)] for _ in range(3))
        spans = [byte_bounds(x) for x in (a, b, c)]
        a_c, b_c, a_b = (x[0] < y[1] and y[0] < x[1] for x, y in ((spans[0], spans[2]), (spans[1], spans[2]), (spans[0], spans[1])))
        left, right, target = (x.ctypes.data for x in (a, b, c))
        one = repeat.Repeat(np, Decision(c.shape, c.dtype, None), (layout_of(a), layout_of(b), layout_of(c)))
        assert one.may_overlap(left, right, target) == (a_c or b_c) and not one.may_overlap(left, right, 0)
        one.writes_inputs = True
        assert one.may_overlap(left, right, target) == (a_c or b_c or a_b) and one.may_overlap(left, right, 0) == a_b
        found.add((a_c, b_c, a_b))
    assert len(found) == 8


def _part(generator: random.Random, extent: int) -> slice:
    low, high = sorted(generator.sample(range(extent + 1), 2))
    return slice(low, high, generator.randint(1, 3)) if generator.random() < 0.5 else slice(high - 1, low - 1 if low else None, -1)
