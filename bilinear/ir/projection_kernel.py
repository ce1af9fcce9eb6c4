"""Kernels that check a product: matrices times vectors in more than double precision, and the residuals (docs/checking.md)."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, prod

import numpy as np

from bilinear.ir.element import FLOAT64, Element
from bilinear.ir.kernel import FACTORS, Argument, WithoutShared, indices
from bilinear.ir.matrix import Array
from bilinear.ir.reference import KernelValues

COLUMNS, CHUNK, ROWS_OF_A_WARP = 16, 32, 16
"""The vectors; the columns of a matrix, and rows of vectors, that share a unit; the rows that a warp takes."""
BLOCKS_AT_ONCE = 3  # Blocks of threads of a projection on a multiprocessor, which limits their registers.
RECORD = 2 * COLUMNS + 2  # Doubles of a projected row: sums, their roundoff, two squared norms.
VECTORS_RECORD = 4
PIECE_BITS, UPPER_BITS = 12, 35  # Bits of an exact piece of a vector, and of a matrix's upper part.


@dataclass(frozen=True)
class ProjectionKernel(WithoutShared):
    """The rows of X (rows x columns) times `COLUMNS` vectors Z. blockIdx.y says which chunks of columns, `each` of them, add to `parts`.

    If it `is_wide`, products of the upper parts of X with the `exact` pieces of Z add up without rounding within a chunk. Products with the
    lower parts and, if Z `has_rest`, with the rest of Z are small. Z holds its pieces, then its rest, then the whole vectors.
    """

    name: str
    element: Element
    is_wide: bool
    has_rest: bool
    threads: tuple[int, int] = (128, 1)
    blocks: int = field(default=BLOCKS_AT_ONCE, init=False)
    arguments: tuple[Argument, ...] = (
        *(Argument("pointer", "X"), *indices("X_rs", "X_cs", "rows", "columns")),
        *(Argument("bytes", "Z"), *indices("each"), Argument("bytes", "parts")),
    )
    columns: int = field(default=COLUMNS, init=False)
    chunk: int = field(default=CHUNK, init=False)
    shift: float = field(default=2.0 ** (53 - UPPER_BITS), init=False)
    template: str = field(default="projection.cu.j2", init=False)

    @property
    def exact(self) -> int:
        """The pieces of Z whose products are exact."""
        return 2 if self.has_rest else 1

    @property
    def pieces(self) -> int:
        """The pieces of Z that are stored; if there is no rest, the whole is the only one."""
        return self.exact + 2 if self.has_rest else 1

    def reference(self, values: KernelValues) -> None:
        """Multiply chunk by chunk."""
        (rows, columns, each), splits = values("rows", "columns", "each"), values.blocks[1]
        chunks = ceil(columns / CHUNK)
        x = np.zeros((rows, chunks * CHUNK))
        x[:, :columns] = values.view("X", self.element.code, (rows, columns), ("X_rs", "X_cs"))
        z = vectors(values, chunks, self.pieces)
        parts = records(values, "parts", splits, rows)
        parts[...] = 0
        for chunk in range(chunks):
            own, (high, low, size, tail) = slice(chunk * CHUNK, (chunk + 1) * CHUNK), parted(parts[chunk // each])
            upper = x[:, own]
            size += (upper * upper).sum(1)
            if not self.is_wide:
                high += upper @ z[-1][own]
                continue
            shift = abs(upper).max(1, keepdims=True) * self.shift
            lower = upper - (upper + shift - shift)
            upper = upper + shift - shift
            tail += (lower * lower).sum(1)
            for piece in z[: self.exact]:
                add_exactly(high, low, upper @ piece[own])
            low += (upper @ z[self.exact][own] if self.has_rest else 0) + lower @ z[-1][own]


@dataclass(frozen=True)
class VectorsKernel(WithoutShared):
    """Adds up the `splits` parts of a projection and writes them as vectors for the next one, in pieces if it `is_wide`.

    Each block writes a column of `VECTORS_RECORD` doubles to `found`: the squared norms of its rows of the matrix, of their lower parts, of
    the vectors, and of the rest of these.
    """

    name: str
    is_wide: bool
    element: Element = FLOAT64
    threads: tuple[int, int] = (32 * COLUMNS, 1)
    arguments: tuple[Argument, ...] = (
        *(Argument("bytes", "parts"), *indices("splits", "rows")),
        *(Argument("bytes", name) for name in ("Z", "found")),
    )
    columns: int = field(default=COLUMNS, init=False)
    chunk: int = field(default=CHUNK, init=False)
    shift: float = field(default=2.0 ** (53 - PIECE_BITS), init=False)
    template: str = field(default="projected_vectors.cu.j2", init=False)

    @property
    def pieces(self) -> int:
        """Two exact pieces, the rest and the whole; or the whole alone."""
        return 4 if self.is_wide else 1

    def reference(self, values: KernelValues) -> None:
        """Add the parts up, and cut the sums chunk by chunk."""
        (splits, rows), blocks = values("splits", "rows"), values.blocks[0]
        high, low, size, tail = (np.zeros(shape) for shape in (*[(blocks * CHUNK, COLUMNS)] * 2, *[blocks * CHUNK] * 2))
        add_parts(high[:rows], low[:rows], (size[:rows], tail[:rows]), records(values, "parts", splits, rows))
        whole, rest = high + low, np.zeros_like(high)
        pieces = [whole]
        if self.is_wide:
            first = rounded(high, self.shift)
            second = rounded(high - first, self.shift)
            rest = high - first - second + low
            pieces = [first, second, rest, whole]
        stacked = np.stack(pieces).reshape(len(pieces), blocks, CHUNK // 8, 2, 4, COLUMNS // 8, 8)
        _stored_vectors(values, blocks, len(pieces))[...] = stacked.transpose(1, 2, 0, 5, 6, 4, 3)
        found = values.view("found", "f8", (VECTORS_RECORD, blocks), (blocks, 1))
        for i, x in enumerate((size, tail, whole * whole, rest * rest)):
            found[i] = x.reshape(blocks, -1).sum(1)


@dataclass(frozen=True)
class ResidualKernel(WithoutShared):
    """The squared norms of the rows of C X - alpha A Y - beta C0 X, and those of C, A and C0 and of their lower parts.

    Each block writes a column of `record` doubles to `found`: the sums of these `values` over its rows, the largest of each, and the row
    with the largest first one.
    """

    name: str
    before: bool
    element: Element = FLOAT64
    threads: tuple[int, int] = (256, 1)
    columns: int = field(default=COLUMNS, init=False)
    chunk: int = field(default=CHUNK, init=False)
    template: str = field(default="projected_rows.cu.j2", init=False)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """The projections, C0's only if there is one."""
        named = ("C", "A", "D") if self.before else ("C", "A")
        parts = (argument for x in named for argument in (Argument("bytes", f"{x}_parts"), *indices(f"{x}_splits")))
        return (*parts, *indices("rows"), Argument("bytes", "found"), *FACTORS)

    @property
    def matrices(self) -> int:
        """The matrices with rows: C, A and perhaps C0."""
        return 3 if self.before else 2

    @property
    def values(self) -> int:
        """What is known of a row."""
        return 1 + 2 * self.matrices

    @property
    def record(self) -> int:
        """The doubles of a column."""
        return 2 * self.values + 1

    @property
    def rows_of_a_block(self) -> int:
        """The rows of C that a block takes."""
        return self.threads[0] // self.columns

    def reference(self, values: KernelValues) -> None:
        """Subtract the projections."""
        (rows,), blocks = values("rows"), values.blocks[0]
        high, low, norms = np.zeros((rows, COLUMNS)), np.zeros((rows, COLUMNS)), np.zeros((self.values, blocks * self.rows_of_a_block))
        for number, name in enumerate(("C", "A", "D")[: self.matrices]):
            (splits,) = values(f"{name}_splits")
            factor = {"C": -1.0, "A": values.numbers["alpha"], "D": values.numbers["beta"]}[name]
            whole, rest, squares = np.zeros_like(high), np.zeros_like(high), norms[1 + 2 * number : 3 + 2 * number, :rows]
            add_parts(whole, rest, (squares[0], squares[1]), records(values, f"{name}_parts", splits, rows))
            if factor in (-1, 1):
                add_exactly(high, low, -factor * whole)
            else:
                for half in halves(whole):
                    for part in halves(np.array(factor)):
                        add_exactly(high, low, -part * half)
            low -= factor * rest
        norms[0, :rows] = ((high + low) ** 2).sum(1)
        each = norms.reshape(self.values, blocks, -1)
        to = values.view("found", "f8", (self.record, blocks), (blocks, 1))
        to[: self.values], to[self.values : -1] = each.sum(2), each.max(2)
        to[-1] = np.arange(blocks) * self.rows_of_a_block + each[0].argmax(1)


def records(values: KernelValues, name: str, splits: int, rows: int) -> Array:
    """The parts of a projection: splits, rows, and what each has of a row."""
    return values.view(name, "f8", (splits, rows, RECORD), (rows * RECORD, RECORD, 1))


def parted(record: Array) -> tuple[Array, Array, Array, Array]:
    """Of a part: its sums, what they lack, and the squared norms of rows and of their lower parts."""
    return record[:, :COLUMNS], record[:, COLUMNS : 2 * COLUMNS], record[:, -2], record[:, -1]


def add_parts(high: Array, low: Array, squares: tuple[Array, Array], parts: Array) -> None:
    """Add up the parts of a projection."""
    for record in parts:
        sums, rest, size, tail = parted(record)
        add_exactly(high, low, sums)
        low += rest
        squares[0][...] += size
        squares[1][...] += tail


def add_exactly(high: Array, low: Array, value: Array) -> None:
    """high + low += value, where only the sum of the low parts is rounded (D. E. Knuth's TwoSum)."""
    total = high + value
    back = total - high
    low += (high - (total - back)) + (value - back)
    high[...] = total


def halves(x: Array) -> tuple[Array, Array]:
    """Numbers as sums of two with half of the bits, whose products are exact."""
    upper = (x.view(np.int64) & np.int64(-(1 << 27))).view(float)
    return upper, x - upper


def rounded(x: Array, shift: float) -> Array:
    """The numbers of each column of a chunk, rounded to a multiple of one unit."""
    chunks = x.reshape(-1, CHUNK, COLUMNS)
    most = abs(chunks).max(1, keepdims=True) * shift
    return ((chunks + most) - most).reshape(x.shape)


def _stored_vectors(values: KernelValues, chunks: int, pieces: int) -> Array:
    """The pieces of vectors as a warp reads them: chunk, step, piece, half of the columns, column, and a row of the step by its parts."""
    shape = (chunks, CHUNK // 8, pieces, COLUMNS // 8, 8, 4, 2)
    return values.view("Z", "f8", shape, [prod(shape[axis + 1 :]) for axis in range(7)])


def vectors(values: KernelValues, chunks: int, pieces: int) -> Array:
    """The pieces of the vectors: pieces, rows, columns."""
    return _stored_vectors(values, chunks, pieces).transpose(2, 0, 1, 6, 5, 3, 4).reshape(pieces, chunks * CHUNK, COLUMNS)


CheckKernel = ProjectionKernel | VectorsKernel | ResidualKernel
