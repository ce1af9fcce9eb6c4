"""Search for the product stages of an in-place schedule: an ordered partition of a scheme's products, evaluated by walks on every operand.

The left forms of a group must be independent, and the right ones too, so a group is independent in two linear matroids at once. Ejection
chains search for a partition into the fewest groups: a product that fits nowhere displaces the products in its way. Simulated annealing
searches from there. Ranks are taken modulo a prime. Forms that are independent there are independent over the rationals, so every partition
found is valid; at worst the search misses the lower bound.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bilinear.errors import fail
from bilinear.scheduling.in_place.walks import OperandSide, OperandWalk, SumSearch

Partition = tuple[frozenset[int], ...]


class Independence:
    """Decides which sets of products are independent on every side, and remembers the answers."""

    def __init__(self, sides: Sequence[OperandSide | OutputSide]) -> None:
        self.sides = sides
        self.known: dict[frozenset[int], tuple[int, ...]] = {}

    def needs(self, group: frozenset[int]) -> tuple[int, ...]:
        """For each side, the temporaries that the forms of these products need in order to stand at once."""
        if group not in self.known:
            self.known[group] = tuple(side.needs(sorted(group)) for side in self.sides)
        return self.known[group]

    def holds(self, group: frozenset[int]) -> bool:
        """True if a stage can hold the forms of these products."""
        return all(number <= side.spare for number, side in zip(self.needs(group), self.sides, strict=True))

    def in_the_way(self, product: int, group: frozenset[int]) -> Iterator[frozenset[int]]:
        """The products to remove from a group so that a product fits: none, one or two."""
        if self.holds(group | {product}):
            yield frozenset()
            return
        singles = [q for q in sorted(group) if self.holds(group - {q} | {product})]
        yield from (frozenset({q}) for q in singles)
        if singles:
            return
        ordered = sorted(group)
        for i, q in enumerate(ordered):
            for other in ordered[:i]:
                if self.holds(group - {q, other} | {product}):
                    yield frozenset({q, other})


def find_partition(independence: Independence, products: int, stages: int, generator: random.Random, tries: int) -> Partition | None:
    """The products in this many groups; None if `tries` ejections find no such partition."""
    groups = [frozenset[int]()] * stages
    waiting = list(range(products))
    generator.shuffle(waiting)
    last_moved = [0] * products
    for turn in range(1, tries + products):
        if not waiting:
            return tuple(groups)
        product = waiting.pop()
        choices = [(out, g) for g, group in enumerate(groups) for out in independence.in_the_way(product, group)]
        if not choices:
            return None
        free = [choice for choice in choices if not choice[0]]
        if free:
            out, place = generator.choice(free)
        else:
            out, place = min(choices, key=lambda c: (sum(1 + 2 * (last_moved[q] > turn - products // 3) for q in c[0]), generator.random()))
        groups[place] = groups[place] - out | {product}
        last_moved[product] = turn
        waiting[:0] = sorted(out)
    return None


@dataclass(frozen=True)
class StageProgress:
    """The state of a search: steps done and planned, and the best so far (product stages, their launches, block additions, blocks moved).

    `fewest` is a lower bound on the product stages, `least` one on their launches.
    """

    steps: int
    planned: int
    stages: int
    fewest: int
    additions: int
    traffic: int
    launches: int
    least: int

    def __str__(self) -> str:
        return f"{self.steps}/{self.planned} steps: {self.costs}"

    @property
    def costs(self) -> str:
        """The best so far, and what is proved of it."""
        return (
            f"{self.stages} product stages ({_proved(self.stages, self.fewest)}), {self.launches} launches of products"
            f" ({_proved(self.launches, self.least)}), {self.additions} additions, {self.traffic} blocks moved"
        )


def _proved(number: int, least: int) -> str:
    return "no fewer are possible" if number == least else f"at least {least} are needed"


@dataclass(frozen=True)
class StageEffort:
    """How long to search: walks of the `candidates`, beams of a `width` for the `finalists`, until a monotonic `deadline`."""

    candidates: int
    finalists: int = 4
    width: int = 32
    deadline: float = math.inf

    def is_over(self) -> bool:
        """True after the deadline."""
        return time.monotonic() > self.deadline


@dataclass(frozen=True)
class WalkedPartition:
    """An ordered partition, its walks, contention-free parts, and for each walk the blocks of C `lent` as temporaries."""

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


@dataclass(frozen=True)
class OutputSide:
    """The blocks of C that each product is added to, as a third side: no two products of a launch add to one block."""

    outputs: Sequence[frozenset[int]]
    spare: int = 0

    def needs(self, group: Sequence[int]) -> int:
        """How often these products add to a block that another of them adds to."""
        return sum(len(self.outputs[p]) for p in group) - len(frozenset[int]().union(*(self.outputs[p] for p in group)))

    @property
    def fewest_launches(self) -> int:
        """A lower bound on the launches: the products that are added to one block need as many."""
        return max(Counter(block for blocks in self.outputs for block in blocks).values())


class StageSearch:
    """Simulated annealing over the ordered partitions of a scheme's products.

    `outputs` lists for each product the blocks of C that it is added to. With `few_launches` all partitions have as few contention-free
    parts as are found.
    """

    def __init__(
        self, sides: Sequence[OperandSide], outputs: Sequence[frozenset[int]], restores: bool, seed: int, few_launches: bool = False
    ) -> None:
        self.sides, self.outputs, self.restores = sides, outputs, restores
        self.products = len(outputs)
        self.generator = random.Random(seed)
        self.independence = Independence(sides)
        self.fewest = max(side.fewest_stages for side in sides)
        self.few_launches, self.most_launches = few_launches, len(outputs)
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
        stages = len(best.order)
        return StageProgress(steps, effort.candidates, stages, self.fewest, best.additions, best.traffic, best.colours, self.least)

    @property
    def least(self) -> int:
        """A lower bound on the launches of products: a launch is part of a stage, and adds to a block of C once."""
        return max(self.fewest, OutputSide(self.outputs).fewest_launches)

    def _first_partitions(self, number: int, effort: StageEffort) -> list[Partition]:
        """Partitions into the fewest stages found; with few launches, of those whose launches, joined at random, make the fewest."""
        if not self.few_launches:
            return self._partitions(self.independence, self.fewest, number, effort)
        launches = self._partitions(Independence([*self.sides, OutputSide(self.outputs)]), self.least, number, effort)
        self.most_launches = len(launches[0])
        joined = [order for groups in launches for _ in range(10) if self._allows(order := self._joined(groups))] or launches
        fewest = min(map(len, joined))
        return [order for order in joined if len(order) == fewest]

    def _joined(self, launches: Partition) -> Partition:
        """Launches put, in random order, into the first stage that holds them."""
        stages: list[frozenset[int]] = []
        for launch in self.generator.sample(launches, len(launches)):
            place = next((i for i, stage in enumerate(stages) if self.independence.holds(stage | launch)), len(stages))
            stages[place:] = [launch.union(*stages[place : place + 1]), *stages[place + 1 :]]
        return tuple(stages)

    def _partitions(self, independence: Independence, fewest: int, number: int, effort: StageEffort) -> list[Partition]:
        """Partitions into the fewest groups found, with several tries for each number; at least one, even after the deadline."""

        def found(tries: int) -> Partition | None:
            return find_partition(independence, self.products, fewest, self.generator, tries * self.products)

        while not (first := [p for _ in range(3) if (p := found(40)) is not None]):
            fewest += 1
        more = (found(10) for _ in range(number) if not effort.is_over())
        return first + [p for p in more if p is not None]

    def _neighbour(self, order: Partition) -> Partition:
        """A neighbour with as many stages: two stages or two products exchanged, or one stage or one product moved."""
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
        """True if every stage can hold the forms of its products, and the launches are as few as they should be."""
        return sum(map(self._colours, order)) <= self.most_launches and all(group and self.independence.holds(group) for group in order)

    def _greedy(self, order: Partition) -> WalkedPartition:
        if order not in self.weighed:
            self.weighed[order] = self._weigh(order, 1, 0.15)
        return self.weighed[order]

    def _weigh(self, order: Partition, width: int, discount: float) -> WalkedPartition:
        walks = tuple(self._walk(side, order, width, discount) for side in self.sides)
        return WalkedPartition(order, walks, sum(map(self._colours, order)))

    def _walk(self, side: OperandSide, order: Partition, width: int, discount: float, lent: Sequence[int] = ()) -> OperandWalk:
        groups = [[side.forms[p] for p in sorted(group)] for group in order]
        return SumSearch(side, groups, self.restores, width, discount, lent).run()

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
    """Combine two candidates of one order: for each operand the better walk, or the better one if C is lent differently."""
    one, other = candidates
    if one.lent != other.lent:
        return min(candidates, key=lambda c: c.cost)
    pairs = zip(one.walks, other.walks, strict=True)
    return WalkedPartition(one.order, tuple(min(pair, key=lambda w: (w.additions, w.traffic)) for pair in pairs), one.colours, one.lent)


Shares = tuple[tuple[int, ...], ...]  # For each operand the blocks of C lent to it, those free longest first.


class ScratchSearch(StageSearch):
    """The search that lends `blocks` of C until they are written; `fits` says whether an operand's sums may stand there."""

    def __init__(
        self, sides: Sequence[OperandSide], outputs: Sequence[frozenset[int]], restores: bool, seed: int, fits: Sequence[bool], blocks: int
    ) -> None:
        super().__init__(sides, outputs, restores, seed)
        self.fits, self.blocks = tuple(fits), blocks
        most = max(1, blocks - min(map(len, outputs)))
        self.fewest = max(side.fewest_with(most * fit) for side, fit in zip(sides, fits, strict=True))

    def _first_partitions(self, number: int, effort: StageEffort) -> list[Partition]:
        """Orders filled at random: those without scratch if any, of these the ones with fewest stages; none may be kept (E559)."""
        found = [] if any(side.kept and not side.spare for side in self.sides) else super()._first_partitions(number, effort)
        for _ in range(5 * number):
            if found and effort.is_over():
                break
            filled = self._filled()
            found += [filled] if filled else []
        if not found:
            message = "no order of the products was found in which the free blocks of C hold all sums of the operands that are kept"
            raise fail("E559", message, "allow a temporary")
        fewest = min(map(len, found))
        return [order for order in found if len(order) == fewest]

    def _filled(self) -> Partition:
        """Put the products, in random order, into stages that have room for them; empty if a product fits nowhere."""
        order: Partition = ()
        for product in self.generator.sample(range(self.products), self.products):
            joined = [(*order[:i], group | {product}, *order[i + 1 :]) for i, group in enumerate(order)]
            alone = [(*order[:i], frozenset({product}), *order[i:]) for i in range(len(order) + 1)]
            choices = list(filter(self._allows, joined)) or list(filter(self._allows, alone))
            if not choices:
                return ()
            order = self.generator.choice(choices)
        return order

    def _allows(self, order: Partition) -> bool:
        return all(order) and next(self._shares(order), None) is not None

    def _weigh(self, order: Partition, width: int, discount: float) -> WalkedPartition:
        candidates = []
        known: dict[tuple[OperandSide, tuple[int, ...]], OperandWalk] = {}
        for shares in dict.fromkeys(self._shares(order)):
            lent = tuple(self._capacities(order, share) for share in shares)
            for side, capacity in zip(self.sides, lent, strict=True):
                if (side, capacity) not in known:
                    known[side, capacity] = self._walk(side, order, width, discount, capacity)
            walks = tuple(known[pair] for pair in zip(self.sides, lent, strict=True))
            candidates.append(WalkedPartition(order, walks, sum(map(self._colours, order)), shares))
        return min(candidates, key=lambda c: c.cost)

    def _shares(self, order: Partition) -> Iterator[Shares]:
        """Ways to share the free blocks of C so that every stage has room: all to one operand, in turn, or by need."""
        ends = self._ends(order)
        free = sorted((block for block in range(self.blocks) if ends[block]), key=lambda block: -ends[block])
        needed = zip(*map(self.independence.needs, order), strict=True)
        missing = [[max(0, n - side.spare) for n in needs] for side, needs in zip(self.sides, needed, strict=True)]
        for shares in self._ways(free, ends, missing):
            lent = (self._capacities(order, share) for share in shares)
            if all(n <= room for needs, capacity in zip(missing, lent, strict=True) for n, room in zip(needs, capacity, strict=True)):
                yield shares

    def _ways(self, free: list[int], ends: list[int], missing: list[list[int]]) -> Iterator[Shares]:
        able = [number for number, fit in enumerate(self.fits) if fit]
        for number in able:
            yield tuple(tuple(free if i == number else ()) for i in range(len(self.sides)))
        if len(able) < 2:
            yield ((), ())
            return
        yield tuple(free[0::2]), tuple(free[1::2])
        yield tuple(free[1::2]), tuple(free[0::2])
        left = [list(needs) for needs in missing]
        shares: list[list[int]] = [[], []]
        for block in free:
            served = range(ends[block])
            side = max((0, 1), key=lambda i: ([left[i][stage] for stage in reversed(served)], -len(shares[i])))
            shares[side].append(block)
            for stage in served:
                left[side][stage] -= left[side][stage] > 0
        yield tuple(map(tuple, shares))

    def _ends(self, order: Partition) -> list[int]:
        """For each block of C, the number of stages before its first product."""
        return [
            next((stage for stage, group in enumerate(order) if any(block in self.outputs[p] for p in group)), len(order))
            for block in range(self.blocks)
        ]

    def _capacities(self, order: Partition, share: tuple[int, ...]) -> tuple[int, ...]:
        """The number of these blocks that are free in each stage."""
        ends = self._ends(order)
        return tuple(sum(ends[block] > stage for block in share) for stage in range(len(order)))
