"""Read formulas: products of sums under names, then the blocks of C as sums of them: `P1 := (a11 + a22)*(b11 + b22); c11 := P1 - P4;`.

Assignments are written `=` or `:=` and end with a line or with `;`, as in Yacas; a `*` between factors is optional, and any sum may have a
name, which keeps the author's sums. Blocks are a12, a1_12 or a[1,12], or, where a name in the file has one index only, a5, by rows.
Comments begin with #, // or %, and a line that calls a function, such as `Simplify(...)`, is not read.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass, replace
from pathlib import Path

from bilinear.errors import fail
from bilinear.interchange.arithmetic import MOST_BYTES, Arithmetic, Linear, Value
from bilinear.interchange.reader_parts import (
    MOST_BLOCKS,
    MOST_NONZEROS,
    MOST_PRODUCTS,
    Dims,
    Maps,
    assemble,
    malformed,
    read_text,
    said_ring,
)
from bilinear.interchange.structured import structure_of
from bilinear.ir.linear import Form, LinearMap, form
from bilinear.ir.number import Coefficient, Symbolic
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Scheme
from bilinear.source import Source

_HEAD = re.compile(r"(?:^|;)[ \t]*([A-Za-z]+[0-9_]*(?:\[[0-9]+,[0-9]+\])?)[ \t]*:?=(?!=)", re.MULTILINE | re.ASCII)
_SKIPPED = re.compile(r"(?:#|//|%)[^\n]*|^[ \t]*[A-Za-z]+\([^\n]*", re.MULTILINE)
_BLOCK = re.compile(
    r"([abcABC])_?(?:([1-9])([1-9])|([1-9][0-9]{0,3})_([1-9][0-9]{0,3})|\[([1-9][0-9]{0,3}),([1-9][0-9]{0,3})\]|([1-9]))", re.ASCII
)
_PACKED = re.compile(r"([abcABC])([1-9][0-9]{0,3})", re.ASCII)
_ONE_INDEX = re.compile(r"\b[abAB][1-9]\b", re.ASCII)

Block = tuple[int, ...]
"""The row and the column of a block, from 0, or its number."""


@dataclass(frozen=True)
class Formulas:
    """The content of a file of formulas.

    It is `commuting` if a left factor is not over A alone, or a right one not over B; then both are over the blocks of A, then those of B.
    """

    maps: Maps
    commuting: bool
    dims: Dims | None
    """m, k and n, if the indices tell them."""
    transposed: bool = False
    """True if C has as many rows as B has columns, and they differ from those of A."""

    def scheme(self) -> Scheme:
        """The scheme, its C numbered as in the file where that is square. Raises `BilinearError` (E253) if the sizes do not fit."""
        if self.dims is None or not self.transposed:
            return assemble(self.maps, self.dims)
        m, _, n = self.dims
        w = self.maps.w
        outputs = tuple(w.outputs[j * m + i] for i in range(m) for j in range(n))
        return assemble(replace(self.maps, w=replace(w, outputs=outputs)), self.dims)


def read_formulas(path: str | Path) -> Formulas:
    """The three maps of a file of formulas.

    Raises `BilinearError`: E251 if the file cannot be read, E252 if a part is not a formula of a bilinear map, E253 if it is too large,
    E254 if it computes no block of C or is incomplete.
    """
    where = Path(path)
    reader = _Reader(read_text(where, MOST_BYTES))
    reader.read()
    return reader.finish(where)


class _Reader:
    """Formulas being read. A form is over blocks (letter, block), named sums (letter, number), and products ("m", (number,))."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.text = _SKIPPED.sub(lambda part: " " * len(part[0]), source.text.replace("\r", " "))
        self.heads = list(_HEAD.finditer(self.text))
        assigned = {head[1] for head in self.heads}
        self.packed = any(name not in assigned for name in _ONE_INDEX.findall(self.text))
        self.values: dict[str, Value] = {}
        self.steps: dict[str, list[Linear]] = {"a": [], "b": [], "m": []}
        self.names: dict[str, list[str]] = {"a": [], "b": [], "m": []}
        self.products: list[tuple[Linear, Linear]] = []
        self.outputs: dict[Block, Linear] = {}
        self.blocks: dict[str, set[Block]] = {"a": set(), "b": set()}
        self.nonzeros = 0
        self.here = (0, 1)

    def read(self) -> None:
        """Every assignment, in order."""
        if not self.heads:
            raise fail("E254", f"{self.source.name} holds no formula", "a formula is m1 = (a11 + a22)*(b11 + b22)")
        ends = [head.start() for head in self.heads[1:]] + [len(self.text)]
        bodies = [self.text[head.end() : end] for head, end in zip(self.heads, ends, strict=True)]
        used = {name for body in bodies for name in re.findall(r"[A-Za-z]+[0-9_]*(?:\[[0-9]+,[0-9]+\])?", body)}
        self._require_blank(0, self.heads[0].start())
        for head, body in zip(self.heads, bodies, strict=True):
            written = body.rstrip(" \t\n;")
            self.here = (head.start(1), head.end() + len(written))
            source = Source(self.source.name, self.text)
            value = Arithmetic(source, head.end(), self.here[1], self._lookup, multiply=self._multiplied, imaginary=True).whole_sum()
            self._assign(head[1], value, head[1] in used)

    def finish(self, where: Path) -> Formulas:
        """The maps of all that was read."""
        if not self.outputs:
            raise malformed(self.source, len(self.text), len(self.text), "no block of C is computed", "the file ends here", code="E254")
        shapes = self._shapes(where)
        sizes = [_size(shape) for shape in shapes]
        if max(sizes) > MOST_BLOCKS:
            raise fail("E253", f"{where} is too large: {sizes} blocks", f"at most {MOST_BLOCKS} blocks a matrix")
        commuting = any(_letters(left) - {"a"} or _letters(right) - {"b"} for left, right in self.products)
        numbers: dict[Hashable, int] = {("a", block): _number(block, shapes[0]) for block in self.blocks["a"]}
        offset = sizes[0] if commuting else 0
        numbers |= {("b", block): offset + _number(block, shapes[1]) for block in self.blocks["b"]}
        u = self._map([left for left, _ in self.products], numbers, sum(sizes[:2]) if commuting else sizes[0], "ab" if commuting else "a")
        v = self._map([right for _, right in self.products], numbers, sum(sizes[:2]) if commuting else sizes[1], "ab" if commuting else "b")
        by_number = {_number(block, shapes[2]): value for block, value in self.outputs.items()}
        made: dict[Hashable, int] = {("m", (p,)): p for p in range(len(self.products))}
        w = self._map([by_number.get(place, {}) for place in range(sizes[2])], made, len(self.products), "m")
        dims = None if self.packed else (shapes[0][0], shapes[0][1], shapes[1][1])
        transposed = not self.packed and shapes[2] != (shapes[0][0], shapes[1][1])
        ring = said_ring(self.source) or Ring("Q[i]" if any(_imaginary(linear) for linear in (u, v, w)) else "Q")
        return Formulas(Maps(self.source, where.name.split(".")[0], u, v, w, ring), commuting, dims, transposed)

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
        if block is None or block[0] == "c":
            return None
        self.blocks[block[0]].add(block[1])
        return {block: 1}

    def _block(self, name: str) -> tuple[str, Block] | None:
        match = (_PACKED if self.packed else _BLOCK).fullmatch(name)
        if match is None or (not self.packed and match[8]):
            return None
        return match[1].lower(), tuple(int(group) - 1 for group in match.groups()[1:] if group)

    def _multiplied(self, left: Linear, right: Linear) -> Linear | None:
        """The product of two sums of blocks, as a new value."""
        if "m" in _letters(left) | _letters(right) or not left or not right:
            return None
        self._count(left, right)
        self.products.append((left, right))
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

    def _require_blank(self, start: int, end: int) -> None:
        rest = self.text[start:end].lstrip()
        if rest:
            raise malformed(self.source, end - len(rest), end, "this is not a formula", "NAME = SUM")


def _letters(value: Linear) -> set[str]:
    return {key[0] for key in value if isinstance(key, tuple)}


def _size(shape: Block) -> int:
    return shape[0] if len(shape) == 1 else shape[0] * shape[1]


def _number(block: Block, shape: Block) -> int:
    return block[0] if len(shape) == 1 else block[0] * shape[1] + block[1]


def _imaginary(linear: LinearMap) -> bool:
    coefficients: list[Coefficient] = [c for row in linear.steps + linear.outputs for _, c in row]
    return any(isinstance(c, Symbolic) for c in coefficients)
