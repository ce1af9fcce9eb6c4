"""Aligned plain-text tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from textwrap import wrap

from bilinear.visible import visible

MOST = 1000  # The most characters of a cell.
NARROWEST = 24  # Columns of text are not made narrower than this, in characters.
GAP = 2  # Spaces between columns.
Cells = list[str]
_room: ContextVar[int | None] = ContextVar("room", default=None)


@contextmanager
def fitted(columns: int | None) -> Iterator[None]:
    """While the context lasts, tables are at most this many characters wide where their words and numbers allow it; None: no limit."""
    token = _room.set(columns)
    try:
        yield
    finally:
        _room.reset(token)


def aligned(rows: Sequence[Sequence[object]], header: Sequence[str] | None, indent: int = 0) -> list[str]:
    """Rows as lines with columns two spaces apart: numbers right-aligned, text left, the header underlined.

    In a table that has to fit (`fitted`), long texts continue on further lines. Columns without room stand below the others, again next to
    the columns that name the row: the first one, and more if several rows share it. `indent` is how far the caller moves them.
    """
    texts = [[visible(str(cell), MOST) for cell in row] for row in rows]
    titles = [list(header)] if header is not None else []
    if not texts and not titles:
        return []
    cells = titles + texts
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    right = [bool(texts) and header is not None and all(_is_number(row[i]) for row in texts) for i in range(len(widths))]
    room = None if (columns := _room.get()) is None else columns - indent
    parts = [list(range(len(widths)))]
    if room is not None and header is not None:
        narrow = _narrowed(widths, right, room)
        parts = _split(narrow, room, _naming(texts, narrow, room))
    lines: list[str] = []
    for part in parts:
        lines += [""] if lines else []
        own, turned = [widths[i] for i in part], [right[i] for i in part]
        lines += _drawn([[row[i] for i in part] for row in cells], _narrowed(own, turned, room), turned, header is not None)
    return lines


def _drawn(cells: list[Cells], widths: list[int], right: list[bool], ruled: bool) -> list[str]:
    lines: list[str] = []
    for number, row in enumerate(cells):
        wrapped = [[cell] if len(cell) <= width else wrap(cell, width) for cell, width in zip(row, widths, strict=True)]
        for depth in range(max(map(len, wrapped))):
            parts = [words[depth] if depth < len(words) else "" for words in wrapped]
            placed = (p.rjust(w) if r else p.ljust(w) for p, w, r in zip(parts, widths, right, strict=True))
            lines.append((" " * GAP).join(placed).rstrip())
        if ruled and number == 0:
            lines.append((" " * GAP).join("-" * width for width in widths))
    return lines


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _narrowed(widths: list[int], right: list[bool], room: int | None) -> list[int]:
    found = list(widths)
    while room is not None and (over := _total(found) - room) > 0:
        wide = [i for i, width in enumerate(found) if width > NARROWEST and not right[i]]
        if not wide:
            break
        widest = max(wide, key=found.__getitem__)
        rest = max((found[i] for i in wide if i != widest), default=NARROWEST)
        found[widest] = max(NARROWEST, found[widest] - over, min(rest, found[widest] - 1))
    return found


def _naming(rows: list[Cells], widths: list[int], room: int) -> int:
    """How many columns name a row: the first, and more where rows are alike in it, as long as half of the room is left for the others."""
    for count in range(1, len(widths)):
        if len({tuple(row[:count]) for row in rows}) == len(rows):
            return count if _total(widths[:count]) <= room // 2 else 1
    return 1


def _split(widths: list[int], room: int, naming: int) -> list[list[int]]:
    names = list(range(naming))
    parts = [[*names]]
    for column in range(naming, len(widths)):
        if len(parts[-1]) > naming and _total([widths[i] for i in (*parts[-1], column)]) > room:
            parts.append([*names])
        parts[-1].append(column)
    return parts


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).replace("-", "", 1).replace("e", "", 1).replace("+", "", 1).replace("x", "", 1).isdigit() or text == "-"
