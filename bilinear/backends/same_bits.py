"""Products of NumPy's arrays whose bits depend on the numbers alone: integers, multiplied exactly and rounded once (docs/digits.md).

A row of A and a column of B are multiplied by powers of two and rounded to integers of at most `limit`. These are cut into one to three
slices, and the slices' polynomials are multiplied at as many points as their product needs (A. L. Toom, Soviet Math. Dokl. 3 (1963)), in
blocks of K so short that float64 holds every sum. So the library's float64 product computes integers, in whatever order it adds.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from bilinear.errors import fail
from bilinear.ir.matrix import Array, Dtype
from bilinear.ir.reference import SPECIAL, exponents_of, rounded, special_product

ROWS, CELLS, COLUMNS = 256, 1 << 14, 1 << 22
"""Rows of C that are multiplied, and numbers of it that are put together at once; and numbers of a slice of B that are kept."""
POINTS: dict[int, tuple[tuple[int, ...], ...]] = {
    1: ((1,),),
    2: ((1, 0), (0, 1), (1, 1)),
    3: ((1, 0, 0), (0, 0, 1), (1, 1, 1), (1, -1, 1), (1, 2, 4)),
}
"""For so many slices, the points at which they are multiplied: the factor of each slice, the lowest first."""
GROWTH = {1: 1, 2: 5, 3: 78}
"""Every number between the products at these points and the digits of C is so many times as large as a product of slices, at the most."""
LEAST_DEPTH = 256  # Sums are so long, if fewer slices are to do.
SINGLE = 26  # Bits of a digit of C where the integers are not sliced.


@dataclass(frozen=True)
class Slicing:
    """Integers as `count` slices of so many `bits`, in sums of at most `depth` terms, which float64 holds."""

    count: int
    bits: int
    depth: int

    @property
    def unit(self) -> int:
        """Bits of a digit of C."""
        return SINGLE if self.count == 1 else self.bits


def slicing(limit: float, inner: int) -> Slicing:
    """The fewest slices for integers of at most `limit` and so many terms: each at most 2^(bits - 1), the top one, too."""
    for count in POINTS:
        bits = next(w for w in range(2, 80) if sum(2.0 ** (w * i + w - 1) for i in range(count)) - 2.0 ** (w * count - w - 1) >= limit)
        largest = limit if count == 1 else 2.0 ** (bits - 1)
        depth = int(2.0**53 / (GROWTH[count] * largest * largest))
        if depth >= min(inner, LEAST_DEPTH):
            break
    return Slicing(count, bits, max(depth, 1))


@contextmanager
def subnormals_kept() -> Iterator[None]:
    """This thread's arithmetic with subnormals, which JAX's callbacks take for zero. Raises `BilinearError` (E821) if it cannot."""
    if not _flushes():
        yield
        return
    kept, library = ctypes.create_string_buffer(64), ctypes.CDLL(None) if sys.platform == "linux" else None
    if library is not None:
        library.fegetenv(kept)
        library.fesetenv(ctypes.c_void_p(-1))  # glibc's FE_DFL_ENV
    try:
        if _flushes():
            raise fail("E821", "this thread takes subnormal numbers for zero", "multiply in another one")
        yield
    finally:
        if library is not None:
            library.fesetenv(kept)


def _flushes() -> bool:
    return bool(np.multiply(np.full(1, 5e-324), 1.0)[0] == 0)


def same_bits_product(a: Array, b: Array, limit: float, dtype: Dtype) -> Array:
    """The product of float64 matrices, m x k and k x n, in a floating-point type: each element is rounded once to nearest, ties to even.

    `limit` is the size of the integers. Element i, j is a function of row i of A, column j of B, K, and the limit. If its row or column
    holds an Inf or a NaN, it is what the sum of products is in the extended reals: NaN if a product is, or if products are infinite with
    both signs; else infinite. A sum of zeros is +0. Allocates the integers of A, and up to six times `COLUMNS` numbers beside them.
    """
    with np.errstate(all="ignore"):  # results may be infinite, and what is not finite is replaced
        return _same_bits(a, b, limit, dtype)


def _same_bits(a: Array, b: Array, limit: float, dtype: Dtype) -> Array:
    (m, inner), n = a.shape, b.shape[1]
    out, cut = np.zeros((m, n), dtype), slicing(limit, inner)
    rows, columns = (np.maximum(x.max(axis, initial=0), -x.min(axis, initial=0)) for x, axis in ((a, 1), (b, 0)))  # or NaN
    left, right = exponents_of(rows, limit), exponents_of(columns, limit)
    width = max(1, min(n, COLUMNS // max(inner, 1)))
    for first in range(0, n if inner else 0, width):
        across = slice(first, first + width)
        forms, step = _forms(b[:, across], right[None, across], cut), max(1, CELLS // width)
        for begin in range(0, m, ROWS):
            digits = _digits(_forms(a[begin : begin + ROWS], left[begin : begin + ROWS, None], cut), forms, cut)
            for row in range(0, len(digits[0]), step):
                down = slice(begin + row, min(begin + row + step, begin + ROWS))
                own = _pieces([x[row : row + step] for x in digits], inner <= cut.depth, cut)
                out[down, across] = rounded(own, left[down], right[across], dtype)
    if not np.isfinite(rows).all():
        out[~np.isfinite(rows)] = special_product(a[~np.isfinite(rows)], b)
    if not np.isfinite(columns).all():
        out[:, ~np.isfinite(columns)] = special_product(a, b[:, ~np.isfinite(columns)])
    return out


def _forms(x: Array, exponents: Array, cut: Slicing) -> Array:
    """The values at the points of the integers of a matrix, 0 in lines that are not finite; a few rows at once, which caches hold."""
    found, step = np.empty((len(POINTS[cut.count]), *x.shape)), max(1, CELLS // x.shape[1])
    first, finite = exponents // 2, exponents != SPECIAL
    by, again = np.ldexp(1.0, np.where(finite, first, 0)), np.ldexp(1.0, np.where(finite, exponents - first, 0))
    spare = np.empty((cut.count + 1, step, x.shape[1]))
    for row in range(0, len(x), step):
        down = slice(row, row + step)
        lines = down if exponents.shape[1] == 1 else slice(None)
        *slices, part = spare[:, : len(x[down])]
        rest = slices[0]
        np.multiply(x[down] if finite[lines].all() else np.where(finite[lines], x[down], 0), by[lines], out=rest)
        np.rint(np.multiply(rest, again[lines], out=rest), out=rest)  # what underflows on the way is far below 1/2
        for i in range(cut.count - 1, 0, -1):
            np.rint(np.multiply(rest, 2.0 ** (-cut.bits * i), out=slices[i]), out=slices[i])
            rest -= np.multiply(slices[i], 2.0 ** (cut.bits * i), out=part)
        for value, point in zip(found, POINTS[cut.count], strict=True):
            value[down] = 0.0
            for factor, own in zip(point, slices, strict=True):
                if factor:
                    value[down] += own if factor == 1 else np.multiply(own, factor, out=part)
    return found


def _digits(left: Array, right: Array, cut: Slicing) -> list[Array]:
    """The products of some rows at the points; digits of C, added up, if K has several blocks."""
    total: list[Array] = []
    for k in range(0, len(right[0]), cut.depth):
        found = [x[:, k : k + cut.depth] @ y[k : k + cut.depth] for x, y in zip(left, right, strict=True)]
        if len(right[0]) <= cut.depth:
            return found
        found = _carried(_between(found, cut), cut)
        total = found if not total else [x + y for x, y in zip(total, found, strict=True)]
    return total


def _between(products: list[Array], cut: Slicing) -> list[Array]:
    """The digits of C from the products at the points; a product without slices has one, and room for a second."""
    if cut.count == 1:
        return [products[0], np.zeros_like(products[0])]
    if cut.count == 2:
        low, high, both = products
        return [low, both - low - high, high]
    low, high, plus, minus, two = products
    even, odd = 0.5 * (plus + minus) - low - high, 0.5 * (plus - minus)
    third = (0.5 * (two - low - 4 * even - 16 * high) - odd) / 3
    return [low, odd - third, even, third, high]


def _carried(digits: list[Array], cut: Slicing) -> list[Array]:
    """The same number in digits of which all but the highest are at most half of the unit of the next."""
    for i in range(len(digits) - 1):
        carry = np.rint(digits[i] * 2.0**-cut.unit)
        digits[i] = digits[i] - carry * 2.0**cut.unit
        digits[i + 1] = digits[i + 1] + carry
    return digits


def _pieces(digits: list[Array], is_whole: bool, cut: Slicing) -> list[Array]:
    """Two or three float64 numbers whose sum is the number of these digits, or of products at the points, the lowest first."""
    digits = _carried(_between(digits, cut) if is_whole else digits, cut)
    own = [digits[0], *(x * 2.0 ** (cut.unit * i) for i, x in enumerate(digits[1:], 1))]
    return own if len(own) < 4 else [own[0] + own[1], own[2] + own[3], own[4]]
