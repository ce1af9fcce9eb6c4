"""new: start a file for a new scheme."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bilinear.cli.common import Output, read_shape, say
from bilinear.errors import fail
from bilinear.places import require_files
from bilinear.writing import write_file

if TYPE_CHECKING:
    from bilinear.ir.scheme import Scheme

MOST_CELLS = 400_000
"""The most coefficients in a table that is written; much larger files cannot be read."""

HELP = """\
# {name}: why it is worth having.
#
# A row is a product: its factor over the blocks of A, its factor over the blocks of B, and how often it is added to each block of C.
# Blocks stand row by row, and C is not transposed. Coefficients are 0, 1, -1, 1/2; for others end the header with `over Q[sqrt(3)]`.
# Equations in place of the rows mean the same, and may share sums: M1 = (A11 + A22) * (B11 + B22) ; ... ; C11 = M1 + M4 - M5 + M7
# Cite where it comes from below the header: source "Author, Title, Journal 1 (1969), pages."
"""


def new(
    name: Annotated[str, typer.Argument(help="The name of the scheme.")],
    format: Annotated[str, typer.Argument(metavar="M,K,N", help="A has m x k blocks, B k x n, C m x n; one number stands for all three.")],
    rank: Annotated[int | None, typer.Option(help="Empty rows for this many products (default: the classical product).")] = None,
    output: Output = None,
) -> None:
    """Start a scheme: a file with the classical product, or with empty rows to fill in; it is written to NAME.bl, or where `-o` says."""
    sizes = read_shape(format)
    path = output or Path(f"{name}.bl")
    text = starting_text(name, *sizes, rank)
    require_files(path)
    if path.exists():
        raise fail("E672", f"{path} is there already", "choose another place with -o")
    write_file(path, text)
    if rank is None:
        say(f"written to {path}: the classical product, which `bilinear verify {path}` proves; put your rows in place of its rows")
    else:
        say(f"written to {path}: {rank} empty rows; fill them in; `bilinear verify {path}` shows what is still wrong")


def starting_text(name: str, m: int, k: int, n: int, rank: int | None) -> str:
    """A file for editing a scheme <m,k,n;rank>.

    Instructions as comments, then a table of zeros, or without a rank the classical product.

    Raises `BilinearError`: E241 if the name cannot be written, E671 if no scheme has this rank, E673 if the table is too large.
    """
    from bilinear.algebra.composition import classical
    from bilinear.frontend.printer import print_scheme
    from bilinear.ir.ring import RATIONALS

    _check_rank(m, k, n, rank)
    if (m * k * n if rank is None else rank) * (m * k + k * n + m * n) > MOST_CELLS:
        raise fail("E673", "the table is too large to be edited", f"give smaller sizes: at most {MOST_CELLS} coefficients are written")
    scheme = replace(classical(m, k, n), name=name, ring=RATIONALS) if rank is None else blank(name, m, k, n, rank)
    return HELP.format(name=name) + print_scheme(scheme)


def blank(name: str, m: int, k: int, n: int, rank: int) -> Scheme:
    """A scheme whose coefficients are all 0."""
    from bilinear.algebra.combined import numbered
    from bilinear.ir.linear import LinearMap
    from bilinear.ir.scheme import Scheme

    rows = ((),) * rank
    return Scheme(name, m, k, n, LinearMap(m * k, rows), LinearMap(k * n, rows), LinearMap(rank, ((),) * (m * n)), numbered(rank))


def _check_rank(m: int, k: int, n: int, rank: int | None) -> None:
    """Refuse a rank above the classical one, or below any that is possible (E671)."""
    from bilinear.ir.scheme import least_rank

    least, most = least_rank(m, k, n), m * k * n
    if rank is not None and not least <= rank <= most:
        raise fail("E671", f"no scheme <{m},{k},{n}> of {rank} products is worth writing", f"between {least} and {most} are possible")
