"""Mark first writes: the first write of each block of C keeps beta times what was there, every later one keeps it once.

Before: a schedule without contention inside a stage, whose writes of C keep what was there. After: the same, and every block of C has
beta in exactly one write, be it a product or a map. Writes of workspaces, and schedules that overwrite C or scale for themselves, are left
as they are: who makes them says where they start anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from bilinear.ir.number import Coefficient
from bilinear.ir.schedule import BETA, AnySchedule, Block, ProductStage, ScaledSchedule, Stage

S = TypeVar("S", bound=AnySchedule)


def mark_first_writes(schedule: S) -> S:
    """The schedule with beta in the first ordered write of every block of C."""
    if isinstance(schedule, ScaledSchedule) or schedule.overwrites:
        return schedule
    seen: set[Block] = set()

    def marked(blocks: Sequence[Block], kept: Sequence[Coefficient]) -> tuple[Coefficient, ...]:
        factors = tuple(k if b.space != "C" else 1 if b in seen else BETA for b, k in zip(blocks, kept, strict=True))
        seen.update(blocks)
        return factors

    stages: list[Stage] = []
    for stage in schedule.stages:
        if isinstance(stage, ProductStage):
            products = []
            for product in stage.products:
                targets = product.targets
                factors = marked([t.block for t in targets], [t.kept for t in targets])
                products.append(replace(product, targets=tuple(replace(t, kept=k) for t, k in zip(targets, factors, strict=True))))
            stages.append(ProductStage(tuple(products)))
        else:
            stages.append(replace(stage, maps=tuple(replace(m, kept=marked(m.targets, m.kept)) for m in stage.maps)))
    return replace(schedule, stages=tuple(stages))
