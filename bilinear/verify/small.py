"""Small square matrices over a domain: the blocks of a counterexample, which need not commute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bilinear.errors import Diagnostic
from bilinear.ir.number import Coefficient, Symbolic
from bilinear.verify.rings import Number

if TYPE_CHECKING:
    from bilinear.verify.engine import Domain


MOST_LETTERS = 80
"""The most characters of a number in a message."""
MOST_WRITTEN_BITS = 4096
"""The most bits of a number that is written in decimal; Python refuses far longer ones."""
MOST_FAILURES = 50
"""The most diagnostics reported for one proof."""


def told(value: Coefficient) -> str:
    """A number as text, shortened if it is long."""
    numbers = [c for _, c in value.terms] if isinstance(value, Symbolic) else [value]
    bits = max(max(c.numerator.bit_length(), c.denominator.bit_length()) for c in numbers)
    return f"a number of {bits} bits" if bits > MOST_WRITTEN_BITS else shortened(str(value))


def shortened(text: str) -> str:
    """The text with its middle left out if it is long."""
    if len(text) <= MOST_LETTERS:
        return text
    half = MOST_LETTERS // 2 - 8
    return f"{text[:half]}...{text[-half:]} ({len(text)} characters)"


def first_of(failures: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    """The first failures; the last one reported says how many there are."""
    if len(failures) <= MOST_FAILURES:
        return tuple(failures)
    last = failures[MOST_FAILURES - 1]
    note = f"the first {MOST_FAILURES} of {len(failures)} faults are shown"
    return (*failures[: MOST_FAILURES - 1], replace(last, notes=(*last.notes, note)))


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
