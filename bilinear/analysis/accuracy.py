"""Error bounds for fast multiplies in floating point, for all data or with a confidence; and an error's norm from random projections."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil, cos, e, inf, isnan, log, log2, pi, sqrt
from typing import NamedTuple

from bilinear.analysis.rounding import SLACK, OperandValue, ResultValue, Trace, gamma, magnitude, sides
from bilinear.ir.complex_scheme import Products
from bilinear.ir.element import KNOWN
from bilinear.ir.gram import GramScheme
from bilinear.ir.linear import Form
from bilinear.ir.number import Coefficient, Symbolic, is_normal, to_float
from bilinear.ir.placement import MOST_LEVELS
from bilinear.ir.schedule import Block, Schedule
from bilinear.ir.scheme import Scheme

PROBABLE = sqrt(2)
"""The probable error by norm of three products, in units of that of four by the same real products, for independent centred parts.

With v the variance of the error of a product of parts whose entries have unit variance, the real part has variance 2v and the imaginary
part 4v + v + v, because the sums in the third product have twice the variance; four products have 2v and 2v.
"""


class PartsBound(NamedTuple):
    """Bounds of the errors of the real and of the imaginary part, each in units of the largest magnitudes of parts of A and of B."""

    real: float
    imaginary: float


def four_products_bound(inner: int, unit_roundoff: float) -> PartsBound:
    """The bounds for sums of `inner` terms by the definition."""
    found = 2 * inner * gamma(inner + 1, unit_roundoff)
    return PartsBound(found, found)


def three_products_bound(inner: int, unit_roundoff: float) -> PartsBound:
    """The bounds for sums of `inner` terms by three products, each summed classically."""
    return PartsBound(2 * inner * gamma(inner + 1, unit_roundoff), 6 * inner * gamma(inner + 4, unit_roundoff))


LARGEST_ROUNDOFF = 2.0**-24  # Of float32; its bounds hold for finer types, because gamma_n / u grows with u.


@dataclass(frozen=True)
class BlockDrift:
    """How far a restored block may be from its original, elementwise.

    |restored - original| <= u * sum of weight * max|block met| + e * sum of the losses whose block is not all zeros, where e is the
    smallest subnormal number. Losses come from multiplications with fractions that underflow; sums lose nothing.
    """

    block: Block
    weights: tuple[tuple[Block, float], ...]
    losses: tuple[tuple[Block, float], ...] = ()

    @property
    def coefficient(self) -> float:
        """The d in |restored - original| <= d * u * max(|blocks involved|), if nothing underflows."""
        return sum(weight for _, weight in self.weights) * SLACK

    @property
    def met(self) -> frozenset[Block]:
        """The blocks whose rounding errors remain in this one."""
        return frozenset(block for block, _ in self.weights + self.losses)


@dataclass(frozen=True)
class DriftBound:
    """The drift of one call for every block of A and B that the schedule restores; `lost` lists those that it does not.

    It holds if nothing overflows: `growth` is the largest ratio of a value in A or B to the largest entry that it is made of. It is
    infinite if a coefficient is not a normal number of float32; then there is no bound.
    """

    blocks: tuple[BlockDrift, ...]
    lost: tuple[Block, ...]
    growth: float

    def worst(self, operand: str | None = None) -> float:
        """The largest coefficient over the blocks of an operand, or of both."""
        return max((drift.coefficient for drift in self.blocks if operand in (None, drift.block.space)), default=0.0)


def drift_bound(schedule: Schedule, unit_roundoff: float = LARGEST_ROUNDOFF, summed: float | None = None) -> DriftBound:
    """The drift bound of a schedule exactly as it runs (flat, fused), for types with at most this unit roundoff.

    The schedule runs on exact forms. Each sum of t terms adds a local error of at most gamma_t * sum |c| * |computed value|. Later steps
    propagate it linearly with exact coefficients, so errors that the schedule itself subtracts again cancel here too. A block that is never
    written, or only copied, does not drift. `summed` is as in `rounding_trace`. Raises `ValueError` for a schedule with explicit scaling.
    """
    trace = Trace.of(schedule, unit_roundoff, summed=summed)
    blocks: list[BlockDrift] = []
    lost: list[Block] = []
    for name in ("A", "B"):
        originals = schedule.space(name).blocks
        for index, block in enumerate(originals):
            value = trace.state[block]
            if not isinstance(value, OperandValue) or value.space != name or value.form != {index: 1}:
                lost.append(block)
                continue
            pairs = (zip(originals, bound, strict=True) for bound in (value.error, value.lost))
            blocks.append(BlockDrift(block, *(tuple((met, float(weight) * SLACK) for met, weight in own if weight > 0) for own in pairs)))
    return DriftBound(tuple(blocks), tuple(lost), trace.growth * SLACK)


def probable_error(
    scheme: Scheme,
    levels: int,
    shape: tuple[int, int, int],
    confidence: float = 0.99,
    means: tuple[float, float] = (0.0, 0.0),
    fine: float = 1.0,
) -> float:
    """A bound of max|C - A*B| over all entries, in units of u * rms(A) * rms(B), that holds with this probability in a model.

    The model: rounding errors are mean-independent and at most u relative to the value that is rounded (Higham and Mary 2019; Connolly,
    Higham and Mary 2021); the entries of A and of B are independent with one mean and one rms each (Higham and Mary 2020), and `means`
    are |mean| / rms of both, 0 for centred data and 1 for constant data; sums over the inner dimension behave like normal variables.
    Since rms <= max, the bound holds in units of u * max|A| * max|B| too.

    A partial sum of j products in a leaf has the second moment a*j + b*j**2. So the error of a leaf of depth K has at most the variance
    u**2 * (a*K**2/2 + b*K**3/3), where a and b follow from the 2-norms of the factors (with their means); the products of a C block add up
    in quadrature. For centred data the bound is proportional to K, which is sqrt(K) * u relative to an entry of C. The confidence covers
    all m * n entries together.

    `fine` is the unit roundoff in a leaf's sum, in units of u. If it is below 1, elements are computed in a wider type than they are stored
    in, and the sum is rounded once more when it is stored.
    """
    m, k, n = shape
    leaf = k // scheme.k**levels
    rest = k - leaf * scheme.k**levels
    mixed, constant = _leaf_weights(scheme, levels, means)
    left, right, out = (side.flat_depth(levels) / 2 for side in sides(scheme))  # on average a partial sum of a chain has half its variance
    both = (means[0] * means[1]) ** 2
    variance = mixed * (_random(leaf, fine) + leaf * (left + right + out)) + constant * (
        _steady(leaf, fine) + leaf * (left + right) + leaf**2 * out
    )
    variance += (1 - both) * (_random(rest, fine) + rest * out) + both * (_steady(rest, fine) + rest**2 * out)
    if m % scheme.m**levels or n % scheme.n**levels:  # the strips of C are multiplied classically
        variance = max(variance, (1 - both) * _random(k, fine) + both * _steady(k, fine))
    return deviations(m * n, confidence) * sqrt(variance)


def probable_gram_error(gram: GramScheme, n: int, inner: int, confidence: float = 0.99, fine: float = 1.0) -> float:
    """The same for one level of a scheme for A*A^T, A n x inner with centred normal entries, in units of u * rms(A)**2.

    Element (i, j) of a product of sums of blocks takes row i of the left sum and row j of the right one. If i and j differ, the rows are
    independent, as those of A and B are. On the diagonal of a block they share entries: a term then has the mean <u_p, v_p>, over the
    blocks of A, and the variance |u_p|**2 |v_p|**2 + <u_p, v_p>**2. So its partial sums grow like those of constant terms, as on the
    diagonal of A*A^T by the classical multiply, whose terms have the mean 1. The worst block of C counts.
    """
    scheme = gram.scheme
    rows, leaf = n - n % scheme.m, inner // scheme.k
    rest = inner - leaf * scheme.k
    left, right, out = (side.flat_depth(1) / 2 for side in sides(scheme))
    mixed, constant = _gram_weights(gram)
    variance = mixed * (_random(leaf, fine) + leaf * (left + right + out))
    variance += constant * (_steady(leaf, fine) + leaf * (left + right) + leaf**2 * out)
    variance += 2 * (_random(rest, fine) + rest * out) + _steady(rest, fine) + rest**2 * out
    if rows < n:  # the last rows are multiplied classically
        variance = max(variance, 2 * _random(inner, fine) + _steady(inner, fine))
    return deviations(n * (n + 1) // 2, confidence) * sqrt(variance)


def _gram_weights(gram: GramScheme) -> tuple[float, float]:
    """The variances and the squared means of the terms on a diagonal, over the products of the worst block of C."""
    left, right = ([{i: to_float(c) for i, c in row} for row in table] for table in (gram.scheme.tables[0], gram.right))
    means = [sum(c * y.get(i, 0.0) for i, c in x.items()) for x, y in zip(left, right, strict=True)]
    sizes = [sum(c * c for c in x.values()) * sum(c * c for c in y.values()) for x, y in zip(left, right, strict=True)]
    both = []
    for i, j in gram.outputs:
        weights = [(to_float(c) ** 2, p) for p, c in gram.scheme.tables[2][i * gram.scheme.m + j]]
        both.append((sum(w * (sizes[p] + means[p] ** 2) for w, p in weights), sum(w * means[p] ** 2 for w, p in weights)))
    return max(mixed for mixed, _ in both), max(constant for _, constant in both)


def deviations(entries: int, confidence: float) -> float:
    """The number of standard deviations that none of `entries` entries exceeds, with this probability.

    An entry's error is close to the integral of one Brownian motion W along another, because the rounded partial sums are random too. Its
    moment generating function is cos(theta)**-0.5 for theta < pi/2 (Levy 1951), its variance 1/2, so by Chernoff's bound P(|error| > y) <=
    2 * cos(theta)**-0.5 * exp(-theta * y). That tail is heavier than normal, so the bound also holds for the normal parts.
    """
    tail = log(2 * max(1, entries) / (1 - confidence))
    thetas = (pi / 2 * step / 64 for step in range(1, 64))
    return min((tail - 0.5 * log(cos(theta))) / theta for theta in thetas) * sqrt(2)


def _random(depth: int, fine: float) -> float:
    """The sum of the second moments of the partial sums, of the products, and of the stored result, for centred terms."""
    return depth * (depth + 3) / 2 * fine**2 + (depth if fine < 1 else 0)


def _steady(depth: int, fine: float) -> float:
    """The same for constant terms."""
    return (depth * (depth + 1) * (2 * depth + 1) / 6 + depth) * fine**2 + (depth**2 if fine < 1 else 0)


def _leaf_weights(scheme: Scheme, levels: int, means: tuple[float, float]) -> tuple[float, float]:
    """a and b of the docstring of `probable_error`, summed over the products of the worst block of C.

    |u_p|**2 and (sum u_p)**2 are the second moment of a factor of centred and of constant blocks; both multiply from level to level.
    """
    a, b = (mean**2 for mean in means)
    norm, steady = _moments(scheme)
    kinds = {(i, j): _worst(scheme, (norm, steady)[i][0], (norm, steady)[j][1]) ** levels for i in (0, 1) for j in (0, 1)}
    mixed = (1 - a) * (1 - b) * kinds[0, 0] + (1 - a) * b * kinds[0, 1] + a * (1 - b) * kinds[1, 0]
    return mixed, a * b * kinds[1, 1]


Moments = tuple[tuple[float, ...], tuple[float, ...]]


@lru_cache(maxsize=64)
def _moments(scheme: Scheme) -> tuple[Moments, Moments]:
    """|u|**2 and |v|**2 of every product; (sum u)**2 and (sum v)**2."""
    u, v, _ = scheme.tables
    norms = tuple(tuple(sum(to_float(c) ** 2 for _, c in row) for row in table) for table in (u, v))
    sums = tuple(tuple(sum(to_float(c) for _, c in row) ** 2 for row in table) for table in (u, v))
    return (norms[0], norms[1]), (sums[0], sums[1])


def _worst(scheme: Scheme, left: tuple[float, ...], right: tuple[float, ...]) -> float:
    return max(sum(to_float(c) ** 2 * left[p] * right[p] for p, c in row) for row in scheme.tables[2])


@dataclass(frozen=True)
class ErrorBound:
    """max|computed - exact| <= u * (|alpha| * product * max|A| * max|B| + |beta| * addend * max|C|) for all data."""

    product: float
    addend: float


@dataclass(frozen=True)
class LevelsKept:
    """How many levels keep an accuracy, max|C - A*B| <= accuracy * max|A| * max|B|, for an element type and an inner dimension.

    `always` holds for all data, `likely` with probability `confidence` in the model of `probable_error`; None if even the classical
    multiply (0 levels) does not keep it. At most `looked` levels were examined.
    """

    accuracy: float
    dtype: str
    inner: int
    always: int | None
    likely: int | None
    confidence: float
    looked: int


@dataclass(frozen=True)
class LevelAccuracy:
    """The accuracy facts of a report for one number of levels and one element type, for square problems with this inner dimension.

    `growth` is the growth factor to the power of the levels. `deterministic` bounds max|C - A*B| / (max|A| * max|B|) for all data.
    `probabilistic` bounds max|C - A*B| / (rms(A) * rms(B)) with probability `confidence` in the model of `probable_error`, for centred
    data; since rms <= max, it also holds in the units of `deterministic`. For very small K it may be the larger of the two. `drift` bounds,
    relative to the largest block involved, how much one call changes a block of A or B that it writes and restores; None without any.
    """

    levels: int
    dtype: str
    inner: int
    growth: float
    deterministic: float
    probabilistic: float
    confidence: float
    drift: float | None = None


def is_real(scheme: Scheme) -> bool:
    """True if floats can represent the scheme's coefficients: none in Z/p, with i or lambda, and none that over- or underflows."""
    return not scheme.ring.modulus and _are_real(c for table in scheme.tables for row in table for _, c in row)


def runs_on_reals(schedule: Schedule) -> bool:
    """True if floats can represent the schedule's coefficients. They may be real when the scheme's are not, and the reverse."""
    return _are_real(schedule.coefficients)


def _are_real(coefficients: Iterable[Coefficient]) -> bool:
    try:
        return all(is_normal(c, "float64") for c in coefficients)
    except ValueError:
        return False


def growth_factor(scheme: Scheme) -> Fraction | float:
    """The largest amplification of one level, E = max over outputs of sum over products of |w| * |u|_1 * |v|_1.

    The norm-wise growth factor of Brent (1970) and Higham (2002, section 23.2) in the form of Ballard, Benson, Druinsky, Lipshitz and
    Schwartz (2016), definition of e_max; k for the classical scheme. Exact for rational coefficients, else a float. Raises `ValueError` if
    a coefficient is not real.
    """
    u, v, w = scheme.tables
    if any(isinstance(c, Symbolic) for table in (u, v, w) for row in table for _, c in row):
        sizes = [sum(magnitude(c) for _, c in a) * sum(magnitude(c) for _, c in b) for a, b in zip(u, v, strict=True)]
        return max(sum(magnitude(c) * sizes[p] for p, c in row) for row in w) * SLACK
    weights = [_norm(a) * _norm(b) for a, b in zip(u, v, strict=True)]
    return max(sum((abs(_rational(c)) * weights[p] for p, c in row), Fraction(0)) for row in w)


def error_bound(scheme: Scheme, levels: int, inner: int, unit_roundoff: float, summed: float | None = None) -> ErrorBound:
    """A bound for the scheme's workspace schedule at any number of levels, run nested, flat or fused; it holds for all data.

    Let N be the most roundings of any elementary term w*u*a*v*b on its way into C: K0 = inner / k**levels in its leaf product, the depths
    of the expansions and of the recomposition, and those for alpha and beta. Each term is then computed with a relative error of at most
    gamma_N, so |C' - C| <= gamma_N * (sum over paths of |w| |u| |v|) * K0 * max|A| * max|B|. The path sum of L levels is at most G**L, with
    G that of one level (paths of nested levels are tuples of paths). Fusing renames values, drops unread ones, and may replace the program
    of h levels by its plain matrix. The entries of that matrix are no larger than the path sums, and `Side.flat_depth` is the largest depth
    over all such choices. G is the growth factor unless terms cancel in a program of the scheme.

    Compare Ballard et al. (2016), theorem 3: (K0 + Q L) * K0 * E**L * u + O(u**2); here second order is in gamma.
    """
    left, right, out = sides(scheme)
    u, leaf = unit_roundoff, inner // scheme.k**levels
    fine = u if summed is None else summed
    rest = inner - leaf * scheme.k**levels
    down = out.flat_depth(levels)
    count = left.flat_depth(levels) + right.flat_depth(levels) + down + 4
    count += levels and max(side.scalings for side in (left, right, out))
    most = max(gamma(count, u, leaf * fine), gamma(down + 4, u, rest * fine))
    core = most / u * (path_growth(scheme) ** levels * leaf + rest)
    return ErrorBound(max(core, classical_bound(inner, u, summed)) * SLACK, gamma(down + 3, u) / u * SLACK)


def classical_bound(inner: int, unit_roundoff: float, summed: float | None = None) -> float:
    """The classical multiply, summed in any order: gamma_(K+3) * K, alpha and beta included."""
    fine = unit_roundoff if summed is None else summed
    return gamma(3, unit_roundoff, inner * fine) / unit_roundoff * inner


def run_error_bound(schedule: Schedule, inner: int, unit_roundoff: float, summed: float | None = None) -> ErrorBound:
    """The same bound for one schedule as it runs, in place or not; the schedule is run on bounds (see `rounding_trace`).

    For complex matrices it bounds each real and each imaginary part, in units of the largest magnitudes of such parts.
    """
    u, leaf = unit_roundoff, inner // schedule.k
    fine = u if summed is None else summed
    inner *= 1 + schedule.is_complex  # a real part is the sum of two products
    rest = inner - leaf * schedule.k * (1 + schedule.is_complex)
    begun = ResultValue(rest, rest * gamma(3, u, rest * fine) / u, 1.0, gamma(2, u) / u)
    trace = Trace.of(schedule, u, leaf, begun, fine)
    results = [trace.state[block] for block in schedule.blocks_of("C")]
    product = max((value.error for value in results if isinstance(value, ResultValue)), default=inf)
    addend = max((value.old_error for value in results if isinstance(value, ResultValue)), default=inf)
    return ErrorBound(max(product, classical_bound(inner, u, summed)) * SLACK, addend * SLACK)


def schedule_bound(scheme: Scheme, schedule: Schedule, inner: int, unit_roundoff: float, summed: float | None = None) -> ErrorBound:
    """The bound for one lowered schedule.

    It is traced as it runs if it is in place, or if the tables are complex but the schedule is real.

    Raises `ValueError` if a coefficient of the schedule is not real.
    """
    if schedule.writes_operands or schedule.is_complex or not is_real(scheme):
        return run_error_bound(schedule, inner, unit_roundoff, summed)
    return error_bound(scheme, schedule.levels, inner, unit_roundoff, summed)


def error_allowance(scheme: Scheme, schedule: Schedule, inner: int, unit_roundoff: float) -> float:
    """The bound of max|C - A*B| in units of max|A| * max|B| for one multiply by a lowered schedule, alpha = 1 and beta = 0."""
    return schedule_bound(scheme, schedule, inner, unit_roundoff).product * unit_roundoff


def levels_for_accuracy(
    scheme: Scheme,
    shape: tuple[int, int, int],
    dtype: str,
    accuracy: float,
    confidence: float | None = None,
    most_levels: int = MOST_LEVELS,
) -> int | None:
    """The most levels, up to `most_levels`, with max|C - A*B| <= accuracy * max|A| * max|B| for an m x k by k x n multiply.

    Without a confidence, the bound for all data decides; with one, the smaller of it and the probabilistic bound for centred data. None if
    even the classical multiply (0 levels) exceeds the accuracy. Levels stop where a block would be empty.
    """
    u, summed = KNOWN[dtype].roundoffs
    kept: int | None = None
    for levels in range(most_levels + 1):
        if scheme.m**levels > shape[0] or scheme.k**levels > shape[1] or scheme.n**levels > shape[2]:
            break
        bound = error_bound(scheme, levels, shape[1], u, summed).product
        if confidence is not None:
            bound = min(bound, probable_error(scheme, levels, shape, confidence, fine=summed / u))
        if bound * u <= accuracy:
            kept = levels
        if scheme.m * scheme.k * scheme.n == 1:
            break
    return kept


def accuracy_facts(
    scheme: Scheme, schedules: Sequence[Schedule], inner: int, dtypes: Sequence[str], confidence: float = 0.99, most_levels: int = 3
) -> tuple[LevelAccuracy, ...]:
    """Growth, bounds and drift by level and dtype, for inner x inner matrices; 0 levels are the classical multiply.

    `schedules` are lowered in-place schedules. If given, only their levels are reported, and the deterministic bound and the drift are
    traced from them. Otherwise the levels are 1 to `most_levels`, and the bounds come from the one-level tables, which also bound any fused
    run of the scheme. Empty if floats cannot represent the coefficients or the bounds.
    """
    try:
        facts = _accuracy_facts(scheme, schedules, inner, dtypes, confidence, most_levels)
    except OverflowError:
        return ()
    return () if any(isnan(bound) for fact in facts for bound in (fact.growth, fact.deterministic, fact.probabilistic)) else facts


def _accuracy_facts(
    scheme: Scheme, schedules: Sequence[Schedule], inner: int, dtypes: Sequence[str], confidence: float, most_levels: int
) -> tuple[LevelAccuracy, ...]:
    in_place = {schedule.levels: schedule for schedule in schedules if schedule.runs_in_place}
    if not is_real(scheme) or not all(map(runs_on_reals, in_place.values())):
        return ()
    growth = float(growth_factor(scheme))
    facts = []
    for levels in (0, *sorted(in_place)) if in_place else range(most_levels + 1):
        schedule = in_place.get(levels)
        usual = None if schedule is None else _told_drift(drift_bound(schedule))
        for dtype in dtypes:
            u, summed = KNOWN[dtype].roundoffs
            drift = usual if schedule is None or u <= LARGEST_ROUNDOFF else _told_drift(drift_bound(schedule, u, summed))
            bound = error_bound(scheme, levels, inner, u, summed) if schedule is None else run_error_bound(schedule, inner, u, summed)
            probable = probable_error(scheme, levels, (inner, inner, inner), confidence, fine=summed / u)
            moved = None if drift is None else drift * u
            facts.append(LevelAccuracy(levels, dtype, inner, growth**levels, bound.product * u, probable * u, confidence, moved))
    return tuple(facts)


def _told_drift(drift: DriftBound) -> float | None:
    """The largest drift over the operands that are restored in full; None if no operand is, or none is written."""
    lost = {block.space for block in drift.lost}
    worst = max((drift.worst(operand) for operand in "AB" if operand not in lost), default=0.0)
    return None if lost and not worst else worst


def levels_kept(
    scheme: Scheme, facts: Sequence[LevelAccuracy], accuracy: float, most_levels: int, in_place: bool
) -> tuple[LevelsKept, ...]:
    """How many levels keep an accuracy, for every dtype, at the inner dimension of a report's facts.

    In place, only the levels in the facts are considered; otherwise the tables give up to `most_levels`.
    """
    kept = []
    for dtype in dict.fromkeys(fact.dtype for fact in facts):
        own = [fact for fact in facts if fact.dtype == dtype]
        inner, confidence = own[0].inner, own[0].confidence
        if in_place:
            always = max((fact.levels for fact in own if fact.deterministic <= accuracy), default=None)
            likely = max((fact.levels for fact in own if min(fact.deterministic, fact.probabilistic) <= accuracy), default=None)
            looked = max(fact.levels for fact in own)
        else:
            looked, shape = most_levels, (inner, inner, inner)
            always = levels_for_accuracy(scheme, shape, dtype, accuracy, None, most_levels)
            likely = levels_for_accuracy(scheme, shape, dtype, accuracy, confidence, most_levels)
        kept.append(LevelsKept(accuracy, dtype, inner, always, likely, confidence, looked))
    return tuple(kept)


def path_growth(scheme: Products) -> float:
    """The growth factor over paths of the programs as written: at least the growth factor, and equal if nothing cancels."""
    left, right, out = sides(scheme)
    weights = [sum(a.values()) * sum(b.values()) for a, b in zip(left.rows, right.rows, strict=True)]
    return max(sum(size * weights[p] for p, size in row.items()) for row in out.rows) * SLACK


def _norm(row: Form) -> Fraction:
    return sum((abs(_rational(c)) for _, c in row), Fraction(0))


def _rational(value: object) -> Fraction:
    assert isinstance(value, int | Fraction)
    return Fraction(value)


BITS = 8  # A random entry is one of the 2^BITS odd integers between -2^BITS and 2^BITS, all equally likely.
GRAIN = 4.0**-BITS  # The loss because entries lie on a grid: a cell's variance over a continuous entry's.
DENSITY = pi * e / 3
"""2 pi e times the squared density that no normed sum of independent uniform variables of variance 1 exceeds, which is 1/6."""


def shrinking(risk: float, vectors: int) -> float:
    """The factor f with |D X|_F >= f |D|_F, except with a probability of at most `risk`, for any real D and `vectors` random columns X.

    The entries of X are those of `BITS`. 0 if there are too few vectors. Source: docs/checking.md, with K. Ball's bound (1986).
    """
    share = risk ** (2 / vectors) / DENSITY - GRAIN
    return float(2**BITS) * sqrt(vectors * max(0.0, share) / 3)


def expected(vectors: int) -> float:
    """The root of the mean of |D X|_F^2 / |D|_F^2."""
    return float(2**BITS) * sqrt(vectors * (1 - GRAIN) / 3)


def least_vectors(risk: float) -> int:
    """The fewest vectors from which the grid costs less than half of the factor's square."""
    return max(1, ceil(2 * log(risk) / log(2 * GRAIN * DENSITY)))


def least_exact_vectors(risk: float) -> int:
    """The fewest uniform vectors over the integers modulo 2^w that a matrix other than 0 maps to 0 with a probability of at most `risk`.

    One vector is mapped to 0 with a probability of at most 1/2 (R. Freivalds, 1979).
    """
    return max(1, ceil(-log2(risk)))
