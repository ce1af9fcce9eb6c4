"""Read the Maple files of the catalogue https://fmm.univ-lille.fr: `TriadSet([Triad([Matrix(m, k, [[...]]), ...]), ...])`.

A triad is a product: matrices over A, over B, and over C, which is n x m: C is transposed. Whatever else the file computes is not read.
"""

from __future__ import annotations

import re
from pathlib import Path

from bilinear.errors import fail
from bilinear.interchange.mathematica import Lists, scheme_of_lists
from bilinear.interchange.reader_parts import malformed, read_text
from bilinear.ir.scheme import Scheme

_SET = re.compile(r"TriadSet\s*\(")
_WORD = re.compile(r"(?:TriadSet|Triad|Matrix)\s*\((?:\s*([0-9]{1,4})\s*,\s*([0-9]{1,4})\s*,)?", re.ASCII)
_BRACKETS = str.maketrans("[])", "{} ")


def read_maple(path: str | Path, transposed: bool | None = None) -> tuple[Scheme, bool]:
    """The scheme in a file of triads, and whether C is transposed in it, as for `read_mathematica`.

    Raises `BilinearError`: E251 if the file cannot be read, E252 and E254 if the set is malformed or breaks off, E253 if the sizes do not
    fit, E653 if the file holds no set of triads.
    """
    source = read_text(Path(path))
    start = _SET.search(source.text)
    if start is None:
        raise fail("E653", f"{path} holds no scheme", "a scheme in Maple is a TriadSet of products")
    end = re.compile(r"[:;#]|\Z").search(source.text, start.end())
    body = source.text[start.start() : end.start() if end is not None else len(source.text)]
    text = _WORD.sub(lambda word: " " * len(word[0]), body).translate(_BRACKETS)
    products = Lists(source, " " * start.start() + text).read()
    read = [matrix for product in products if isinstance(product, list) for matrix in product if isinstance(matrix, list)]
    sized = [word for word in _WORD.finditer(body) if word[1]]
    for word, matrix in zip(sized, read, strict=False):
        if (int(word[1]), int(word[2])) != (len(matrix), len(matrix[0]) if matrix and isinstance(matrix[0], list) else 0):
            at = start.start() + word.start()
            raise malformed(source, at, at + len(word[0]), "the matrix has other sizes than it says", "of this one", code="E253")
    return scheme_of_lists(source, products, transposed)
