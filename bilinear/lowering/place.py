"""Placement: fit a lowered schedule to a problem: peel it, and lay out its workspace."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bilinear.errors import fail
from bilinear.ir.placement import Placement, Strip
from bilinear.ir.schedule import Schedule
from bilinear.ir.tile import USUAL
from bilinear.lowering.layout import Extents, Lifetimes, lay_out

if TYPE_CHECKING:  # a plan from the table of outlines needs no scheme
    from bilinear.ir.scheme import Scheme

SMALLEST_BLOCK = 1024
"""`levels="auto"` splits while every block stays at least this large: below it one more level costs more than it saves."""
SECTOR = 32
"""Bytes in which memory is read: blocks that are whole sectors wide, and that lie in a workspace, begin each row with one."""
PEELED_FROM = 4096
"""Extents from which a few rows or columns more are peeled off for that: below, the strips cost as much as they save."""
LEAST_SECTORS = 16
"""Blocks that are narrower are not cut to whole sectors: what is left over would be a large part of them."""


def place_schedule(
    schedule: Schedule,
    m: int,
    k: int,
    n: int,
    itemsize: int,
    column_major: frozenset[str] = frozenset(),
    alive: Lifetimes | None = None,
    tile: str = USUAL,
) -> Placement:
    """The placement of an m x k by k x n multiply: `core_of` says what the schedule takes, strips take the rest.

    `tile` is what products run in on a GPU. `alive` are the lifetimes of the schedule's workspaces, where they are known already.
    """
    core = core_of((schedule.m, schedule.k, schedule.n), (m, k, n), itemsize)
    if 0 in core:
        core = (0, 0, 0)
    slots, elements = lay_out(schedule, core, itemsize, column_major, alive) if core[0] else ((), 0)
    return Placement(schedule, m, k, n, core, _peel(m, k, n, *core), slots, elements, column_major, tile)


def borrowing(first: Placement, rest: Placement) -> Placement:
    """One placement for the first rows of C (columns, where it lies by columns) and for the rest, which lends the first its memory.

    Both are for the same inner extent and the same other extent of C, whose elements must lie without gaps. Raises `BilinearError` (E543)
    for what is not that.
    """
    cut_columns, later = "C" in first.column_major, sum(x.m * x.n for x in rest.chain)
    placements = first, *rest.chain
    same = (first.m, first.k) == (rest.m, rest.k) if cut_columns else (first.k, first.n) == (rest.k, rest.n)
    if not same or first.rest is not None or min(min(x.m, x.k, x.n) for x in placements) < 1 or first.workspace_elements > later:
        raise fail("E543", "these parts are not those of one multiply, or one needs more memory than those after it have", "plan again")
    return replace(first, rest=rest)


def core_of(grid: Extents, extents: Extents, itemsize: int) -> Extents:
    """What a schedule of this grid takes of a multiply: the largest multiple of the grid, 0 where an extent is smaller.

    Where all extents are large and there are several blocks, it is the largest one whose blocks are whole sectors wide.
    """
    (m, k, n), (rows, inner, columns), wide = extents, grid, max(1, SECTOR // itemsize)
    narrow = min(m // rows, k // inner, n // columns) < LEAST_SECTORS * wide
    if narrow or min(extents) < PEELED_FROM or max(grid) == 1:
        wide = 1
    return m - m % (rows * wide), k - k % (inner * wide), n - n % (columns * wide)


def choose_levels(scheme: Scheme, m: int, k: int, n: int) -> int:
    """How many levels keep every block at least `SMALLEST_BLOCK` in each extent (none for small problems)."""
    levels = 0
    while min(m // scheme.m, k // scheme.k, n // scheme.n) >= SMALLEST_BLOCK and scheme.m * scheme.k * scheme.n > 1:
        m, k, n = m // scheme.m, k // scheme.k, n // scheme.n
        levels += 1
    return levels


def _peel(m: int, k: int, n: int, core_m: int, core_k: int, core_n: int) -> tuple[Strip, ...]:
    """At most three thin products: the rest of the sum, the columns on the right, the rows below."""
    strips = (
        Strip((0, core_m), (core_k, k), (0, core_n)),
        Strip((0, core_m), (0, k), (core_n, n)),
        Strip((core_m, m), (0, k), (0, n)),
    )
    return tuple(s for s in strips if s.rows[0] < s.rows[1] and s.columns[0] < s.columns[1] and (s is not strips[0] or core_k < k))
