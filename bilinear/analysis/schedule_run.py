"""One walk over the stages of a schedule, in any domain: symbols, packed integers, rounding errors, sizes of integers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from bilinear.ir.linear import Form
from bilinear.ir.number import Coefficient
from bilinear.ir.schedule import AnySchedule, Block, BlockMap, LinearStage, Product, Target
from bilinear.source import Span

V = TypeVar("V")
Terms = Sequence[tuple[V, Coefficient]]


class ScheduleRun(ABC, Generic[V]):
    """The value of every block while a schedule runs.

    A subclass is the domain of the values: `zero`, sums with coefficients, and products. All maps of a stage, and all its products, read
    the values from before it.
    """

    zero: V
    state: dict[Block, V]

    @abstractmethod
    def sum(self, form: Form, values: Sequence[V]) -> V:
        """A linear form over values."""

    @abstractmethod
    def product(self, product: Product) -> V:
        """A product of two blocks."""

    @abstractmethod
    def plus(self, value: V, block: Block, kept: Coefficient, span: Span | None) -> V:
        """What a map writes to a block, if the block keeps its old value times `kept`, which is not 0."""

    @abstractmethod
    def target(self, value: V, target: Target, terms: Terms[V], span: Span | None) -> V:
        """What a product writes to a target; `terms` are the blocks that are added to it."""

    def output(self, form: Form, values: Sequence[V], sources: int) -> V:
        """An output of a map; the values behind the `sources` are shared sums."""
        return self.sum(form, values)

    def read(self, block: Block, span: Span | None) -> V:
        """The value of a block."""
        return self.state[block]

    def run(self, schedule: AnySchedule) -> None:
        """Run all stages."""
        for stage in schedule.stages:
            if isinstance(stage, LinearStage):
                self.run_maps(stage.maps)
            else:
                self.run_products(stage.products)

    def run_maps(self, maps: Sequence[BlockMap]) -> dict[Block, V]:
        """Run one linear stage; returns what it writes."""
        updates: dict[Block, V] = {}
        for m in maps:
            spans = m.spans or (None,) * len(m.targets)
            values = self._sources(m, spans[0])
            for step in m.map.steps:
                values.append(self.sum(step, values))
            for target, form, kept, span in zip(m.targets, m.map.outputs, m.kept, spans, strict=True):
                value = self.output(form, values, len(m.sources))
                updates[target] = self.plus(value, target, kept, span) if kept else value
        self.state.update(updates)
        return updates

    def run_products(self, products: Sequence[Product]) -> None:
        """Run one product stage; targets are updated one after the other."""
        values = [self.product(p) for p in products]
        writes = [(target, value, p.span) for p, value in zip(products, values, strict=True) for target in p.targets]
        plus = [[(self.read(block, span), c) for block, c in target.plus] for target, _, span in writes]
        for (target, value, span), terms in zip(writes, plus, strict=True):
            self.state[target.block] = self.target(value, target, terms, span)

    def _sources(self, m: BlockMap, span: Span | None) -> list[V]:
        """The values of a map's sources; one that no form uses need not have any."""
        if all(block in self.state for block in m.sources):
            return [self.state[block] for block in m.sources]
        used = {index for form in m.map.steps + m.map.outputs for index, _ in form}
        return [self.read(block, span) if i in used or block in self.state else self.zero for i, block in enumerate(m.sources)]
