"""Read plinopt's algorithms (https://github.com/jgdumas/plinopt): three files L (r x mk), R (r x kn) and P (mn x r).

Each is a matrix (`.sms`: triples `row column value`, numbered from 1, ended by `0 0 0`) or a straight-line program (`.slp`: `t4:=i1+i3;
o0:=t4*2/3-i0;`). Blocks are row-major, C is not transposed. Pairs `-ALT` and `-CoB` are a scheme in other bases and its changes of basis. A
value may stand for a multiple of an algebraic number: `1/2X`, or a multiple of the placeholder 1013 such as `1013/2`; a comment explains
it, or it is determined by trying.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import cast

from bilinear.algebra.maps import table_of
from bilinear.analysis.brent import common_denominator, products_of_coefficients, residual
from bilinear.errors import fail
from bilinear.interchange.reader_parts import (
    MOST_BLOCKS,
    MOST_EXPRESSIONS,
    MOST_NONZEROS,
    MOST_PRODUCTS,
    ArithmeticReader,
    Asked,
    Linear,
    Maps,
    Reading,
    Value,
    assemble,
    dims_of,
    lines_of,
    malformed,
    parse_term,
    read_text,
    require_one_rank,
    said_ring,
)
from bilinear.interchange.targets import Identified, identify
from bilinear.ir.linear import LinearMap, form
from bilinear.ir.number import Coefficient, exact, generator, rational
from bilinear.ir.ring import Ring, parse_ring
from bilinear.ir.scheme import Bases, Scheme
from bilinear.source import Source

PLACEHOLDER = 1013  # A prime that stands for an algebraic number in files of rationals.

_NAMED = re.compile(r"(?:sqrt\(\s*(-?[0-9]{1,6})\s*\)|square root of (-?[0-9]{1,6}))")


@dataclass(frozen=True)
class Marked:
    """A value as written: `number`, times the placeholder if it is a `root`; `letter` if that is certain."""

    number: Fraction
    root: bool = False
    letter: bool = False

    def coefficient(self, ring: Ring) -> Coefficient:
        """The value with the placeholder replaced by the ring's generator, or by the integer 1013 if there is none."""
        if not self.root:
            return exact(self.number)
        if ring.generator:
            return self.number * generator(ring.generator)
        return exact(self.number * PLACEHOLDER)


def marked(number: Fraction) -> Marked:
    """A rational, marked where it is a multiple of 1013."""
    if number and number.numerator % PLACEHOLDER == 0:
        return Marked(number / PLACEHOLDER, root=True)
    return Marked(number)


MarkedForm = tuple[tuple[int, Marked], ...]


@dataclass(frozen=True)
class WrittenMap:
    """One linear map of a scheme as its file writes it: a `LinearMap` with marked values."""

    source: Source
    inputs: int
    outputs: tuple[MarkedForm, ...]
    steps: tuple[MarkedForm, ...] = ()
    names: tuple[str, ...] = ()
    at_least: bool = False  # Whether there may be more, unread inputs: a program does not tell how many.

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs and inputs: the size of the matrix."""
        return len(self.outputs), self.inputs

    @property
    def roots(self) -> list[Marked]:
        """The values that are multiples of the placeholder."""
        return [value for row in self.outputs + self.steps for _, value in row if value.root]

    def linear(self, ring: Ring) -> LinearMap:
        """The map over a ring whose generator replaces the placeholder."""
        steps, outputs = (
            tuple(form((i, value.coefficient(ring)) for i, value in row) for row in rows) for rows in (self.steps, self.outputs)
        )
        return LinearMap(self.inputs, outputs, steps, self.names)

    def widened(self, inputs: int) -> WrittenMap:
        """The same map with more, unread inputs; unchanged if its file states their number."""
        if inputs <= self.inputs or not self.at_least:
            return self
        shift = inputs - self.inputs
        steps, outputs = (
            tuple(tuple((i + shift * (i >= self.inputs), value) for i, value in row) for row in rows) for rows in (self.steps, self.outputs)
        )
        return replace(self, inputs=inputs, outputs=outputs, steps=steps)


def named_ring(parts: tuple[WrittenMap, ...]) -> Ring | None:
    """The ring of the number that a comment names for the placeholder."""
    for part in parts:
        for line in (" ".join(text.split()) for text in part.source.text.splitlines()):
            match = _NAMED.search(line) if line.startswith((f"# {PLACEHOLDER} ", "# X ")) else None
            if match is not None:
                square = match[1] or match[2]
                return Ring("Q[i]") if square == "-1" else parse_ring(f"Q[sqrt({square})]")
    return None


Entries = dict[tuple[int, int], Marked]


def read_matrix(path: Path) -> WrittenMap:
    """The linear map of a matrix, a row an output. Raises `BilinearError`: E251 (file), E252 (no matrix), E254 (no end)."""
    source = read_text(path)
    shape: tuple[int, int] | None = None
    entries: Entries = {}
    for start, words in ((at, line) for at, line in lines_of(source) if line and not line.startswith("#")):
        end = start + len(words)
        parts = words.split(None, 3)
        if len(parts) != 3:
            raise malformed(source, start, end, "a line of a matrix has three words", "row column value", "the last line is 0 0 0")
        if shape is None:
            shape = _shape(source, start, parts)
        elif parts[0] == parts[1] == "0":
            rows: list[list[tuple[int, Marked]]] = [[] for _ in range(shape[0])]
            for (i, j), value in sorted(entries.items()):
                rows[i].append((j, value))
            return WrittenMap(source, shape[1], tuple(map(tuple, rows)))
        else:
            _enter(source, start, parts, shape, entries)
    raise malformed(source, len(source.text), len(source.text), "the matrix does not end", "0 0 0 is missing", code="E254")


def _shape(source: Source, start: int, parts: list[str]) -> tuple[int, int]:
    most = max(MOST_BLOCKS, MOST_PRODUCTS)
    sizes = [int(part) if part.isascii() and part.isdigit() and len(part) <= 9 else 0 for part in parts[:2]]
    if not all(1 <= size <= most for size in sizes) or len(parts[2]) != 1 or not parts[2].isalpha():
        end = start + sum(map(len, parts)) + 2
        raise malformed(source, start, end, "the first line is not a size", f"rows columns R, 1 to {most}", "7 4 R begins a 7 x 4 matrix")
    return sizes[0], sizes[1]


def _enter(source: Source, start: int, parts: list[str], shape: tuple[int, int], entries: Entries) -> None:
    end = start + sum(map(len, parts)) + 2
    places = [int(part) if part.isascii() and part.isdigit() and len(part) <= 9 else 0 for part in parts[:2]]
    if not all(1 <= place <= size for place, size in zip(places, shape, strict=True)):
        raise malformed(source, start, end, "there is no such place in the matrix", f"it is {shape[0]} x {shape[1]}, numbered from 1")
    value = _value(parts[2])
    if value is None:
        hint = "values are integers, fractions such as -1/2, and multiples of X or of 1013"
        raise malformed(source, source.text.index(parts[2], start), end, f"{parts[2][:40]!r} is not a value", "not read", hint)
    place = (places[0] - 1, places[1] - 1)
    if place in entries:
        raise malformed(source, start, end, "this place has two values", "given again")
    if value.number:
        entries[place] = value
    if len(entries) > MOST_NONZEROS:
        raise malformed(source, start, end, "the matrix is too large", f"more than {MOST_NONZEROS} values")


def _value(text: str) -> Marked | None:
    term = parse_term(text)
    if term is None or term[2] not in (0, 1):
        return None
    number, letter, power = term
    if letter:
        return Marked(number, root=power == 1, letter=True) if letter == "X" else None
    return marked(number)


_HEAD = re.compile(r"\b([A-Za-z]+[0-9]*)[ \t]*:=", re.ASCII)
_NUMBERED = re.compile(r"([io])([0-9]{1,6})")


def read_program(path: Path) -> WrittenMap:
    """The linear map that a program computes; its number of inputs is that of those it reads.

    Raises `BilinearError`: E251 if the file cannot be read, E252 if a part is not a program of a linear map, E254 if an output is missing.
    """
    program = _ProgramReader(read_text(path, MOST_EXPRESSIONS))
    program.read()
    return program.finish()


@dataclass
class _ProgramReader:
    """A program being read: inputs are numbered -1, -2 and so on, steps from 0."""

    source: Source
    steps: list[Linear] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    inputs: int = 0
    nonzeros: int = 0

    def read(self) -> None:
        text = re.sub(r"#[^\n]*", lambda comment: " " * len(comment[0]), self.source.text)
        source, heads = Source(self.source.name, text), list(_HEAD.finditer(text))
        start = heads[0].start() if heads else len(text)
        if before := text[:start].lstrip():
            raise malformed(self.source, start - len(before), start, "this is not an assignment", "NAME := SUM;")
        for number, head in enumerate(heads):
            end = heads[number + 1].start() if number + 1 < len(heads) else len(text)
            body = text[head.end() : end]
            sums = body.rstrip()
            last = number + 1 == len(heads)
            if not sums.endswith(";") and (last or "\n" not in body[len(sums) :]):
                at = head.end() + len(sums)
                what = "the program breaks off" if last else "an assignment does not end"
                raise malformed(self.source, at, at + 1, what, "';' is missing", code="E254" if last else "E252")
            value = ArithmeticReader(source, head.end(), head.end() + len(sums.removesuffix(";")), self._lookup, self._shared).whole_sum()
            if isinstance(value, dict) and (len(value) != 1 or 1 not in value.values()):  # a plain value or a constant stays
                value = self._shared(value, head[1])
            self.values[head[1]] = value

    def finish(self) -> WrittenMap:
        """The map; a step that only one output uses, once, becomes that output."""
        found: dict[int, Linear] = {}
        for name, value in self.values.items():
            match = _NUMBERED.fullmatch(name)
            if match is not None and match[1] == "o":
                if not isinstance(value, dict):
                    raise malformed(self.source, 0, 1, f"the output {name} is a number", "of this program")
                found[int(match[2])] = value
        missing = next((i for i in range(len(found)) if i not in found), None)
        if missing is not None or not found:
            end = len(self.source.text)
            raise malformed(self.source, end, end, f"the output o{missing or 0} is missing", "the program ends here", code="E254")
        outputs = [found[i] for i in range(len(found))]
        uses = Counter(i for form in (*self.steps, *outputs) for i in form)
        inlined = {i for form in outputs for i, c in form.items() if len(form) == 1 and c == 1 and uses[i] == 1 and cast(int, i) >= 0}
        kept = [i for i in range(len(self.steps)) if i not in inlined]
        numbers = {-1 - i: i for i in range(self.inputs)} | {step: self.inputs + place for place, step in enumerate(kept)}

        def renamed(form: Linear) -> MarkedForm:
            return tuple(sorted(((numbers[cast(int, i)], marked(rational(c))) for i, c in form.items() if c), key=lambda term: term[0]))

        rows = tuple(renamed(self.steps[cast(int, next(iter(form)))] if inlined & form.keys() else form) for form in outputs)
        names = tuple(self.names[i] for i in kept)
        return WrittenMap(self.source, self.inputs, rows, tuple(renamed(self.steps[i]) for i in kept), names, at_least=True)

    def _lookup(self, name: str) -> Value | None:
        if name in self.values:
            value = self.values[name]
            return dict(value) if isinstance(value, dict) else value
        match = _NUMBERED.fullmatch(name)
        if match is None or match[1] != "i" or int(match[2]) >= MOST_PRODUCTS:
            return None
        self.inputs = max(self.inputs, int(match[2]) + 1)
        return {-1 - int(match[2]): Fraction(1)}

    def _shared(self, value: Linear, name: str = "") -> Linear:
        self.nonzeros += len(value)
        if self.nonzeros > MOST_NONZEROS:
            raise malformed(self.source, 0, 1, "the program is too large", f"more than {MOST_NONZEROS} terms")
        self.steps.append(value)
        self.names.append(name)
        return {len(self.steps) - 1: Fraction(1)}


TRIED = ("sqrt(3)", "i", "sqrt(2)", "sqrt(5)", "sqrt(-3)", "sqrt(6)", "sqrt(7)", "sqrt(-2)")
"""Numbers that are tried for a placeholder without a comment."""
MOST_TRIED_TERMS = 100_000
"""Numbers for a placeholder are tried in schemes with at most this many coefficient products; published ones have up to 33 thousand."""
SAY_IT = "name the ring, such as ring='Q[sqrt(3)]'"
LETTERS = ("L", "R", "P")

TAGS = ("A", "B", "C")
_NAME = re.compile(r"(?P<stem>.*?)(?P<kind>-ALT|-CoB)?_(?P<letter>[LRP])(_(?P<tag>[ABC]))?\.(?P<suffix>sms|slp)", re.DOTALL)
_SIZES = re.compile(r"([0-9]{1,3})x([0-9]{1,3})x([0-9]{1,3})_|([0-9]{1,3})o([0-9]{1,3})o([0-9]{1,3})_")

Triples = tuple[str | Path, str | Path, str | Path]


@dataclass(frozen=True)
class Files:
    """The files of one algorithm: L, R and P, and those of its changes of basis, if it is in other bases."""

    scheme: tuple[Path, Path, Path]
    bases: tuple[Path, Path, Path] | None = None

    @property
    def every(self) -> tuple[Path, ...]:
        """All of them."""
        return self.scheme + (self.bases or ())

    @property
    def missing(self) -> list[str]:
        """The names of those that are not there."""
        return [path.name for path in self.every if not path.is_file()]


def files_of(path: Path) -> Files | None:
    """The files of the algorithm that this one belongs to; None if its name is not of the form STEM_L.sms.

    Names that end in -ALT_L and -CoB_L are a scheme and its changes of basis, and so are L_A and L_C where both are there. Else L, R and P
    may have one tag, L_A, R_A, P_A, or each its own, L_A, R_B, P_C.
    """
    match = _NAME.fullmatch(path.name)
    if match is None:
        return None
    stem, kind, tag = match["stem"], match["kind"], match["tag"]

    def three(middle: str = "", tags: Sequence[str] = ("", "", "")) -> tuple[Path, Path, Path]:
        left, right, post = (
            path.with_name(f"{stem}{middle}_{letter}{each and '_'}{each}.{match['suffix']}")
            for letter, each in zip(LETTERS, tags, strict=True)
        )
        return left, right, post

    if kind and not tag:
        return Files(three("-ALT"), three("-CoB"))
    if not tag:
        return Files(three())
    kind = kind or ""
    alternative, changes, same = three(kind, "AAA"), three(kind, "CCC"), three(kind, tag * 3)
    if tag != "B" and all(p.is_file() for p in (alternative[0], alternative[1], changes[0], changes[1])):
        return Files(alternative, changes)
    each_its_own = TAGS[LETTERS.index(match["letter"])] == tag and not all(p.is_file() for p in same)
    return Files(three(kind, TAGS) if each_its_own else same)


def require_files(path: Path) -> Files:
    """The files of the algorithm that this one belongs to. Raises `BilinearError` (E352) if one of them is missing."""
    files = files_of(path)
    if files is None:
        names = ", ".join(f"STEM_{letter}{path.suffix if path.suffix in ('.sms', '.slp') else '.sms'}" for letter in LETTERS)
        raise fail("E352", f"{path} is one matrix; an algorithm has three", f"name them {names}, and give one of them")
    if files.missing:
        some = f"partner{'s' if files.missing[1:] else ''} {', '.join(files.missing)}"
        raise fail("E352", f"{path} lacks its {some}", "put the files beside one another")
    return files


def read_plinopt(path: Path, asked: Asked) -> Reading:
    """The scheme that a matrix or a program belongs to, by `read_sms`, whose errors it raises, and E352 if a file is missing."""
    files = require_files(path)
    return Reading(read_sms(*files.scheme, bases=files.bases, ring=asked.ring), False)


def other_plinopt(path: Path, ring: Ring | None) -> Identified | None:
    """What three files compute, if it is not a product of matrices; products of polynomials of their sizes have names such as 3o3o3."""
    maps = read_maps(require_files(path), ring)
    if dims_of(*maps.sizes) is not None and "o" not in path.name.split("_")[0]:
        return None
    return identify(maps)


def read_sms(left: str | Path, right: str | Path, post: str | Path, bases: Triples | None = None, ring: Ring | None = None) -> Scheme:
    """The scheme of three matrices or programs L, R and P; for a scheme in other bases, `bases` are the three changes of basis.

    `ring` gives the number that a placeholder stands for; with Q it is the integer 1013. Without it the comments in the files are used;
    without comments 1013 itself, sqrt(3), i and a few more are tried. Raises `BilinearError`: E251 if a file cannot be read, E252 if a part
    is not a matrix, E253 if the sizes do not fit, E256 if no number fits the placeholder.
    """
    parts, changes = _parts((left, right, post), bases)
    roots = [value for part in parts + changes for value in part.roots]
    said = ring or said_ring(parts[0].source) or named_ring(parts + changes)
    if said is None and roots:
        return _placed(_name(left), parts, changes, any(value.letter for value in roots))
    return assemble(_maps(_name(left), parts, changes, said or Ring()), None)


def read_maps(files: Files, ring: Ring | None = None) -> Maps:
    """The three maps of any bilinear algorithm, 1013 for an unexplained placeholder. Raises as `read_sms` but for sizes."""
    parts, changes = _parts(files.scheme, files.bases)
    maps = _maps(_name(files.scheme[0]), parts, changes, ring or named_ring(parts + changes) or Ring())
    require_one_rank(maps)
    return maps


def _name(left: str | Path) -> str:
    return re.sub(r"_L(_[ABC])?$", "", Path(left).stem)


def _parts(three: Triples, bases: Triples | None) -> tuple[tuple[WrittenMap, ...], tuple[WrittenMap, ...]]:
    """The maps and their changes of basis, each as wide as what it reads."""
    left, right, post = map(_read, three)
    changes = tuple(map(_read, bases or ()))
    sizes = _sizes(three[0])
    if changes:
        a, b, c = changes
        changes = (a.widened(sizes[0]), b.widened(sizes[1]), c.widened(post.shape[0]))
        sizes = (a.shape[0], b.shape[0])
    parts = (left.widened(sizes[0]), right.widened(sizes[1]), post.widened(left.shape[0]))
    _require_shapes(parts, changes)
    return parts, changes


def _read(path: str | Path) -> WrittenMap:
    return read_program(Path(path)) if str(path).endswith(".slp") else read_matrix(Path(path))


def _sizes(path: str | Path) -> tuple[int, int]:
    """The numbers of left and right values given by a file's name: 2x2x2 matrices, 2o2o4 polynomials; 0 if it gives none."""
    match = _SIZES.match(Path(path).name)
    if match is None:
        return 0, 0
    if match[1]:
        m, k, n = int(match[1]), int(match[2]), int(match[3])
        return m * k, k * n
    return int(match[4]) + 1, int(match[5]) + 1


def _placed(name: str, parts: tuple[WrittenMap, ...], changes: tuple[WrittenMap, ...], certain: bool) -> Scheme:
    for candidate in [Ring()] * (not certain) + [Ring(f"Q[{root}]") for root in TRIED]:
        scheme = assemble(_maps(name, parts, changes, candidate), None)
        if products_of_coefficients(scheme) > MOST_TRIED_TERMS:
            raise fail("E256", f"{parts[0].source.name}: the scheme is too large to try values of the placeholder", SAY_IT)
        if common_denominator(scheme) and residual(scheme, most=1).is_zero:
            return scheme
    tried = ", ".join([*([str(PLACEHOLDER)] if not certain else []), *TRIED])
    message = f"{parts[0].source.name}: no comment says which number the placeholder means"
    raise fail("E256", message, SAY_IT, notes=(f"tried were {tried}; with none of them the scheme multiplies",))


def _maps(name: str, parts: tuple[WrittenMap, ...], changes: tuple[WrittenMap, ...], ring: Ring) -> Maps:
    u, v, w = (part.linear(ring) for part in parts)
    bases = Bases(*(table_of(part.linear(ring)) for part in changes)) if changes else None
    return Maps(parts[0].source, name, u, v, w, ring, bases)


def _require_shapes(parts: tuple[WrittenMap, ...], changes: tuple[WrittenMap, ...]) -> None:
    (r, a), (s, b), (c, t) = (part.shape for part in parts)
    name = parts[0].source.name
    if not r == s == t:
        raise fail("E253", f"{name} is of no one rank: L has {r} rows, R has {s}, and P has {t} columns", "name L, R and P of one scheme")
    if changes:
        x, y, z = changes[0].shape[0], changes[1].shape[0], changes[2].shape[1]
        if (x, y, z) != (a, b, c):
            told = f"they make {x}, {y} and {z} values, the scheme works on {a}, {b} and {c}"
            raise fail("E253", f"{name}: the changes of basis do not fit: {told}", "name the -CoB files of this scheme")
