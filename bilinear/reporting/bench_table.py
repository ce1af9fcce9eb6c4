"""A benchmark as text: one row for each plan, what was not measured, and a summary of the grid."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from bilinear.ir.element import COMPILED, COMPLEX
from bilinear.ir.measurement import Benchmark, Measurement, Shape, is_slower
from bilinear.reporting.table import aligned
from bilinear.visible import visible_lines

LEAST_RATIO = 0.98
"""A shape of the grid fails if the whole interval of its ratio lies below this."""
_PLAN = ("shape", "dtype", "inputs", "budget", "plan", "N^2")
_TIME = ("predicted", "ms", "library", "fastest", "ratio", "interval", "rounds")
_TRUST = ("exact", "restored", "error", "bound", "MHz", "W")
HEADER = (*_PLAN, *_TIME, *_TRUST)
NOTES = (
    "ratio: time of the fastest library over the plan's, with the interval of its median over the rounds; medians of interleaved rounds,",
    "fewer where calls are long, * on the device alone where they are short. exact, restored, error: of the same run, with a C of NaN.",
)


def bench_table(result: Benchmark) -> str:
    """The machine, the rows, how to read them, and what was not measured."""
    lines = [machine_line(result), "", *aligned([bench_row(row) for row in result.rows], HEADER), "", *NOTES]
    if result.left_out:
        lines += ["", "left out:", *(f"  {left.what}: {left.why}" for left in result.left_out)]
    return visible_lines(lines)


def bench_row(row: Measurement) -> tuple[str, ...]:
    """The cells of a row."""
    trust, load = row.trust, row.load
    budget = "-" if row.budget is None else f"{row.budget:g}"
    predicted = "-" if row.predicted_ms is None else _ms(row.predicted_ms)
    times = (_ms(row.ms), _ms(row.library_ms), row.library, f"{row.ratio:.3f}")
    interval = f"{row.interval.low:.3f}..{row.interval.high:.3f}"
    rounds = f"{len(row.times)}{'*' * (row.timing == 'device')}"
    checks = (_yes(trust.exact or not trust.is_integral), _yes(trust.restored), f"{trust.error:.1e}", f"{trust.bound:.1e}")
    loads = ("-" if value is None else f"{value:.0f}" for value in (load.clock, load.power))
    plan = (shape_name(row.shape), row.dtype, row.inputs, budget, row.plan, f"{workspace_share(row):.3f}")
    return (*plan, predicted, *times, interval, rounds, *checks, *loads)


def machine_line(result: Benchmark) -> str:
    """GPU, versions and commit, as far as known."""
    named = (("driver", "driver_version"), ("CuPy", "cupy"), ("cuBLAS", "cublas"), ("PyTorch", "torch"), ("commit", "commit"))
    found = [f"{title} {result.machine[key]}" for title, key in named if result.machine.get(key)]
    limits = [f"at most {result.machine[key]}" for key in ("clocks.max.sm", "power.limit") if result.machine.get(key)]
    return ", ".join([str(result.machine.get("gpu")), *limits, *found])


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


def plans_with_launches(rows: Sequence[Measurement]) -> Iterator[Measurement]:
    """For each element type, the rows of its largest shape whose launches were timed, each plan once."""
    for dtype in dict.fromkeys(row.dtype for row in rows):
        own = [row for row in rows if row.dtype == dtype and row.launches]
        largest = max((_size(row) for row in own), default=0.0)
        yield from {row.plan: row for row in own if _size(row) == largest}.values()


def size_of(shape: Shape) -> float:
    """The side of a cube with the same number of operations."""
    return math.cbrt(math.prod(shape))


def _size(row: Measurement) -> float:
    return size_of(row.shape)


def _ms(value: float) -> str:
    """Milliseconds to three digits after the point, or five below one."""
    return f"{value:.3f}" if value >= 1 else f"{value:.5f}"


def _yes(value: bool) -> str:
    return "yes" if value else "NO"
