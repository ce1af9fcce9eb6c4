"""tune."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bilinear.cli.options import Json, progress_bar, read_dtypes, read_seconds, require_place
from bilinear.errors import fail
from bilinear.resources import write_file

if TYPE_CHECKING:
    from bilinear.ir.measurement import Shape
    from bilinear.planner.device import Device

DTYPES, TIME = "float64,float32", "5m"
_DTYPES = f"With --search, element types, comma-separated (default: {DTYPES})."
_INPUTS = "With --search, what may happen to A and B: preserve (default) or restore."
_WORKSPACE = "With --search, most bytes beyond A, B and C: a number, none, or unlimited (default)."
_TIME = f"With --search, begin to time nothing further after so long: seconds, or 90s, 5m (default: {TIME})."


def tune(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the description to a file.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep it for GPUs like this one under this driver: `auto` uses it.")] = False,
    search: Annotated[
        str | None, typer.Option(help="Time plans for these sizes, each N or MxKxN, and keep the fastest: `auto` runs it.")
    ] = None,
    shapes_file: Annotated[Path | None, typer.Option(help="The same for the shapes of a file, N or MxKxN a line.")] = None,
    dtypes: Annotated[str | None, typer.Option(help=_DTYPES)] = None,
    inputs: Annotated[str | None, typer.Option(help=_INPUTS)] = None,
    workspace: Annotated[str | None, typer.Option(help=_WORKSPACE)] = None,
    time: Annotated[str | None, typer.Option(help=_TIME)] = None,
    as_json: Json = False,
) -> None:
    """Measure the GPU here, and describe it for the planner (default: print it); or time plans for problems, and keep the fastest."""
    shapes = _shapes(search, shapes_file)
    if shapes is not None:
        if output is not None:
            raise fail("E557", "-o names a file for a description, and a search keeps plans", "leave one of them out, or give --keep")
        _search(shapes, dtypes or DTYPES, inputs or "preserve", workspace or "unlimited", time or TIME, keep, as_json)
        return
    if any(option is not None for option in (dtypes, inputs, workspace, time)):
        raise fail("E557", "an option has no meaning without --search", "leave it out, or name problems")
    require_place(output)
    device = _describe(keep)
    if output is not None:
        write_file(output, device.json())
        print(f"written to {output}; BILINEAR_DEVICE={output} makes `auto` use it")
    elif not keep:
        print(device.json(), end="")


def _shapes(sizes: str | None, file: Path | None) -> Sequence[Shape] | None:
    """For what plans are timed; None where nothing is named."""
    from bilinear.runtime.bench_shapes import read_shapes_file, read_sizes

    if sizes is not None and file is not None:
        raise fail("E684", "--search and --shapes-file each say for what plans are timed", "give one of them")
    if file is not None:
        return read_shapes_file(file)
    return None if sizes is None else read_sizes(sizes)


def _describe(keep: bool, is_told: bool = True) -> Device:
    """The description of the GPU here, measured now, and kept where that is asked for."""
    from bilinear.runtime.tune import tune as measure
    from bilinear.runtime.tuned import driver_version, keep_description

    with progress_bar() as progress:
        device = measure(progress)
    if keep:
        path = keep_description(device, driver_version())
        if is_told:
            print(f"kept in {path}: `auto` uses it on every {device.name} under this driver")
    return device


def _search(shapes: Sequence[Shape], dtypes: str, inputs: str, workspace: str, time: str, describe: bool, as_json: bool) -> None:
    """Time, keep and show the fastest plans."""
    from bilinear.planner.choice import Choice
    from bilinear.planner.saved import plan_json
    from bilinear.reporting.plans import timed_table
    from bilinear.runtime.auto import budget_and_buffer, current_device
    from bilinear.runtime.bench import require_gpu
    from bilinear.runtime.search import require_use, search
    from bilinear.runtime.tuned import driver_version, keep_plan

    if inputs not in ("preserve", "restore"):
        raise fail("E513", f"inputs={inputs!r}: plans are timed again and again on the same inputs", "choose preserve or restore")
    problems = [(shape, dtype) for dtype in read_dtypes(dtypes) for shape in shapes]
    budget, _ = budget_and_buffer(int(workspace) if re.fullmatch("[0-9]{1,18}", workspace) else workspace)
    seconds = read_seconds(time)
    require_gpu()
    require_use()
    device = None if describe else current_device()
    device = device or _describe(keep=True, is_told=not as_json)
    folders, choices, left_out = set[Path](), [], []
    with progress_bar() as progress:
        for found in search(problems, inputs, budget, device, seconds, progress):
            if isinstance(found, Choice):
                folders.add(keep_plan(found, driver_version()).parent)
                choices.append(found)
            else:
                left_out.append(found)
    if as_json:
        print(
            json.dumps({"plans": [json.loads(plan_json(choice)) for choice in choices], "left_out": [vars(x) for x in left_out]}, indent=1)
        )
    else:
        lines = [timed_table(choices)] if choices else []
        lines += [f"left out: {left.what}: {left.why}" for left in left_out]
        lines += [f"kept in {folder}: `auto` runs them on every {device.name} under this driver" for folder in folders]
        print("\n".join(lines))
    if not choices:
        raise fail(
            "E686", "nothing was measured", "give smaller shapes, or more time", notes=tuple(f"{x.what}: {x.why}" for x in left_out[:5])
        )
