"""Write a depth-first schedule in the language: with explicit scaling, one temporary for each memory, and shared sums as stages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from bilinear.analysis.block_maps import relabel_stage
from bilinear.ir.linear import Form, LinearMap, form
from bilinear.ir.number import rational
from bilinear.ir.schedule import (
    ALPHA,
    Block,
    BlockMap,
    LinearStage,
    ProductStage,
    ScaledSchedule,
    ScaledTarget,
    Schedule,
    Space,
    Stage,
    Target,
)
from bilinear.lowering.place import Room, lifetimes, place, stage_uses
from bilinear.scheduling.in_place.schedule import side_by_side


@dataclass(frozen=True)
class Making:
    """How to make a line from another: `factor` times the held line, plus `rest`, a form over the operand's blocks."""

    factor: Fraction
    rest: Form

    @cached_property
    def additions(self) -> int:
        """Block additions; a line made from nothing needs one fewer."""
        return len(self.rest) - (not self.factor)

    @property
    def traffic(self) -> int:
        """Blocks read and written."""
        return len(self.rest) + bool(self.factor) + 1


class HeldFactors:
    """The factors of one operand: `lines` are the sums up to a multiple; `line[p]` is the line of product p, or -1 for a single block.

    `scale[p]` is the multiple of the line, or of the block `block[p]`.
    """

    def __init__(self, rows: Sequence[Form]) -> None:
        self.lines: list[Form] = []
        self.line: list[int] = []
        self.scale: list[Fraction] = []
        self.block: list[int] = []
        for row in rows:
            self._add(row)
        self.users = [frozenset(p for p, own in enumerate(self.line) if own == i) for i in range(len(self.lines))]
        self._makings: dict[tuple[int, int], Making] = {}

    def _add(self, row: Form) -> None:
        index, first = row[0] if row else (0, 0)
        if len(row) <= 1:
            line, scale = -1, rational(first)
        else:
            known = next((i for i, line in enumerate(self.lines) if _multiple(row, line) is not None), None)
            line = len(self.lines) if known is None else known
            self.lines += [row] if known is None else []
            scale = _multiple(row, self.lines[line]) or Fraction(1)
        self.line.append(line)
        self.scale.append(scale)
        self.block.append(index)

    def making(self, line: int, held: int) -> Making:
        """The cheapest way from the held line `held` (-1: nothing) to `line`."""
        if (line, held) not in self._makings:
            self._makings[line, held] = self._cheapest(self.lines[line], self.lines[held] if held >= 0 else ())
        return self._makings[line, held]

    def best(self, line: int, held: Sequence[int]) -> tuple[int, Making]:
        """The cheapest way to a line from one of these, or from nothing."""
        ways = [(h, self.making(line, h)) for h in (-1, *held)]
        return min(ways, key=lambda way: (way[1].additions, way[1].traffic))

    def cheapest(self, line: int) -> int:
        """The fewest additions that make a line from any other."""
        return min(self.making(line, h).additions for h in range(-1, len(self.lines)) if h != line)

    @staticmethod
    def _cheapest(wanted: Form, held: Form) -> Making:
        have = {i: rational(c) for i, c in held}
        factors = {Fraction(0)} | {rational(c) / have[i] for i, c in wanted if i in have}
        ways = [Making(f, form([*wanted, *((i, -f * c) for i, c in have.items())])) for f in sorted(factors)]
        return min((way for way in ways if bool(way.factor) == bool(held)), key=lambda w: w.additions, default=Making(Fraction(0), wanted))


def _multiple(row: Form, line: Form) -> Fraction | None:
    """The factor of `row` to `line`; None if it is not a multiple."""
    factor = rational(row[0][1]) / rational(line[0][1])
    return factor if row == form((i, factor * rational(c)) for i, c in line) else None


def memories(schedule: Schedule) -> tuple[tuple[Space, ...], ...]:
    """The workspaces of each memory, in a schedule whose workspaces are single blocks."""
    alive = lifetimes(schedule)
    offsets = place([Room(1, alive[space.name]) for space in schedule.workspaces])
    owners = sorted(set(offsets))
    return tuple(tuple(s for s, offset in zip(schedule.workspaces, offsets, strict=True) if offset == owner) for owner in owners)


def saying_its_scaling(schedule: Schedule) -> ScaledSchedule:
    """The schedule with explicit alpha: C = alpha*A*B, or C = alpha*A*B + beta*C if it accumulates.

    The schedule must have marked first writes. A memory that holds sums of A at one time and products at another becomes one temporary
    without a shape, as large as its contents require.
    """
    shared = memories(schedule)
    names = "XYZ" if len(shared) <= 3 else [f"X{i + 1}" for i in range(len(shared))]
    temporaries: list[Space] = []
    named: dict[Block, Block] = {}
    for name, spaces in zip(names, shared, strict=False):
        temporaries.append(Space(name, spaces[0].shape if len({s.shape for s in spaces}) == 1 else "", 0, 0))
        named |= {space.blocks[0]: Block(name, -1, -1) for space in spaces}
    stages = [step for number in range(len(schedule.stages)) for step in _scaled(schedule, number)]
    moved = tuple(_relabelled(stage, named) for stage in stages)
    ordered = tuple(sorted(temporaries, key=lambda space: bool(space.shape)))
    return schedule.scaled(moved, ordered, schedule.result)


def _scaled(schedule: Schedule, number: int) -> Iterator[Stage]:
    """The stages that write out one stage."""
    stage = schedule.stages[number]
    if isinstance(stage, ProductStage):
        yield ProductStage(tuple(replace(p, targets=tuple(map(_target, p.targets))) for p in stage.products))
        return
    maps: list[BlockMap] = []
    for block_map in stage.maps:
        *steps, last = _unrolled(block_map if schedule.overwrites else _with_old_values(block_map), schedule, number)
        yield from (LinearStage((step,)) for step in steps)
        maps += [last] if last.targets else []
    if maps:
        yield LinearStage(tuple(maps))


def _target(target: Target) -> ScaledTarget:
    return ScaledTarget(target.block, ALPHA * target.coefficient, target.kept)


def _with_old_values(block_map: BlockMap) -> BlockMap:
    """Write a map that adds to its targets as one that overwrites them: its forms then contain the old values."""
    rows = []
    sources = list(block_map.sources)
    for target, row, kept in zip(block_map.targets, block_map.map.matrix, block_map.kept, strict=True):
        rows.append(form([*row, (len(sources), kept)]) if kept else row)
        sources += [target] if kept else []
    return BlockMap(tuple(sources), block_map.targets, LinearMap(len(sources), tuple(rows)))


def _unrolled(block_map: BlockMap, schedule: Schedule, number: int) -> list[BlockMap]:
    """The steps of a map as separate maps, each into a block whose value is no longer needed; a map without steps is returned unchanged."""
    linear = block_map.map
    holds = dict(enumerate(block_map.sources))
    places = [*block_map.targets, *(b for b in block_map.sources if b not in block_map.targets and _dies(b, schedule, number))]
    waiting = {linear.inputs + i: step for i, step in enumerate(linear.steps)}
    maps = []
    while waiting:
        found = _next_step(waiting, linear.outputs, holds, places)
        if found is None:
            return [BlockMap(block_map.sources, block_map.targets, LinearMap(linear.inputs, linear.matrix))]
        value, target = found
        maps.append(_over_blocks(holds, [waiting.pop(value)], [target]))
        holds[value] = target
    return [*maps, _over_blocks(holds, linear.outputs, block_map.targets)]


def _next_step(
    waiting: Mapping[int, Form], outputs: Sequence[Form], holds: Mapping[int, Block], places: Sequence[Block]
) -> tuple[int, Block] | None:
    """A step whose terms are available and the block for it, preferably the block of one of its terms."""
    for value, row in waiting.items():
        if not all(index in holds for index, _ in row):
            continue
        others = [*outputs, *(step for other, step in waiting.items() if other != value)]
        wanted = {holds[index] for other in others for index, _ in other if index in holds}
        own = {holds[index] for index, _ in row}
        free = [block for block in places if block not in wanted]
        if free:
            return value, min(free, key=lambda block: block not in own)
    return None


def _over_blocks(holds: Mapping[int, Block], rows: Sequence[Form], targets: Sequence[Block]) -> BlockMap:
    """Rows over values as a map over the blocks that now hold the values; a target that keeps its value is left out."""
    kept = [(target, row) for target, row in zip(targets, rows, strict=True) if not _is_there(holds, row, target)]
    sources = sorted({holds[index] for _, row in kept for index, _ in row})
    place_of = {block: i for i, block in enumerate(sources)}
    outputs = tuple(form((place_of[holds[index]], c) for index, c in row) for _, row in kept)
    return BlockMap(tuple(sources), tuple(target for target, _ in kept), LinearMap(len(sources), outputs))


def _is_there(holds: Mapping[int, Block], row: Form, target: Block) -> bool:
    return len(row) == 1 and row[0][1] == 1 and holds[row[0][0]] == target


def _dies(block: Block, schedule: Schedule, number: int) -> bool:
    """True if a block is overwritten before it is read again, and holds no result."""
    for stage in schedule.stages[number + 1 :]:
        reads, writes = stage_uses(stage, {block.space})
        if block in reads or block in writes:
            return block not in reads
    return block.space not in ("A", "B", "C")


def _relabelled(stage: Stage, named: dict[Block, Block]) -> Stage:
    def new(block: Block) -> Block:
        return named.get(block, block)

    moved = relabel_stage(stage, new)
    return side_by_side(moved) if isinstance(moved, LinearStage) else moved
