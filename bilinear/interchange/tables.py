"""Read tables of numbers: fast-matmul's, Bini's and ternary_flip_graph's, and lists of triads in Mathematica and Maple."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
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
    Dims,
    Maps,
    Reading,
    assemble,
    by_products,
    lines_of,
    malformed,
    parse_rational,
    parse_term,
    read_number,
    read_text,
    said_ring,
)
from bilinear.ir.linear import Form, LinearMap, transposed_rows
from bilinear.ir.number import Coefficient, Symbolic, exact, generator
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Scheme
from bilinear.source import Source

_SIZES = r"([1-9][0-9]{0,3})[ \t]+([1-9][0-9]{0,3})[ \t]+([1-9][0-9]{0,3})[ \t]+([1-9][0-9]{0,5})[ \t]*"
MOST_LETTERS = 4000  # The most characters of one number.

_MARK = "substitution information"
_TABLES = ("U", "V", "W", "the temporaries of U", "the temporaries of V", "the temporaries of W")
_WRITTEN = "numbers are written -1, 3/4, .5, x2 for x^2, xi for 1/x, (1+-x) for 1-x"


def begins_fast_matmul(begins: Beginning) -> bool:
    """True where a row of numbers comes first, and lines of # part tables."""
    row = re.match(r"[-+(.0-9x][-+0-9x/.i() \t]*(?:\n|\Z)", begins.content)
    return row is not None and (not begins.whole or re.search(r"^[ \t]*#", begins.content, re.MULTILINE) is not None)


def read_fast_matmul(path: str | Path, dims: Dims | None = None) -> Scheme:
    """The scheme in a file of the fast-matmul collection: U, V and W as rows of numbers, separated by lines of `#` (Benson, Ballard 2015).

    A row is a block (of A, of B, of C; row-major, C not transposed), a column a product. If temporaries have been substituted, further rows
    of U and V and further columns of W are temporaries, and three more blocks after `# Substitution information` define them over the
    blocks of A, those of B, and the products; they become named steps. Approximate schemes have polynomials in x, which is lambda: x2 =
    x^2, xi = 1/x, (1+-x).

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
class _RowsRead:
    title: str
    rows: list[Form] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    columns: int = 0
    nonzeros: int = 0


def _blocks(source: Source) -> list[_RowsRead]:
    blocks, substituting = [_RowsRead(_TABLES[0])], False
    for start, line in lines_of(source):
        if _MARK in line.lower() and line.startswith("#"):
            _require_three(source, blocks)
            blocks.append(_RowsRead(_TABLES[3]))
            substituting = True
        elif line.startswith("#") and (substituting or blocks[-1].rows):
            most = 6 if substituting else 3
            if len(blocks) == most and line == "#":
                raise malformed(source, start, start + 1, "there are more than three tables", "a fourth begins here", code="E254")
            if len(blocks) < most:
                blocks.append(_RowsRead(_TABLES[len(blocks)]))
        elif line and not line.startswith("#"):
            _add(source, blocks[-1], start, line)
    if not blocks[-1].rows and not substituting:
        blocks.pop()
    if not substituting:
        _require_three(source, blocks)
    return blocks + [_RowsRead(title) for title in _TABLES[len(blocks) :]]


def _add(source: Source, block: _RowsRead, start: int, line: str) -> None:
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


def _by_columns(source: Source, table: _RowsRead, temporaries: _RowsRead) -> LinearMap:
    inputs = len(table.rows) - len(temporaries.rows)
    _require_columns(source, temporaries, inputs)
    prefix = {"U": "X", "V": "Y"}[table.title]
    return LinearMap(inputs, transposed_rows(table.rows, table.columns), tuple(temporaries.rows), _names(prefix, temporaries))


def _names(prefix: str, temporaries: _RowsRead) -> tuple[str, ...]:
    return tuple(f"{prefix}{i + 1}" for i in range(len(temporaries.rows)))


def _require_columns(source: Source, temporaries: _RowsRead, inputs: int) -> None:
    if temporaries.rows and temporaries.columns != inputs:
        label = f"{temporaries.columns} numbers, but there are {inputs} values to be added up"
        at = temporaries.starts[0]
        raise malformed(source, at, at + 1, f"{temporaries.title} do not fit their table", label, code="E253")


def _require_three(source: Source, blocks: list[_RowsRead]) -> None:
    filled = sum(bool(block.rows) for block in blocks)
    if len(blocks) != 3 or filled != 3:
        raise fail("E254", f"{source.name} holds {filled} tables, not U, V and W", "tables are parted by lines of #")


_BINI = re.compile(rf"Bini\s+{_SIZES}", re.IGNORECASE | re.ASCII)
_TITLES = ("alpha", "beta", "gamma")


def read_bini(path: str | Path) -> Scheme:
    """The scheme in a file of Bini's form (https://github.com/a1880/matrix-multiplication): `Bini m k n rank`, then a line for each
    product.

    A line has the number of the product and three rows of numbers, parted by `;`: over the blocks of C, of A, and of B, unless a line of
    titles (Alpha is A, Beta B, Gamma C) orders them otherwise. The blocks of C are numbered row by row. Raises `BilinearError`: E251 if the
    file cannot be read, E252 if a line is malformed, E253 if the sizes make no sense or a row has another length, E254 if there are not as
    many products as the sizes say.
    """
    where = Path(path)
    source = read_text(where)
    lines = [(start, text) for start, text in lines_of(source) if text and not text.startswith("#")]
    start, first = lines[0] if lines else (0, "")
    match = _BINI.fullmatch(first)
    (m, k, n), rank = _sizes(source, start, start + len(first), match.groups() if match is not None else ())
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
        for table, (begin, text) in zip(order, _parts(source, at, line), strict=True):
            words = list(re.compile(r"\S+").finditer(source.text, begin, begin + len(text)))
            if len(words) != lengths[table]:
                message = f"the row has {len(words)} numbers, not {lengths[table]}"
                raise malformed(source, begin, begin + len(text), message, "here", code="E253")
            tables[table].append(_row(source, words))
    return _of_tables(source, where.name.split(".")[0], (m, k, n), tables, transposed=False)


def _parts(source: Source, start: int, line: str) -> list[tuple[int, str]]:
    parts, at = [], start
    for part in line.split(";"):
        parts.append((at, part))
        at += len(part) + 1
    if len(parts) == 5 and not parts[4][1].strip():
        parts.pop()
    if len(parts) != 4:
        raise malformed(source, start, start + len(line), "a line has the number of a product and three rows", "parted by ';'")
    return parts[1:]


_WORD = re.compile(r"#[^\n]*|(\S+)")


def begins_ternary(begins: Beginning) -> bool:
    """True where four sizes stand on a line of their own, and as many numbers follow as they say, or at least U, or its first row, does."""
    match = re.match(rf"{_SIZES}\n([^\n]*)", begins.content, re.ASCII)
    if match is None:
        return False
    m, k, n, rank = (int(match[group]) for group in range(1, 5))
    numbers = sum(bool(word[1]) for word in _WORD.finditer(begins.content)) - 4
    return numbers == rank * (m * k + k * n + m * n) or len(match[5].split()) in (m * k, rank * m * k)


def read_ternary(path: str | Path) -> Scheme:
    """The scheme in a text file of ternary_flip_graph (https://github.com/dronperminov/ternary_flip_graph): `m k n rank`, then U, V and W.

    Each table has a row for each product; line ends mean nothing. The blocks of C are numbered column by column. Raises `BilinearError`:
    E251 if the file cannot be read, E252 if a word is not a number, E253 if the sizes make no sense, E254 if there are not so many.
    """
    where = Path(path)
    source = read_text(where)
    words = [match for match in _WORD.finditer(source.text) if match[1]]
    end = words[3].end() if len(words) > 3 else len(source.text)
    (m, k, n), rank = _sizes(source, words[0].start() if words else 0, end, [word[0] for word in words[:4]])
    lengths = (m * k, k * n, m * n)
    if len(words) - 4 != rank * sum(lengths):
        told = f"{len(words) - 4} numbers follow the sizes, not {rank} * ({' + '.join(map(str, lengths))}) = {rank * sum(lengths)}"
        raise fail("E254", f"{where} is not complete: {told}", "U, V and W have a row of numbers for each product")
    tables, at = [], 4
    for length in lengths:
        tables.append([_row(source, words[at + p * length : at + (p + 1) * length]) for p in range(rank)])
        at += rank * length
    return _of_tables(source, where.stem, (m, k, n), tables, transposed=True)


def _sizes(source: Source, start: int, end: int, words: Sequence[str]) -> tuple[Dims, int]:
    m, k, n, rank = (int(word) if re.fullmatch(r"[1-9][0-9]{0,5}", word, re.ASCII) else 0 for word in (*words, "", "", "", "")[:4])
    if min(m, k, n, rank) < 1 or max(m * k, k * n, m * n) > MOST_BLOCKS or rank > MOST_PRODUCTS:
        label = f"at most {MOST_BLOCKS} blocks a matrix and {MOST_PRODUCTS} products"
        raise malformed(source, start, end, "the file does not begin with its sizes", label, "m k n rank, for A m x k and B k x n", "E253")
    return (m, k, n), rank


def _row(source: Source, words: Sequence[re.Match[str]]) -> Form:
    return tuple((i, c) for i, c in enumerate(read_number(source, word) for word in words) if c)


def _of_tables(source: Source, name: str, dims: Dims, tables: Sequence[Sequence[Form]], transposed: bool) -> Scheme:
    if max(sum(map(len, table)) for table in tables) > MOST_NONZEROS:
        raise malformed(
            source, 0, 1, "the file is too large", f"more than {MOST_NONZEROS} coefficients other than 0 in a table", code="E253"
        )
    return by_products(source, name, dims, tables, transposed, said_ring(source) or Ring())


MOST_NUMBERS = 2**22
DEPTH = 4  # Lists within lists: products, matrices, rows, numbers.

_LIST_TOKEN = re.compile(r"\s*(?:([{},])|((?:[+-]\s*)?[0-9]+(?:/[0-9]+|\.[0-9]*)?))", re.ASCII)
_ASSIGNED = re.compile(r"\A\s*[A-Za-z$][A-Za-z0-9$]*\s*=")

Matrix = list[list[Coefficient]]
Nested: TypeAlias = "Coefficient | list[Nested]"


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
    tables = [[tuple((i, c) for i, c in enumerate(c for row in three[part] for c in row) if c) for three in matrices] for part in range(3)]
    return Reading(by_products(source, where.stem, (m, k, n), tables, flipped, said_ring(source) or Ring()), flipped)


def _matrices(where: Path, number: int, product: Nested) -> list[Matrix]:
    found: list[Matrix] = []
    for matrix in product if isinstance(product, list) else []:
        rows = [row for row in matrix if isinstance(row, list)] if isinstance(matrix, list) else []
        numbers = [[x for x in row if not isinstance(x, list)] for row in rows]
        if numbers == matrix and len({len(row) for row in numbers}) == 1 and numbers[0]:
            found.append(numbers)
    if not isinstance(product, list) or not len(product) == len(found) == 3:
        raise fail("E252", f"{where}: product {number + 1} is not a list of three matrices", "one over A, one over B and one over C")
    return found


def _without_comments(source: Source) -> str:
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
                    if self.text[self.at :].strip(" \t\r\n;"):
                        raise self._wrong("something follows the list")
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
        match = _LIST_TOKEN.match(self.text, self.at)
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

    def _wrong(self, message: str, code: str = "E252") -> BilinearError:
        return malformed(self.source, self.begin, self.begin + 1, message, "here", "lists of integers and fractions are read", code)


_SET = re.compile(r"TriadSet\s*\(")
_MAPLE_WORD = re.compile(r"(?:TriadSet|Triad|Matrix)\s*\((?:\s*([0-9]{1,4})\s*,\s*([0-9]{1,4})\s*,)?", re.ASCII)
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
    text = _MAPLE_WORD.sub(lambda word: " " * len(word[0]), body).translate(_BRACKETS)
    products = Lists(source, " " * start.start() + text).read()
    read = [matrix for product in products if isinstance(product, list) for matrix in product if isinstance(matrix, list)]
    sized = [word for word in _MAPLE_WORD.finditer(body) if word[1]]
    for word, matrix in zip(sized, read, strict=False):
        if (int(word[1]), int(word[2])) != (len(matrix), len(matrix[0]) if matrix and isinstance(matrix[0], list) else 0):
            at = start.start() + word.start()
            raise malformed(source, at, at + len(word[0]), "the matrix has other sizes than it says", "of this one", code="E253")
    return scheme_of_lists(source, products, asked.transposed)
