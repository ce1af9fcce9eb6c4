"""Schedules as rows that can be edited one by one, and the edits that make them wrong, or leave them right."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from bilinear.ir.linear import LinearMap, form
from bilinear.ir.number import Coefficient
from bilinear.ir.schedule import AnySchedule, Block, BlockMap, LinearStage, Product, ProductStage, ScaledTarget, Schedule, Stage, Target

Edit = Callable[[AnySchedule, random.Random], AnySchedule]


def in_rows(schedule: AnySchedule) -> AnySchedule:
    """The same schedule with a map for every row, so that a row is dropped or changed by itself."""
    return replace(schedule, stages=tuple(_in_rows(stage) for stage in schedule.stages))


def _in_rows(stage: Stage) -> Stage:
    if isinstance(stage, ProductStage):
        return stage
    rows = [(m.sources, *row) for m in stage.maps for row in zip(m.targets, m.map.matrix, m.kept, strict=True)]
    return replace(stage, maps=tuple(_row(target, {sources[i]: c for i, c in row}, kept) for sources, target, row, kept in rows))


def _row(target: Block, terms: dict[Block, Any], kept: Coefficient) -> BlockMap:
    sources = tuple(terms) or (target,)
    return BlockMap(sources, (target,), LinearMap(len(sources), (form(enumerate(terms.values())),)), (kept,))


def gathered(schedule: Schedule) -> Schedule:
    """The same schedule with one map a stage for all blocks of one shape: an engine is given no two maps that share a block."""
    return replace(schedule, stages=tuple(_gathered(stage, schedule) for stage in schedule.stages))


def _gathered(stage: Stage, schedule: Schedule) -> Stage:
    if isinstance(stage, ProductStage):
        return stage
    rows: dict[str, dict[Block, dict[Block, Any]]] = {}
    factors: dict[Block, Coefficient] = {}
    for m in stage.maps:
        for target, row, kept in zip(m.targets, m.map.matrix, m.kept, strict=True):
            rows.setdefault(schedule.space(target.space).shape, {})[target] = {m.sources[i]: c for i, c in row}
            factors[target] = kept
    maps = []
    for found in rows.values():
        sources = tuple(dict.fromkeys(block for terms in found.values() for block in terms)) or tuple(found)
        outputs = tuple(form((sources.index(block), c) for block, c in terms.items()) for terms in found.values())
        maps.append(BlockMap(sources, tuple(found), LinearMap(len(sources), outputs), tuple(factors[block] for block in found)))
    return replace(stage, maps=tuple(maps))


def edited(schedule: AnySchedule, draw: random.Random) -> AnySchedule:
    """A schedule in rows after one to three edits; one that does not apply changes nothing."""
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        schedule = draw.choice(EDITS)(schedule, draw)
    return schedule


def _with(schedule: AnySchedule, at: int, *stages: Stage, of: int = 1) -> AnySchedule:
    return replace(schedule, stages=(*schedule.stages[:at], *stages, *schedule.stages[at + of :]))


def _drop_stage(schedule: AnySchedule, draw: random.Random) -> AnySchedule:
    return _with(schedule, draw.randrange(len(schedule.stages))) if len(schedule.stages) > 1 else schedule


def _move_stage(schedule: AnySchedule, draw: random.Random) -> AnySchedule:
    stages = list(schedule.stages)
    stage = stages.pop(draw.randrange(len(stages)))
    stages.insert(draw.randrange(len(stages) + 1), stage)
    return replace(schedule, stages=tuple(stages))


def _double_stage(schedule: AnySchedule, draw: random.Random) -> AnySchedule:
    at = draw.randrange(len(schedule.stages))
    return _with(schedule, at, schedule.stages[at], schedule.stages[at])


def _merge_stages(schedule: AnySchedule, draw: random.Random) -> AnySchedule:
    pairs = [i for i, (a, b) in enumerate(zip(schedule.stages, schedule.stages[1:], strict=False)) if type(a) is type(b)]
    if not pairs:
        return schedule
    at = draw.choice(pairs)
    first, second = schedule.stages[at : at + 2]
    if isinstance(first, ProductStage) and isinstance(second, ProductStage):
        return _with(schedule, at, ProductStage(first.products + second.products), of=2)
    assert isinstance(first, LinearStage) and isinstance(second, LinearStage)
    return _with(schedule, at, replace(first, maps=first.maps + second.maps), of=2)


def _split_stage(schedule: AnySchedule, draw: random.Random) -> AnySchedule:
    at = draw.randrange(len(schedule.stages))
    stage = schedule.stages[at]
    parts = list(stage.products if isinstance(stage, ProductStage) else stage.maps)
    if len(parts) < 2:
        return schedule
    draw.shuffle(parts)
    cut = draw.randrange(1, len(parts))
    return _with(schedule, at, *(_stage_of(stage, part) for part in (parts[:cut], parts[cut:])))


def _stage_of(stage: Stage, parts: list[Any]) -> Stage:
    return ProductStage(tuple(parts)) if isinstance(stage, ProductStage) else replace(stage, maps=tuple(parts))


def _toggle_restore(schedule: AnySchedule, draw: random.Random) -> AnySchedule:
    at = draw.randrange(len(schedule.stages))
    stage = schedule.stages[at]
    return _with(schedule, at, replace(stage, restores=not stage.restores)) if isinstance(stage, LinearStage) else schedule


def _claim(schedule: AnySchedule, draw: random.Random) -> AnySchedule:
    return replace(schedule, restores=draw.choice(((), ("A",), ("B",), ("A", "B"))), in_place=draw.random() < 0.5)


def _edit_part(schedule: AnySchedule, draw: random.Random) -> AnySchedule:
    """One row or one product dropped, doubled or changed."""
    at = draw.randrange(len(schedule.stages))
    stage = schedule.stages[at]
    parts: list[Any] = list(stage.products if isinstance(stage, ProductStage) else stage.maps)
    if not parts:
        return schedule
    number, way = draw.randrange(len(parts)), draw.random()
    if way < 0.15:
        del parts[number]
    elif way < 0.2:
        parts.append(parts[number])
    elif way < 0.25:
        draw.shuffle(parts)
    else:
        part = parts[number]
        parts[number] = _changed_product(part, schedule, draw) if isinstance(part, Product) else _changed_row(part, schedule, draw)
    return _with(schedule, at, _stage_of(stage, parts)) if parts else schedule


def _changed_row(row: BlockMap, schedule: AnySchedule, draw: random.Random) -> BlockMap:
    target = row.targets[0]
    terms = {row.sources[i]: c for i, c in row.map.matrix[0]}
    way, other = draw.randrange(4), _like(target, schedule, draw)
    if way == 0:
        target = other
    elif way == 1 or not terms:
        terms[other] = _coefficient(draw)
    else:
        source = draw.choice(list(terms))
        value = terms.pop(source)
        if way == 2:
            terms[source] = draw.choice((-value, _coefficient(draw)))
    return _row(target, terms, row.kept[0])


def _changed_product(product: Product, schedule: AnySchedule, draw: random.Random) -> Product:
    way = draw.randrange(6)
    if way == 0:
        return replace(product, left=_like(product.left, schedule, draw))
    if way == 1:
        return replace(product, right=_like(product.right, schedule, draw))
    if way == 2:
        return replace(product, left=product.right, right=product.left)
    targets = list(product.targets)
    number = draw.randrange(len(targets))
    target = targets[number]
    if way == 3 and len(targets) > 1:
        del targets[number]
    elif way == 4:
        targets[number] = replace(target, block=_like(target.block, schedule, draw))
    elif draw.random() < 0.3:
        targets[number] = _turned(target)
    else:
        targets[number] = replace(target, coefficient=draw.choice((-target.coefficient, 2 * target.coefficient)))
    return replace(product, targets=tuple(targets))


def _turned(target: Target) -> Target:
    """A target that overwrites where it added, and the other way round."""
    if isinstance(target, ScaledTarget):
        return replace(target, kept=int(not target.terms), plus=())
    return replace(target, kept=0 if target.kept else 1)


def _like(block: Block, schedule: AnySchedule, draw: random.Random) -> Block:
    """Another block, mostly of the same space."""
    spaces = [space for space in schedule.spaces if space.name == block.space or draw.random() < 0.15]
    return draw.choice([other for space in spaces for other in space.blocks])


def _coefficient(draw: random.Random) -> Any:
    return draw.choice((1, -1, 2, Fraction(1, 2)))


EDITS: tuple[Edit, ...] = (
    *(_drop_stage, _move_stage, _double_stage, _merge_stages, _split_stage, _toggle_restore, _claim),
    *(_edit_part,) * 8,
)
