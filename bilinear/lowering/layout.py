"""Layout: where the workspaces of a schedule lie in one buffer. Workspaces that are never alive at once may share memory.

A block is alive from the stage that writes it to the last stage that reads it before it is overwritten, both included; the launches within
a stage are not distinguished. A space is alive while any of its blocks is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from bilinear.ir.placement import Slot
from bilinear.ir.schedule import Block, LinearStage, Schedule, Stage

ALIGNMENT = 256
"""Workspaces start at multiples of this many bytes; rows start at multiples of 16."""

Extents = tuple[int, int, int]
Lifetimes = Mapping[str, int]
"""For each workspace the stages in which it is alive, as a bit mask; 0 if nothing is written to it."""


@dataclass(frozen=True)
class Room:
    """The memory a space needs: a number of elements, during the stages whose bits are set in `alive`."""

    size: int
    alive: int


def lay_out(
    schedule: Schedule, core: Extents, itemsize: int, column_major: frozenset[str], alive: Lifetimes | None = None
) -> tuple[tuple[Slot, ...], int]:
    """The slot of every workspace, with each row (or column) at a multiple of 16 bytes, and the size of the buffer in elements.

    `alive` gives the lifetimes of the workspaces if they are already known.
    """
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
    reads: set[Block] = set()
    writes: set[Block] = set()
    if isinstance(stage, LinearStage):
        for m in stage.maps:
            kept = (block for block, factor in zip(m.targets, m.kept, strict=True) if factor)
            reads.update(block for block in (*m.sources, *kept) if block.space in names)
            writes.update(block for block in m.targets if block.space in names)
        return reads, writes
    for product in stage.products:
        reads.update(block for block in (product.left, product.right) if block.space in names)
        targets = [target for target in product.targets if target.block.space in names]
        reads.update(target.block for target in targets if target.kept)
        writes.update(target.block for target in targets)
    return reads, writes


def _rounded(value: int, step: int) -> int:
    return -(-value // step) * step
