"""When floating point computes with integers exactly: bounds on the numbers that a schedule forms, and products modulo p.

Modulo p, a number x with |x| <= h is cut into pieces, x = sum of d_i 2^(w i). The products of the pieces are as many float products as
there are pairs i <= j: d_i e_i, and (d_i + d_j)(e_i + e_j), from which d_i e_j + d_j e_i follows (Karatsuba, Ofman 1962). Sums of integers
are exact in a floating-point type, in whatever order they are added up, while the sum of their magnitudes is at most 2^significand.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

from bilinear.analysis.schedule_run import ScheduleRun, Terms
from bilinear.ir.element import FLOAT32, FLOAT64, Element
from bilinear.ir.linear import Form
from bilinear.ir.number import Coefficient, rational
from bilinear.ir.schedule import Block, Product, Schedule, Target
from bilinear.source import Span

MOST = 2**62  # Beyond this, no element type is exact on integers.


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
        """The largest numerator over `denominator` for elements of at most `size`, blocks `depth` deep, and a plain `rest` of K."""
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


@lru_cache(maxsize=8)
def integer_range(schedule: Schedule) -> IntegerRange | None:
    """The bounds of a runnable schedule; None if one exceeds `MOST`, for irrational coefficients, and for products of products."""
    run = _Run(schedule)
    try:
        run.run(schedule)
    except ValueError:
        return None
    left, right, result = map(math.ceil, run.largest)
    return IntegerRange(left, right, result, run.denominator) if max(left, right, result, run.denominator) <= MOST else None


@dataclass(frozen=True, slots=True)
class _Content:
    """The content of a block: a form over the blocks of A, those of B, and the products, numbered in this order, over a denominator."""

    terms: dict[int, int]
    denominator: int = 1


NOTHING = _Content({})


class _Run(ScheduleRun[_Content]):
    zero = NOTHING

    def __init__(self, schedule: Schedule) -> None:
        a, b = map(schedule.blocks_of, "AB")
        self.state = {block: _Content({i: 1}) for i, block in enumerate((*a, *b))}
        self.ends = len(a), len(a) + len(b)
        self.sizes: list[int] = [1] * self.ends[1]
        """The size of each block (1) and product, in units of the depth of a block and the largest elements of A and B, times `unit`."""
        self.unit = 1
        self.parts: list[int] = [1] * self.ends[1]
        """The denominator of each block (1) and product."""
        self.denominator = 1
        self.largest = [Fraction(1)] * 3

    def product(self, product: Product) -> _Content:
        """A new symbol for a product; raises `ValueError` for a product of products."""
        left, right = self.state[product.left], self.state[product.right]
        if any(symbol >= self.ends[1] for symbol in (*left.terms, *right.terms)):
            raise ValueError("a product of products")
        size = self._norm(left.terms, left.denominator) * self._norm(right.terms, right.denominator)
        scale = size.denominator // math.gcd(size.denominator, self.unit)
        if scale > 1:
            self.sizes, self.unit = [scale * old for old in self.sizes], scale * self.unit
        value = _Content({len(self.sizes): 1})
        self.sizes.append(int(size * self.unit))
        self.parts.append(self._part(left) * self._part(right))
        self._look(value)
        return value

    def target(self, value: _Content, target: Target, terms: Terms[_Content], span: Span | None) -> _Content:
        """A product with its coefficient, added to what the target holds."""
        return self._plus(self.state.get(target.block, NOTHING) if target.kept else NOTHING, value, target.coefficient)

    def plus(self, value: _Content, block: Block, kept: Coefficient, span: Span | None) -> _Content:
        """A sum added to what the block holds."""
        return self._plus(self.state.get(block, NOTHING), value, 1)

    def sum(self, form: Form, values: Sequence[_Content]) -> _Content:
        """A form, term by term."""
        total = NOTHING
        for index, coefficient in form:
            total = self._plus(total, values[index], coefficient)
        return total

    def _plus(self, x: _Content, y: _Content, coefficient: Coefficient) -> _Content:
        """x + coefficient * y as a kernel forms it: first the term, then the sum. Both update the bounds."""
        factor = rational(coefficient)
        term = y if factor == 1 else _Content({s: c * factor.numerator for s, c in y.terms.items()}, y.denominator * factor.denominator)
        if abs(factor) != 1:
            self._look(term)
        if not x.terms:
            return term
        common = math.lcm(x.denominator, term.denominator)
        first, second = common // x.denominator, common // term.denominator
        total = {symbol: first * c for symbol, c in x.terms.items()} if first > 1 else dict(x.terms)
        for symbol, c in term.terms.items():
            total[symbol] = total.get(symbol, 0) + second * c
        found = _Content({symbol: c for symbol, c in total.items() if c}, common)
        self._look(found)
        return found

    def _look(self, content: _Content) -> None:
        """Update the bounds with a value that was formed."""
        if not content.terms:
            return
        self.denominator = math.lcm(self.denominator, self._part(content))
        a, b = self.ends
        if min(content.terms) >= b:
            parts: list[dict[int, int]] = [{}, {}, content.terms]
        else:
            parts = [{s: c for s, c in content.terms.items() if low <= s < high} for low, high in ((0, a), (a, b), (b, math.inf))]
        for space, part in enumerate(parts):
            if part:
                self.largest[space] = max(self.largest[space], self._norm(part, content.denominator))

    def _norm(self, terms: Mapping[int, int], denominator: int) -> Fraction:
        sizes = self.sizes
        return Fraction(sum([abs(c) * sizes[s] for s, c in terms.items()]), denominator * self.unit)

    def _part(self, content: _Content) -> int:
        if content.denominator == 1:
            return math.lcm(*{self.parts[s] for s in content.terms})
        return math.lcm(*{self.parts[s] * (content.denominator // math.gcd(content.denominator, c)) for s, c in content.terms.items()})


LARGEST_MODULUS = 2**62  # Up to this modulus 4 p is a number of 64 bits, and 2 p - 1 one of int64.
LARGEST_SUM = 2**63 - 1  # The largest number of int64, in which finished sums of floats are added up.
MOST_PIECES = 3
PASS = 50  # The cost of adding a sum of floats to one of integers, in terms of a sum of doubles.


@dataclass(frozen=True)
class ModularWay:
    """How matrices with elements of at most `left` and `right` in size are multiplied modulo p, exactly.

    Elements are cut into `pieces` of `width` bits, whose products are sums of floats of the type `element`.
    """

    modulus: int
    left: int
    right: int
    element: Element
    pieces: int
    width: int

    @cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The pieces that each product adds up: one of them, or two."""
        return tuple((i, j) for i in range(self.pieces) for j in range(i, self.pieces))

    @cached_property
    def chunk(self) -> int:
        """The terms of a sum of floats; 0 if not even one product is exact."""
        left, right = (_sizes(size, self.pieces, self.width) for size in (self.left, self.right))
        most = max((_sum(left, pair) * _sum(right, pair) for pair in self.pairs), default=0)
        return (1 << self.element.significand) // max(1, most)

    @property
    def most_chunks(self) -> int:
        """The sums of floats that can be added to a number below p before the sum of integers is reduced modulo p."""
        return (LARGEST_SUM - (self.modulus - 1)) >> self.element.significand

    def cost(self, inner: int) -> float:
        """The cost of an element of the product over `inner` terms, in terms of a sum of doubles."""
        weight = self.element.bytes / FLOAT64.bytes
        return len(self.pairs) * (inner * weight + math.ceil(inner / self.chunk) * PASS)

    def powers(self) -> Iterator[tuple[tuple[int, int], ...]]:
        """For each power of 2^width, from the lowest: the products that make its coefficient, and their signs."""
        signs: list[dict[int, int]] = [{} for _ in range(2 * self.pieces - 1)]
        for number, (i, j) in enumerate(self.pairs):
            signs[i + j][number] = 1
            if i == j:
                for other in range(self.pieces):
                    if other != i:
                        signs[i + other][number] = -1
        return (tuple(each.items()) for each in signs)


@lru_cache(maxsize=1024)
def way_for(modulus: int, left: int, right: int, inner: int) -> ModularWay:
    """The cheapest way of multiplying matrices with elements of at most these sizes over `inner` terms.

    Sizes are at most p/2 (numbers are reduced otherwise); in three pieces of 21 bits every product of such numbers is exact in float64.
    """
    found = []
    for element in (FLOAT32, FLOAT64):
        for pieces in range(1, MOST_PIECES + 1):
            way = ModularWay(modulus, left, right, element, pieces, _width(max(left, right), pieces))
            if way.chunk:
                found.append(way)
    return min(found, key=lambda way: way.cost(max(1, inner)))


def _width(size: int, pieces: int) -> int:
    """The bits of a piece: the fewest for which the last piece is no larger than the others; 0 for a single piece."""
    if pieces == 1:
        return 0
    width = 1
    while _sizes(size, pieces, width)[-1] > 2 ** (width - 1):
        width += 1
    return width


def _sizes(size: int, pieces: int, width: int) -> tuple[int, ...]:
    """The largest magnitude of each piece of a number of at most `size`: -2^(w-1) <= d < 2^(w-1), and the last piece is the rest."""
    found = []
    for _ in range(pieces - 1):
        found.append(min(size, 2 ** (width - 1)))
        size = (size + 2 ** (width - 1)) >> width
    return (*found, size)


def _sum(sizes: tuple[int, ...], pair: tuple[int, int]) -> int:
    return sum(sizes[i] for i in set(pair))
