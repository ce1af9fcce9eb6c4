"""discover, lift, share and combine."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bilinear.cli import completing
from bilinear.cli.answers import Json, answer, file_of, say, write_result
from bilinear.cli.common import AlgorithmName, Output, progress_bar, raises_on_sigterm, read_seconds, read_shape, seed_of_a_search
from bilinear.errors import BilinearError, fail
from bilinear.places import holds_another, require_files
from bilinear.reporting.table import aligned
from bilinear.visible import WIDEST, visible, visible_lines
from bilinear.writing import write_file

if TYPE_CHECKING:
    from bilinear.algebra.composition import SchemeTree, Triple
    from bilinear.algebra.share_sums import Shared
    from bilinear.discovery.flip_search import Found
    from bilinear.errors import BilinearError
    from bilinear.ir.linear import LinearMap
    from bilinear.ir.ring import Ring
    from bilinear.ir.scheme import Scheme


INDENT = 2  # Spaces before the lines of the table.


def share(
    algorithm: AlgorithmName,
    time: Annotated[str, typer.Option(help="Cut the search after this time: 90s, 5m (default: it ends by itself).")] = "",
    seed: Annotated[int, typer.Option(help="Seed of the search.")] = 0,
    work: Annotated[int | None, typer.Option(min=1, help="The most sums to try; the same work and seed give the same result.")] = None,
    tries: Annotated[int, typer.Option(min=1, help="Search from this many seeds; keep the best program of each map.")] = 1,
    other_basis: Annotated[bool, typer.Option("--other-basis", help="First change the bases so that U, V and W have few terms.")] = False,
    output: Output = None,
    json_file: Json = None,
) -> None:
    """Find the sums that a scheme's forms share, compute each once, and count additions and scalings before and after."""
    from bilinear.algebra.change_basis import change_to_sparse_bases
    from bilinear.algebra.share_sums import WORK, share_sums
    from bilinear.frontend import load
    from bilinear.frontend.printer import readable_text
    from bilinear.verify.scheme import prove_scheme

    seconds = read_seconds(time) if time else math.inf
    loaded = load(algorithm)
    require_files(output, file_of(json_file))
    scheme = loaded.scheme
    prove_scheme(scheme).require()
    with progress_bar() as progress:
        result = share_sums(
            change_to_sparse_bases(scheme, seed=seed) if other_basis else scheme,
            seed=seed,
            work=work or WORK,
            seconds=seconds,
            tries=tries,
            progress=lambda state: progress(str(state), state.done, state.allowed),
        )
    prove_scheme(result.scheme).require()
    answer(json_file, lambda: _shared_facts(scheme, result, seed, tries), lambda: _told_shared(scheme, result, time, tries))
    write_result(output, lambda _: readable_text(result.scheme, with_sums=True), json_file)


def _counts(scheme: Scheme, result: Shared) -> list[tuple[LinearMap, LinearMap, LinearMap]]:
    """Each map as a table, as given, and as found."""
    from bilinear.ir.linear import LinearMap

    sizes = (scheme.m * scheme.k, scheme.k * scheme.n, scheme.rank)
    tables = (LinearMap(size, table) for size, table in zip(sizes, scheme.tables, strict=True))
    maps = zip((scheme.u, scheme.v, scheme.w), (result.scheme.u, result.scheme.v, result.scheme.w), strict=True)
    return [(table, before, after) for table, (before, after) in zip(tables, maps, strict=True)]


def _shared_facts(scheme: Scheme, result: Shared, seed: int, tries: int) -> dict[str, object]:
    def count(linear: LinearMap) -> dict[str, int]:
        return {"additions": linear.additions, "scalings": linear.scalings}

    rows = {
        operand: {"table": count(table), "before": count(before), "after": count(after), "least": least}
        for operand, (table, before, after), least in zip("ABC", _counts(scheme, result), result.least, strict=True)
    }
    bases = result.scheme.bases
    changes = {} if bases is None else {"bases": {"A": count(bases.a), "B": count(bases.b), "C": count(bases.c)}}
    return {
        "scheme": result.scheme.name,
        "format": scheme.format,
        "verdict": "proved",
        **rows,
        **changes,
        "seed": seed,
        "tries": tries,
        "work": result.work,
        "cut": result.was_cut,
    }


def _told_shared(scheme: Scheme, result: Shared, time: str, tries: int) -> str:

    counts = _counts(scheme, result)
    rows = [
        (operand, *(number for linear in maps for number in (linear.additions, linear.scalings)))
        for operand, maps in zip("ABC", counts, strict=True)
    ]
    total = ("all", *(sum(column) for column in zip(*(row[1:] for row in rows), strict=True)))
    header = ("on", "table: additions", "scalings", "before: additions", "scalings", "now: additions", "scalings")
    table = aligned([*rows, total], header, INDENT)
    lines = [f"{result.scheme.name} {scheme.format}: proved", "", *(f"{' ' * INDENT}{line}" for line in table), ""]
    least = [operand for operand, known in zip("ABC", result.least, strict=True) if known]
    if least:
        lines.append(f"sums and differences alone cannot do with fewer on {', '.join(least)}")
    bases = result.scheme.bases
    if bases is not None:
        changes = " + ".join(str(linear.additions) for linear in (bases.a, bases.b, bases.c))
        lines.append(f"changes of basis, once before and after all levels: {changes} additions on A, B and C")
    if result.was_cut:
        limit = f"--work {result.work}" if tries == 1 else "fewer --tries or less --work"
        lines.append(f"cut by --time {time}: another machine may find another program; {limit} ends a search everywhere alike")
    return "\n".join(lines).rstrip("\n")


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
    head = f"{lifted.scheme.name} {lifted.scheme.format}: proved over {lifted.scheme.ring}, {lifted.scheme.additions} additions"
    how = f"lifted to Z/{2**lifted.power} by {lifted.equations} equations for {lifted.unknowns} unknowns, of rank {lifted.rank}"
    facts = {
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
    answer(json_file, lambda: facts, lambda: f"{head}\n{how}")
    write_result(output, lambda place: _named_like(lifted.scheme, place), json_file)


def _named_like(scheme: Scheme, place: Path) -> str:
    """The scheme in the language, named like its file if that is a valid name."""
    from bilinear.frontend.printer import print_scheme

    try:
        return print_scheme(replace(scheme, name=place.stem))
    except BilinearError:
        return print_scheme(scheme)


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
    from bilinear.discovery.flip_search import discover
    from bilinear.discovery.walker import SearchTask
    from bilinear.frontend import load

    shape, seconds = read_shape(format), read_seconds(time)
    task = SearchTask(shape, rank, seed, walkers, over, load(start).scheme if start else None, start, lift)
    require_files(output or Path("walk.bl"), state, file_of(json_file))
    with raises_on_sigterm(KeyboardInterrupt()), progress_bar() as progress:
        found = discover(task, seconds, state=state, progress=progress)
    written = _write(found, output) if found.reached or best else None
    answer(json_file, lambda: _facts(found, written), lambda: _told(found, written))
    if found.interrupted:
        raise KeyboardInterrupt
    if not found.reached:
        m, k, n = found.task.format
        what = f"<{m},{k},{n};{found.task.rank}> was not found in --time {time}:"
        if found.scheme is None:
            begin = "the classical rank" if found.task.start is None else f"the rank {found.task.begin} of the start"
            raise fail("E663", f"{what} nothing is below {begin}", "give more --time, or another --seed")
        what += f" the best rank is {found.rank}" + ", and nothing of the rank was lifted" * (found.rank <= found.task.rank)
        keep = ("give --best to write the scheme that was reached",) if written is None else ()
        raise fail("E663", what, "give more --time, or another --seed", *keep)


def _write(found: Found, output: Path | None) -> Path | None:
    """Write the scheme; None if there is none below the classical rank."""
    if found.scheme is None:
        return None
    names = chain([f"{found.scheme.name}.bl"], (f"{found.scheme.name}_{number}.bl" for number in count(2)))
    for path in map(Path, names) if output is None else [output]:
        text = _named_like(found.scheme, path)
        if output is None and holds_another(path, text.encode()):
            continue  # the user may have edited that file
        write_file(path, text)
        return path
    raise AssertionError("one of the names is free")


def _facts(found: Found, written: Path | None) -> dict[str, object]:
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


def _told(found: Found, written: Path | None) -> str:
    from bilinear.reporting.shipped import compared

    m, k, n = found.task.format
    lines = [f"{found.total} steps of {found.task.walkers} walkers in {found.seconds:.1f} s"]
    if found.scheme is not None:
        facts = f"{found.scheme.additions} additions, by walker {found.walker} after {found.steps} steps"
        over = f" over {found.scheme.ring}" if found.task.ring == "Z/2" else ""
        lines[:0] = [f"<{m},{k},{n};{found.rank}>: proved{over}, {facts}", *compared(m, k, n, found.rank, found.scheme.ring)]
    if written is not None:
        lines.append(f"written to {written}; `bilinear verify {written}` proves it again")
    return visible_lines(lines)


def combine(
    format: Annotated[str, typer.Argument(metavar="M,K,N", help="The format: blocks m,k,n, or one number for all three.")],
    library: Annotated[list[Path] | None, typer.Argument(help="Files and folders of more schemes, .bl or published tables.")] = None,
    over: Annotated[str, typer.Option(help="The ring: only schemes that hold over it are used.", autocompletion=completing.rings)] = "Q",
    output: Output = None,
    name: Annotated[str, typer.Option(help="The name of the scheme (default: made from its format).")] = "",
    every: Annotated[bool, typer.Option("--all", help="Also list the best rank of every format up to this one.")] = False,
    json_file: Json = None,
) -> None:
    """Find the least rank that sums and products of the shipped schemes and yours reach for a format, and how."""
    from bilinear.algebra.composition import best_compositions, lies_over
    from bilinear.interchange.folders import schemes_of, shipped_schemes
    from bilinear.interchange.importing import known_ring
    from bilinear.lowering.prepare import proved

    asked, ring = read_shape(format), known_ring(over or " ")
    assert ring is not None, "it has a default"
    require_files(output, file_of(json_file), unread=library or [])
    with progress_bar() as progress:
        entries = [*shipped_schemes(), *schemes_of(library or [], progress, _tell)]
        usable = [(text, scheme) for text, scheme in entries if lies_over(scheme, ring)]
        best = best_compositions(asked, usable, lambda done, of: progress("formats", done, of))
        recipes = best.values() if every else [best[asked]]
        for scheme in {part.text: part.leaf for recipe in recipes for part in recipe.used() if part.leaf is not None}.values():
            proved(scheme)
    recipe = best[asked]
    text = ""
    if output is not None:
        made = replace(recipe.made(), name=name or "best_{}_{}_{}".format(*asked), places=None)
        proved(made)
        text = _combined_text(made, recipe)
    facts = _combined_facts(recipe, ring)
    if every:
        facts["formats"] = [_combined_facts(recipe, ring) for shape, recipe in best.items() if shape == tuple(sorted(shape))]
    answer(json_file, lambda: facts, lambda: _told_combined(recipe, ring) + (f"\n\n{_table(best, ring)}" if every else ""))
    write_result(output, lambda _: text, json_file)


def _tell(path: Path, error: BilinearError) -> None:
    say(f"{path} is passed over: {error.diagnostics[0].message} ({error.diagnostics[0].code})", error=True)


def _combined_text(scheme: Scheme, recipe: SchemeTree) -> str:
    from bilinear.frontend.printer import readable_text

    told = f"# {recipe.rank} products in place of {recipe.m * recipe.k * recipe.n}: {recipe.expression}"
    head = visible(told, len(told) * WIDEST) + "\n"
    hint = f"write a file that says how it is made: scheme {scheme.name} = {recipe.expression}"
    return readable_text(scheme, head, hint=hint[:500])


def _told_combined(recipe: SchemeTree, ring: Ring) -> str:
    from bilinear.reporting.shipped import compared

    volume = recipe.m * recipe.k * recipe.n
    a, b, c = recipe.additions
    known = f"exponent {recipe.exponent:.4f}, {a + b + c} additions = {a} on A + {b} on B + {c} on C"
    products = f"{recipe.rank} product{'s' * (recipe.rank != 1)}"
    best = compared(recipe.m, recipe.k, recipe.n, recipe.rank, ring)
    return visible_lines([f"{products} in place of {volume}, {known}", *best, "", f"  {recipe.expression}", "", *recipe.lines("  ")])


def _known(recipe: SchemeTree, ring: Ring) -> int | None:
    from bilinear.reporting.shipped import known_rank

    known = known_rank(recipe.m, recipe.k, recipe.n)
    return None if known is None else known.over(ring)


def _combined_facts(recipe: SchemeTree, ring: Ring) -> dict[str, object]:
    a, b, c = recipe.additions
    return {
        "format": [recipe.m, recipe.k, recipe.n],
        "rank": recipe.rank,
        "classical": recipe.m * recipe.k * recipe.n,
        "known_rank": _known(recipe, ring),
        "exponent": recipe.exponent,
        "additions": {"a": a, "b": b, "c": c},
        "expression": recipe.expression,
    }


def _table(best: dict[Triple, SchemeTree], ring: Ring) -> str:
    """The formats m <= k <= n of more than one block, one line each."""

    chosen = [recipe for shape, recipe in best.items() if shape == tuple(sorted(shape)) and shape[0] > 1]
    rows = [(r.format, _known(r, ring) or "-", r.m * r.k * r.n, f"{r.exponent:.4f}", sum(r.additions), r.expression) for r in chosen]
    return "\n".join(aligned(rows, ("format", "known", "classical", "exponent", "additions", "recipe")))
