"""Draw the README's pictures: python benchmarks/picture.py [--check]

The ratio to the best library by size comes from the committed results, the timeline of a schedule from its report.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drawn import IMAGES, RESULTS, keep
from tables import RUNS

import bilinear
from bilinear.reporting import play

TOP, DEPTH, BELOW = 92, 204, 54
"""Where the first panel begins, how high a panel is, and the room below it for the sizes and the title of the next one."""
PANEL, LEFT, GAP = 350, 50, 60  # The width of a panel, where the first one begins, and what is between two.
LOW, HIGH, STEP = 0.5, 4.0, 0.5
SIZES = (2048, 4096, 8192, 16384, 32768)
SERIES = ((("preserve", None), "memory", "memory unlimited"), (("restore", 0.0), "nothing", "nothing allocated: in place, inputs restored"))
FONT = "font-family: system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"


@dataclass(frozen=True)
class Theme:
    """The colours on a page: of the page, of text, of what matters less, of lines, and of each series."""

    page: str
    text: str
    quiet: str
    line: str
    memory: str
    nothing: str


@dataclass(frozen=True)
class Layout:
    """Size, the left edge of the text, where panels begin; where the second entry of the key stands, and the second half of the footnote.

    The footnote's second half has its own left edge, and so much of the footnote's height is its own line.
    """

    width: int
    height: int
    edge: int
    panels: tuple[tuple[int, int], ...]
    second: tuple[int, int]
    note: tuple[int, int]


LAYOUTS = {
    "": Layout(860, 362, LEFT, ((LEFT, TOP), (LEFT + PANEL + GAP, TOP)), (LEFT + 170, 48), (LEFT + 409, 0)),
    "narrow-": Layout(430, 652, 10, ((LEFT, TOP + 20), (LEFT, TOP + 20 + DEPTH + BELOW)), (10, 68), (10, 18)),
}
THEMES = {
    "light": Theme("#ffffff", "#1c1e21", "#5d636b", "#d5d9de", "#1f5fa8", "#b0441e"),
    "dark": Theme("#0d1117", "#e8eaed", "#a3abb5", "#3a4048", "#7db4f0", "#f09a72"),
}


def picture(results: list[dict[str, Any]], theme: Theme, layout: Layout) -> str:
    """The picture as SVG: one panel for each element type, one line for each limit of memory, and the interval of each ratio."""
    machine = results[0]["machine"]
    title = f"Times as fast as the fastest library, {machine['gpu']}"
    rows = [row for result in results for row in result["rows"]]
    foot = layout.height - 12
    libraries = "the fastest of cuBLAS, cublasLt, CuPy and PyTorch in one run;"
    commit = "bars: interval of the ratio; commits: docs/results.md"
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {layout.width} {layout.height}" width="{layout.width}"'
        f' height="{layout.height}" role="img">',
        f"<title>{title}</title>",
        f"<desc>{description(rows)}</desc>",
        "<style>",
        f"text {{ {FONT}; font-size: 13px; fill: {theme.text}; stroke: {theme.page}; stroke-width: 3px; paint-order: stroke }}",
        f".title {{ font-size: 15px; font-weight: 600 }} .quiet {{ font-size: 12px; fill: {theme.quiet} }} .end {{ text-anchor: end }}",
        f".middle {{ text-anchor: middle }} .grid {{ stroke: {theme.line} }} .one {{ stroke: {theme.quiet}; stroke-dasharray: 4 3 }}",
        "path, line { fill: none; stroke-width: 1 } .series { stroke-width: 2.5 } .bar { stroke-width: 1.5; fill: none }",
        *(f".{kind}-line {{ stroke: {getattr(theme, kind)} }} .{kind} {{ fill: {getattr(theme, kind)} }}" for _, kind, _ in SERIES),
        "</style>",
        f'<text class="title" x="{layout.edge}" y="26">{title}</text>',
        *legend(layout),
        *(line for dtype, (left, top) in zip(("float64", "float32"), layout.panels, strict=True) for line in panel(rows, dtype, left, top)),
        f'<text class="quiet" x="{layout.edge}" y="{foot - layout.note[1]}">{libraries}</text>',
        f'<text class="quiet" x="{layout.note[0]}" y="{foot}">{commit}</text>',
        "</svg>",
    ]
    return "\n".join(body) + "\n"


def description(rows: list[dict[str, Any]]) -> str:
    """The points in words."""
    told = []
    for (inputs, budget), _, name in SERIES:
        for dtype in ("float64", "float32"):
            found = ", ".join(f"{row['ratio']:.2f} at N = {row['n']}" for row in _points(rows, dtype, inputs, budget))
            told.append(f"{dtype}, {name}: {found}.")
    return " ".join(told)


def legend(layout: Layout) -> Iterator[str]:
    """What each colour and shape means."""
    for (_, kind, name), (x, y) in zip(SERIES, ((layout.edge, 48), layout.second), strict=True):
        yield f'<line class="series {kind}-line" x1="{x}" x2="{x + 26}" y1="{y}" y2="{y}"/>{_mark(kind, x + 13, y)}'
        yield f'<text x="{x + 34}" y="{y + 4}">{name}</text>'


def panel(rows: list[dict[str, Any]], dtype: str, left: float, top: float) -> Iterator[str]:
    """One element type: frame, axes, lines, points and their values."""
    yield f'<text x="{left}" y="{top - 14}">{dtype}</text>'
    for step in range(math.ceil(LOW / STEP), math.floor(HIGH / STEP) + 1):
        y, ratio = _down(step * STEP, top), step * STEP
        yield f'<line class="{"one" if ratio == 1 else "grid"}" x1="{left}" x2="{left + PANEL}" y1="{y:g}" y2="{y:g}"/>'
        yield f'<text class="quiet end" x="{left - 8}" y="{y + 4:g}">{ratio:.1f}</text>'
    for n in SIZES:
        yield f'<text class="quiet middle" x="{_across(n, left):g}" y="{top + DEPTH + 18}">{n}</text>'
    yield f'<text class="quiet" x="{left + PANEL + 4}" y="{top + DEPTH + 18}">N</text>'
    for (inputs, budget), kind, _ in SERIES:
        yield from _series(_points(rows, dtype, inputs, budget), kind, left, top)


def _series(points: list[dict[str, Any]], kind: str, left: float, top: float) -> Iterator[str]:
    places = [(_across(row["n"], left), _down(row["ratio"], top)) for row in points]
    for row, (x, _) in zip(points, places, strict=True):
        low, high = (_down(row[end], top) for end in ("ratio_low", "ratio_high"))
        yield f'<path class="bar {kind}-line" d="M{x - 7:g} {low:g}h14m-7 0V{high:g}m-7 0h14"/>'
    yield f'<path class="series {kind}-line" d="M{"L".join(f"{x:g} {y:g}" for x, y in places)}"/>'
    for row, (x, y) in zip(points, places, strict=True):
        end = _down(row["ratio_high"], top) - 7 if kind == "memory" else _down(row["ratio_low"], top) + 15
        yield f'{_mark(kind, x, y)}<text class="middle {kind}" x="{x:g}" y="{end:g}">{row["ratio"]:.2f}</text>'


def _points(rows: list[dict[str, Any]], dtype: str, inputs: str, budget: float | None) -> list[dict[str, Any]]:
    """The measurements of a line, by size."""
    found = {row["n"]: row for row in rows if (row["dtype"], row["inputs"], row["budget"]) == (dtype, inputs, budget)}
    return [found[n] for n in SIZES if n in found]


def _mark(kind: str, x: float, y: float) -> str:
    if kind == "memory":
        return f'<circle class="{kind}" cx="{x:g}" cy="{y:g}" r="3.5"/>'
    return f'<rect class="{kind}" x="{x - 3:g}" y="{y - 3:g}" width="6" height="6"/>'


def _across(n: int, left: float) -> float:
    return round(left + 24 + (PANEL - 48) * math.log2(n / SIZES[0]) / math.log2(SIZES[-1] / SIZES[0]), 1)


def _down(ratio: float, top: float) -> float:
    return round(top + DEPTH * (HIGH - ratio) / (HIGH - LOW), 1)


def timeline(page: str, theme: Theme) -> str:
    """The timeline of a report's page as a file of its own, in the colours of one theme: its bands, one below the other."""
    light, dark = (dict(re.findall(r"(--[\w-]+): (#\w+);", block)) for block in re.findall(r":root \{(.*?)\n *\}", page, re.DOTALL)[:2])
    colours = light if theme is THEMES["light"] else light | dark
    rules = [
        "text { font-family: system-ui, 'DejaVu Sans', sans-serif; fill: var(--ink) } .page { fill: var(--paper) }",
        *re.findall(r"^\.time .*$", page, re.MULTILINE),
    ]
    style = re.sub(r"var\((--[\w-]+)\)", lambda found: colours[found[1]], "\n".join(rules))
    bands = re.findall(r'<svg class="time"[^>]*viewBox="0 0 (\S+) (\S+)"[^>]*>(.*?</svg>)', page, re.DOTALL)
    lower = [sum(float(height) + 16 for _, height, _ in bands[:number]) for number in range(len(bands) + 1)]
    size = f'viewBox="0 0 {bands[0][0]} {lower[-1] - 16:g}" width="{bands[0][0]}"'
    page = f'<rect class="page" width="{bands[0][0]}" height="{lower[-1] - 16:g}"/>'
    label = "Timeline of the stages of MSMES, from the report"
    inner = "\n".join(
        f'<svg y="{y:g}" width="{width}" height="{height}">{body}' for y, (width, height, body) in zip(lower, bands, strict=False)
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="time" {size} role="img" aria-label="{label}">'
    return f"{head}\n<style>\n{style}\n</style>{page}{inner}</svg>\n"


def themed(name: str, draw: Callable[[Theme, bool], str]) -> dict[Path, str]:
    """A picture for a light and a dark page, wide and narrow, by the names of its files."""
    shapes = ("", False), ("narrow-", True)
    return {IMAGES / f"{name}-{shape}{kind}.svg": draw(theme, is_narrow) for shape, is_narrow in shapes for kind, theme in THEMES.items()}


def main() -> None:
    results = [json.loads((RESULTS / f"{name}-h200.json").read_text()) for name in RUNS]
    drawn = themed("speed", lambda theme, is_narrow: picture(results, theme, LAYOUTS["narrow-" if is_narrow else ""]))
    report = bilinear.load("msmes").verify()
    pages = [report.html()]
    play.MOST_WIDTH = 430.0  # a page with bands as wide as a phone
    pages.append(report.html())
    keep(drawn | themed("msmes", lambda theme, is_narrow: timeline(pages[is_narrow], theme)))


if __name__ == "__main__":
    main()
