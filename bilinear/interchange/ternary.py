"""Read the text files of ternary_flip_graph (https://github.com/dronperminov/ternary_flip_graph): `m k n rank`, then U, V and W.

Each table has a row for each product; line ends mean nothing. The blocks of C are numbered column by column.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from bilinear.errors import fail
from bilinear.interchange.reader_parts import (
    MOST_BLOCKS,
    MOST_NONZEROS,
    MOST_PRODUCTS,
    by_products,
    malformed,
    parse_rational,
    read_text,
    said_ring,
)
from bilinear.ir.linear import Form
from bilinear.ir.number import Coefficient, exact
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Scheme
from bilinear.source import Source

_WORD = re.compile(r"#[^\n]*|(\S+)")


def read_ternary(path: str | Path, transposed: bool = True) -> Scheme:
    """The scheme in a file of numbers.

    Raises `BilinearError`: E251 if the file cannot be read, E252 if a word is not a number, E253 if the sizes make no sense, E254 if the
    number of numbers differs from the sizes.
    """
    where = Path(path)
    source = read_text(where)
    words = [match for match in _WORD.finditer(source.text) if match[1]]
    sizes = [int(word[0]) for word in words[:4] if re.fullmatch(r"[1-9][0-9]{0,5}", word[0], re.ASCII)]
    if len(sizes) != 4:
        raise fail("E253", f"{where} does not begin with four sizes", "m k n rank: rows of A, rows of B, columns of B, products")
    m, k, n, rank = sizes
    lengths = (m * k, k * n, m * n)
    if max(lengths) > MOST_BLOCKS or rank > MOST_PRODUCTS:
        raise fail("E253", f"{where} is too large: {lengths} blocks and {rank} products", f"at most {MOST_BLOCKS} and {MOST_PRODUCTS}")
    if len(words) - 4 != rank * sum(lengths):
        told = f"{len(words) - 4} numbers follow the sizes, not {rank} * ({' + '.join(map(str, lengths))}) = {rank * sum(lengths)}"
        raise fail("E254", f"{where} is not complete: {told}", "U, V and W have a row of numbers for each product")
    tables, at = [], 4
    for length in lengths:
        tables.append([_row(source, words[at + p * length : at + (p + 1) * length]) for p in range(rank)])
        at += rank * length
        if sum(map(len, tables[-1])) > MOST_NONZEROS:
            raise fail("E253", f"{where} is too large", f"at most {MOST_NONZEROS} coefficients other than 0 in a table")
    return by_products(source, where.stem, (m, k, n), tables, transposed, said_ring(source) or Ring())


def _row(source: Source, words: list[re.Match[str]]) -> Form:
    return tuple((i, c) for i, c in enumerate(_number(source, word) for word in words) if c)


def _number(source: Source, word: re.Match[str]) -> Coefficient:
    value = _value(word[0])
    if value is None:
        raise malformed(source, word.start(), word.end(), f"{word[0][:40]!r} is not a number", "not read")
    return value


@lru_cache(maxsize=4096)
def _value(text: str) -> Coefficient | None:
    value = parse_rational(text)
    return None if value is None else exact(value)
