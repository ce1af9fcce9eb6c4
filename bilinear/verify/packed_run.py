"""The exact run of a schedule on packed forms, in which each product of blocks is a value of its own.

It gives up on steps that it does not support; the symbolic run then decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

from bilinear.ir.linear import Form
from bilinear.ir.number import Coefficient
from bilinear.ir.packed import Packed, Packing
from bilinear.ir.schedule import BETA, Block, BlockMap, LinearStage, ProductStage, Schedule

Find = Callable[[Packed, Packed], tuple[int, Coefficient]]
"""From two forms, over the blocks of A and of B: the number of their product and its factor."""
NOTHING = Packed(0)


class UndecidedError(Exception):
    """A step that the run does not understand: it need not be wrong."""


class PackedRun:
    """A schedule running on packed forms. The places are the blocks of A, of B and of C, beta times the blocks of C, and the products."""

    def __init__(self, schedule: Schedule, packing: Packing, find: Find) -> None:
        self.schedule, self.packing, self.find = schedule, packing, find
        a, b, c = map(schedule.blocks_of, "ABC")
        self.original = {block: packing.unit(place) for place, block in enumerate((*a, *b, *c))}
        *_, self.kept, self.scaled, self.products = accumulate((len(a), len(b), len(c), len(c)))
        self.spans = {"A": (0, len(a)), "B": (len(a), len(a) + len(b))}
        self.state = {block: value for block, value in self.original.items() if schedule.result.beta or block.space not in schedule.results}

    def run(self) -> None:
        """Run all stages. Raises `UndecidedError`, and `TooLongError` if the digits are too short."""
        for stage in self.schedule.stages:
            if isinstance(stage, LinearStage):
                self._linear(stage)
            else:
                self._multiply(stage)

    def restored(self) -> tuple[str, ...]:
        """The operands that end as they began."""

        def is_kept(block: Block) -> bool:
            return self.packing.equal(self.state[block], self.original[block])

        return tuple(name for name in self.spans if all(map(is_kept, self.schedule.blocks_of(name))))

    def result(self, block: Block) -> Packed:
        """The products in a block of C, numbered from 0; the rest must be beta times its old value."""
        value = self._read(block)
        if self.schedule.result.beta:
            value = self.packing.sum([(value, 1), (self._times_beta(self.original[block]), -1)])
        return self._cut(value, self.products, None)

    def _linear(self, stage: LinearStage) -> None:
        updates: dict[Block, Packed] = {}
        for block_map in stage.maps:
            values = self._sources(block_map)
            for step in block_map.map.steps:
                values.append(self._sum(step, values))
            for target, output, kept in zip(block_map.targets, block_map.map.outputs, block_map.kept, strict=True):
                updates[target] = self._added(self._sum(output, values), target, kept)
        self.state.update(updates)

    def _sources(self, block_map: BlockMap) -> list[Packed]:
        """The values of a map's sources; one that no form uses need not have any."""
        if all(block in self.state for block in block_map.sources):
            return [self.state[block] for block in block_map.sources]
        used = {index for form in block_map.map.steps + block_map.map.outputs for index, _ in form}
        return [self._read(block) if i in used else NOTHING for i, block in enumerate(block_map.sources)]

    def _multiply(self, stage: ProductStage) -> None:
        values = [self._product(self._operand(p.left, "A"), self._operand(p.right, "B")) for p in stage.products]
        for p, value in zip(stage.products, values, strict=True):
            for target in p.targets:
                self.state[target.block] = self._added(self._sum(((0, target.coefficient),), [value]), target.block, target.kept)

    def _product(self, left: Packed, right: Packed) -> Packed:
        if not (left and right):
            return NOTHING
        number, factor = self.find(left, right)
        return self._sum(((0, factor),), [self.packing.unit(self.products + number)])

    def _operand(self, block: Block, side: str) -> Packed:
        return self._cut(self._read(block), *self.spans[side])

    def _added(self, value: Packed, block: Block, kept: Coefficient) -> Packed:
        """A value plus the part of its old value that the block keeps: nothing, all, or beta times it."""
        if not kept:
            return value
        old = self._read(block)
        if kept == BETA:
            old = self._times_beta(old)
        elif kept != 1:
            raise UndecidedError
        return self.packing.sum([(old, 1), (value, 1)])

    def _times_beta(self, value: Packed) -> Packed:
        """A form over the old blocks of C, times beta."""
        return self.packing.moved(self._cut(value, self.kept, self.scaled), self.scaled)

    def _cut(self, value: Packed, first: int, end: int | None) -> Packed:
        """A form over the places from `first` to `end` (excluded), numbered from 0."""
        if not self.packing.lies_in(value, first, end):
            raise UndecidedError
        return self.packing.moved(value, -first)

    def _read(self, block: Block) -> Packed:
        if block not in self.state:
            raise UndecidedError
        return self.state[block]

    def _sum(self, form: Form, values: Sequence[Packed]) -> Packed:
        try:
            return self.packing.sum([(values[i], c) for i, c in form])
        except ValueError as error:  # a coefficient of another ring
            raise UndecidedError from error
