"""How far from exact a fast multiply may end in floating point: bounds that always hold, and bounds that hold with a confidence.

Everything is in units of max|A| * max|B| and of the unit roundoff u (2**-24 in float32, 2**-53 in float64), for C = alpha*A*B + beta*C
with alpha = 1 where nothing else is said. Nothing may overflow or underflow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf

from bilinear.analysis.drift import drift_bound
from bilinear.analysis.probable_error import probable_error
from bilinear.analysis.rounding import SLACK, gamma, magnitude, sides
from bilinear.analysis.rounding_trace import ResultValue, Trace
from bilinear.ir.linear import Form
from bilinear.ir.number import Symbolic, to_float
from bilinear.ir.schedule import Schedule
from bilinear.ir.scheme import Scheme

UNIT_ROUNDOFF = {"float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}
MOST_LEVELS = 16
"""More levels than this are never asked for: 2**16 blocks a side."""


@dataclass(frozen=True)
class ErrorBound:
    """max|computed - exact| <= u * (|alpha| * product * max|A| * max|B| + |beta| * addend * max|C|), whatever the data."""

    product: float
    addend: float


@dataclass(frozen=True)
class LevelAccuracy:
    """What a report says of one number of levels and one element type, for square problems with this inner dimension.

    `growth` is the growth factor to the power of the levels. `deterministic` bounds max|C - A*B| / (max|A| * max|B|) for all data.
    `probabilistic` bounds max|C - A*B| / (rms(A) * rms(B)) with probability `confidence` in the model of `probable_error`, for centred
    data; since rms <= max it may be read in the units of the first too. For very small K it may be the larger one.
    `drift` bounds, relative to the largest block met, what one call changes in a block of A or B; None where A and B are not written.
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
    """Whether floats can stand for the scheme's coefficients: not those of Z/p, with i, or with lambda."""
    if scheme.ring.modulus:
        return False
    try:
        for table in scheme.tables:
            for row in table:
                for _, c in row:
                    to_float(c)
    except ValueError:
        return False
    return True


def growth_factor(scheme: Scheme) -> Fraction | float:
    """The largest amplification of one level, E = max over outputs of sum over products of |w| * |u|_1 * |v|_1.

    The norm-wise growth factor of Brent (1970) and Higham (2002, section 23.2) in the form of Ballard, Benson, Druinsky, Lipshitz and
    Schwartz (2016), definition of e_max; k for the classical scheme. Exact where the coefficients are rational, else a float. Raises
    `ValueError` where a coefficient is no real number.
    """
    u, v, w = scheme.tables
    if any(isinstance(c, Symbolic) for table in (u, v, w) for row in table for _, c in row):
        sizes = [_size(a) * _size(b) for a, b in zip(u, v, strict=True)]
        return max(sum(magnitude(c) * sizes[p] for p, c in row) for row in w) * SLACK
    weights = [_norm(a) * _norm(b) for a, b in zip(u, v, strict=True)]
    return max(sum((abs(_rational(c)) * weights[p] for p, c in row), Fraction(0)) for row in w)


def error_bound(scheme: Scheme, levels: int, inner: int, unit_roundoff: float) -> ErrorBound:
    """A bound for the scheme's workspace schedule at any number of levels, run nested, flat or fused; it always holds.

    Let N count the most roundings that any elementary term w*u*a*v*b meets on its way into C: K0 = inner / k**levels in its leaf product,
    the depths of the expansions and of the recomposition, what alpha and beta cost. Each term is then computed with a relative error of
    at most gamma_N, so |C' - C| <= gamma_N * (sum over paths of |w| |u| |v|) * K0 * max|A| * max|B|. The path sum of L levels is at most
    G**L, with G that of one level (paths of nested levels are tuples of paths). Fusing renames values, drops unread ones, and may
    replace the program of h levels by its plain matrix: its entries are no larger than the path sums, and `Side.flat_depth` is
    the largest depth over all such choices. G is the growth factor unless a program of the scheme cancels terms of its own.

    Compare Ballard et al. (2016), theorem 3: (K0 + Q L) * K0 * E**L * u + O(u**2); here second order is in gamma.
    """
    left, right, out = sides(scheme)
    u, leaf = unit_roundoff, inner // scheme.k**levels
    rest = inner - leaf * scheme.k**levels
    down = out.flat_depth(levels)
    count = leaf + left.flat_depth(levels) + right.flat_depth(levels) + down + 4
    count += levels and max(side.scalings for side in (left, right, out))
    count = max(count, rest + down + 4)
    core = gamma(count, u) / u * (path_growth(scheme) ** levels * leaf + rest)
    return ErrorBound(max(core, classical_bound(inner, u)) * SLACK, gamma(down + 3, u) / u * SLACK)


def classical_bound(inner: int, unit_roundoff: float) -> float:
    """The classical multiply, summed in any order: gamma_(K+3) * K, alpha and beta included."""
    return gamma(inner + 3, unit_roundoff) / unit_roundoff * inner


def run_error_bound(schedule: Schedule, inner: int, unit_roundoff: float) -> ErrorBound:
    """The same for one schedule as it runs, in place or not: the schedule is run on bounds (see `rounding_trace`)."""
    u, leaf = unit_roundoff, inner // schedule.k
    rest = inner - leaf * schedule.k
    begun = ResultValue(rest, rest * gamma(rest + 3, u) / u, 1.0, gamma(2, u) / u)
    trace = Trace.of(schedule, u, leaf, begun)
    results = [trace.state[block] for block in schedule.space("C").blocks]
    product = max((value.error for value in results if isinstance(value, ResultValue)), default=inf)
    addend = max((value.old_error for value in results if isinstance(value, ResultValue)), default=inf)
    return ErrorBound(max(product, classical_bound(inner, u)) * SLACK, addend * SLACK)


def error_allowance(scheme: Scheme, schedule: Schedule, inner: int, unit_roundoff: float) -> float:
    """The bound of max|C - A*B| in units of max|A| * max|B| for one multiply by a lowered schedule, alpha = 1 and beta = 0."""
    if schedule.runs_in_place:
        return run_error_bound(schedule, inner, unit_roundoff).product * unit_roundoff
    return error_bound(scheme, schedule.levels, inner, unit_roundoff).product * unit_roundoff


def levels_for_accuracy(
    scheme: Scheme, shape: tuple[int, int, int], dtype: str, accuracy: float, confidence: float | None = None
) -> int | None:
    """The most levels with max|C - A*B| <= accuracy * max|A| * max|B| for an m x k by k x n multiply.

    Without a confidence the bound always holds; with one, the smaller of it and the probabilistic bound for centred data counts. None
    where not even the classical multiply (0 levels) keeps it. Levels end where a block would have no element.
    """
    u = UNIT_ROUNDOFF[dtype]
    kept: int | None = None
    for levels in range(MOST_LEVELS + 1):
        if scheme.m**levels > shape[0] or scheme.k**levels > shape[1] or scheme.n**levels > shape[2]:
            break
        bound = error_bound(scheme, levels, shape[1], u).product
        if confidence is not None:
            bound = min(bound, probable_error(scheme, levels, shape, confidence))
        if bound * u <= accuracy:
            kept = levels
        if scheme.m * scheme.k * scheme.n == 1:
            break
    return kept


def accuracy_facts(
    scheme: Scheme, schedules: Sequence[Schedule], inner: int, dtypes: Sequence[str], confidence: float = 0.99, most_levels: int = 3
) -> tuple[LevelAccuracy, ...]:
    """Growth, bounds and drift for 0 (classical) to `most_levels` levels and each dtype, for inner x inner matrices.

    `schedules` are the lowered in-place schedules of 1, 2, ... levels, as far as they are known and write A and B; there both bounds
    follow what they do. Without them everything comes from the one-level tables, which also bounds any fused run of the scheme. Empty
    where floats cannot stand for the coefficients.
    """
    if not is_real(scheme):
        return ()
    by_level = {schedule.levels: schedule for schedule in schedules if schedule.runs_in_place}
    growth = float(growth_factor(scheme))
    facts = []
    for levels in range(most_levels + 1):
        schedule = by_level.get(levels)
        drift = None if schedule is None else drift_bound(schedule).worst()
        for dtype in dtypes:
            u = UNIT_ROUNDOFF[dtype]
            bound = error_bound(scheme, levels, inner, u) if schedule is None else run_error_bound(schedule, inner, u)
            probable = probable_error(scheme, levels, (inner, inner, inner), confidence)
            moved = None if drift is None else drift * u
            facts.append(LevelAccuracy(levels, dtype, inner, growth**levels, bound.product * u, probable * u, confidence, moved))
    return tuple(facts)


def path_growth(scheme: Scheme) -> float:
    """The growth factor over paths of the programs as written; at least the growth factor, equal where no program cancels."""
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
