"""Placement: fit a lowered schedule to a problem by peeling, and lay out its workspace."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bilinear.errors import fail
from bilinear.ir.placement import STAGE, Placement, Strip
from bilinear.ir.schedule import Schedule
from bilinear.ir.tile import USUAL
from bilinear.lowering.layout import Extents, Lifetimes, lay_out

if TYPE_CHECKING:  # planning from the table of outlines needs no scheme
    from bilinear.ir.scheme import Scheme

SMALLEST_BLOCK = 1024
"""`levels="auto"` splits while every block stays at least this large: below, one more level costs more than it saves."""
SECTOR = 32
"""Bytes of a memory sector. Rows of blocks in a workspace start at a sector if the blocks are whole sectors wide."""
PEELED_FROM = 4096
"""From this extent on, more rows or columns are peeled off to get whole sectors; below it, the strips cost what they save."""
LEAST_SECTORS = 16
"""Narrower blocks are not cut to whole sectors, because the strips would be a large part of them."""


def place_schedule(
    schedule: Schedule,
    m: int,
    k: int,
    n: int,
    itemsize: int,
    column_major: frozenset[str] = frozenset(),
    alive: Lifetimes | None = None,
    tile: str = USUAL,
    mode: str = STAGE,
    filled: frozenset[str] = frozenset(),
) -> Placement:
    """Place an m x k by k x n multiply: the schedule takes the core (see `core_of`), strips take the rest.

    `tile` names the tile of the products on a GPU, `mode` how stages are launched there. `alive` gives the lifetimes of the schedule's
    workspaces if they are already known. Workspaces in `filled` lie in a buffer of their own, all of them at once.
    """
    core = core_of((schedule.m, schedule.k, schedule.n), (m, k, n), itemsize)
    if 0 in core:
        core = (0, 0, 0)
    own, given = ([space for space in schedule.workspaces if (space.name in filled) is is_given] for is_given in (False, True))
    slots, elements = lay_out(replace(schedule, workspaces=tuple(own)), core, itemsize, column_major, alive) if core[0] else ((), 0)
    kept = lay_out(replace(schedule, workspaces=tuple(given)), core, itemsize, column_major, {}) if core[0] and given else ((), 0)
    return Placement(schedule, m, k, n, core, _peel(m, k, n, *core), slots, elements, column_major, tile, None, mode, *kept)


def borrowing(first: Placement, rest: Placement) -> Placement:
    """Join a placement for the first rows of C (columns if C is column-major) and one for the rest, whose part of C lends it memory.

    Both must have the same K and the same other extent of C, and C must be contiguous. Raises `BilinearError` (E543) otherwise.
    """
    cut_columns, later = "C" in first.column_major, sum(x.m * x.n for x in rest.chain)
    placements = first, *rest.chain
    same = (first.m, first.k) == (rest.m, rest.k) if cut_columns else (first.k, first.n) == (rest.k, rest.n)
    if not same or first.rest is not None or min(min(x.m, x.k, x.n) for x in placements) < 1 or first.workspace_elements > later:
        raise fail("E543", "these parts do not belong to one multiply, or one needs more memory than the later ones have", "plan again")
    return replace(first, rest=rest)


def core_of(grid: Extents, extents: Extents, itemsize: int) -> Extents:
    """The extents of the core for a schedule of this grid: the largest multiple of the grid, or 0 if an extent is smaller than it.

    If all extents are large and there are several blocks, the core is the largest one whose blocks are whole sectors wide.
    """
    (m, k, n), (rows, inner, columns), wide = extents, grid, max(1, SECTOR // itemsize)
    narrow = min(m // rows, k // inner, n // columns) < LEAST_SECTORS * wide
    if narrow or min(extents) < PEELED_FROM or max(grid) == 1:
        wide = 1
    return m - m % (rows * wide), k - k % (inner * wide), n - n % (columns * wide)


def choose_levels(scheme: Scheme, m: int, k: int, n: int) -> int:
    """The most levels that keep every block at least `SMALLEST_BLOCK` in each extent; 0 for small problems."""
    levels = 0
    while min(m // scheme.m, k // scheme.k, n // scheme.n) >= SMALLEST_BLOCK and scheme.m * scheme.k * scheme.n > 1:
        m, k, n = m // scheme.m, k // scheme.k, n // scheme.n
        levels += 1
    return levels


def _peel(m: int, k: int, n: int, core_m: int, core_k: int, core_n: int) -> tuple[Strip, ...]:
    """At most three thin products: the rest of K, the columns on the right, the rows below."""
    strips = (
        Strip((0, core_m), (core_k, k), (0, core_n)),
        Strip((0, core_m), (0, k), (core_n, n)),
        Strip((core_m, m), (0, k), (0, n)),
    )
    return tuple(s for s in strips if s.rows[0] < s.rows[1] and s.columns[0] < s.columns[1] and (s is not strips[0] or core_k < k))
