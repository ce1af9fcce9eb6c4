"""A schedule run on bounds: every block is an exact form of the inputs, together with its accumulated local rounding errors.

If elements are computed in a wider type than they are stored in, sums in leaf products have the finer unit roundoff `summed`. Then u
belongs to operations whose result is stored, and a shared value of a map is rounded in every block that it is written to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np
from numpy.typing import NDArray

from bilinear.analysis.rounding import gamma, is_in_range, magnitude, roundings, sum_roundings, underflow
from bilinear.ir.linear import Form
from bilinear.ir.number import Coefficient
from bilinear.ir.schedule import BETA, Block, BlockMap, LinearStage, Product, Schedule

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class OperandValue:
    """A block that holds a linear form over the blocks of A, or of B.

    `form` is exact, by block number; `gathered` gives the exact coefficient of each local error in the block. `size` and `error` bound the
    exact value and its error, the error in units of u: entry b times max|block b|, summed over b. Underflow adds at most the sum of those
    entries of `lost` whose block is not all zeros, in units of the smallest subnormal number.
    """

    space: str
    form: dict[int, Coefficient]
    gathered: dict[int, Coefficient]
    size: Vector
    error: Vector
    lost: Vector

    @property
    def met(self) -> Vector:
        """The blocks that can make this one differ from zero."""
        return np.asarray((self.size + self.error + self.lost) > 0)


@dataclass(frozen=True)
class ResultValue:
    """A block that holds sums of products: bounds of its exact value and its error, in units of max|A| * max|B| (times u).

    `old` and `old_error` bound its share of beta * C, in units of |beta| * max|C| (times u).
    """

    size: float = 0.0
    error: float = 0.0
    old: float = 0.0
    old_error: float = 0.0

    def scaled(self, factor: float, count: int, u: float) -> ResultValue:
        """The value times a coefficient of this size, with `count` more roundings."""
        more = gamma(count, u) / u
        size, old = factor * self.size, factor * self.old
        error, old_error = factor * self.error, factor * self.old_error
        return ResultValue(size, error + more * (size + u * error), old, old_error + more * (old + u * old_error))

    def plus(self, other: ResultValue) -> ResultValue:
        """The sum of both, without the rounding of the sum."""
        return ResultValue(self.size + other.size, self.error + other.error, self.old + other.old, self.old_error + other.old_error)


Value = OperandValue | ResultValue


@dataclass
class Trace:
    """The state of every block while a schedule runs on bounds."""

    unit_roundoff: float
    depth: int = 1
    summed: float | None = None
    state: dict[Block, Value] = field(default_factory=dict)
    growth: float = 1.0
    _locals: dict[str, _Locals] = field(default_factory=dict)

    @classmethod
    def of(
        cls, schedule: Schedule, unit_roundoff: float, depth: int = 1, begun: ResultValue | None = None, summed: float | None = None
    ) -> Trace:
        """The state after a whole schedule whose leaf products are `depth` deep; C holds `begun` before it, by default beta * C.

        Raises `ValueError` if a coefficient is not real.
        """
        trace = cls(unit_roundoff, depth, None if summed == unit_roundoff else summed)
        for name in ("A", "B"):
            blocks = schedule.blocks_of(name)
            trace._locals[name] = _Locals(len(blocks))
            for index, block in enumerate(blocks):
                unit, none = np.eye(len(blocks))[index], np.zeros(len(blocks))
                trace.state[block] = OperandValue(name, {index: 1}, {}, unit, none, none)
        for block in schedule.blocks_of("C"):
            trace.state[block] = begun or ResultValue(old=1.0)
        for stage in schedule.stages:
            if isinstance(stage, LinearStage):
                trace.run_maps(stage.maps)
            else:
                trace.run_products(stage.products)
        return trace

    def run_maps(self, maps: Sequence[BlockMap]) -> None:
        """Run one linear stage: all maps read the state from before it.

        If a map keeps old values, beta and the sum cost one rounding each.
        """
        written: dict[Block, Value] = {}
        for block_map in maps:
            values = [self.state[block] for block in block_map.sources]
            for step in block_map.map.steps:
                values.append(self.sum(step, values))
            for target, output, kept in zip(block_map.targets, block_map.map.outputs, block_map.kept, strict=True):
                value = self.sum(output, values, self._storing(output, len(block_map.sources)))
                before = self.state.get(target)
                if kept and isinstance(value, ResultValue) and isinstance(before, ResultValue):
                    value = value.scaled(1.0, 1, self.unit_roundoff).plus(before.scaled(1.0, 2, self.unit_roundoff))
                written[target] = value
        self.state.update(written)

    def run_products(self, products: Sequence[Product]) -> None:
        """Run one product stage. Targets are updated one after the other; alpha costs two roundings, beta one, and each addition one."""
        u = self.unit_roundoff
        factors = [(self.state[p.left], self.state[p.right]) for p in products]
        for product, (left, right) in zip(products, factors, strict=True):
            result = self.product(left, right)
            for target in product.targets:
                count = roundings(target.coefficient) + 2 + bool(target.kept)
                added = result.scaled(magnitude(target.coefficient), count, u)
                before = self.state.get(target.block, ResultValue()) if target.kept else ResultValue()
                if not isinstance(before, ResultValue):
                    raise ValueError(f"{target.block} holds a form of {before.space}, and a product is added to it")
                self.state[target.block] = added.plus(before.scaled(1.0, 1 + (target.kept == BETA), u))

    def _storing(self, terms: Form, read: int) -> int:
        """The additional roundings when a form is stored: none, unless it is a shared value, which was not stored itself."""
        return int(self.summed is not None and sum_roundings(terms) == 0 and any(index >= read for index, _ in terms))

    def product(self, left: Value, right: Value) -> ResultValue:
        """A leaf product, summed in any order: gamma_K of the factors' computed sizes, plus the factors' own errors."""
        if not isinstance(left, OperandValue) or not isinstance(right, OperandValue):
            raise ValueError("a factor of a product is itself a product")
        u, k = self.unit_roundoff, self.depth
        a, b = float(left.size.sum()), float(right.size.sum())
        da, db = float(left.error.sum()), float(right.error.sum())
        computed, fine = (a + u * da) * (b + u * db), u if self.summed is None else self.summed
        return ResultValue(k * a * b, k * (da * b + (a + u * da) * db + gamma(k, fine) / u * computed))

    def sum(self, terms: Form, values: Sequence[Value], storing: int = 0) -> Value:
        """A linear form over values, with the roundings of its terms, and those by which it is stored."""
        used = [(c, values[index]) for index, c in terms]
        operands = [(c, value) for c, value in used if isinstance(value, OperandValue)]
        if not operands:
            return self.sum_of_results(terms, storing, [value for _, value in used if isinstance(value, ResultValue)])
        if len(operands) < len(used) or len({value.space for _, value in operands}) > 1:
            raise ValueError("a sum mixes forms of A, of B and of products")
        return self.sum_of_operands(sum_roundings(terms) + storing, operands)

    def sum_of_results(self, terms: Form, storing: int, values: Sequence[ResultValue]) -> ResultValue:
        """A sum over products."""
        total, count = ResultValue(), sum_roundings(terms) + storing
        for (_, c), value in zip(terms, values, strict=True):
            total = total.plus(value.scaled(magnitude(c), count, self.unit_roundoff))
        return total

    def sum_of_operands(self, count: int, terms: Sequence[tuple[Coefficient, OperandValue]]) -> OperandValue:
        """A sum over forms of one operand, whose rounding becomes a new local error."""
        u, space = self.unit_roundoff, terms[0][1].space
        errors = self._locals[space]
        form = _combined([(c, value.form) for c, value in terms])
        gathered = _combined([(c, value.gathered) for c, value in terms])
        size = np.zeros(errors.width)
        for index, c in form.items():
            size[index] = magnitude(c)
        computed = sum((magnitude(c) * (value.size + u * value.error) for c, value in terms), errors.none)
        lost = errors.none
        if errors.lose or not all(isinstance(c, int) for c, _ in terms):
            lost = sum((_lost(c, value, gamma(count, u)) for c, value in terms), errors.none)
        if count or lost is not errors.none:
            gathered[errors.add(gamma(count, u) / u * computed, lost)] = 1
        self.growth = max(self.growth, float(computed.sum())) if all(is_in_range(c) for c, _ in terms) else inf
        return OperandValue(space, form, gathered, size, *errors.bound(gathered))


def _lost(coefficient: Coefficient, value: OperandValue, rounded: float) -> Vector:
    """The underflow error of multiplying a value: its own rounding, and the propagated earlier loss."""
    own = np.where(value.met, underflow(coefficient), 0.0)
    return own + rounded * magnitude(coefficient) * value.lost if rounded else own


class _Locals:
    """The local errors of one operand, each as two bounds over its blocks: one for rounding, one for underflow."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.none = np.zeros(width)
        self.lose = False  # whether anything may underflow
        self._rows = np.zeros((64, 2 * width))
        self._count = 0

    def add(self, rounded: Vector, lost: Vector) -> int:
        """Add a local error; returns its number."""
        if self._count == len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        self._rows[self._count, : self.width] = rounded
        self._rows[self._count, self.width :] = lost
        self.lose = self.lose or lost is not self.none
        self._count += 1
        return self._count - 1

    def bound(self, gathered: dict[int, Coefficient]) -> tuple[Vector, Vector]:
        """Both bounds of the sum of these errors with their coefficients."""
        if not gathered:
            return self.none, self.none
        sizes = np.array([magnitude(c) for c in gathered.values()])
        total = sizes @ self._rows[list(gathered)]
        return total[: self.width], total[self.width :]


def _combined(terms: Sequence[tuple[Coefficient, dict[int, Coefficient]]]) -> dict[int, Coefficient]:
    total: dict[int, Coefficient] = {}
    for c, values in terms:
        for index, value in values.items():
            total[index] = total.get(index, 0) + c * value
    return {index: value for index, value in total.items() if value}
