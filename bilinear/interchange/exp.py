"""Read products of sums, one product a line: `(a11+2*a22)*(b12-b22)*(c21)/3` (Heule, Kauers, Seidl 2021; Kauers, Moosbauer 2023).

Each product has one factor of each of a, b and c, in any order. Numbers may stand anywhere, also directly before a name, and sums nest. The
indices of c are transposed: c21 is block C12. The largest indices give the sizes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

from bilinear.errors import fail
from bilinear.interchange.arithmetic import MOST_BYTES, Arithmetic, Linear, Value
from bilinear.interchange.reading import MOST_BLOCKS, MOST_NONZEROS, MOST_PRODUCTS, Maps, assemble, malformed, read_text, said_ring
from bilinear.ir.linear import Form, LinearMap, form
from bilinear.ir.number import Coefficient
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Scheme
from bilinear.source import Source

_BLOCK = re.compile(r"([abcABC])(?:([1-9])([1-9])|_?([1-9][0-9]{0,3})_([1-9][0-9]{0,3})|\[([1-9][0-9]{0,3}),([1-9][0-9]{0,3})\])")

Block = tuple[str, int, int]
"""A block by its letter, row and column, from 0."""


def read_exp(path: str | Path, transposed: bool | None = None) -> tuple[Scheme, bool]:
    """The scheme in a file of products, and whether the indices of c are transposed.

    By default they are, unless only the other reading fits the sizes. Raises `BilinearError`: E251 if the file cannot be read, E252 if a
    line is not a product of three sums, E253 if the sizes do not fit, E254 if a line breaks off.
    """
    where = Path(path)
    source = read_text(where, MOST_BYTES)
    products = list(_products(source))
    if not products:
        raise fail("E254", f"{where} holds no product", "a line is (a11)*(b11)*(c11)")
    (m, k), (k2, n), c_size = (_size(products, letter) for letter in "abc")
    k, flipped = max(k, k2), transposed if transposed is not None else c_size != (m, n) or m == n
    m, n = max(m, c_size[flipped]), max(n, c_size[not flipped])
    if max(m * k, k * n, m * n) > MOST_BLOCKS:
        raise fail("E253", f"{where} is too large: blocks of <{m},{k},{n}>", f"at most {MOST_BLOCKS} blocks a matrix")
    left = LinearMap(m * k, tuple(_numbered(product["a"], k) for product in products))
    right = LinearMap(k * n, tuple(_numbered(product["b"], n) for product in products))
    outputs: list[list[tuple[int, Coefficient]]] = [[] for _ in range(m * n)]
    for number, product in enumerate(products):
        for (_, i, j), c in product["c"].items():
            outputs[j * n + i if flipped else i * n + j].append((number, c))
    last = LinearMap(len(products), tuple(form(row) for row in outputs))
    return assemble(Maps(source, where.stem, left, right, last, said_ring(source) or Ring()), (m, k, n)), flipped


Factors = dict[str, dict[Block, Fraction]]
"""A product: the sums of a, b and c."""


def _products(source: Source) -> Iterator[Factors]:
    terms = count = 0
    for match in re.finditer(r"[^\r\n]+", source.text):
        line = match[0].rstrip(" \t,;")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _product(source, match.start(), match.start() + len(line))
        terms, count = terms + sum(map(len, found.values())), count + 1
        if terms > 3 * MOST_NONZEROS or count > MOST_PRODUCTS:
            raise malformed(source, match.start(), match.end(), "the file is too large", f"more than {MOST_PRODUCTS} products")
        yield found


def _product(source: Source, start: int, end: int) -> Factors:
    number, sums = Arithmetic(source, start, end, _block).whole_product()
    found: Factors = {}
    for total in sums:
        blocks = {block: c for block, c in total.items() if isinstance(block, tuple)}
        letters = {block[0] for block in blocks}
        if len(letters) != 1 or letters & found.keys():
            raise malformed(source, start, end, "a product has one sum of a, one of b and one of c", "here", "(a21)*(b11)*(c12)")
        found[letters.pop()] = blocks
    if found.keys() != set("abc"):
        missing = ", ".join(sorted(set("abc") - found.keys()))
        raise malformed(source, start, end, f"a factor of {missing} is missing", "here", "(a21)*(b11)*(c12)", code="E254")
    found["c"] = {block: c * number for block, c in found["c"].items()}
    return found


def _block(name: str) -> Value | None:
    """The block of a name (a12, a1_12 or a[1,12]); None if it is not one."""
    match = _BLOCK.fullmatch(name)
    if match is None:
        return None
    row, column = (int(group) - 1 for group in match.groups()[1:] if group)
    block: Linear = {(match[1].lower(), row, column): Fraction(1)}
    return block


def _size(products: list[Factors], letter: str) -> tuple[int, int]:
    blocks = [block for product in products for block in product[letter]]
    return 1 + max(i for _, i, _ in blocks), 1 + max(j for _, _, j in blocks)


def _numbered(total: dict[Block, Fraction], columns: int) -> Form:
    return form((i * columns + j, c) for (_, i, j), c in total.items())
