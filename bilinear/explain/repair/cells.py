"""The single edits of a scheme written as a table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from bilinear.explain.repair.edits import TABLES, Change, Edit
from bilinear.explain.repair.focus import Focus
from bilinear.explain.repair.names import Writing
from bilinear.ir.linear import LinearMap
from bilinear.ir.number import Coefficient, Symbolic
from bilinear.source import Span

MOST_VALUES = 6
"""The most coefficients of a table that are tried in other cells."""


def cell_edits(writing: Writing, rows: Sequence[Span], focus: Focus | None = None) -> Iterator[Edit]:
    """The edits of a table: another coefficient in a cell, or a coefficient moved to another cell of its row."""
    values = {t: _cell_values(writing.map(t)) for t in TABLES}
    for product, cells in enumerate(rows):
        for table, part in zip(TABLES, _parts(cells), strict=True):
            spots = [_Cell(table, *((i, product) if table == "w" else (product, i)), span) for i, span in enumerate(part)]
            for spot in spots:
                if focus is not None and not focus.allows(table, spot.row, spot.index):
                    continue
                yield from _cell_edits(writing, spots, spot, values[table], product)


@dataclass(frozen=True)
class _Cell:
    """A cell of a table: the coefficient of a map and its place."""

    table: str
    row: int
    index: int
    span: Span


def _cell_edits(writing: Writing, spots: list[_Cell], cell: _Cell, values: Sequence[Coefficient], product: int) -> Iterator[Edit]:
    c = _coefficient(writing, cell)
    where, title = f"in row {writing.scheme.products[product]}", _title(writing, cell)
    slot = frozenset({("cell", product, cell.span.start)})
    for new in values:
        if new == c:
            continue
        kind = "drop" if not new else "add" if not c else "sign" if new == -c else "scale"
        shown = _negated(cell.span.text) if kind == "sign" else str(new)
        text = f"writing {shown} for {cell.span.text} {where}, column {title}"
        patch = (cell.span.start, cell.span.end, _padded(shown, cell.span))
        yield Edit(kind, cell.table, (Change(cell.row, cell.index, new - c),), text, f"write {shown}", cell.span, slot, (patch,))
    for other in spots if c else ():
        if other is not cell and not _coefficient(writing, other):
            text = f"moving {cell.span.text} from column {title} to column {_title(writing, other)} {where}"
            patches = (
                (cell.span.start, cell.span.end, _padded("0", cell.span)),
                (other.span.start, other.span.end, _padded(cell.span.text, other.span)),
            )
            changes = (Change(cell.row, cell.index, -c), Change(other.row, other.index, c))
            both = slot | {("cell", product, other.span.start)}
            brief = f"move this to column {_title(writing, other)}"
            yield Edit("operand", cell.table, changes, text, brief, cell.span, both, patches)


def _padded(text: str, span: Span) -> str:
    return text.rjust(span.end - span.start)


def _title(writing: Writing, cell: _Cell) -> str:
    return writing.row("w", cell.row) if cell.table == "w" else writing.value(cell.table, cell.index)


def _coefficient(writing: Writing, cell: _Cell) -> Coefficient:
    return dict(writing.form(cell.table, cell.row)).get(cell.index, 0)


def _negated(text: str) -> str:
    """The text of a coefficient with all signs reversed."""
    inner = text[1:-1] if text.startswith("[") else text
    turned = re.sub(r"(?<![\^(])[+-]", lambda m: "+-"[m[0] == "+"], inner if inner[0] in "+-" else f"+{inner}").removeprefix("+")
    return f"[{turned}]" if text.startswith("[") else turned


def _cell_values(linear: LinearMap) -> tuple[Coefficient, ...]:
    """The values tried in a cell: -1, 0, 1, and a few of the table's coefficients with both signs."""
    used = [c for output in linear.outputs for _, c in output]
    plain = sorted({Fraction(c if c > 0 else -c) for c in used if not isinstance(c, Symbolic)} - {Fraction(1)})
    symbolic = sorted({c for c in used if isinstance(c, Symbolic)}, key=str)
    some: list[Coefficient] = [*plain[:MOST_VALUES], *symbolic[:MOST_VALUES]]
    return tuple(dict.fromkeys([-1, 0, 1, *(-c for c in some), *some]))


def _parts(cells: Span) -> list[list[Span]]:
    """The places of a row's cells, for A, B and C."""
    parts: list[list[Span]] = [[]]
    for match in re.finditer(r"\||[^\s|]+", cells.text):
        if match[0] == "|":
            parts.append([])
        else:
            parts[-1].append(Span(cells.source, cells.start + match.start(), cells.start + match.end()))
    return parts
