"""bench and tune."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bilinear.cli import answers, common, completing
from bilinear.errors import BilinearError, Diagnostic, fail
from bilinear.ir.element import MULTIPLIED
from bilinear.places import require_files
from bilinear.visible import visible
from bilinear.writing import write_file

if TYPE_CHECKING:
    from bilinear.ir.measurement import Benchmark, LeftOut, Shape
    from bilinear.planner.device import Device
    from bilinear.planner.plan import Plan


DTYPES = "float64,float32"
SIZES = "2048", "4096", "8192", "16384", "32768"


def bench(
    context: typer.Context,
    shape: common.Shapes = None,
    dtype: common.AnyDtypes = None,
    shapes_file: Annotated[Path | None, answers.problem_option(help="Measure the shapes of a file, N or MxKxN a line.")] = None,
    grid: Annotated[bool, answers.problem_option("--grid", help="Measure `auto` on 200 shapes of all kinds.")] = False,
    algorithms: Annotated[
        str | None,
        typer.Option(
            help="What to run: plan (the planner's choice, three limits), auto, bitwise, NAME:LEVELS, OUTER+INNER, NAME+PRODUCTS."
        ),
    ] = None,
    keep: Annotated[
        str | None, typer.Option(help="Also time plans with a prepared operand (bilinear.prepare): left, right, or both, comma-separated.")
    ] = None,
    accuracy: Annotated[
        str,
        answers.limit_option(
            help="Plans with at most this error: a bound relative to max|A| * max|B|, classical, or twice.",
            autocompletion=completing.accuracies,
        ),
    ] = "",
    modulus: Annotated[int | None, answers.problem_option(help="Products of integers modulo this number, at most 2^62, instead.")] = None,
    rounds: Annotated[int | None, answers.limit_option(min=1, help="The most rounds of calls (default: 7; for the grid 25).")] = None,
    time: Annotated[str, answers.limit_option(help="Start no further shape after this time: seconds, or 90s, 5m.")] = "",
    json_file: answers.Json = None,
    png: Annotated[Path | None, answers.output_option("--png", hidden=True)] = None,
    html: Annotated[Path | None, answers.output_option("--html", help="Write a page with pictures and the table.")] = None,
    svg: answers.Svg = None,
) -> None:
    """Measure plans and the library on the current GPU; each plan is checked in the same run.

    Without a shape: 2048, 4096, 8192, 16384 and 32768. With a file, `--json` is written while rows are found.

    With --modulus, algorithms are auto or NAME:LEVELS, and the float64 products of an exact product by pieces are timed next to them.
    """
    from bilinear.measure import bench as measuring
    from bilinear.measure.bench import with_errors
    from bilinear.measure.bench_tasks import build_ahead, tasks_for
    from bilinear.reporting.bench_page import bench_html, bench_table, grid_summary

    if png is not None:
        raise fail("E683", "pictures are written as SVG, not as PNG", "give --svg FOLDER, or --html FILE for a page with them")
    if modulus is not None:
        others = {"--dtype": dtype is not None, "--shapes-file": shapes_file, "--grid": grid, "--accuracy": accuracy, "--keep": keep}
        others |= {"--time": time, "--html": html, "--svg": svg}
        _bench_modulo(common.joined(shape or SIZES), modulus, common.words(algorithms or "auto"), rounds, json_file, others)
        return
    if sum((shape is not None, shapes_file is not None, grid)) > 1:
        raise fail("E684", "--shape, --shapes-file and --grid exclude each other", "give one of them")
    seconds = common.read_seconds(time) if time else None
    asked = common.words(algorithms or ("auto" if grid else "plan"))
    kept = common.read_sides(keep)
    dtypes = common.read_dtypes(DTYPES if dtype is None else dtype, MULTIPLIED)
    tasks = tasks_for(common.joined(shape or SIZES), shapes_file, grid, dtypes, asked, common.read_accuracy(accuracy), kept)
    file = answers.file_of(json_file)
    answers.require_pages(html, svg, file, unread=common.device_files())
    measuring.require_gpu()
    effort = measuring.effort(grid, rounds, seconds)
    with common.progress_bar() as progress:
        device = measuring.described(tasks, progress)
        build_ahead(tasks, device, progress)
        result = measuring.collect(measuring.measure(tasks, device, effort, progress), "bench", ["bilinear", *sys.argv[1:]], file)
        if (html or svg) and not grid:
            result = with_errors(result, device, progress)
            measuring.save(result, file)
    written = [str(path) for path in (file, html, svg) if path is not None]
    answers.answer(
        answers.STDOUT if answers.in_place_of_text(json_file) else None,
        result.json,
        lambda: bench_table(result) + (f"\n\n{grid_summary(result.rows)}" if grid else ""),
    )
    answers.write_pages(lambda date: bench_html(result, date), html, svg)
    if written:
        answers.say("", f"written to {', '.join(written)}", error=answers.in_place_of_text(json_file))
    _require_checks(result)


def _bench_modulo(
    sizes: str, modulus: int, asked: Sequence[str], rounds: int | None, json_file: Path | None, others: Mapping[str, object]
) -> None:
    """`bench` with a modulus. Raises `BilinearError` where nothing was measured (E686), and for every row that is not exact (E685)."""
    from bilinear.ir.measurement import LeftOut
    from bilinear.measure import bench as measuring
    from bilinear.measure.bench_library import AUTO, ROUNDS, measure_modulo, modular_json
    from bilinear.measure.bench_tasks import pinned, read_sizes
    from bilinear.runtime.integers import read_modulus

    common.refuse(others, "with --modulus: products of int64 are timed, exactly")
    read_modulus(modulus)
    for word in (word for word in asked if word != AUTO):
        pinned(word)
    shapes, file = read_sizes(sizes), answers.file_of(json_file)
    answers.require_pages(None, None, file, unread=common.device_files())
    measuring.require_gpu()
    with common.progress_bar() as progress:
        found = list(measure_modulo(shapes, modulus, asked, rounds or ROUNDS, progress))
    left_out = [one for one in found if isinstance(one, LeftOut)]
    rows = [one for one in found if not isinstance(one, LeftOut)]
    answers.answer(
        json_file, lambda: modular_json(rows, left_out, ["bilinear", *sys.argv[1:]]), lambda: common.modular_times(rows, left_out)
    )
    if not rows:
        raise common.nothing_measured(left_out)
    failing = [row for row in rows if not row.exact]
    if failing:
        each = (f"{row.asked} at {'x'.join(map(str, row.shape))}, modulo {row.modulus}, failed its check" for row in failing)
        raise BilinearError(Diagnostic("E685", message, notes=("the result differs from the definition",)) for message in each)


def _require_checks(result: Benchmark) -> None:
    """Raise `BilinearError` if nothing was measured (E686), and for every row whose check failed (E685)."""
    if not result.rows:
        raise common.nothing_measured(result.left_out)
    if result.failing:
        failures = []
        for row in result.failing:
            kept = f"integers exact: {row.trust.exact}, inputs as promised: {row.trust.restored}"
            error = f"error {row.trust.error:.3e}, allowed {row.trust.bound:.3e}"
            what = f"{row.plan} at {'x'.join(map(str, row.shape))}, {row.dtype}, failed its check"
            failures.append(Diagnostic("E685", what, notes=(kept, error)))
        raise BilinearError(failures)


TIME = "5m"
BUSY = 0.5  # The load average from which a description of processors is worth little.
_DTYPES = f"With --shape, element types, comma-separated (default: {DTYPES})."
_INPUTS = "With --shape, what may happen to A and B: preserve (default) or restore."
_WORKSPACE = "With --shape, most memory beyond A, B and C: bytes, 2GiB, none, or unlimited (default)."
_TIME = f"With --shape, start no further problem or group of eight plans after this time: 90s, 5m (default: {TIME})."


def tune(
    shape: common.Shapes = None,
    shapes_file: Annotated[Path | None, answers.problem_option(help="The shapes of a file, N or MxKxN a line.")] = None,
    dtype: Annotated[str | None, answers.problem_option(help=_DTYPES, autocompletion=completing.dtypes)] = None,
    inputs: Annotated[str | None, answers.limit_option(help=_INPUTS, autocompletion=completing.inputs)] = None,
    workspace: Annotated[str | None, answers.limit_option(help=_WORKSPACE, autocompletion=completing.workspaces)] = None,
    time: Annotated[str | None, answers.limit_option(help=_TIME)] = None,
    cpu: Annotated[bool, typer.Option("--cpu", help="Describe the processors and NumPy's library here, not the GPU.")] = False,
    output: Annotated[Path | None, answers.output_option("--output", "-o", help="Write the description to a file.")] = None,
    keep: Annotated[bool, answers.output_option("--keep", help="Keep it for this kind of GPU and driver, so that `auto` uses it.")] = False,
    json_file: answers.Json = None,
) -> None:
    """Measure the current GPU and describe it for the planner (default: print it).

    With shapes: time plans for them, check and keep the fastest, so that `auto` runs it.
    """
    shapes = _shapes(shape, shapes_file)
    if shapes is not None and cpu:
        raise fail("E557", "--cpu describes processors, and a search times plans on a GPU", "leave one of them out")
    if shapes is not None:
        if output is not None:
            raise fail("E557", "-o names a file for a description, and a search keeps plans", "leave one of them out, or give --keep")
        words = (DTYPES if dtype is None else dtype, "preserve" if inputs is None else inputs, TIME if time is None else time)
        _search(shapes, *words, common.read_workspace("unlimited" if workspace is None else workspace), keep, json_file)
        return
    options = {"--dtype": dtype, "--inputs": inputs, "--workspace": workspace, "--time": time, "--json": json_file}
    common.refuse({name: value is not None for name, value in options.items()}, "without --shape", "leave it out, or name problems")
    require_files(output)
    if cpu:
        _describe_cpu(output, keep)
        return
    from bilinear.planner.device_files import device_json

    device = _describe(keep)
    if output is not None:
        write_file(output, device_json(device))
        answers.say(f"written to {output}; BILINEAR_DEVICE={output} makes `auto` use it")
    elif not keep:
        print(device_json(device), end="")


def _shapes(given: Sequence[str] | None, file: Path | None) -> Sequence[Shape] | None:
    from bilinear.measure.bench_tasks import read_shapes_file, read_sizes

    if given is not None and file is not None:
        raise fail("E684", "--shape and --shapes-file exclude each other", "give one of them")
    if file is not None:
        return read_shapes_file(file)
    return None if given is None else read_sizes(common.joined(given))


def _describe(keep: bool, is_told: bool = True) -> Device:
    from bilinear.backends.machine import driver_version
    from bilinear.measure.describe_device import tune_here as measure
    from bilinear.planner.kept_plans import keep_description, require_place

    if keep:
        require_place()
    with common.progress_bar() as progress:
        device = measure(progress)
    if keep:
        path = keep_description(device, driver_version())
        if is_told:
            answers.say(f"kept in {path}: `auto` uses it on every {device.name} under this driver")
    return device


def _describe_cpu(output: Path | None, keep: bool) -> None:
    from bilinear.measure.describe_cpu import tune_cpu
    from bilinear.planner.device_files import cpu_json
    from bilinear.planner.kept_plans import keep_cpu, require_place

    if keep:
        require_place()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    with common.progress_bar() as progress:
        cpu = tune_cpu(progress)
    if load > BUSY and (keep or output is not None):
        answers.say(f"the load average before was {load:.1f}: other programs took part of the time; measure again on an idle machine")
    if output is not None:
        write_file(output, cpu_json(cpu))
        answers.say(f"written to {output}; --keep makes `auto` use it")
    if keep:
        answers.say(f"kept in {keep_cpu(cpu)}: `auto` uses it on {cpu.name}, with {cpu.library}")
    elif output is None:
        print(cpu_json(cpu), end="")


def _search(
    shapes: Sequence[Shape], dtypes: str, inputs: str, time: str, workspace: int | str, describe: bool, json_file: Path | None
) -> None:
    """Time, keep and show the fastest plans; plans kept before an error are shown, too."""
    from bilinear.backends.machine import driver_version, gpu_name
    from bilinear.measure.bench import require_gpu
    from bilinear.measure.time_plans import require_use, search
    from bilinear.planner.kept_plans import folder_of_plans, keep_plan
    from bilinear.planner.plan import Plan
    from bilinear.runtime.budgets import budget_and_buffer
    from bilinear.runtime.devices_here import current_device

    if inputs not in ("preserve", "restore"):
        raise fail("E513", f"inputs={inputs!r}: plans are timed on the same inputs again and again", "choose preserve or restore")
    problems = [(shape, dtype) for dtype in common.read_dtypes(dtypes) for shape in shapes]
    (budget, _), seconds = budget_and_buffer(workspace), common.read_seconds(time)
    require_files(answers.file_of(json_file))
    require_gpu()
    require_use([dtype for _, dtype in problems])
    folder = folder_of_plans(gpu_name(), driver_version())
    device = None if describe else current_device()
    if device is None or device.estimate:
        device = _describe(keep=True, is_told=not answers.in_place_of_text(json_file))
    plans: list[Plan] = []
    left_out: list[LeftOut] = []
    try:
        with common.raises_on_sigterm(SystemExit(common.ENDED)), common.progress_bar() as progress:
            for found in search(problems, inputs, budget, device, seconds, progress):
                if isinstance(found, Plan):
                    keep_plan(found, driver_version())
                    plans.append(found)
                else:
                    left_out.append(found)
    finally:
        _show(plans, left_out, folder, json_file)
    if not plans:
        raise common.nothing_measured(left_out)


def _show(plans: Sequence[Plan], left_out: Sequence[LeftOut], folder: Path, json_file: Path | None) -> None:
    from bilinear.planner.kept_plans import plan_json
    from bilinear.reporting.plans import timed_table

    def told() -> str:
        lines = [timed_table(plans)] if plans else []
        lines += [visible(f"left out: {left.what}: {left.why}") for left in left_out]
        return "\n".join(
            lines + [visible(f"kept in {folder}: `auto` runs them on every {plan.device} under this driver") for plan in plans[:1]]
        )

    found = {"plans": [json.loads(plan_json(plan)) for plan in plans], "left_out": [vars(left) for left in left_out]}
    if plans or left_out or answers.in_place_of_text(json_file):
        answers.answer(json_file, lambda: found, told)


def warm(
    dtype: Annotated[
        str | None,
        answers.problem_option(help="Element types, comma-separated (default: all that are planned).", autocompletion=completing.dtypes),
    ] = None,
    device: Annotated[
        str,
        answers.problem_option(
            help="Build for a described GPU, which need not be here (default: the GPU here).", autocompletion=completing.devices
        ),
    ] = "",
    json_file: answers.Json = None,
) -> None:
    """Build the kernels of the usual products ahead of the first call, and keep them in the cache."""
    from bilinear.backends.machine import target_here
    from bilinear.codegen.cuda.target import target_of
    from bilinear.runtime.ahead import warm as build_ahead
    from bilinear.runtime.devices_here import device_of

    dtypes = tuple(MULTIPLIED) if dtype is None else common.read_dtypes(dtype, MULTIPLIED)
    require_files(answers.file_of(json_file), unread=common.device_files(device))
    described = device_of(device or None)
    if described is None:
        raise fail("E541", "there is no GPU here, or no description of it is known", "give --device h100, or a file of `bilinear tune`")
    target = target_of(described.capability) if device else target_here()
    with common.progress_bar() as progress:
        found = build_ahead(described, target, dtypes, progress)
    where, seconds = f"{found.device}, {found.target}", f"{found.seconds:.0f} s"
    text = f"{where}: {found.kernels} kernels of {found.plans} plans are in the cache; {found.built} of them were built now, in {seconds}"
    if not found.kernels:
        text = f"{where}: all {found.plans} plans are the library's multiply, which needs no kernels of ours"
    answers.answer(json_file, lambda: vars(found), lambda: visible(text))
