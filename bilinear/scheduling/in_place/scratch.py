"""C as scratch: if C is overwritten (beta = 0), its blocks may hold sums of A or B until their first product is written.

The order of the stages determines which blocks are free, and for how long. A block is lent to one operand for that whole time and serves as
a temporary; the cheapest way to share the blocks out is taken. The forms of a stage then need not be independent: as many may depend on the
others as there are free blocks for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bilinear.errors import fail
from bilinear.scheduling.in_place.partitions import Effort, StageSearch, WalkedPartition
from bilinear.scheduling.in_place.stages import Partition, Side
from bilinear.scheduling.in_place.walks import Walk

Shares = tuple[tuple[int, ...], ...]
"""For each operand the blocks of C lent to it, those free longest first."""


class ScratchSearch(StageSearch):
    """The search that uses the `blocks` blocks of C as temporaries until a product is written there.

    `fits` says for each operand whether its sums may stand in a block of C.
    """

    def __init__(
        self, sides: Sequence[Side], outputs: Sequence[frozenset[int]], restores: bool, seed: int, fits: Sequence[bool], blocks: int
    ) -> None:
        super().__init__(sides, outputs, restores, seed)
        self.fits, self.blocks = tuple(fits), blocks
        most = max(1, blocks - min(map(len, outputs)))
        self.fewest = max(side.fewest_with(most * fit) for side, fit in zip(sides, fits, strict=True))

    def _first_partitions(self, number: int, effort: Effort) -> list[Partition]:
        """Orders filled at random, of these the ones without scratch if there are any, and of these the ones with the fewest stages.

        If an operand is kept there may be none (E559).
        """
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
        known: dict[tuple[Side, tuple[int, ...]], Walk] = {}
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
        yield self._by_need(free, ends, missing)

    def _by_need(self, free: list[int], ends: list[int], missing: list[list[int]]) -> Shares:
        """Give every block to the operand that lacks one in the latest stage that the block can serve."""
        left = [list(needs) for needs in missing]
        shares: list[list[int]] = [[], []]
        for block in free:
            served = range(ends[block])
            side = max((0, 1), key=lambda i: ([left[i][stage] for stage in reversed(served)], -len(shares[i])))
            shares[side].append(block)
            for stage in served:
                left[side][stage] -= left[side][stage] > 0
        return tuple(map(tuple, shares))

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
