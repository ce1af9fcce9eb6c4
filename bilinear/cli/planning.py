"""schedule and plan."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bilinear.cli import common, completing
from bilinear.cli.answers import Json, Svg, answer, file_of, limit_option, output_option, problem_option, require_pages, say, write_pages
from bilinear.cli.spelling import as_options
from bilinear.errors import fail
from bilinear.ir.element import COMPLEX, ELEMENTS, IN_ARRAYS
from bilinear.places import require_files
from bilinear.writing import write_file

if TYPE_CHECKING:
    from bilinear.ir.scheme import Scheme
    from bilinear.planner.plan import Plan
    from bilinear.scheduling.in_place.partitions import StageProgress


def schedule(
    algorithm: common.AlgorithmName,
    in_place: Annotated[bool, typer.Option("--in-place", help="Form sums in A and B themselves.")] = False,
    depth_first: Annotated[bool, typer.Option("--depth-first", help="One product at a time, A and B never written.")] = False,
    accumulate: Annotated[bool, typer.Option("--accumulate", help="With --depth-first, find C += A*B; else C = A*B.")] = False,
    directly: Annotated[bool, typer.Option("--directly", help="With --depth-first, add products directly to partial sums.")] = False,
    consume: Annotated[bool, limit_option("--consume", help="Leave A and B undefined.")] = False,
    keep: Annotated[str, limit_option(help="Operands that are never written: A, B.")] = "",
    temporaries: Annotated[int, limit_option(min=0, help="The most blocks to allocate; with --in-place, for each of A and B.")] = 0,
    overwrite: Annotated[bool, limit_option("--overwrite", help="Find C = A*B, with blocks of C as scratch; else C += A*B.")] = False,
    scratch: Annotated[str, limit_option(help="With --overwrite, the operands whose sums blocks of C may hold (default: A, B).")] = "",
    few_launches: Annotated[
        bool, limit_option("--few-launches", help="With --in-place, take few launches of products before few stages.")
    ] = False,
    time: Annotated[str, limit_option(help="End the search after this time with the best so far: seconds, or 90s, 5m.")] = "60",
    output: common.Output = None,
) -> None:
    """Find a schedule for a scheme, and write it in the language."""
    from bilinear.frontend import load
    from bilinear.lowering.prepare import proved

    if in_place == depth_first:
        what = "two kinds of schedule are named" if in_place else "no kind of schedule is named"
        raise fail("E507", what, "give --in-place or --depth-first")
    others = {"--consume": consume, "--keep": keep, "--overwrite": overwrite, "--few-launches": few_launches} if depth_first else {}
    others |= {"--accumulate": accumulate, "--directly": directly} if in_place else {}
    common.refuse(others, f"with {'--depth-first' if depth_first else '--in-place'}")
    if scratch and not overwrite:
        raise fail("E561", "--scratch says whose sums may stand in C, and C is not overwritten", "give --overwrite, too")
    seconds = common.read_seconds(time)
    loaded = load(algorithm)
    require_files(output)
    scheme = loaded.scheme
    proved(scheme)
    if depth_first:
        text, facts = _depth_first(scheme, accumulate, directly, temporaries, seconds)
    else:
        text, facts = _in_place(scheme, consume, _names(keep), temporaries, overwrite, _names(scratch or "A B"), few_launches, seconds)
    text = f"# {facts}\n{text}"
    if output is None:
        print(text, end="")
        return
    write_file(output, text)
    say(facts, f"written to {output}; `bilinear verify {output}` proves it")


def _in_place(
    scheme: Scheme,
    consume: bool,
    keep: list[str],
    temporaries: int,
    overwrite: bool,
    scratch: list[str],
    few_launches: bool,
    seconds: float,
) -> tuple[str, str]:
    from bilinear.frontend.printer import print_schedule, print_scheme
    from bilinear.lowering.prepare import proved_schedule, runnable
    from bilinear.scheduling.in_place.find import find_in_place
    from bilinear.scheduling.scaling import explicit_in_place

    states: list[StageProgress] = []
    with common.progress_bar() as progress:

        def tell(state: StageProgress) -> None:
            states[:] = [state]
            progress(str(state), state.steps, state.planned)

        found = find_in_place(
            scheme,
            consume=consume,
            keep=keep,
            temporaries=temporaries,
            overwrite=overwrite,
            scratch=scratch,
            few_launches=few_launches,
            seconds=seconds,
            progress=tell,
        )
    proved_schedule(runnable(found), scheme)
    written = explicit_in_place(found) if found.workspaces or overwrite else found
    return print_scheme(scheme) + "\n" + print_schedule(written), states[0].costs


def _depth_first(scheme: Scheme, accumulate: bool, directly: bool, temporaries: int, seconds: float) -> tuple[str, str]:
    from bilinear.frontend.printer import print_schedule, print_scheme
    from bilinear.lowering.prepare import proved_schedule
    from bilinear.scheduling.depth_first.find import find_depth_first
    from bilinear.scheduling.scaling import explicit_depth_first

    with common.progress_bar() as progress:
        found = find_depth_first(
            scheme,
            accumulate=accumulate,
            directly=directly,
            temporaries=temporaries,
            seconds=seconds,
            progress=lambda state: progress(str(state), state.done, state.products),
        )
    proved_schedule(found.schedule, scheme)
    written = explicit_depth_first(found.schedule)
    proved_schedule(written, scheme)
    return print_scheme(scheme) + "\n" + print_schedule(written), str(found)


def _names(text: str) -> list[str]:
    return text.replace(",", " ").split()


def plan(
    shape: Annotated[str, problem_option(help="m,k,n or MxKxN, or one number for all three.")] = "",
    chain: Annotated[str, problem_option(help="Choose the order of a product of several matrices: 1000x20x3000x50 are three.")] = "",
    gram: Annotated[bool, problem_option("--gram", help="Plan A * A^T, which is symmetric: --shape 1000x50x1000, A 1000 x 50.")] = False,
    dtype: Annotated[str, problem_option(help=f"One of {', '.join(ELEMENTS | COMPLEX)}.", autocompletion=completing.elements)] = "float64",
    device: Annotated[
        str,
        problem_option(
            help="A shipped description (h200, a100, ...), a file of `bilinear tune`, or cpu: the processors here (default: the GPU here).",
            autocompletion=completing.devices,
        ),
    ] = "",
    inputs: Annotated[
        str, limit_option(help="What may happen to A and B: preserve, restore or consume.", autocompletion=completing.inputs)
    ] = "preserve",
    workspace: Annotated[
        str,
        limit_option(
            help="Most memory beyond A, B and C: bytes, 2GiB (as 2G; 2GB is 2*10^9), none, or unlimited.",
            autocompletion=completing.workspaces,
        ),
    ] = "unlimited",
    accuracy: Annotated[
        str,
        limit_option(
            help="The largest error bound, relative to max|A| * max|B|; or classical, or twice.", autocompletion=completing.accuracies
        ),
    ] = "",
    reproducible: Annotated[str | None, limit_option(help="bitwise: plans whose results have the same bits on every device.")] = None,
    levels: Annotated[
        str | None,
        typer.Option(
            help="Pin these algorithms, comma-separated, the outermost level first, or auto: the planner chooses.",
            autocompletion=completing.names,
        ),
    ] = None,
    products: Annotated[
        str | None, typer.Option(help="Pin what multiplies below the levels: pairs, pairs_on_load, residues, tf32, bfloat16.")
    ] = None,
    contention: Annotated[
        str,
        typer.Option(help="With --levels: colours (in order), or atomics (at once), as in compile.", autocompletion=completing.contention),
    ] = "colours",
    accumulate: Annotated[bool, problem_option("--accumulate", help="Plan C += A*B; plans that overwrite C are excluded.")] = False,
    model: Annotated[
        Literal["thesis"] | None, typer.Option(help="Bound the times of MSMES, or of --levels, by the data sheet of --device.")
    ] = None,
    modes: Annotated[bool, typer.Option("--modes", help="Tell what the modes of `compile --mode` cost: predicted, and measured.")] = False,
    explain: Annotated[
        bool, output_option("--explain", help="Say why every alternative lost, what more workspace buys, and what bounds the plan.")
    ] = False,
    html: Annotated[Path | None, output_option("--html", help="Also write a page with a picture of time and workspace.")] = None,
    svg: Svg = None,
    json_file: Json = None,
) -> None:
    """Choose how to run a problem by a device's description; on a GPU without --device, a timed plan comes first."""
    from bilinear.reporting.plans import plan_html
    from bilinear.runtime.auto import plan as choose

    pins, pages = {"levels": levels, "products": products}, {"explain": explain, "html": html, "svg": svg}
    at_once = contention != "colours"
    sums: dict[str, object] = {"accumulate": accumulate, "reproducible": reproducible, "contention": at_once}

    def require_alone(option: str, others: Mapping[str, object]) -> None:
        common.refuse({f"--{name}": value for name, value in others.items()}, f"with --{option}")

    if chain:
        require_alone("chain", {"shape": shape, "accuracy": accuracy, **pins, "gram": gram, **sums, **pages})
        _plan_chain(chain, dtype, device, inputs, workspace, json_file)
        return
    if gram:
        require_alone("gram", {**pins, **sums, **pages, "inputs": inputs != "preserve"})
        _plan_gram(shape, dtype, device, workspace, common.read_accuracy(accuracy), json_file)
        return
    if not shape:
        raise fail("E504", "there is no shape", "give --shape m,k,n for a product of two matrices, or --chain for several")
    levels = None if levels == "auto" else levels
    if model or modes:
        size, limits = common.read_shape(shape), {"inputs": inputs != "preserve", "workspace": workspace != "unlimited"}
        others: dict[str, object] = {"accuracy": accuracy, "products": products, **sums}
        require_alone("model" if model else "modes", {"modes": model and modes, **others, **pages, **limits})
        (_bound if model else _cost_of_modes)(size, dtype, device, levels, json_file)
        return
    if levels is not None and re.fullmatch(r"[0-9, ]+", levels):
        hint = "name one for each level, the outermost first: --levels winograd,winograd"
        raise fail("E514", f"--levels {levels[:40]} names no algorithms", hint)
    m, k, n = common.read_shape(shape)
    whole, pinned = bool(explain or html or svg), None if levels is None else [name.strip() for name in levels.split(",")]
    most = common.read_workspace(workspace)
    require_pages(html, svg, file_of(json_file), unread=common.device_files(device))
    with common.waiting("weighing plans"):
        plan = choose(
            *(m, k, n, dtype),
            device=device or None,
            inputs=inputs,
            workspace=most,
            accuracy=common.read_accuracy(accuracy),
            accumulate=accumulate,
            explain=whole,
            levels=pinned,
            products=products,
            reproducible=reproducible,  # type: ignore[arg-type]  # checked there
            contention=contention,  # type: ignore[arg-type]  # likewise
        )
    write_pages(lambda date: plan_html(plan, date), html, svg)
    _answer_plan(plan, device, explain, json_file)


def _answer_plan(plan: Plan, device: str, explain: bool, json_file: Path | None) -> None:
    """Print a plan; with `--explain` also the bounds of its GPU, unless it multiplies digits on other units than those of its type."""
    from bilinear.planner.device import Device
    from bilinear.planner.kept_plans import plan_json
    from bilinear.planner.roofline import roofline, streaming
    from bilinear.reporting.plans import explained_json, pareto_table, plan_table, roofline_table, streaming_table
    from bilinear.runtime.devices_here import description_of

    is_real = explain and plan.problem.dtype in IN_ARRAYS
    described = description_of(device or None) if is_real else None
    known = described if isinstance(described, Device) else None
    bounds = None if known is None or plan.chosen.choice.rate(plan.problem, known) is None else roofline(plan, known)
    streamed = None if known is None else streaming(plan, known)

    def told() -> str:
        parts = [as_options(plan_table(plan, explain)), *([pareto_table(plan)] if is_real else [])]
        parts += [] if bounds is None else [roofline_table(bounds)]
        parts += [] if streamed is None else [streaming_table(streamed)]
        return "\n\n".join(parts)

    answer(json_file, lambda: plan_json(plan) if bounds is None else explained_json(plan, bounds, streamed), told)


def _bound(shape: tuple[int, int, int], dtype: str, device: str, levels: str | None, json_file: Path | None) -> None:
    from bilinear.planner.best_case import best_cases, sheet_named
    from bilinear.reporting.plans import best_cases_table, figures_json

    require_files(file_of(json_file))
    sheet = sheet_named(device)
    found = best_cases(shape, dtype, sheet, None if levels is None else tuple(name.strip() for name in levels.split(",")))
    title = f"{'x'.join(map(str, shape))}, {dtype}, {sheet.name}: least times by the data sheet"
    answer(json_file, lambda: figures_json("best-cases", found), lambda: best_cases_table(found, title))


def _cost_of_modes(shape: tuple[int, int, int], dtype: str, device: str, levels: str | None, json_file: Path | None) -> None:
    from bilinear.measure.mode_costs import mode_costs, modes_table
    from bilinear.planner.device_files import load_device
    from bilinear.reporting.plans import figures_json

    names = [name.strip() for name in (levels or "strassen,strassen").split(",")]
    if len(set(names)) > 1:
        raise fail("E557", "--levels of several schemes has no meaning with --modes", "leave it out")
    require_files(file_of(json_file))
    described = load_device(device)
    found = mode_costs(shape, dtype, described, names[0], len(names))
    title = f"{'x'.join(map(str, shape))}, {dtype}, {','.join(names)}, {described.title}: microseconds"
    answer(json_file, lambda: figures_json("modes", found), lambda: modes_table(found, title))


def _plan_gram(shape: str, dtype: str, device: str, workspace: str, accuracy: float | str | None, json_file: Path | None) -> None:
    from bilinear.reporting.plans import figures_json, gram_table
    from bilinear.runtime.gram_plans import plan_gram

    m, k, n = common.read_shape(shape)
    if m != n:
        what = f"A*A^T is square, and --shape {shape} has {m} rows and {n} columns"
        raise fail("E504", what, f"give --shape {m},{k},{m} for A {m} x {k}")
    most = common.read_workspace(workspace)
    require_files(file_of(json_file), unread=common.device_files(device))
    found = plan_gram(n, k, dtype, device=device or None, workspace=most, accuracy=accuracy)
    answer(json_file, lambda: figures_json("gram", found), lambda: gram_table(found))


def _plan_chain(chain: str, dtype: str, device: str, inputs: str, workspace: str, json_file: Path | None) -> None:
    from bilinear.reporting.plans import chain_table, figures_json
    from bilinear.runtime.multi_dot import plan_chain

    shapes, most = common.read_chain(chain), common.read_workspace(workspace)
    require_files(file_of(json_file), unread=common.device_files(device))
    found = plan_chain(shapes, dtype, device=device or None, inputs=inputs, workspace=most)
    answer(json_file, lambda: figures_json("chain", found), lambda: chain_table(found))
