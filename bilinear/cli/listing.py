"""list: the shipped algorithms."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from bilinear.cli.options import Json, words
from bilinear.errors import fail

if TYPE_CHECKING:
    from bilinear.reporting.shipped import LibraryRow

ANY = "*"
MOST_DIGITS = 10


def list_algorithms(
    format: Annotated[str, typer.Option(help="Only schemes of these sizes, in any order: 3,4,5, or '2,3,*' with * for any.")] = "",
    ring: Annotated[str, typer.Option(help=r"Only schemes with coefficients in this ring: Z, Z/2, Z\[1/2], Q, Q\[sqrt(3)].")] = "",
    max_rank: Annotated[int | None, typer.Option(min=1, help="Only schemes with at most this many products.")] = None,
    as_json: Json = False,
) -> None:
    """List the shipped schemes: what they cost, and how they run."""
    from bilinear.reporting.shipped import library_rows
    from bilinear.reporting.table import aligned

    sizes, over = _read_format(format), _read_ring(ring)
    rows = [row for row in library_rows() if row.has_sizes(sizes) and row.rank <= (max_rank or row.rank)]
    rows = [row for row in rows if over(row)]
    if as_json:
        print(json.dumps([row.to_json() for row in rows], indent=1))
        return
    if not rows:
        print("no shipped scheme is of that kind; `bilinear list` without options lists all")
        return
    header = ("name", "format", "exponent", "ring", "naive", "shared", "growth", "runs")
    cells = [
        (r.name, r.format, f"{r.exponent:.3f}", r.least_ring, r.naive, r.shared, "-" if r.growth is None else f"{r.growth:.4g}", r.runs)
        for r in rows
    ]
    print("\n".join(aligned(cells, header)))
    print("\nnaive, shared: block additions of the tables, and with shared sums, as the file writes them; growth: of the error, a level")


def _read_format(text: str) -> tuple[int | None, int | None, int | None]:
    """Three sizes, None for any (E670)."""
    sizes = [None if word == ANY else int(word) if word.isdecimal() and len(word) < MOST_DIGITS else 0 for word in words(text or "*,*,*")]
    if len(sizes) != 3 or 0 in sizes:
        raise fail("E670", f"{text[:40]!r} is no format", "give three sizes, * for any: --format '2,3,*'")
    return sizes[0], sizes[1], sizes[2]


def _read_ring(text: str) -> Callable[[LibraryRow], bool]:
    """A test for rows in the requested ring (E203); Z[1/2] means fractions whose denominators are powers of 2."""
    if not text:
        return lambda row: True
    fractions = re.fullmatch(r"Z\[1/([1-9][0-9]{0,17})\]", "".join(text.split()))
    if fractions:
        inverted = int(fractions[1])
        return lambda row: row.has_inverse(inverted)
    from bilinear.interchange.importing import known_ring

    ring = known_ring(text)
    return lambda row: ring is None or row.lies_in(ring)
