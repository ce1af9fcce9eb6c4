"""Other numbers and maps: integers and bool on a pretended GPU, products modulo p there and on NumPy, A*A^T; beside exact arithmetic."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from runtime.operands import LAYOUTS, laid_out
from runtime.pretended_gpu import Array, undescribed
from soak.case import PASSED, REFUSED, Case, Finding

import bilinear
from bilinear.emulator import skip_reason
from bilinear.errors import BilinearError

MOST_SECONDS = 300
"""A case whose kernels were never compiled compiles them."""
__all__ = ["run", "skip_reason"]
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")
ALGORITHMS = (("classical", 1), ("winograd", 1), ("winograd", 2), ("strassen", 1), ("laderman", 1))
MODULI = (2, 3, 7, 101, 255, 256, 257, 65521, 2**31 - 1, 2**31, 2**61 - 1, 2**62)
MODULAR = (*ALGORITHMS, ("winograd", 3), ("accurate_halves", 1), ("accurate_halves", 2))
REFUSALS = ("E594", "E599")
"""What a product modulo p may be refused for: 1/2 where p is even, and operands that are to be restored and are not reduced."""


def run(case: Case) -> str:
    """One product."""
    generator = case.generator()
    kinds: tuple[Callable[[np.random.Generator], str], ...] = (_wrapping, _modular, _gram)
    return kinds[int(generator.choice(3, p=(0.35, 0.4, 0.25)))](generator)


def _wrapping(generator: np.random.Generator) -> str:
    """Integers over the whole range of their types, and bool, as NumPy multiplies them."""
    left, right = (str(x) for x in generator.choice(INTEGERS, 2))
    right = left if generator.random() < 0.6 or "bool" in (left, right) else right
    if np.result_type(left, right).kind == "f":
        return REFUSED
    m, k, n = _extents(generator)
    a, b = _laid(generator, _whole(generator, (m, k), left)), _laid(generator, _whole(generator, (k, n), right))
    algorithm, levels = ALGORITHMS[int(generator.integers(len(ALGORITHMS)))]
    what = f"{left} {a.shape} {a.strides} by {right} {b.shape} {b.strides}, {algorithm} {levels}"
    with pytest.MonkeyPatch.context() as patched, undescribed(patched) as gpu, np.errstate(over="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = bilinear.matmul(Array(a), Array(b), algorithm=algorithm, levels=levels)
        by_library, wanted = gpu.library, a @ b
    if by_library and left != "bool":
        raise Finding(f"the library multiplied: {what}")
    return _same(found.host, wanted, what)


def _modular(generator: np.random.Generator) -> str:
    """A product modulo p, of representatives that may lie outside of 0 to p - 1; some in place."""
    p, on_gpu = int(generator.choice(MODULI)), bool(generator.random() < 0.3)
    m, k, n = _extents(generator)
    most = min(4 * p, 2**62)
    whole = [generator.integers(-most, most, shape) for shape in ((m, k), (k, n), (m, n))]
    if on_gpu or generator.random() < 0.5:
        whole = [x % p for x in whole]
    a, b = (_laid(generator, x) for x in whole[:2])
    alpha, beta = (int(x) for x in generator.choice((0, 1, 2, -1, 5), 2))
    algorithm, levels = MODULAR[int(generator.integers(len(MODULAR)))]
    out = whole[2].copy()
    options: dict[str, Any] = {"modulus": p, "algorithm": algorithm, "levels": levels, "alpha": alpha, "beta": beta}
    if generator.random() < 0.25:
        options |= {"algorithm": "msmes", "levels": 1, "inputs": "restore", "workspace": "none"}
    what = f"{a.shape} {a.strides} by {b.shape} {b.strides}, {options}, {'GPU' if on_gpu else 'NumPy'}"
    exact = (alpha * (a.astype(object) @ b.astype(object)) + beta * out.astype(object)) % p
    try:
        if on_gpu:
            with pytest.MonkeyPatch.context() as patched, undescribed(patched):
                bilinear.matmul(Array(a), Array(b), Array(out), **options)
        else:
            bilinear.matmul(a, b, out, **options)
    except BilinearError as error:
        if error.diagnostics[0].code not in REFUSALS or not np.array_equal(out, whole[2]):
            raise Finding(f"{error}: {what}") from None
        return REFUSED
    if not np.array_equal(a, whole[0]) or not np.array_equal(b, whole[1]):
        raise Finding(f"an operand has changed: {what}")
    return _same(out, exact.astype(np.int64), what)


def _gram(generator: np.random.Generator) -> str:
    """A*A^T of small integers, both triangles or one."""
    n, k, _ = _extents(generator)
    dtype = str(generator.choice(("float64", "float32", "int64", "int8")))
    a = _laid(generator, generator.integers(-3, 4, (n, k)).astype(dtype))
    triangle: Any = (None, "lower", "upper")[int(generator.integers(3))]
    algorithm, levels = ALGORITHMS[int(generator.integers(len(ALGORITHMS)))]
    options: dict[str, Any] = {} if generator.random() < 0.3 else {"algorithm": algorithm, "levels": levels}
    what = f"gram of {dtype} {a.shape} {a.strides}, {triangle}, {options}"
    found = bilinear.gram(a, triangle=triangle, **options)
    with np.errstate(over="ignore"):
        exact = (a.astype(np.int64) @ a.T.astype(np.int64)).astype(dtype)
    return _same(found, exact if triangle is None else (np.tril if triangle == "lower" else np.triu)(exact), what)


def _extents(generator: np.random.Generator) -> tuple[int, int, int]:
    m, k, n = (int(x) for x in generator.integers(1, 70, 3))
    return m, k, n


def _whole(generator: np.random.Generator, shape: tuple[int, int], dtype: str) -> Any:
    if dtype == "bool":
        return generator.random(shape) < generator.choice((0.02, 0.5))
    info = np.iinfo(dtype)
    low, high = (int(info.min), int(info.max)) if generator.random() < 0.7 else (max(-9, int(info.min)), 9)
    return generator.integers(low, high, shape, dtype, endpoint=True)


def _laid(generator: np.random.Generator, x: Any) -> Any:
    return laid_out(x, str(generator.choice(LAYOUTS[:-1])))


def _same(found: Any, wanted: Any, what: str) -> str:
    if found.shape != wanted.shape or found.dtype != wanted.dtype or not np.array_equal(found, wanted):
        raise Finding(f"{int(np.sum(found != wanted))} of {wanted.size} are wrong: {what}")
    return PASSED
