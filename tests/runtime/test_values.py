"""Values: integer data is exact for every shape, layout, scheme, number of levels, alpha and beta."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from each_case import each
from hypothesis import given
from hypothesis import strategies as st
from runtime.operands import ALGORITHMS, LAYOUTS, integers, laid_out

import bilinear
from bilinear.analysis.accuracy import error_allowance
from bilinear.backends import numpy_executor, workers
from bilinear.frontend import load, parse_source
from bilinear.lowering.prepare import prepare
from bilinear.source import Source

MOST_LEVELS = {"laderman": 2, "hopcroft_kerr": 2}
SIDES = st.one_of(st.integers(0, 70), st.sampled_from([1, 2, 3, 8, 9, 27, 32, 64]))
RUNS = [(name, "preserve") for name in ALGORITHMS] + [("msmes", "restore"), ("msmes", "consume")]


@given(data=st.data())
def test_every_shape_layout_scheme_and_factor_is_exact(data: st.DataObject) -> None:
    name, inputs = data.draw(st.sampled_from(RUNS))
    levels = data.draw(st.integers(1, MOST_LEVELS.get(name, 3)))
    m, k, n = (data.draw(SIDES) for _ in range(3))
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    alpha, beta = data.draw(st.sampled_from([1, -1, 2, 0, -3])), data.draw(st.sampled_from([0, 1, -1, 3]))
    generator = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    whole = [integers(generator, shape, np.int64) for shape in ((m, k), (k, n), (m, n))]
    a, b, c = (laid_out(x.astype(dtype), data.draw(st.sampled_from(LAYOUTS))) for x in whole)
    if beta == 0:
        c[...] = np.nan
    if inputs == "preserve":
        a.flags.writeable = b.flags.writeable = False
    options: Any = {"algorithm": name, "levels": levels, "inputs": inputs}
    assert bilinear.matmul(a, b, c, alpha=alpha, beta=beta, **options) is c
    np.testing.assert_array_equal(c, alpha * (whole[0] @ whole[1]) + beta * whole[2])
    if inputs != "consume":
        np.testing.assert_array_equal(a, whole[0])
        np.testing.assert_array_equal(b, whole[1])


@pytest.mark.sample(12)
@pytest.mark.parametrize("layouts", [("C", "F", "C"), ("strided", "reversed", "strided"), ("F", "F", "F"), ("unaligned",) * 3])
@pytest.mark.parametrize(("name", "inputs"), RUNS)
def test_several_tiles_of_every_buffer(name: str, inputs: Any, layouts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers are far smaller than the blocks, so every loop over tiles runs many times, with a rest."""
    monkeypatch.setattr(numpy_executor, "LINEAR_TILE", 48)
    monkeypatch.setattr(numpy_executor, "LINEAR_BUFFER", 48 * 8 * 24)
    monkeypatch.setattr(numpy_executor, "PRODUCT_BUFFER", 96 * 8)
    generator = np.random.default_rng(3)
    whole = [integers(generator, shape, np.int64) for shape in ((67, 41), (41, 131), (67, 131))]
    a, b, c = (laid_out(x.astype(float), layout) for x, layout in zip(whole, layouts, strict=True))
    bilinear.matmul(a, b, c, alpha=3, beta=-2, algorithm=name, levels=1, inputs=inputs)
    np.testing.assert_array_equal(c, 3 * (whole[0] @ whole[1]) - 2 * whole[2])
    if inputs != "consume":
        assert np.array_equal(a, whole[0]) and np.array_equal(b, whole[1])


@each("name", ALGORITHMS)
@each("levels", [1, 2])
def test_objects_are_exact(name: str, levels: int) -> None:
    """Integers far beyond 64 bits, and Fractions, with rational factors."""
    generator = np.random.default_rng(0)
    a, b, c = (integers(generator, shape, object) * 10**30 for shape in ((11, 13), (13, 9), (11, 9)))
    np.testing.assert_array_equal(bilinear.matmul(a, b, algorithm=name, levels=levels), a @ b)
    x, y, z = (Fraction(1, 3) * v / 7 for v in (a, b, c))
    wanted = Fraction(2, 5) * (x @ y) - Fraction(1, 2) * z
    out = z.copy()
    bilinear.matmul(x, y, out, alpha=Fraction(2, 5), beta=Fraction(-1, 2), algorithm=name, levels=levels)
    np.testing.assert_array_equal(out, wanted)
    assert all(isinstance(value, Fraction | int) for value in out.flat)


@each("name", ALGORITHMS)
@each("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_integers_wrap_around_as_numpy_does(name: str, dtype: Any) -> None:
    generator = np.random.default_rng(1)
    info = np.iinfo(dtype)
    a, b, c = (generator.integers(info.min, info.max, shape, dtype, endpoint=True) for shape in ((13, 17), (17, 12), (13, 12)))
    with np.errstate(all="ignore"):
        wanted = dtype(3) * np.matmul(a, b) + dtype(5) * c
    bilinear.matmul(a, b, c, alpha=3, beta=5, algorithm=name, levels=2)
    np.testing.assert_array_equal(c, wanted)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.uint64, np.int8])
def test_negative_coefficients_and_factors_of_unsigned_types_wrap_around(dtype: Any) -> None:
    """They do so without a warning (which is an error here): -1 is the largest number, and alpha times it wraps around, too."""
    info, generator = np.iinfo(dtype), np.random.default_rng(1)
    a, b, c = (generator.integers(info.min, info.max, shape, dtype, endpoint=True) for shape in ((14, 16), (16, 12), (14, 12)))
    wanted = (3 * (a.astype(object) @ b.astype(object)) + 5 * c.astype(object)) % 2 ** (8 * info.dtype.itemsize)
    bilinear.matmul(a, b, c, alpha=3, beta=5, algorithm="msmes", levels=2, inputs="restore")
    np.testing.assert_array_equal(c.astype(object) % 2 ** (8 * info.dtype.itemsize), wanted)


def test_fractions_that_multiply_to_integers_run_on_integers() -> None:
    """Half of one factor times twice the other is the product itself, an integer at every level."""
    text = "scheme halved <1,2,1;2>\n  M1: 1/2 0 | 2 0 | 1\n  M2: 0 2/3 | 0 3/2 | 1\n"
    source = Source("halved.bl", text)
    loaded = replace(load("strassen"), scheme=parse_source(source).schemes[0], schedule=None, source=source)
    a, b = np.arange(20).reshape(4, 5), np.arange(15).reshape(5, 3)
    for levels in (1, 2):
        np.testing.assert_array_equal(bilinear.matmul(a, b, algorithm=loaded, levels=levels), a @ b)


def test_integers_are_restored_after_wrapping_around() -> None:
    generator = np.random.default_rng(1)
    a, b = (generator.integers(-(2**63), 2**63 - 1, shape) for shape in ((21, 18), (18, 23)))
    kept = a.copy(), b.copy()
    np.testing.assert_array_equal(bilinear.matmul(a, b, algorithm="msmes", levels=2, inputs="restore"), kept[0] @ kept[1])
    assert np.array_equal(a, kept[0]) and np.array_equal(b, kept[1])


@each("dtype", [np.float32, np.float64, np.longdouble])
@each(("name", "inputs"), [run for run in RUNS if run[1] != "consume"])
def test_normal_data_stays_within_the_allowance(name: str, inputs: Any, dtype: Any) -> None:
    """Compared with exact rational arithmetic on a few rows: every float is a fraction."""
    generator = np.random.default_rng(5)
    a, b = (generator.standard_normal(shape).astype(dtype) for shape in ((48, 50), (50, 46)))
    rows = slice(20, 24)
    exact = np.vectorize(Fraction, otypes=[object])(a[rows].astype(float)) @ np.vectorize(Fraction, otypes=[object])(b.astype(float))
    if dtype is np.longdouble:
        a, b = a.astype(float).astype(dtype), b.astype(float).astype(dtype)
    kept = a.copy(), b.copy()
    c = bilinear.matmul(a, b, algorithm=name, levels=2, inputs=inputs)
    loaded = load(name)
    schedule = prepare(loaded.scheme, loaded.schedule, 2, inputs).schedule
    allowance = error_allowance(loaded.scheme, schedule, 50, float(np.finfo(dtype).eps) / 2)
    error = max(abs(Fraction(*x.as_integer_ratio()) - y) for x, y in zip(c[rows].flat, exact.flat, strict=True))
    assert float(error) <= allowance * float(abs(kept[0]).max() * abs(kept[1]).max())
    drift = max(abs(a - kept[0]).max(), abs(b - kept[1]).max())
    assert drift <= 100 * np.finfo(dtype).eps


def test_choosing_levels_runs_at_least_one() -> None:
    generator = np.random.default_rng(0)
    a, b = integers(generator, (40, 30)), integers(generator, (30, 20))
    np.testing.assert_array_equal(bilinear.matmul(a, b, algorithm="strassen", levels="auto"), a @ b)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["strassen", "msmes"])
def test_two_runs_give_the_same_bits_with_any_number_of_threads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(9)
    a, b = generator.standard_normal((523, 417)), generator.standard_normal((417, 391))
    inputs: Any = "restore" if name == "msmes" else "preserve"
    results = []
    for count in (1, 1, 2, 3, 8):
        monkeypatch.setattr(workers, "worker_count", lambda count=count: count)
        results.append(bilinear.matmul(a.copy(), b.copy(), algorithm=name, levels=2, inputs=inputs).tobytes())
    assert len(set(results)) == 1
