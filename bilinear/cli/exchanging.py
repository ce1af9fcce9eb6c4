"""import and export."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bilinear.cli import completing
from bilinear.cli.answers import Json, answer, file_of, say, write_result
from bilinear.cli.common import AlgorithmName, Output, progress_bar
from bilinear.cli.spelling import as_options
from bilinear.errors import fail
from bilinear.places import holds_another, require_files
from bilinear.reporting.table import aligned
from bilinear.visible import visible_lines
from bilinear.writing import write_files

if TYPE_CHECKING:
    from bilinear.interchange.importing import Imported
    from bilinear.interchange.targets import Identified


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
