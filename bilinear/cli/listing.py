"""new, list, add, remove, import and export: the shipped algorithms, the user's own, and published ones."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bilinear.cli import completing
from bilinear.cli.answers import Json, answer, file_of, say, write_result
from bilinear.cli.common import AlgorithmName, Output, progress_bar, read_shape, waiting, words
from bilinear.cli.spelling import as_options
from bilinear.errors import BilinearError, fail
from bilinear.places import holds_another, require_files
from bilinear.reporting.table import aligned
from bilinear.visible import visible_lines
from bilinear.writing import write_file, write_files

if TYPE_CHECKING:
    from bilinear.interchange.importing import Imported
    from bilinear.interchange.targets import Identified
    from bilinear.reporting.shipped import LibraryRow


MOST_CELLS = 400_000  # The most coefficients in a table that is written; much larger files cannot be read.

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


def import_(
    file: Annotated[Path, typer.Argument(help="A published table, any file of a set of three, or a folder of them.")],
    output: Output = None,
    format: Annotated[str, typer.Option("--from", help="json, npz, exp, maple or another of docs/formats.md (default: detect it).")] = "",
    over: Annotated[
        str, typer.Option(help=r"The ring of the coefficients: Q, Z/2, Q\[sqrt(3)] (default: detect it).", autocompletion=completing.rings)
    ] = "",
    c: Annotated[str, typer.Option("--c", help="How the file numbers the blocks of C: rows or columns (default: detect it).")] = "",
    entry: Annotated[str, typer.Option(help="Which scheme of an archive or a notebook: 4,5,5.")] = "",
    json_file: Json = None,
) -> None:
    """Read a published scheme, prove it, and write it in the language; of a folder, prove every file."""
    from bilinear.algebra.maps import on_blocks
    from bilinear.frontend.printer import readable_text
    from bilinear.interchange.importing import Imported, import_file, known_ring
    from bilinear.interchange.plinopt import files_of

    if c not in ("", "rows", "columns"):
        raise fail("E507", f"--c {c!r} is not an order of blocks", "give rows, or columns where C is transposed")
    if os.path.isdir(file):  # which a name that is too long is not
        if output is not None or format or over or c or entry:
            raise fail("E507", "a folder is read as it is", "name one of its files to choose how it is read")
        _folder(file, json_file)
        return
    files = files_of(file)
    require_files(output, file_of(json_file), unread=[file, *(files.every if files is not None else ())])
    result = import_file(file, format=format, ring=known_ring(over), transposed=c == "columns" if c else None, entry=entry)
    if not isinstance(result, Imported):
        _other(file, result, output, json_file)
        return
    answer(json_file, lambda: _facts(file, result), lambda: _told(file, result))
    write_result(output, lambda _: readable_text(on_blocks(result.scheme)), json_file)


def export(
    algorithm: AlgorithmName,
    to: Annotated[str, typer.Option(help="fast-matmul, json, sms or npz.", autocompletion=completing.formats)],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file, or for sms the start of the file names.")] = None,
) -> None:
    """Write a scheme in the format of a published collection (default: in this folder, named as that collection does)."""
    from bilinear.frontend import load
    from bilinear.interchange.exporting import export_files, what_is_lost
    from bilinear.verify.scheme import prove_scheme

    loaded = load(algorithm)
    scheme = loaded.scheme
    contents = {_place(name, to, output): data for name, data in export_files(scheme, to).items()}
    require_files(*contents)
    taken = [path for path, data in contents.items() if output is None and holds_another(path, data)]
    if taken:
        raise fail("E612", f"cannot write {taken[0]}: something else is there already", "name a place with -o")
    prove_scheme(scheme).require()
    write_files(contents)
    for path in contents:
        say(f"written to {path}")
    for lost in what_is_lost(scheme, to):
        say(f"note: {as_options(lost)}")


def _place(name: str, to: str, output: Path | None) -> Path:
    """The place of a file that its collection calls by this name."""
    if output is None:
        return Path(name)
    if to != "sms" or not output.name:
        return output
    change = "-CoB" if "-CoB_" in name else "-ALT" if "-ALT_" in name else ""
    return output.with_name(f"{output.name.removesuffix('.sms')}{change}{name[-6:]}")


def _facts(file: Path, result: Imported) -> dict[str, object]:
    scheme, proof = result.scheme, result.proof
    return {
        "file": str(file),
        "verdict": "proved",
        "scheme": scheme.name,
        "format": scheme.format,
        "read_as": result.format.name,
        "known": result.how,
        "c": "columns" if result.transposed else "rows",
        "ring": str(scheme.ring),
        "valid_over": list(proof.valid_over),
        "order": proof.order,
        "additions": scheme.additions,
        "other_bases": scheme.bases is not None,
        "found": list(result.found),
    }


def _told(file: Path, result: Imported) -> str:

    scheme, proof = result.scheme, result.proof
    order = [("error", f"O(lambda^{proof.order})")] if proof.order else []
    rows = [
        ("file", str(file)),
        ("read as", f"{result.format.title}, {result.how}"),
        ("blocks of C", result.orientation),
        ("ring", f"{scheme.ring}; holds over {', '.join(proof.valid_over)}"),
        *order,
        ("scheme", f"{scheme.name} {scheme.format}{', in other bases' if scheme.bases is not None else ''}"),
        ("additions", f"{scheme.additions} = {scheme.u.additions} on A + {scheme.v.additions} on B + {scheme.w.additions} on C"),
        *(("found out", told) for told in result.found),
    ]
    return "\n".join([f"{scheme.name}: proved", "", *(f"  {line}" for line in aligned(rows, None))])


def _other(file: Path, result: Identified, output: Path | None, json_file: Path | None) -> None:
    """Report another bilinear map: it is proved, but the language cannot express it."""
    if result.missing:
        raise fail("E356", f"{file} holds a part of an algorithm; it lacks {result.missing}")
    if output is not None:
        raise fail(
            "E355", f"{file} computes {result.title}, and the language writes products of matrices", "import it without -o to prove it"
        )
    name = result.algorithm.name
    facts = {"file": str(file), "verdict": "proved", "scheme": name, "computes": result.title, "ring": result.ring}
    rows = (("computes", result.title), ("ring", result.ring), ("products", len(result.algorithm.u.outputs)))
    lines = [f"{name}: proved", "", *(f"  {fact:8}  {value}" for fact, value in rows)]
    answer(json_file, lambda: facts, lambda: visible_lines(lines))


def _folder(folder: Path, json_file: Path | None) -> None:
    """The table of every file of a folder that could hold a scheme, and its sums."""
    from bilinear.interchange.folders import PASSED_OVER, REFUSED, by_folder, survey

    require_files(file_of(json_file), unread=[folder])
    with progress_bar() as progress:
        found = list(survey(folder, progress))
    rows = [row for row in found if row.verdict != PASSED_OVER]
    passed_over = [row.file for row in found if row.verdict == PASSED_OVER]

    def told() -> str:
        lines = aligned([(row.file, row.format, row.verdict, row.what) for row in rows], ("file", "format", "verdict", "what"))
        lines += ["", *aligned(by_folder(rows), ("folder", "format", "files", "proved", "lacking", "refused", "seconds"))]
        some = f"{', '.join(passed_over[:5])}{f' and {len(passed_over) - 5} more' if passed_over[5:] else ''}"
        return visible_lines([*lines, *([f"passed over, because they hold no scheme that is read: {some}"] if passed_over else [])])

    answer(json_file, lambda: [vars(row) for row in found], told)
    refused = [row for row in rows if row.verdict == REFUSED]
    if refused:
        raise fail(
            "E356", f"{len(refused)} of {len(rows)} files in {folder} are refused", notes=tuple(f"{r.file}: {r.what}" for r in refused[:5])
        )
