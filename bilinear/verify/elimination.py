"""Exact elimination on sparse rows that record how they were combined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Row:
    """A vector as column to coefficient, and the combination of the given rows (`made_of`) that produced it."""

    entries: dict[Any, Any]
    made_of: dict[Any, Any] = field(default_factory=dict)

    def minus(self, factor: Any, other: Row) -> None:
        """Subtract a multiple of another row."""
        for mine, theirs in ((self.entries, other.entries), (self.made_of, other.made_of)):
            for column, value in theirs.items():
                left = mine.get(column, 0) - factor * value
                if left:
                    mine[column] = left
                else:
                    mine.pop(column, None)


def reduced(rows: Iterable[Row], order: Callable[[Any], Any]) -> dict[Any, Row]:
    """The reduced echelon form, by pivot; a row's pivot is its first column in this order."""
    pivots: dict[Any, Row] = {}
    for given in rows:
        row = Row(dict(given.entries), dict(given.made_of))
        for column in [column for column in row.entries if column in pivots]:
            row.minus(row.entries[column], pivots[column])
        if not row.entries:
            continue
        pivot = min(row.entries, key=order)
        scale = row.entries[pivot]
        row = Row({c: v / scale for c, v in row.entries.items()}, {t: v / scale for t, v in row.made_of.items()})
        for other in pivots.values():
            if pivot in other.entries:
                other.minus(other.entries[pivot], row)
        pivots[pivot] = row
    return pivots


def kernel(rows: Iterable[Row], columns: Sequence[Any], one: Any) -> list[dict[Any, Any]]:
    """A basis of the kernel of these rows, one vector for each free column, in order."""
    place = {column: i for i, column in enumerate(columns)}
    pivots = reduced(rows, lambda column: place[column])
    basis = []
    for free in columns:
        if free in pivots:
            continue
        vector = {pivot: -row.entries[free] for pivot, row in pivots.items() if free in row.entries}
        basis.append(vector | {free: one})
    return basis
