"""Coefficient tables to schemes: one row for each product, with its coefficients in A, in B, and of C."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from bilinear.algebra.combined import INTEGERS
from bilinear.frontend.atoms import read_number
from bilinear.frontend.headers import Format
from bilinear.frontend.reporter import Reporter
from bilinear.frontend.syntax import Row, Word
from bilinear.ir.linear import Form
from bilinear.ir.number import Coefficient, exact
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import block_name
from bilinear.source import Span

MOST_COUNTED = 100_000
"""The most characters of a part of a row whose surplus coefficients are counted."""
_SHORT = re.compile(r"[+-]?[0-9]{1,9}(?:/[1-9][0-9]{0,8})?")

Cells = list[Form]
"""The three parts of a row as sparse forms, over the blocks of A, of B and of C."""


def read_row(row: Row, header: Format, reporter: Reporter) -> Cells | None:
    """The coefficients of a row; None if their number or one of them is wrong, which is reported (E206, E205)."""
    count = row.cells.text.count("|") + 1 if row.cells is not None else 0
    if count != 3:
        hint = "a row reads: M1: coefficients of A | of B | of C"
        parts_found = f"{count} part" + ("" if count == 1 else "s")
        place = row.cells.span if row.cells is not None else row.name.span
        message = f"row {row.name.text[:40]} has {parts_found}, a table has 3"
        reporter.report("E206", message, place, "expected 3 parts divided by |", hint=hint)
        return None
    parts = _parts(row.cells)
    shapes = (("A", header.m, header.k), ("B", header.k, header.n), ("C", header.m, header.n))
    forms = [_read_part(row, part, *shape, header.ring, reporter) for part, shape in zip(parts, shapes, strict=True)]
    read = [f for f in forms if f is not None]
    return read if len(read) == 3 else None


def _parts(cells: Word | None) -> list[Word]:
    if cells is None:
        return []
    source, place = cells.span.source, cells.span.start
    parts = []
    for text in cells.text.split("|"):
        parts.append(Word(text, Span(source, place, place + len(text))))
        place += len(text) + 1
    return parts


def _read_part(row: Row, part: Word, matrix: str, rows: int, columns: int, ring: Ring, reporter: Reporter) -> Form | None:
    wanted = rows * columns
    entries = part.text.split(None, wanted)
    if len(entries) != wanted:
        found = len(part.text.split()) if len(part.text) < MOST_COUNTED else f"more than {wanted}"
        reporter.report(
            "E206",
            f"row {row.name.text[:40]} has {found} of {wanted} coefficients of {matrix}",
            _trimmed(part),
            f"expected {wanted}",
            note=f"the columns are {_columns(matrix, rows, columns)}",
        )
        return None
    if set(entries) <= {"0", "1", "-1"}:
        return tuple((i, 1 if entry == "1" else -1) for i, entry in enumerate(entries) if entry != "0")
    return _read_entries(part, ring, reporter)


def _read_entries(part: Word, ring: Ring, reporter: Reporter) -> Form | None:
    terms: list[tuple[int, Coefficient]] = []
    sound = True
    for index, match in enumerate(re.finditer(r"\S+", part.text)):
        value = _simple(match[0]) if not ring.modulus and ring != INTEGERS else None
        if value is None:
            start = part.span.start + match.start()
            value = read_number(match[0], Span(part.span.source, start, start + len(match[0])), reporter, ring)
        sound = sound and value is not None
        if value:
            terms.append((index, value))
    return tuple(terms) if sound else None


@lru_cache(maxsize=1024)
def _simple(text: str) -> Coefficient | None:
    """A short coefficient, cached because it recurs; None if it is long or needs a diagnostic."""
    match = _SHORT.fullmatch(text)
    return exact(Fraction(text)) if match is not None else None


def _trimmed(part: Word) -> Span:
    text = part.text.strip()
    if not text:
        return part.span
    start = part.span.start + part.text.index(text[0])
    return Span(part.span.source, start, start + len(text))


def _columns(matrix: str, rows: int, columns: int) -> str:
    if rows * columns <= 9:
        return " ".join(block_name(matrix, i, j) for i in range(rows) for j in range(columns))
    return f"{block_name(matrix, 0, 0)} to {block_name(matrix, rows - 1, columns - 1)}, row by row"
