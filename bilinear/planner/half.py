"""Plans for float16 and bfloat16: the library's multiply, and Winograd's scheme around its products, with the bounds of their errors and
the probable errors by norm, in units of the library's.

No times are known, so the library is chosen unless levels are named.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import prod, sqrt
from typing import TYPE_CHECKING

from bilinear.errors import fail
from bilinear.ir.element import ELEMENTS, HALVES
from bilinear.ir.number import to_float
from bilinear.lowering.place import place_schedule
from bilinear.planner.accuracy import why_inaccurate
from bilinear.planner.choose import too_inaccurate
from bilinear.planner.plan import CUBLAS, LIBRARY, Candidate, Plan
from bilinear.planner.problem import Problem
from bilinear.planner.ways import (
    Way,
    algorithm_named,
    follows_from_names,
    forget_changed_files,
    full_names,
    hashes,
    lowered,
    require_sound,
    strategies,
)
from bilinear.resources import implementation_sha256

if TYPE_CHECKING:
    from bilinear.ir.scheme import Scheme

WAYS = ("winograd",), ("winograd", "winograd")
"""The levels that are told beside the library's multiply."""
SUMMED = 2.0**-22 * (1 + 2.0**-20)
"""The unit roundoff of a term in sums of the matrix units for 16 bits, which cut off what they add.

A step of t <= 16 terms multiplies the sum of sizes by at most 1 + w, w = t 2^-23 + 2^-23 + t 2^-46 (docs/digits.md, sums in the unit).
That is at most (1 + SUMMED)^t.
"""


def half_plan(problem: Problem, device: str, levels: tuple[str, ...] | None = None) -> Plan:
    """The plan of a product of 16-bit matrices on a GPU; `levels` are run if they are named.

    Raises `BilinearError`: E519 if the chosen way is less accurate than is asked for, E528 for coefficients that the type cannot hold, E543
    for levels that do not fit the limits, and what `algorithm_named`, the proofs and the lowering raise.
    """
    from bilinear.lowering.prepare import Level, prepare_levels

    forget_changed_files()
    library = _judged(Candidate((), "preserve", LIBRARY, None, 0, _classical(problem.k, problem.dtype), probable=1.0), problem)
    if levels is not None:
        if not levels:
            raise fail("E543", "no level is named", 'give algorithms, such as ("winograd",)')
        levels = full_names(levels)
        prepare_levels(tuple(Level(x.scheme, x.schedule) for x in map(algorithm_named, levels)), "preserve")
        require_sound(levels, problem.dtype)
        named = _judged(_candidate(levels, problem), problem)
        if named.why:
            raise fail("E543", f"{named.name}: {named.why}", "allow more, or choose other levels")
        first = replace(named, why="asked for: no time is known")
        return Plan(problem, device, (first, library), hashes(first.levels), implementation_sha256())
    if library.why:
        raise too_inaccurate(library.why)
    found = [_judged(_candidate(way, problem), problem) for way in WAYS]
    others = [replace(one, why=one.why or "not timed on a GPU: name it to run it") for one in found]
    return Plan(problem, device, (replace(library, why="no times are known"), *others), (), implementation_sha256())


def _candidate(levels: tuple[str, ...], problem: Problem) -> Candidate:
    """A way with its workspace and its bound; `why` says why it cannot run."""
    p, way = problem, Way(levels)
    schedule = lowered(way)[0]
    placement = place_schedule(schedule, p.m, p.k, p.n, ELEMENTS[p.dtype].bytes, frozenset(p.column_major))
    found = Candidate(levels, "preserve", "expand", None, placement.workspace_elements * ELEMENTS[p.dtype].bytes, tile=CUBLAS)
    if not placement.core[0]:
        return replace(found, why="blocks are too small")
    return replace(found, error=way_error(way, p.k, p.dtype), probable=way_probable(way, p.k, p.dtype))


def _judged(found: Candidate, problem: Problem) -> Candidate:
    asked, limit = problem.accuracy, problem.workspace
    if found.why:
        return found
    if limit is not None and (found.workspace or 0) > limit:
        return replace(found, why=f"it needs {found.workspace} bytes of workspace, {limit} are allowed")
    return replace(found, why=why_inaccurate(found, asked))


@lru_cache(maxsize=256)
def way_error(way: Way, inner: int, dtype: str) -> float:
    """The bound of max|C - A*B| / (max|A| max|B|) of a way, for sums that are stored in 16 bits without overflow or underflow."""
    from bilinear.analysis.accuracy import run_error_bound

    u = HALVES[dtype].roundoffs[0]
    return u * run_error_bound(lowered(way)[0], inner, u, SUMMED).product


def _classical(inner: int, dtype: str) -> float:
    from bilinear.analysis.accuracy import classical_bound

    u = HALVES[dtype].roundoffs[0]
    return u * classical_bound(inner, u, SUMMED)


@lru_cache(maxsize=256)
def way_probable(way: Way, inner: int, dtype: str) -> float:
    """The probable error by norm of a way, for independent centred data, in units of the library's: float32 sums, rounded once to `dtype`.

    With expanded levels a sum of blocks, a product and a block of C are each rounded once, where they are stored, however many levels
    there are; what is a block itself is not rounded. Errors of different products are taken as independent, but cutting off in the matrix
    unit shrinks all products alike, and C by as much (`probable_digits`).
    """
    from bilinear.analysis.digit_bounds import ROUNDED, Unit, block_variance, cut_off

    schemes = [algorithm_named(name).scheme for name in way.levels]
    u = HALVES[dtype].roundoffs[0]
    rounded = (ROUNDED * u) ** 2
    shrunk, varied = cut_off(inner, Unit())
    library = shrunk**2 + varied + rounded
    shrunk, varied = cut_off(max(1, inner // prod(scheme.k for scheme in schemes)), Unit())
    leaf = varied + rounded
    if set(strategies(way)) == {"expand"}:
        every, left, right = (
            prod(_growth(scheme, *single) for scheme in schemes) for single in ((False, False), (True, False), (False, True))
        )
        amplified = every * leaf + rounded * (every - left + every - right + 1)
    else:
        amplified = leaf
        for scheme in reversed(schemes):
            amplified = block_variance(scheme, 1, amplified, u)
    return sqrt((shrunk**2 + amplified) / library)


def _growth(scheme: Scheme, single_left: bool, single_right: bool) -> float:
    """By how much one level amplifies variances by norm: the mean over C's blocks of sum w^2 |u|^2 |v|^2 / k.

    Only of products whose left, or right, factor is a single block, where that is asked for.
    """
    u, v, w = scheme.tables
    left, right = (
        [0.0 if single and len(row) > 1 else sum(to_float(c) ** 2 for _, c in row) for row in table]
        for table, single in ((u, single_left), (v, single_right))
    )
    return sum(to_float(c) ** 2 * left[p] * right[p] for row in w for p, c in row) / (len(w) * scheme.k)


for cached in (way_error, way_probable):
    follows_from_names(cached.cache_clear)
