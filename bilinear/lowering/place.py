"""Placement: fit a lowered schedule to a problem by peeling, and lay out its workspace."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bilinear.errors import fail
from bilinear.ir.placement import STAGE, Placement, Slot, Strip
from bilinear.ir.schedule import Block, Schedule, Stage
from bilinear.ir.tile import USUAL

if TYPE_CHECKING:
    from bilinear.ir.scheme import Scheme


ALIGNMENT = 256  # Workspaces start at multiples of this many bytes; rows start at multiples of 16.

Extents = tuple[int, int, int]
Lifetimes = Mapping[str, int]  # The stages in which a workspace is alive, as a bit mask; 0 if none writes it.


@dataclass(frozen=True)
class Room:
    """The memory a space needs: a number of elements, during the stages whose bits are set in `alive`."""

    size: int
    alive: int


def lay_out(
    schedule: Schedule, core: Extents, itemsize: int, column_major: frozenset[str], alive: Lifetimes | None = None
) -> tuple[tuple[Slot, ...], int]:
    """The slot of every workspace, rows (or columns) at multiples of 16 bytes, and the buffer's elements; by `alive`, if known."""
    if alive is None:
        alive = lifetimes(schedule) if len(schedule.workspaces) > 1 else {}
    bm, bk, bn = core[0] // schedule.m, core[1] // schedule.k, core[2] // schedule.n
    extents = {"A": (bm, bk), "B": (bk, bn), "C": (bm, bn)}
    slots: list[Slot] = []
    rooms: list[Room] = []
    for space in schedule.workspaces:
        height, width = extents[space.shape]
        rows, columns = space.rows * height, space.columns * width
        by_column = space.shape in column_major
        leading = _rounded(rows if by_column else columns, max(1, 16 // itemsize))
        slots.append(Slot(space.name, 0, rows, columns, leading))
        size = _rounded(leading * (columns if by_column else rows), max(1, ALIGNMENT // itemsize))
        rooms.append(Room(size, alive.get(space.name, -1)))
    offsets = place(rooms)
    placed = tuple(Slot(s.space, offset, s.rows, s.columns, s.leading) for s, offset in zip(slots, offsets, strict=True))
    return placed, buffer_size(rooms, offsets)


def place(rooms: Sequence[Room]) -> tuple[int, ...]:
    """The start of each room. The largest is placed first, each in the tightest gap that is free while it is alive, else at the end.

    Rooms without a common stage may overlap. Rooms of equal size are taken in the order listed or in order of first use, whichever gives
    the smaller buffer. The buffer need not be the smallest possible, but is never larger than all rooms together.
    """
    numbers = range(len(rooms))
    orders = (
        sorted(numbers, key=lambda i: (-rooms[i].size, i)),
        sorted(numbers, key=lambda i: (-rooms[i].size, rooms[i].alive & -rooms[i].alive, i)),
    )
    return min((_placed(rooms, order) for order in orders), key=lambda offsets: buffer_size(rooms, offsets))


def buffer_size(rooms: Sequence[Room], offsets: Sequence[int]) -> int:
    """The end of the last room."""
    return max((offset + room.size for offset, room in zip(offsets, rooms, strict=True)), default=0)


def _placed(rooms: Sequence[Room], order: Sequence[int]) -> tuple[int, ...]:
    offsets = [0] * len(rooms)
    placed: list[int] = []
    for i in order:
        taken = sorted((offsets[j], offsets[j] + rooms[j].size) for j in placed if rooms[j].alive & rooms[i].alive)
        offsets[i] = _tightest(taken, rooms[i].size)
        placed.append(i)
    return tuple(offsets)


def _tightest(taken: Sequence[tuple[int, int]], size: int) -> int:
    """The start of the smallest gap that holds `size` (the first, if several are equal); the end of all rooms if none does."""
    end, best = 0, (-1, -1)
    for start, stop in taken:
        gap = start - end
        if gap >= size and (best[0] < 0 or gap < best[1]):
            best = (end, gap)
        end = max(end, stop)
    return end if best[0] < 0 else best[0]


def lifetimes(schedule: Schedule) -> Lifetimes:
    """The lifetimes of a schedule's workspaces."""
    names = {space.name for space in schedule.workspaces}
    begun: dict[Block, tuple[int, int]] = {}
    """For each block: the stage of its last overwriting write, and the stage of its last use since."""
    alive = dict.fromkeys(names, 0)
    for number, stage in enumerate(schedule.stages):
        reads, writes = stage_uses(stage, names)
        for block in reads & begun.keys():
            begun[block] = (begun[block][0], number)
        for block in writes:
            if block in begun and block not in reads:
                alive[block.space] |= _bits(*begun.pop(block))
            begun[block] = (begun[block][0] if block in begun else number, number)
    for block, (first, last) in begun.items():
        alive[block.space] |= _bits(first, last)
    return alive


def _bits(first: int, last: int) -> int:
    return (1 << (last + 1)) - (1 << first)


def stage_uses(stage: Stage, names: Collection[str]) -> tuple[set[Block], set[Block]]:
    """The blocks of these spaces that a stage reads, and those it writes. A block whose old value is kept is both."""
    writes = [(block, kept) for block, kept in stage.writes if block.space in names]
    reads = {block for block in stage.reads if block.space in names} | {block for block, kept in writes if kept}
    return reads, {block for block, _ in writes}


def _rounded(value: int, step: int) -> int:
    return -(-value // step) * step


SMALLEST_BLOCK = 1024  # `levels="auto"` splits while blocks are so large: below, a level costs more.
SECTOR = 32  # Bytes of a memory sector; rows of blocks in a workspace start at one if they are whole ones.
PEELED_FROM = 4096  # From here on, more is peeled off to get whole sectors; below, strips cost that much.
LEAST_SECTORS = 16  # Narrower blocks are not cut to whole sectors: strips would be a large part of them.


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
