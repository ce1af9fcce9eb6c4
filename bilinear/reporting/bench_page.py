"""A benchmark as one HTML page: the pictures, the table, and what was not measured."""

from __future__ import annotations

from bilinear.ir.measurement import Benchmark
from bilinear.reporting.bench_chart import error_charts, launch_bars, ratio_charts
from bilinear.reporting.bench_table import HEADER, NOTES, bench_row
from bilinear.reporting.pages import environment
from bilinear.version import __version__

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
MOST_LAUNCHES = 40
"""The most launches of a plan that are listed; all are drawn."""


def bench_html(result: Benchmark, date: str = "") -> str:
    """The benchmark as one self-contained HTML page: styles and drawings inside, no external files, no script.

    The footer tells the `date` if one is given.
    """
    known = [(title, str(result.machine[key])) for title, key in FACTS if result.machine.get(key)]
    return (
        environment(html=True)
        .get_template("bench.html.j2")
        .render(
            gpu=result.machine.get("gpu") or "no GPU",
            columns=(known[::2], known[1::2]),
            command=" ".join(result.command),
            failing=len(result.failing),
            count=len(result.rows),
            ratios=ratio_charts(result.rows),
            bars=launch_bars(result.rows),
            most=MOST_LAUNCHES,
            errors=error_charts(result.errors),
            table=(HEADER, *map(bench_row, result.rows)),
            notes=" ".join(NOTES),
            left_out=result.left_out,
            version=__version__,
            date=date,
        )
    )
