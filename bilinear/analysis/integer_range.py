"""Bounds on the numbers that a schedule forms, to decide when floating point computes with integers exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

from bilinear.ir.linear import Form
from bilinear.ir.number import Coefficient, rational
from bilinear.ir.schedule import Block, BlockMap, LinearStage, Product, Schedule

MOST = 2**62
"""Beyond this, no element type is exact on integers."""
Symbol = Block | int
Content = dict[Symbol, Fraction]
"""The content of a block, as a form over the original blocks of A and B and the products, which are numbered."""


@dataclass(frozen=True)
class IntegerRange:
    """Bounds on all values that a schedule forms from integer input, partial sums included.

    Values formed from A are at most `left` times its largest element, from B `right` times. Sums of products, before alpha, are at most
    `result` times the depth of a block times the largest elements of both. All values are multiples of 1 / `denominator`.
    """

    left: int
    right: int
    result: int
    denominator: int

    def largest(self, size: int, depth: int, rest: int, alpha: int, beta: int) -> int:
        """The largest numerator over `denominator` if no element of A, B and C exceeds `size`.

        `depth` is the inner extent of a block; `rest` is the part of K that a plain product takes.
        """
        products = (depth * self.result + rest) * size * size
        return self.denominator * ((self.left + self.right) * size + max(1, abs(alpha)) * products + abs(beta) * size)

    def size(self, bits: int, depth: int, rest: int, alpha: int, beta: int) -> int:
        """The largest `size` for which a floating-point type with `bits` significant bits is exact; 0 if there is none."""
        if self.denominator & (self.denominator - 1):
            return 0
        low, high = 0, 2**bits
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.largest(middle, depth, rest, alpha, beta) <= 2**bits else (low, middle)
        return low


def integer_range(schedule: Schedule) -> IntegerRange | None:
    """The bounds of a runnable schedule; None if one exceeds `MOST`, for irrational coefficients, and for products of products."""
    run = _Run({block: {block: Fraction(1)} for space in schedule.spaces[:2] for block in space.blocks})
    try:
        for stage in schedule.stages:
            if isinstance(stage, LinearStage):
                run.held.update([written for block_map in stage.maps for written in run.mapped(block_map)])
            else:
                for product in stage.products:
                    run.multiply(product)
    except ValueError:
        return None
    left, right, result = (math.ceil(run.largest[space]) for space in "ABC")
    return IntegerRange(left, right, result, run.denominator) if max(left, right, result, run.denominator) <= MOST else None


@dataclass
class _Run:
    held: dict[Block, Content]
    products: list[tuple[Fraction, int]] = field(default_factory=list)
    """For each product: its size in units of the depth of a block and the largest elements of A and B, and its denominator."""
    denominator: int = 1
    largest: dict[str, Fraction] = field(default_factory=lambda: dict.fromkeys("ABC", Fraction(1)))

    def mapped(self, block_map: BlockMap) -> list[tuple[Block, Content]]:
        values = [self.held[source] for source in block_map.sources]
        for step in block_map.map.steps:
            values.append(self._sum(step, values))
        written = []
        for target, output, kept in zip(block_map.targets, block_map.map.outputs, block_map.kept, strict=True):
            before = self.held.get(target, {}) if kept else {}
            written.append((target, self._plus(before, self._sum(output, values), 1)))
        return written

    def multiply(self, product: Product) -> None:
        left, right = self.held[product.left], self.held[product.right]
        if any(isinstance(symbol, int) for symbol in (*left, *right)):
            raise ValueError("a product of products")
        value: Content = {len(self.products): Fraction(1)}
        self.products.append((self._norm(left) * self._norm(right), self._parts(left) * self._parts(right)))
        self._look(value)
        for target in product.targets:
            before = self.held.get(target.block, {}) if target.kept else {}
            self.held[target.block] = self._plus(before, value, target.coefficient)

    def _sum(self, form: Form, values: list[Content]) -> Content:
        total: Content = {}
        for index, coefficient in form:
            total = self._plus(total, values[index], coefficient)
        return total

    def _plus(self, x: Content, y: Content, coefficient: Coefficient) -> Content:
        """x + coefficient * y as a kernel forms it: first the term, then the sum."""
        factor = rational(coefficient)
        term = {symbol: factor * c for symbol, c in y.items()}
        total = dict(x)
        for symbol, c in term.items():
            total[symbol] = total.get(symbol, Fraction(0)) + c
        self._look(term)
        self._look(total)
        return {symbol: c for symbol, c in total.items() if c}

    def _look(self, content: Content) -> None:
        """Update the bounds with a value that was formed."""
        self.denominator = math.lcm(self.denominator, self._parts(content))
        for space in ("A", "B", "C"):
            part = {s: c for s, c in content.items() if (s.space if isinstance(s, Block) else "C") == space}
            self.largest[space] = max(self.largest[space], self._norm(part))

    def _norm(self, content: Content) -> Fraction:
        return sum((abs(c) * (1 if isinstance(s, Block) else self.products[s][0]) for s, c in content.items()), Fraction(0))

    def _parts(self, content: Content) -> int:
        return math.lcm(*(c.denominator * (1 if isinstance(s, Block) else self.products[s][1]) for s, c in content.items()))
