"""Where a single misprint can be, in a scheme too large to try every edit.

An edit in the left factor of a product p changes the scheme's result by (something) x V[p] x W[., p], so the blocks of B and C in the
failing equations are exactly those of p; likewise for the other factors. An edit of one block of C affects this block only.
"""

from __future__ import annotations

from dataclasses import dataclass

from bilinear.explain.repair.solve import factors_by_product, residual
from bilinear.ir.number import Symbolic
from bilinear.ir.scheme import Scheme

MOST_TERMS = 2_000_000
"""Larger schemes, in products of three coefficients, are not examined."""


@dataclass(frozen=True)
class Focus:
    """The rows of U and V (products), and rows (blocks of C) and columns (products) of W, where one edit can be the repair."""

    u: frozenset[int]
    v: frozenset[int]
    outputs: frozenset[int]
    products: frozenset[int]

    @property
    def products_in_doubt(self) -> int:
        """The number of products where an edit may stand, counted once for each factor."""
        return len(self.u) + len(self.v) + len(self.products)

    def allows(self, table: str, row: int, index: int) -> bool:
        """True if a coefficient of an output of a map may be wrong."""
        if table == "w":
            return row in self.outputs or index in self.products
        return row in (self.u if table == "u" else self.v)


def find_focus(scheme: Scheme) -> Focus | None:
    """Where a single edit can be; None for schemes with named sums or basis changes, where one edit may have several effects."""
    if scheme.bases is not None or any(linear.steps for linear in (scheme.u, scheme.v, scheme.w)):
        return None
    if any(isinstance(c, Symbolic) for table in scheme.tables for f in table for _, c in f):
        return None
    factors = factors_by_product(scheme)
    if sum(len(left) * len(right) * len(column) for left, right, column in zip(*factors, strict=True)) > MOST_TERMS:
        return None
    modulus = scheme.ring.modulus
    wrong = [cell for cell, value in residual(scheme).items() if not modulus or _numerator(value) % modulus]
    seen = tuple(frozenset(cell[axis] for cell in wrong) for axis in range(3))
    supports = [[frozenset(i for i, c in f if not modulus or _numerator(c) % modulus) for f in rows] for rows in factors]

    def matching(axis: int) -> frozenset[int]:
        others = [i for i in range(3) if i != axis]
        return frozenset(p for p in range(scheme.rank) if all(supports[i][p] == seen[i] for i in others))

    return Focus(matching(0), matching(1), seen[2] if len(seen[2]) == 1 else frozenset(), matching(2))


def _numerator(value: object) -> int:
    assert not isinstance(value, Symbolic)
    number: int = value.numerator  # type: ignore[attr-defined]
    return number
