"""Drop restoration: if the inputs may be consumed, the linear stages after the last product need not restore them.

Before: an in-place schedule. After: the same C; A and B are left undefined.
"""

from __future__ import annotations

from dataclasses import replace

from bilinear.ir.schedule import ProductStage, Schedule


def drop_restoration(schedule: Schedule) -> Schedule:
    """The schedule without the linear stages after its last product stage that write only A and B."""
    last = max(i for i, stage in enumerate(schedule.stages) if isinstance(stage, ProductStage))
    kept = [stage for i, stage in enumerate(schedule.stages) if i <= last or any(block.space == "C" for block, _ in stage.writes)]
    return replace(schedule, stages=tuple(kept), restores=())
