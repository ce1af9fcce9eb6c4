"""The exact run of a schedule on packed forms, in which each product of blocks is a value of its own.

It gives up on steps that it does not support; the symbolic run then decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

from bilinear.analysis.schedule_run import ScheduleRun, Terms
from bilinear.ir.linear import Form
from bilinear.ir.number import Coefficient
from bilinear.ir.packed import Packed, Packing
from bilinear.ir.schedule import BETA, Block, Product, Schedule, Target
from bilinear.source import Span

Find = Callable[[Packed, Packed], tuple[int, Coefficient]]
"""From two forms, over the blocks of A and of B: the number of their product and its factor."""
NOTHING = Packed(0)


class UndecidedError(Exception):
    """A step that the run does not understand: it need not be wrong."""


class PackedRun(ScheduleRun[Packed]):
    """A schedule running on packed forms. The places are the blocks of A, of B and of C, beta times the blocks of C, and the products.

    A run raises `UndecidedError`, and `TooLongError` if the digits are too short.
    """

    zero = NOTHING

    def __init__(self, schedule: Schedule, packing: Packing, find: Find) -> None:
        self.schedule, self.packing, self.find = schedule, packing, find
        a, b, c = map(schedule.blocks_of, "ABC")
        self.original = {block: packing.unit(place) for place, block in enumerate((*a, *b, *c))}
        *_, self.kept, self.scaled, self.products = accumulate((len(a), len(b), len(c), len(c)))
        self.spans = {"A": (0, len(a)), "B": (len(a), len(a) + len(b))}
        self.state = {block: value for block, value in self.original.items() if schedule.result.beta or block.space not in schedule.results}

    def restored(self) -> tuple[str, ...]:
        """The operands that end as they began."""

        def is_kept(block: Block) -> bool:
            return self.packing.equal(self.state[block], self.original[block])

        return tuple(name for name in self.spans if all(map(is_kept, self.schedule.blocks_of(name))))

    def result(self, block: Block) -> Packed:
        """The products in a block of C, numbered from 0; the rest must be beta times its old value."""
        value = self.read(block, None)
        if self.schedule.result.beta:
            value = self.packing.sum([(value, 1), (self._times_beta(self.original[block]), -1)])
        return self._cut(value, self.products, None)

    def product(self, product: Product) -> Packed:
        """A product of the scheme, by its number and its factor."""
        left, right = self._operand(product.left, "A"), self._operand(product.right, "B")
        if not (left and right):
            return NOTHING
        number, factor = self.find(left, right)
        return self.sum(((0, factor),), [self.packing.unit(self.products + number)])

    def _operand(self, block: Block, side: str) -> Packed:
        return self._cut(self.read(block, None), *self.spans[side])

    def target(self, value: Packed, target: Target, terms: Terms[Packed], span: Span | None) -> Packed:
        """A product with its coefficient, beside what the target keeps."""
        value = self.sum(((0, target.coefficient),), [value])
        return self.plus(value, target.block, target.kept, span) if target.kept else value

    def plus(self, value: Packed, block: Block, kept: Coefficient, span: Span | None) -> Packed:
        """A value plus the part of its old value that the block keeps: all, or beta times it."""
        old = self.read(block, span)
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

    def read(self, block: Block, span: Span | None) -> Packed:
        """The value of a block, which must have one."""
        if block not in self.state:
            raise UndecidedError
        return self.state[block]

    def sum(self, form: Form, values: Sequence[Packed]) -> Packed:
        """A form over packed forms."""
        try:
            return self.packing.sum([(values[i], c) for i, c in form])
        except ValueError as error:  # a coefficient of another ring
            raise UndecidedError from error
