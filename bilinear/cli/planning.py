"""schedule and plan."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bilinear.cli.options import Algorithm, Json, device_files, progress_bar, read_seconds, read_shape, read_workspace, say
from bilinear.errors import fail
from bilinear.ir.element import ELEMENTS
from bilinear.ir.scheme import Scheme
from bilinear.places import require_files
from bilinear.writing import write_file


def schedule(
    algorithm: Algorithm,
    in_place: Annotated[bool, typer.Option("--in-place", help="Form sums in A and B themselves.")] = False,
    depth_first: Annotated[bool, typer.Option("--depth-first", help="One product at a time, A and B never written.")] = False,
    accumulate: Annotated[bool, typer.Option("--accumulate", help="With --depth-first, find C += A*B; else C = A*B.")] = False,
    directly: Annotated[bool, typer.Option("--directly", help="With --depth-first, add products directly to partial sums.")] = False,
    consume: Annotated[bool, typer.Option("--consume", help="Leave A and B undefined.")] = False,
    keep: Annotated[str, typer.Option(help="Operands that are never written: A, B.")] = "",
    temporaries: Annotated[int, typer.Option(min=0, help="The most blocks to allocate; with --in-place, for each of A and B.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Find C = A*B, with blocks of C as scratch; else C += A*B.")] = False,
    scratch: Annotated[str, typer.Option(help="With --overwrite, the operands whose sums blocks of C may hold (default: A, B).")] = "",
    time: Annotated[str, typer.Option(help="End the search after this time with the best so far: seconds, or 90s, 5m.")] = "60",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the schedule to a .bl file (default: print it).")] = None,
) -> None:
    """Find a schedule for a scheme, and write it in the language."""
    from bilinear.frontend import load
    from bilinear.lowering.prepare import proved

    if in_place == depth_first:
        what = "two kinds of schedule are named" if in_place else "no kind of schedule is named"
        raise fail("E507", what, "give --in-place or --depth-first")
    others = {"--consume": consume, "--keep": keep, "--overwrite": overwrite} if depth_first else {}
    others |= {"--accumulate": accumulate, "--directly": directly} if in_place else {}
    lost = [name for name, value in others.items() if value]
    if lost:
        raise fail("E557", f"{lost[0]} has no meaning with {'--depth-first' if depth_first else '--in-place'}", "leave it out")
    if scratch and not overwrite:
        raise fail("E561", "--scratch says whose sums may stand in C, and C is not overwritten", "give --overwrite, too")
    seconds = read_seconds(time)
    loaded = load(algorithm)
    require_files(output)
    scheme = loaded.scheme
    proved(scheme)
    if depth_first:
        _write_found(*_depth_first(scheme, accumulate, directly, temporaries, seconds), output)
    else:
        _write_found(_in_place(scheme, consume, _names(keep), temporaries, overwrite, _names(scratch or "A B"), seconds), "", output)


def _write_found(text: str, facts: str, output: Path | None) -> None:
    """Print or write a schedule, with its facts in a comment."""
    text = f"# {facts}\n{text}" if facts else text
    if output is None:
        print(text, end="")
        return
    write_file(output, text)
    say(*filter(None, (facts, f"written to {output}; `bilinear verify {output}` proves it")))


def _in_place(scheme: Scheme, consume: bool, keep: list[str], temporaries: int, overwrite: bool, scratch: list[str], seconds: float) -> str:
    """An in-place schedule in the language."""
    from bilinear.frontend.printer import print_schedule, print_scheme
    from bilinear.lowering.prepare import proved_schedule, runnable
    from bilinear.scheduling.in_place.find import find_in_place
    from bilinear.scheduling.in_place.schedule import scaling_itself

    with progress_bar() as progress:
        found = find_in_place(
            scheme,
            consume=consume,
            keep=keep,
            temporaries=temporaries,
            overwrite=overwrite,
            scratch=scratch,
            seconds=seconds,
            progress=lambda state: progress(str(state), state.steps, state.planned),
        )
    proved_schedule(runnable(found), scheme)
    return print_scheme(scheme) + "\n" + print_schedule(scaling_itself(found) if found.workspaces or overwrite else found)


def _depth_first(scheme: Scheme, accumulate: bool, directly: bool, temporaries: int, seconds: float) -> tuple[str, str]:
    """A depth-first schedule in the language, and its costs."""
    from bilinear.frontend.printer import print_schedule, print_scheme
    from bilinear.lowering.prepare import proved_schedule
    from bilinear.scheduling.depth_first.find import find_depth_first
    from bilinear.scheduling.depth_first.scaling import saying_its_scaling

    with progress_bar() as progress:
        found = find_depth_first(
            scheme,
            accumulate=accumulate,
            directly=directly,
            temporaries=temporaries,
            seconds=seconds,
            progress=lambda state: progress(str(state), state.done, state.products),
        )
    proved_schedule(found.schedule, scheme)
    written = saying_its_scaling(found.schedule)
    proved_schedule(written, scheme)
    return print_scheme(scheme) + "\n" + print_schedule(written), str(found)


def _names(text: str) -> list[str]:
    return text.replace(",", " ").split()


def plan(
    shape: Annotated[str, typer.Option(help="m,k,n, or one number for all three.")],
    dtype: Annotated[str, typer.Option(help=f"One of {', '.join(ELEMENTS)}.")] = "float64",
    device: Annotated[str, typer.Option(help="A shipped description (h200), or a file of `bilinear tune`; default: the GPU here.")] = "",
    inputs: Annotated[str, typer.Option(help="What may happen to A and B: preserve, restore or consume.")] = "preserve",
    workspace: Annotated[str, typer.Option(help="Most bytes beyond A, B and C: a number, none, or unlimited.")] = "unlimited",
    accuracy: Annotated[float | None, typer.Option(help="The largest error, relative to max|A| * max|B|.")] = None,
    levels: Annotated[str | None, typer.Option(help="Pin these algorithms, comma-separated, the outermost level first.")] = None,
    accumulate: Annotated[bool, typer.Option("--accumulate", help="Plan C += A*B; plans that overwrite C are excluded.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Say why every alternative lost, and what more workspace buys.")] = False,
    html: Annotated[Path | None, typer.Option("--html", help="Also write a page with a picture of time and workspace.")] = None,
    as_json: Json = False,
) -> None:
    """Choose how to run a problem by a device's description; on a GPU without --device, a timed plan comes first."""
    from bilinear.reporting.plan_page import plan_html
    from bilinear.reporting.plans import pareto_table, plan_json, plan_table
    from bilinear.runtime.auto import plan as choose

    m, k, n = read_shape(shape)
    whole, pinned = explain or html is not None, None if levels is None else [name.strip() for name in levels.split(",")]
    most = read_workspace(workspace)
    require_files(html, unread=device_files(device))
    plan = choose(
        *(m, k, n, dtype),
        device=device or None,
        inputs=inputs,
        workspace=most,
        accuracy=accuracy,
        accumulate=accumulate,
        explain=whole,
        levels=pinned,
    )
    if html is not None:
        write_file(html, plan_html(plan))
    if as_json:
        print(plan_json(plan), end="")
        return
    print(plan_table(plan, explain))
    if explain:
        print("\n" + pareto_table(plan))
