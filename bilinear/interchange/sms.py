"""Reads plinopt's matrices: files of `row column value` triples, one each for L (r x mk), R (r x kn) and P (mn x r).

Numbering begins at 1, blocks are row-major, C is not transposed, and `0 0 0` ends a matrix (https://github.com/jgdumas/plinopt). A value
may stand for a multiple of an algebraic number: `1/2X`, or a multiple of the placeholder 1013 such as `1013/2`. Pairs `-ALT` and `-CoB`
are a scheme in other bases, and its changes of basis.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from bilinear.analysis.brent import common_denominator, products_of_coefficients, residual
from bilinear.errors import fail
from bilinear.interchange.reading import MOST_BLOCKS, MOST_NONZEROS, MOST_PRODUCTS, assemble, dims_of, malformed, parse_term, read_text
from bilinear.ir.linear import LinearMap
from bilinear.ir.number import Coefficient, exact, generator
from bilinear.ir.ring import Ring, parse_ring
from bilinear.ir.scheme import Bases, Scheme
from bilinear.source import Source

PLACEHOLDER = 1013
"""A prime that stands for an algebraic number in files of rationals."""
TRIED = ("sqrt(3)", "i", "sqrt(2)", "sqrt(5)", "sqrt(-3)", "sqrt(6)", "sqrt(7)", "sqrt(-2)")
"""Numbers that are tried for a placeholder which no comment explains."""
MOST_TRIED_TERMS = 100_000
"""Products of three coefficients of a scheme for whose placeholder numbers are tried; published ones have up to 33 thousand."""
SAY_IT = "say it: ring=Ring('Q[sqrt(3)]')"

_NAMED = re.compile(r"(?:sqrt\(\s*(-?[0-9]{1,6})\s*\)|square root of (-?[0-9]{1,6}))")

Triples = tuple[str | Path, str | Path, str | Path]


@dataclass(frozen=True)
class _Value:
    """A value as it is written: `number` times the placeholder where it is a `root`; `letter` where that is certain."""

    number: Fraction
    root: bool = False
    letter: bool = False


@dataclass(frozen=True)
class _Matrix:
    source: Source
    shape: tuple[int, int]
    entries: dict[tuple[int, int], _Value]


def read_sms(left: str | Path, right: str | Path, post: str | Path, bases: Triples | None = None, ring: Ring | None = None) -> Scheme:
    """The scheme of three matrices L, R and P, or of three in other bases, and the `bases`, the three matrices that change them.

    `ring` says which number a placeholder stands for; with Q it is the integer 1013. Without it the comments in the files are believed,
    and where there are none the scheme is tried with 1013 itself, sqrt(3), i and a few more. Raises `BilinearError`: E251 a file cannot be
    read, E252 something in it is no matrix, E253 the sizes do not fit, E256 no number was found that the placeholder can stand for.
    """
    matrices = tuple(_read(Path(path)) for path in (left, right, post))
    changes = tuple(_read(Path(path)) for path in bases or ())
    name = re.sub(r"_L$", "", Path(left).stem)
    _require_shapes(matrices, changes)
    roots = [v for matrix in matrices + changes for v in matrix.entries.values() if v.root]
    if ring is None and roots:
        return _placed(name, matrices, changes, any(v.letter for v in roots))
    return _scheme(name, matrices, changes, ring or Ring())


def read_sms_set(stem: str | Path, ring: Ring | None = None) -> Scheme:
    """The scheme in `STEM_L.sms`, `STEM_R.sms` and `STEM_P.sms`; with a stem that ends in `-ALT` its `-CoB` matrices are its bases."""
    text = str(stem)
    core = text.removesuffix("-ALT")
    left, right, post = _three(text)
    return read_sms(left, right, post, _three(f"{core}-CoB") if core != text else None, ring)


def _three(stem: str) -> tuple[str, str, str]:
    return f"{stem}_L.sms", f"{stem}_R.sms", f"{stem}_P.sms"


def _placed(name: str, matrices: tuple[_Matrix, ...], changes: tuple[_Matrix, ...], certain: bool) -> Scheme:
    """The scheme with the number that its placeholder stands for: the one in the comments, else the first that makes it multiply."""
    named = _named(matrices + changes)
    if named is not None:
        return _scheme(name, matrices, changes, named)
    for candidate in [Ring()] * (not certain) + [Ring(f"Q[{root}]") for root in TRIED]:
        scheme = _scheme(name, matrices, changes, candidate)
        if products_of_coefficients(scheme) > MOST_TRIED_TERMS:
            raise fail("E256", f"{matrices[0].source.name}: the scheme is too large to try what the placeholder stands for", SAY_IT)
        if common_denominator(scheme) and residual(scheme, most=1).is_zero:
            return scheme
    tried = ", ".join([*([str(PLACEHOLDER)] if not certain else []), *TRIED])
    message = f"{matrices[0].source.name}: nothing tells what the placeholder stands for"
    raise fail("E256", message, SAY_IT, notes=(f"tried were {tried}; with none of them the scheme multiplies",))


def _named(matrices: tuple[_Matrix, ...]) -> Ring | None:
    """The ring of the number that a comment about a placeholder names."""
    for matrix in matrices:
        for line in matrix.source.text.splitlines():
            match = _NAMED.search(line) if line.startswith((f"# {PLACEHOLDER} ", "# X ")) else None
            if match is not None:
                square = match[1] or match[2]
                return Ring("Q[i]") if square == "-1" else parse_ring(f"Q[sqrt({square})]")
    return None


def _scheme(name: str, matrices: tuple[_Matrix, ...], changes: tuple[_Matrix, ...], ring: Ring) -> Scheme:
    u, v, w = (_map(matrix, ring) for matrix in matrices)
    bases = Bases(*(_map(matrix, ring) for matrix in changes)) if changes else None
    return assemble(matrices[0].source, name, (u, v, w), None, ring, bases)


def _map(matrix: _Matrix, ring: Ring) -> LinearMap:
    rows: list[list[tuple[int, Coefficient]]] = [[] for _ in range(matrix.shape[0])]
    for (i, j), value in sorted(matrix.entries.items()):
        rows[i].append((j, _coefficient(value, ring)))
    return LinearMap(matrix.shape[1], tuple(map(tuple, rows)))


def _coefficient(value: _Value, ring: Ring) -> Coefficient:
    if not value.root:
        return exact(value.number)
    if ring.generator:
        return value.number * generator(ring.generator)
    return exact(value.number * PLACEHOLDER)


def _require_shapes(matrices: tuple[_Matrix, ...], changes: tuple[_Matrix, ...]) -> None:
    """Refuse matrices whose sizes do not fit one another (E253)."""
    (r, a), (s, b), (c, t) = (matrix.shape for matrix in matrices)
    name = matrices[0].source.name
    if not r == s == t:
        raise fail("E253", f"{name} is of no one rank: L has {r} rows, R has {s}, and P has {t} columns", "name L, R and P of one scheme")
    if changes:
        (x, a0), (y, b0), (c0, z) = (matrix.shape for matrix in changes)
        if (x, y, z) != (a, b, c):
            told = f"they make {x}, {y} and {z} values, the scheme works on {a}, {b} and {c}"
            raise fail("E253", f"{name}: the changes of basis do not fit: {told}", "name the -CoB matrices of this scheme")
        a, b, c = a0, b0, c0
    if dims_of(a, b, c) is None:
        message = f"{name} is no multiplication of matrices: A has {a} blocks, B {b}, C {c}"
        raise fail("E253", message, "other bilinear maps are not read, nor -ALT matrices without their -CoB")


def _read(path: Path) -> _Matrix:
    source = read_text(path)
    shape: tuple[int, int] | None = None
    entries: dict[tuple[int, int], _Value] = {}
    for start, words in _lines(source):
        end = start + len(words)
        parts = words.split(None, 3)
        if len(parts) != 3:
            raise malformed(source, start, end, "a line of a matrix has three words", "row column value", "the last line is 0 0 0")
        if shape is None:
            shape = _shape(source, start, parts)
        elif parts[0] == parts[1] == "0":
            return _Matrix(source, shape, entries)
        else:
            _enter(source, start, parts, shape, entries)
    raise malformed(source, len(source.text), len(source.text), "the matrix does not end", "0 0 0 is missing", code="E254")


def _lines(source: Source) -> Iterator[tuple[int, str]]:
    """The lines that are neither empty nor comments, without the blanks around them, and the offset of each."""
    for match in re.finditer(r"[^\r\n]+", source.text):
        text = match[0].strip()
        if text and not text.startswith("#"):
            yield match.start() + match[0].find(text), text


def _shape(source: Source, start: int, parts: list[str]) -> tuple[int, int]:
    most = max(MOST_BLOCKS, MOST_PRODUCTS)
    sizes = [int(part) if part.isascii() and part.isdigit() and len(part) <= 9 else 0 for part in parts[:2]]
    if not all(1 <= size <= most for size in sizes) or len(parts[2]) != 1 or not parts[2].isalpha():
        end = start + sum(map(len, parts)) + 2
        raise malformed(source, start, end, "the first line is no size", f"rows columns R, from 1 to {most}", "7 4 R begins a 7 x 4 matrix")
    return sizes[0], sizes[1]


def _enter(source: Source, start: int, parts: list[str], shape: tuple[int, int], entries: dict[tuple[int, int], _Value]) -> None:
    end = start + sum(map(len, parts)) + 2
    places = [int(part) if part.isascii() and part.isdigit() and len(part) <= 9 else 0 for part in parts[:2]]
    if not all(1 <= place <= size for place, size in zip(places, shape, strict=True)):
        raise malformed(source, start, end, "there is no such place in the matrix", f"it is {shape[0]} x {shape[1]}, numbered from 1")
    value = _value(parts[2])
    if value is None:
        hint = "values are integers, fractions such as -1/2, and multiples of X or of 1013"
        raise malformed(source, source.text.index(parts[2], start), end, f"{parts[2][:40]!r} is no value", "not read", hint)
    place = (places[0] - 1, places[1] - 1)
    if place in entries:
        raise malformed(source, start, end, "this place has two values", "given again")
    if value.number:
        entries[place] = value
    if len(entries) > MOST_NONZEROS:
        raise malformed(source, start, end, "the matrix is too large", f"more than {MOST_NONZEROS} values")


def _value(text: str) -> _Value | None:
    term = parse_term(text)
    if term is None or term[2] not in (0, 1):
        return None
    number, letter, power = term
    if letter:
        return _Value(number, root=power == 1, letter=True) if letter == "X" else None
    if number and number.numerator % PLACEHOLDER == 0:
        return _Value(number / PLACEHOLDER, root=True)
    return _Value(number)
