"""Depth-first schedules for any scheme: one product at a time, A and B never written, as few temporaries as possible.

C = alpha*A*B is computed in the blocks of C, which hold products and partial sums until their own value is complete. Every product is
written to a single block, so the same schedule can compute it, level by level. For Winograd's scheme two temporaries suffice (Boyer, Dumas,
Pernet, Zhou, "Memory efficient scheduling of Strassen-Winograd's matrix multiplication algorithm", ISSAC 2009).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bilinear.errors import fail
from bilinear.ir.linear import Form, LinearMap
from bilinear.ir.number import Symbolic
from bilinear.ir.schedule import LinearStage, Schedule
from bilinear.ir.scheme import Scheme
from bilinear.passes.order_products import mark_first_writes
from bilinear.scheduling.depth_first.orders import FoundOrder, OrderEffort, OrderProgress, OrderSearch
from bilinear.scheduling.depth_first.scaling import HeldFactors, memories
from bilinear.scheduling.depth_first.schedule import write_moves
from bilinear.scheduling.depth_first.sums import Results, with_shared_sums

__all__ = ["DepthFirst", "OrderProgress", "find_depth_first"]

NARROW = 8
"""The beam width after the time limit."""

MOST_SHARED = 100
"""In schemes of at most this many products, repeated pairs of products are shared."""


@dataclass(frozen=True)
class DepthFirst:
    """A schedule of one level and its costs.

    `temporaries` counts the blocks alive at once in addition to A, B and C; `fewest` is a lower bound for schedules of this kind.
    `additions` are those of linear stages; adding a product to a block as it is computed costs none. `traffic` counts the blocks that
    linear stages read and write.
    """

    schedule: Schedule
    temporaries: int
    fewest: int
    additions: int
    traffic: int

    def __str__(self) -> str:
        proved = "no fewer are possible" if self.temporaries == self.fewest else f"at least {self.fewest} are needed"
        blocks = f"{self.temporaries} temporar{'y' if self.temporaries == 1 else 'ies'} ({proved})"
        return f"{blocks}, {self.additions} additions, {self.traffic} blocks moved"


def find_depth_first(
    scheme: Scheme,
    *,
    accumulate: bool = False,
    directly: bool = False,
    temporaries: int = 0,
    effort: int = 1,
    seed: int = 0,
    seconds: float | None = None,
    progress: Callable[[OrderProgress], None] = lambda _: None,
) -> DepthFirst:
    """Find a schedule with one product a stage for a scheme over Z or Q: few temporaries, then few additions, then little traffic.

    With `accumulate` it computes C = alpha*A*B + beta*C. Every product is written to one block, so an overwriting schedule may run it. With
    `directly`, a product that only one sum needs is added to that sum as it is computed; an accumulating schedule must run it.
    `temporaries` are allowed in any case; more than necessary save additions. `effort` multiplies the number of states that the search
    keeps. The result depends only on `seed`, unless `seconds` ends the search: then a quick, narrow search finishes it. Raises
    `BilinearError`: E556 if a coefficient is not rational, E558 if an option is invalid.
    """
    _check_options(temporaries, effort, seconds)
    u, v, w = _rational_maps(scheme)
    factors = HeldFactors(u), HeldFactors(v)
    searches = [OrderSearch(factors, Results(program, accumulate), scheme.m * scheme.n, directly) for program in _programs(w)]
    wide = OrderEffort(effort * max(16, min(300, 60_000 // scheme.rank**2)), math.inf if seconds is None else time.monotonic() + seconds)
    allowed = max(searches[0].fewest, temporaries)
    while True:
        was_over = wide.is_over()
        limit = OrderEffort(NARROW) if was_over else wide
        orders = [(search, search.run(allowed, limit, seed, progress)) for search in searches]
        found = [_written(scheme, search, order, accumulate) for search, order in orders if order is not None]
        if found:
            return min(found, key=lambda d: (d.temporaries, d.additions, d.traffic))
        allowed += was_over or not wide.is_over()


def _written(scheme: Scheme, search: OrderSearch, order: FoundOrder, accumulate: bool) -> DepthFirst:
    schedule = mark_first_writes(write_moves(scheme, search.factors, search.results, order.moves, accumulate))
    return DepthFirst(schedule, len(memories(schedule)), search.fewest, *_costs(schedule))


def _costs(schedule: Schedule) -> tuple[int, int]:
    """Block additions and blocks moved by linear stages; a map that adds to C also reads it."""
    additions = traffic = 0
    for m in (m for stage in schedule.stages if isinstance(stage, LinearStage) for m in stage.maps):
        added = sum(map(bool, m.kept))
        additions += m.map.additions + added
        traffic += len(set(m.sources)) + len(m.targets) + added
    return additions, traffic


def _programs(w: LinearMap) -> Iterator[LinearMap]:
    """The candidate programs for adding up products: as the author wrote them, and with repeated pairs shared."""
    yield w
    plain = LinearMap(w.inputs, w.matrix)
    if plain != w:
        yield plain
    if w.inputs <= MOST_SHARED and (shared := with_shared_sums(plain)) not in (w, plain):
        yield shared


def _rational_maps(scheme: Scheme) -> tuple[tuple[Form, ...], tuple[Form, ...], LinearMap]:
    """U and V as tables and W as written, without products that are zero. Schemes over other rings than Z and Q are refused (E556)."""
    u, v, w = scheme.tables
    strange = next((c for table in (u, v, w) for row in table for _, c in row if isinstance(c, Symbolic)), None)
    if strange is not None or scheme.ring.modulus:
        what = f"is over {scheme.ring}" if strange is None else f"has the coefficient {strange}"
        message = f"depth-first schedules are found for schemes over Z and Q, and {scheme.name} {what}"
        raise fail("E556", message, "take a scheme with rational coefficients")
    zero = {p for p, forms in enumerate(zip(u, v, strict=True)) if not all(forms)}
    if scheme.bases is None and not zero:
        return u, v, scheme.w
    return u, v, LinearMap(scheme.rank, tuple(tuple((p, c) for p, c in row if p not in zero) for row in w))


def _check_options(temporaries: int, effort: int, seconds: float | None) -> None:
    if temporaries < 0 or effort < 1:
        raise fail("E558", f"temporaries={temporaries}, effort={effort}: at least 0 and at least 1 are possible")
    if seconds is not None and not seconds > 0:
        raise fail("E558", f"seconds={seconds}: a search needs some time")
