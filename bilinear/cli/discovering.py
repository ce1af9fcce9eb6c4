"""discover."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bilinear.cli.answers import Json, answer, file_of, in_place_of_text
from bilinear.cli.common import AlgorithmName, Output, interrupted_by_sigterm, progress_bar, read_seconds, read_shape, say, seed_of_a_search
from bilinear.errors import BilinearError, fail
from bilinear.places import holds_another, require_files
from bilinear.visible import visible_lines
from bilinear.writing import write_file

if TYPE_CHECKING:
    from bilinear.discovery.flip_search import WalkResult
    from bilinear.discovery.lift import Lifted


def lift(
    algorithm: AlgorithmName,
    over: Annotated[
        str, typer.Option(help="Q: integers or, if there are none, fractions; Z: integers alone; Z/4, Z/8, ...: residues.")
    ] = "Q",
    tries: Annotated[int, typer.Option(min=1, max=1000, help="The most choices among the solutions of a step.")] = 10,
    seed: Annotated[int, typer.Option(min=0, callback=seed_of_a_search, help="The seed of the choices after the first.")] = 0,
    output: Output = None,
    json_file: Json = None,
) -> None:
    """Lift a scheme over Z/2 to Z/4, Z/8, ... and from there to Z or Q, or show equations that contradict each other."""
    from bilinear.discovery.lift import lift, power_of
    from bilinear.frontend import load

    power_of(over)
    scheme = load(algorithm).scheme
    require_files(output, file_of(json_file))
    with progress_bar() as progress:
        lifted = lift(scheme, over=over, seed=seed, tries=tries, progress=progress)
    if output is not None:
        write_file(output, _text(lifted, output))
    answer(json_file, lambda: json.dumps(_lifted_facts(lifted, output), indent=1), lambda: "\n".join(_told_lifted(lifted)))
    if output is not None and not in_place_of_text(json_file):
        say(f"written to {output}; `bilinear verify {output}` proves it again")


def _text(lifted: Lifted, output: Path) -> str:
    """The scheme in the language, named like its file if that is a valid name."""
    from bilinear.frontend.printer import print_scheme

    try:
        return print_scheme(replace(lifted.scheme, name=output.stem))
    except BilinearError:
        return print_scheme(lifted.scheme)


def _lifted_facts(lifted: Lifted, output: Path | None) -> dict[str, object]:
    return {
        "scheme": lifted.scheme.name,
        "format": lifted.scheme.format,
        "ring": lifted.scheme.ring.name,
        "proved": True,
        "power": lifted.power,
        "equations": lifted.equations,
        "unknowns": lifted.unknowns,
        "rank_of_equations": lifted.rank,
        "tries": lifted.tries,
        "additions": lifted.scheme.additions,
        "file": str(output) if output is not None else None,
    }


def _told_lifted(lifted: Lifted) -> list[str]:
    scheme = lifted.scheme
    return [
        f"{scheme.name} {scheme.format}: proved over {scheme.ring}, {scheme.additions} additions",
        f"lifted to Z/{2**lifted.power} by {lifted.equations} equations for {lifted.unknowns} unknowns, of rank {lifted.rank}",
    ]


def discover(
    format: Annotated[str, typer.Argument(metavar="M,K,N", help="The format: blocks m,k,n, or one number for all three.")],
    rank: Annotated[int, typer.Option(help="The most products that the scheme may have.")],
    time: Annotated[str, typer.Option(help="End the search after this time: seconds, or 90s, 5m, 2h.")] = "60",
    seed: Annotated[int, typer.Option(min=0, callback=seed_of_a_search, help="The same seed finds the same scheme.")] = 0,
    walkers: Annotated[int, typer.Option(min=1, max=4096, help="Number of walks; another number finds another scheme.")] = 8,
    over: Annotated[str, typer.Option(help="Z: coefficients -1, 0 and 1; or Z/2: a faster walk, for `bilinear lift` to lift.")] = "Z",
    lift: Annotated[bool, typer.Option("--lift", help="Over Z/2: go on until a scheme can be lifted to Z or Q, and write that.")] = False,
    start: Annotated[
        str, typer.Option("--from", help="Begin at this scheme, a .bl file or a shipped name, in place of the classical.")
    ] = "",
    state: Annotated[Path | None, typer.Option("--state", help="Keep the walk in this file; if it exists, continue from it.")] = None,
    best: Annotated[bool, typer.Option("--best", help="Write the best scheme if the rank is not reached.")] = False,
    output: Output = None,
    json_file: Json = None,
) -> None:
    """Search for a scheme of low rank by a walk in the flip graph, with coefficients -1, 0 and 1 or over Z/2, and prove the result.

    It is written in this folder, named by format, rank and seed, unless `-o` names another place.
    """
    from bilinear.codegen.cache import default_cache
    from bilinear.discovery.flip_search import discover
    from bilinear.discovery.tasks import WalkTask
    from bilinear.frontend import load

    shape, seconds = read_shape(format), read_seconds(time)
    task = WalkTask(shape, rank, seed, walkers, over, load(start).scheme if start else None, start, lift)
    require_files(output or Path("walk.bl"), state, file_of(json_file))
    cache = default_cache().folder
    with interrupted_by_sigterm(), progress_bar() as progress:
        found = discover(task, seconds, folder=cache and cache / "discovery", state=state, progress=progress)
    written = _write(found, output) if found.reached or best else None
    answer(json_file, lambda: json.dumps(_facts(found, written), indent=1), lambda: _told(found, written))
    if found.interrupted:
        raise KeyboardInterrupt
    if not found.reached:
        raise _not_reached(found, time, written)


def _write(found: WalkResult, output: Path | None) -> Path | None:
    """Write the scheme and name it like its file if that is a valid name; None if there is none below the classical rank."""
    from bilinear.frontend.printer import print_scheme

    if found.scheme is None:
        return None
    names = chain([f"{found.scheme.name}.bl"], (f"{found.scheme.name}_{number}.bl" for number in count(2)))
    for path in map(Path, names) if output is None else [output]:
        try:
            text = print_scheme(replace(found.scheme, name=path.stem))
        except BilinearError:
            text = print_scheme(found.scheme)
        if output is None and holds_another(path, text.encode()):
            continue  # the user may have edited that file
        write_file(path, text)
        return path
    raise AssertionError("one of the names is free")


def _facts(found: WalkResult, written: Path | None) -> dict[str, object]:
    m, k, n = found.task.format
    return {
        "format": f"<{m},{k},{n};{found.rank}>",
        "ring": found.scheme.ring.name if found.scheme is not None and found.task.ring == "Z/2" else found.task.ring,
        "asked": found.task.rank,
        "rank": found.rank,
        "reached": found.reached,
        "proved": found.scheme is not None,
        "seed": found.task.seed,
        "walkers": found.task.walkers,
        "walker": found.walker,
        "steps": found.steps,
        "total_steps": found.total,
        "seconds": round(found.seconds, 3),
        "additions": found.scheme.additions if found.scheme is not None else None,
        "file": str(written) if written is not None else None,
    }


def _told(found: WalkResult, written: Path | None) -> str:
    m, k, n = found.task.format
    lines = [f"{found.total} steps of {found.task.walkers} walkers in {found.seconds:.1f} s"]
    if found.scheme is not None:
        facts = f"{found.scheme.additions} additions, by walker {found.walker} after {found.steps} steps"
        over = f" over {found.scheme.ring}" if found.task.ring == "Z/2" else ""
        lines.insert(0, f"<{m},{k},{n};{found.rank}>: proved{over}, {facts}")
    if written is not None:
        lines.append(f"written to {written}; `bilinear verify {written}` proves it again")
    return visible_lines(lines)


def _not_reached(found: WalkResult, time: str, written: Path | None) -> BilinearError:
    m, k, n = found.task.format
    begin = "the classical rank" if found.task.start is None else f"the rank {found.task.begin} of the start"
    rank = f"the best rank is {found.rank}" + ", and nothing of the rank was lifted" * (found.rank <= found.task.rank)
    below = rank if found.scheme is not None else f"nothing is below {begin}"
    keep = ("give --best to write the scheme that was reached",) if found.scheme is not None and written is None else ()
    return fail(
        "E663", f"<{m},{k},{n};{found.task.rank}> was not found in --time {time}: {below}", "give more --time, or another --seed", *keep
    )
