"""One product a stage: products of a stage run one after the other, so they can share the memory of the level below.

Before: a schedule. After: the same products in the order written, each in a stage of its own.
"""

from __future__ import annotations

from dataclasses import replace

from bilinear.ir.schedule import ProductStage, Schedule, Stage


def one_product_a_stage(schedule: Schedule) -> Schedule:
    """The schedule with a stage for every product."""
    stages: list[Stage] = []
    for stage in schedule.stages:
        stages += [ProductStage((p,)) for p in stage.products] if isinstance(stage, ProductStage) else [stage]
    return replace(schedule, stages=tuple(stages))
