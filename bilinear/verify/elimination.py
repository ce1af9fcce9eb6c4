"""Exact elimination on sparse rows that record how they were combined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from bilinear.verify.elements import Number

if TYPE_CHECKING:
    from _typeshed import SupportsRichComparison

Column = TypeVar("Column")
Key = TypeVar("Key")


@dataclass
class Row(Generic[Column]):
    """A vector as column to coefficient, and the combination of the given rows (`made_of`) that produced it."""

    entries: dict[Column, Number]
    made_of: dict[str, Number] = field(default_factory=dict)

    def minus(self, factor: Number, other: Row[Column]) -> None:
        """Subtract a multiple of another row."""
        _subtract(self.entries, factor, other.entries)
        _subtract(self.made_of, factor, other.made_of)


def _subtract(mine: dict[Key, Number], factor: Number, theirs: dict[Key, Number]) -> None:
    for key, value in theirs.items():
        left = mine[key] - factor * value if key in mine else -(factor * value)
        if left:
            mine[key] = left
        else:
            mine.pop(key, None)


def reduced(rows: Iterable[Row[Column]], order: Callable[[Column], SupportsRichComparison]) -> dict[Column, Row[Column]]:
    """The reduced echelon form, by pivot; a row's pivot is its first column in this order."""
    pivots: dict[Column, Row[Column]] = {}
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


def kernel(rows: Iterable[Row[Column]], columns: Sequence[Column], one: Number) -> list[dict[Column, Number]]:
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
