"""Read products of sums, one a line (`exp`), and products under names followed by the blocks of C (`formulas`)."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from pathlib import Path

from bilinear.errors import fail
from bilinear.frontend.parse import as_in_papers
from bilinear.frontend.parse import without_comments as in_the_language
from bilinear.interchange.papers import LOST, NAME, PlainText, formulas, plain, without_comments, words_between
from bilinear.interchange.reader_parts import (
    LOST_INDEX,
    MOST_BLOCKS,
    MOST_EXPRESSIONS,
    MOST_NONZEROS,
    MOST_PRODUCTS,
    NOTHING_ASKED,
    ArithmeticReader,
    Asked,
    Beginning,
    Dims,
    Linear,
    Maps,
    Reading,
    Value,
    assemble,
    by_products,
    malformed,
    read_text,
    require_one_rank,
    said_ring,
)
from bilinear.interchange.targets import Identified, other_structure, structure_of
from bilinear.ir.bilinear_map import BilinearAlgorithm, product_of_commuting
from bilinear.ir.linear import Form, LinearMap, form
from bilinear.ir.number import Coefficient, Symbolic
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Scheme
from bilinear.source import Source
from bilinear.verify.bilinear_map import prove_map

Indexed = tuple[str, int, int]  # A block by its letter, row and column, from 0.

_BLOCK = re.compile(r"([abcABC])_?(?:([0-9])([0-9])|([0-9]{1,4})_([0-9]{1,4})|\[([0-9]{1,4}),([0-9]{1,4})\]|([0-9]{1,4}))", re.ASCII)
_PRODUCT = re.compile(r"(?![abcABC]_?[0-9])[A-Za-z]{1,8}_?[0-9]{1,5}|[IVXLC]{1,9}", re.ASCII)
"""A name of a product that the language can keep."""
_OF_BLOCKS = re.compile(r"[-+.0-9j*/() \t\n]*[abAB]_?[0-9\[]", re.ASCII)


def _is_block(name: str) -> bool:
    return _BLOCK.fullmatch(name) is not None


def begins_exp(begins: Beginning) -> bool:
    """True where the first line is a product of sums of blocks, and nothing else."""
    line = plain(Source(begins.name, begins.content.partition("\n")[0])).text.strip()
    return (
        re.fullmatch(r"[-+.0-9jabcABC_\[\]*/(), \t;]*", line) is not None
        and re.search(r"[abcABC][0-9_\[]", line.partition("(")[2]) is not None
    )


def read_exp(path: Path, asked: Asked = NOTHING_ASKED) -> Reading:
    """The scheme in a file of products of sums, one product a line: `(a11+2*a22)*(b12-b22)*(c21)/3` (Heule, Kauers, Seidl 2021; Kauers,
    Moosbauer 2023).

    Each product has one factor of each of a, b and c, in any order. Numbers may stand anywhere, also directly before a name, and sums nest;
    the `*` between factors is optional, and 0.5j is i/2. The largest indices give the sizes. The indices of c are transposed (c21 is block
    C12), unless only the other reading fits the sizes. Two factors that mix a and b make a scheme for entries that commute. Raises
    `BilinearError`: E251 if the file cannot be read, E252 if a line is not a product of three sums, E253 if the sizes do not fit, E254 if a
    line breaks off.
    """
    where, source = path, plain(read_text(path, MOST_EXPRESSIONS))
    products = _all_products(source)
    if any(_mixed(product) for product in products):
        raise fail("E252", f"{where}: a product has one sum of a, one of b and one of c", "`bilinear import` reads those that mix a and b")
    (m, k, n), flipped = _dims(where, products, asked.transposed)
    tables = [
        [form((i * columns + j, c) for (_, i, j), c in product[letter].items()) for product in products]
        for letter, columns in (("a", k), ("b", n), ("c", m if flipped else n))
    ]
    return Reading(by_products(source, where.stem, (m, k, n), tables, flipped, _ring(source, products)), flipped)


def commuting_exp(path: Path, ring: Ring | None) -> Identified | None:
    """The product, for entries that commute, of a file in which factors mix a and b; None if no factor does.

    Its maps are over the blocks of A and then those of B. The indices of c are read as not transposed where the sizes allow it. Raises
    `BilinearError` as `read_exp` does, and E356 if it is not that product.
    """
    where, source = path, plain(read_text(path, MOST_EXPRESSIONS))
    products = _all_products(source)
    if not any(_mixed(product) for product in products):
        return None
    (m, k, n), flipped = _dims(where, products, None)
    columns = {"a": k, "b": n}
    offset = {"a": 0, "b": m * k}

    def over_both(total: dict[Indexed, Coefficient]) -> Form:
        return form((offset[letter] + i * columns[letter] + j, c) for (letter, i, j), c in total.items())

    u, v = (LinearMap(m * k + k * n, tuple(over_both(product[letter]) for product in products)) for letter in "ab")
    outputs = [
        form((p, c) for p, product in enumerate(products) for block, c in product["c"].items() if block[1:] == place)
        for place in [(j, i) if flipped else (i, j) for i in range(m) for j in range(n)]
    ]
    return _commuting(Maps(source, where.stem, u, v, LinearMap(len(products), tuple(outputs)), _ring(source, products)), (m, k, n), ring)


Factors = dict[str, dict[Indexed, Coefficient]]
"""A product: the sums of a, b and c; or, where they mix, the left factor, the right one, and the sum of c."""


def _all_products(source: Source) -> list[Factors]:
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
    (m, k), (k2, n), c_size = (_extents(products, letter) for letter in "abc")
    k, flipped = max(k, k2), transposed if transposed is not None else c_size != (m, n) or m == n
    m, n = max(m, c_size[flipped]), max(n, c_size[not flipped])
    if max(m * k, k * n, m * n) > MOST_BLOCKS:
        raise fail("E253", f"{where} is too large: blocks of <{m},{k},{n}>", f"at most {MOST_BLOCKS} blocks a matrix")
    return (m, k, n), flipped


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
    number, sums = ArithmeticReader(source, start, end, _block, imaginary=True).whole_product()
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
    block = _indexed(name, packed=False, base=1)
    return None if block is None or -1 in block[1] else {(block[0], *block[1]): 1}


def _indexed(name: str, packed: bool, base: int) -> tuple[str, Block] | None:
    """The letter of a block, and its row and column from `base`, or its number where blocks are `packed`; None if it is not one.

    An index below the base is -1.
    """
    match = _BLOCK.fullmatch(name)
    if match is None or (match[8] is None and packed and not match[2]) or (match[8] and not packed):
        return None
    indices = [name.lstrip("abcABC_")] if packed else [group for group in match.groups()[1:] if group]
    return match[1].lower(), tuple(max(-1, int(index) - base) for index in indices)


def _extents(products: list[Factors], letter: str) -> tuple[int, int]:
    blocks = [block for product in products for total in product.values() for block in total if block[0] == letter]
    return 1 + max(i for _, i, _ in blocks), 1 + max(j for _, _, j in blocks)


Block = tuple[int, ...]  # The row and the column of a block, from 0, or its number.


@dataclass(frozen=True)
class Formulas:
    """The content of a file of formulas; it is `commuting` if factors mix A and B: both are then over A's blocks and B's."""

    maps: Maps
    commuting: bool
    dims: Dims | None  # m, k and n, if the indices tell them.
    transposed: bool = False  # True if C has as many rows as B has columns, and they differ from those of A.
    found: tuple[str, ...] = ()
    products: tuple[str, ...] = ()  # What the file calls its products, if it names each of them.

    def scheme(self) -> Scheme:
        """The scheme, its C numbered as in the file where that is square. Raises `BilinearError` (E253) if the sizes do not fit."""
        maps = self.maps
        if self.dims is not None and self.transposed:
            m, _, n = self.dims
            outputs = tuple(maps.w.outputs[j * m + i] for i in range(m) for j in range(n))
            maps = replace(maps, w=replace(maps.w, outputs=outputs))
        scheme = assemble(maps, self.dims)
        return replace(scheme, products=self.products) if self.products else scheme


def begins_formulas(begins: Beginning) -> bool:
    """True where a name is given to a sum or a product of blocks: first of all, or below words if blocks of C are computed; below a header
    of the language, if the formulas are as in papers.
    """
    headed = re.match(r"scheme\b", begins.content) is not None
    if headed and not as_in_papers(in_the_language(begins.text)):
        return False
    text = without_comments(plain(Source(begins.name, begins.text)).text)
    found, between = formulas(text, _is_block)
    of_words = headed or begins.name.endswith((".txt", ".tex"))
    if of_words and len(LOST.findall(text)) > 1:
        return True
    if not any(_OF_BLOCKS.match(text, head.end(), end) for head, end in found):
        return False
    words_first = between and re.search(r"[^\W\d_]", text[: found[0][0].start()])
    return not words_first or (of_words and any(head[1][0] in "cC" and _is_block(head[1]) for head, _ in found))


def read_formulas(path: Path) -> Formulas:
    """The maps of formulas: products of sums under names, then the blocks of C: `P1 := (a11 + a22)*(b11 + b22); c11 := P1 - P4;`.

    Assignments are written `=`, `:=` or, to add to a name, `+=`, in any order, and end with a line, `;` or `,`; a `*` between factors is
    optional, and any sum may have a name, which keeps the author's sums. Blocks are a12, a1_12, a_{12} or a[1,12], or, where a name in the
    file has one index only, a5, by rows; they count from 0 if an index is 0. Comments begin with #, // or %; lines of words between the
    formulas are not read, nor are formulas that nothing refers to. Raises `BilinearError`: E251 if the file cannot be read, E252 if a part
    is not a formula of a bilinear map, E253 if it is too large, E254 if it computes no block of C or is incomplete.
    """
    reader = _FormulaReader(plain(read_text(path, MOST_EXPRESSIONS)))
    reader.read()
    return reader.finish(path)


def read_named(path: Path, asked: Asked) -> Reading:
    """The scheme of formulas, by `read_formulas`, whose errors it raises."""
    read = read_formulas(path)
    return Reading(read.scheme(), False, read.found)


def other_formulas(path: Path, ring: Ring | None) -> Identified | None:
    """What formulas compute but a product of matrices, or one if entries commute. Raises as `read_formulas`, E350 and E356."""
    read = read_formulas(path)
    if not read.commuting:
        return other_structure(path, read.maps, ring)
    if read.dims is None:
        raise fail("E253", f"{path} has factors that mix a and b, and blocks with one index", "blocks have two: a12")
    return _commuting(read.maps, read.dims, ring)


class _FormulaReader:
    """Formulas being read. A form is over blocks (letter, block), named sums (letter, number), and products ("m", (number,))."""

    def __init__(self, source: PlainText) -> None:
        text = without_comments(source.text)
        self.source = replace(source, text=text)
        self.formulas, self.between = formulas(text, _is_block)
        assigned = {head[1] for head, _ in self.formulas}
        names = {name for head, end in self.formulas for name in re.findall(NAME, text[head.start() : end])}
        blocks = [match for name in names if (match := _BLOCK.fullmatch(name))]
        self.packed = any(match[8] and match[0] not in assigned and match[1] in "abAB" for match in blocks)
        self.base = 1
        read = [block for name in names if (block := self._block(name)) and (name not in assigned or block[0] == "c")]
        self.base = 0 if any(-1 in indices for _, indices in read) else 1
        self.named = [set(re.findall(NAME, text[head.end() : end])) for head, end in self.formulas]
        self.values: dict[str, Value] = {}
        self.steps: dict[str, list[Linear]] = {"a": [], "b": [], "m": []}
        self.names: dict[str, list[str]] = {"a": [], "b": [], "m": []}
        self.products: list[tuple[int, Linear, Linear]] = []
        """Each with the place of its formula."""
        self.called: dict[Hashable, str] = {}
        self.outputs: dict[Block, Linear] = {}
        self.blocks: dict[str, set[Block]] = {"a": set(), "b": set()}
        self.nonzeros = 0
        self.here = (0, 1)
        self.words: list[int] = []

    def read(self) -> None:
        lost = LOST.search(self.source.text)
        if not self.formulas and lost is not None:
            raise malformed(self.source, *lost.span(1), f"{lost[1]!r} is not known here", "not read", LOST_INDEX)
        if not self.formulas:
            raise fail("E254", f"{self.source.name} holds no formula", "a formula is m1 = (a11 + a22)*(b11 + b22)")
        used = set().union(*self.named)
        for number in self._order():
            head, end = self.formulas[number]
            self.here = (head.start(1), end)
            reader = ArithmeticReader(self.source, head.end(), end, self._lookup, multiply=self._multiplied, imaginary=True)
            self._assign(head[1], self._total(head, reader.whole_sum(), head[1] in self.named[number]), head[1] in used)
        self.words, stray = words_between(self.source.text, self.between, {head[1] for head, _ in self.formulas})
        if stray is not None:
            raise malformed(self.source, stray, stray + 1, "this is not a formula", "NAME = SUM")

    def _order(self) -> Sequence[int]:
        """The order of the file; where a formula names a later one, and each name is given once, it waits for that."""
        places = {head[1]: number for number, (head, _) in enumerate(self.formulas) if (self._block(head[1]) or "c")[0] == "c"}
        needed = {number: {places[name] for name in names if name in places} for number, names in enumerate(self.named)}
        if not any(max(before, default=0) > number for number, before in needed.items()) or len(places) < len(self.formulas):
            return range(len(self.formulas))
        sorter = TopologicalSorter(needed)
        try:
            sorter.prepare()
        except CycleError as error:
            head, end = self.formulas[min(error.args[1])]
            raise malformed(self.source, head.start(1), end, f"{head[1]} depends on itself", "here") from None
        order: list[int] = []
        ready = sorted(sorter.get_ready())
        while ready:
            order.append(heappop(ready))
            sorter.done(order[-1])
            for number in sorter.get_ready():
                heappush(ready, number)
        return order

    def _total(self, head: re.Match[str], value: Value, names_itself: bool) -> Value:
        name, sign = head[1], {"+=": 1, "-=": -1}.get(head[2], 0)
        block = self._block(name)
        output = self.outputs.get(block[1]) if block is not None and block[0] == "c" else None
        if not sign:
            if output is not None and not names_itself:
                raise malformed(self.source, *self.here, f"{name} is computed twice", "once more here", "leave out the other formulas")
            return value
        before = self._lookup(name) if block is None or block[0] != "c" else self.values.get(name, {})
        if not isinstance(before, dict) or not isinstance(value, dict):
            raise malformed(self.source, *self.here, f"{name} has no sum to add to", "here")
        return {key: before.get(key, 0) + sign * value.get(key, 0) for key in {**before, **value}}

    def finish(self, where: Path) -> Formulas:
        if not self.outputs:
            end = len(self.source.text)
            raise malformed(self.source, end, end, "no block of C is computed", "the file ends here", code="E254")
        shapes = self._shapes(where)
        sizes = [(shape[0] if len(shape) == 1 else shape[0] * shape[1]) for shape in shapes]
        if max(sizes) > MOST_BLOCKS:
            raise fail("E253", f"{where} is too large: {sizes} blocks", f"at most {MOST_BLOCKS} blocks a matrix")
        order = sorted(range(len(self.products)), key=lambda p: self.products[p][0])
        factors = [self.products[p][1:] for p in order]
        commuting = any(_letters(left) - {"a"} or _letters(right) - {"b"} for left, right in factors)
        numbers: dict[Hashable, int] = {("a", block): _number(block, shapes[0]) for block in self.blocks["a"]}
        offset = sizes[0] if commuting else 0
        numbers |= {("b", block): offset + _number(block, shapes[1]) for block in self.blocks["b"]}
        u = self._map([left for left, _ in factors], numbers, sum(sizes[:2]) if commuting else sizes[0], "ab" if commuting else "a")
        v = self._map([right for _, right in factors], numbers, sum(sizes[:2]) if commuting else sizes[1], "ab" if commuting else "b")
        by_number = {_number(block, shapes[2]): value for block, value in self.outputs.items()}
        made: dict[Hashable, int] = {("m", (p,)): number for number, p in enumerate(order)}
        w = self._map([by_number.get(place, {}) for place in range(sizes[2])], made, len(self.products), "m")
        dims = None if self.packed else (shapes[0][0], shapes[0][1], shapes[1][1])
        transposed = not self.packed and shapes[2] != (shapes[0][0], shapes[1][1])
        coefficients = (c for linear in (u, v, w) for row in linear.steps + linear.outputs for _, c in row)
        ring = said_ring(self.source) or Ring("Q[i]" if any(isinstance(c, Symbolic) for c in coefficients) else "Q")
        lines = sorted({self.source.span(at, at + 1).line for at in self.words})
        told = f"line{'s' * (len(lines) > 1)} {', '.join(map(str, lines))}: words, which are not read"
        maps = Maps(self.source, where.name.split(".")[0], u, v, w, ring)
        names = tuple(self.called.get(("m", (p,)), "") for p in order)
        named = all(map(_PRODUCT.fullmatch, names)) and len(set(names)) == len(names)
        return Formulas(maps, commuting, dims, transposed, (told,) if lines else (), names if named else ())

    def _map(self, outputs: list[Linear], numbers: dict[Hashable, int], inputs: int, letters: str) -> LinearMap:
        """A map over numbered values and the named sums of these letters that it needs."""
        places = dict(numbers)
        steps: list[Form] = []
        names: list[str] = []
        for letter in letters:
            for number, step in enumerate(self.steps[letter]):
                places[letter, number] = inputs + len(steps)
                steps.append(form((places[key], c) for key, c in step.items()))
                names.append(self.names[letter][number])
        rows: tuple[Form, ...] = tuple(form((places[key], c) for key, c in output.items()) for output in outputs)
        return LinearMap(inputs, rows, tuple(steps), tuple(names))

    def _shapes(self, where: Path) -> list[Block]:
        """The rows and columns of A, B and C, or the numbers of their values; a name of a collection may tell more than the indices."""
        found = [self.blocks["a"], self.blocks["b"], set(self.outputs)]
        shapes = [tuple(1 + max((block[axis] for block in blocks), default=0) for axis in range(2 - self.packed)) for blocks in found]
        if self.packed:
            structure = structure_of(where)
            sizes = structure.sizes if structure is not None else (0, 0, 0)
            return [(max(shape[0], size),) for shape, size in zip(shapes, sizes, strict=True)]
        (m, k), (k2, n), c = shapes
        k = max(k, k2)
        if m != n and c == (n, m):
            return [(m, k), (k, n), c]
        m, n = max(m, c[0]), max(n, c[1])
        return [(m, k), (k, n), (m, n)]

    def _lookup(self, name: str) -> Value | None:
        if name in self.values:
            value = self.values[name]
            if not isinstance(value, dict):
                return value
            self._count(value)
            return dict(value)
        block = self._block(name)
        if block is None or block[0] == "c" or -1 in block[1]:
            return None
        self.blocks[block[0]].add(block[1])
        return {block: 1}

    def _block(self, name: str) -> tuple[str, Block] | None:
        return _indexed(name, self.packed, self.base)

    def _multiplied(self, left: Linear, right: Linear) -> Linear | None:
        if "m" in _letters(left) | _letters(right) or not left or not right:
            return None
        self._count(left, right)
        self.products.append((self.here[0], left, right))
        if len(self.products) > MOST_PRODUCTS:
            raise malformed(self.source, *self.here, "the file is too large", f"more than {MOST_PRODUCTS} products", code="E253")
        return {("m", (len(self.products) - 1,)): 1}

    def _assign(self, name: str, value: Value, used: bool) -> None:
        block = self._block(name)
        if block is not None and block[0] == "c":
            output = value if isinstance(value, dict) else {} if value == 0 else None
            if output is None or _letters(output) - {"m"}:
                raise malformed(self.source, *self.here, f"{name} is not a sum of products", "here")
            self.outputs[block[1]] = output
        if isinstance(value, dict) and list(value.values()) == [1]:
            self.called.setdefault(next(iter(value)), name)
        self.values[name] = self._kept(name, value) if used else value

    def _kept(self, name: str, value: Value) -> Value:
        """A value to be referred to by name: a sum over one matrix, or of products, becomes a step; another one stays."""
        letters = _letters(value) if isinstance(value, dict) else set()
        if not isinstance(value, dict) or len(letters) != 1 or (len(value) == 1 and 1 in value.values()):
            return value
        (letter,) = letters
        self._count(value)
        self.steps[letter].append(value)
        self.names[letter].append(name)
        step: Linear = {(letter, len(self.steps[letter]) - 1): 1}
        block = self._block(name)
        if block is not None and block[0] == "c":
            self.outputs[block[1]] = step
        return step

    def _count(self, *forms: Linear) -> None:
        self.nonzeros += sum(map(len, forms))
        if self.nonzeros > 3 * MOST_NONZEROS:
            raise malformed(self.source, *self.here, "the file is too large", f"more than {3 * MOST_NONZEROS} terms", code="E253")


def _letters(value: Linear) -> set[str]:
    return {key[0] for key in value if isinstance(key, tuple)}


def _number(block: Block, shape: Block) -> int:
    return block[0] if len(shape) == 1 else block[0] * shape[1] + block[1]


def _commuting(maps: Maps, dims: Dims, ring: Ring | None) -> Identified:
    """The product of matrices whose entries commute, with C as the file numbers it, or transposed."""
    require_one_rank(maps)
    m, k, n = dims
    target = product_of_commuting(m, k, n)
    ways = [maps.w.outputs, tuple(maps.w.outputs[i % n * m + i // n] for i in range(m * n))]
    for outputs in ways:
        algorithm = BilinearAlgorithm(maps.name, target, maps.u, maps.v, replace(maps.w, outputs=outputs), ring or maps.ring)
        proof = prove_map(algorithm)
        if proof.holds:
            return Identified(algorithm, proof)
        if outputs is ways[0]:
            first = proof
    notes = [f"factors mix blocks of A and of B, so it was read for entries that commute: {first.differences[0]}"]
    message = f"{maps.name} does not compute {target.title}: {first.summary}"
    raise fail("E356", message, "compare the file with its source; is it complete?", notes=tuple(notes))
