"""Fuse linear stages: compose neighbouring linear stages into as few passes over memory as registers allow.

Before: a schedule. After: the same values in every block that a later stage or the caller reads. If one pass cannot hold a whole run of
linear stages, the run is cut so that the passes move the fewest elements, counted for a square problem.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby

from bilinear.analysis.block_maps import beside, components, restrict, then
from bilinear.analysis.evaluation_order import evaluate, own_inputs
from bilinear.ir.schedule import Block, BlockMap, LinearStage, Schedule, Stage
from bilinear.ir.thread import CUDA_THREAD, Thread


def fuse_linear_stages(schedule: Schedule, thread: Thread = CUDA_THREAD) -> Schedule:
    """The schedule with neighbouring linear stages composed, values that nobody reads dropped, and unread workspaces with them.

    A pass holds no more than a `thread` of its kernel can.
    """
    fused: list[Stage] = []
    last_read = {block: number for number, stage in enumerate(schedule.stages) for block in _read([stage])}
    begin = 0
    for is_linear, group in groupby(schedule.stages, lambda stage: isinstance(stage, LinearStage)):
        run = tuple(group)
        end = begin + len(run)
        fused += _Run(schedule, begin, end, thread, last_read).passes() if is_linear else run
        begin = end
    used = _read(fused) | _written(fused)
    names = {block.space for block in used}
    workspaces = tuple(space for space in schedule.workspaces if space.name in names)
    return replace(schedule, stages=tuple(fused), workspaces=workspaces)


class _Run:
    """Neighbouring linear stages of a schedule: positions `begin` to `end`, `end` excluded.

    `last_read` is the position of the last stage that reads a block.
    """

    def __init__(self, schedule: Schedule, begin: int, end: int, thread: Thread, last_read: Mapping[Block, int]) -> None:
        self.schedule, self.begin, self.end, self.thread, self.last_read = schedule, begin, end, thread, last_read
        self.shape_of = {space.name: space.shape for space in schedule.spaces}
        self.held = {space.name for space in schedule.operands}
        self.elements = {"A": schedule.n, "B": schedule.m, "C": schedule.k}  # of a block, in units that hold for all shapes
        self.fused = cache(self._fused)
        self.cheapest = cache(self._cheapest)

    def passes(self) -> tuple[LinearStage, ...]:
        """The passes that move the fewest elements; a pass that writes nothing is dropped."""
        return tuple(stage for stage in self.cheapest(self.begin)[2] if stage.maps)

    def _cheapest(self, begin: int) -> tuple[int, int, tuple[LinearStage, ...]]:
        """The cheapest way to cut from a position on: elements moved, number of passes, and the passes."""
        if begin == self.end:
            return 0, 0, ()
        best: tuple[int, int, tuple[LinearStage, ...]] | None = None
        for end in range(self.end, begin, -1):
            stage = self.fused(begin, end)
            if stage is None:
                continue
            moved, count, rest = self.cheapest(end)
            found = (moved + self._moved(stage), count + 1, (stage, *rest))
            if best is None or found[:2] < best[:2]:
                best = found
            if end == self.end:  # one pass never moves more than the passes of a cut
                break
        assert best is not None  # a single stage always is a pass
        return best

    def _fused(self, begin: int, end: int) -> LinearStage | None:
        """The stages as one; None if that would be too large. A single stage keeps its maps, unless they cross."""
        last = self.schedule.stages[end - 1]
        assert isinstance(last, LinearStage)
        if end == begin + 1:
            return self._uncrossed(last)
        before = self.fused(begin, end - 1)
        if before is None or _kept(before) & _read([last]) or (_kept(before) and _kept(last)):  # no form says that an old value is kept
            return None
        return self._composed(before, last, end)

    def _uncrossed(self, stage: LinearStage) -> LinearStage:
        """The stage with one map for each shape if a map reads what another one writes: an engine may run maps one after the other."""
        writers = {target: block_map for block_map in stage.maps for target in block_map.targets}
        if all(writers.get(block, block_map) is block_map for block_map in stage.maps for block in block_map.sources):
            return stage
        shapes: dict[str, list[BlockMap]] = {}
        for block_map in stage.maps:
            shapes.setdefault(self.shape_of[block_map.targets[0].space], []).append(block_map)
        return replace(stage, maps=tuple(map(beside, shapes.values())))

    def _composed(self, first: LinearStage, second: LinearStage, end: int) -> LinearStage | None:
        groups: dict[str, list[list[BlockMap]]] = {}
        for order, stage in enumerate((first, second)):
            for block_map in stage.maps:
                groups.setdefault(self.shape_of[block_map.targets[0].space], [[], []])[order].append(block_map)
        written = {shape: {t for m in before for t in m.targets} for shape, (before, _) in groups.items()}
        for shape, (_, after) in groups.items():  # a form cannot read blocks of another size that the first stage changes
            if {block for m in after for block in m.sources} & {t for other in written if other != shape for t in written[other]}:
                return None
        maps: list[BlockMap] = []
        for before, after in groups.values():
            whole = then(beside(before), beside(after)) if before and after else beside(before or after)
            kept = {t for t in whole.targets if t.space in self.held or self.last_read.get(t, -1) >= end}
            maps.append(restrict(whole, kept))
        if not all(_fits(part, self.thread) for m in maps for part in components(m)):
            return None
        return LinearStage(tuple(m for m in maps if m.targets), first.restores and second.restores)

    def _moved(self, stage: LinearStage) -> int:
        return sum((len(m.sources) + len(m.targets)) * self.elements[self.shape_of[m.targets[0].space]] for m in stage.maps)


def _fits(part: BlockMap, thread: Thread) -> bool:
    """Whether a thread can evaluate a part in its registers."""
    if len(part.sources) + part.map.additions + len(part.targets) > thread.most_work:
        return False
    if len(part.sources) + len(part.map.steps) < thread.most_live:  # even all of them at once
        return True
    return evaluate(part.map, own_inputs(part)).live <= thread.most_live


def _kept(stage: LinearStage) -> set[Block]:
    """The blocks of C whose old values the maps keep."""
    return {target for m in stage.maps for target, factor in zip(m.targets, m.kept, strict=True) if factor}


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
