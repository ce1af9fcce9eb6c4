"""bench."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bilinear.cli import completing
from bilinear.cli.answers import (
    STDOUT,
    Json,
    Svg,
    answer,
    file_of,
    in_place_of_text,
    limit_option,
    output_option,
    problem_option,
    require_pages,
    write_pages,
)
from bilinear.cli.common import (
    AnyDtypes,
    Shapes,
    device_files,
    joined,
    modular_times,
    nothing_measured,
    progress_bar,
    read_accuracy,
    read_dtypes,
    read_seconds,
    read_sides,
    say,
    words,
)
from bilinear.errors import BilinearError, Diagnostic, fail
from bilinear.ir.element import MULTIPLIED

if TYPE_CHECKING:
    from bilinear.ir.measurement import Benchmark

DTYPES = "float64,float32"
SIZES = "2048", "4096", "8192", "16384", "32768"


def bench(
    context: typer.Context,
    shape: Shapes = None,
    dtype: AnyDtypes = None,
    shapes_file: Annotated[Path | None, problem_option(help="Measure the shapes of a file, N or MxKxN a line.")] = None,
    grid: Annotated[bool, problem_option("--grid", help="Measure `auto` on 200 shapes of all kinds.")] = False,
    algorithms: Annotated[
        str | None,
        typer.Option(help="What to run: plan (the planner's choice under three limits), auto, NAME:LEVELS, OUTER+INNER, NAME+PRODUCTS."),
    ] = None,
    keep: Annotated[
        str | None, typer.Option(help="Also time plans with a prepared operand (bilinear.prepare): left, right, or both, comma-separated.")
    ] = None,
    accuracy: Annotated[
        str,
        limit_option(
            help="Plans with at most this error: a bound relative to max|A| * max|B|, classical, or twice.",
            autocompletion=completing.accuracies,
        ),
    ] = "",
    modulus: Annotated[int | None, problem_option(help="Products of integers modulo this number, at most 2^62, instead.")] = None,
    rounds: Annotated[int | None, limit_option(min=1, help="The most rounds of calls (default: 7; for the grid 25).")] = None,
    time: Annotated[str, limit_option(help="Start no further shape after this time: seconds, or 90s, 5m.")] = "",
    json_file: Json = None,
    png: Annotated[Path | None, output_option("--png", hidden=True)] = None,
    html: Annotated[Path | None, output_option("--html", help="Write a page with pictures and the table.")] = None,
    svg: Svg = None,
) -> None:
    """Measure plans and the library on the current GPU; each plan is checked in the same run.

    Without a shape: 2048, 4096, 8192, 16384 and 32768. With a file, `--json` is written while rows are found.

    With --modulus, algorithms are auto or NAME:LEVELS, and the float64 products of an exact product by pieces are timed next to them.
    """
    from bilinear.measure import bench as measuring
    from bilinear.measure.bench_details import with_errors
    from bilinear.measure.bench_tasks import build_ahead, tasks_for
    from bilinear.reporting.bench_page import bench_html, bench_table, grid_summary

    if png is not None:
        raise fail("E683", "pictures are written as SVG, not as PNG", "give --svg FOLDER, or --html FILE for a page with them")
    if modulus is not None:
        others = {"--dtype": dtype is not None, "--shapes-file": shapes_file, "--grid": grid, "--accuracy": accuracy, "--keep": keep}
        others |= {"--time": time, "--html": html, "--svg": svg}
        _bench_modulo(joined(shape or SIZES), modulus, words(algorithms or "auto"), rounds, json_file, others)
        return
    if sum((shape is not None, shapes_file is not None, grid)) > 1:
        raise fail("E684", "--shape, --shapes-file and --grid exclude each other", "give one of them")
    seconds = read_seconds(time) if time else None
    asked = words(algorithms or ("auto" if grid else "plan"))
    kept = read_sides(keep)
    dtypes = read_dtypes(DTYPES if dtype is None else dtype, MULTIPLIED)
    tasks = tasks_for(joined(shape or SIZES), shapes_file, grid, dtypes, asked, read_accuracy(accuracy), kept)
    file = file_of(json_file)
    require_pages(html, svg, file, unread=device_files())
    measuring.require_gpu()
    effort = measuring.effort(grid, rounds, seconds)
    with progress_bar() as progress:
        device = measuring.described(tasks, progress)
        build_ahead(tasks, device, progress)
        result = measuring.collect(measuring.measure(tasks, device, effort, progress), "bench", ["bilinear", *sys.argv[1:]], file)
        if (html or svg) and not grid:
            result = with_errors(result, device, progress)
            measuring.save(result, file)
    written = [str(path) for path in (file, html, svg) if path is not None]
    answer(
        STDOUT if in_place_of_text(json_file) else None,
        result.json,
        lambda: bench_table(result) + (f"\n\n{grid_summary(result.rows)}" if grid else ""),
    )
    write_pages(lambda date: bench_html(result, date), html, svg)
    if written:
        say("", f"written to {', '.join(written)}", error=in_place_of_text(json_file))
    _require_checks(result)


def _bench_modulo(
    sizes: str, modulus: int, asked: Sequence[str], rounds: int | None, json_file: Path | None, others: Mapping[str, object]
) -> None:
    """`bench` with a modulus. Raises `BilinearError` where nothing was measured (E686), and for every row that is not exact (E685)."""
    from bilinear.ir.measurement import LeftOut
    from bilinear.measure import bench as measuring
    from bilinear.measure.bench_modulo import AUTO, ROUNDS, measure_modulo, modular_json
    from bilinear.measure.bench_shapes import read_sizes
    from bilinear.measure.bench_tasks import pinned
    from bilinear.runtime.modular import read_modulus

    wrong = next((name for name, given in others.items() if given), None)
    if wrong is not None:
        raise fail("E557", f"{wrong} has no meaning with --modulus: products of int64 are timed, exactly", "leave it out")
    read_modulus(modulus)
    for word in (word for word in asked if word != AUTO):
        pinned(word)
    shapes, file = read_sizes(sizes), file_of(json_file)
    require_pages(None, None, file, unread=device_files())
    measuring.require_gpu()
    with progress_bar() as progress:
        found = list(measure_modulo(shapes, modulus, asked, rounds or ROUNDS, progress))
    left_out = [one for one in found if isinstance(one, LeftOut)]
    rows = [one for one in found if not isinstance(one, LeftOut)]
    answer(json_file, lambda: modular_json(rows, left_out, ["bilinear", *sys.argv[1:]]), lambda: modular_times(rows, left_out))
    if not rows:
        raise nothing_measured(left_out)
    failing = [row for row in rows if not row.exact]
    if failing:
        each = (f"{row.asked} at {'x'.join(map(str, row.shape))}, modulo {row.modulus}, failed its check" for row in failing)
        raise BilinearError(Diagnostic("E685", message, notes=("the result differs from the definition",)) for message in each)


def _require_checks(result: Benchmark) -> None:
    """Raise `BilinearError` if nothing was measured (E686), and for every row whose check failed (E685)."""
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
