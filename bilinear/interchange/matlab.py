"""Read MATLAB files that assign three matrices: `U = [1 0; 0 1/2; ...];`, and V and W likewise. Nothing else in the file is read.

Rows are parted by `;` or line ends; the sizes decide whether a row or a column is a product. Blocks are numbered row by row.
"""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

from bilinear.errors import fail
from bilinear.interchange.from_arrays import scheme_from_arrays
from bilinear.interchange.reader_parts import MOST_BLOCKS, MOST_PRODUCTS, malformed, parse_rational, read_text, said_ring
from bilinear.ir.scheme import Scheme
from bilinear.source import Source

MOST_NUMBERS = 2**22

_MATRIX = re.compile(r"^[ \t]*([UVW])[ \t]*=[ \t]*\[([^\[\]]*)(\]?)", re.MULTILINE | re.IGNORECASE)
_ROW = re.compile(r"[^;\n]+")
_SKIPPED = re.compile(r"%[^\n]*|\.\.\.[^\n]*(?:\n|\Z)")


def read_matlab(path: str | Path, transposed: bool = False) -> Scheme:
    """The scheme of the matrices U, V and W in a file.

    Raises `BilinearError`: E251 if the file cannot be read, E252 if an entry is not a number, E253 and E357 if the sizes do not fit, E254
    if a matrix is missing or incomplete, E653 if the file assigns none of the three.
    """
    where = Path(path)
    source = read_text(where)
    text = _SKIPPED.sub(lambda part: " " * len(part[0]), source.text.replace("\r", " "))
    found = {match[1].upper(): match for match in _MATRIX.finditer(text)}
    if not found:
        raise fail(
            "E653", f"{where} holds no scheme", "a .m file has MATLAB's U = [1 0; 0 1], V and W, or Mathematica's {{{1}}, {{1}}, {{1}}}"
        )
    if len(found) < 3:
        raise fail("E254", f"{where} assigns {', '.join(found)} only", "a scheme has U, V and W")
    u, v, w = (_table(source, text, found[name]) for name in "UVW")
    return scheme_from_arrays(u, v, w, None, said_ring(source), transposed, where.stem)


def _table(source: Source, text: str, match: re.Match[str]) -> list[list[Fraction]]:
    if not match[3]:
        raise malformed(source, match.start(1), match.end(1), "a matrix is not closed", "of this one", code="E254")
    rows: list[list[Fraction]] = []
    for row in _ROW.finditer(text, match.start(2), match.end(2)):
        numbers = [_number(source, word) for word in re.compile(r"[^\s,]+").finditer(text, row.start(), row.end())]
        rows += [numbers] if numbers else []
        if len(rows) > MOST_PRODUCTS or len(rows) * len(numbers) > min(MOST_NUMBERS, MOST_PRODUCTS * MOST_BLOCKS):
            raise malformed(source, match.start(1), match.end(1), "the matrix is too large", "this one", code="E253")
        if numbers and len(numbers) != len(rows[0]):
            label = f"{len(numbers)} numbers, {len(rows[0])} in the first row"
            raise malformed(source, row.start(), row.end(), "the rows of a matrix are not of one length", label, code="E253")
    return rows


def _number(source: Source, word: re.Match[str]) -> Fraction:
    value = parse_rational(word[0].removesuffix("."))
    if value is None:
        raise malformed(source, word.start(), word.end(), f"{word[0][:40]!r} is not a number", "not read", "numbers are -1, 0.5 and 1/2")
    return value
