"""Read plinopt's matrices: files of `row column value` triples (https://github.com/jgdumas/plinopt).

Numbering begins at 1, and `0 0 0` ends a matrix. A value may stand for a multiple of an algebraic number: `1/2X`, or a multiple of the
placeholder 1013 such as `1013/2`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from bilinear.interchange.placeholder import Marked, Part, marked
from bilinear.interchange.reader_parts import MOST_BLOCKS, MOST_NONZEROS, MOST_PRODUCTS, malformed, parse_term, read_text
from bilinear.source import Source

Entries = dict[tuple[int, int], Marked]


def read_matrix(path: Path) -> Part:
    """The linear map of a matrix; each row is an output.

    Raises `BilinearError`: E251 if the file cannot be read, E252 if a part is not a matrix, E254 if the end is missing.
    """
    source = read_text(path)
    shape: tuple[int, int] | None = None
    entries: Entries = {}
    for start, words in _lines(source):
        end = start + len(words)
        parts = words.split(None, 3)
        if len(parts) != 3:
            raise malformed(source, start, end, "a line of a matrix has three words", "row column value", "the last line is 0 0 0")
        if shape is None:
            shape = _shape(source, start, parts)
        elif parts[0] == parts[1] == "0":
            return _part(source, shape, entries)
        else:
            _enter(source, start, parts, shape, entries)
    raise malformed(source, len(source.text), len(source.text), "the matrix does not end", "0 0 0 is missing", code="E254")


def _part(source: Source, shape: tuple[int, int], entries: Entries) -> Part:
    rows: list[list[tuple[int, Marked]]] = [[] for _ in range(shape[0])]
    for (i, j), value in sorted(entries.items()):
        rows[i].append((j, value))
    return Part(source, shape[1], tuple(map(tuple, rows)))


def _lines(source: Source) -> Iterator[tuple[int, str]]:
    """The stripped lines that are neither empty nor comments, with their offsets."""
    for match in re.finditer(r"[^\r\n]+", source.text):
        text = match[0].strip()
        if text and not text.startswith("#"):
            yield match.start() + match[0].find(text), text


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
