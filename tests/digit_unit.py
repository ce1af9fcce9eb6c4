"""Digits and a matrix unit, bit by bit in NumPy: cutting, sums that are cut off, promotion, residues. The oracle of digit bounds.

All values are float64 arrays that hold narrower numbers exactly: products of two digits have at most 22 bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from math import frexp, fsum, isfinite, isqrt, sqrt

import numpy as np
from numpy.typing import NDArray

from bilinear.analysis.digit_bounds import Summation, Unit, products_of_digits, room_of
from bilinear.frontend import LoadedDigits, load_any
from bilinear.ir.digits import DigitScheme, Representation, least_residue
from bilinear.ir.element import FLOAT32, FLOAT64, Element
from bilinear.ir.tile import LONGEST_SUM
from bilinear.planner.device import Device, ElementRates

Reals = NDArray[np.float64]


def kept(x: Reals, element: Element, rounded: bool = True) -> Reals:
    """Numbers of a type: rounded to nearest, ties to even, or truncated towards zero."""
    exponent = np.maximum(np.frexp(x)[1] - element.significand, element.least)
    whole = np.ldexp(x, -exponent)
    found = np.ldexp(np.rint(whole) if rounded else np.trunc(whole), exponent)
    return np.asarray(np.where(np.abs(found) >= 2.0**element.most, np.copysign(np.inf, x), found))


def digits(name: str) -> DigitScheme:
    """A shipped scheme of digits."""
    found = load_any(name)
    assert isinstance(found, LoadedDigits)
    return found.scheme


def exponents(x: Reals, representation: Representation, axis: int, headroom: int = 0) -> NDArray[np.int64]:
    """The exponents of the scales of the rows (axis 1) or columns (axis 0)."""
    return np.array([line_exponent(float(largest), representation, headroom) for largest in np.abs(x).max(axis)])


def digits_of(x: Reals, representation: Representation) -> list[Reals]:
    """The digits of scaled numbers, times their power of lambda."""
    assert representation.digit is not None
    rest, found = x, []
    for i in range(representation.count):
        weight = float(representation.step) ** i if representation.shifted else 1.0
        digit = kept(rest / weight, representation.digit, representation.rounded) * weight
        found.append(digit)
        rest = rest - digit
    return found


def in_unit(total: Reals, left: Reals, right: Reals, unit: Unit) -> Reals:
    """One sum in the unit: `terms` products at a time, aligned to the largest and cut off, then cut off to float32."""
    for start in range(0, left.shape[1], unit.terms):
        stop = start + unit.terms
        products = left[:, start:stop, None] * right[None, start:stop, :]
        addends = np.concatenate([total[:, None, :], products], axis=1)
        least = np.frexp(np.abs(addends).max(1, keepdims=True))[1] - unit.bits
        total = kept(np.ldexp(np.trunc(np.ldexp(addends, -least)), least).sum(1), FLOAT32, rounded=False)
    return total


def multiply(scheme: DigitScheme, a: Reals, b: Reals, how: Summation, headroom: int = 0) -> Reals:
    """A*B by floating-point digits as a kernel runs it, without block levels; pairs are added in the order of the scheme."""
    representation = scheme.representation
    rows, columns = exponents(a, representation, 1, headroom), exponents(b, representation, 0, headroom)
    left, right = digits_of(np.ldexp(a, rows[:, None]), representation), digits_of(np.ldexp(b, columns), representation)
    total, following = np.zeros((len(a), b.shape[1])), np.zeros((len(a), b.shape[1]))
    others = [pair for pair in products_of_digits(scheme)[0] if pair != (0, 0)]
    for start in range(0, a.shape[1], how.chunk):
        part = slice(start, start + how.chunk)
        chunk = np.zeros_like(total)
        if how.others == "before":
            for i, j in others:
                chunk = in_unit(chunk, left[i][:, part], right[j][part], how.unit)
        chunk = in_unit(chunk, left[0][:, part], right[0][part], how.unit)
        for i, j in () if how.others == "before" else others:
            if how.others == "separate":
                following = in_unit(following, left[i][:, part], right[j][part], how.unit)
            else:
                chunk = in_unit(chunk, left[i][:, part], right[j][part], how.unit)
        total = kept(total + chunk, FLOAT32)
    return kept(np.ldexp(kept(total + following, FLOAT32), -rows[:, None] - columns), FLOAT32)


def exact(a: Reals, b: Reals) -> tuple[Reals, Reals]:
    """A*B and |A||B| of float32 matrices: products are exact in float64, and sums are rounded once."""
    products = a[:, :, None] * b[None]
    sums = [[[fsum(x) for x in m.T] for m in part] for part in (products, np.abs(products))]
    return np.array(sums[0]), np.array(sums[1])


def by_norm(found: Reals, wanted: Reals) -> float:
    """The error by norm."""
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def as_integers(lines: Iterable[Reals], representation: Representation) -> list[tuple[int, list[int]]]:
    """Rows of A, or columns of B, scaled and rounded: the exponent and the integers of each."""
    found = []
    for line in lines:
        unit = max(float(np.abs(line).max()), 5e-324)
        norm = Fraction(norm_upward(float(((line / unit) ** 2).sum()), len(line))) * Fraction(unit)
        exponent = scale_exponent(norm if line.any() else 0, representation, len(line))
        scaled = [Fraction(float(x)) * Fraction(2) ** exponent for x in line]
        found.append((exponent, [round(x) if representation.rounded else int(x) for x in scaled]))
    return found


def by_residues(representation: Representation, left: list[int], right: list[int]) -> int:
    """The sum of products by residues in int8, sums in int32 that wrap around, and the Chinese remainder theorem."""
    total, product = 0, representation.product
    for p, weight in zip(representation.moduli, representation.weights, strict=True):
        x, y = (np.array([least_residue(v, p) for v in line], np.int8).astype(np.int32) for line in (left, right))
        parts = [int(np.dot(x[i : i + LONGEST_SUM], y[i : i + LONGEST_SUM])) for i in range(0, len(x), LONGEST_SUM)]
        total += weight * least_residue(sum(parts), p)
    return (total + product // 2) % product - product // 2


KINDS = "normal", "nine decades", "thirty decades", "cancelling", "subnormal", "largest", "zeros", "lone"
"""Kinds of data on which bounds are checked."""


def data(kind: str, m: int, k: int, n: int, element: Element = FLOAT64) -> tuple[Reals, Reals]:
    """Operands of one of `KINDS`, numbers of an element type."""
    generator = np.random.default_rng(31 * k + m)
    a, b = generator.standard_normal((m, k)), generator.standard_normal((k, n))
    if kind in ("nine decades", "thirty decades"):
        many = 9 if kind == "nine decades" else 30
        a, b = (x * 10 ** generator.uniform(-many / 2, many / 2, x.shape) for x in (a, b))
    elif kind == "cancelling":
        a[:, 1::2] = -a[:, : k // 2 * 2 : 2]
        b = np.ones((k, n)) / 3
    elif kind == "subnormal":
        most = 2 ** (element.significand - 3)
        a = np.ldexp(generator.integers(-most, most, (m, k)).astype(float), element.least)
    elif kind == "largest":
        a[0], b = element.largest * np.sign(a[0]), b * 2.0**-40
    elif kind == "zeros":
        a[0], b[:, 1] = 0.0, 0.0
    elif kind == "lone":
        a[:] = 2.0**-40
        a[:, 0] = 1.0
    return a.astype(element.name).astype(float), b.astype(element.name).astype(float)


def allowed(rounded: float, cut: float, inner: int, x: list[Fraction], y: list[Fraction]) -> Fraction:
    """The certain bound of one element by residues, exactly: numbers may be beyond the range of floats."""
    norms = [root_upward(sum((v * v for v in line), Fraction(0))) for line in (x, y)]
    sums = [sum((abs(v) for v in line), Fraction(0)) for line in (x, y)]
    size = sum((abs(p * q) for p, q in zip(x, y, strict=True)), Fraction(0))
    cut_, grain = Fraction(cut), Fraction(rounded)
    return grain * size + cut_ * (norms[0] * sums[1] + norms[1] * sums[0]) + inner * cut_**2 * norms[0] * norms[1]


def root_upward(square: Fraction) -> Fraction:
    """A square root that is not too small, to about 100 bits."""
    if not square:
        return Fraction(0)
    shift = 2 * max(0, 100 - (square.numerator.bit_length() - square.denominator.bit_length()) // 2)
    return Fraction(isqrt(int(square * 2**shift)) + 1, 2 ** (shift // 2))


def slow_units(device: Device) -> Device:
    """The device, with units for float32 and float64 that are a thousand times as slow, so that products of digits win at any size."""

    def slow(rates: ElementRates) -> ElementRates:
        return replace(rates, library=tuple((size, rate / 1e3) for size, rate in rates.library), product=((1.0, 0.01),))

    policy = replace(device.policy, least_gain_digits=-1e9)
    return replace(device, policy=policy, elements=tuple((name, slow(own)) for name, own in device.elements))


LARGEST_EXPONENT = 126  # A scale of floating-point digits is at most 2^126.


def line_exponent(largest: float, representation: Representation, headroom: int = 0) -> int:
    """The exponent of the scale of a row of A, or a column of B, of floating-point digits whose largest number has this size; 0 for zeros.

    2^e * largest lies in [2^(most - 2 - headroom), 2^(most - 1 - headroom)), where 2^most overflows in the digits' type; or e is 126, the
    largest exponent whose power of two and its reciprocal are normal floats. Then all numbers of the line are multiples of 2^-23.
    """
    assert representation.digit is not None and isfinite(largest)
    if not representation.scaled or not largest:
        return 0
    return min(representation.digit.most - 1 - headroom - frexp(largest)[1], LARGEST_EXPONENT)


def scale_exponent(norm: Fraction | float, representation: Representation, inner: int) -> int:
    """The exponent e of the scale of a row of A, or a column of B, with this 2-norm rounded up; 0 for zeros.

    It is the largest e with 2^e * norm + r * sqrt(K) <= R, where r is the most that rounding to an integer adds: 1/2, or 0 if truncated.
    The integers of the row then have a 2-norm of at most R, so sum |a'||b'| <= R^2 < M/2 by Cauchy and Schwarz, for every input.
    """
    room = room_of(representation, inner)
    if not norm:
        return 0
    ratio = Fraction(room) / Fraction(norm)
    exponent = ratio.numerator.bit_length() - ratio.denominator.bit_length()
    return exponent if Fraction(2) ** exponent <= ratio else exponent - 1


def norm_upward(squares: float, inner: int) -> float:
    """An upper bound of a 2-norm from a sum of K squares, added up in float64 in any order without under- or overflow."""
    return sqrt(squares) * (1 + (inner + 8) * 2.0**-53)
