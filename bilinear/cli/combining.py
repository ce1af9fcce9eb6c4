"""combine."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bilinear.cli import completing
from bilinear.cli.answers import Json, answer, file_of, in_place_of_text
from bilinear.cli.common import Output, progress_bar, read_shape, say
from bilinear.places import require_files
from bilinear.visible import WIDEST, visible, visible_lines
from bilinear.writing import write_file

if TYPE_CHECKING:
    from bilinear.algebra.composition import SchemeTree, Triple
    from bilinear.errors import BilinearError
    from bilinear.ir.scheme import Scheme


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
        for scheme in _parts(best.values() if every else [best[asked]]):
            proved(scheme)
    recipe = best[asked]
    made = _made(recipe, name or "best_{}_{}_{}".format(*asked)) if output is not None else None
    text = _written(made, recipe) if made is not None else ""
    facts = {**_facts(recipe), **({"formats": _formats(best)} if every else {})}
    answer(json_file, lambda: json.dumps(facts, indent=1), lambda: _told(recipe) + (f"\n\n{_table(best)}" if every else ""))
    if output is not None:
        write_file(output, text)
        if not in_place_of_text(json_file):
            say("", f"written to {output}; `bilinear verify {output}` proves it again")


def _tell(path: Path, error: BilinearError) -> None:
    """Report the files of a folder that are skipped."""
    say(f"{path} is passed over: {error.diagnostics[0].message} ({error.diagnostics[0].code})", error=True)


def _parts(recipes: Iterable[SchemeTree]) -> list[Scheme]:
    """The schemes that recipes are made from, each permutation once."""
    return list({part.text: part.leaf for recipe in recipes for part in recipe.used() if part.leaf is not None}.values())


def _made(recipe: SchemeTree, name: str) -> Scheme:
    """Build the scheme of a recipe, proved."""
    from bilinear.lowering.prepare import proved

    scheme = replace(recipe.made(), name=name, places=None)
    proved(scheme)
    return scheme


def _written(scheme: Scheme, recipe: SchemeTree) -> str:
    """A scheme in the language, below its recipe."""
    from bilinear.frontend.printer import readable_text

    told = f"# {recipe.rank} products in place of {recipe.m * recipe.k * recipe.n}: {recipe.expression}"
    head = visible(told, len(told) * WIDEST) + "\n"
    hint = f"write a file that says how it is made: scheme {scheme.name} = {recipe.expression}"
    return readable_text(scheme, head, hint=hint[:500])


def _told(recipe: SchemeTree) -> str:
    """A summary of a recipe, and its tree."""
    volume = recipe.m * recipe.k * recipe.n
    a, b, c = recipe.additions
    known = f"exponent {recipe.exponent:.4f}, {a + b + c} additions = {a} on A + {b} on B + {c} on C"
    products = f"{recipe.rank} product{'s' * (recipe.rank != 1)}"
    return visible_lines([f"{products} in place of {volume}, {known}", "", f"  {recipe.expression}", "", *recipe.lines("  ")])


def _facts(recipe: SchemeTree) -> dict[str, object]:
    a, b, c = recipe.additions
    return {
        "format": [recipe.m, recipe.k, recipe.n],
        "rank": recipe.rank,
        "classical": recipe.m * recipe.k * recipe.n,
        "exponent": recipe.exponent,
        "additions": {"a": a, "b": b, "c": c},
        "expression": recipe.expression,
    }


def _formats(best: dict[Triple, SchemeTree]) -> list[dict[str, object]]:
    return [_facts(recipe) for shape, recipe in best.items() if shape == tuple(sorted(shape))]


def _table(best: dict[Triple, SchemeTree]) -> str:
    """The formats m <= k <= n of more than one block, one line each."""
    from bilinear.reporting.table import aligned

    chosen = [recipe for shape, recipe in best.items() if shape == tuple(sorted(shape)) and shape[0] > 1]
    rows = [(r.format, r.m * r.k * r.n, f"{r.exponent:.4f}", sum(r.additions), r.expression) for r in chosen]
    return "\n".join(aligned(rows, ("format", "classical", "exponent", "additions", "recipe")))
