"""A benchmark as text and as one HTML page: a row for each plan, pictures whose geometry is computed here, and what was not measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bilinear.ir.element import COMPILED, COMPLEX
from bilinear.ir.measurement import Benchmark, ErrorPoint, Measurement, Shape, is_slower
from bilinear.reporting.pages import (
    Chart,
    ChartPoint,
    ChartSeries,
    Scale,
    Tick,
    across,
    environment,
    path_through,
    power_of_ten,
    round_step,
    upwards,
    varying,
)
from bilinear.reporting.table import aligned
from bilinear.version import __version__
from bilinear.visible import visible_lines

LEAST_RATIO = 0.98  # A shape of the grid fails if the whole interval of its ratio lies below this.
_PLAN = ("ratio", "interval", "shape", "dtype", "plan", "ms", "library", "fastest", "predicted", "inputs", "budget", "N^2")
_TRUST = ("rounds", "exact", "restored", "error", "bound", "MHz", "W")
HEADER = (*_PLAN, *_TRUST)
ENERGY = "J", "library's J", "GFLOP/s/W"
COUNTED = "J: joules of a call by the driver's counter; GFLOP/s/W: operations of the classical product by the plan's joules."
UNCOUNTED = "The driver counted no joules."
NOTES = (
    "ratio: time of the fastest library over the plan's, with the interval of its median over the rounds; medians of interleaved rounds,",
    "fewer where calls are long, * on the device alone where they are short. exact, restored, error: of the same run, with a C of NaN.",
)


def bench_table(result: Benchmark) -> str:
    """The machine, the rows, how to read them, and what was not measured."""
    header, *rows = bench_cells(result)
    named = (("driver", "driver_version"), ("CuPy", "cupy"), ("cuBLAS", "cublas"), ("PyTorch", "torch"), ("commit", "commit"))
    versions = [f"{title} {result.machine[key]}" for title, key in named if result.machine.get(key)]
    limits = [f"at most {result.machine[key]}" for key in ("clocks.max.sm", "power.limit") if result.machine.get(key)]
    machine = ", ".join([str(result.machine.get("gpu")), *limits, *versions])
    lines = [machine, "", *aligned(rows, header), "", *NOTES, energy_note(result)]
    if result.left_out:
        lines += ["", "left out:", *(f"  {left.what}: {left.why}" for left in result.left_out)]
    return visible_lines(lines)


def bench_cells(result: Benchmark) -> Iterator[tuple[str, ...]]:
    """The header, and the cells of each row. There are columns of energy if any was counted."""
    counts = energy_note(result) == COUNTED
    yield (*HEADER, *ENERGY) if counts else HEADER
    for row in result.rows:
        told = ("-" if x is None else f"{x:.3g}" for x in (row.joules, row.library_joules, row.gflops_per_watt))
        yield (*bench_row(row), *told) if counts else bench_row(row)


def energy_note(result: Benchmark) -> str:
    """What the columns of energy are, or why there are none."""
    return COUNTED if any(row.joules is not None for row in result.rows) else UNCOUNTED


def bench_row(row: Measurement) -> tuple[str, ...]:
    """The cells of a row."""
    trust, load = row.trust, row.load
    budget = "-" if row.budget is None else f"{row.budget:g}"
    predicted = "-" if row.predicted_ms is None else _ms(row.predicted_ms)
    times = (_ms(row.ms), _ms(row.library_ms), row.library, predicted)
    interval = f"{row.interval.low:.3f}..{row.interval.high:.3f}"
    rounds = f"{len(row.times)}{'*' * (row.timing == 'device')}"
    checks = (_yes(trust.exact or not trust.is_integral), _yes(trust.restored), f"{trust.error:.1e}", f"{trust.bound:.1e}")
    loads = ("-" if value is None else f"{value:.0f}" for value in (load.clock, load.power))
    plan = (f"{row.ratio:.3f}", interval, shape_name(row.shape), row.dtype, row.plan)
    return (*plan, *times, row.inputs, budget, f"{workspace_share(row):.3f}", rounds, *checks, *loads)


def grid_summary(rows: Sequence[Measurement]) -> str:
    """How many shapes are slower than the library, and which."""
    if not rows:
        return "no shape was measured"
    slower = [row for row in rows if is_slower(row, LEAST_RATIO)]
    wrong = sum(not row.trust.holds for row in rows)
    worst = min(rows, key=lambda row: row.ratio)
    found = f"{len(rows)} shapes: median ratio {statistics.median(row.ratio for row in rows):.3f}, worst {_told(worst)}"
    failing = f"; {len(slower)} below {LEAST_RATIO}" + (f": {', '.join(map(_told, slower))}" if slower else "")
    return found + failing + f"; {wrong} wrong"


def _told(row: Measurement) -> str:
    return f"{shape_name(row.shape)} {row.dtype} {row.ratio:.3f} ({row.interval.low:.3f}..{row.interval.high:.3f}, {row.plan})"


def shape_name(shape: Shape) -> str:
    """`N` for cubes, else `MxKxN`."""
    return str(shape[0]) if len(set(shape)) == 1 else "x".join(map(str, shape))


def is_square(row: Measurement) -> bool:
    """True if all matrices are square with one size."""
    return len(set(row.shape)) == 1


def workspace_share(row: Measurement) -> float:
    """The workspace in units of C's size."""
    itemsize = COMPILED[row.dtype].bytes * (2 if row.dtype in COMPLEX else 1)
    return row.workspace / (row.shape[0] * row.shape[2] * itemsize)


def asked_name(row: Measurement) -> str:
    """The group of a row over all shapes: the columns of the tables of results, or levels by name."""
    if row.asked != "plan":
        return row.asked
    if row.budget is None:
        return f"memory unlimited{'' if row.inputs == 'preserve' else f', inputs {row.inputs}d'}"
    inputs = {"preserve": "untouched", "restore": "restored"}.get(row.inputs, row.inputs)
    return f"{f'{row.budget:g} N^2' if row.budget else 'nothing'} allocated, inputs {inputs}"


def _size(row: Measurement) -> float:
    return math.cbrt(math.prod(row.shape))


def _ms(value: float) -> str:
    """Milliseconds to three digits after the point, or five below one."""
    return f"{value:.3f}" if value >= 1 else f"{value:.5f}"


def _yes(value: bool) -> str:
    return "yes" if value else "NO"


BAR_WIDTH = 920.0
COLOURS, MARKS = 6, 3
"""The colours of lines, and the marks and dashes: neighbours differ in both, so that one shows below another; further lines repeat them."""


@dataclass(frozen=True)
class Bar:
    """A plan as a bar of its launches, each with its place, width, kind and words, and the table of them."""

    title: str
    segments: tuple[tuple[float, float, str, str], ...]
    table: tuple[tuple[str, ...], ...]


def ratio_charts(rows: Sequence[Measurement]) -> tuple[Chart, ...]:
    """One chart for each element type: the ratio to the library by size, with a line through the squares of each request."""
    found = []
    for dtype in dict.fromkeys(row.dtype for row in rows):
        own = [row for row in rows if row.dtype == dtype]
        sizes = sorted({math.cbrt(math.prod(row.shape)) for row in own})
        x = across([math.log2(size) for size in sizes])
        ratios = [row.ratio for row in own]
        low, high = min(*ratios, 0.95, 1.0), max(*ratios, 1.05)
        step = round_step(high - low, 6)
        low, high = math.floor(low / step) * step, math.ceil(high / step) * step
        y = upwards(low, high)
        ticks = tuple(Tick(y(low + i * step), f"{low + i * step:.2f}") for i in range(round((high - low) / step) + 1))
        found.append(Chart(dtype, "N", _sizes(sizes, x), ticks, tuple(_ratios(own, x, y)), y(1.0)))
    return tuple(found)


def _ratios(rows: Sequence[Measurement], x: Scale, y: Scale) -> Iterable[ChartSeries]:
    for number, name in enumerate(dict.fromkeys(map(asked_name, rows))):
        own = sorted((row for row in rows if asked_name(row) == name), key=_size)
        points = tuple(ChartPoint(x(math.log2(_size(row))), y(row.ratio), _title(row)) for row in own)
        squares = [point for point, row in zip(points, own, strict=True) if is_square(row)]
        yield bench_series(name, number, points, path_through(squares))


def bench_series(name: str, number: int, points: tuple[ChartPoint, ...], path: str, is_bound: bool = False) -> ChartSeries:
    """A line in a colour, and with a mark, that tell it apart from the others."""
    return ChartSeries(name, f"s{number % COLOURS}", points, path, (number + number // COLOURS) % MARKS, is_bound)


def _title(row: Measurement) -> str:
    return f"{shape_name(row.shape)}: {row.ratio:.3f} ({row.interval.low:.3f} to {row.interval.high:.3f}), {row.plan}, {row.ms:.3f} ms"


def error_charts(points: Sequence[ErrorPoint]) -> tuple[Chart, ...]:
    """One chart for each element type: the measured error and its bound by level, on a logarithmic scale."""
    found = []
    for dtype in dict.fromkeys(point.dtype for point in points):
        own = [point for point in points if point.dtype == dtype]
        decades = [math.log10(value) for point in own for value in (point.error, point.bound) if 0 < value < math.inf]
        if not decades:
            continue
        low, high = math.floor(min(decades)), max(math.ceil(max(decades)), math.floor(min(decades)) + 1)
        x, y = across([point.levels for point in own]), upwards(low, high)
        ticks = tuple(Tick(y(d), power_of_ten(d)) for d in range(low, high + 1, max(1, (high - low) // 6)))
        levels = tuple(Tick(x(level), str(level)) for level in sorted({point.levels for point in own}))
        series = [s for i, name in enumerate(dict.fromkeys(p.algorithm for p in own)) for s in _errors(own, name, i, x, y)]
        found.append(Chart(f"{dtype}, N = {own[0].size}", "levels", levels, ticks, tuple(series)))
    return tuple(found)


def _errors(points: Sequence[ErrorPoint], name: str, number: int, x: Scale, y: Scale) -> Iterable[ChartSeries]:
    own = sorted((point for point in points if point.algorithm == name), key=lambda point: point.levels)
    for is_bound in (False, True):
        values = [(point.levels, point.bound if is_bound else point.error) for point in own]
        marks = tuple(ChartPoint(x(level), y(math.log10(v)), f"{v:.2e}") for level, v in values if 0 < v < math.inf)
        yield bench_series(f"{name}, {'bound' if is_bound else 'measured'}", number, marks, path_through(marks), is_bound)


def launch_bars(rows: Sequence[Measurement]) -> tuple[Bar, ...]:
    """One bar for each plan, on the largest shape of each element type whose launches were timed."""
    bars: list[Bar] = []
    for dtype in dict.fromkeys(row.dtype for row in rows):
        own = [row for row in rows if row.dtype == dtype and row.launches]
        largest = max(map(_size, own), default=0.0)
        bars += map(_bar, {row.plan: row for row in own if _size(row) == largest}.values())
    return tuple(bars)


def _bar(row: Measurement) -> Bar:
    total = math.fsum(launch.ms for launch in row.launches)
    segments, table, x = [], [("launch", "kind", "what", "ms", "share", "rate")], 0.0
    for number, launch in enumerate(row.launches, 1):
        width = BAR_WIDTH * launch.ms / total
        cells = (str(number), launch.kind, launch.what, f"{launch.ms:.3f}", f"{launch.ms / total:.1%}", launch.rate)
        segments.append((round(x, 2), round(width, 2), launch.kind, ", ".join(cells[1:])))
        table.append(cells)
        x += width
    title = f"{row.plan}, {shape_name(row.shape)}, {row.dtype}: {total:.3f} ms in {len(row.launches)} launches"
    return Bar(title, tuple(segments), tuple(table))


def _sizes(sizes: Sequence[float], x: Scale) -> tuple[Tick, ...]:
    marks: Sequence[float] = sizes
    if len(sizes) > 7:
        first, last = math.ceil(math.log2(sizes[0])), math.floor(math.log2(sizes[-1]))
        marks = [2.0**power for power in range(first, last + 1, max(1, (last - first) // 6))]
    return tuple(Tick(x(math.log2(size)), f"{size:.0f}") for size in marks)


FACTS = (
    ("GPU", "gpu"),
    ("driver", "driver_version"),
    ("largest clock", "clocks.max.sm"),
    ("power limit", "power.limit"),
    ("CUDA", "cuda"),
    ("cuBLAS", "cublas"),
    ("CuPy", "cupy"),
    ("PyTorch", "torch"),
    ("NumPy", "numpy"),
    ("Python", "python"),
    ("bilinear", "bilinear"),
    ("commit", "commit"),
)
MOST_LAUNCHES = 40  # The most launches of a plan that are listed; all are drawn.


def bench_html(result: Benchmark, date: str = "") -> str:
    """The benchmark as one self-contained HTML page without scripts; the footer tells the `date` if one is given."""
    table, alike = varying(tuple(bench_cells(result)), HEADER[:6])
    known = [(title, str(result.machine[key])) for title, key in FACTS if result.machine.get(key)]
    template = environment(html=True).get_template("bench.html.j2")
    return template.render(
        gpu=result.machine.get("gpu") or "no GPU",
        columns=(known[::2], known[1::2]),
        command=" ".join(result.command),
        failing=len(result.failing),
        count=len(result.rows),
        ratios=ratio_charts(result.rows),
        bars=launch_bars(result.rows),
        most=MOST_LAUNCHES,
        errors=error_charts(result.errors),
        table=table,
        alike=alike,
        notes=" ".join((*NOTES, energy_note(result))),
        left_out=result.left_out,
        version=__version__,
        date=date,
    )
