"""The formats of published tables: their names, how to recognize a file, and how to read it; and the files of a folder."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bilinear.errors import fail
from bilinear.interchange.alphatensor import npz_entries, read_npz
from bilinear.interchange.bini import read_bini
from bilinear.interchange.exp import read_exp
from bilinear.interchange.fast_matmul import read_fast_matmul
from bilinear.interchange.fmm_json import read_fmm_json
from bilinear.interchange.formulas import read_formulas
from bilinear.interchange.maple import read_maple
from bilinear.interchange.mathematica import read_mathematica
from bilinear.interchange.matlab import read_matlab
from bilinear.interchange.notebook import notebook_entries, read_notebook
from bilinear.interchange.plinopt import LETTERS, missing_partners, read_sms_set, stem_of
from bilinear.interchange.reader_parts import assemble
from bilinear.interchange.structured import read_flat
from bilinear.interchange.ternary import read_ternary
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Scheme
from bilinear.reading import open_input

HEAD = 4096
"""The bytes at the start of a file that decide its format."""

_COMMENTS = r"(?:(?:#|//|%)[^\n]*\n|\s)*"
_NAME = r"[A-Za-z]+[0-9_]*(?:\[[0-9]+,[0-9]+\])?"
_SIZES = r"[1-9][0-9]*[ \t]+[1-9][0-9]*[ \t]+[1-9][0-9]*[ \t]+[1-9][0-9]*"


@dataclass(frozen=True)
class Format:
    """A format by its name for `--from` and `--to`; `transposed` says whether it numbers the blocks of C column by column."""

    name: str
    title: str
    suffix: str
    looks: str
    transposed: bool = False


FORMATS = {
    f.name: f
    for f in (
        Format("npz", "AlphaTensor archive, or arrays U, V and W", ".npz", r"PK\x03\x04", transposed=True),
        Format("npy", "flip-cpd array", ".npy", r"\x93NUMPY"),
        Format("notebook", "Jupyter notebook", ".ipynb", r'\s*\{\s*"(cells|metadata|nbformat)"', transposed=True),
        Format("json", "FastMatrixMultiplication JSON", ".json", r'\s*\{\s*"', transposed=True),
        Format("maple", "Maple triads", ".mpl", r"(?s).*\bTriadSet\s*\(", transposed=True),
        Format("matlab", "MATLAB matrices", ".m", r"(?is)(.*\n)?[ \t]*[UVW][ \t]*=[ \t]*\["),
        Format("m", "Mathematica lists", ".m", r'[^{"]*\{\s*\{', transposed=True),
        Format("sms", "plinopt matrices", ".sms", r"(#[^\n]*\n|\s)*[0-9]+ +[0-9]+ +[A-Z]\s"),
        Format("formulas", "products under names", "", rf"{_COMMENTS}{_NAME}[ \t]*:?=[ \t]*[-+.0-9*/( ]*[abAB][0-9_\[]"),
        Format("slp", "plinopt programs", ".slp", r"(#[^\n]*\n|\s)*[a-z]+[0-9]* *:="),
        Format("exp", "products of sums", ".exp", r"(#[^\n]*\n|\s)*[-+.0-9j*/( ]*\([-+.0-9j*/( ]*[abc][0-9_\[]", transposed=True),
        Format("fflas", "fflas-ffpack schedules", ".inl", r"(#[^\n]*\n|\s)*\[[^\]\n]*::[^\]\n]*\]"),
        Format("bini", "Bini's form", "", r"(#[^\n]*\n|\s)*[Bb]ini +[0-9]+ +[0-9]+ +[0-9]+ +[0-9]+"),
        Format("ternary", "ternary_flip_graph tables", "", rf"(#[^\n]*\n|\s)*{_SIZES}[ \t]*\r?\n(\S+[ \t]+){{4}}\S", transposed=True),
        Format("fast-matmul", "fast-matmul table", "", r"(#[^\n]*\n|\s)*[-+(.0-9x]+[-+0-9x/.i() \t]*\n"),
    )
}

HOLD_SEVERAL = ("npz", "notebook")
"""The formats whose files may hold several schemes."""
_ORIENTED: dict[str, Callable[[Path, bool | None], tuple[Scheme, bool]]] = {"m": read_mathematica, "maple": read_maple, "exp": read_exp}
"""Readers for formats in which sizes may contradict the usual numbering of C."""
_PLAIN: dict[str, Callable[[Path], Scheme]] = {
    "json": read_fmm_json,
    "matlab": read_matlab,
    "bini": read_bini,
    "ternary": read_ternary,
    "fast-matmul": read_fast_matmul,
}


@dataclass(frozen=True)
class Reading:
    """A scheme as read from a file, not yet proved; `transposed` is the numbering assumed for its blocks of C."""

    scheme: Scheme
    transposed: bool


def format_of(path: Path, named: str = "") -> tuple[Format, str]:
    """The format of a file, and how it was decided: by `named`, by the file's name, or by its first bytes.

    Raises `BilinearError`: E251 if the file cannot be read, E351 if its format is unknown or no format has that name.
    """
    if named:
        if named not in FORMATS:
            raise fail("E351", f"there is no format {named[:40]!r}", f"known are {', '.join(FORMATS)}")
        return FORMATS[named], "as asked for"
    try:
        with open_input(path) as file:
            head = file.read(HEAD).decode("latin1")
    except OSError as error:
        raise fail("E251", f"{str(path)[:200]!r} cannot be read: {error.strerror or error}") from None
    by_name = [f for f in FORMATS.values() if f.suffix and f.suffix == path.suffix.lower()]
    if by_name and (len(by_name) == 1 or not any(re.match(f.looks, head) for f in by_name)):
        return by_name[0], "by its name"
    by_look = next((f for f in by_name or FORMATS.values() if re.match(f.looks, head)), None)
    if by_look is None:
        hint = "`bilinear verify` reads the language" if path.suffix == ".bl" else f"name it by format=, one of {', '.join(FORMATS)}"
        raise fail("E351", f"{path} is of no known format", hint)
    return by_look, "by how it begins"


def read(path: Path, form: Format, entry: str = "", ring: Ring | None = None, transposed: bool | None = None) -> Reading:
    """Read a file as its format prescribes; `transposed` is passed to formats whose sizes could contradict it.

    Raises `BilinearError` (E251 to E256, E351 to E354, E357) if it cannot be read.
    """
    if form.name in ("sms", "slp"):
        return Reading(read_sms_set(require_partners(path), ring, form.name), False)
    if form.name == "npz":
        return Reading(read_npz(path, entry, ring), bool(entry) or npz_entries(path) != ("",))
    if form.name == "notebook":
        return Reading(read_notebook(path, entry, ring), True)
    if form.name in _ORIENTED:
        return Reading(*_ORIENTED[form.name](path, transposed))
    if form.name == "formulas":
        return Reading(read_formulas(path).scheme(), False)
    if form.name == "npy":
        return Reading(assemble(read_flat(path), None), False)
    if form.name == "fflas":
        raise fail("E351", f"{path} holds schedules, not a scheme", "`bilinear import FOLDER` proves them")
    return Reading(_PLAIN[form.name](path), form.transposed)


def entries_of(path: Path, form: Format) -> tuple[str, ...]:
    """The names of the schemes in a file; one empty name where it holds one scheme. Raises `BilinearError` (E251, E255, E353, E653)."""
    return npz_entries(path) if form.name == "npz" else notebook_entries(path) if form.name == "notebook" else ("",)


def require_partners(path: Path) -> str:
    """The common start of the names of a plinopt file and its partners. Raises `BilinearError` (E352) if one of them is missing."""
    found = stem_of(path)
    if found is None:
        names = ", ".join(f"STEM_{letter}{path.suffix if path.suffix in ('.sms', '.slp') else '.sms'}" for letter in LETTERS)
        raise fail("E352", f"{path} is one matrix; an algorithm has three", f"name them {names}, and give one of them")
    missing = missing_partners(path)
    if missing:
        raise fail("E352", f"{path} lacks its partner{'s' if missing[1:] else ''} {', '.join(missing)}", "put the files beside one another")
    return found[0]


MOST_ENTRIES = 10_000
"""Files and folders below a folder that is read."""


def files_below(folder: Path) -> list[Path]:
    """All files below a folder, in the order of their paths; links to folders are not followed.

    Raises `BilinearError` (E251): a folder cannot be read, or there are more than `MOST_ENTRIES` files and folders.
    """
    found: list[Path] = []
    waiting, entries = [folder], 0
    while waiting:
        inner = waiting.pop()
        try:
            with os.scandir(inner) as listed:
                for entry in listed:
                    entries += 1
                    if entries > MOST_ENTRIES:
                        raise fail("E251", f"{folder} holds more than {MOST_ENTRIES} files and folders", "name a smaller folder, or files")
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
                    elif os.path.isfile(entry.path):
                        found.append(Path(entry.path))
        except OSError as error:
            raise fail("E251", f"{inner} cannot be read: {error.strerror or error}") from None
    return sorted(found)
