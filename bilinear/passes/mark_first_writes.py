"""Mark first writes: the first write of each block of C keeps beta times its old value; later writes keep it unscaled.

Before: a schedule without contention inside a stage, whose writes of C keep the old value. After: the same, with beta in exactly one write
of every block of C, by a product or a map. Writes of workspaces, and schedules that overwrite C or scale explicitly, stay unchanged:
their makers mark the overwriting writes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from bilinear.ir.number import Coefficient
from bilinear.ir.schedule import BETA, AnySchedule, Block, LinearStage, ProductStage, ScaledSchedule, Stage

S = TypeVar("S", bound=AnySchedule)


def mark_first_writes(schedule: S) -> S:
    """The schedule with beta in the first ordered write of every block of C."""
    if isinstance(schedule, ScaledSchedule) or schedule.overwrites:
        return schedule
    seen: set[Block] = set()

    def marked(block: Block, kept: Coefficient) -> Coefficient:
        if block.space not in schedule.results:
            return kept
        begun = block in seen
        seen.add(block)
        return 1 if begun else BETA

    stages: list[Stage] = []
    for stage in schedule.stages:
        if isinstance(stage, LinearStage):
            maps = tuple(replace(m, kept=tuple(map(marked, m.targets, m.kept))) for m in stage.maps)
            stages.append(replace(stage, maps=maps))
        else:
            products = (replace(p, targets=tuple(replace(t, kept=marked(t.block, t.kept)) for t in p.targets)) for p in stage.products)
            stages.append(ProductStage(tuple(products)))
    return replace(schedule, stages=tuple(stages))
