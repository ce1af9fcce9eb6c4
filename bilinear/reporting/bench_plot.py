"""A benchmark as a PNG: ratio by size, time by launch, error by level. Needs matplotlib, the extra `plot`."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from bilinear.errors import fail, install
from bilinear.ir.measurement import Benchmark, ErrorPoint, Measurement
from bilinear.reporting.bench_page import asked_name, is_square, machine_line, plans_with_launches, shape_name, size_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#1f5fa8", "#b0441e", "#2c6e49", "#ad841a", "#5d636b", "#1c1e21")
STYLES = (("o", "-"), ("s", "--"), ("D", "-."))
KINDS = {"sums": "#a9caec", "products": "#f1e2b4", "strip": "#f0b79c"}
PANEL, BAR = (7.0, 4.2), 0.45
"""Inches of a panel, and of a bar."""
MOST_TICKS = 7


def require_matplotlib() -> None:
    """Refuse (E683) if matplotlib is missing."""
    if find_spec("matplotlib") is None:
        raise fail("E683", "a PNG is drawn by matplotlib, which is not installed", f"{install('plot')}, or use --html")


def bench_png(result: Benchmark) -> bytes:
    """The picture, with one column for each element type; raises `BilinearError` (E683) without matplotlib."""
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    dtypes = list(dict.fromkeys([row.dtype for row in result.rows] + [point.dtype for point in result.errors])) or ["nothing measured"]
    plans = {dtype: [row for row in plans_with_launches(result.rows) if row.dtype == dtype] for dtype in dtypes}
    most = max(map(len, plans.values()))
    heights = [PANEL[1], *([1.2 + BAR * most] if most else []), *([PANEL[1]] if result.errors else [])]
    figure = Figure(figsize=(PANEL[0] * len(dtypes), sum(heights) + 0.8), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    figure.suptitle(machine_line(result), fontsize=9)
    grid = figure.add_gridspec(len(heights), len(dtypes), height_ratios=heights)
    for column, dtype in enumerate(dtypes):
        _ratios(figure.add_subplot(grid[0, column]), dtype, [row for row in result.rows if row.dtype == dtype])
        if most:
            _launches(figure.add_subplot(grid[1, column]), plans[dtype])
        if result.errors:
            _errors(figure.add_subplot(grid[-1, column]), [point for point in result.errors if point.dtype == dtype])
    file = io.BytesIO()
    canvas.print_figure(file, format="png", dpi=110)
    return file.getvalue()


def _style(number: int) -> tuple[str, str, str]:
    """The colour, the mark and the dashes of a line."""
    return COLOURS[number % len(COLOURS)], *STYLES[number // len(COLOURS) % len(STYLES)]


def _ratios(axes: Axes, dtype: str, rows: Sequence[Measurement]) -> None:
    axes.set_title(f"{dtype}: time of the library over the plan's", fontsize=10)
    axes.axhline(1.0, color="#5d636b", linestyle="--", linewidth=1)
    for number, name in enumerate(dict.fromkeys(map(asked_name, rows))):
        own = sorted((row for row in rows if asked_name(row) == name), key=lambda row: size_of(row.shape))
        sizes, ratios = [size_of(row.shape) for row in own], [row.ratio for row in own]
        reach = [[row.ratio - row.interval.low for row in own], [row.interval.high - row.ratio for row in own]]
        spread = [[max(0.0, value) for value in side] for side in reach]  # the ratio of medians may lie outside the interval
        (colour, mark, dash), squares = _style(number), [row for row in own if is_square(row)]
        axes.errorbar(sizes, ratios, yerr=spread, label=name, capsize=2, marker=mark, markersize=4, linestyle="", color=colour)
        axes.plot([row.shape[0] for row in squares], [row.ratio for row in squares], linewidth=1.5, linestyle=dash, color=colour)
    axes.set_xscale("log", base=2)
    sizes = sorted({size_of(row.shape) for row in rows})
    if len(sizes) <= MOST_TICKS:
        axes.set_xticks(sizes, [f"{size:.0f}" for size in sizes])
        axes.minorticks_off()
    axes.set_xlabel("N (of the cube of as many operations)")
    axes.grid(alpha=0.3)
    if rows:
        axes.legend(fontsize=8)


def _launches(axes: Axes, rows: Sequence[Measurement]) -> None:
    axes.set_title(f"time by launch, N = {shape_name(rows[0].shape)}" if rows else "time by launch", fontsize=10)
    for number, row in enumerate(rows):
        start = 0.0
        for launch in row.launches:
            axes.barh(number, launch.ms, left=start, color=KINDS[launch.kind], edgecolor="#5d636b", linewidth=0.6, height=0.7)
            start += launch.ms
    axes.set_yticks(range(len(rows)), [row.plan for row in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("ms: sums blue, products yellow, strips red")


def _errors(axes: Axes, points: Sequence[ErrorPoint]) -> None:
    axes.set_title("error by level, in units of max|A| max|B|" + (f", N = {points[0].size}" if points else ""), fontsize=10)
    for number, name in enumerate(dict.fromkeys(point.algorithm for point in points)):
        own = sorted((point for point in points if point.algorithm == name), key=lambda point: point.levels)
        levels, (colour, mark, dash) = [point.levels for point in own], _style(number)
        errors = [point.error or math.nan for point in own]  # an error of 0 is not drawn
        axes.plot(levels, errors, marker=mark, markersize=4, linestyle=dash, color=colour, label=f"{name}, measured")
        axes.plot(levels, [point.bound for point in own], marker=mark, markersize=4, mfc="w", ls=":", color=colour, label=f"{name}, bound")
    axes.set_yscale("log")
    axes.set_xticks(sorted({point.levels for point in points}))
    axes.set_xlabel("levels (0: the library)")
    axes.grid(alpha=0.3)
    if points:
        axes.legend(fontsize=8)
