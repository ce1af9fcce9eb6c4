"""Schemes with one coefficient changed: what they are, and what must be said of them, by rank one alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from bilinear.analysis.brent import changed, integers, residual_of
from bilinear.ir.linear import Form, LinearMap, form
from bilinear.ir.number import Coefficient, Symbolic
from bilinear.ir.scheme import Scheme


@dataclass(frozen=True)
class Mutation:
    """A coefficient of the expanded tables, and its new value."""

    table: str
    row: int
    column: int
    old: Coefficient
    new: Coefficient

    @property
    def delta(self) -> Coefficient:
        """What is added to the coefficient."""
        return self.new - self.old


def expanded(scheme: Scheme) -> Scheme:
    """The scheme as plain tables: sub-expressions and changes of basis written out."""
    u, v, w = scheme.tables
    maps = LinearMap(scheme.m * scheme.k, u), LinearMap(scheme.k * scheme.n, v), LinearMap(scheme.rank, w)
    return replace(scheme, u=maps[0], v=maps[1], w=maps[2], bases=None)


def mutations(scheme: Scheme) -> Iterator[Mutation]:
    """Every coefficient replaced by -1, 0 and 1, and by 1/2 where the ring has fractions."""
    values: tuple[Coefficient, ...] = (-1, 0, 1)
    if not scheme.ring.modulus and scheme.ring.name != "Z":
        values = (*values, Fraction(1, 2))
    widths = (scheme.m * scheme.k, scheme.k * scheme.n, scheme.rank)
    for table, rows, width in zip("uvw", scheme.tables, widths, strict=True):
        for row, terms in enumerate(rows):
            old = dict(terms)
            for column in range(width):
                for value in values:
                    if value != old.get(column, 0):
                        yield Mutation(table, row, column, old.get(column, 0), value)


def mutant(scheme: Scheme, mutation: Mutation) -> Scheme:
    """The scheme of plain tables with the coefficient changed."""
    linear: LinearMap = getattr(scheme, mutation.table)
    rows = list(linear.outputs)
    rows[mutation.row] = form({**dict(rows[mutation.row]), mutation.column: mutation.new})
    changes: dict[str, LinearMap] = {mutation.table: LinearMap(linear.inputs, tuple(rows))}
    return replace(scheme, **changes)  # type: ignore[arg-type]


class Oracle:
    """What must be said of the mutants of a correct scheme.

    The residual of a mutant is delta times a tensor of rank one, so it is wrong unless delta or a factor of that tensor is zero; over
    Q[lambda] unless the lowest powers of the three add up to more than 0 (the lowest terms of a product never cancel in a domain).
    """

    def __init__(self, scheme: Scheme) -> None:
        self.scheme = scheme
        u, v, w = scheme.tables
        columns: list[list[tuple[int, Coefficient]]] = [[] for _ in range(scheme.rank)]
        for output, row in enumerate(w):
            for p, value in row:
                columns[p].append((output, value))
        self.forms = {"u": u, "v": v, "w": tuple(map(tuple, columns))}

    def is_correct(self, mutation: Mutation) -> bool:
        """Whether a mutant still multiplies."""
        product = mutation.column if mutation.table == "w" else mutation.row
        partners = [self.forms[table][product] for table in "uvw" if table != mutation.table]
        orders = [self.order(((0, mutation.delta),)), *(self.order(partner) for partner in partners)]
        known = [order for order in orders if order is not None]
        if len(known) < 3:
            return True
        return self.scheme.ring.is_approximate and sum(known) > 0

    def order(self, terms: Form) -> int | None:
        """The lowest power of the generator in a form, 0 where there is none; None for the zero form."""
        modulus = self.scheme.ring.modulus
        powers = [p for _, c in terms for p, x in _powers(c) if x and not (modulus and x.numerator % modulus == 0)]
        return min(powers, default=None)


def verdicts(scheme: Scheme, chosen: Iterator[Mutation]) -> Iterator[tuple[Mutation, bool]]:
    """What the gate says of mutants: its own residual of the scheme, to which the rank-one difference is added by its own arithmetic."""
    tables = integers(scheme, slack=2 if not scheme.ring.modulus else 1)
    base = residual_of(scheme, tables)
    for mutation in chosen:
        yield mutation, changed(base, tables, mutation.table, mutation.row, mutation.column, mutation.delta).is_zero


def _powers(value: Coefficient) -> list[tuple[int, int | Fraction]]:
    if isinstance(value, Symbolic):
        return [(sum(e for _, e in monomial), c) for monomial, c in value.terms]
    return [(0, value)]
