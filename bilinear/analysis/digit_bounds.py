"""Error bounds of products of digits and residues: cuts, scales, sums in a unit that truncates, promotion, levels (docs/digits.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, isqrt, log, sqrt
from typing import Literal

from bilinear.analysis.accuracy import path_growth
from bilinear.analysis.rounding import SLACK, gamma, sides
from bilinear.errors import fail
from bilinear.ir.complex_scheme import Products
from bilinear.ir.digits import MOST_MODULI, DigitScheme, Representation, residues, residues_of
from bilinear.ir.element import FLOAT32, FLOAT64, Element
from bilinear.ir.number import generator, to_float
from bilinear.ir.rounded import Rounding
from bilinear.ir.scheme import Scheme

CUT_OFF = 2.0**-23  # The largest relative error of truncating to the 24 bits of a float32.
ROUNDED = 0.393  # The root mean square of rounding, in units of u: sqrt(1/3) * sqrt(2 ln(2) / 3).
SHRUNK = 1 / 3  # How much truncation shrinks a number on average, in units of `CUT_OFF`: half of a place.
SPREAD = 0.196  # The root mean square of truncation around this mean: sqrt(1/12) * sqrt(2 ln(2) / 3).


@dataclass(frozen=True)
class Unit:
    """How a matrix unit adds: it truncates the old sum and `terms` products to `bits` bits of the largest, adds, and truncates to float32.

    Every unit with float32 sums keeps at least 24 bits; a certain bound assumes 24.
    """

    terms: int = 16
    bits: int = 24

    def growth(self, terms: int) -> float:
        """g with |computed - exact| <= g * (sum of |products|) for a sum of so many products in the unit.

        One step loses `terms` tails, of at most 2^(1 - bits) of the largest number each, and the tail of its result.
        """
        tails = self.terms * 2.0 ** (1 - self.bits)
        return gamma(ceil(terms / self.terms), tails + CUT_OFF + tails * CUT_OFF) * SLACK


@dataclass(frozen=True)
class Summation:
    """How products of digits are added up.

    Products of two first digits stay in the unit for `chunk` terms of K, and the sums of chunks are added up in float32, rounded to
    nearest. The others may be "separate", with a sum in the unit for all of K, which is added last; or share the sums of chunks, "mixed" in
    any order, or "before", where the unit adds up the others of a chunk, and the products of first digits on top of them.
    """

    chunk: int = 256
    unit: Unit = Unit()
    others: Literal["separate", "mixed", "before"] = "separate"


@dataclass(frozen=True)
class DigitBound:
    """A bound for every element of C, for all data, alpha = 1 and beta = 0 (their roundings are counted):

    |C' - AB|[i,j] <= relative * (|A||B|)[i,j] + floor * (a_i * sum |B[.,j]| + b_j * sum |A[i,.]|) + K * floor^2 * a_i * b_j + lost

    with a_i = max |A[i,.]| and b_j = max |B[.,j]| for scaled digits, and a_i = b_j = 1 for unscaled ones. The floor is what small digits
    lose below the smallest number of their type; `lost` is what products lose below that of float32.
    """

    relative: float
    floor: float
    lost: float

    @property
    def of_largest(self) -> float:
        """p with max|C' - AB| <= p * K * max|A| * max|B|, for scaled digits; for unscaled ones if no digit underflows."""
        return (self.relative + (2 * self.floor + self.floor**2 if self.lost == 0 else 0)) * SLACK


def digit_bound(scheme: DigitScheme, inner: int, summation: Summation | None = None, headroom: int = 0) -> DigitBound:
    """The certain bound of a product over K = `inner` by floating-point digits, without block levels.

    `headroom` is the number of bits by which scales are smaller than the largest digit allows, so that sums of blocks can be cut with the
    scales of the blocks. Raises `ValueError` if a product multiplies sums of digits, whose rounding is not known.
    """
    representation, how, u = scheme.representation, summation or Summation(), FLOAT32.unit_roundoff
    computed, dropped = products_of_digits(scheme)
    sizes = digit_sizes(representation)
    first, others = sizes[0] ** 2, [sizes[i] * sizes[j] for i, j in computed if i + j]
    chunk = min(how.chunk, inner)
    alike = len(computed) if how.others == "mixed" else 1
    if representation.shifted and how.others != "separate" and others:
        raise ValueError(f"digits of {representation.name} are stored shifted, and have sums of their own")
    leading = _both(how.unit.growth(alike * chunk), gamma(ceil(inner / chunk) - 1 + (how.others == "separate" and bool(others)), u))
    following = leading
    if others and how.others == "separate":
        following = _both(how.unit.growth(len(others) * inner), u)
    elif others and how.others == "before":
        following = _both(how.unit.growth(len(others) * chunk), leading)
    cut = cutting_error(representation)
    total = first * leading + sum(others) * following + sum(sizes[i] * sizes[j] for i, j in dropped) + cut * (2 + cut)
    floor = smallest_part(representation) * representation.count + (leading + following) * _half_of_smallest(representation)
    assert representation.digit is not None
    if representation.scaled:  # the largest number of a row lies in [2^(most - 2), 2^(most - 1)) after scaling
        return DigitBound(_both(total, gamma(3, u)) * SLACK, floor * 2.0 ** (headroom + 2 - representation.digit.most) * (1 + total), 0.0)
    lost = len(computed) * inner * 2.0**FLOAT32.least
    return DigitBound(_both(total, gamma(3, u)) * SLACK, floor * (1 + total), lost)


def block_bound(
    block: Products | None, levels: int, inner: int, leaf: Callable[[int], float], unit_roundoff: float = FLOAT32.unit_roundoff
) -> float:
    """p with max|C' - AB| <= p * max|A| * max|B|, for `levels` levels of a block scheme above products with their own error.

    `leaf(K)` gives e with max|S T - computed| <= e * K * max|S| * max|T|, where |u|_1 max|A| may stand for max|S|, as it does for scales
    with headroom. The bound is that of `accuracy.error_bound`, with e in the place of the roundings of a leaf product: a term passes the
    roundings of the expansions, of its product, and of the recomposition.
    """
    whole = leaf(inner) * inner
    if block is None or levels == 0:
        return whole * SLACK
    left, right, out = sides(block)
    below = inner // block.k**levels
    rest = inner - below * block.k**levels
    down = out.flat_depth(levels)
    count = left.flat_depth(levels) + right.flat_depth(levels) + down + 4 + max(side.scalings for side in (left, right, out))
    core = gamma(count, unit_roundoff, leaf(below)) * path_growth(block) ** levels * below if below else 0.0
    core += gamma(down + 4, unit_roundoff, leaf(rest)) * rest if rest else 0.0
    return max(core, whole) * SLACK


def probable_digits(scheme: DigitScheme, inner: int, summation: Summation | None = None, levels: int = 1) -> float:
    """The probable error by norm of floating-point digits, below `levels` levels of the block scheme above them (if there is one).

    Truncation in the unit shrinks all products by the same part on average. Block schemes amplify only the variation around it.
    """
    representation, how = scheme.representation, summation or Summation()
    block, u = scheme.above, FLOAT32.unit_roundoff
    below = inner if block is None else max(1, inner // block.k**levels)
    computed, dropped = products_of_digits(scheme)
    others = [(i, j) for i, j in computed if i + j]
    sizes = 1.0, *(ROUNDED * size for size in digit_sizes(representation)[1:])  # for uniform remainders
    chunk = min(how.chunk, below)
    shrunk, varied = cut_off(chunk * (len(computed) if how.others == "mixed" else 1), how.unit)
    varied += (ROUNDED * u) ** 2 * (ceil(below / chunk) / 2 + 1)
    varied += 2 * (ROUNDED * cutting_error(representation)) ** 2 + sum((sizes[i] * sizes[j]) ** 2 for i, j in dropped)
    together = below if how.others == "separate" else chunk
    low = cut_off(len(others) * together, how.unit) if others and how.others != "mixed" else (0.0, 0.0)
    varied += (low[0] ** 2 + low[1]) * sum((sizes[i] * sizes[j]) ** 2 for i, j in others)
    if block is None or levels == 0:
        return sqrt(shrunk**2 + varied)
    return sqrt(shrunk**2 + block_variance(block, levels, varied, u))


def block_variance(block: Scheme, levels: int, leaf: float, unit_roundoff: float) -> float:
    """The variance of the error by norm above leaf products of this variance: levels amplify it and add the roundings of their sums."""
    rounded = (ROUNDED * unit_roundoff) ** 2
    return norm_growth(block) ** (2 * levels) * (leaf + rounded * levels * roundings(block))


def roundings(block: Scheme) -> float:
    """The roundings that a level's sums add to an error's variance, in those of one; partial sums have half a chain's on average."""
    return sum(side.depth / 2 for side in sides(block))


def norm_growth(block: Scheme) -> float:
    """The factor by which one level amplifies errors by norm that are independent from product to product; 1 for the classical scheme.

    The root of the mean over the blocks of C of sum over products w^2 |u|_2^2 |v|_2^2 / k, for independent centred blocks.
    """
    u, v, w = block.tables
    norms = [[sum(to_float(c) ** 2 for _, c in row) for row in table] for table in (u, v)]
    total = sum(to_float(c) ** 2 * norms[0][p] * norms[1][p] for row in w for p, c in row)
    return sqrt(total / (len(w) * block.k))


def probable_classical(inner: int, unit_roundoff: float) -> float:
    """The probable error by norm of a classical multiply, with sums of K terms rounded to nearest one by one."""
    return ROUNDED * unit_roundoff * sqrt((inner + 1) / 2)


def products_of_digits(scheme: DigitScheme) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
    """The pairs of digits that a proved scheme multiplies, and those that it drops; `ValueError` if it multiplies sums of digits."""
    core, count = scheme.core, scheme.representation.count
    u, v, (w,) = core.tables
    pairs = []
    for p, coefficient in w:
        if len(u[p]) != 1 or len(v[p]) != 1:
            raise ValueError(f"{scheme.name} multiplies sums of digits")
        (i, a), (j, b) = u[p][0], v[p][0]
        if coefficient * a * b != (generator("lambda", i + j) if i + j else 1):
            raise ValueError(f"{scheme.name} multiplies digits by other factors than lambda")
        pairs.append((i, j))
    every = ((i, j) for i in range(count) for j in range(count))
    return tuple(pairs), tuple(pair for pair in every if pair not in pairs)


def digit_sizes(representation: Representation) -> tuple[float, ...]:
    """The largest size of each digit times its power of lambda, relative to |x|, above the smallest numbers of the type.

    The remainder after d digits of q bits is at most 2^(1 - d(q + 1)) |x| if they are rounded, because a sign is one more bit, and below
    2^(1 - dq) |x| if they are truncated. A digit is at most the remainder before it.
    """
    assert representation.digit is not None
    q = representation.digit.significand + representation.rounded
    first = 1 + representation.digit.unit_roundoff if representation.rounded else 1.0
    return first, *(2.0 ** (1 - d * q) for d in range(1, representation.count))


def cutting_error(representation: Representation) -> float:
    """The largest part of |x| that no digit holds; 0 if that would be less than the last place of x."""
    assert representation.digit is not None
    exponent = 1 - representation.count * (representation.digit.significand + representation.rounded)
    return 2.0**exponent if exponent >= 1 - representation.of.significand else 0.0


def smallest_part(representation: Representation) -> float:
    """The largest part of x that the last digit loses below the smallest number of its type."""
    weight = float(representation.step) ** (representation.count - 1) if representation.shifted else 1.0
    return _half_of_smallest(representation) * weight


def _half_of_smallest(representation: Representation) -> float:
    assert representation.digit is not None
    return 2.0 ** (representation.digit.least - representation.rounded)


def cut_off(terms: int, unit: Unit) -> tuple[float, float]:
    """How much a sum of random terms in the unit shrinks, relative to itself, and the variance around this mean.

    The n partial sums are a random walk: the i-th has the variance i and the covariance i with the whole, in units of one step.
    """
    n = ceil(terms / unit.terms)
    shrunk = SHRUNK * CUT_OFF
    varied = shrunk**2 * (n + 1) * (n - 1) / 12 + (SPREAD * CUT_OFF) ** 2 * (n + 1) / 2
    return shrunk * (n + 1) / 2, varied


def _both(first: float, second: float) -> float:
    """The relative error of two successive ones: (1 + first) * (1 + second) - 1."""
    return first + second + first * second


STEP = 2.0**-22 * (1 + 2.0**-20)
"""By how much a step of a single product, which the unit cuts off twice, multiplies the sum of sizes; of longer steps each product less."""


def rounded_bound(own: Rounding, inner: int) -> float:
    """The bound of max|C - A*B| / (max|A| max|B|) that always holds, unless numbers overflow or underflow when they are rounded."""
    u = FLOAT32.roundoffs[1]
    kept = 1 + 2.0 ** (1 - own.bits if own.cuts else -own.bits)
    return inner * (kept**2 * (1 + STEP) ** inner * (1 + u) ** 3 - 1)


def rounded_probable(own: Rounding, inner: int) -> float:
    """The probable error by norm, for independent centred data."""
    shrunk, varied = cut_off(inner, Unit())
    last = 2.0 ** (1 - own.bits)
    if own.cuts:
        shrunk, varied = shrunk + 2 * SHRUNK * last, varied + 2 * (SPREAD * last) ** 2
    else:
        varied += 2 * (ROUNDED * last / 2) ** 2
    return float((shrunk**2 + varied) ** 0.5)


_UNEVEN = 1.4711  # The root mean square of 2^f, f uniform in [0, 1]: the loss as a scale is a power of two.


@dataclass(frozen=True)
class ResidueBound:
    """A bound for every element of C, for all data, alpha = 1 and beta = 0 (their roundings are counted):

    |C' - AB|[i,j] <= rounded * (|A||B|)[i,j] + cut * (|a_i|_2 * sum |B[.,j]| + |b_j|_2 * sum |A[i,.]|) + K * cut^2 * |a_i|_2 * |b_j|_2

    with the 2-norms of row i of A and of column j of B. The last two terms bound the error of rounding to integers.
    """

    rounded: float
    cut: float
    inner: int

    @property
    def of_largest(self) -> float:
        """p with max|C' - AB| <= p * K * max|A| * max|B|."""
        cut = self.cut * sqrt(self.inner)
        return (self.rounded + 2 * cut + cut**2) * SLACK


def residue_bound(scheme: DigitScheme, inner: int) -> ResidueBound:
    """The certain bound of a product over K = `inner` by residues, without block levels above. Raises `BilinearError` (E567)."""
    representation = scheme.representation
    loss = 0.5 if representation.rounded else 1.0
    # 2^(e+1) is too large a scale, so 2^-e < 2 * norm / room; norms are rounded up, by a factor of 1 + (K + 8) u
    cut = 2 * loss / room_of(representation, inner) * (1 + (inner + 8) * 2.0**-53)
    return ResidueBound(gamma(3, representation.of.unit_roundoff) * (1 + cut * sqrt(inner)) ** 2, cut * (1 + 2.0**-20), inner)


def residue_block_bound(scheme: DigitScheme, inner: int, levels: int = 1) -> float:
    """p with max|C' - AB| <= p * max|A| * max|B| below `levels` of the scheme above; one inside adds exactly, and does not appear."""
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


def largest_scaled(representation: Representation, inner: int) -> float:
    """T, the largest float64 with 2 K T^2 <= (1 - 2^-30) M: integers of at most T have sums of K products that residues hold.

    It depends on the moduli and on K alone. Raises `BilinearError` (E567) if there are too few moduli.
    """
    found = isqrt((2**30 - 1) * representation.product // (2**31 * inner))
    if found == 0:
        raise fail("E567", f"{representation.count} moduli are too few for sums of {inner} terms", "take more moduli")
    tail = max(0, found.bit_length() - FLOAT64.significand)
    return float(found >> tail << tail)


def same_bits_bound(limit: float, inner: int, unit_roundoff: float) -> float:
    """p with max|C' - AB| <= p * max|A| * max|B| where the largest numbers are scaled to the limit T, and results rounded by this.

    A number x of a row whose largest is a is rounded by at most 2^-e / 2 < a / T, because 2^(e+1) a > T.
    """
    cut = 1 / limit
    return inner * (2 * cut + cut**2 + gamma(3, unit_roundoff) * (1 + cut) ** 2) * SLACK


def probable_same_bits(limit: float, inner: int, unit_roundoff: float) -> float:
    """The probable error by norm for normal data, whose largest number of K is sqrt(2 log 2K) times their root mean square."""
    peak = sqrt(2 * log(2 * inner))
    return sqrt(2 * (sqrt(1 / 12) * _UNEVEN * peak / limit) ** 2 + (ROUNDED * unit_roundoff) ** 2)


def _rounding_norm(representation: Representation, inner: int) -> Fraction:
    """The largest 2-norm of the errors of rounding K numbers to integers, rounded up."""
    return Fraction(isqrt(max(inner, 1) - 1) + 1, 2) if representation.rounded else Fraction(0)
