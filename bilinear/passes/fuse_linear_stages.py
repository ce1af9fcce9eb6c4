"""Fuse linear stages: compose neighbouring linear stages into as few passes over memory as registers allow.

Before: a schedule. After: the same values in every block that a later stage or the caller reads. If one pass cannot hold a whole run of
linear stages, the run is cut so that the passes move the fewest elements, counted for a square problem.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import groupby

from bilinear.analysis.block_maps import relabel_stage
from bilinear.analysis.collector import uncollected
from bilinear.ir.linear import LinearMap
from bilinear.ir.schedule import Block, LinearStage, Schedule, Stage
from bilinear.ir.thread import CUDA_THREAD, Thread
from bilinear.passes.linear_run import LinearRun


@uncollected
def fuse_linear_stages(schedule: Schedule, thread: Thread = CUDA_THREAD) -> Schedule:
    """The schedule with neighbouring linear stages composed, values that nobody reads dropped, and unread workspaces with them.

    A pass holds no more than a `thread` of its kernel can. Runs that differ by the names of their blocks alone are cut once.
    """
    fused: list[Stage] = []
    last_read = {block: number for number, stage in enumerate(schedule.stages) for block in _read([stage])}
    kinds: dict[Hashable, tuple[tuple[Block, ...], tuple[LinearStage, ...]]] = {}
    known: dict[LinearMap, int] = {}
    begin = 0
    for is_linear, group in groupby(schedule.stages, lambda stage: isinstance(stage, LinearStage)):
        stages = tuple(group)
        end = begin + len(stages)
        if is_linear:
            run = LinearRun(schedule, begin, end, thread, last_read)
            kind, blocks = run.kind(known)
            if kind not in kinds:
                kinds[kind] = blocks, run.passes()
            first, passes = kinds[kind]
            new = dict(zip(first, blocks, strict=True))
            fused += passes if first == blocks else [relabel_stage(stage, new.__getitem__) for stage in passes]
        else:
            fused += stages
        begin = end
    used = _read(fused) | _written(fused)
    names = {block.space for block in used}
    workspaces = tuple(space for space in schedule.workspaces if space.name in names)
    return replace(schedule, stages=tuple(fused), workspaces=workspaces)


def _read(stages: Sequence[Stage]) -> set[Block]:
    read: set[Block] = set()
    for stage in stages:
        if isinstance(stage, LinearStage):
            read.update(block for m in stage.maps for block in m.sources)
        else:
            read.update(block for p in stage.products for block in (p.left, p.right))
    return read


def _written(stages: Sequence[Stage]) -> set[Block]:
    written: set[Block] = set()
    for stage in stages:
        if isinstance(stage, LinearStage):
            written.update(block for m in stage.maps for block in m.targets)
        else:
            written.update(t.block for p in stage.products for t in p.targets)
    return written
