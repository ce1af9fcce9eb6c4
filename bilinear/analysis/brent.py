"""The Brent equations of a scheme in exact sparse integers: the residual after subtracting the matrix multiplication tensor.

A scheme with tables U (r x mk), V (r x kn) and W (mn x r) multiplies exactly if and only if, for every block of C, the sum over the
products p of W[., p] * (U[p] kron V[p]) is that block's row of the tensor (Brent 1970). The difference is the residual. It is computed in
integers (`integer_tables`), for large schemes by matrix products (`brent_matrices`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import gcd

from bilinear.analysis.brent_matrices import goes_by_matrices, rows_by_matrices
from bilinear.analysis.integer_tables import Integers, Row, Terms, Units, integers, integral, products_of_coefficients
from bilinear.ir.number import Coefficient, exact, generator
from bilinear.ir.scheme import Scheme


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
    """The rows of the residual, without zeros."""
    if by_matrices(scheme, tables):
        yield from rows_by_matrices(tables, _blocks(scheme), lambda output: needed_pairs(scheme, output))
        return
    units = tables.units
    for output, terms in enumerate(tables.outputs):
        row = {units.place(pair): -units.scale for pair in needed_pairs(scheme, output)}
        for p, factor in terms:
            accumulate(row, factor, tables.left[p], tables.right[p])
        yield units.settle(row)


def by_matrices(scheme: Scheme, tables: Integers) -> bool:
    """True if the residual of a large scheme is computed by products of matrices."""
    return goes_by_matrices(tables, _blocks(scheme), products_of_coefficients(scheme))


def _blocks(scheme: Scheme) -> tuple[int, int]:
    return scheme.m * scheme.k, scheme.k * scheme.n


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
