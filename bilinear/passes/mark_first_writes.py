"""Mark first writes: the first write of each block of C carries beta.

Before: a schedule without contention inside a stage. After: the same, with exactly one write of every block of C marked as its first,
be it a product or a map. Workspaces, and schedules that overwrite C or scale for themselves, are left as they are: who makes them says
where they start anew.
"""

from __future__ import annotations

from dataclasses import replace

from bilinear.ir.schedule import Block, ProductStage, Schedule, Stage, Target


def mark_first_writes(schedule: Schedule) -> Schedule:
    """The schedule with the first ordered write of every block of C marked."""
    if not schedule.adds_to_c:
        return schedule
    seen: set[Block] = set()

    def mark(target: Target) -> Target:
        if target.block.space != "C":
            return target
        first = target.block not in seen
        seen.add(target.block)
        return replace(target, first=first)

    stages: list[Stage] = []
    for stage in schedule.stages:
        if isinstance(stage, ProductStage):
            products = tuple(replace(p, targets=tuple(mark(t) for t in p.targets)) for p in stage.products)
            stages.append(ProductStage(products))
        else:
            results = {target for m in stage.maps for target in m.targets if target.space == "C"}
            stages.append(replace(stage, first=frozenset(results - seen)))
            seen |= results
    return replace(schedule, stages=tuple(stages))
