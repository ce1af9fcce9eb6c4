"""new, list, add and remove: the shipped algorithms, and the user's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bilinear.cli import completing
from bilinear.cli.answers import Json, answer, file_of, say
from bilinear.cli.common import Output, read_shape, waiting, words
from bilinear.errors import BilinearError, fail
from bilinear.places import require_files
from bilinear.reporting.table import aligned
from bilinear.writing import write_file

if TYPE_CHECKING:
    from bilinear.reporting.shipped import LibraryRow


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
    format: Annotated[str, typer.Argument(metavar="[M,K,N]", help="A has m x k blocks, B k x n, C m x n; one number sets all three.")] = "",
    rank: Annotated[int | None, typer.Option(help="Empty rows for this many products (default: the classical product).")] = None,
    paper: Annotated[
        Path | None, typer.Option("--from", help="A file of formulas as a paper prints them, or of a published format, in place of M,K,N.")
    ] = None,
    output: Output = None,
) -> None:
    """Start a scheme in NAME.bl, or where `-o` says: the classical product, empty rows to fill in, or the formulas of a paper.

    The core of the language is schemes, schedules, and stages, whose steps all read the values from before:

    \b
    scheme mine <2,2,2;7>    # 2 x 2 blocks by 2 x 2 blocks in 7 products
      M1 = (A11 + A22) * (B11 + B22) ; M2 = (A21 + A22) * B11
      M3 = A11 * (B12 - B22)         ; M4 = A22 * (B21 - B11)
      M5 = (A11 + A12) * B22         ; M6 = (A21 - A11) * (B11 + B12)
      M7 = (A12 - A22) * (B21 + B22)
      C11 = M1 + M4 - M5 + M7        ; C12 = M3 + M5
      C21 = M2 + M4                  ; C22 = M1 - M2 + M3 + M6

    \b
    schedule lean of mine: in-place, restores A B    # where and when
      stage { A21 += A22 ; B12 -= B22 ; B21 -= B11 ; A12 += A11 }
      stage { C21, -C22 += A21 * B11 ; C12, C22 += A11 * B12
              C11, C21 += A22 * B21 ; C12, -C11 += A12 * B22 }
      stage { A11 += A22 ; B11 += B22 }
      stage { A21 -= A11 ; B12 += B11 ; A12 -= A11 ; B21 += B11 }
      stage { C11, C22 += A11 * B11 ; C22 += A21 * B12 ; C11 += A12 * B21 }
      restore stage { A11 -= A22 ; B11 -= B22 }
      restore stage { A12 += A22 ; B12 -= B11 ; A21 += A11 ; B21 -= B22 }
    """
    if (paper is None) == (not format) or (paper is not None and rank is not None):
        raise fail("E507", "a new scheme is of a size, or from a file", "bilinear new NAME 2,2,2, or bilinear new NAME --from paper.txt")
    path = output or Path(f"{name}.bl")
    if paper is None:
        text = _starting_text(name, *read_shape(format), rank)
    else:
        from bilinear.algebra.maps import on_blocks
        from bilinear.frontend.printer import readable_text
        from bilinear.interchange.importing import import_scheme

        text = readable_text(replace(on_blocks(import_scheme(paper).scheme), name=name))
    require_files(path)
    if path.exists():
        raise fail("E672", f"{path} is there already", "choose another place with -o")
    write_file(path, text)
    if paper is not None:
        say(f"written to {path}: the scheme of {paper}, proved; `bilinear verify {path}` proves it again")
    elif rank is None:
        say(f"written to {path}: the classical product, which `bilinear verify {path}` proves; put your rows in place of its rows")
    else:
        say(f"written to {path}: {rank} empty rows; fill them in; `bilinear verify {path}` shows what is still wrong")


def _starting_text(name: str, m: int, k: int, n: int, rank: int | None) -> str:
    """Instructions as comments, then a table of zeros, or without a rank the classical product (E241, E671, E673)."""
    from bilinear.algebra.composition import classical, numbered
    from bilinear.frontend.printer import print_scheme
    from bilinear.ir.linear import LinearMap
    from bilinear.ir.ring import RATIONALS
    from bilinear.ir.scheme import Scheme, least_rank

    least, most = least_rank(m, k, n), m * k * n
    if rank is not None and not least <= rank <= most:
        raise fail("E671", f"no scheme <{m},{k},{n}> of {rank} products is worth writing", f"between {least} and {most} are possible")
    if (m * k * n if rank is None else rank) * (m * k + k * n + m * n) > MOST_CELLS:
        raise fail("E673", "the table is too large to be edited", f"give smaller sizes: at most {MOST_CELLS} coefficients are written")
    if rank is None:
        scheme = replace(classical(m, k, n), name=name, ring=RATIONALS)
    else:
        rows = ((),) * rank
        maps = LinearMap(m * k, rows), LinearMap(k * n, rows), LinearMap(rank, ((),) * (m * n))
        scheme = Scheme(name, m, k, n, *maps, numbered(rank))
    return HELP.format(name=name) + print_scheme(scheme)


ANY = "*"
NOTE = """known: the fewest products that are published for the format, over the scheme's ring or Q
naive, shared: block additions of the tables, and with shared sums, as the file writes them; growth: of the error, a level"""
COMPLEX = "complex3: three real products for complex matrices, each by any of these that runs (`bilinear verify complex3`)"
MOST_DIGITS = 10


def list_algorithms(
    format: Annotated[str, typer.Option(help="Only schemes of these sizes, in any order: 3,4,5 or 3x4x5, or '2,3,*' with * for any.")] = "",
    over: Annotated[
        str,
        typer.Option(
            help=r"Only schemes with coefficients in this ring: Z, Z/2, Z\[1/2], Q, Q\[sqrt(3)].", autocompletion=completing.rings
        ),
    ] = "",
    max_rank: Annotated[int | None, typer.Option(min=1, help="Only schemes with at most this many products.")] = None,
    own: Annotated[bool, typer.Option("--own", help="Only what `bilinear add` has kept, with the hashes of the schemes.")] = False,
    json_file: Json = None,
) -> None:
    """List the shipped schemes with their costs and their schedules."""
    from bilinear.reporting.shipped import library_rows

    sizes, is_over = _read_format(format), _read_ring(over)
    require_files(file_of(json_file))
    if own:
        _list_own(json_file)
        return
    rows = [row for row in library_rows() if row.has_sizes(sizes) and row.rank <= (max_rank or row.rank)]
    rows = [row for row in rows if is_over(row)]
    header = ("name", "format", "known", "exponent", "ring", "naive", "shared", "growth", "runs")

    def told() -> str:
        if not rows:
            return "no shipped scheme is of that kind; `bilinear list` without options lists all"
        table = aligned([cells for row in rows for cells in _cells(row)], header)
        return "\n".join([*table, *([] if format or over or max_rank else ["", _transposed(), *_own_names()]), "", NOTE, COMPLEX])

    answer(json_file, lambda: [row.to_json() for row in rows], told)


def _cells(r: LibraryRow) -> Iterator[tuple[object, ...]]:
    """A scheme, and below it its schedules by the names that load them."""
    growth = "-" if r.growth is None else f"{r.growth:.4g}"
    what = r.format, r.known_rank or "-", f"{r.exponent:.3f}", r.least_ring
    ways = [*r.expansion, *(schedule.strategy for schedule in r.schedules if schedule.name == r.name)]
    yield r.name, *what, r.naive, r.shared, growth, ", ".join(ways) or r.runs
    for schedule in r.schedules:
        if schedule.name != r.name:
            yield schedule.name, *what, "-", "-", "-", f"{schedule.strategy}, a schedule of {r.name}"


def _transposed() -> str:
    from bilinear.frontend.algorithms import LoadedGram, load_any
    from bilinear.frontend.files import TRANSPOSED, shipped

    found = [loaded.scheme for path in shipped(TRANSPOSED).values() if isinstance(loaded := load_any(path), LoadedGram)]
    return f"for A*A^T, which gram runs: {', '.join(f'{own.name} {own.scheme.format}' for own in found)}"


def _own_names() -> list[str]:
    from bilinear.frontend.files import own

    return [f"your own (`bilinear list --own`): {', '.join(own())}"] if own() else []


def add(file: Annotated[str, typer.Argument(help="A .bl file, or FILE.bl:NAME.")]) -> None:
    """Add an algorithm of your own, proved: `auto`, `plan --levels`, `tune --shape` and `combine` use it like a shipped one."""
    from bilinear.frontend.files import own
    from bilinear.planner.own import add

    before = own()
    with waiting("proving, and counting what its levels cost"):
        name, place = add(file)
    say(f"{name} {'replaces the one of that name' if name in before else 'is added'}, and {'is ' * (name in before)}kept as {place}")


def remove(
    name: Annotated[str, typer.Argument(help="A name that `bilinear list --own` shows.", autocompletion=completing.own_names)],
) -> None:
    """Remove an algorithm of your own."""
    from bilinear.planner.own import remove

    say(f"{name} is removed: {remove(name)}")


def _list_own(json_file: Path | None) -> None:
    from bilinear.frontend.files import own
    from bilinear.planner.profiles import own_records
    from bilinear.planner.ways import algorithm_named, hashes

    def row(name: str) -> dict[str, str | list[str]]:
        scheme, schedule = hashes((name,))[0]
        ways = list(own_records()[name]["outlines"]) if name in own_records() else []
        return {
            "name": name,
            "format": algorithm_named(name).scheme.format,
            "scheme_sha256": scheme,
            "schedule_sha256": schedule,
            "ways": ways,
        }

    rows = []
    for name in own():
        try:
            rows.append(row(name))
        except BilinearError as error:
            what = error.diagnostics[0].message
            say(f"warning: {name} is damaged ({what}): add it again, or `bilinear remove {name}`", error=True)

    def told() -> str:
        hashed = [(str(r["scheme_sha256"])[:16], str(r["schedule_sha256"])[:16] or "-") for r in rows]
        cells = [(r["name"], r["format"], *both, len(r["ways"])) for r, both in zip(rows, hashed, strict=True)]
        none = "there are none; `bilinear add FILE.bl` adds one"
        return "\n".join(aligned(cells, ("name", "format", "scheme", "schedule", "ways"))) if rows else none

    answer(json_file, lambda: rows, told)


def _read_format(text: str) -> tuple[int | None, int | None, int | None]:
    written = words((text or ANY).replace("x", ","))
    sizes = [None if word == ANY else int(word) if word.isdecimal() and len(word) < MOST_DIGITS else 0 for word in written]
    sizes *= 3 if len(sizes) == 1 else 1
    if len(sizes) != 3 or 0 in sizes:
        raise fail("E670", f"{text[:40]!r} is not a format", "give three sizes, or one for all, * for any: --format '2,3,*', 3x3x3")
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
