"""Read lists of products, each three matrices, over A, over B, and over C: Mathematica's braces, and Maple's triads.

The matrix over C is n x m: C is transposed. Numbers are integers and fractions; the file is data, and nothing is evaluated. Maple's files
are those of the catalogue https://fmm.univ-lille.fr: `TriadSet([Triad([Matrix(m, k, [[...]]), ...]), ...])`; whatever else they compute is
not read.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeAlias

from bilinear.errors import BilinearError, fail
from bilinear.interchange.reader_parts import (
    MOST_BLOCKS,
    MOST_NONZEROS,
    MOST_PRODUCTS,
    NOTHING_ASKED,
    Asked,
    Beginning,
    Reading,
    by_products,
    malformed,
    parse_rational,
    read_text,
    said_ring,
)
from bilinear.ir.linear import Form
from bilinear.ir.number import Coefficient, exact
from bilinear.ir.ring import Ring
from bilinear.source import Source

MOST_NUMBERS = 2**22
DEPTH = 4
"""Lists within lists: products, matrices, rows, numbers."""

_TOKEN = re.compile(r"\s*(?:([{},])|((?:[+-]\s*)?[0-9]+(?:/[0-9]+|\.[0-9]*)?))", re.ASCII)
_ASSIGNED = re.compile(r"\A\s*[A-Za-z$][A-Za-z0-9$]*\s*=")

Matrix = list[list[Coefficient]]
Nested: TypeAlias = "Coefficient | list[Nested]"


def begins_mathematica(begins: Beginning) -> bool:
    """True for a list of lists of lists, perhaps behind comments and a name."""
    head = r"(?:\(\*(?:[^*]|\*(?!\)))*\*\)|\s)*(?:[A-Za-z$][A-Za-z0-9$]*\s*=\s*)?\{\s*\{\s*\{"
    return re.match(head, begins.text) is not None


def begins_maple(begins: Beginning) -> bool:
    """True where a set of triads is made."""
    return re.search(r"^\s*(?:[A-Za-z_]\w*\s*:=\s*)?TriadSet\s*\(", begins.text, re.MULTILINE) is not None


def read_mathematica(path: Path, asked: Asked = NOTHING_ASKED) -> Reading:
    """The scheme in a file of lists, and whether C is transposed in it.

    By default it is, unless only the other reading fits the sizes. Raises `BilinearError`: E251 if the file cannot be read, E252 if a part
    is not a list of numbers, E253 if the sizes do not fit, E254 if a list is not closed.
    """
    source = read_text(path)
    text = _ASSIGNED.sub(lambda head: " " * len(head[0]), _without_comments(source))
    return scheme_of_lists(source, Lists(source, text).read(), asked.transposed)


def scheme_of_lists(source: Source, products: list[Nested], transposed: bool | None) -> Reading:
    """The scheme of a list of products, as `read_mathematica` gives it."""
    where = Path(source.name)
    if not products:
        raise fail("E254", f"{where} holds no product", "a product is three matrices, over A, over B and over C")
    matrices = [_matrices(where, number, product) for number, product in enumerate(products)]
    sizes = [[(len(matrix), len(matrix[0])) for matrix in three] for three in matrices]
    odd = next((i for i, size in enumerate(sizes) if size != sizes[0]), None)
    if odd is not None:
        raise fail("E253", f"{where}: product {odd + 1} has matrices of other sizes than product 1", "every product has the same three")
    (m, k), (k2, n), c_size = sizes[0]
    flipped = transposed if transposed is not None else c_size != (m, n) or m == n
    if max(m * k, k * n, m * n) > MOST_BLOCKS or k != k2 or c_size != ((n, m) if flipped else (m, n)):
        told = f"A is {m} x {k}, B {k2} x {n}, C {c_size[0]} x {c_size[1]}"
        wanted = f"C is {n} x {m} where it is transposed, {m} x {n} where it is not; at most {MOST_BLOCKS} blocks a matrix"
        raise fail("E253", f"{where} is not a multiplication of matrices: {told}", wanted)
    tables = [[_flat(three[part]) for three in matrices] for part in range(3)]
    return Reading(by_products(source, where.stem, (m, k, n), tables, flipped, said_ring(source) or Ring()), flipped)


def _matrices(where: Path, number: int, product: Nested) -> list[Matrix]:
    """The three matrices of a product, each of rows of one length."""
    found: list[Matrix] = []
    for matrix in product if isinstance(product, list) else []:
        rows = [row for row in matrix if isinstance(row, list)] if isinstance(matrix, list) else []
        numbers = [[x for x in row if not isinstance(x, list)] for row in rows]
        if numbers == matrix and len({len(row) for row in numbers}) == 1 and numbers[0]:
            found.append(numbers)
    if not isinstance(product, list) or not len(product) == len(found) == 3:
        raise fail("E252", f"{where}: product {number + 1} is not a list of three matrices", "one over A, one over B and one over C")
    return found


def _flat(matrix: Matrix) -> Form:
    return tuple((i, c) for i, c in enumerate(c for row in matrix for c in row) if c)


def _without_comments(source: Source) -> str:
    """The text with its comments (* ... *) blanked."""
    kept, at = [], 0
    while (begin := source.text.find("(*", at)) >= 0:
        end = source.text.find("*)", begin + 2)
        if end < 0:
            raise malformed(source, begin, begin + 2, "a comment is not closed", "begins here", code="E254")
        kept += [source.text[at:begin], " " * (end + 2 - begin)]
        at = end + 2
    return "".join([*kept, source.text[at:]])


class Lists:
    """A reader of nested lists of numbers; `text` is that of the source with nothing but a list left, at its place."""

    def __init__(self, source: Source, text: str) -> None:
        self.source, self.text = source, text
        self.at = self.begin = 0
        self.numbers = self.nonzeros = 0

    def read(self) -> list[Nested]:
        """The outermost list."""
        open_lists: list[list[Nested]] = []
        fresh = True
        while True:
            token = self._next()
            if token == "{" and fresh and len(open_lists) < DEPTH:
                open_lists.append([])
            elif token == "}" and open_lists and (not fresh or not open_lists[-1]):
                done, fresh = open_lists.pop(), False
                if not open_lists:
                    self._require_end()
                    return done
                open_lists[-1].append(done)
            elif token == "," and open_lists and not fresh:
                fresh = True
            elif isinstance(token, str) or not fresh or not open_lists:
                raise self._wrong(f"{str(token)[:40]!r} cannot stand here")
            else:
                open_lists[-1].append(token)
                fresh = False

    def _next(self) -> Coefficient | str:
        match = _TOKEN.match(self.text, self.at)
        rest = len(self.text[self.at :]) - len(self.text[self.at :].lstrip()) if match is None else 0
        self.begin = self.at + rest if match is None else match.start(match.lastindex or 0)
        if match is None:
            missing = not self.text[self.at :].strip()
            what = "a list is not closed" if missing else f"{self.text[self.begin]!r} is neither a list nor a number"
            raise self._wrong(what, "E254" if missing else "E252")
        self.at = match.end()
        if match[1]:
            return match[1]
        value = parse_rational("".join(match[2].split()).rstrip("."))
        self.numbers, self.nonzeros = self.numbers + 1, self.nonzeros + bool(value)
        if value is None or self.numbers > MOST_NUMBERS or self.nonzeros > 3 * MOST_NONZEROS or self.numbers > MOST_PRODUCTS * MOST_BLOCKS:
            raise self._wrong("this is not a number, or there are too many of them")
        return exact(value)

    def _require_end(self) -> None:
        if self.text[self.at :].strip(" \t\r\n;"):
            raise self._wrong("something follows the list")

    def _wrong(self, message: str, code: str = "E252") -> BilinearError:
        return malformed(self.source, self.begin, self.begin + 1, message, "here", "lists of integers and fractions are read", code)


_SET = re.compile(r"TriadSet\s*\(")
_WORD = re.compile(r"(?:TriadSet|Triad|Matrix)\s*\((?:\s*([0-9]{1,4})\s*,\s*([0-9]{1,4})\s*,)?", re.ASCII)
_BRACKETS = str.maketrans("[])", "{} ")


def read_maple(path: Path, asked: Asked = NOTHING_ASKED) -> Reading:
    """The scheme in a file of triads, and whether C is transposed in it, as for `read_mathematica`.

    Raises `BilinearError`: E251 if the file cannot be read, E252 and E254 if the set is malformed or breaks off, E253 if the sizes do not
    fit, E653 if the file holds no set of triads.
    """
    source = read_text(path)
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
    return scheme_of_lists(source, products, asked.transposed)
