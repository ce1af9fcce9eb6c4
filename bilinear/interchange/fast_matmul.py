"""Read the tables of the fast-matmul collection: U, V and W as rows of numbers, separated by lines of `#` (Benson, Ballard 2015).

A row is a block (of A, of B, of C; row-major, C not transposed), a column a product. If temporaries have been substituted, further rows of
U and V and further columns of W are temporaries, and three more blocks after `# Substitution information` define them over the blocks of A,
those of B, and the products. Approximate schemes have polynomials in x, which is lambda: x2 = x^2, xi = 1/x, (1+-x).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from bilinear.errors import BilinearError, fail
from bilinear.interchange.reader_parts import (
    MOST_NONZEROS,
    MOST_PRODUCTS,
    Dims,
    Maps,
    assemble,
    malformed,
    parse_term,
    read_text,
    said_ring,
)
from bilinear.ir.linear import Form, LinearMap
from bilinear.ir.number import Coefficient, Symbolic, exact, generator
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Scheme
from bilinear.source import Source

MOST_LETTERS = 4000
"""The most characters of one number."""

_MARK = "substitution information"
_TABLES = ("U", "V", "W", "the temporaries of U", "the temporaries of V", "the temporaries of W")
_WRITTEN = "numbers are written -1, 3/4, .5, x2 for x^2, xi for 1/x, (1+-x) for 1-x"


def read_fast_matmul(path: str | Path, dims: Dims | None = None) -> Scheme:
    """The scheme in a file of the fast-matmul collection; substituted temporaries become its named steps.

    The sizes of the tables give the format, which must equal `dims` = (m, k, n) if given. A table with x is a scheme over Q[lambda]; others
    are over the ring that a comment names (`# ring: Z/2`), else over Q. Raises `BilinearError`: E251 if the file cannot be read, E252 if a
    part is not a table, E253 if the sizes do not fit, E254 if a table is missing.
    """
    where = Path(path)
    source = read_text(where)
    u, v, w, *substituted = _blocks(source)
    left = _by_columns(source, u, substituted[0])
    right = _by_columns(source, v, substituted[1])
    last = substituted[2]
    inputs = w.columns - len(last.rows)
    _require_columns(source, last, inputs)
    result = LinearMap(inputs, tuple(w.rows), tuple(last.rows), _names("Z", last))
    approximate = any(isinstance(c, Symbolic) for block in (u, v, w, *substituted) for row in block.rows for _, c in row)
    ring = Ring("Q[lambda]") if approximate else said_ring(source) or Ring()
    return assemble(Maps(source, where.name, left, right, result, ring), dims)


@dataclass
class _Block:
    """A table being read: its rows without zeros, where each begins, and how many numbers each has."""

    title: str
    rows: list[Form] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    columns: int = 0
    nonzeros: int = 0


def _blocks(source: Source) -> list[_Block]:
    """The six blocks: U, V, W, and their temporaries, which may be empty."""
    blocks, substituting = [_Block(_TABLES[0])], False
    for start, line in _lines(source):
        if _MARK in line.lower() and line.startswith("#"):
            _require_three(source, blocks)
            blocks.append(_Block(_TABLES[3]))
            substituting = True
        elif line.startswith("#"):
            if substituting or blocks[-1].rows:
                _open(source, blocks, start, line, substituting)
        elif line:
            _add(source, blocks[-1], start, line)
    if not blocks[-1].rows and not substituting:
        blocks.pop()
    if not substituting:
        _require_three(source, blocks)
    return blocks + [_Block(title) for title in _TABLES[len(blocks) :]]


def _lines(source: Source) -> Iterator[tuple[int, str]]:
    """The stripped lines, with their offsets."""
    for match in re.finditer(r"[^\r\n]+", source.text):
        text = match[0].strip()
        yield match.start() + match[0].find(text), text


def _open(source: Source, blocks: list[_Block], start: int, line: str, substituting: bool) -> None:
    if len(blocks) == (6 if substituting else 3) and line == "#":
        raise malformed(source, start, start + 1, "there are more than three tables", "a fourth begins here", code="E254")
    if len(blocks) < (6 if substituting else 3):
        blocks.append(_Block(_TABLES[len(blocks)]))


def _add(source: Source, block: _Block, start: int, line: str) -> None:
    """Read a row into a block."""
    terms, count = [], 0
    for match in re.finditer(r"\S+", line):
        value = _number(match[0])
        if value is None:
            at = start + match.start()
            raise malformed(source, at, at + len(match[0]), f"{match[0][:40]!r} is not a number of these tables", "not read", _WRITTEN)
        if value != 0:
            terms.append((count, value))
        count += 1
        if count > 2 * MOST_PRODUCTS:
            raise malformed(source, start, start + 1, "the row is too long", f"more than {2 * MOST_PRODUCTS} numbers")
    if block.rows and count != block.columns:
        message = f"the rows of {block.title} are not of one length"
        raise malformed(source, start, start + len(line), message, f"{count} numbers, {block.columns} in the rows before")
    if len(block.rows) >= MOST_PRODUCTS:
        raise malformed(source, start, start + len(line), f"{block.title} has too many rows", f"more than {MOST_PRODUCTS}")
    block.nonzeros += len(terms)
    if block.nonzeros > MOST_NONZEROS:
        raise malformed(source, start, start + 1, f"{block.title} is too large", f"more than {MOST_NONZEROS} coefficients other than 0")
    block.columns = count
    block.rows.append(tuple(terms))
    block.starts.append(start)


@lru_cache(maxsize=4096)
def _number(token: str) -> Coefficient | None:
    """The value of a token; None if it has none."""
    if len(token) > MOST_LETTERS:
        return None
    inner = token[1:-1] if token.startswith("(") and token.endswith(")") else token
    total: Coefficient = 0
    for part in inner.split("+") if inner is not token else [token]:
        term = parse_term(part)
        if term is None:
            return None
        number, letter, power = term
        total = total + (number * generator("lambda", power) if letter and power else number)
    return exact(total)


def _by_columns(source: Source, table: _Block, temporaries: _Block) -> LinearMap:
    """The map whose outputs are the columns of a table over blocks, then temporaries."""
    inputs = len(table.rows) - len(temporaries.rows)
    _require_columns(source, temporaries, inputs)
    outputs: list[list[tuple[int, Coefficient]]] = [[] for _ in range(table.columns)]
    for index, row in enumerate(table.rows):
        for product, value in row:
            outputs[product].append((index, value))
    prefix = {"U": "X", "V": "Y"}[table.title]
    return LinearMap(inputs, tuple(map(tuple, outputs)), tuple(temporaries.rows), _names(prefix, temporaries))


def _names(prefix: str, temporaries: _Block) -> tuple[str, ...]:
    return tuple(f"{prefix}{i + 1}" for i in range(len(temporaries.rows)))


def _require_columns(source: Source, temporaries: _Block, inputs: int) -> None:
    if temporaries.rows and temporaries.columns != inputs:
        label = f"{temporaries.columns} numbers, but there are {inputs} values to be added up"
        at = temporaries.starts[0]
        raise malformed(source, at, at + 1, f"{temporaries.title} do not fit their table", label, code="E253")


def _require_three(source: Source, blocks: list[_Block]) -> None:
    filled = sum(bool(block.rows) for block in blocks)
    if len(blocks) != 3 or filled != 3:
        raise _missing(source, filled)


def _missing(source: Source, filled: int) -> BilinearError:
    return fail("E254", f"{source.name} holds {filled} tables, not U, V and W", "tables are parted by lines of #")
