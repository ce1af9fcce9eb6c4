"""Write the figures of docs/msmes.md from committed results: python benchmarks/thesis.py [--check]

From the points of the performance model: where the time of MSMES goes by stage, beside table 3.2 of Krishnan (2021). From
`msmes_single.py`: from which size on a level is ahead, and what unified memory costs. From the thesis's own model (`bilinear plan --model
thesis`): its bounds beside what the thesis prints, and beside what was measured here. From `largest.py`: the largest N of a memory.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

from drawn import RESULTS, ROOT, filled, keep
from largest import WAYS, largest
from picture import FONT, Theme, themed

from bilinear.planner.best_case import BestCase, best_cases, sheet_named

PAGE = ROOT / "docs" / "msmes.md"
MODEL, SINGLE = RESULTS / "model-all-h200.json", RESULTS / "msmes-single-h200.json"
TILES, THREADS = RESULTS / "tiles-h200.json", 2048
"""Times of products by tile, and the threads that a multiprocessor of an H200 holds."""
LIBRARIES = ("cublas", "cublaslt", "cupy", "torch")
STAGES = ("sums before", "4 products", "sums between", "3 products", "sums after")
LAUNCHES = (slice(0, 1), slice(1, 3), slice(3, 4), slice(4, 6), slice(6, 7))
"""The launches of one level: a map, two colours of products, a map, two colours, a map."""
THESIS = (0.5, 56.3, 0.5 + 0.26, 41.7, 0.26 + 0.5)
"""Table 3.2, averages over N of stages 1; 2; 3 and 4; 5; 6 and 7, in percent, on a V100."""
SIZES = (2048, 16384)
SHOWN = (1024, 2048, 4096, 8192, 12288)  # The sizes of the rows on the page; the results have more.
LEVELS = (1, 2, 3)
Times = dict[tuple[str, int, int], dict[str, Any]]
"""The fastest row by element type, size and levels; the library is at no level."""


def fastest(rows: list[dict[str, Any]]) -> Times:
    found: Times = {}
    for row in rows:
        if len(set(row["shape"])) == 1 and set(row["levels"]) <= {"msmes"}:
            key = row["dtype"], row["shape"][0], len(row["levels"])
            found[key] = min(row, found.get(key, row), key=lambda r: float(r["ms"]))
    return found


def shares(times: Times) -> Iterator[str]:
    """Percent of the launches' time by stage, one level."""
    yield f"| | N | {' | '.join(STAGES)} |"
    yield "|---|--:|" + "--:|" * len(STAGES)
    for n in SIZES:
        stages = times["float64", n, 1]["stages"]
        parts = (100 * sum(stages[part]) / sum(stages) for part in LAUNCHES)
        yield f"| H200, float64 | {n} | {' | '.join(f'{part:.1f}' for part in parts)} |"
    yield f"| V100, float64 (table 3.2) | 256 to 12544 | {' | '.join(f'{part:.1f}' for part in THESIS)} |"


CROSSOVERS = (
    ("one level before the library", 0, 1, "1152 (V100), 896 (GTX 1660 Ti)"),
    ("two levels before the library", 0, 2, ""),
    ("three levels before the library", 0, 3, ""),
    ("two levels before one", 1, 2, "2048 or less (V100)"),
    ("three levels before two", 2, 3, ""),
)
"""Which levels are compared (the library at none), and what the thesis says, in float64."""


def single(rows: list[dict[str, Any]]) -> Iterator[str]:
    """From which size on a level is ahead, and how far."""
    found: dict[str, dict[int, list[float]]] = {"float64": {}, "float32": {}}
    for row in rows:
        if row["part"] == "levels":
            ms = row["ms"]
            found[row["dtype"]][row["n"]] = [min(ms[name] for name in LIBRARIES), *(ms[f"msmes {level}"] for level in LEVELS)]
    yield "| ahead from N on | float64 | float32 | thesis, float64 |"
    yield "|---|--:|--:|---|"
    for what, slower, faster, thesis in CROSSOVERS:
        yield f"| {what} | {' | '.join(ahead_from(found[dtype], slower, faster) for dtype in found)} | {thesis} |"
    yield from ("", "| library over levels, N | float64: 1 | 2 | 3 | float32: 1 | 2 | 3 |", "|--:|" + "--:|" * 6)
    for n in sorted(found["float64"].keys() & SHOWN):
        yield f"| {n} | {' | '.join(f'{times[n][0] / times[n][level]:.2f}' for times in found.values() for level in LEVELS)} |"


def ahead_from(times: dict[int, list[float]], slower: int, faster: int) -> str:
    """The first size from which on one is faster than the other at all larger ones."""
    sizes = sorted(times)
    behind = [i for i, n in enumerate(sizes) if times[n][faster] >= times[n][slower]]
    first = behind[-1] + 1 if behind else 0
    return str(sizes[first]) if first < len(sizes) else f"above {sizes[-1]}"


def memory(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Milliseconds by where the operands lie; of two calls the faster one."""
    places = {"device": "on the device", "resident": "unified, used on the device before"}
    places |= {"on the host": "unified, written on the host before", "crowded": "unified, 60 % fit"}
    yield "| operands, float64 | N | CuPy | msmes, 1 level | 2 levels |"
    yield "|---|--:|--:|--:|--:|"
    for where, told in places.items():
        own = {r["what"]: r for r in rows if r.get("where", r["part"]) == where and r.get("dtype") == "float64" and r["part"] != "levels"}
        if own:
            ms = (f"{min(own[name]['ms']):.1f}" if name in own else "" for name in ("cupy", "msmes 1", "msmes 2"))
            yield f"| {told} | {own['cupy']['n']} | {' | '.join(ms)} |"


TESTED = tuple(range(256, 16385, 128))
"""Sizes of which the thesis's means and maxima are taken to be; it does not print its steps."""
WRITTEN, COMPILED = "as written", "as compiled"


@cache
def bounds(card: str, n: int) -> dict[tuple[str, int], BestCase]:
    """What the thesis's model says of float64 by schedule and levels; the plain multiply is at no level."""
    return {
        (WRITTEN if one.schedule == "plain" else one.schedule, len(one.levels)): one
        for one in best_cases((n,) * 3, "float64", sheet_named(card))
    }


def gain(card: str, n: int, faster: int, slower: int = 0, schedule: str = WRITTEN) -> float:
    """Least time at `slower` levels over that at `faster` levels."""
    own = bounds(card, n)
    return own[schedule if slower else WRITTEN, slower].least / own[schedule, faster].least


FIGURES = (("3.5", "gtx1660ti", 896, "1.077"), ("3.6", "v100", 1152, "1.071"))
"""Where one level is level with cuBLAS, and its mean gain beyond."""
MAXIMA = (("3.7", 2, 1, "1.125", 2048), ("3.7", 2, 0, "1.23", 7168), ("3.8", 3, 1, "1.21", 16384), ("3.8", 3, 0, "1.25", 7168))
"""The largest gains of levels over others, and where, on the V100."""


def predicted() -> Iterator[str]:
    """Figures 3.5 to 3.8: what is printed of them, and what the model says for the same card and sizes."""
    yield "| figure | | printed | model, as written | as compiled |"
    yield "|---|---|--:|--:|--:|"
    for figure, card, after, printed in FIGURES:
        gains = {s: {n: gain(card, n, 1, schedule=s) for n in TESTED} for s in (WRITTEN, COMPILED)}
        name = sheet_named(card).name
        ahead = (str(next(n for n in TESTED if own[n] > 1)) for own in gains.values())
        means = (f"{mean(ratio for n, ratio in own.items() if n > after):.3f}" for own in gains.values())
        yield f"| {figure} | {name}: one level ahead of cuBLAS, or of the plain multiply, from N | {after} | {' | '.join(ahead)} |"
        yield f"| {figure} | {name}: mean gain beyond | {printed} | {' | '.join(means)} |"
    for figure, faster, slower, printed, n in MAXIMA:
        own = (f"{gain('v100', n, faster, slower, s):.3f}" for s in (WRITTEN, COMPILED))
        yield f"| {figure} | V100: {faster} levels over {'one' if slower else 'cuBLAS'}, N = {n} | {printed} | {' | '.join(own)} |"


def largest_sizes() -> Iterator[str]:
    """The largest N of a card's memory by algorithm, in float64."""
    memories = 6, 16, 80, 141
    yield f"| A, B, C and the workspace fill | {' | '.join(f'{one} GB' for one in memories)} |"
    yield "|---|" + "--:|" * len(memories)
    for name in ("the library", "msmes, 3", "winograd_depth_first, 1", "winograd_depth_first, 3", "s_mm, 1", "winograd, 2"):
        yield f"| {name} | {' | '.join(str(largest(WAYS[name], 1e9 * one, 'float64')) for one in memories)} |"


def tiles() -> Iterator[str]:
    """What four tiles of the products of two levels leave of a multiprocessor, and their speed."""
    result = json.loads(TILES.read_text())
    where = f"{result['machine']['gpu']}, commit {result['runs']['2']['commit']}, {TILES.relative_to(ROOT)}"
    yield f"{where}: two levels, N = 8192, products alone"
    yield from ("", "| tile | threads | blocks at once | occupancy | float64 TFLOP/s | float32 |", "|---|--:|--:|--:|--:|--:|")
    rows = [
        row
        for row in result["rows"]
        if (row["run"], row["algorithm"], row["size"], row["levels"]) == (2, "msmes", 8192, 2) and row["timed"] == "products"
    ]
    speeds = {(row["dtype"], row["tile"]): row["tflop_s"] for row in rows}
    for shape, warps, blocks in (("64x64x32", "2x2", 3), ("128x64x32", "2x2", 2), ("64x128x32", "2x2", 2), ("128x128x32", "2x4", 1)):
        slices = {"float64": 2, "float32": 2 if blocks == 1 else 3}
        own = (f"{speeds[dtype, f'{shape} {warps} s{count} b{blocks} Mma']:.1f}" for dtype, count in slices.items())
        threads = 32 * math.prod(map(int, warps.split("x")))
        yield f"| {shape} | {threads} | {blocks} | {blocks * threads / THREADS:.0%} | {' | '.join(own)} |"


LEFT, TOP, PANEL, DEPTH, LOW, HIGH = 46, 84, 350, 220, 0.4, 1.5
AXIS = (512, 1024, 2048, 4096, 8192, 16384)
PRINTED = {1: ((1152, 1.0),), 2: ((7168, 1.23),), 3: ((7168, 1.25),)}
"""Where one level is level with cuBLAS on the V100, and the maxima of two and three."""


def picture(theme: Theme, is_narrow: bool) -> str:
    """Gain over the plain multiply by size: the model's curves, with what the thesis prints, and with what was measured here."""
    corners = [(LEFT, TOP + i * (DEPTH + 62)) if is_narrow else (LEFT + i * (PANEL + 50), TOP) for i in range(2)]
    width, height = corners[1][0] + PANEL + 24, corners[1][1] + DEPTH + 34
    title = "Times as fast as the plain multiply, float64"
    points: dict[int, list[tuple[int, float]]] = {level: [] for level in LEVELS}
    for row in json.loads(SINGLE.read_text())["rows"]:
        if row["part"] == "levels" and row["dtype"] == "float64":
            for level in LEVELS:
                points[level].append((row["n"], min(row["ms"][name] for name in LIBRARIES) / row["ms"][f"msmes {level}"]))
    colours = dict(zip(LEVELS, (theme.memory, theme.nothing, theme.quiet), strict=True))
    legend = ((20 + 82 * i, colours[level], f"{level} level{'s' * (level > 1)}") for i, level in enumerate(LEVELS))
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
        f"<title>{title}</title>",
        f"<style>text {{ {FONT}; font-size: 12px; fill: {theme.text} }} .title {{ font-size: 15px; font-weight: 600 }}",
        f".end {{ text-anchor: end }} .middle {{ text-anchor: middle }} .grid {{ stroke: {theme.line} }}",
        "path { fill: none; stroke-width: 2 }</style>",
        f'<text class="title" x="14" y="24">{title}</text>',
        *(f'<circle cx="{x}" cy="42" r="5" fill="{colour}"/><text x="{x + 10}" y="46">{name}</text>' for x, colour, name in legend),
    ]
    names: tuple[tuple[str, str, Any], ...] = (
        ("v100", "V100: model; dots: printed", PRINTED),
        ("h200", "H200: model; dots: measured", points),
    )
    for (left, top), (card, name, shown) in zip(corners, names, strict=True):
        body.append(f'<text x="{left}" y="{top - 12}">{name}</text>')
        for step in range(round(10 * LOW), round(10 * HIGH) + 1, 2):
            y = _down(step / 10, top)
            body.append(
                f'<line class="grid" x1="{left}" x2="{left + PANEL}" y1="{y}" y2="{y}"/>'
                f'<text class="end" x="{left - 6}" y="{y + 4}">{step / 10}</text>'
            )
        body += [f'<text class="middle" x="{_across(n, left)}" y="{top + DEPTH + 18}">{n}</text>' for n in AXIS]
        for level in LEVELS:
            gains = ((n, gain(card, n, level, schedule=COMPILED)) for n in TESTED[2::3])
            curve = "L".join(f"{_across(n, left)} {_down(ratio, top)}" for n, ratio in gains if ratio >= LOW)
            body.append(f'<path stroke="{colours[level]}" d="M{curve}"/>')
            dots = ((n, ratio) for n, ratio in shown[level] if ratio >= LOW)
            body += [f'<circle cx="{_across(n, left)}" cy="{_down(ratio, top)}" r="4" fill="{colours[level]}"/>' for n, ratio in dots]
    return "\n".join([*body, "</svg>", ""])


def _across(n: int, left: float) -> float:
    return round(left + PANEL * math.log(n / AXIS[0]) / math.log(AXIS[-1] / AXIS[0]), 1)


def _down(ratio: float, top: float) -> float:
    return round(top + DEPTH * (HIGH - ratio) / (HIGH - LOW), 1)


def drawn(page: str) -> str:
    """The page with its figures drawn anew."""
    points, one = json.loads(MODEL.read_text()), json.loads(SINGLE.read_text())
    times = fastest(points["rows"])
    shown = "Percent of the time of one level:", "", *shares(times)
    figures, levels = (source(points, MODEL), "", *shown), (source(one, SINGLE), "", *single(one["rows"]))
    return filled(
        page,
        figures="\n".join(figures),
        single="\n".join(levels),
        tiles="\n".join(tiles()),
        model="\n".join(predicted()),
        largest="\n".join(largest_sizes()),
        memory="\n".join(memory(one["rows"])),
    )


def source(result: dict[str, Any], path: Path) -> str:
    return f"{result['machine']['gpu']}, commit {result['machine']['commit']}, {path.relative_to(ROOT)}"


if __name__ == "__main__":
    keep({PAGE: drawn(PAGE.read_text())} | themed("thesis-model", picture))
