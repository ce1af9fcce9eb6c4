"""Read Bini's form (https://github.com/a1880/matrix-multiplication): `Bini m k n rank`, then a line for each product.

A line has the number of the product and three rows of numbers, parted by `;`: over the blocks of C, of A, and of B, unless a line of titles
(Alpha is A, Beta B, Gamma C) orders them otherwise. The blocks of C are numbered row by row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from bilinear.interchange.reader_parts import (
    MOST_BLOCKS,
    MOST_NONZEROS,
    MOST_PRODUCTS,
    Dims,
    by_products,
    malformed,
    parse_rational,
    read_text,
    said_ring,
)
from bilinear.ir.linear import Form
from bilinear.ir.number import exact
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Scheme
from bilinear.source import Source

_SIZES = re.compile(r"Bini\s+([0-9]{1,4})\s+([0-9]{1,4})\s+([0-9]{1,4})\s+([0-9]{1,6})\s*", re.IGNORECASE | re.ASCII)
_TITLES = ("alpha", "beta", "gamma")


def read_bini(path: str | Path, transposed: bool = False) -> Scheme:
    """The scheme in a file of that form.

    Raises `BilinearError`: E251 if the file cannot be read, E252 if a line is malformed, E253 if the sizes make no sense or a row has
    another length, E254 if there are not as many products as the sizes say.
    """
    where = Path(path)
    source = read_text(where)
    lines = list(_lines(source))
    start, first = lines[0] if lines else (0, "")
    (m, k, n), rank = _sizes(source, start, first)
    order, rows = (2, 0, 1), lines[1:]
    titles = [word for word in re.findall(r"[a-z]+", rows[0][1].lower()) if word in _TITLES] if rows else []
    if sorted(titles) == sorted(_TITLES):
        order, rows = (_TITLES.index(titles[0]), _TITLES.index(titles[1]), _TITLES.index(titles[2])), rows[1:]
    if len(rows) != rank:
        end = len(source.text)
        raise malformed(source, end, end, f"the file holds {len(rows)} products, not {rank}", "the file ends here", code="E254")
    lengths = (m * k, k * n, m * n)
    tables: tuple[list[Form], list[Form], list[Form]] = ([], [], [])
    for at, line in rows:
        for table, row in zip(order, _parts(source, at, line), strict=True):
            tables[table].append(_row(source, *row, lengths[table]))
    if max(sum(map(len, table)) for table in tables) > MOST_NONZEROS:
        raise malformed(source, 0, 1, "the file is too large", f"more than {MOST_NONZEROS} coefficients other than 0", code="E253")
    return by_products(source, where.name.split(".")[0], (m, k, n), tables, transposed, said_ring(source) or Ring())


def _lines(source: Source) -> Iterator[tuple[int, str]]:
    """The lines that are neither empty nor comments, with their offsets."""
    for match in re.finditer(r"[^\r\n]+", source.text):
        if match[0].strip() and not match[0].lstrip().startswith("#"):
            yield match.start(), match[0]


def _sizes(source: Source, start: int, line: str) -> tuple[Dims, int]:
    match = _SIZES.fullmatch(line)
    m, k, n, rank = (int(word) for word in match.groups()) if match is not None else (0, 0, 0, 0)
    if min(m, k, n, rank) < 1 or max(m * k, k * n, m * n) > MOST_BLOCKS or rank > MOST_PRODUCTS:
        label = f"at most {MOST_BLOCKS} blocks a matrix and {MOST_PRODUCTS} products"
        raise malformed(source, start, start + len(line), "the first line is not a size", label, "Bini m k n rank", code="E253")
    return (m, k, n), rank


def _parts(source: Source, start: int, line: str) -> list[tuple[int, str]]:
    """The three rows of a line, with their offsets."""
    parts, at = [], start
    for part in line.split(";"):
        parts.append((at, part))
        at += len(part) + 1
    if len(parts) == 5 and not parts[4][1].strip():
        parts.pop()
    if len(parts) != 4:
        raise malformed(source, start, start + len(line), "a line has the number of a product and three rows", "parted by ';'")
    return parts[1:]


def _row(source: Source, start: int, text: str, length: int) -> Form:
    words = list(re.finditer(r"\S+", text))
    if len(words) != length:
        raise malformed(source, start, start + len(text), f"the row has {len(words)} numbers, not {length}", "here", code="E253")
    found = []
    for i, word in enumerate(words):
        value = parse_rational(word[0])
        if value is None:
            at = start + word.start()
            raise malformed(source, at, at + len(word[0]), f"{word[0][:40]!r} is not a number", "not read")
        if value:
            found.append((i, exact(value)))
    return tuple(found)
