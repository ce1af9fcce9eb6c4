"""The Brent equations of a scheme in exact sparse integers: the residual after subtracting the matrix multiplication tensor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import gcd, lcm

from bilinear.ir.linear import Form
from bilinear.ir.number import Coefficient, Symbolic, exact, generator, square
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Scheme

MOST_BITS = 4096  # The most bits of a common denominator.
Row = dict[int, int]  # A row of the residual: by an integer for two blocks and a power, a nonzero integer.
Terms = tuple[tuple[int, int], ...]  # A linear form in integers: (place, coefficient).


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
    if not isinstance(value, Symbolic):
        return ((0, value),)
    return tuple((sum(power for _, power in monomial), c) for monomial, c in value.terms)


def _reach(table: tuple[Form, ...]) -> int:
    values = {value for row in table for _, value in row if isinstance(value, Symbolic)}
    return max((abs(power) for value in values for power, _ in _powers(value)), default=0)


def _denominator(table: tuple[Form, ...]) -> int:
    values = {value for row in table for _, value in row}
    return lcm(*(c.denominator for value in values for _, c in _powers(value)))


EXACT = 2**53  # float64 holds all integers up to this one.
FEW_TERMS = 200_000  # Fewer products of coefficients are added one by one, in a few hundredths of a second.
WORTH = 500  # So many multiplications of a matrix product take as long as adding one product by itself.
MOST_MULTIPLICATIONS = 2 * 10**10  # The most multiplications in all matrix products; they take a few seconds.
MOST_ENTRIES = 2**25  # The most entries of both matrices, 256 MiB.


def by_matrices(scheme: Scheme, tables: Integers) -> bool:
    """True if products of matrices give the residual of a large scheme exactly, soon, and sooner than single products of coefficients."""
    a, b, terms = scheme.m * scheme.k, scheme.k * scheme.n, products_of_coefficients(scheme)
    work = sum(map(len, tables.outputs)) * a * b
    small = work <= min(MOST_MULTIPLICATIONS, WORTH * terms) and len(tables.left) * (a + b) <= MOST_ENTRIES
    return terms >= FEW_TERMS and small and tables.units.reach == 0 and _largest_sum(tables) < EXACT


def _rows_by_matrices(scheme: Scheme, tables: Integers) -> Iterator[Row]:
    import numpy as np

    left = np.zeros((len(tables.left), scheme.m * scheme.k))
    right = np.zeros((len(tables.right), scheme.k * scheme.n))
    for matrix, rows, step in ((left, tables.left, tables.units.width), (right, tables.right, 1)):
        for p, row in enumerate(rows):
            for place, value in row:
                matrix[p, place // step] = value
    for output, terms in enumerate(tables.outputs):
        products = [p for p, _ in terms]
        factors = np.array([factor[0][1] for _, factor in terms], dtype=np.float64)
        found = ((left[products] * factors[:, None]).T @ right[products]).ravel()
        found[list(needed_pairs(scheme, output))] -= tables.units.scale
        yield {int(pair): int(found[pair]) for pair in np.flatnonzero(found)}


def _largest_sum(tables: Integers) -> int:
    """A bound on the absolute value of every sum in a row of the residual."""
    largest = [[max((abs(value) for _, value in row), default=0) for row in side] for side in (tables.left, tables.right)]
    sizes = [max(u * v, 1) for u, v in zip(*largest, strict=True)]
    return tables.units.scale + max((sum(abs(factor[0][1]) * sizes[p] for p, factor in row) for row in tables.outputs), default=0)


@dataclass(frozen=True)
class Residual:
    """The residual by blocks of C; `complete` is false if the computation stopped after too many failures."""

    units: Units
    rows: dict[int, Row]
    complete: bool = True

    def differences(self) -> Iterator[tuple[int, int, Coefficient]]:
        """The failing equations: block of C, pair (block of A times kn, plus block of B), and actual minus required value."""
        for output, row in sorted(self.rows.items()):
            wrong: dict[int, list[tuple[int, int]]] = {}
            for place, value in row.items():
                if self.units.matters(place, value):
                    pair, power = self.units.pair_and_power(place)
                    wrong.setdefault(pair, []).append((power, value))
            for pair, terms in sorted(wrong.items()):
                yield output, pair, self._number(terms)

    @property
    def is_zero(self) -> bool:
        """True if all equations hold."""
        return self.complete and not any(self.units.matters(*entry) for row in self.rows.values() for entry in row.items())

    @property
    def order(self) -> int | None:
        """The lowest power of the generator in the residual; None if the residual is zero."""
        return min((self.units.pair_and_power(place)[1] for row in self.rows.values() for place in row), default=None)

    @property
    def modulus(self) -> int:
        """The largest g such that the equations hold modulo g: 0 if they hold exactly, 1 if they hold modulo nothing."""
        if not self.complete:
            return 1
        common = 0
        for row in self.rows.values():
            common = gcd(common, *row.values())
        while common and (shared := gcd(common, self.units.scale)) > 1:
            common //= shared
        return common

    def _number(self, terms: list[tuple[int, int]]) -> Coefficient:
        name, modulus = self.units.ring.generator, self.units.ring.modulus
        if modulus:
            return sum(value for _, value in terms) * pow(self.units.scale, -1, modulus) % modulus
        total: Coefficient = 0
        for power, value in terms:
            size = exact(Fraction(value, self.units.scale))
            total = total + (size * generator(name, power) if power else size)
        return total


def accumulate(row: Row, factor: Terms, left: Terms, right: Terms) -> None:
    """Add factor * (left kron right) to a row of the residual; zeros remain."""
    for power, c in factor:
        for i, a in left:
            at, size = i + power, c * a
            for j, b in right:
                row[at + j] = row.get(at + j, 0) + size * b


def residual(scheme: Scheme, slack: int = 1, most: int = 100_000) -> Residual:
    """The residual of a scheme, block of C by block of C; it stops after the block with failure number `most`."""
    return residual_of(scheme, integers(scheme, slack), most)


def residual_of(scheme: Scheme, tables: Integers, most: int = 100_000) -> Residual:
    """The residual of a scheme with its tables given in integers."""
    units, rows, failures = tables.units, {}, 0
    for output, row in enumerate(_rows(scheme, tables)):
        if row:
            rows[output] = row
            failures += sum(units.matters(*entry) for entry in row.items())
        if failures >= most:
            return Residual(units, rows, complete=output == len(tables.outputs) - 1)
    return Residual(units, rows)


def _rows(scheme: Scheme, tables: Integers) -> Iterator[Row]:
    if by_matrices(scheme, tables):
        yield from _rows_by_matrices(scheme, tables)
        return
    units = tables.units
    for output, terms in enumerate(tables.outputs):
        row = {units.place(pair): -units.scale for pair in needed_pairs(scheme, output)}
        for p, factor in terms:
            accumulate(row, factor, tables.left[p], tables.right[p])
        yield units.settle(row)


def changed(left: Residual, tables: Integers, table: str, row: int, column: int, delta: Coefficient) -> Residual:
    """The residual after `delta` is added to one coefficient of `u`, `v` or `w`: the old residual plus a tensor of rank one.

    `left` and `tables` must be of one scheme, with a slack that is a multiple of delta's denominator.
    """
    units = tables.units
    p = column if table == "w" else row
    factors, a, b = tables.columns.get(p, []), tables.left[p], tables.right[p]
    if table == "w":
        factors = [(row, integral(((0, delta),), units, units.scales[2]))]
    elif table == "u":
        a = integral(((column, delta),), units, units.scales[0], units.width)
    else:
        b = integral(((column, delta),), units, units.scales[1])
    rows = dict(left.rows)
    for output, factor in factors:
        sums = dict(rows.pop(output, {}))
        accumulate(sums, factor, a, b)
        if settled := units.settle(sums):
            rows[output] = settled
    return Residual(units, rows, left.complete)


def needed_pairs(scheme: Scheme, output: int) -> Iterable[int]:
    """The pairs of blocks whose products sum to a block of C: A[i,p] and B[p,j] for all p."""
    i, j = divmod(output, scheme.n)
    return ((i * scheme.k + p) * scheme.k * scheme.n + p * scheme.n + j for p in range(scheme.k))
