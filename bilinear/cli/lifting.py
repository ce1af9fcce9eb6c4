"""lift."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bilinear.cli.answers import Json, answer, file_of, in_place_of_text
from bilinear.cli.common import Algorithm, Output, progress_bar, say, seed_of_a_search
from bilinear.errors import BilinearError
from bilinear.places import require_files
from bilinear.writing import write_file

if TYPE_CHECKING:
    from bilinear.discovery.lift import Lifted


def lift(
    algorithm: Algorithm,
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
    answer(json_file, lambda: json.dumps(_facts(lifted, output), indent=1), lambda: "\n".join(_told(lifted)))
    if output is not None and not in_place_of_text(json_file):
        say(f"written to {output}; `bilinear verify {output}` proves it again")


def _text(lifted: Lifted, output: Path) -> str:
    """The scheme in the language, named like its file if that is a valid name."""
    from bilinear.frontend.printer import print_scheme

    try:
        return print_scheme(replace(lifted.scheme, name=output.stem))
    except BilinearError:
        return print_scheme(lifted.scheme)


def _facts(lifted: Lifted, output: Path | None) -> dict[str, object]:
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


def _told(lifted: Lifted) -> list[str]:
    scheme = lifted.scheme
    return [
        f"{scheme.name} {scheme.format}: proved over {scheme.ring}, {scheme.additions} additions",
        f"lifted to Z/{2**lifted.power} by {lifted.equations} equations for {lifted.unknowns} unknowns, of rank {lifted.rank}",
    ]
