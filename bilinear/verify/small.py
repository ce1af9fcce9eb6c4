"""Small square matrices over a domain: the blocks of a counterexample, which need not commute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bilinear.verify.elements import Number

if TYPE_CHECKING:
    from bilinear.verify.engine import Domain


@dataclass(frozen=True)
class Small:
    """A square matrix, row by row."""

    rows: tuple[tuple[Number, ...], ...]

    @property
    def size(self) -> int:
        """The number of rows."""
        return len(self.rows)

    def __add__(self, other: Small) -> Small:
        return Small(tuple(tuple(x + y for x, y in zip(r, s, strict=True)) for r, s in zip(self.rows, other.rows, strict=True)))

    def __mul__(self, other: Small) -> Small:
        columns = list(zip(*other.rows, strict=True))
        return Small(tuple(tuple(_dot(row, column) for column in columns) for row in self.rows))

    def scaled(self, factor: Number) -> Small:
        """The matrix times a factor."""
        return Small(tuple(tuple(factor * x for x in row) for row in self.rows))

    def text(self, domain: Domain) -> str:
        """`3`, or `[0 1 | -1 0]`."""
        rows = [" ".join(str(domain.to_sympy(x)) for x in row) for row in self.rows]
        return rows[0] if self.size == 1 else f"[{' | '.join(rows)}]"


def constant(value: Number, size: int) -> Small:
    """A multiple of the identity matrix."""
    return Small(tuple(tuple(value if i == j else value - value for j in range(size)) for i in range(size)))


def _dot(row: Sequence[Number], column: Sequence[Number]) -> Number:
    first, *rest = [x * y for x, y in zip(row, column, strict=True)]
    return sum(rest, first)
