"""Fuse linear stages: neighbouring linear stages become one, as the product of their maps.

Before: a schedule. After: the same values in every block that a later stage or the caller reads; fewer passes over memory. Two
stages stay apart where an independent part of their product would hold more blocks than a thread has registers for.
"""

from __future__ import annotations

from dataclasses import replace

from bilinear.analysis.block_maps import beside, components, restrict, then
from bilinear.ir.schedule import Block, BlockMap, LinearStage, Schedule, Stage

MOST_SOURCES, MOST_TARGETS = 64, 128
"""What one part may read and write: 64 doubles fill half the registers of a thread, more than 128 targets take long to compile."""


def fuse_linear_stages(schedule: Schedule) -> Schedule:
    """The schedule with neighbouring linear stages composed, values that nobody reads dropped, and unread workspaces with them."""
    shape_of = {space.name: space.shape for space in schedule.spaces}
    fused: list[Stage] = []
    for position, stage in enumerate(schedule.stages):
        if isinstance(stage, LinearStage) and fused and isinstance(fused[-1], LinearStage):
            both = _fuse(fused[-1], stage, _read(schedule.stages[position + 1 :]), shape_of)
            if both is not None:
                fused[-1] = both
                continue
        fused.append(stage)
    used = _read(tuple(fused)) | _written(tuple(fused))
    names = {block.space for block in used}
    workspaces = tuple(space for space in schedule.workspaces if space.name in names)
    return replace(schedule, stages=tuple(fused), workspaces=workspaces)


def _fuse(first: LinearStage, second: LinearStage, read_later: set[Block], shape_of: dict[str, str]) -> LinearStage | None:
    """Both stages as one, or None where a part would be too large."""
    groups: dict[str, list[list[BlockMap]]] = {}
    for order, stage in enumerate((first, second)):
        for block_map in stage.maps:
            groups.setdefault(shape_of[block_map.targets[0].space], [[], []])[order].append(block_map)
    maps: list[BlockMap] = []
    for before, after in groups.values():
        whole = then(beside(before), beside(after)) if before and after else beside(before or after)
        kept = {t for t in whole.targets if t.space in ("A", "B", "C") or t in read_later}
        maps.append(restrict(whole, kept))
    parts = [part for m in maps for part in components(m)]
    if any(len(part.sources) > MOST_SOURCES or len(part.targets) > MOST_TARGETS for part in parts):
        return None
    return LinearStage(tuple(m for m in maps if m.targets), first.restores and second.restores)


def _read(stages: tuple[Stage, ...]) -> set[Block]:
    read: set[Block] = set()
    for stage in stages:
        if isinstance(stage, LinearStage):
            read.update(block for m in stage.maps for block in m.sources)
        else:
            read.update(block for p in stage.products for block in (p.left, p.right))
    return read


def _written(stages: tuple[Stage, ...]) -> set[Block]:
    written: set[Block] = set()
    for stage in stages:
        if isinstance(stage, LinearStage):
            written.update(block for m in stage.maps for block in m.targets)
        else:
            written.update(t.block for p in stage.products for t in p.targets)
    return written
