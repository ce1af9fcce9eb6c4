"""What pages are made of: the environment of their templates, charts, and their figures as SVG files that stand alone.

A file has its title, its key, and its colours, light and dark. Templates print views and decide nothing.
"""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from bilinear.analysis.accuracy import LevelAccuracy
from bilinear.codegen.render import Filter, templates
from bilinear.reporting.coefficients import shortened
from bilinear.reporting.facts import SUPERSCRIPT, readable
from bilinear.visible import visible

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def environment(html: bool) -> Environment:
    """The environment of pages: values are made visible, and escaped in HTML, because names and citations are foreign text."""
    filters: dict[str, Filter] = {"readable": readable, "shortened": shortened, "cell": _cell, "code": _code}
    # text made by templates keeps its line breaks
    return templates(filters, autoescape=html, finalize=lambda value: visible(value) if type(value) is str else value)


def _cell(value: object) -> str:
    text = visible(str(value))
    text = re.sub(r"[\\`*~|\[\]]|(?<!\w)_|_(?!\w)", r"\\\g<0>", text)  # an underscore inside a word needs no escape
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _code(value: object) -> str:
    """Text between backticks, whatever backticks it contains."""
    text = visible(str(value))
    fence = "`" * (max((len(run) for run in "".join(c if c == "`" else " " for c in text).split()), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") or not text else ""
    return f"{fence}{pad}{text}{pad}{fence}".replace("|", "\\|")


def varying(table: Sequence[tuple[str, ...]], kept: Sequence[str]) -> tuple[list[tuple[str, ...]], str]:
    """A table without the columns in which several rows are alike, but for those `kept`; and what these columns say, as words."""
    header, *rows = table
    alike = {name for name, cells in zip(header, zip(*rows, strict=True), strict=False) if len(rows) > 1 and len(set(cells)) == 1}
    alike -= {*kept}
    words = ", ".join(f"{name} {cell}" for name, cell in zip(header, rows[0] if rows else (), strict=False) if name in alike)
    return [tuple(cell for name, cell in zip(header, row, strict=True) if name not in alike) for row in table], words


@dataclass(frozen=True)
class Tick:
    """A mark on an axis: its place and its text."""

    at: float
    text: str


@dataclass(frozen=True)
class ChartPoint:
    """A point of a line, and all its data in words."""

    x: float
    y: float
    title: str = ""


@dataclass(frozen=True)
class ChartSeries:
    """Points, and the line through some, dotted for a bound; `style` names the colour, `mark` a disc, square or diamond."""

    name: str
    style: str
    points: tuple[ChartPoint, ...]
    path: str
    mark: int = 0
    is_bound: bool = False


@dataclass(frozen=True)
class Chart:
    """A frame, the marks of both axes, and lines; `unit` belongs to the axis across, `level` is the height of a dashed line."""

    title: str
    unit: str
    across: tuple[Tick, ...]
    down: tuple[Tick, ...]
    series: tuple[ChartSeries, ...]
    level: float | None = None
    width: float = 440.0
    height: float = 270.0
    left: float = 56.0
    right: float = 424.0
    top: float = 16.0
    bottom: float = 230.0


@dataclass(frozen=True)
class Scale:
    """A linear axis from `low` to `high` onto a picture; if they are equal, everything lies in the middle."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The place of a value."""
        if self.low == self.high:
            return (self.start + self.end) / 2
        return round(self.start + (self.end - self.start) * (value - self.low) / (self.high - self.low), 1)


def across(values: Sequence[float]) -> Scale:
    """The axis of a chart on which these values lie, from left to right."""
    return Scale(min(values), max(values), Chart.left + 14, Chart.right - 14)


def upwards(low: float, high: float) -> Scale:
    """The axis of a chart from its bottom to its top."""
    return Scale(low, high, Chart.bottom, Chart.top)


def round_step(extent: float, parts: int) -> float:
    """The least of 1, 2 and 5 times a power of ten that divides the extent into at most so many parts, about."""
    rough = extent / parts
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * f for f in (1, 2, 5, 10) if power * f >= rough)


def power_of_ten(decade: int) -> str:
    """10 to a power, as one word."""
    return "10" + str(decade).translate(SUPERSCRIPT)


def path_through(points: Sequence[ChartPoint]) -> str:
    """A line as the data of an SVG path; none through a single point."""
    return "M" + "L".join(f"{p.x:g} {p.y:g}" for p in points) if len(points) > 1 else ""


def accuracy_charts(accuracy: Sequence[LevelAccuracy]) -> tuple[Chart, ...]:
    """Rounding errors by level: a chart for each element type for which the classical multiply and at least one level are known."""
    dtypes = dict.fromkeys(fact.dtype for fact in accuracy)
    by_type = {dtype: sorted((f for f in accuracy if f.dtype == dtype), key=lambda f: f.levels) for dtype in dtypes}
    return tuple(_chart(dtype, facts) for dtype, facts in by_type.items() if len(facts) > 1 and facts[0].levels == 0)


def _chart(dtype: str, facts: Sequence[LevelAccuracy]) -> Chart:
    lines = {"always": [f.deterministic for f in facts], "likely": [f.probabilistic for f in facts]}
    lines = {kind: [value / values[0] for value in values] for kind, values in lines.items()}
    known = [value for values in lines.values() for value in values if 0 < value < math.inf]
    ticks = _round_values(min(known), max(known))
    x, y = across([f.levels for f in facts]), upwards(math.log10(ticks[0]), math.log10(ticks[-1]))
    series = []
    for kind, values in lines.items():
        places = zip(facts, values, strict=True)
        points = tuple(ChartPoint(x(f.levels), y(math.log10(v)), f"{v:.3g}×") for f, v in places if 0 < v < math.inf)
        series.append(ChartSeries(kind, kind, points, path_through(points)))
    down = tuple(Tick(y(math.log10(tick)), _multiple(tick)) for tick in ticks)
    title = f"{dtype}, {facts[0].inner} x {facts[0].inner} matrices"
    return Chart(title, "levels", tuple(Tick(x(f.levels), str(f.levels)) for f in facts), down, tuple(series))


def _multiple(value: float) -> str:
    """A mark's text, which has to fit left of the axis: from 10000 on a power of ten as one."""
    return f"{value:g}×" if value < 10_000 else f"{power_of_ten(round(math.log10(value)))}×"


def _round_values(low: float, high: float) -> list[float]:
    """Powers of ten, with 2 and 5 times these if they are few, around the values: at least two."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(max(high, 2 * low)))
    factors = (1, 2, 5) if last - first <= 2 else (1,)
    values = [factor * 10.0**decade for decade in range(first, last + 1) for factor in factors]
    below = max(i for i, value in enumerate(values) if value <= low)
    above = next(i for i, value in enumerate(values) if value >= high and i > below)
    return values[below : above + 1]


MARGIN, LINE, LETTER, TITLE = 14.0, 20.0, 6.6, 8.2
"""The space around a figure, the height of a line of its key, and the widths of a letter there and in a title."""
SWATCH, GAP = 44.0, 22.0  # The width of a mark in the key, and the distance between two entries.
OWN = """.grid text { font-size: 11px; text-anchor: middle; dominant-baseline: central; } .grid .z { fill: var(--panel); }
.grid .end { text-anchor: end; } .grid .name { fill: var(--soft); font-size: 10px; }
.grid .q3 { fill: var(--p3-ink); } .grid .m3 { fill: var(--n3-ink); } .grid .q4 { fill: var(--p4-ink); }
.grid .wrong { fill: var(--warm); font-weight: 700; }
svg .title { font-size: 14px; font-weight: 600; text-anchor: start; fill: var(--ink); }
svg .legend { font-size: 12px; text-anchor: start; dominant-baseline: central; fill: var(--ink); stroke: none; }
svg .swatch { font-size: 11px; text-anchor: middle; dominant-baseline: central; stroke: none; }
svg .p3 .swatch { fill: var(--p3-ink); } svg .n3 .swatch { fill: var(--n3-ink); } svg :is(.p4, .n4) .swatch { fill: var(--p4-ink); }
svg .backdrop { fill: var(--paper); stroke: none; }
"""
SHADES = ("z", "p1", "p2", "p3", "p4", "n1", "n2", "n3", "n4")


def svg_files(page: str, keyed: bool = True) -> dict[str, str]:
    """Every figure of a page of ours, by its file name: `schedule-1-1.svg`; with its key unless it is drawn too small for one.

    The colours follow the reader's light or dark setting, where the program that shows the file knows one.
    """
    style = _Style(page)
    found = {}
    for section in re.findall(r"<section.*?</section>", page, re.DOTALL):
        root = ET.fromstring(section)
        shared = next((ul for ul in root.iter("ul") if _classes(ul)[:1] == ["key"]), None)
        for figure in root.iter("figure"):
            own = next((ul for ul in figure.iter("ul") if _classes(ul)[:1] == ["key"]), None)
            key = (own if own is not None else shared) if keyed else None
            drawings = [svg for svg in figure.iter("svg") if svg.get("id")]
            drawings += [grid_svg(table) for table in figure.iter("table") if table.get("id")]  # a table of coefficients becomes one
            for drawing in drawings:
                found[f"{drawing.get('id')}.svg"] = _alone(drawing, figure, key, style)
    return found


class _Style:
    def __init__(self, page: str) -> None:
        text = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
        assert text is not None, "every page of ours has a style"
        blocks = re.findall(r":root \{(.*?)\n *\}", text[1], re.DOTALL)[:2]
        self.light, dark = (dict(re.findall(r"(--[\w-]+): (#\w+);", block)) for block in blocks)
        self.dark = self.light | dark
        plain = re.sub(r"@media[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}|@page[^}]*\}", "", text[1])
        self.rules: list[tuple[str, str]] = [(s.strip(), d.strip()) for s, d in re.findall(r"([^{}]+)\{([^{}]*)\}", plain + OWN)]

    def of(self, classes: Sequence[str]) -> str:
        """The rules of these classes: in light colours, and again in dark ones."""
        known = {*classes, *(SHADES if {"grid", "picture"} & {*classes} else ())}
        rules = [(s, d) for s, d in self.rules if ":hover" not in s and ":focus" not in s and _concerns(s, known)]
        dark = [(s, "; ".join(part.strip() for part in d.split(";") if "var(" in part)) for s, d in rules]
        lines = [f"{s} {{ {_resolved(d, self.light)} }}" for s, d in rules]
        lines += ["@media (prefers-color-scheme: dark) {", *(f"{s} {{ {_resolved(d, self.dark)} }}" for s, d in dark if d), "}"]
        return "\n" + "\n".join(lines) + "\n"


def _concerns(selector: str, known: set[str]) -> bool:
    first = re.match(r"(svg)\b|\.([\w-]+)", selector)
    return first is not None and (selector[3:4] == " " if first[1] else first[2] in known)


def _resolved(declarations: str, colours: dict[str, str]) -> str:
    return re.sub(r"var\((--[\w-]+)\)", lambda found: colours[found[1]], declarations)


def _classes(element: ET.Element) -> list[str]:
    return (element.get("class") or "").split()


def _alone(drawing: ET.Element, figure: ET.Element, key: ET.Element | None, style: _Style) -> str:
    left, top, width, height = map(float, (drawing.get("viewBox") or "").split())
    title = next(("".join(e.itertext()) for e in figure if e.tag in ("figcaption", "h3")), "")
    head = LINE + 6 if title else 0.0
    width = max(width, TITLE * len(title))
    entries = [] if key is None else list(_key(key, left, top + height + LINE, max(width, 320.0)))
    foot = max((y for _, y in entries), default=top + height) - top - height + (LINE if entries else 0)
    classes = [*_classes(drawing), *_classes(figure)]
    box = (left - MARGIN, top - head - MARGIN, width + 2 * MARGIN, height + head + foot + 2 * MARGIN)
    place = dict(zip(("x", "y", "width", "height"), map(_number, box), strict=True))
    root = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "viewBox": " ".join(place.values())})
    root.attrib |= {
        "width": place["width"],
        "height": place["height"],
        "class": " ".join(classes),
        "role": "img",
        "aria-label": drawing.get("aria-label") or title,
    }
    ET.SubElement(root, "style").text = style.of(classes)
    ET.SubElement(root, "rect", {"class": "backdrop", **place})
    if title:
        ET.SubElement(root, "text", {"class": "title", "x": _number(left), "y": _number(top - head + 8)}).text = title
    for group in drawing.iter("g"):
        for child in [child for child in group if "tip" in _classes(child)]:
            group.remove(child)
    root.extend(drawing)
    root.extend(entry for entry, _ in entries)
    return ET.tostring(root, encoding="unicode") + "\n"


def _key(key: ET.Element, left: float, top: float, width: float) -> Iterator[tuple[ET.Element, float]]:
    x, y = left, top
    for item in key.iter("li"):
        words = " ".join("".join([*(child.tail or "" for child in item)]).split())
        mark = max(float(child.get("width") or SWATCH) for child in item)
        needed = mark + 8 + LETTER * len(words) + GAP
        if x > left and x + needed > left + width:
            x, y = left, y + LINE
        group = ET.Element("g", {"transform": f"translate({_number(x)} {_number(y)})"})
        group.extend(_swatch(item))
        ET.SubElement(group, "text", {"class": "legend", "x": _number(mark + 8), "y": "6"}).text = words
        yield group, y
        x += needed


def _swatch(item: ET.Element) -> Iterator[ET.Element]:
    for child in item:
        if child.tag == "svg":
            yield from child
        if child.tag == "b":
            box = ET.Element("g", {"class": f"box {child.get('class') or ''}"})
            ET.SubElement(box, "rect", {"class": child.get("class") or "", "width": _number(SWATCH), "height": "14", "y": "-1", "rx": "3"})
            ET.SubElement(box, "text", {"class": "swatch", "x": _number(SWATCH / 2), "y": "6"}).text = "".join(child.itertext()).strip()
            yield box


def _number(value: float) -> str:
    return f"{value:.6g}"


CELL, GRID_LETTER, HEIGHT, SPACE = 30.0, 6.4, 22.0, 20.0
"""The least width of a cell, that of a letter, the height of a row, and the space between two tables."""


def grid_svg(table: ET.Element) -> ET.Element:
    """The rows of the table as rectangles and texts, with its name and its classes for the shades."""
    rows = list(table.iter("tr"))
    names = GRID_LETTER * max(len(_text(row[0])) for row in rows) + 12
    cells = [cell for row in rows[1:] for cell in row[1:]]
    width = max(CELL, GRID_LETTER * max(len(_text(cell)) for cell in cells) + 6)
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
            ink = {"p3": "q3", "n3": "m3", "p4": "q4", "n4": "q4"}.get(css, css if cell.tag == "th" else "")
            yield _label(_text(cell), ink or ("name" if cell.tag == "th" else ""), x + span / 2, y)
        x += span


def _label(text: str, css: str, x: float, y: float) -> ET.Element:
    label = ET.Element("text", {"x": f"{x:g}", "y": f"{y + HEIGHT / 2:g}"} | ({"class": css} if css else {}))
    label.text = text
    return label


def _text(cell: ET.Element) -> str:
    return "".join(cell.itertext()).strip()
