"""Read products of sums, one product a line: `(a11+2*a22)*(b12-b22)*(c21)/3` (Heule, Kauers, Seidl 2021; Kauers, Moosbauer 2023).

Each product has one factor of each of a, b and c, in any order. Numbers may stand anywhere, also directly before a name, and sums nest; the
`*` between factors is optional, and 0.5j is i/2. The indices of c are transposed: c21 is block C12. The largest indices give the sizes. Two
factors that mix a and b make a scheme for entries that commute.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from bilinear.errors import fail
from bilinear.interchange.arithmetic import MOST_BYTES, Arithmetic, Linear, Value
from bilinear.interchange.reader_parts import (
    MOST_BLOCKS,
    MOST_NONZEROS,
    MOST_PRODUCTS,
    Dims,
    Maps,
    by_products,
    malformed,
    read_text,
    said_ring,
)
from bilinear.ir.linear import Form, LinearMap, form
from bilinear.ir.number import Coefficient, Symbolic
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
    products = _all_products(source)
    if any(_mixed(product) for product in products):
        raise fail("E252", f"{where}: a product has one sum of a, one of b and one of c", "`bilinear import` reads those that mix a and b")
    (m, k, n), flipped = _dims(where, products, transposed)
    left, right, last = (tuple(_numbered(product[letter], _columns(letter, m, k, n, flipped)) for product in products) for letter in "abc")
    return by_products(source, where.stem, (m, k, n), (left, right, last), flipped, _ring(source, products)), flipped


def read_commuting(path: str | Path) -> tuple[Maps, Dims] | None:
    """The maps of a file in which factors mix a and b, both over the blocks of A and then those of B; None if no factor does.

    The indices of c are read as not transposed where the sizes allow it. Raises `BilinearError` as `read_exp` does.
    """
    where = Path(path)
    source = read_text(where, MOST_BYTES)
    products = _all_products(source)
    if not any(_mixed(product) for product in products):
        return None
    (m, k, n), flipped = _dims(where, products, None)
    columns = {"a": k, "b": n}
    offset = {"a": 0, "b": m * k}

    def over_both(total: dict[Block, Coefficient]) -> Form:
        return form((offset[letter] + i * columns[letter] + j, c) for (letter, i, j), c in total.items())

    u, v = (LinearMap(m * k + k * n, tuple(over_both(product[letter]) for product in products)) for letter in "ab")
    outputs = [
        form((p, c) for p, product in enumerate(products) for block, c in product["c"].items() if block[1:] == place)
        for place in [(j, i) if flipped else (i, j) for i in range(m) for j in range(n)]
    ]
    return Maps(source, where.stem, u, v, LinearMap(len(products), tuple(outputs)), _ring(source, products)), (m, k, n)


Factors = dict[str, dict[Block, Coefficient]]
"""A product: the sums of a, b and c; or, where they mix, the left factor, the right one, and the sum of c."""


def _all_products(source: Source) -> list[Factors]:
    """The products of a file, of which there is one (E254)."""
    products = list(_products(source))
    if not products:
        raise fail("E254", f"{source.name} holds no product", "a line is (a11)*(b11)*(c11)")
    letters = {block[0] for product in products for total in product.values() for block in total}
    if letters != set("abc"):
        missing = ", ".join(sorted(set("abc") - letters))
        raise fail("E254", f"{source.name}: a factor of {missing} is missing", "a line is (a11)*(b11)*(c11)")
    return products


def _mixed(product: Factors) -> bool:
    return any({block[0] for block in product[letter]} != {letter} for letter in "ab")


def _dims(where: Path, products: list[Factors], transposed: bool | None) -> tuple[Dims, bool]:
    """m, k and n, and whether C is read transposed."""
    (m, k), (k2, n), c_size = (_size(products, letter) for letter in "abc")
    k, flipped = max(k, k2), transposed if transposed is not None else c_size != (m, n) or m == n
    m, n = max(m, c_size[flipped]), max(n, c_size[not flipped])
    if max(m * k, k * n, m * n) > MOST_BLOCKS:
        raise fail("E253", f"{where} is too large: blocks of <{m},{k},{n}>", f"at most {MOST_BLOCKS} blocks a matrix")
    return (m, k, n), flipped


def _columns(letter: str, m: int, k: int, n: int, flipped: bool) -> int:
    return {"a": k, "b": n, "c": m if flipped else n}[letter]


def _ring(source: Source, products: list[Factors]) -> Ring:
    imaginary = any(isinstance(c, Symbolic) for product in products for total in product.values() for c in total.values())
    return said_ring(source) or Ring("Q[i]" if imaginary else "Q")


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
    number, sums = Arithmetic(source, start, end, _block, imaginary=True).whole_product()
    totals = [{block: c for block, c in total.items() if isinstance(block, tuple)} for total in sums]
    letters = [{block[0] for block in total} for total in totals]
    missing = ", ".join(sorted(set("abc").difference(*letters)))
    if missing and len(totals) < 3:
        raise malformed(source, start, end, f"a factor of {missing} is missing", "here", "(a21)*(b11)*(c12)", code="E254")
    outputs = [total for total, of in zip(totals, letters, strict=True) if of == {"c"}]
    factors = sorted((total for total, of in zip(totals, letters, strict=True) if of and of <= {"a", "b"}), key=lambda total: min(total)[0])
    if len(outputs) != 1 or len(factors) != 2 or len(totals) != 3:
        raise malformed(source, start, end, "a product has one sum of a, one of b and one of c", "here", "(a21)*(b11)*(c12)")
    return {"a": factors[0], "b": factors[1], "c": {block: c * number for block, c in outputs[0].items()}}


def _block(name: str) -> Value | None:
    """The block of a name (a12, a1_12 or a[1,12]); None if it is not one."""
    match = _BLOCK.fullmatch(name)
    if match is None:
        return None
    row, column = (int(group) - 1 for group in match.groups()[1:] if group)
    block: Linear = {(match[1].lower(), row, column): 1}
    return block


def _size(products: list[Factors], letter: str) -> tuple[int, int]:
    blocks = [block for product in products for total in product.values() for block in total if block[0] == letter]
    return 1 + max(i for _, i, _ in blocks), 1 + max(j for _, _, j in blocks)


def _numbered(total: dict[Block, Coefficient], columns: int) -> Form:
    return form((i * columns + j, c) for (_, i, j), c in total.items())
