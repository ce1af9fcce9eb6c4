"""`check`: its bounds against exact differences in fractions, what it finds, and what it refuses."""

from __future__ import annotations

import json
import math
import os
import struct
import tracemalloc
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from each_case import each
from shell import Shell

import bilinear
from bilinear.errors import BilinearError
from bilinear.ir.matrix import Array
from bilinear.runtime import projected
from bilinear.runtime.arrays import NUMPY, Kind
from bilinear.runtime.check import _problem
from bilinear.runtime.projected import rows_of_floats

FRACTION = np.frompyfunc(Fraction, 1, 1)


def exactly(array: Array) -> Array:
    """The same numbers as fractions."""
    return FRACTION(array.astype(float)) if array.size else array.astype(object)


def difference(a: Array, b: Array, c: Array, alpha: float = 1, beta: float = 0, before: Array = None) -> Array:
    """The exact C - alpha*A*B - beta*C0."""
    found = exactly(c) - Fraction(alpha) * (exactly(a) @ exactly(b))
    return found - Fraction(beta) * exactly(before) if beta else found


def norm(matrix: Array) -> float:
    """The Frobenius norm of fractions, to a rounding."""
    return math.sqrt(sum((x * x for x in matrix.ravel()), Fraction(0)))


def product(generator: np.random.Generator, dtype: str, kind: int) -> tuple[Array, Array, Array]:
    """Random operands and a C with errors of one kind: of rounding, one element, one row, one rank, everywhere, none."""
    m, k, n = generator.integers(1, 7, 3)
    a, b = generator.standard_normal((m, k)).astype(dtype), generator.standard_normal((k, n)).astype(dtype)
    if generator.integers(2):
        a *= (10.0 ** generator.integers(-6, 7, (m, 1))).astype(dtype)
    c = a @ b
    if kind == 1:
        c[generator.integers(m), generator.integers(n)] += 1
    if kind == 2:
        c[generator.integers(m)] *= 1.5
    if kind == 3:
        c += np.outer(generator.choice([-1, 1], m), generator.choice([-1, 1], n)).astype(dtype)
    if kind == 4:
        c += generator.standard_normal((m, n)).astype(dtype)
    if kind == 5:
        a, b = np.rint(4 * a.clip(-9, 9)), np.rint(4 * b)
        c = a @ b
    return a, b, c


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_bounds_hold_in_a_thousand_cases(dtype: str) -> None:
    generator = np.random.default_rng(5)
    loose = []
    for case in range(1000):
        a, b, c = product(generator, dtype, case % 6)
        found, wanted = bilinear.check(a, b, c, seed=case), difference(a, b, c)
        size = norm(wanted)
        assert found.at_least <= size <= found.bound
        assert max(map(abs, wanted.ravel())) <= found.largest <= found.bound
        if size > 1e-3 * found.scale:
            loose.append(found.bound / size)
    assert 2 < np.median(loose) < 8


@pytest.mark.slow
def test_a_low_confidence_fails_no_more_often_than_it_says() -> None:
    generator, failed = np.random.default_rng(6), 0
    for case in range(1500):
        a, b, c = product(generator, "float32", 1 + case % 4)
        failed += norm(difference(a, b, c)) > bilinear.check(a, b, c, seed=case, confidence=0.5, vectors=1).bound
    assert 75 < failed < 750  # half of the risk is the norm's


@pytest.mark.sample(4)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("scales", [0, 6, 40])
def test_the_roundings_of_the_check_are_within_their_bound(dtype: str, scales: int) -> None:
    generator = np.random.default_rng(scales)
    spread = scales if dtype == "float64" else min(scales, 1)
    for case in range(20):
        m, k, n = generator.integers(1, 25, 3)
        a, b, before = (
            (generator.standard_normal(shape) * 10.0 ** generator.integers(-spread, spread + 1, shape)).astype(dtype)
            for shape in ((m, k), (k, n), (m, n))
        )
        alpha, beta = ((1, 0), (0.3, 0), (-2, 0.7))[case % 3]
        c = (alpha * (a @ b) + beta * before).astype(dtype)
        problem = _problem(NUMPY, [a, b, c, before if beta else None], alpha, beta, np.dtype(float), 2, case)
        factors = float(problem.alpha), float(problem.beta)  # as the type holds them
        residuals, errors, *_ = rows_of_floats(problem)
        entries = 2 * np.random.default_rng(case).integers(0, 256, (n, 2), np.int16) - 255
        wanted = difference(a, b, c, *factors, before) @ entries.astype(object)
        for row, residual, error in zip(wanted, residuals, errors, strict=True):
            assert abs(norm(row) - residual) <= error * (1 + 1e-6) + 1e-150


def test_the_check_of_doubles_is_more_precise_than_doubles() -> None:
    generator = np.random.default_rng(1)
    a, b = generator.standard_normal((300, 400)), generator.standard_normal((400, 200))
    wanted = a.astype(np.longdouble) @ b.astype(np.longdouble)
    found = bilinear.check(a, b, wanted.astype(float))
    assert found.rounding < found.bound / 1000
    actual = np.linalg.norm((wanted - wanted.astype(float)).astype(float))
    if np.finfo(np.longdouble).nmant > 60:
        assert actual <= found.bound <= 8 * actual


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_of_a_fast_scheme_pass_and_one_wrong_element_does_not(dtype: str) -> None:
    generator, unit = np.random.default_rng(2), float(np.finfo(dtype).eps)
    a, b = (generator.standard_normal((128, 128)).astype(dtype) for _ in range(2))
    for levels in (1, 2, 3):
        c = bilinear.matmul(a, b, algorithm="strassen", levels=levels)
        check = partial(bilinear.check, a, b, tolerance=3**levels * unit, seed=levels)
        assert check(c).require().passed
        c[77, 5] += 4 * 128 * 3**levels * unit * 128
        assert check(c).passed is False
        assert check(c).row == (77,)


def test_factors_batches_and_vectors() -> None:
    generator = np.random.default_rng(3)
    a, b, before = (generator.standard_normal(shape) for shape in ((3, 1, 5, 4), (2, 4, 6), (3, 2, 5, 6)))
    c = 2.5 * (a @ b) - 0.5 * before
    found = bilinear.check(a, b, c, alpha=2.5, beta=-0.5, before=before, tolerance=1e-14)
    assert found.passed and found.scale == pytest.approx(
        np.sqrt(
            sum(
                (2.5 * np.linalg.norm(a[i, 0]) * np.linalg.norm(b[j]) + 0.5 * np.linalg.norm(before[i, j])) ** 2
                for i in range(3)
                for j in range(2)
            )
        )
    )
    c[2, 1, 3, 0] += 1e-6
    found = bilinear.check(a, b, c, alpha=2.5, beta=-0.5, before=before, tolerance=1e-14)
    assert (found.passed, found.row) == (False, (2, 1, 3))
    assert found.at_least <= 1e-6 * (1 + 1e-6) and 1e-6 * (1 - 1e-6) <= found.largest <= found.bound
    for left, right in ((a[0, 0, 0], b[0]), (a[0, 0], b[0, :, 0]), (a[0, 0, 0], b[0, :, 0]), (a, b[0]), (a[0, 0].T.copy().T, b[0])):
        assert bilinear.check(left, right, left @ right, tolerance=1e-14).passed
        assert not bilinear.check(left, right, left @ right + 1e-3, tolerance=1e-14).passed


def test_complex_products() -> None:
    generator = np.random.default_rng(4)
    a, b = (generator.standard_normal((40, 40)) + 1j * generator.standard_normal((40, 40)) for _ in range(2))
    for dtype, tolerance in (("complex128", 1e-15), ("complex64", 1e-6)):
        x, y = a.astype(dtype), b.astype(dtype)
        assert bilinear.check(x, y, (0.5 + 2j) * (x @ y), alpha=0.5 + 2j, tolerance=tolerance).passed
        wrong = (x @ y).conj()
        found = bilinear.check(x, y, wrong)
        size = np.linalg.norm(wrong - x @ y)
        assert found.at_least <= size <= found.bound <= 8 * size


def test_integers_are_checked_modulo_their_range() -> None:
    generator = np.random.default_rng(7)
    for case in range(500):
        dtype = np.dtype(("int8", "uint8", "int32", "uint64", "int64")[case % 5])
        limits = np.iinfo(dtype)
        m, k, n = generator.integers(1, 9, 3)
        a, b, before = (generator.integers(limits.min, limits.max, shape, dtype, endpoint=True) for shape in ((m, k), (k, n), (m, n)))
        c = dtype.type(3) * (a @ b) + dtype.type(5) * before
        check = partial(bilinear.check, a, b, alpha=3, beta=5, before=before, seed=case)
        assert check(c).passed and check(c).relative == 0
        c[m - 1, n - 1] ^= dtype.type(1) << dtype.type(8 * dtype.itemsize - 1 if case % 2 else case % 7)  # hidden by half of the vectors
        found = check(c)
        assert (found.passed, found.row, found.relative) == (False, (m - 1,), np.inf)
    a, b = (generator.integers(-99, 99, (5, 5)).astype(np.int8) for _ in range(2))
    assert bilinear.check(a, b, a.astype(np.int32) @ b.astype(np.int32)).passed  # in C's type


@each("inner", ["int8", "uint8", "int64"])
@each("outer", ["int8", "uint16", "int32", "uint64"])
def test_a_product_of_integers_in_another_type_passes_and_an_error_of_its_wrapping_does_not(inner: str, outer: str) -> None:
    """C in a narrower type is the product modulo that; in a wider one it is the product, or what `matmul` wraps around before."""
    generator, limits = np.random.default_rng(9), np.iinfo(inner)
    for most in (1, min(limits.max, 99)):
        a, b, before = (generator.integers(0 if limits.min == 0 else -most, most + 1, shape, inner) for shape in ((4, 5), (5, 6), (4, 6)))
        wrapped, old = a @ b, before.astype(outer)
        check = partial(bilinear.check, a, b, alpha=3, beta=-2 if outer[0] == "i" else 2, before=old)
        wanted = (3 * wrapped).astype(outer) + np.dtype(outer).type(-2 if outer[0] == "i" else 2) * old
        assert check(wanted).passed
        assert bilinear.check(a, b, a.astype(outer) @ b.astype(outer)).passed
        for bit in (0, 7, 8 * np.dtype(outer).itemsize - 1):
            wrong = wanted.copy()
            wrong[3, 2] ^= np.dtype(outer).type(1) << np.dtype(outer).type(bit)
            assert check(wrong).passed is False and (most > 1 or check(wrong).row == (3,))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_exact_products_of_zeros_pass_and_others_do_not(dtype: str) -> None:
    z, b = np.zeros((4, 4), dtype), np.ones((4, 4), dtype)
    cases: list[tuple[Any, Any, dict[str, Any]]] = [(z, b, {}), (b, z, {}), (b[:, :0], b[:0], {}), (b, b, {"alpha": 0})]
    for x, y, how in (*cases, (z, b, {"beta": 2, "before": z})):
        found = bilinear.check(x, y, z, tolerance=0, **how)
        assert found.require().relative == 0 == found.bound
        for value in (1e-40, np.nan):
            wrong = z.copy()
            wrong[1, 2] = value
            assert bilinear.check(x, y, wrong, tolerance=0, **how).passed is False


@each("value", [np.nan, np.inf, -np.inf])
@each("place", range(3))
def test_what_is_not_finite_has_no_bound(value: float, place: int) -> None:
    arrays = [np.ones((4, 4)), np.ones((4, 4)), np.full((4, 4), 4.0)]
    arrays[place][2, 1] = value
    found = bilinear.check(*arrays, tolerance=1.0)
    assert (found.bound, found.largest, found.at_least, found.passed) == (np.inf, np.inf, 0, False)
    assert "a NaN, an Inf, or a sum that overflows" in str(found)
    assert found.to_json()["bound"] is None
    if place != 1:
        assert found.row == (2,)


def test_empty_products() -> None:
    for m, k, n in ((0, 3, 4), (3, 0, 4), (3, 4, 0)):
        found = bilinear.check(np.ones((m, k)), np.ones((k, n)), np.zeros((m, n)))
        assert found.bound < 1e-150
        assert bilinear.check(np.ones((m, k), int), np.ones((k, n), int), np.zeros((m, n), int)).passed
    assert bilinear.check(np.ones((3, 0)), np.ones((0, 4)), np.ones((3, 4))).at_least > 0
    assert not bilinear.check(np.ones((3, 0), int), np.ones((0, 4), int), np.ones((3, 4), int)).passed


def test_the_seed_decides() -> None:
    generator = np.random.default_rng(8)
    a, b = generator.standard_normal((9, 9)), generator.standard_normal((9, 9))
    c = a @ b
    first, again, other = (bilinear.check(a, b, c, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert repr(first).startswith("<Checked C of 9 x 9: |C - AB| <= ") and len(repr(first)) < 80
    assert "by 16 random vectors from seed 1" in str(first)


def test_no_temporary_is_as_large_as_a_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projected, "PANEL_BYTES", {False: 2**16, True: 2**16})
    monkeypatch.setattr(projected, "PANEL_BYTES", {False: 2**16, True: 2**16})
    a, b = (np.random.default_rng(9).standard_normal((1024, 1024)) for _ in range(2))
    c = a @ b
    for x, y, z in ((a, b, c), (a[None], b[None], c[None]), (a.T, b.T, c.T)):
        tracemalloc.start()
        bilinear.check(x, y, z)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < a.nbytes / 4


class OnDevice(np.ndarray):
    """An array that NumPy's own functions refuse, and that is brought to the host by `get`."""

    allowed = False

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        assert OnDevice.allowed, f"{function} is called from NumPy"
        return super().__array_function__(function, types, arguments, options)

    def get(self) -> Array:
        return np.asarray(self)


def device_module() -> Any:
    """The functions of CuPy's that the check calls."""

    def allow(function: Any) -> Any:
        def called(*arguments: Any, **options: Any) -> Any:
            OnDevice.allowed = True
            try:
                return np.asanyarray(function(*arguments, **options)).view(OnDevice)
            finally:
                OnDevice.allowed = False

        return called

    names = ("asarray", "matmul", "einsum", "concatenate", "sqrt", "maximum")
    module = SimpleNamespace(**{name: allow(getattr(np, name)) for name in names}, ndarray=OnDevice)
    module.broadcast_to = allow(partial(np.broadcast_to, subok=True))
    return module


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex64", "int16"])
def test_a_device_computes_everything_that_is_large(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(10)
    a, b = (generator.integers(-9, 9, shape).astype(dtype) for shape in ((3, 8, 5), (5, 7)))
    c = a @ b
    wanted = bilinear.check(a, b, c, tolerance=1)
    kind = Kind(device_module(), True, lambda x: x)
    monkeypatch.setattr("bilinear.runtime.accept.kind_of", lambda *arrays: kind)
    monkeypatch.setattr("bilinear.runtime.accept.multiplies_itself", lambda array: False)
    found = bilinear.check(*(x.view(OnDevice) for x in (a, b, c)), tolerance=1)
    assert found == replace(wanted, estimate=found.estimate) and found.passed


HALF = np.ones((2, 2))


@each(
    ("code", "arrays", "options"),
    [
        ("E702", (HALF, np.ones((3, 2)), HALF), {}),
        ("E702", (HALF, HALF, np.ones((2, 3))), {}),
        ("E702", (HALF, HALF, np.ones((1, 2, 2))), {}),
        ("E702", (np.float64(2), HALF, HALF), {}),
        ("E702", (HALF, HALF, HALF), {"beta": 1}),
        ("E702", (HALF, HALF, HALF), {"beta": 1, "before": np.ones(2)}),
        ("E702", (HALF, HALF, HALF.astype(int)), {}),
        ("E702", (HALF, HALF.astype(int), HALF), {}),
        ("E702", (HALF > 0, HALF > 0, HALF > 0), {}),
        ("E702", (HALF.astype(object), HALF, HALF), {}),
        ("E702", (HALF.astype(np.longdouble), HALF, HALF), {}),
        ("E703", (HALF, HALF, HALF), {"confidence": 1}),
        ("E703", (HALF, HALF, HALF), {"confidence": "high"}),
        ("E703", (HALF, HALF, HALF), {"tolerance": -1}),
        ("E703", (HALF, HALF, HALF), {"tolerance": np.nan}),
        ("E703", (HALF, HALF, HALF), {"seed": -1}),
        ("E703", (HALF, HALF, HALF), {"vectors": 2}),
        ("E703", (HALF, HALF, HALF), {"vectors": 10**6}),
        ("E703", (HALF.astype(int), HALF.astype(int), HALF.astype(int)), {"vectors": 5}),
        ("E528", (HALF, HALF, HALF), {"alpha": 1j}),
    ],
)
def test_what_is_not_checked_is_refused(code: str, arrays: tuple[Array, Array, Array], options: dict[str, Any]) -> None:
    with pytest.raises(BilinearError, match=code):
        bilinear.check(*arrays, **options)


def test_a_verdict_can_be_demanded() -> None:
    right, wrong = (bilinear.check(HALF, HALF, c, tolerance=1e-12) for c in (HALF @ HALF, HALF))
    assert right.require() is right
    with pytest.raises(BilinearError, match=r"E704.*above the tolerance 1e-12"):
        wrong.require()
    with pytest.raises(BilinearError, match=r"E703.*no verdict"):
        bilinear.check(HALF, HALF, HALF).require()


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    shell = Shell(monkeypatch, capsys)
    generator = np.random.default_rng(11)
    a, b = generator.standard_normal((30, 20)), generator.standard_normal((20, 10))
    for name, array in (("a", a), ("b", b), ("c", 2 * a @ b - HALF[0, 0]), ("old", np.ones((30, 10))), ("i", np.eye(3, dtype=int))):
        np.save(tmp_path / f"{name}.npy", array)
    (tmp_path / "text.npy").write_text("no array")
    at = {name: str(tmp_path / f"{name}.npy") for name in ("a", "b", "c", "old", "i", "text")}
    command = ("check", at["a"], at["b"], at["c"], "--alpha", "2", "--tolerance", "1e-13")
    status, out, err = shell(*command, "--beta", "-1", "--before", at["old"])
    assert (status, err) == (0, "") and "within the tolerance 1e-13" in out
    status, out, err = shell(*command)
    assert (status, out) == (1, "") and "error[E704]" in err
    assert json.loads(shell(*command[:-2], "--json")[1])["passed"] is None
    assert "the product, exactly" in shell("check", at["i"], at["i"], at["i"])[1]
    os.mkfifo(tmp_path / "pipe.npy")
    headers = (
        "(99999999999999999999,4)",
        "(9223372036854775807,4)",
        "(-1,)",
        "(2.5,)",
        f"({'(' * 3000}",
        "(4,)]",
        "()}" * 40,
        "('a',)",
        "{}",
    )
    for number, shape in enumerate(headers):
        header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
        (tmp_path / f"{number}.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + b"\0" * 128)
    odd = (tmp_path / f"{number}.npy" for number in range(len(headers)))
    for wrong in map(str, (at["text"], tmp_path / "none.npy", tmp_path, tmp_path / "pipe.npy", "/dev/zero", *odd)):
        status, out, err = shell("check", at["a"], at["b"], wrong)
        assert (status, out) == (1, "") and "error[E705]" in err
