"""The readers of published tables, in one list: each by its name, how it recognizes a file, and how it reads one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bilinear.errors import fail
from bilinear.interchange import arrays, fflas, fmm_json, npz, plinopt, tables, targets, triads
from bilinear.interchange.expressions import begins_exp, begins_formulas, commuting_exp, other_formulas, read_exp, read_named
from bilinear.interchange.reader_parts import Asked, Beginning, Reading
from bilinear.interchange.targets import Identified
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Scheme
from bilinear.reading import open_input

HEAD = 2**16
"""The bytes at the start of a file that decide its format."""


@dataclass(frozen=True)
class FileFormat:
    """A format by its name for `--from` and `--to`, and its reader.

    `begins` says whether the start of a file is of it, `read` reads a scheme, `other` identifies what a file computes if that is not a
    product of matrices, and `entries` names the schemes of a file that may hold several. `transposed` says whether the format numbers the
    blocks of C column by column, and `in_sets` that an algorithm has several files.
    """

    name: str
    title: str
    suffix: str
    begins: Callable[[Beginning], bool]
    read: Callable[[Path, Asked], Reading]
    transposed: bool = False
    other: Callable[[Path, Ring | None], Identified | None] = lambda path, ring: None
    entries: Callable[[Path], tuple[str, ...]] | None = None
    in_sets: bool = False


def _plain(read: Callable[[Path], Scheme], transposed: bool = False) -> Callable[[Path, Asked], Reading]:
    """A reader whose format alone decides how C is numbered."""
    return lambda path, asked: Reading(read(path), transposed)


def _read_fflas(path: Path, asked: Asked) -> Reading:
    raise fail("E351", f"{path} holds schedules, not a scheme", "`bilinear import FOLDER` proves them")


FORMATS = {
    f.name: f
    for f in (
        FileFormat("npz", "AlphaTensor archive, or arrays U, V and W", ".npz", npz.begins_npz, npz.read_npz, True, entries=npz.npz_entries),
        FileFormat("npy", "flip-cpd array", ".npy", npz.begins_npy, targets.read_npy, other=targets.other_npy),
        FileFormat(
            "notebook", "Jupyter notebook", ".ipynb", arrays.begins_notebook, arrays.read_python, True, entries=arrays.python_entries
        ),
        FileFormat("python", "Python's arrays", ".py", arrays.begins_python, arrays.read_python, True, entries=arrays.python_entries),
        FileFormat("json", "FastMatrixMultiplication JSON", ".json", fmm_json.begins_json, fmm_json.read_json, True),
        FileFormat("maple", "Maple triads", ".mpl", triads.begins_maple, triads.read_maple, True),
        FileFormat("matlab", "MATLAB matrices", ".m", arrays.begins_matlab, _plain(arrays.read_matlab)),
        FileFormat("m", "Mathematica lists", ".m", triads.begins_mathematica, triads.read_mathematica, True),
        FileFormat("sms", "plinopt matrices", ".sms", plinopt.begins_sms, plinopt.read_plinopt, other=plinopt.other_plinopt, in_sets=True),
        FileFormat("formulas", "products under names", "", begins_formulas, read_named, other=other_formulas),
        FileFormat("slp", "plinopt programs", ".slp", plinopt.begins_slp, plinopt.read_plinopt, other=plinopt.other_plinopt, in_sets=True),
        FileFormat("exp", "products of sums", ".exp", begins_exp, read_exp, True, other=commuting_exp),
        FileFormat("fflas", "fflas-ffpack schedules", ".inl", fflas.begins_fflas, _read_fflas),
        FileFormat("bini", "Bini's form", "", tables.begins_bini, _plain(tables.read_bini)),
        FileFormat("ternary", "ternary_flip_graph tables", "", tables.begins_ternary, _plain(tables.read_ternary, True), True),
        FileFormat("fast-matmul", "fast-matmul table", "", tables.begins_fast_matmul, _plain(tables.read_fast_matmul)),
    )
}
"""The readers in the order in which they are asked whether a file is theirs."""


def format_of(path: Path, named: str = "") -> tuple[FileFormat, str]:
    """The format of a file, and how it was decided: by `named`, by the file's name, or by how it begins.

    Readers of the file's suffix are asked first, and alone. If none recognizes the file, the one of its suffix says what is wrong with it.
    Raises `BilinearError`: E251 if the file cannot be read, E351 if its format is unknown or no format has that name, E653 if its suffix is
    that of several formats and it is of none of them.
    """
    if named:
        if named not in FORMATS:
            raise fail("E351", f"there is no format {named[:40]!r}", f"known are {', '.join(FORMATS)}")
        return FORMATS[named], "as asked for"
    try:
        with open_input(path) as file:
            data = file.read(HEAD + 1)
    except OSError as error:
        raise fail("E251", f"{str(path)[:200]!r} cannot be read: {error.strerror or error}") from None
    beginning = Beginning(path.name, data[:HEAD], whole=len(data) <= HEAD)
    by_name = [f for f in FORMATS.values() if f.suffix and f.suffix == path.suffix.lower()]
    if len(by_name) == 1:
        return by_name[0], "by its name"
    found = next((f for f in by_name or FORMATS.values() if f.begins(beginning)), None)
    if found is not None:
        return found, "by how it begins"
    if by_name:
        raise fail("E653", f"{path} holds no scheme", arrays.MATLAB)
    hint = "`bilinear verify` reads the language" if path.suffix == ".bl" else f"name it by format=, one of {', '.join(FORMATS)}"
    raise fail("E351", f"{path} is of no known format", hint)


def entries_of(path: Path, form: FileFormat) -> tuple[str, ...]:
    """The names of the schemes in a file; one empty name where it holds one scheme. Raises `BilinearError` (E251, E255, E353, E653)."""
    return form.entries(path) if form.entries is not None else ("",)
