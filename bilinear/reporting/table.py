"""Aligned plain-text tables."""

from __future__ import annotations

from collections.abc import Sequence

from bilinear.visible import visible

MOST = 1000
"""The most characters of a cell."""


def aligned(rows: Sequence[Sequence[object]], header: Sequence[str] | None) -> list[str]:
    """Rows as lines with columns two spaces apart: numbers right-aligned, text left, the header underlined."""
    texts = [[visible(str(cell), MOST) for cell in row] for row in rows]
    titles = [list(header)] if header is not None else []
    if not texts and not titles:
        return []
    columns = range(len((titles or texts)[0]))
    widths = [max(len(row[i]) for row in titles + texts) for i in columns]
    right = [bool(texts) and header is not None and all(_is_number(row[i]) for row in texts) for i in columns]

    def line(row: Sequence[str]) -> str:
        return "  ".join(cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(row, widths, right, strict=True)).rstrip()

    ruled = [*map(line, titles), "  ".join("-" * w for w in widths)] if titles else []
    return [*ruled, *map(line, texts)]


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).replace("-", "", 1).replace("e", "", 1).replace("+", "", 1).replace("x", "", 1).isdigit() or text == "-"
