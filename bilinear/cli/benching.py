"""bench."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from bilinear.cli.options import device_files, nothing_measured, progress_bar, read_dtypes, read_seconds, say, words
from bilinear.cli.pages import Svg, require_pages, write_pages
from bilinear.errors import BilinearError, Diagnostic, fail
from bilinear.ir.measurement import Benchmark
from bilinear.writing import write_file

SIZES = "2048,4096,8192,16384,32768"


def bench(
    sizes: Annotated[str | None, typer.Option(help=f"Sizes, comma-separated, each N or MxKxN (default: {SIZES}).")] = None,
    dtypes: Annotated[str, typer.Option(help="Element types, comma-separated.")] = "float64,float32",
    shapes_file: Annotated[Path | None, typer.Option(help="Measure the shapes of a file, N or MxKxN a line.")] = None,
    grid: Annotated[bool, typer.Option("--grid", help="Measure `auto` on 200 shapes of all kinds.")] = False,
    algorithms: Annotated[
        str | None, typer.Option(help="What to run: plan (the planner's choice under three limits), auto, NAME:LEVELS, OUTER+INNER.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="The most rounds of calls (default: 7; for the grid 25).")] = None,
    time: Annotated[str, typer.Option(help="Start no further shape after this time: seconds, or 90s, 5m.")] = "",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the results to a file as they are found.")] = None,
    png: Annotated[Path | None, typer.Option("--png", help="Draw the results (needs the extra plot).")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write a page with pictures and the table.")] = None,
    svg: Svg = None,
) -> None:
    """Measure plans beside the library on the current GPU, each checked in the same run."""
    from bilinear.measure import bench as measuring
    from bilinear.measure.bench_tasks import build_ahead, tasks_for
    from bilinear.reporting.bench_plot import require_matplotlib
    from bilinear.reporting.bench_table import bench_table, grid_summary

    if sum((sizes is not None, shapes_file is not None, grid)) > 1:
        raise fail("E684", "--sizes, --shapes-file and --grid each say what is measured", "give one of them")
    seconds = read_seconds(time) if time else None
    tasks = tasks_for(sizes or SIZES, shapes_file, grid, read_dtypes(dtypes), words(algorithms or ("auto" if grid else "plan")))
    require_pages(html, svg, json_file, png, unread=device_files())
    measuring.require_gpu()
    if png is not None:
        require_matplotlib()
    effort = measuring.effort(grid, rounds, seconds)
    with progress_bar() as progress:
        device = measuring.described(tasks, progress)
        build_ahead(tasks, device, progress)
        result = measuring.collect(measuring.measure(tasks, device, effort, progress), "bench", ["bilinear", *sys.argv[1:]], json_file)
        if (html or svg or png) and not grid:
            result = measuring.with_errors(result, device, progress)
            measuring.save(result, json_file)
    print(bench_table(result), *([f"\n{grid_summary(result.rows)}"] if grid else []), sep="\n")
    _write_pages(result, png, html, svg)
    written = [str(path) for path in (json_file, png, html, svg) if path is not None]
    if written:
        say("", f"written to {', '.join(written)}")
    _require_checks(result)


def _write_pages(result: Benchmark, png: Path | None, html: Path | None, svg: Path | None) -> None:
    from bilinear.reporting.bench_page import bench_html
    from bilinear.reporting.bench_plot import bench_png

    if png is not None:
        write_file(png, bench_png(result))
    write_pages(lambda date: bench_html(result, date), html, svg)


def _require_checks(result: Benchmark) -> None:
    """Raise `BilinearError` where nothing was measured (E686), and for every row whose check failed (E685)."""
    if not result.rows:
        raise nothing_measured(result.left_out)
    if result.failing:
        raise BilinearError(
            Diagnostic(
                "E685",
                f"{row.plan} at {'x'.join(map(str, row.shape))}, {row.dtype}, failed its check",
                notes=(
                    f"integers exact: {row.trust.exact}, inputs as promised: {row.trust.restored}",
                    f"error {row.trust.error:.3e}, allowed {row.trust.bound:.3e}",
                ),
            )
            for row in result.failing
        )
