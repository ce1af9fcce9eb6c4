"""Choose a decomposition: the levels, where sums are computed, who multiplies what, within a budget of memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from bilinear.distributed.distributions import Distribution
from bilinear.distributed.rank_plan import Extents, RankPlan
from bilinear.distributed.shares import Held, Tile, panel_tasks, shared_products, tiles
from bilinear.distributed.spread import Rect, Spread, joined, length, meet, near_even, run
from bilinear.distributed.traffic import busiest, traffic
from bilinear.distributed.workspace import workspace
from bilinear.errors import fail
from bilinear.ir.placement import MOST_LEVELS
from bilinear.ir.scheme import Scheme

PANELS = 4
"""Panels of the classical multiply if memory is short; each further attempt splits every panel into four."""
MOST_UNEVEN = 1.1
"""A rank computes exactly the part of C that it holds, unless some part exceeds an equal share by more than this factor."""
MOST_PRODUCTS = 20_000
"""The most breadth-first products of a plan; each takes several messages."""


def decompose(
    extents: Extents,
    ranks: int,
    given: Sequence[Distribution],
    scheme: Scheme | None = None,
    levels: int | None = None,
    memory: int | None = None,
    itemsize: int = 1,
    whole: bool = False,
) -> RankPlan:
    """The plan of C = A B over `ranks`; A, B and C are distributed as `given`.

    With a scheme, `levels` of it run breadth first (None: the fewest with a product for each rank). Without, C is computed in a tile a
    rank, the classical way, in panels of k, or of columns if k is to be `whole`. `memory` is the most that a rank may hold beside its
    pieces, in bytes if an element has `itemsize`: as few depth-first levels as keep it stand above the breadth-first ones, as in CAPS (G.
    Ballard, J. Demmel, O. Holtz, B. Lipshitz, O. Schwartz, *Communication-optimal parallel algorithm for Strassen's matrix
    multiplication*, SPAA 2012). Raises `BilinearError` (E760 to E762).
    """
    require_extents(extents)
    m, k, n = extents
    shapes = (m, k), (k, n), (m, n)
    lie = tuple(distribution.spread(*shape, ranks) for distribution, shape in zip(given, shapes, strict=True))
    spreads = lie[0], lie[1], lie[2]
    breadth = () if scheme is None else (scheme,) * (levels or fewest_levels(scheme, ranks))
    if prod(level.rank for level in breadth) > MOST_PRODUCTS:
        raise fail(
            "E760", f"{len(breadth)} levels of {breadth[0].name} are {breadth[0].rank ** len(breadth)} products", "take fewer levels"
        )
    least = None
    for effort in range(MOST_LEVELS + 1):
        panels = min(PANELS * 4 ** (effort - 1), max(extents)) if effort else None
        if scheme is None:
            plan = _panels(extents, ranks, spreads, panels, whole)
        else:
            plan = _by_scheme(extents, ranks, spreads, (scheme,) * effort, breadth)
        needed = workspace(plan) * itemsize
        if memory is None or needed <= memory:
            return plan
        least = needed if least is None else min(least, needed)
        if _is_finest(plan, panels):
            break
    raise fail("E762", f"no decomposition needs at most {memory} bytes a rank", f"allow {least}, or take more ranks")


def _is_finest(plan: RankPlan, panels: int | None) -> bool:
    """Whether blocks or panels cannot be cut further: they have one row or column."""
    if not plan.levels:
        return panels is not None and panels >= max(plan.extents)
    last = plan.levels[-1]
    blocks = plan.form[0][0].columns, plan.form[1][0].columns
    return any(length(runs) < 2 * max(last.k, last.n) for runs in blocks)


def _panels(extents: Extents, ranks: int, given: tuple[Spread, Spread, Spread], panels: int | None, whole: bool) -> RankPlan:
    """A tile of C a rank: of some ways to lay the tiles, the one by which the busiest rank sends or receives least."""
    m, k, n = extents
    across = tuple((row, column) for column, row in tiles(n, m, ranks))
    ways = [tiles(m, n, ranks), across, *_as_given(given[2], m * n)]
    plans = [RankPlan(extents, (), (), given, given, given, panel_tasks(way, k, _held(way, given, k), 1, whole)) for way in ways]
    best = min(range(len(ways)), key=lambda at: busiest(traffic(plans[at]), ranks))
    return replace(plans[best], tasks=panel_tasks(ways[best], k, _held(ways[best], given, k), panels, whole))


def _held(shares: Sequence[Tile], given: tuple[Spread, Spread, Spread], k: int) -> list[Held]:
    """For each rank the rows, k and columns of A and of B that its tile needs and the rank holds."""
    found = []
    for (rows, columns), left, right in zip(shares, *given[:2], strict=True):
        own = meet(run(*rows), left.rows), meet(left.columns, right.rows), meet(run(*columns), right.columns)
        has = own[0] == run(*rows), own[1] == run(0, k), own[2] == run(*columns)
        found.append((own[0] if has[1] and has[2] else (), own[1] if has[0] and has[2] else (), own[2] if has[0] and has[1] else ()))
    return found


def _as_given(spread: Spread, size: int) -> list[tuple[Tile, ...]]:
    """C in the tiles that the ranks hold, if each rank's part is one tile and none is much larger than its share."""
    if not all(len(part.rows) == len(part.columns) == 1 and part.size * len(spread) <= MOST_UNEVEN * size for part in spread):
        return []
    return [tuple((part.rows[0], part.columns[0]) for part in spread)]


def _by_scheme(
    extents: Extents, ranks: int, given: tuple[Spread, Spread, Spread], depth: tuple[Scheme, ...], breadth: tuple[Scheme, ...]
) -> RankPlan:
    """Every rank holds the same rows of every block, so that all sums are computed where the data lies."""
    levels = depth + breadth
    grid = prod(level.m for level in levels), prod(level.k for level in levels), prod(level.n for level in levels)
    m, k, n = (-(-extent // parts) for extent, parts in zip(extents, grid, strict=True))
    home = _strips(m, k, grid[0], grid[1], ranks), _strips(k, n, grid[1], grid[2], ranks), _strips(m, n, grid[0], grid[2], ranks)
    form = _strips(m, k, 1, 1, ranks), _strips(k, n, 1, 1, ranks), _strips(m, n, 1, 1, ranks)
    tasks = shared_products(prod(level.rank for level in breadth), (m, k, n), ranks)
    return RankPlan(extents, depth, breadth, given, home, form, tasks)


def _strips(rows: int, columns: int, down: int, across: int, ranks: int) -> Spread:
    """A matrix of `down` x `across` blocks of which every rank holds a strip of rows of each."""
    parts = near_even(rows, ranks)
    held = (joined((at * rows + start, at * rows + stop) for at in range(down)) for start, stop in parts)
    return tuple(Rect(runs, run(0, across * columns)) for runs in held)


def fewest_levels(scheme: Scheme, ranks: int) -> int:
    """The fewest levels, at least one, with as many products as ranks."""
    levels = 1
    while scheme.rank > 1 and scheme.rank**levels < ranks:
        levels += 1
    return levels


def require_extents(extents: Extents) -> None:
    """Refuse (E760) what is not a shape of a product."""
    if len(extents) != 3 or not all(isinstance(e, int) and not isinstance(e, bool) and e > 0 for e in extents):
        raise fail("E760", f"the shape {extents!r} is not three positive integers", "give (m, k, n) of A (m x k) and B (k x n)")
