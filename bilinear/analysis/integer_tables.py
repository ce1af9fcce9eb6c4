"""The tables of a scheme in exact sparse integers.

Denominators are cleared, and a coefficient in a generator (a root, or lambda) is one integer for each power, so all sums are integer sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import lcm

from bilinear.ir.linear import Form
from bilinear.ir.number import Coefficient, Symbolic, square
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Scheme

MOST_BITS = 4096
"""The most bits of a common denominator."""

Row = dict[int, int]
"""A row of the residual. The key is one integer for a pair of blocks and a power; the value is a nonzero integer."""
Terms = tuple[tuple[int, int], ...]
"""A linear form in integers: (place, coefficient)."""


@dataclass(frozen=True)
class Units:
    """How tables become integers: the scale of each, and the numbering of (pair of blocks, power) as one place.

    Consecutive pairs lie `2 * reach + 1` places apart, in the order of the pairs (block of A, block of B).
    """

    ring: Ring
    width: int
    scales: tuple[int, int, int]
    reach: int

    @property
    def scale(self) -> int:
        """The factor of the residual after scaling the tables."""
        return self.scales[0] * self.scales[1] * self.scales[2]

    def place(self, pair: int, power: int = 0) -> int:
        """The place of a pair and a power."""
        return pair * (2 * self.reach + 1) + power

    def pair_and_power(self, place: int) -> tuple[int, int]:
        """The inverse of `place`."""
        pair, power = divmod(place + self.reach, 2 * self.reach + 1)
        return pair, power - self.reach

    def matters(self, place: int, value: int) -> bool:
        """True if this entry makes an equation fail. An entry that is 0 modulo p or of positive order does not."""
        if self.ring.is_approximate:
            return self.pair_and_power(place)[1] <= 0
        return not self.ring.modulus or value % self.ring.modulus != 0

    def settle(self, row: Row) -> Row:
        """The row without zeros, with roots reduced by their squares."""
        root = square(self.ring.generator) if self.reach else None
        if root is None:
            return {place: value for place, value in row.items() if value}
        reduced: Row = {}
        for place, value in row.items():
            pair, power = self.pair_and_power(place)
            at = self.place(pair, power % 2)
            reduced[at] = reduced.get(at, 0) + value * root ** (power // 2)
        return {place: value for place, value in reduced.items() if value}


@dataclass(frozen=True)
class Integers:
    """The tables in integers for `accumulate`: rows of U and V by place, rows of W as products with their coefficients."""

    units: Units
    left: tuple[Terms, ...]
    right: tuple[Terms, ...]
    outputs: tuple[tuple[tuple[int, Terms], ...], ...]

    @cached_property
    def columns(self) -> dict[int, list[tuple[int, Terms]]]:
        """The columns of W: for each product in use, the blocks of C that it is added to, with its coefficients."""
        found: dict[int, list[tuple[int, Terms]]] = {}
        for output, row in enumerate(self.outputs):
            for p, factor in row:
                found.setdefault(p, []).append((output, factor))
        return found


def integers(scheme: Scheme, slack: int = 1) -> Integers:
    """The tables of a scheme in integers; `slack` is an extra denominator for coefficients that are added later."""
    units, (u, v, w) = units_of(scheme, slack), scheme.tables
    scales = units.scales
    left = tuple(integral(row, units, scales[0], units.width) for row in u)
    right = tuple(integral(row, units, scales[1]) for row in v)
    outputs = tuple(tuple((p, integral(((0, value),), units, scales[2])) for p, value in row) for row in w)
    return Integers(units, left, right, outputs)


def units_of(scheme: Scheme, slack: int = 1) -> Units:
    """How the tables of a scheme become integers."""
    u, v, w = scheme.tables
    scales = (slack * _denominator(u), slack * _denominator(v), slack * _denominator(w))
    return Units(scheme.ring, scheme.k * scheme.n, scales, sum(_reach(table) for table in (u, v, w)))


def integral(row: Form, units: Units, scale: int, width: int = 1) -> Terms:
    """A form in integers: each coefficient times `scale`, block i at the places of the pair `i * width`."""
    return tuple((units.place(i * width, power), c.numerator * (scale // c.denominator)) for i, value in row for power, c in _powers(value))


def products_of_coefficients(scheme: Scheme) -> int:
    """The number of coefficient products in the residual: the sum over the products of |U[p]| * |V[p]| * |W[.,p]|."""
    u, v, w = scheme.tables
    sizes = [len(left) * len(right) for left, right in zip(u, v, strict=True)]
    return sum(sizes[p] for row in w for p, _ in row)


def common_denominator(scheme: Scheme, most_bits: int = MOST_BITS) -> int | None:
    """The least common multiple of all denominators of the tables; None if it has more than `most_bits` bits."""
    common = 1
    for table in scheme.tables:
        for row in table:
            common = lcm(common, _denominator((row,)))
            if common.bit_length() > most_bits:
                return None
    return common


def lowest_power(scheme: Scheme) -> int:
    """The lowest power of lambda in any product of three coefficients, over all products."""
    u, v, w = scheme.tables
    lowest: dict[int, int] = {}
    for row in w:
        for p, value in row:
            power = _lowest(((p, value),))
            lowest[p] = min(lowest.get(p, power), power)
    return min((low + _lowest(u[p]) + _lowest(v[p]) for p, low in lowest.items() if u[p] and v[p]), default=0)


def _lowest(row: Form) -> int:
    return min((power for _, value in row for power, _ in _powers(value)), default=0)


def _powers(value: Coefficient) -> tuple[tuple[int, Fraction | int], ...]:
    """A coefficient split by the powers of its generator."""
    if not isinstance(value, Symbolic):
        return ((0, value),)
    return tuple((sum(power for _, power in monomial), c) for monomial, c in value.terms)


def _reach(table: tuple[Form, ...]) -> int:
    values = {value for row in table for _, value in row if isinstance(value, Symbolic)}
    return max((abs(power) for value in values for power, _ in _powers(value)), default=0)


def _denominator(table: tuple[Form, ...]) -> int:
    values = {value for row in table for _, value in row}
    return lcm(*(c.denominator for value in values for _, c in _powers(value)))
