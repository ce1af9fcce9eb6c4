"""tune."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bilinear.cli import completing
from bilinear.cli.answers import Json, answer, file_of, in_place_of_text, limit_option, output_option, problem_option
from bilinear.cli.common import (
    Shapes,
    ends_on_sigterm,
    joined,
    nothing_measured,
    progress_bar,
    read_dtypes,
    read_seconds,
    read_workspace,
    say,
)
from bilinear.errors import fail
from bilinear.places import require_files
from bilinear.visible import visible
from bilinear.writing import write_file

if TYPE_CHECKING:
    from bilinear.ir.measurement import LeftOut, Shape
    from bilinear.planner.device import Device
    from bilinear.planner.plan import Plan

DTYPES, TIME = "float64,float32", "5m"
BUSY = 0.5
"""The load average from which a description of processors is worth little."""
_DTYPES = f"With --shape, element types, comma-separated (default: {DTYPES})."
_INPUTS = "With --shape, what may happen to A and B: preserve (default) or restore."
_WORKSPACE = "With --shape, most memory beyond A, B and C: bytes, 2GiB, none, or unlimited (default)."
_TIME = f"With --shape, start no further problem or group of eight plans after this time: 90s, 5m (default: {TIME})."


def tune(
    shape: Shapes = None,
    shapes_file: Annotated[Path | None, problem_option(help="The shapes of a file, N or MxKxN a line.")] = None,
    dtype: Annotated[str | None, problem_option(help=_DTYPES, autocompletion=completing.dtypes)] = None,
    inputs: Annotated[str | None, limit_option(help=_INPUTS, autocompletion=completing.inputs)] = None,
    workspace: Annotated[str | None, limit_option(help=_WORKSPACE, autocompletion=completing.workspaces)] = None,
    time: Annotated[str | None, limit_option(help=_TIME)] = None,
    cpu: Annotated[bool, typer.Option("--cpu", help="Describe the processors and NumPy's library here, not the GPU.")] = False,
    output: Annotated[Path | None, output_option("--output", "-o", help="Write the description to a file.")] = None,
    keep: Annotated[bool, output_option("--keep", help="Keep it for this kind of GPU and driver, so that `auto` uses it.")] = False,
    json_file: Json = None,
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
        _search(shapes, *words, read_workspace("unlimited" if workspace is None else workspace), keep, json_file)
        return
    options = {"--dtype": dtype, "--inputs": inputs, "--workspace": workspace, "--time": time, "--json": json_file}
    lost = [name for name, value in options.items() if value is not None]
    if lost:
        raise fail("E557", f"{lost[0]} has no meaning without --shape", "leave it out, or name problems")
    require_files(output)
    if cpu:
        _describe_cpu(output, keep)
        return
    from bilinear.planner.device_files import device_json

    device = _describe(keep)
    if output is not None:
        write_file(output, device_json(device))
        say(f"written to {output}; BILINEAR_DEVICE={output} makes `auto` use it")
    elif not keep:
        print(device_json(device), end="")


def _shapes(given: Sequence[str] | None, file: Path | None) -> Sequence[Shape] | None:
    """The shapes for which plans are timed; None if none are given."""
    from bilinear.measure.bench_shapes import read_shapes_file, read_sizes

    if given is not None and file is not None:
        raise fail("E684", "--shape and --shapes-file exclude each other", "give one of them")
    if file is not None:
        return read_shapes_file(file)
    return None if given is None else read_sizes(joined(given))


def _describe(keep: bool, is_told: bool = True) -> Device:
    """The description of the current GPU, measured now, and kept if requested."""
    from bilinear.backends.gpu import driver_version
    from bilinear.measure.describe_device import tune_here as measure
    from bilinear.planner.kept_plans import keep_description, require_place

    if keep:
        require_place()
    with progress_bar() as progress:
        device = measure(progress)
    if keep:
        path = keep_description(device, driver_version())
        if is_told:
            say(f"kept in {path}: `auto` uses it on every {device.name} under this driver")
    return device


def _describe_cpu(output: Path | None, keep: bool) -> None:
    """Measure, and print, write or keep, the description of the processors here."""
    from bilinear.measure.describe_cpu import tune_cpu
    from bilinear.planner.device_files import cpu_json
    from bilinear.planner.kept_plans import keep_cpu, require_place

    if keep:
        require_place()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    with progress_bar() as progress:
        cpu = tune_cpu(progress)
    if load > BUSY and (keep or output is not None):
        say(f"the load average before was {load:.1f}: other programs took part of the time; measure again on an idle machine")
    if output is not None:
        write_file(output, cpu_json(cpu))
        say(f"written to {output}; --keep makes `auto` use it")
    if keep:
        say(f"kept in {keep_cpu(cpu)}: `auto` uses it on {cpu.name}, with {cpu.library}")
    elif output is None:
        print(cpu_json(cpu), end="")


def _search(
    shapes: Sequence[Shape], dtypes: str, inputs: str, time: str, workspace: int | str, describe: bool, json_file: Path | None
) -> None:
    """Time, keep and show the fastest plans; plans kept before an error are shown, too."""
    from bilinear.backends.gpu import driver_version, gpu_name
    from bilinear.measure.bench import require_gpu
    from bilinear.measure.time_plans import require_use, search
    from bilinear.planner.kept_plans import folder_of_plans, keep_plan
    from bilinear.planner.plan import Plan
    from bilinear.runtime.budgets import budget_and_buffer
    from bilinear.runtime.devices_here import current_device

    if inputs not in ("preserve", "restore"):
        raise fail("E513", f"inputs={inputs!r}: plans are timed on the same inputs again and again", "choose preserve or restore")
    problems = [(shape, dtype) for dtype in read_dtypes(dtypes) for shape in shapes]
    (budget, _), seconds = budget_and_buffer(workspace), read_seconds(time)
    require_files(file_of(json_file))
    require_gpu()
    require_use([dtype for _, dtype in problems])
    folder = folder_of_plans(gpu_name(), driver_version())
    device = None if describe else current_device()
    if device is None or device.estimate:
        device = _describe(keep=True, is_told=not in_place_of_text(json_file))
    plans: list[Plan] = []
    left_out: list[LeftOut] = []
    try:
        with ends_on_sigterm(), progress_bar() as progress:
            for found in search(problems, inputs, budget, device, seconds, progress):
                if isinstance(found, Plan):
                    keep_plan(found, driver_version())
                    plans.append(found)
                else:
                    left_out.append(found)
    finally:
        _show(plans, left_out, folder, json_file)
    if not plans:
        raise nothing_measured(left_out)


def _show(plans: Sequence[Plan], left_out: Sequence[LeftOut], folder: Path, json_file: Path | None) -> None:
    from bilinear.planner.plan_files import plan_json
    from bilinear.reporting.plans import timed_table

    def told() -> str:
        lines = [timed_table(plans)] if plans else []
        lines += [visible(f"left out: {left.what}: {left.why}") for left in left_out]
        return "\n".join(
            lines + [visible(f"kept in {folder}: `auto` runs them on every {plan.device} under this driver") for plan in plans[:1]]
        )

    found = {"plans": [json.loads(plan_json(plan)) for plan in plans], "left_out": [vars(left) for left in left_out]}
    if plans or left_out or in_place_of_text(json_file):
        answer(json_file, lambda: json.dumps(found, indent=1), told)
