"""A table of coefficients, as a page holds it, as a drawing."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator

CELL, LETTER, HEIGHT, SPACE = 30.0, 6.4, 22.0, 20.0
"""The least width of a cell, that of a letter, the height of a row, and the space between two tables."""


def grid_svg(table: ET.Element) -> ET.Element:
    """The rows of the table as rectangles and texts, with its name and its classes for the shades."""
    rows = list(table.iter("tr"))
    names = LETTER * max(len(_text(row[0])) for row in rows) + 12
    cells = [cell for row in rows[1:] for cell in row[1:]]
    width = max(CELL, LETTER * max(len(_text(cell)) for cell in cells) + 6)
    drawn = [shape for number, row in enumerate(rows) for shape in _row(row, number * HEIGHT, names, width)]
    columns = sum(int(cell.get("colspan") or 1) for cell in rows[0][1:] if cell.get("class") != "gap")
    whole = names + columns * width + SPACE * sum(cell.get("class") == "gap" for cell in rows[0][1:])
    svg = ET.Element("svg", {"id": table.get("id") or "", "class": "grid", "viewBox": f"0 0 {whole:g} {len(rows) * HEIGHT:g}"})
    svg.set("aria-label", "The coefficients of U, V and W")
    svg.extend(drawn)
    return svg


def _row(row: ET.Element, y: float, x: float, width: float) -> Iterator[ET.Element]:
    yield _label(_text(row[0]), "name end", x - 6, y)
    for cell in row[1:]:
        css, span = cell.get("class") or "", width * int(cell.get("colspan") or 1)
        if css == "gap":
            x += SPACE
            continue
        if cell.tag == "td":
            place = {"x": f"{x + 0.5:g}", "y": f"{y + 0.5:g}", "width": f"{span - 1:g}", "height": f"{HEIGHT - 1:g}"}
            yield ET.Element("rect", {"class": css, **place})
        if css != "z":
            ink = {"p3": "q3", "n3": "m3"}.get(css, css if cell.tag == "th" else "")
            yield _label(_text(cell), ink or ("name" if cell.tag == "th" else ""), x + span / 2, y)
        x += span


def _label(text: str, css: str, x: float, y: float) -> ET.Element:
    label = ET.Element("text", {"x": f"{x:g}", "y": f"{y + HEIGHT / 2:g}"} | ({"class": css} if css else {}))
    label.text = text
    return label


def _text(cell: ET.Element) -> str:
    return "".join(cell.itertext()).strip()
