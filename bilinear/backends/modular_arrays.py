"""Integers modulo p in NumPy's arrays: sums, factors, and products by the products of floats. All of it is exact."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bilinear.analysis.integer_range import LARGEST_MODULUS, LARGEST_SUM, ModularWay, way_for
from bilinear.backends.array_sums import ElementArithmetic
from bilinear.ir.linear import Form
from bilinear.ir.matrix import Array, Dtype, Factor, matrix_of
from bilinear.ir.number import Coefficient, residue

TILE = 1024  # Rows and columns of C that are computed together.
DEPTH = 512  # Terms of sums whose operands are cut together.
INT64 = np.dtype(np.int64)


class ModularArithmetic(ElementArithmetic):
    """Sums and products of elements modulo p, which lie in int64 as numbers from 0 to p - 1."""

    def __init__(self, modulus: int) -> None:
        if not 2 <= modulus <= LARGEST_MODULUS:
            raise ValueError(f"{modulus} is not a modulus")
        self.modulus = modulus

    def factor(self, value: Coefficient, alpha: Factor, dtype: Dtype) -> Factor:
        """alpha times a coefficient, from 0 to p - 1."""
        found: Factor = alpha * residue(value, self.modulus) % self.modulus
        return found

    def combine(self, terms: Form, values: list[Array], out: Array, scratch: Array) -> None:
        """out = the linear form over the values; `out` may be the value of the first term."""
        if not terms:
            out[...] = 0
        for number, (index, c) in enumerate(terms):
            self.add(out, values[index], scratch, c, int(number > 0))

    def add(self, out: Array, value: Array, scratch: Array, factor: Coefficient, keep: Coefficient) -> None:
        """out = keep * out + factor * value; with keep = 0 the old value is not read, and `value` may be `out` itself."""
        p, factor, keep = self.modulus, residue(factor, self.modulus), residue(keep, self.modulus)
        if keep == 0:
            if value is not out:
                np.copyto(out, value)
            scale(out, factor, p)
            return
        scale(out, keep, p)
        if factor == 1:
            np.add(out, value, out=out)
        else:
            np.copyto(scratch, value)
            scale(scratch, factor, p)
            np.add(out, scratch, out=out)
        subtract_once(out, p, scratch)

    def multiply(self, left: Array, right: Array, out: Array) -> None:
        """out = left * right, for numbers from 0 to p - 1."""
        multiply_modulo(left, right, out, way_for(self.modulus, self.modulus // 2, self.modulus // 2, left.shape[1]))


def subtract_once(x: Array, p: int, scratch: Array) -> None:
    """x - p where x is at least p, for numbers from 0 to 2 p - 1 in int64: what would be negative is the larger unsigned number."""
    whole, spare = x.view(np.uint64), scratch.view(np.uint64)
    np.subtract(whole, np.uint64(p), out=spare)
    np.minimum(whole, spare, out=whole)


def scale(x: Array, factor: int, p: int) -> None:
    """x = factor * x modulo p, for numbers from 0 to p - 1 in int64.

    Factors whose products exceed int64 are multiplied by a quotient that is computed beforehand (V. Shoup's method, NTL): with w' =
    floor(2^64 w / p), the quotient of x w by p is less than 1 + x / 2^64 above floor(x w' / 2^64). That is computed from halves of 32 bits
    without their carries, so it is up to 2 too small. What is left is at least 0 and below 4 p <= 2^64.
    """
    least = factor if 2 * factor <= p else factor - p
    if factor == 1:
        return
    if abs(least) * (p - 1) <= LARGEST_SUM:
        np.multiply(x, least, out=x)
        np.remainder(x, p, out=x)
        return
    whole, ahead = x.view(np.uint64), (factor << 64) // p
    half, mask = np.uint64(32), np.uint64(2**32 - 1)
    high, low = whole >> half, whole & mask
    above, below = np.uint64(ahead >> 32), np.uint64(ahead & 0xFFFFFFFF)
    quotient = high * above + (high * below >> half) + (low * above >> half)
    np.multiply(whole, np.uint64(factor), out=whole)
    np.subtract(whole, quotient * np.uint64(p), out=whole)
    for times in (2, 1):
        np.minimum(whole, whole - np.uint64(times * p), out=whole)


def canonical(x: Array, p: int) -> Array:
    """Integers of any type as numbers from 0 to p - 1 in int64: the array itself if they are, else a new one."""
    if x.dtype == INT64 and is_aligned(x) and largest_of(x, p)[1]:
        return x
    wide = np.uint64 if x.dtype.kind == "u" else np.int64
    return (x.astype(wide) % wide(p)).astype(np.int64, copy=False)


def is_aligned(x: Array) -> bool:
    """Whether every element begins at a multiple of its bytes."""
    return all(distance % x.dtype.itemsize == 0 for distance in (matrix_of(x).address, *x.strides))


def largest_of(x: Array, p: int) -> tuple[int, bool]:
    """The largest magnitude of integers as multiplied modulo p (as they are up to p/2, else residues), and if all are below p."""
    low, high = (int(x.min()), int(x.max())) if x.size else (0, 0)
    return min(max(high, -low), p // 2), low >= 0 and high < p


def multiply_modulo(left: Array, right: Array, out: Array, way: ModularWay, alpha: int = 1, beta: int = 0) -> None:
    """out = alpha * left * right + beta * out modulo p, from 0 to p - 1, for integer matrices of any types and strides.

    It works on tiles in buffers of fixed size. The factors are from 0 to p - 1; with beta = 0, `out` is not read. Elements of `left` and
    `right` are as large as the `way` says, or larger than p/2.
    """
    if 0 in out.shape:
        return
    product, p = _TileProducts(way, left.shape[1] if alpha else 0), way.modulus
    for rows in parts(out.shape[0], TILE):
        for columns in parts(out.shape[1], TILE):
            found = product(left[rows], right[:, columns])
            scale(found, alpha, p)
            if beta:
                old = canonical(out[rows, columns], p).copy()
                scale(old, beta, p)
                np.add(found, old, out=found)
                subtract_once(found, p, old)
            out[rows, columns] = found


def parts(extent: int, step: int) -> Iterator[slice]:
    """Equal parts of an extent of at most so many elements, the last one shorter."""
    return (slice(start, min(start + step, extent)) for start in range(0, extent, step))


class _TileProducts:
    def __init__(self, way: ModularWay, inner: int) -> None:
        self._way, self._inner = way, inner

    def __call__(self, left: Array, right: Array) -> Array:
        """The product of some rows and some columns modulo p."""
        way, shape = self._way, (left.shape[0], right.shape[1])
        sums = [np.zeros(shape, np.int64) for _ in way.pairs]
        part, whole, chunks = np.empty(shape, way.element.name), np.empty(shape, np.int64), 0
        for inner in parts(self._inner, DEPTH):
            lefts, rights = self._cut(left[:, inner], way.left), self._cut(right[inner], way.right)
            for terms in parts(inner.stop - inner.start, way.chunk):
                if chunks == way.most_chunks:
                    chunks = 0
                    for total in sums:
                        np.remainder(total, way.modulus, out=total)
                chunks += 1
                for a, b, total in zip(lefts, rights, sums, strict=True):
                    np.matmul(a[:, terms], b[terms], out=part)
                    np.copyto(whole, part, casting="unsafe")
                    np.add(total, whole, out=total)
        p, scratch = self._way.modulus, np.empty_like(sums[0])  # their sum, each times its power of 2^width
        for total in sums:
            np.remainder(total, p, out=total)
        powers = [self._power(sums, terms) for terms in self._way.powers()]
        result = powers.pop()
        while powers:
            scale(result, (1 << self._way.width) % p, p)
            np.add(result, powers.pop(), out=result)
            subtract_once(result, p, scratch)
        return result

    def _cut(self, block: Array, size: int) -> list[Array]:
        """What each product multiplies, of a block of an operand."""
        if block.dtype.kind == "u" and block.dtype.itemsize == 8:  # of numbers that int64 does not hold
            block = np.remainder(block, np.uint64(self._way.modulus))
        x, p, way = block.astype(np.int64), self._way.modulus, self._way
        low, high = int(x.min()), int(x.max())
        if -low > p // 2 or high >= p:
            np.remainder(x, p, out=x)
            low, high = 0, p - 1
        if high > p // 2:
            x -= p * (x > p // 2)
            high = p // 2
        if max(high, -low) > size:
            raise ArithmeticError(f"an element is larger than {size}, for which sums were proved to be exact")
        pieces: list[Array] = []
        half, mask = (1 << way.width) >> 1, (1 << way.width) - 1
        for _ in range(way.pieces - 1):
            digit = ((x + half) & mask) - half
            x = (x - digit) >> way.width
            pieces.append(digit)
        pieces.append(x)
        whole = (pieces[i] if i == j else pieces[i] + pieces[j] for i, j in way.pairs)
        return [each.astype(way.element.name) for each in whole]

    def _power(self, sums: list[Array], terms: tuple[tuple[int, int], ...]) -> Array:
        """What is multiplied by a power of 2^width: some products less others, modulo p."""
        (first, sign), *others = sorted(terms, key=lambda term: -term[1])
        if sign < 0:
            raise ValueError("every power has a product that is added")
        power = sums[first].copy()
        for number, sign in others:
            (np.add if sign > 0 else np.subtract)(power, sums[number], out=power)
        if others:
            np.remainder(power, self._way.modulus, out=power)
        return power
