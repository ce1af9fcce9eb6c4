"""Mutants of published formats: what is imported multiplies and comes back from its file, what is not is told."""

from __future__ import annotations

import random
from pathlib import Path

from soak.archives import mangled_archive
from soak.case import Case, Finding
from soak.command import Answer, call, drawn
from soak.exact import is_right
from soak.foreign import NAMES, valid_files
from soak.mangle import mangled_bytes, mangled_text

from bilinear.errors import BilinearError
from bilinear.frontend import load
from bilinear.interchange.exporting import WRITERS, export_files
from bilinear.interchange.importing import Imported, import_file
from bilinear.ir.scheme import Scheme

FORMS = ("fast-matmul", "json", "sms", "npz", "exp", "m", "slp")


def run(case: Case) -> str:
    """Import a file of some format that was damaged, twice: by the command line, and to look at what it holds."""
    draw = drawn(case)
    files: dict[str, bytes] = {}
    while not files:
        name, form = draw.choice(NAMES), draw.choice(FORMS)
        files = valid_files(name, form)
    marker = case.folder / "executed"
    held = _mangled(files, form, draw, marker)
    for file, data in held.items():
        (case.folder / file).write_bytes(data)
    path, out = case.folder / draw.choice(list(held)), case.folder / "read.bl"
    answer = call("import", path, "-o", out, *_options(form, draw))
    if marker.exists():
        raise answer.finding("what a file holds was executed")
    _require_untouched(case.folder, held, answer, out)
    if answer.status:
        return answer.verdict
    if out.exists():
        _require_right(answer, out, form, case.folder)
    return answer.verdict


def _mangled(files: dict[str, bytes], form: str, draw: random.Random, marker: Path) -> dict[str, bytes]:
    """The files with one of them damaged; now and then none."""
    chosen = draw.choice(list(files))
    data = files[chosen]
    way = draw.random()
    if way < 0.04:
        return files
    if form == "npz":
        return files | {chosen: mangled_archive(data, draw, marker)}
    if way < 0.5:
        return files | {chosen: mangled_text(data.decode(), draw).encode("utf-8", "surrogatepass")}
    if way < 0.55:
        nested = draw.choice(("[", "{", "(", '{"n":', "((", "{{", "-", "2*", "(*")) * draw.choice((99, 9_999, 200_000))
        return files | {chosen: nested.encode()}
    return files | {chosen: mangled_bytes(data, draw)}


def _options(form: str, draw: random.Random) -> list[str]:
    words = ["--json"] if draw.random() < 0.2 else []
    if draw.random() < 0.2:
        words += ["--from", draw.choice((form, form, *FORMS))]
    if draw.random() < 0.15:
        words += ["--over", draw.choice(("Q", "Z", "Z/2", "Z/3", "Z/7", "Q[sqrt(3)]", "Q[i]", "Q[lambda]"))]
    if draw.random() < 0.15:
        words += ["--c", draw.choice(("rows", "columns"))]
    return words


def _require_untouched(folder: Path, held: dict[str, bytes], answer: Answer, out: Path) -> None:
    """What was read is as it was, and beside it lies nothing but what was asked for, whole or not at all."""
    allowed = {*held, *([out.name] if not answer.status else [])}
    found = {path.name for path in folder.iterdir()}
    if found - allowed:
        raise answer.finding(f"left behind: {sorted(found - allowed)}")
    lost = [name for name, data in held.items() if (folder / name).read_bytes() != data]
    if lost:
        raise answer.finding(f"changed while it was read: {lost}")


def _require_right(answer: Answer, out: Path, form: str, folder: Path) -> None:
    """What was written multiplies, and comes back the same from its own format."""
    scheme = load(out).scheme
    if not is_right(scheme):
        raise answer.finding(f"{scheme.format} over {scheme.ring} was imported and does not multiply")
    if form not in WRITERS:
        return
    again = folder / "again"
    again.mkdir()
    try:
        files = export_files(scheme, form)
    except BilinearError:
        return
    for name, data in files.items():
        (again / name).write_bytes(data)
    read = _reading(again / next(iter(files)), scheme, form)
    if read.tables != scheme.tables or read.ring != scheme.ring:
        raise answer.finding(f"exported as {form} and imported, {scheme.name} is another")


def _reading(path: Path, scheme: Scheme, form: str) -> Scheme:
    read = import_file(path, ring=scheme.ring if form in ("npz", "sms", "fast-matmul") else None)  # they name no ring
    if not isinstance(read, Imported):
        raise Finding(f"{path.name} was written from a scheme, and is read as another map")
    return read.scheme
