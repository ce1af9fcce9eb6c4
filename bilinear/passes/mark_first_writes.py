"""Mark first writes: the first product added to a block carries beta (in C) or overwrites (in a workspace).

Before: a schedule without contention inside a stage. After: the same, with `Target.first` set on exactly one write of every block
that products write.
"""

from __future__ import annotations

from dataclasses import replace

from bilinear.ir.schedule import Block, ProductStage, Schedule, Stage, Target


def mark_first_writes(schedule: Schedule) -> Schedule:
    """The schedule with the first ordered write of every block marked."""
    seen: set[Block] = set()

    def mark(target: Target) -> Target:
        first = target.block not in seen
        seen.add(target.block)
        return replace(target, first=first)

    stages: list[Stage] = []
    for stage in schedule.stages:
        if isinstance(stage, ProductStage):
            products = tuple(replace(p, targets=tuple(mark(t) for t in p.targets)) for p in stage.products)
            stages.append(ProductStage(products))
        else:
            stages.append(stage)
    return replace(schedule, stages=tuple(stages))
