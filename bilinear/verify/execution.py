"""Exact execution of a schedule on small blocks of numbers, to confirm counterexamples."""

from __future__ import annotations

from collections.abc import Iterable

from bilinear.ir.number import Coefficient
from bilinear.ir.schedule import AnySchedule, Block, BlockMap, LinearStage, ProductStage, ScaledSchedule
from bilinear.verify.elements import Number
from bilinear.verify.small import Small
from bilinear.verify.symbols import Symbols

State = dict[Block, Small]


class Execution:
    """A schedule with given alpha and beta, elements of the domain; a block that is read before it has a value counts as 0."""

    def __init__(self, schedule: AnySchedule, symbols: Symbols, alpha: Number, beta: Number, zero: Small) -> None:
        self.schedule = schedule
        self.symbols = symbols
        self.alpha, self.beta = alpha, beta
        self.implied = symbols.domain.one if isinstance(schedule, ScaledSchedule) else alpha
        self.zero = zero

    def run(self, state: State) -> State:
        """The final state of all blocks."""
        now = dict(state)
        for stage in self.schedule.stages:
            before = dict(now)
            if isinstance(stage, LinearStage):
                for block_map in stage.maps:
                    self._linear(block_map, before, now)
            else:
                self._products(stage, before, now)
        return now

    def _scalar(self, value: Coefficient) -> Number:
        scalar = self.symbols.scalar(value)
        number: Number = self.symbols.domain.zero if hasattr(scalar, "ring") else scalar
        terms = scalar.items() if hasattr(scalar, "ring") else ()
        return sum((c * self.alpha ** word[0] * self.beta ** word[1] for word, c in terms), number)

    def _sum(self, terms: Iterable[tuple[Block, Coefficient]], state: State) -> Small:
        return sum((state.get(block, self.zero).scaled(self._scalar(c)) for block, c in terms), self.zero)

    def _linear(self, block_map: BlockMap, before: State, now: State) -> None:
        for target, row, kept in zip(block_map.targets, block_map.map.matrix, block_map.kept, strict=True):
            now[target] = self._sum([*((block_map.sources[i], c) for i, c in row), (target, kept)], before)

    def _products(self, stage: ProductStage, before: State, now: State) -> None:
        for product in stage.products:
            value = before.get(product.left, self.zero) * before.get(product.right, self.zero)
            for target in product.targets:
                block, added = target.block, value.scaled(self._scalar(target.coefficient))
                kept = self._sum([(block, target.kept)], now)
                now[block] = kept + self._sum(target.plus, before) + added.scaled(self.implied)
