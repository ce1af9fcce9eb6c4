"""The readers in one list; a file is read by one of them, proved, and what it leaves open is tried and reported."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bilinear.errors import BilinearError, Diagnostic, fail
from bilinear.explain.why_wrong import explain_scheme, reread
from bilinear.interchange import arrays, fmm_json, npz, plinopt, tables, targets
from bilinear.interchange.arrays import scheme_from_arrays
from bilinear.interchange.expressions import begins_exp, begins_formulas, commuting_exp, other_formulas, read_exp, read_named
from bilinear.interchange.papers import HEAD as HEAD_OF_FORMULA
from bilinear.interchange.reader_parts import Asked, Beginning, Reading, assemble
from bilinear.interchange.targets import Identified
from bilinear.ir.linear import LinearMap
from bilinear.ir.ring import RINGS, Ring, parse_ring
from bilinear.ir.scheme import Scheme
from bilinear.reading import open_input
from bilinear.verify.rings import factors
from bilinear.verify.scheme import SchemeProof, prove_scheme

HEAD = 2**16  # The bytes at the start of a file that decide its format.


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


def _opens(pattern: str) -> Callable[[Beginning], bool]:
    """True if a file begins so, behind blank lines and comments."""
    return lambda begins: re.match(pattern, begins.content) is not None


def _has(pattern: str) -> Callable[[Beginning], bool]:
    """True if a pattern is found in the first characters of a file."""
    return lambda begins: re.search(pattern, begins.text) is not None


def _bytes(head: bytes) -> Callable[[Beginning], bool]:
    return lambda begins: begins.data.startswith(head)


def _plain(read: Callable[[Path], Scheme], transposed: bool = False) -> Callable[[Path, Asked], Reading]:
    return lambda path, asked: Reading(read(path), transposed)


def _read_fflas(path: Path, asked: Asked) -> Reading:
    raise fail("E351", f"{path} holds schedules, not a scheme", "`bilinear import FOLDER` proves them")


_NOTEBOOK = r'\A\s*\{\s*"(?:cells|metadata|nbformat)"'
_PYTHON = r"(?mi)^[UVW]\s*=[\w\s.(]*[\[(]\s*[\[(]"
_TRIADS = r"(?m)^\s*(?:[A-Za-z_]\w*\s*:=\s*)?TriadSet\s*\("
_MATLAB = r"(?mi)^[ \t]*[UVWABC][ \t]*=[ \t]*\[(?!\s*\[)"
_LISTS = r"\A(?:\(\*(?:[^*]|\*(?!\)))*\*\)|\s)*(?:[A-Za-z$][A-Za-z0-9$]*\s*=\s*)?\{\s*\{\s*\{"
"""A list of lists of lists, perhaps behind comments and a name."""

FORMATS = {
    f.name: f
    for f in (
        FileFormat("npz", "AlphaTensor archive, or arrays U, V and W", ".npz", npz.begins_npz, npz.read_npz, True, entries=npz.npz_entries),
        FileFormat(
            *("npy", "flip-cpd array", ".npy", _bytes(b"\x93NUMPY"), _plain(lambda path: assemble(targets.read_flat(path), None))),
            other=lambda path, ring: targets.other_structure(path, targets.read_flat(path), ring),
        ),
        FileFormat("notebook", "Jupyter notebook", ".ipynb", _has(_NOTEBOOK), arrays.read_python, True, entries=arrays.python_entries),
        FileFormat("python", "Python's arrays", ".py", _has(_PYTHON), arrays.read_python, True, entries=arrays.python_entries),
        FileFormat("json", "FastMatrixMultiplication JSON", ".json", _has(r'\A\s*\{\s*"'), fmm_json.read_json, True),
        FileFormat("maple", "Maple triads", ".mpl", _has(_TRIADS), tables.read_maple, True),
        FileFormat("matlab", "MATLAB matrices", ".m", _has(_MATLAB), arrays.read_matlab),
        FileFormat("mat", "MATLAB's .mat", ".mat", _bytes(b"MATLAB "), npz.read_mat),
        FileFormat("m", "Mathematica lists", ".m", _has(_LISTS), tables.read_mathematica, True),
        FileFormat(
            "sms",
            "plinopt matrices",
            ".sms",
            _opens(r"[0-9]+ +[0-9]+ +[A-Z]\s"),
            plinopt.read_plinopt,
            other=plinopt.other_plinopt,
            in_sets=True,
        ),
        FileFormat("formulas", "products under names", "", begins_formulas, read_named, other=other_formulas),
        FileFormat(
            "slp", "plinopt programs", ".slp", _opens(r"[a-z]+[0-9]* *:="), plinopt.read_plinopt, other=plinopt.other_plinopt, in_sets=True
        ),
        FileFormat("exp", "products of sums", ".exp", begins_exp, read_exp, True, other=commuting_exp),
        FileFormat("fflas", "fflas-ffpack schedules", ".inl", _opens(r"\[[^\]\n]*::[^\]\n]*\]"), _read_fflas),
        FileFormat("bini", "Bini's form", "", _opens(r"[Bb]ini(?: +[0-9]+){4}"), _plain(tables.read_bini)),
        FileFormat("ternary", "ternary_flip_graph tables", "", tables.begins_ternary, _plain(tables.read_ternary, True), True),
        FileFormat("fast-matmul", "fast-matmul table", "", tables.begins_fast_matmul, _plain(tables.read_fast_matmul)),
        FileFormat("commas", "three tables of numbers", "", arrays.begins_commas, arrays.read_commas),
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
    if path.suffix in (".pt", ".pth", ".pkl"):
        hint = "such a file runs code when it is loaded, so it is not read: save its arrays by numpy.savez(U=u, V=v, W=w)"
    if path.suffix != ".bl" and HEAD_OF_FORMULA.search(beginning.text):
        hint += "; format='formulas' says which of its formulas cannot be read"
    raise fail("E351", f"{path} is of no known format", hint)


def entries_of(path: Path, form: FileFormat) -> tuple[str, ...]:
    """The names of the schemes in a file; one empty name where it holds one scheme. Raises `BilinearError` (E251, E255, E353, E653)."""
    return form.entries(path) if form.entries is not None else ("",)


@dataclass(frozen=True)
class Imported:
    """A proved scheme: the file's format and how it was decided, its numbering of C, and what was determined by trying."""

    scheme: Scheme
    proof: SchemeProof
    format: FileFormat
    how: str
    transposed: bool
    found: tuple[str, ...] = ()

    @property
    def orientation(self) -> str:
        """How the file numbers the blocks of C."""
        usual = "as this format does" if self.transposed == self.format.transposed else "unlike this format"
        return f"numbered {'column by column (transposed)' if self.transposed else 'row by row'}, {usual}"


def import_file(
    path: str | Path, *, format: str = "", ring: Ring | None = None, transposed: bool | None = None, entry: str = "", explain: bool = True
) -> Imported | Identified:
    """The scheme in a file, proved, or another bilinear map in it, identified.

    What is not given is tried: the other orientation of C, and Z/p if the scheme holds modulo a prime. Raises `BilinearError`: the readers'
    errors, and E356 if no reading multiplies; it says which coefficient is wrong, unless `explain` is false, which saves seconds.
    """
    where = Path(path)
    form, how = format_of(where, format)
    if entry and form.entries is None:
        raise fail("E354", f"{path} is not an archive, and holds one scheme", "leave the entry out")
    other = form.other(where, ring)
    if other is not None:
        return other
    reading = form.read(where, Asked(entry, ring, transposed))
    return prove_reading(reading, form, how, ring, transposed, explain)


def import_scheme(
    path: str | Path, *, format: str = "", ring: str | None = None, transposed: bool | None = None, entry: str = ""
) -> Imported:
    """The scheme in a file, as by `import_file`. Raises `BilinearError`, and E356 if the file holds another bilinear map."""
    result = import_file(path, format=format, ring=known_ring(ring), transposed=transposed, entry=entry)
    if isinstance(result, Identified):
        computes = f"lacks {result.missing}" if result.missing else f"computes {result.title}"
        raise fail("E356", f"{path} {computes}; it is not a product of matrices")
    return result


def import_arrays(
    u: object, v: object, w: object, *, ring: str | None = None, transposed: bool | None = None, name: str = "arrays"
) -> Imported:
    """The scheme of three arrays in memory (see `scheme_from_arrays`), proved; what is not given is tried."""
    over = known_ring(ring)
    scheme = scheme_from_arrays(u, v, w, None, over, bool(transposed), name)
    none = FileFormat("arrays", "arrays in memory", "", lambda beginning: False, FORMATS["npz"].read)  # no file is of it
    return prove_reading(Reading(scheme, bool(transposed)), none, "as they are", over, transposed)


def known_ring(text: str | None) -> Ring | None:
    """The ring of this name; None for an empty name. Raises `BilinearError` (E203) if it is not the name of a ring."""
    ring = parse_ring(text) if text else None
    if text and ring is None:
        raise fail("E203", f"{text[:40]!r} is not a known ring", f"known are {RINGS}")
    return ring


def prove_reading(
    reading: Reading, form: FileFormat, how: str, ring: Ring | None, transposed: bool | None, explain: bool = True
) -> Imported:
    """The first reading that multiplies, among those compatible with what was given (E356); the error says where, if it is to explain."""
    tried: list[tuple[Scheme, SchemeProof]] = []
    for scheme, orientation, found in _readings(reading, ring, transposed):
        proof = prove_scheme(scheme)
        if proof.holds:
            return Imported(scheme, proof, form, how, orientation, found)
        tried.append((scheme, proof))
    raise _refused(reading, tried, ring, transposed, explain)


Way = tuple[Scheme, bool, tuple[str, ...]]  # A scheme, if its file has C transposed, what trying determined.


def _readings(reading: Reading, ring: Ring | None, transposed: bool | None) -> Iterator[Way]:
    """The scheme as read, then with the other orientation of C, then over Z/p, unless given."""
    scheme = reading.scheme if ring is None else replace(reading.scheme, ring=ring)
    ways: list[Way] = []
    for orientation in (reading.transposed, not reading.transposed) if transposed is None else (transposed,):
        as_read = orientation == reading.transposed
        found = [*reading.found, *([] if as_read or transposed is not None else [f"C is {'' if orientation else 'not '}transposed"])]
        ways.append((scheme if as_read else turned(scheme, reading.transposed), orientation, tuple(found)))
    yield from ways
    for way, orientation, told in ways if reading.by_columns else ():
        yield reread(way, False, (True, True, False)), orientation, (*told, "the blocks of A and B are numbered column by column")
    for way, orientation, told in ways if ring is None else ():
        for modular in _modular(way):
            yield modular, orientation, (*told, f"it holds over {modular.ring} alone")


def _modular(scheme: Scheme) -> Iterator[Scheme]:
    """The scheme over each prime modulo which its equations hold, if its coefficients are written as residues.

    For p = 2 residues are 0 and 1: a scheme with a -1 that holds modulo 2 is one over Q with a wrong sign.
    """
    facts = prove_scheme(scheme).facts
    if facts is None or facts.modulus < 2 or scheme.ring.generator or scheme.ring.modulus:
        return
    coefficients = [c for table in scheme.tables for row in table for _, c in row]
    whole = [c for c in coefficients if isinstance(c, int)]
    for p in factors(facts.modulus):
        ring = parse_ring(f"Z/{p}")
        residues = any(all(low <= c < low + p for c in whole) for low in (0, -((p - 1) // 2)))
        if ring is not None and residues and len(whole) == len(coefficients):
            yield replace(scheme, ring=ring)


def turned(scheme: Scheme, transposed: bool) -> Scheme:
    """A file's scheme whose blocks of C were read in one orientation, read in the other."""
    m, n = scheme.m, scheme.n
    rows = range(m * n)
    places = [i % n * m + i // n for i in rows] if not transposed else [i % m * n + i // m for i in rows]
    if scheme.bases is not None:
        change = scheme.bases.c
        outputs = tuple(change.outputs[place] for place in places)
        return replace(scheme, bases=replace(scheme.bases, c=LinearMap(change.inputs, outputs, change.steps, change.names)))
    w = scheme.w
    return replace(scheme, w=LinearMap(w.inputs, tuple(w.outputs[place] for place in places), w.steps, w.names))


def _refused(
    reading: Reading, tried: Sequence[tuple[Scheme, SchemeProof]], ring: Ring | None, transposed: bool | None, explain: bool
) -> BilinearError:
    """Why no reading multiplies, and which one would if it were allowed; else, if asked, where the nearest one is wrong."""
    otherwise = _otherwise(reading, ring, transposed)
    (scheme, proof), nearest = tried[0], min(tried, key=lambda one: len(one[1].failures))
    if not otherwise and 2 * len(nearest[1].failures) < len(proof.failures):
        scheme, proof = nearest
    notes, hints = [f"the coefficient of {proof.failures[0]}"], [f"with {told} it holds" for told in otherwise]
    if not otherwise and explain:
        found = explain_scheme(scheme, proof)
        if scheme is not tried[0][0]:
            notes.insert(0, "with the other orientation of C far fewer equations fail, so that is the one meant here")
        notes += [f"all that fail point at {group.points_at}" for group in found.groups if not found.groups[1:]]
        if scheme.products[0] == "M1" and (found.repairs or len(found.groups) == 1):
            notes.append(f"{scheme.products[0]} is the first product of the file")
        notes += [*found.facts, *(c.text for c in found.confusions), *found.counted]
        hints += [f"{c.action} makes it correct" for c in found.confusions]
        hints += [f"{'or ' * (number > 0)}{repair} makes it correct" for number, repair in enumerate(found.repairs)]
    many = f"{len(proof.failures)} of {proof.equations}" if proof.complete else f"at least {len(proof.failures)} of {proof.equations}"
    message = f"{scheme.name} {scheme.format} over {proof.ring} does not multiply: {many} Brent equations fail"
    if ring is None and proof.valid_over:
        hints.append(f"as it is written it holds over {', '.join(proof.valid_over)}: give ring={proof.valid_over[0]!r} if that is meant")
    if not hints:
        notes.append("tried were both orientations of C, the ring of the file, and every Z/p that its equations allow")
        hints = ["compare the file with its source; is it complete?"]
    return BilinearError(Diagnostic("E356", message, notes=tuple(notes), hints=tuple(hints)))


def _otherwise(reading: Reading, ring: Ring | None, transposed: bool | None) -> list[str]:
    """The readings that hold but are excluded by what was given."""
    if ring is None and transposed is None:
        return []
    told = []
    for scheme, orientation, _ in _readings(reading, None, None):
        if all(scheme.ring.holds(c) for table in scheme.tables for row in table for _, c in row) and prove_scheme(scheme).holds:
            turn = [f"transposed={orientation}"] if transposed is not None else []
            told.append(" and ".join([*turn, *([f"ring={str(scheme.ring)!r}"] if ring is not None else [])]))
    return told
