"""Rounding of linear maps, and a schedule run on bounds: every block is an exact form of the inputs, with its rounding errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from math import inf, nextafter

import numpy as np
from numpy.typing import NDArray

from bilinear.analysis.schedule_run import ScheduleRun, Terms
from bilinear.ir.complex_scheme import Products
from bilinear.ir.linear import Form, LinearMap
from bilinear.ir.number import Coefficient, Symbolic, to_float
from bilinear.ir.schedule import BETA, Block, Product, Schedule, Target
from bilinear.source import Span

SLACK = 1 + 2.0**-30  # For bounds in double precision: sums of at most 2**20 nonnegative terms lose less.
MOST_ROUNDINGS = 8  # The roundings of a coefficient: its parts, their quotient or root, the multiplication.
_EXACT = 256  # Integers up to here are exact in every floating-point type (bfloat16 has 8 bits).
_SMALLEST, _LARGEST = 2.0**-126, 2.0**127  # Coefficients between these are normal in float32 and wider types.


def magnitude(value: Coefficient) -> float:
    """|value| as a float; `SLACK` covers its rounding. Raises `ValueError` if the coefficient is not a real number."""
    if not isinstance(value, Symbolic):
        return abs(to_float(value)) or (nextafter(0.0, 1.0) if value else 0.0)
    parts = sum(abs(to_float(Symbolic((term,)))) for term in value.terms)
    return abs(to_float(value)) + 2.0**-40 * parts


def roundings(value: Coefficient) -> int:
    """The number of roundings of a product with this coefficient, including the coefficient's conversion to the element type."""
    if isinstance(value, Symbolic):
        return MOST_ROUNDINGS
    size = abs(Fraction(value))
    if size.numerator > _EXACT or size.denominator > _EXACT:
        return MOST_ROUNDINGS
    if size.numerator & (size.numerator - 1) == 0 and size.denominator & (size.denominator - 1) == 0:
        return 0
    return 1 if size.denominator == 1 else 2


def underflow(value: Coefficient) -> float:
    """The additional error of multiplying by this coefficient due to underflow, in smallest subnormal numbers.

    A result that underflows is rounded to a multiple of the smallest subnormal number, by at most half of it. Products with integers are
    such multiples already. So are sums, because both terms are multiples: a sum is exact or normal.
    """
    return 0.0 if not isinstance(value, Symbolic) and value.denominator == 1 else 1.0


def is_in_range(value: Coefficient) -> bool:
    """True if a coefficient is a normal number in float32 and every wider type; otherwise its value changes in the conversion."""
    return value in (-1, 0, 1) or _SMALLEST <= magnitude(value) <= _LARGEST


def sum_roundings(terms: Form) -> int:
    """The most roundings of a term in a sum, for any order, with or without fused multiply-adds."""
    return max(0, len(terms) - 1) + max((roundings(c) for _, c in terms), default=0)


def gamma(count: float, unit_roundoff: float, finer: float = 0.0) -> float:
    """n*u / (1 - n*u), Higham, Accuracy and Stability of Numerical Algorithms, lemma 3.1; infinite if n*u is at least 1.

    `finer` is added to n*u for roundings with other unit roundoffs: the lemma holds for the sum of all.
    """
    product = count * unit_roundoff + finer
    return product / (1 - product) if product < 1 else float("inf")


def path_rows(linear: LinearMap) -> list[dict[int, float]]:
    """Each output as input -> sum over all paths of the product of |coefficients|: |matrix| if nothing cancels, else more."""
    values: list[dict[int, float]] = [{i: 1.0} for i in range(linear.inputs)]
    for terms in linear.steps + linear.outputs:
        values.append(_combined(((i, magnitude(c)) for i, c in terms), values))
    return values[linear.inputs + len(linear.steps) :]


def path_depth(linear: LinearMap) -> int:
    """The most roundings between an input and an output of the program."""
    depths = [0] * linear.inputs
    for terms in linear.steps + linear.outputs:
        depths.append(sum_roundings(terms) + max((depths[i] for i, _ in terms), default=0))
    return max(depths[linear.inputs + len(linear.steps) :], default=0)


def _combined(terms: Iterable[tuple[int, float]], values: Sequence[dict[int, float]]) -> dict[int, float]:
    total: dict[int, float] = {}
    for index, size in terms:
        for i, weight in values[index].items():
            total[i] = total.get(i, 0.0) + size * weight
    return total


@dataclass(frozen=True)
class RoundedSide:
    """One side of a scheme (U, V or W) as the programs run in turn: a change of basis and the map itself."""

    programs: tuple[LinearMap, ...]

    @cached_property
    def rows(self) -> tuple[dict[int, float], ...]:
        """For each output the path sums over the inputs of the first program."""
        values: list[dict[int, float]] = path_rows(self.programs[0])
        for program in self.programs[1:]:
            values = [_combined(row.items(), values) for row in path_rows(program)]
        return tuple(values)

    @cached_property
    def depth(self) -> int:
        """Roundings on the longest path of one level."""
        return sum(path_depth(program) for program in self.programs)

    @cached_property
    def terms(self) -> int:
        """The most terms in a row of the matrix, at least 1."""
        return max(1, max((len(row) for row in self.rows), default=1))

    @cached_property
    def scalings(self) -> int:
        """The roundings of a product of the side's coefficients, for any number of levels: 0 if all are powers of two."""
        coefficients = (c for program in self.programs for terms in program.steps + program.outputs for _, c in terms)
        return MOST_ROUNDINGS if any(roundings(c) for c in coefficients) else 0

    def flat_depth(self, levels: int) -> int:
        """The most roundings of a path through `levels` levels that are run one by one, fused, or multiplied out in any groups.

        A group is either a program that keeps its shared values, where the depths of its levels add up, or the plain matrix of h levels,
        whose rows have at most terms**h entries. Fusing only renames values and drops unread ones.
        """
        deepest = [0]
        for level in range(1, levels + 1):
            flat = max(deepest[level - h] + self.terms**h - 1 + self.scalings for h in range(1, level + 1))
            deepest.append(max(flat, deepest[level - 1] + self.depth))
        return deepest[levels]


@lru_cache(maxsize=64)
def sides(scheme: Products) -> tuple[RoundedSide, RoundedSide, RoundedSide]:
    """The programs of U, V and W, changes of basis included."""
    if scheme.bases is None:
        return RoundedSide((scheme.u,)), RoundedSide((scheme.v,)), RoundedSide((scheme.w,))
    return RoundedSide((scheme.bases.a, scheme.u)), RoundedSide((scheme.bases.b, scheme.v)), RoundedSide((scheme.w, scheme.bases.c))


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
class Trace(ScheduleRun[Value]):
    """The state of every block while a schedule runs on bounds."""

    zero = ResultValue()

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
        trace.run(schedule)
        return trace

    def output(self, form: Form, values: Sequence[Value], sources: int) -> Value:
        """A sum that is stored."""
        shared = self.summed is not None and sum_roundings(form) == 0 and any(index >= sources for index, _ in form)
        return self.sum(form, values, int(shared))  # a shared value was not stored itself

    def plus(self, value: Value, block: Block, kept: Coefficient, span: Span | None) -> Value:
        """A sum of products beside what the block keeps; beta and the sum cost one rounding each."""
        before = self.state.get(block)
        if not isinstance(value, ResultValue) or not isinstance(before, ResultValue):
            return value
        return value.scaled(1.0, 1, self.unit_roundoff).plus(before.scaled(1.0, 2, self.unit_roundoff))

    def target(self, value: Value, target: Target, terms: Terms[Value], span: Span | None) -> Value:
        """A product added to a target: alpha costs two roundings, beta one, and each addition one."""
        u = self.unit_roundoff
        before = self.state.get(target.block, ResultValue()) if target.kept else ResultValue()
        if not isinstance(value, ResultValue) or not isinstance(before, ResultValue):
            raise ValueError(f"{target.block} holds a form of an operand, and a product is added to it")
        added = value.scaled(magnitude(target.coefficient), roundings(target.coefficient) + 2 + bool(target.kept), u)
        return added.plus(before.scaled(1.0, 1 + (target.kept == BETA), u))

    def product(self, product: Product) -> Value:
        """A leaf product, summed in any order: gamma_K of the factors' computed sizes, plus the factors' own errors."""
        left, right = self.state[product.left], self.state[product.right]
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
            total, count = ResultValue(), sum_roundings(terms) + storing
            for c, value in used:
                assert isinstance(value, ResultValue)
                total = total.plus(value.scaled(magnitude(c), count, self.unit_roundoff))
            return total
        if len(operands) < len(used) or len({value.space for _, value in operands}) > 1:
            raise ValueError("a sum mixes forms of A, of B and of products")
        return self._sum_of_operands(sum_roundings(terms) + storing, operands)

    def _sum_of_operands(self, count: int, terms: Sequence[tuple[Coefficient, OperandValue]]) -> OperandValue:
        """A sum over forms of one operand, whose rounding becomes a new local error."""
        u, space = self.unit_roundoff, terms[0][1].space
        errors = self._locals[space]
        form = _combined_forms([(c, value.form) for c, value in terms])
        gathered = _combined_forms([(c, value.gathered) for c, value in terms])
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


def _combined_forms(terms: Sequence[tuple[Coefficient, dict[int, Coefficient]]]) -> dict[int, Coefficient]:
    total: dict[int, Coefficient] = {}
    for c, values in terms:
        for index, value in values.items():
            total[index] = total.get(index, 0) + c * value
    return {index: value for index, value in total.items() if value}
