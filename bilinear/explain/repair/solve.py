"""Solve for one table of a scheme given the other two: a rational linear system that shows whether that table alone is wrong.

With u, v, w the rows of a product p, every Brent equation is a sum over p of u[a] v[b] w[c]; for two given factors it is linear in the
third. The system is solved for the correction, so undetermined entries stay as written.
"""

from __future__ import annotations

from dataclasses import dataclass

from bilinear.ir.linear import Form, form
from bilinear.ir.number import Coefficient, Symbolic, exact, rational
from bilinear.ir.scheme import Scheme
from bilinear.verify.elements import Number

MOST_EQUATIONS = 700
"""The most equations of one system, for each of its right-hand sides."""
MOST_UNKNOWNS = 130

Cell = tuple[int, int, int]
"""The numbers of a block of A, a block of B and a block of C."""


@dataclass(frozen=True)
class Solution:
    """The table (u, v or w) that is required if the other two are right.

    `rows` are the rows that differ from the text: (product, form over blocks) in u and v, (block of C, form over products) in w. `unsolved`
    counts the right-hand sides without a solution; for w these are the blocks of C in `impossible`. `unique` is True if the equations
    determine every entry.
    """

    table: str
    rows: tuple[tuple[int, Form], ...]
    unsolved: int
    impossible: tuple[int, ...] = ()
    unique: bool = True

    @property
    def mends(self) -> bool:
        """True if correcting this table alone makes the scheme correct."""
        return not self.unsolved


def solvable(scheme: Scheme) -> bool:
    """True if the systems of a scheme are rational and small enough to be solved."""
    if scheme.ring.name not in ("Z", "Q") or scheme.bases is not None or scheme.rank > MOST_UNKNOWNS:
        return False
    blocks = scheme.m * scheme.k, scheme.k * scheme.n, scheme.m * scheme.n
    if max(blocks[0] * blocks[1], blocks[1] * blocks[2], blocks[0] * blocks[2]) > MOST_EQUATIONS:
        return False
    return not any(isinstance(c, Symbolic) for table in scheme.tables for f in table for _, c in f)


def solve_tables(scheme: Scheme) -> dict[str, Solution]:
    """Each of u, v and w solved from the other two; empty if `solvable` is False."""
    if not solvable(scheme):
        return {}
    wrong = residual(scheme)
    return {table: _solve(scheme, wrong, axis) for axis, table in enumerate("uvw")}


def residual(scheme: Scheme) -> dict[Cell, Coefficient]:
    """The nonzero differences of the equations: required minus actual."""
    m, k, n = scheme.m, scheme.k, scheme.n
    total: dict[Cell, Coefficient] = {(i * k + p, p * n + j, i * n + j): 1 for i in range(m) for p in range(k) for j in range(n)}
    u, v, columns = factors_by_product(scheme)
    for left, right, column in zip(u, v, columns, strict=True):
        for a, x in left:
            for b, y in right:
                for c, z in column:
                    total[a, b, c] = total.get((a, b, c), 0) - x * y * z
    return {cell: exact(value) for cell, value in total.items() if value}


def factors_by_product(scheme: Scheme) -> tuple[tuple[Form, ...], tuple[Form, ...], tuple[Form, ...]]:
    """The rows of the three tables by product: forms over the blocks of A, of B, and of C."""
    u, v, w = scheme.tables
    columns: list[list[tuple[int, Coefficient]]] = [[] for _ in range(scheme.rank)]
    for output, row in enumerate(w):
        for product, coefficient in row:
            columns[product].append((output, coefficient))
    return u, v, tuple(map(tuple, columns))


def _solve(scheme: Scheme, wrong: dict[Cell, Coefficient], axis: int) -> Solution:
    """Solve for the factors of one axis: 0 for u, 1 for v, 2 for w."""
    from bilinear.verify.engine import QQ, DomainMatrix

    factors = factors_by_product(scheme)
    first, second = (i for i in range(3) if i != axis)
    sizes = (scheme.m * scheme.k, scheme.k * scheme.n, scheme.m * scheme.n)
    entries: dict[int, dict[int, Number]] = {}

    def put(row: int, column: int, value: Coefficient) -> None:
        number = rational(value)
        entries.setdefault(row, {})[column] = QQ(number.numerator, number.denominator)

    for p in range(scheme.rank):
        for i, x in factors[first][p]:
            for j, y in factors[second][p]:
                put(i * sizes[second] + j, p, x * y)
    for cell, value in wrong.items():
        put(cell[first] * sizes[second] + cell[second], scheme.rank + cell[axis], value)
    shape = sizes[first] * sizes[second], scheme.rank + sizes[axis]
    reduced, pivots = DomainMatrix(entries, shape, QQ).rref()
    return _read(scheme, axis, factors[axis], reduced.to_sdm(), [p for p in pivots if p < scheme.rank])


def _read(scheme: Scheme, axis: int, written: tuple[Form, ...], reduced: dict[int, dict[int, Number]], pivots: list[int]) -> Solution:
    """The solution in an echelon form; undetermined unknowns are not corrected."""
    from fractions import Fraction

    bad = {column - scheme.rank for row in range(len(pivots), max(reduced, default=-1) + 1) for column in reduced.get(row, ())}
    corrections = {
        pivot: {
            column - scheme.rank: exact(Fraction(int(x.numerator), int(x.denominator)))
            for column, x in reduced.get(row, {}).items()
            if column >= scheme.rank
        }
        for row, pivot in enumerate(pivots)
    }
    unique = len(pivots) == scheme.rank
    solved = {p: [(i, x) for i, x in more.items() if i not in bad] for p, more in corrections.items()}
    if axis < 2:
        rows = tuple((p, form([*written[p], *more])) for p, more in solved.items() if more)
        return Solution("uv"[axis], rows, len(bad), (), unique)
    outputs: dict[int, list[tuple[int, Coefficient]]] = {}
    for p, more in solved.items():
        for output, x in more:
            outputs.setdefault(output, []).append((p, x))
    table = scheme.tables[2]
    changed = tuple((output, form([*table[output], *more])) for output, more in sorted(outputs.items()))
    return Solution("w", changed, len(bad), tuple(sorted(bad)), unique)
