"""Error bounds for fast multiplies in floating point: some hold for all data, others with a stated confidence.

Errors are in units of max|A| * max|B| and of the unit roundoff u (2**-24 in float32, 2**-53 in float64), for C = alpha*A*B + beta*C with
alpha = 1 unless stated. The bounds assume that nothing overflows or underflows. If elements are computed in a wider type than they are
stored in, u belongs to operations whose result is stored, and the finer `summed` to sums in leaf products, which are not stored
(`Element.roundoffs`). Without `summed` both are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf, isnan

from bilinear.analysis.drift import LARGEST_ROUNDOFF, DriftBound, drift_bound
from bilinear.analysis.probable_error import probable_error
from bilinear.analysis.rounding import SLACK, gamma, magnitude, sides
from bilinear.analysis.rounding_trace import ResultValue, Trace
from bilinear.ir.complex_scheme import Products
from bilinear.ir.element import KNOWN
from bilinear.ir.linear import Form
from bilinear.ir.number import Coefficient, Symbolic, is_normal
from bilinear.ir.placement import MOST_LEVELS
from bilinear.ir.schedule import Schedule
from bilinear.ir.scheme import Scheme


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
    relative to the largest block involved, how much one call changes a block of A or B that it writes and restores; None without restored
    blocks.
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
        sizes = [_size(a) * _size(b) for a, b in zip(u, v, strict=True)]
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


def _size(row: Form) -> float:
    return sum(magnitude(c) for _, c in row)


def _rational(value: object) -> Fraction:
    assert isinstance(value, int | Fraction)
    return Fraction(value)
