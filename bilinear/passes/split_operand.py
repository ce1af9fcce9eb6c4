"""Split off the computations from one operand alone, so that they can be done once and kept for many calls.

Before: a schedule that never writes the operand. After: two schedules over the same spaces. The first has the maps that read nothing but
the operand and what such maps wrote, and write workspaces that nothing else writes, each block once; so they may all run first. The second
has everything else, in its order, and finds these workspaces filled.
"""

from __future__ import annotations

from dataclasses import replace

from bilinear.ir.schedule import Block, BlockMap, LinearStage, ProductStage, Schedule, Stage


def split_operand(schedule: Schedule, operand: str) -> tuple[Schedule, Schedule] | None:
    """What comes from `operand` ("A" or "B") alone, filling workspaces, and the rest, reading them; None if there is none."""
    filled = _filled(schedule, operand)
    if not filled or operand in schedule.written:
        return None
    first: list[Stage] = []
    rest: list[Stage] = []
    for stage in schedule.stages:
        if isinstance(stage, ProductStage):
            rest.append(stage)
            continue
        own = tuple(m for m in stage.maps if _writes_only(m, filled))
        others = tuple(m for m in stage.maps if not _writes_only(m, filled))
        first += [replace(stage, maps=own)] if own else []
        rest += [replace(stage, maps=others)] if others else []
    kept = tuple(space for space in schedule.workspaces if space.name in filled)
    name = f"{schedule.name}-{operand}"
    return (
        replace(schedule, name=f"{name}-first", stages=tuple(first), workspaces=kept),
        replace(schedule, name=f"{name}-kept", stages=tuple(rest)),
    )


def _filled(schedule: Schedule, operand: str) -> frozenset[str]:
    """The workspaces that only maps from the operand, or from such workspaces, write, and no block of which is written twice."""
    filled = {space.name for space in schedule.workspaces}
    written: set[Block] = set()
    for stage in schedule.stages:
        if isinstance(stage, ProductStage):
            filled -= {target.block.space for product in stage.products for target in product.targets}
            continue
        for block in (target for block_map in stage.maps for target in block_map.targets):
            if block in written:
                filled.discard(block.space)
            written.add(block)
    maps = [m for stage in schedule.stages if isinstance(stage, LinearStage) for m in stage.maps]
    while True:
        sources = {operand, *filled}
        foreign = set()
        for m in maps:
            if any(m.kept) or any(block.space not in sources for block in m.sources) or not _writes_only(m, filled):
                foreign |= {t.space for t in m.targets}
        if not foreign & filled:
            return frozenset(filled & {t.space for m in maps for t in m.targets})
        filled -= foreign


def _writes_only(block_map: BlockMap, spaces: set[str] | frozenset[str]) -> bool:
    return all(block.space in spaces for block in block_map.targets)
