"""Fuse linear stages: compose neighbouring linear stages into as few passes over memory as registers allow.

Before: a schedule. After: the same values in every block that a later stage or the caller reads. If one pass cannot hold a whole run of
linear stages, the run is cut so that the passes move the fewest elements, counted for a square problem.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby, pairwise
from pathlib import Path

from bilinear.analysis.block_maps import beside, components, pruned, relabel_stage, restrict, then, uncollected
from bilinear.analysis.evaluation_order import NOTHING, GroupLayer, Members, equal_groups, holds_at_most, own_inputs
from bilinear.ir.linear import LinearMap
from bilinear.ir.schedule import Block, BlockMap, LinearStage, Schedule, Stage
from bilinear.ir.tile import CUDA_THREAD, Thread

LONG = 10  # The fewest stages of a run that is kept; shorter ones are searched in 0.1 s.
TABLE = Path(__file__).with_name("cuts.json")


def kept_ends(digest: str) -> tuple[int, ...]:
    """Where the passes of a run end, counted from its begin; empty if that is not known."""
    return tuple(_table().get(digest, ()))


@cache
def _table() -> dict[str, list[int]]:
    found: dict[str, list[int]] = json.loads(TABLE.read_text(encoding="utf-8"))
    return found


@dataclass(frozen=True)
class _Pass:
    """Several stages as one pass: the elements that it moves, and whether it keeps old values of C.

    `shapes` are the shapes of the blocks that it writes. `tables` has an entry for each shape that the last stage changes, too: whether its
    map becomes a table, without sums that forms share. `parts` are independent parts that may need more registers than a thread has.
    """

    moved: int
    keeps: bool
    shapes: frozenset[str]
    tables: Mapping[str, bool]
    parts: tuple[BlockMap, ...] = ()


EMPTY = GroupLayer(NOTHING, {})


class LinearRun:
    """Neighbouring linear stages of a schedule: positions `begin` to `end`, `end` excluded.

    `last_read` is the position of the last stage that reads a block. Stages consist of groups of maps, many of them equal. To weigh a pass,
    one group of each kind is composed; the whole is composed only if the pass is chosen.
    """

    def __init__(self, schedule: Schedule, begin: int, end: int, thread: Thread, last_read: Mapping[Block, int]) -> None:
        self.schedule, self.begin, self.end, self.thread, self.last_read = schedule, begin, end, thread, last_read
        self.shape_of = {space.name: space.shape for space in schedule.spaces}
        self.held = {space.name for space in schedule.operands}
        self.elements = {"A": schedule.n, "B": schedule.m, "C": schedule.k}  # of a block, in units that hold for all shapes
        self.limits = dict.fromkeys(range(begin, end), end)
        """For each position the last end of a pass from there that is not known to be too large."""
        self.known: dict[LinearMap, int] = {}
        self.weighed = cache(self._weighed)
        self.cheapest = cache(self._cheapest)
        self.layers = cache(self._layers)
        self.composed = cache(self._composed_group)
        self.finished = cache(self._finished_group)

    def kind(self, known: dict[LinearMap, int]) -> tuple[Hashable, tuple[Block, ...]]:
        """What determines the passes apart from the names of blocks, and the blocks. Each of the `known` maps stands as its number."""
        names: dict[Block, int] = {}
        stages = []
        for position in range(self.begin, self.end):
            stage = self._stage(position)
            maps = [
                (
                    known.setdefault(m.map, len(known)),
                    tuple([names.setdefault(block, len(names)) for block in m.sources + m.targets]),
                    m.kept,
                )
                for m in stage.maps
            ]
            stages.append((stage.restores, *maps))
        return (*stages, *[(self.shape_of[block.space], self._fate(block)) for block in names]), tuple(names)

    def _fate(self, block: Block) -> int:
        """-1 if a block is an operand's, which the caller reads; else the position of its last reader in the run, or the run's end."""
        if block.space in self.held:
            return -1
        return min(max(self.last_read.get(block, -1), self.begin), self.end) - self.begin

    def passes(self) -> tuple[LinearStage, ...]:
        """The passes that move the fewest elements, without those that write nothing; a run that is kept is not searched again."""
        ends = kept_ends(self.digest()) if self.end - self.begin >= LONG else ()
        whole = self.begin, self.end
        is_one = not ends and self.weighed(*whole) is not None and self._is_held(*whole)
        cuts = self.between(ends) if ends else [whole] if is_one else self.searched()
        return tuple(stage for begin, end in cuts if (stage := self._fused(begin, end)).maps)

    def between(self, ends: Sequence[int]) -> list[tuple[int, int]]:
        """The begin and the end of each pass, from their ends counted from the run's begin."""
        return list(pairwise((self.begin, *(self.begin + end for end in ends))))

    def searched(self) -> list[tuple[int, int]]:
        """The begin and end of each of the cheapest passes; only passes that would be chosen are ordered, which takes long."""
        while True:
            cuts = self.between([end - self.begin for end in self.cheapest(self.begin)[2]])
            too_large = [cut for cut in cuts if not self._is_held(*cut)]
            if not too_large:
                return cuts
            self.limits |= {begin: end - 1 for begin, end in too_large}
            self.cheapest.cache_clear()

    def digest(self) -> str:
        """The hash of everything that determines the passes up to the names of blocks."""
        maps: dict[LinearMap, int] = {}
        kind, _ = self.kind(maps)
        tables = [(linear.inputs, linear.outputs, linear.steps) for linear in maps]
        facts = kind, tables, self.elements, self.thread.most_live, self.thread.most_work
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:24]

    def _is_held(self, begin: int, end: int) -> bool:
        """True if a thread holds the values of a pass that is known to be possible otherwise."""
        weighed = self.weighed(begin, end)
        assert weighed is not None
        return all(holds_at_most(part.map, own_inputs(part), self.thread.most_live) for part in weighed.parts)

    def _cheapest(self, begin: int) -> tuple[int, int, tuple[int, ...]]:
        """The cheapest way to cut from a position on: elements moved, number of passes, and the end of each."""
        if begin == self.end:
            return 0, 0, ()
        best: tuple[int, int, tuple[int, ...]] | None = None
        for end in range(self.limits[begin], begin, -1):
            weighed = self.weighed(begin, end)
            if weighed is None:
                continue
            moved, count, rest = self.cheapest(end)
            found = (moved + weighed.moved, count + 1, (end, *rest))
            if best is None or found[:2] < best[:2]:
                best = found
            if end == self.end:  # one pass never moves more than the passes of a cut
                break
        assert best is not None  # a single stage always is a pass
        return best

    def _weighed(self, begin: int, end: int) -> _Pass | None:
        """The stages as one pass; None if that would be impossible, or too much work for a thread."""
        if end == begin + 1:
            maps = self._uncrossed(begin).maps
            return _Pass(sum(map(self._moved, maps)), _keeps(maps), frozenset(map(self._shape, maps)), {})
        before = self.weighed(begin, end - 1)
        if before is None or (before.keeps and _keeps(self._stage(end - 1).maps)) or self._waits(begin, end):
            return None
        moved, keeps, shapes, tables, large = 0, False, set(), {}, []
        for shape in sorted({shape for stage in range(begin, end) for shape in self.layers(stage)}):
            groups = self._composed_groups(begin, end, shape)
            if groups is None:  # no form says that an old value is kept
                return None
            if self._joins(shape, begin, end):
                most = sum(count * whole.map.additions for whole, count in groups)
                for whole, count in groups:
                    most -= count * whole.map.additions_of_table(most // count) if most >= 0 else 0
                tables[shape] = most >= 0  # as tables these maps need no more additions
            for group, count in groups:
                whole = self._finished(group, end, tables.get(shape))
                parts = components(whole)
                if any(_work(part) > self.thread.most_work for part in parts):
                    return None
                large += [part for part in parts if len(part.sources) + len(part.map.steps) >= self.thread.most_live]
                if whole.targets:
                    moved, keeps = moved + count * self._moved(whole), keeps or _keeps([whole])
                    shapes.add(shape)
        return _Pass(moved, keeps, frozenset(shapes), tables, tuple(sorted(large, key=_work, reverse=True)))  # the least likely first

    def _composed_groups(self, begin: int, end: int, shape: str) -> list[tuple[BlockMap, int]] | None:
        """One of each kind of group, and their number; None if the last stage reads a block whose old value is kept."""

        def state(block: Block) -> int:
            return -1 if block.space in self.held else min(max(self.last_read.get(block, -1), begin), end)

        found = []
        for members, count in equal_groups([self._layer(stage, shape) for stage in range(begin, end)], state):
            before, last = self.finished(shape, begin, members[:-1]), self._layer(end - 1, shape).together(members[-1])
            if not {t for t, factor in zip(before.targets, before.kept, strict=True) if factor}.isdisjoint(last.sources):
                return None
            found.append((self.composed(shape, begin, members), count))
        return found

    def _composed_group(self, shape: str, begin: int, members: Members) -> BlockMap:
        before, end = self.finished(shape, begin, members[:-1]), begin + len(members)
        last = self._layer(end - 1, shape).together(members[-1])
        return then(before, last) if self._joins(shape, begin, end) else last if last.targets else before

    def _finished_group(self, shape: str, begin: int, members: Members) -> BlockMap:
        """The maps of a group as one, as the pass runs it. The pass must be possible."""
        end = begin + len(members)
        if end == begin + 1:
            return self._layer(begin, shape).together(members[0])
        weighed = self.weighed(begin, end)
        assert weighed is not None
        return self._finished(self.composed(shape, begin, members), end, weighed.tables.get(shape))

    def _joins(self, shape: str, begin: int, end: int) -> bool:
        """True if both the last stage of a pass and those before it write blocks of a shape."""
        before = self.weighed(begin, end - 1)
        return before is not None and shape in before.shapes and shape in self.layers(end - 1)

    def _fused(self, begin: int, end: int) -> LinearStage:
        """The stages as one; the pass must be possible. A single stage keeps its maps unless one reads what another writes."""
        fused = self._uncrossed(begin)
        for last in range(begin + 2, end + 1):
            second = self._stage(last - 1)
            before, after = self._by_shape(fused.maps), self._by_shape(second.maps)
            weighed = self.weighed(begin, last)
            assert weighed is not None  # longer passes are weighed after shorter ones
            wholes = {s: then(before[s], after[s]) if s in weighed.tables else (before | after)[s] for s in before | after}
            maps = [self._finished(whole, last, weighed.tables.get(s)) for s, whole in wholes.items()]
            fused = LinearStage(tuple(m for m in maps if m.targets), fused.restores and second.restores)
        return fused

    def _finished(self, whole: BlockMap, end: int, table: bool | None) -> BlockMap:
        """A map without targets that nobody reads. `table` says whether a composed map becomes a table; None for one stage's."""
        if table and whole.map.steps:
            whole = replace(whole, map=LinearMap(whole.map.inputs, whole.map.matrix))
        if table is not None:
            whole = pruned(whole)
        return restrict(whole, {t for t in whole.targets if t.space in self.held or self.last_read.get(t, -1) >= end})

    def _stage(self, position: int) -> LinearStage:
        stage = self.schedule.stages[position]
        assert isinstance(stage, LinearStage)
        return stage

    def _layers(self, position: int) -> dict[str, GroupLayer]:
        return {shape: GroupLayer(whole, self.known) for shape, whole in self._by_shape(self._stage(position).maps).items()}

    def _layer(self, position: int, shape: str) -> GroupLayer:
        return self.layers(position).get(shape, EMPTY)

    def _by_shape(self, maps: Iterable[BlockMap]) -> dict[str, BlockMap]:
        shapes: dict[str, list[BlockMap]] = {}
        for block_map in maps:
            shapes.setdefault(self._shape(block_map), []).append(block_map)
        return {shape: beside(own) for shape, own in shapes.items()}

    def _uncrossed(self, position: int) -> LinearStage:
        """The stage with one map for each shape if a map reads what another one writes: an engine may run maps one after the other."""
        stage = self._stage(position)
        writers = {target: block_map for block_map in stage.maps for target in block_map.targets}
        if all(writers.get(block, block_map) is block_map for block_map in stage.maps for block in block_map.sources):
            return stage
        return replace(stage, maps=tuple(self._by_shape(stage.maps).values()))

    def _waits(self, begin: int, end: int) -> bool:
        """True if a form of the last stage is over blocks of another size that a stage before it changes."""
        written = {
            (shape, t) for stage in range(begin, end - 1) for shape, layer in self.layers(stage).items() for t in layer.whole.targets
        }
        last = self.layers(end - 1)
        others = {shape for shape, _ in written}
        return any((other, b) in written for shape in last for other in others - {shape} for b in last[shape].whole.sources)

    def _shape(self, block_map: BlockMap) -> str:
        return self.shape_of[block_map.targets[0].space]

    def _moved(self, block_map: BlockMap) -> int:
        return (len(block_map.sources) + len(block_map.targets)) * self.elements[self._shape(block_map)]


def _work(part: BlockMap) -> int:
    """The reads, additions and writes of a part."""
    return len(part.sources) + part.map.additions + len(part.targets)


def _keeps(maps: Iterable[BlockMap]) -> bool:
    return any(factor for m in maps for factor in m.kept)


@uncollected
def fuse_linear_stages(schedule: Schedule, thread: Thread = CUDA_THREAD) -> Schedule:
    """The schedule with neighbouring linear stages composed, values that nobody reads dropped, and unread workspaces with them.

    A pass holds no more than a `thread` of its kernel can. Runs that differ by the names of their blocks alone are cut once.
    """
    fused: list[Stage] = []
    last_read = {block: number for number, stage in enumerate(schedule.stages) for block in stage.reads}
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
    names = {block.space for stage in fused for block in (*stage.reads, *(block for block, _ in stage.writes))}
    workspaces = tuple(space for space in schedule.workspaces if space.name in names)
    return replace(schedule, stages=tuple(fused), workspaces=workspaces)
