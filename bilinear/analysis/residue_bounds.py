"""Products by residues: the scales that keep them exact, their error bounds, and how many moduli an accuracy takes (docs/digits.md).

A row of A is scaled by 2^e and rounded to integers. All later steps are exact until the result is rounded once, so the error comes from
rounding to integers and depends on the scales.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt, sqrt

from bilinear.analysis.digit_bounds import ROUNDED, block_bound, block_variance
from bilinear.analysis.rounding import SLACK, gamma
from bilinear.errors import fail
from bilinear.ir.digits import MOST_MODULI, DigitScheme, Representation, residues, residues_of
from bilinear.ir.element import FLOAT64, Element

_UNEVEN = 1.4711
"""The root mean square of 2^f for f uniform between 0 and 1: the loss because a scale is a power of two."""


@dataclass(frozen=True)
class ResidueBound:
    """A bound for every element of C, for all data, alpha = 1 and beta = 0 (their roundings are counted):

    |C' - AB|[i,j] <= rounded * (|A||B|)[i,j] + cut * (|a_i|_2 * sum |B[.,j]| + |b_j|_2 * sum |A[i,.]|) + K * cut^2 * |a_i|_2 * |b_j|_2

    with the 2-norms of row i of A and of column j of B. The last two terms bound the error of rounding to integers.
    """

    rounded: float
    cut: float
    inner: int

    def of_element(self, product: float, rows: tuple[float, float], columns: tuple[float, float]) -> float:
        """The bound for one element: (|A||B|)[i,j]; 2-norm and sum of |A[i,.]|; 2-norm and sum of |B[.,j]|."""
        small = self.cut * (rows[0] * columns[1] + columns[0] * rows[1]) + self.inner * self.cut**2 * rows[0] * columns[0]
        return (self.rounded * product + small) * SLACK

    @property
    def of_largest(self) -> float:
        """p with max|C' - AB| <= p * K * max|A| * max|B|."""
        cut = self.cut * sqrt(self.inner)
        return (self.rounded + 2 * cut + cut**2) * SLACK


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


def residue_bound(scheme: DigitScheme, inner: int) -> ResidueBound:
    """The certain bound of a product over K = `inner` by residues, without block levels above. Raises `BilinearError` (E567)."""
    representation = scheme.representation
    loss = 0.5 if representation.rounded else 1.0
    # 2^(e+1) is too large a scale, so 2^-e < 2 * norm / room; norms are rounded up by `norm_upward`
    cut = 2 * loss / room_of(representation, inner) * (1 + (inner + 8) * 2.0**-53)
    return ResidueBound(gamma(3, representation.of.unit_roundoff) * (1 + cut * sqrt(inner)) ** 2, cut * (1 + 2.0**-20), inner)


def residue_block_bound(scheme: DigitScheme, inner: int, levels: int = 1) -> float:
    """p with max|C' - AB| <= p * max|A| * max|B|, with `levels` levels of the block scheme above (if there is one).

    A block scheme inside adds residues, exactly, and does not appear in the bound.
    """
    u = scheme.representation.of.unit_roundoff
    return block_bound(scheme.above, levels, inner, lambda k: residue_bound(scheme, k).of_largest if k else 0.0, u)


def probable_residues(scheme: DigitScheme, inner: int, levels: int = 1) -> float:
    """The probable error by norm: both operands are rounded to integers, evenly spread, and the result is rounded once."""
    representation, block = scheme.representation, scheme.above
    u = representation.of.unit_roundoff
    below = inner if block is None else max(1, inner // block.k**levels)
    tail = sqrt(1 / 12) if representation.rounded else sqrt(1 / 3)
    varied = 2 * (tail * _UNEVEN * sqrt(below) / room_of(representation, below)) ** 2 + (ROUNDED * u) ** 2
    return sqrt(varied if block is None or levels == 0 else block_variance(block, levels, varied, u))


def moduli_for(
    of: Element, inner: int, accuracy: float, *, probable: bool = False, counts: Iterable[int] | None = None, gaussian: bool = False
) -> Representation:
    """The residues with the fewest moduli whose certain bound, relative to max|A| * max|B|, is at most an accuracy at K = `inner`.

    With `probable`, the accuracy is an error by norm. `counts` are the numbers of moduli that are considered, `gaussian` ones or others.
    Raises `BilinearError` (E567) if none is enough: the result is rounded to the type `of` in any case.
    """
    for count in counts or range(2, MOST_MODULI + 1):
        representation = residues_of(of, count, gaussian)
        scheme = residues(representation)
        if not _has_room(representation, inner):
            continue
        error = probable_residues(scheme, inner) if probable else residue_block_bound(scheme, inner)
        if error <= accuracy:
            return representation
    least = of.unit_roundoff * (ROUNDED if probable else 4 * inner)
    raise fail("E567", f"no residues of {of} keep an error of {accuracy:g} at K = {inner}", f"rounding the result alone may be {least:.1e}")


def _has_room(representation: Representation, inner: int) -> bool:
    return representation.norm_limit > _rounding_norm(representation, inner)


def room_of(representation: Representation, inner: int) -> float:
    """The largest 2-norm of a scaled row: R minus the effect of rounding to integers. Raises `ValueError` for unscaled residues."""
    if not representation.scaled:
        raise ValueError("unscaled residues are those of integers, and exact while 2 |C| < M")
    if not _has_room(representation, inner):
        what = f"{representation.count} moduli are too few for sums of {inner} terms"
        raise fail("E567", what, "take more moduli: their product grows with each")
    twice = int(2 * (representation.norm_limit - _rounding_norm(representation, inner)))
    tail = max(0, twice.bit_length() - FLOAT64.significand)
    return (twice >> tail << tail) / 2


def _rounding_norm(representation: Representation, inner: int) -> Fraction:
    """The largest 2-norm of the errors of rounding K numbers to integers, rounded up."""
    return Fraction(isqrt(max(inner, 1) - 1) + 1, 2) if representation.rounded else Fraction(0)
