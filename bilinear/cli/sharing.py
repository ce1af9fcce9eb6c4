"""share."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Annotated

import typer

from bilinear.cli.answers import Json, answer, file_of, in_place_of_text
from bilinear.cli.common import AlgorithmName, Output, progress_bar, read_seconds, say
from bilinear.places import require_files
from bilinear.writing import write_file

if TYPE_CHECKING:
    from bilinear.algebra.share_sums import Shared
    from bilinear.ir.linear import LinearMap
    from bilinear.ir.scheme import Scheme

INDENT = 2
"""Spaces before the lines of the table."""


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
    from bilinear.algebra.basis_search import change_to_sparse_bases
    from bilinear.algebra.share_sums import WORK, share_sums
    from bilinear.frontend import load
    from bilinear.frontend.write_scheme import readable_text
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
    answer(json_file, lambda: json.dumps(_facts(scheme, result, seed, tries), indent=1), lambda: _told(scheme, result, time, tries))
    if output is not None:
        write_file(output, readable_text(result.scheme, with_sums=True))
        if not in_place_of_text(json_file):
            say(f"written to {output}; `bilinear verify {output}` proves it again")


def _counts(scheme: Scheme, result: Shared) -> list[tuple[LinearMap, LinearMap, LinearMap]]:
    """Each map as a table, as given, and as found."""
    from bilinear.ir.linear import LinearMap

    sizes = (scheme.m * scheme.k, scheme.k * scheme.n, scheme.rank)
    tables = (LinearMap(size, table) for size, table in zip(sizes, scheme.tables, strict=True))
    maps = zip((scheme.u, scheme.v, scheme.w), (result.scheme.u, result.scheme.v, result.scheme.w), strict=True)
    return [(table, before, after) for table, (before, after) in zip(tables, maps, strict=True)]


def _facts(scheme: Scheme, result: Shared, seed: int, tries: int) -> dict[str, object]:
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


def _told(scheme: Scheme, result: Shared, time: str, tries: int) -> str:
    from bilinear.reporting.table import aligned

    counts = _counts(scheme, result)
    rows = [
        (operand, *(number for linear in maps for number in (linear.additions, linear.scalings)))
        for operand, maps in zip("ABC", counts, strict=True)
    ]
    total = ("all", *(sum(column) for column in zip(*(row[1:] for row in rows), strict=True)))
    header = ("on", "table: additions", "scalings", "before: additions", "scalings", "now: additions", "scalings")
    lines = [
        f"{result.scheme.name} {scheme.format}: proved",
        "",
        *(f"{' ' * INDENT}{line}" for line in aligned([*rows, total], header, INDENT)),
        "",
    ]
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
