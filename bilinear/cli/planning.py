"""schedule, plan and tune."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from bilinear.cli.options import Algorithm, Json, progress_bar, read_shape
from bilinear.errors import fail
from bilinear.resources import write_file


def schedule(
    algorithm: Algorithm,
    in_place: Annotated[bool, typer.Option("--in-place", help="Form sums in A and B themselves; the only kind there is so far.")] = False,
    consume: Annotated[bool, typer.Option("--consume", help="Leave A and B undefined.")] = False,
    keep: Annotated[str, typer.Option(help="Operands that are never written: A, B.")] = "",
    temporaries: Annotated[int, typer.Option(min=0, help="Blocks for sums of A, and as many for sums of B, that may be allocated.")] = 0,
    seconds: Annotated[float, typer.Option(min=0.1, help="End the search after so long, with the best so far.")] = 60.0,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the schedule to a .bl file (default: print it).")] = None,
) -> None:
    """Find an in-place schedule for a scheme, and write it in the language."""
    from bilinear.frontend import load
    from bilinear.ir.printer import print_schedule, print_scheme
    from bilinear.planner.in_place import find_in_place
    from bilinear.planner.in_place_write import scaling_itself
    from bilinear.planner.prepare import proved, proved_schedule, runnable

    if not in_place:
        raise fail("E507", "no kind of schedule is named", "give --in-place")
    scheme = load(algorithm).scheme
    proved(scheme)
    kept = [name.strip() for name in keep.replace(",", " ").split()]
    with progress_bar() as progress:
        found = find_in_place(
            scheme,
            consume=consume,
            keep=kept,
            temporaries=temporaries,
            seconds=seconds,
            progress=lambda state: progress(str(state), state.steps, state.planned),
        )
    proved_schedule(runnable(found), scheme)
    text = print_scheme(scheme) + "\n" + print_schedule(scaling_itself(found) if found.workspaces else found)
    if output is None:
        print(text, end="")
        return
    write_file(output, text)
    print(f"written to {output}; `bilinear verify {output}` proves it")


def plan(
    shape: Annotated[str, typer.Option(help="m,k,n, or one number for all three.")],
    dtype: Annotated[str, typer.Option(help="float64 or float32.")] = "float64",
    device: Annotated[str, typer.Option(help="A shipped description (h200), or a file of `bilinear tune`; default: the GPU here.")] = "",
    inputs: Annotated[str, typer.Option(help="What may happen to A and B: preserve, restore or consume.")] = "preserve",
    workspace: Annotated[str, typer.Option(help="Most bytes beyond A, B and C: a number, none, or unlimited.")] = "unlimited",
    accuracy: Annotated[float | None, typer.Option(help="The largest error, relative to max|A| * max|B|.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say of every alternative why it lost, and what workspace buys.")] = False,
    as_json: Json = False,
) -> None:
    """Choose how to run a problem, from the description of a device; no GPU is needed."""
    from bilinear.reporting.plans import pareto_table, plan_json, plan_table
    from bilinear.runtime.auto import plan as make_plan

    budget = int(workspace) if re.fullmatch("[0-9]{1,18}", workspace) else workspace
    m, k, n = read_shape(shape)
    choice = make_plan(m, k, n, dtype, device=device or None, inputs=inputs, workspace=budget, accuracy=accuracy, explain=explain)
    if as_json:
        print(plan_json(choice), end="")
        return
    print(plan_table(choice, explain))
    if explain:
        print("\n" + pareto_table(choice))


def tune(output: Annotated[Path | None, typer.Option("--output", "-o", help="Write it to a file (default: print it).")] = None) -> None:
    """Measure the GPU here, and describe it for the planner."""
    from bilinear.runtime.tune import tune as measure

    with progress_bar() as progress:
        text = measure(progress).json()
    if output is None:
        print(text, end="")
        return
    write_file(output, text)
    print(f"written to {output}; BILINEAR_DEVICE={output} makes `auto` use it")
