"""The costs of a schedule, counted from its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bilinear.ir.schedule import AnySchedule, Block, LinearStage, ProductStage
from bilinear.verify.facts import ScheduleCosts
from bilinear.verify.steps import needed_after, steps_of
from bilinear.verify.symbols import Value


def schedule_costs(schedule: AnySchedule, history: Sequence[Mapping[Block, Value]], original: Mapping[Block, Value]) -> ScheduleCosts:
    """The costs of a schedule from the states after each stage."""
    widths = tuple(len(stage.products) for stage in schedule.stages if isinstance(stage, ProductStage))
    return ScheduleCosts(_live_blocks(schedule, history, original), _chain(schedule), widths, _passes(schedule))


def _live_blocks(schedule: AnySchedule, history: Sequence[Mapping[Block, Value]], original: Mapping[Block, Value]) -> int:
    needed = needed_after(schedule)
    moments = zip(needed, history, strict=True)
    return max((sum(1 for b in blocks if b in state and state[b] != original.get(b)) for blocks, state in moments), default=0)


def _chain(schedule: AnySchedule) -> int:
    depths: dict[Block, int] = {}
    for stage in schedule.stages:
        written: dict[Block, int] = {}
        for step in steps_of(stage):
            depth = 1 + max((depths.get(block, 0) for block in step.reads), default=0)
            written |= {block: max(depth, written.get(block, 0)) for block in step.writes}
        depths |= written
    return max(depths.values(), default=0)


def _passes(schedule: AnySchedule) -> int:
    kinds = [isinstance(stage, LinearStage) for stage in schedule.stages]
    return sum(1 for i, linear in enumerate(kinds) if not linear or i == 0 or not kinds[i - 1])
