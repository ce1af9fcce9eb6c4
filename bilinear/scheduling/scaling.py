"""Found schedules in the language, which names every factor there: schedules with explicit scaling, and temporaries of one block each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from bilinear.analysis.block_maps import is_plain, over_blocks, relabel_stage
from bilinear.ir.linear import Form, LinearMap, form
from bilinear.ir.schedule import (
    ALPHA,
    Block,
    BlockMap,
    LinearStage,
    ProductStage,
    Result,
    ScaledSchedule,
    ScaledTarget,
    Schedule,
    Space,
    Stage,
)
from bilinear.lowering.place import Room, lifetimes, place, stage_uses


def explicit_in_place(schedule: Schedule) -> ScaledSchedule:
    """A one-level schedule with explicit scaling and temporaries of one block each: C = A*B + C, or C = A*B if it overwrites.

    A product that overwrites some blocks and is added to others becomes two steps of one stage.
    """
    renamed = {
        block: Block(f"{space.name}{number}", -1, -1) for space in schedule.workspaces for number, block in enumerate(space.blocks, 1)
    }
    shapes = [(renamed[block].space, space.shape) for space in schedule.workspaces for block in space.blocks]
    temporaries = tuple(Space(name, shape, 0, 0) for name, shape in shapes)
    stages = tuple(_relabelled(_split(stage), renamed) for stage in schedule.stages)
    return schedule.scaled(stages, temporaries, Result(1, int(not schedule.overwrites)))


def side_by_side(stage: LinearStage) -> LinearStage:
    """The stage as one map over all its blocks, as the language reads stages of a schedule with explicit scaling."""
    rows = [(target, [(m.sources[i], c) for i, c in row]) for m in stage.maps for target, row in zip(m.targets, m.map.outputs, strict=True)]
    return replace(stage, maps=(over_blocks(rows),))


def _split(stage: Stage) -> Stage:
    """The stage with each product as one step that overwrites and one that adds."""
    if isinstance(stage, LinearStage):
        return stage
    steps = []
    for product, kept in ((product, kept) for product in stage.products for kept in (0, 1)):
        targets = tuple(ScaledTarget(t.block, t.coefficient, kept) for t in product.targets if bool(t.kept) == bool(kept))
        steps += [replace(product, targets=targets)] if targets else []
    return ProductStage(tuple(steps))


def memories(schedule: Schedule) -> tuple[tuple[Space, ...], ...]:
    """The workspaces of each memory, in a schedule whose workspaces are single blocks."""
    alive = lifetimes(schedule)
    offsets = place([Room(1, alive[space.name]) for space in schedule.workspaces])
    owners = sorted(set(offsets))
    return tuple(tuple(s for s, offset in zip(schedule.workspaces, offsets, strict=True) if offset == owner) for owner in owners)


def explicit_depth_first(schedule: Schedule) -> ScaledSchedule:
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
    stages = [step for number in range(len(schedule.stages)) for step in _written_out(schedule, number)]
    moved = tuple(_relabelled(stage, named) for stage in stages)
    ordered = tuple(sorted(temporaries, key=lambda space: bool(space.shape)))
    return schedule.scaled(moved, ordered, schedule.result)


def _written_out(schedule: Schedule, number: int) -> Iterator[Stage]:
    stage = schedule.stages[number]
    if isinstance(stage, ProductStage):
        targets = [tuple(ScaledTarget(t.block, ALPHA * t.coefficient, t.kept) for t in p.targets) for p in stage.products]
        yield ProductStage(tuple(replace(p, targets=own) for p, own in zip(stage.products, targets, strict=True)))
        return
    maps: list[BlockMap] = []
    for block_map in stage.maps:
        *steps, last = _unrolled(block_map if schedule.overwrites else _with_old_values(block_map), schedule, number)
        yield from (LinearStage((step,)) for step in steps)
        maps += [last] if last.targets else []
    if maps:
        yield LinearStage(tuple(maps))


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
    kept = [(t, row) for t, row in zip(targets, rows, strict=True) if not (is_plain(row) and holds[row[0][0]] == t)]
    return over_blocks([(target, [(holds[index], c) for index, c in row]) for target, row in kept])


def _dies(block: Block, schedule: Schedule, number: int) -> bool:
    """True if a block is overwritten before it is read again, and holds no result."""
    for stage in schedule.stages[number + 1 :]:
        reads, writes = stage_uses(stage, {block.space})
        if block in reads or block in writes:
            return block not in reads
    return block.space not in ("A", "B", "C")


def _relabelled(stage: Stage, names: Mapping[Block, Block]) -> Stage:
    moved = relabel_stage(stage, lambda block: names.get(block, block))
    return side_by_side(moved) if isinstance(moved, LinearStage) else moved
