"""Search over ordered partitions of a scheme's products into stages: simulated annealing, evaluated by walks on every operand."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bilinear.scheduling.in_place.stages import Independence, OperandSide, Partition, find_partition
from bilinear.scheduling.in_place.walks import OperandWalk, SumSearch


@dataclass(frozen=True)
class StageProgress:
    """The state of a search: steps done and planned, and the best so far (product stages, block additions, blocks moved).

    `fewest` is a lower bound on the product stages.
    """

    steps: int
    planned: int
    stages: int
    fewest: int
    additions: int
    traffic: int

    def __str__(self) -> str:
        proved = "no fewer are possible" if self.stages == self.fewest else f"at least {self.fewest} are needed"
        return (
            f"{self.steps}/{self.planned} steps: {self.stages} product stages ({proved}),"
            f" {self.additions} additions, {self.traffic} blocks moved"
        )


@dataclass(frozen=True)
class StageEffort:
    """How long to search: greedy walks evaluate the `candidates`, beams of this `width` the best `finalists`.

    A `deadline`, a value of `time.monotonic`, ends it early.
    """

    candidates: int
    finalists: int = 4
    width: int = 32
    deadline: float = math.inf

    def is_over(self) -> bool:
        """True after the deadline."""
        return time.monotonic() > self.deadline


@dataclass(frozen=True)
class WalkedPartition:
    """An ordered partition and its walks; `colours` counts the contention-free parts of its stages.

    `lent` lists for each walk the blocks of C that it uses as further temporaries, if the search lends any.
    """

    order: Partition
    walks: tuple[OperandWalk, ...]
    colours: int
    lent: tuple[tuple[int, ...], ...] = ()

    @property
    def additions(self) -> int:
        """Block additions of all walks."""
        return sum(walk.additions for walk in self.walks)

    @property
    def traffic(self) -> int:
        """Blocks read and written by all walks."""
        return sum(walk.traffic for walk in self.walks)

    @property
    def cost(self) -> float:
        """Additions, then traffic, then colours."""
        return self.additions + self.traffic / 1e4 + self.colours / 1e8


class StageSearch:
    """Simulated annealing over the ordered partitions of a scheme's products.

    `outputs` lists for each product the blocks of C that it is added to. A group holds at most `largest` products. A `backwards` side runs
    through the stages from last to first.
    """

    def __init__(
        self, sides: Sequence[OperandSide], outputs: Sequence[frozenset[int]], restores: bool, seed: int, largest: int | None = None
    ) -> None:
        self.sides, self.outputs, self.restores = sides, outputs, restores
        self.products = len(outputs)
        self.largest = largest or self.products
        self.generator = random.Random(seed)
        self.independence = Independence(sides)
        self.fewest = max(-(-self.products // self.largest), *(side.fewest_stages for side in sides))
        self.weighed: dict[Partition, WalkedPartition] = {}
        self.steps = 0

    def run(self, effort: StageEffort, progress: Callable[[StageProgress], None]) -> WalkedPartition:
        """The best candidate found."""
        best = self._anneal(effort, progress)
        finalists = sorted(self.weighed.values(), key=lambda c: c.cost)[: effort.finalists]
        for finalist in finalists:
            candidate = finalist
            for discount in (0.0, 0.1, 0.25):
                if effort.is_over():
                    break
                candidate = _mixed((candidate, self._weigh(candidate.order, effort.width, discount)))
            best = min(best, candidate, key=lambda c: c.cost)
            progress(self._progress(self.steps, effort, best))
        progress(self._progress(self.steps, effort, best))
        return best

    def _anneal(self, effort: StageEffort, progress: Callable[[StageProgress], None]) -> WalkedPartition:
        starts = dict.fromkeys(self._first_partitions(max(4, effort.candidates // 10), effort))
        current = best = min(map(self._greedy, starts), key=lambda c: c.cost)
        for step in range(effort.candidates):
            if effort.is_over():
                break
            heat = 1.5 * (1 - step / effort.candidates)
            candidate = self._greedy(self._neighbour(current.order))
            if candidate.cost <= current.cost - heat * math.log(1 - self.generator.random()):
                current = candidate
            best = min(best, candidate, key=lambda c: c.cost)
            self.steps = step + 1
            if self.steps % 10 == 0:
                progress(self._progress(self.steps, effort, best))
        return best

    def _progress(self, steps: int, effort: StageEffort, best: WalkedPartition) -> StageProgress:
        return StageProgress(steps, effort.candidates, len(best.order), self.fewest, best.additions, best.traffic)

    def _first_partitions(self, number: int, effort: StageEffort) -> list[Partition]:
        """Partitions into the fewest stages found, with several tries for each number; at least one, even after the deadline."""
        stages = self.fewest
        while True:
            found = [p for _ in range(3) if (p := self._partition(stages, 40 * self.products)) is not None]
            if found:
                more = (self._partition(stages, 10 * self.products) for _ in range(number) if not effort.is_over())
                return found + [p for p in more if p is not None]
            stages += 1

    def _partition(self, stages: int, tries: int) -> Partition | None:
        if self.largest == 1:
            return tuple(frozenset({p}) for p in self.generator.sample(range(self.products), self.products))
        return find_partition(self.independence, self.products, stages, self.generator, tries)

    def _neighbour(self, order: Partition) -> Partition:
        """A neighbour with the same number of stages.

        Two stages exchanged, one stage moved, two products exchanged, or one product moved.
        """
        groups = list(order)
        if len(groups) < 2:
            return order
        for _ in range(200):
            g, h = self.generator.sample(range(len(groups)), 2)
            choice = self.generator.random()
            if choice < 0.2:
                if choice < 0.1:
                    groups[g], groups[h] = groups[h], groups[g]
                else:
                    groups.insert(h, groups.pop(g))
                if self._allows(tuple(groups)):
                    return tuple(groups)
                groups = list(order)
                continue
            moved = {self.generator.choice(sorted(groups[g]))}
            back = {self.generator.choice(sorted(groups[h]))} if choice < 0.6 else set()
            changed = dict(enumerate(groups)) | {g: groups[g] - moved | back, h: groups[h] - back | moved}
            if self._allows(tuple(changed.values())):
                return tuple(changed.values())
        return order

    def _allows(self, order: Partition) -> bool:
        """True if every stage can hold the forms of its products."""
        return all(group and len(group) <= self.largest and self.independence.holds(group) for group in order)

    def _greedy(self, order: Partition) -> WalkedPartition:
        if order not in self.weighed:
            self.weighed[order] = self._weigh(order, 1, 0.15)
        return self.weighed[order]

    def _weigh(self, order: Partition, width: int, discount: float) -> WalkedPartition:
        walks = tuple(self._walk(side, order, width, discount) for side in self.sides)
        return WalkedPartition(order, walks, sum(map(self._colours, order)))

    def _walk(self, side: OperandSide, order: Partition, width: int, discount: float, lent: Sequence[int] = ()) -> OperandWalk:
        groups = [[side.forms[p] for p in sorted(group)] for group in order]
        return SumSearch(side, groups[::-1] if side.backwards else groups, self.restores, width, discount, lent).run()

    def _colours(self, group: frozenset[int]) -> int:
        """The number of contention-free parts that `colour_products` splits a stage into."""
        parts: list[set[int]] = []
        for number in sorted(group, key=lambda p: (-len(self.outputs[p]), p)):
            part = next((part for part in parts if not part & self.outputs[number]), None)
            if part is None:
                parts.append(set(self.outputs[number]))
            else:
                part |= self.outputs[number]
        return len(parts)


def _mixed(candidates: tuple[WalkedPartition, WalkedPartition]) -> WalkedPartition:
    """Combine two candidates of one order.

    The better walk for each operand, or the better candidate if they lend blocks of C differently.
    """
    one, other = candidates
    if one.lent != other.lent:
        return min(candidates, key=lambda c: c.cost)
    pairs = zip(one.walks, other.walks, strict=True)
    return WalkedPartition(one.order, tuple(min(pair, key=lambda w: (w.additions, w.traffic)) for pair in pairs), one.colours, one.lent)
