"""A kernel: everything that a template needs to print one CUDA function, and a caller to launch it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import ClassVar

import numpy as np

from bilinear.ir.element import FLOAT32, Element
from bilinear.ir.linear import Evaluation
from bilinear.ir.matrix import Array
from bilinear.ir.number import Coefficient
from bilinear.ir.reference import KernelValues, constant, evaluate, factors, loaded, number, scaled_sum, store, stored_type
from bilinear.ir.thin_tile import AnyThinTile
from bilinear.ir.tile import ProductTile


@dataclass(frozen=True)
class Argument:
    """A parameter of a kernel; its value is looked up by `name` when the kernel is launched.

    Kinds: `pointer` (first element of the space `name`), `index` (64-bit), `scalar` (of the type in which the kernel computes), `flag` (the
    address of an int), `map` (of the driver, for copies of boxes of a matrix). A space X has the indices `X_rs` and `X_cs`, the distance in
    elements between rows and between columns; `bm`, `bk`, `bn` are the extents of a block; `first` is where the launch starts in the
    kernel's table.
    """

    kind: str
    name: str


@dataclass(frozen=True)
class Cover:
    """Tiles that cover the extent `name` in steps of `step`: the quotient, rounded up."""

    name: str
    step: int


@dataclass(frozen=True)
class Grid:
    """The launch grid. Along x: the largest of the `tilings`, each a product of covers. Along y: one row of the kernel's table each."""

    tilings: tuple[tuple[Cover, ...], ...]
    y: int


@dataclass(frozen=True)
class Port:
    """One block that a part reads or writes, as an offset in blocks from the part's place in the space."""

    space: str
    down: int
    right: int


@dataclass(frozen=True)
class Part:
    """An exact linear map in registers, on blocks of `height` x `width`. Each row of the kernel's table runs one part at one place."""

    number: int
    height: str
    width: str
    spaces: tuple[str, ...]  # The spaces that the part reads or writes, in the order of the table's columns.
    sources: tuple[Port, ...]
    targets: tuple[Port, ...]
    additions: int
    evaluation: Evaluation
    kept: tuple[str, ...]  # For each target, the factor of its old value before the form comes: 0, 1, beta.


def indices(*names: str) -> tuple[Argument, ...]:
    """Parameters that are 64-bit integers."""
    return tuple(Argument("index", name) for name in names)


FACTORS = (Argument("scalar", "alpha"), Argument("scalar", "beta"))


class WithoutShared:
    """A kernel that is launched without dynamic shared memory."""

    shared_bytes: ClassVar[int] = 0


@dataclass(frozen=True)
class LinearKernel(WithoutShared):
    """Applies block maps. Each row of its table is one part at one place; a thread handles `lanes` neighbouring elements at a time."""

    name: str
    comment: str
    element: Element
    arguments: tuple[Argument, ...]
    threads: tuple[int, int]
    lanes: int
    parts: tuple[Part, ...]
    places: tuple[tuple[int, ...], ...]
    """One row for each place: the part's number (-1: nothing runs), then the grid row and column of the place in each of its spaces."""
    beside: int = 1  # Rows of the table that a block of threads runs at once, a warp each.
    template: str = field(default="linear.cu.j2", init=False)

    @property
    def rows(self) -> int:
        """Rows of the table that a block of threads runs."""
        return self.beside

    @property
    def height(self) -> int:
        """Rows (or columns) of a block's tile of elements."""
        return 1 if self.beside > 1 else self.threads[1]

    def reference(self, values: KernelValues) -> None:
        """Run the rows of the table from `first` on, each a part at its place."""
        (first,) = values("first")
        for part, *place in self.places[first : first + values.blocks[1] * self.rows]:
            if part >= 0:
                self._map(self.parts[part], place, values)

    def _map(self, part: Part, place: Sequence[int], values: KernelValues) -> None:
        height, width = values(part.height, part.width)
        corners = dict(zip(part.spaces, zip(place[::2], place[1::2], strict=False), strict=False))

        def block(port: Port) -> Array:
            rows, columns = values(f"{port.space}_rs", f"{port.space}_cs")
            down, right = (corner + move for corner, move in zip(corners[port.space], (port.down, port.right), strict=True))
            begin = down * height * rows + right * width * columns
            return values.view(port.space, stored_type(self.element), (height, width), (rows, columns), begin)

        def write(output: int, value: Array) -> None:
            to, kept = block(part.targets[output]), part.kept[output]
            factor = values.numbers["beta"] if kept == "beta" else int(kept)
            if factor:
                value = value + number(factor, self.element) * loaded(to, self.element)
            store(to, value, self.element)

        evaluate(part.evaluation, self.element, lambda i: loaded(block(part.sources[i]), self.element), write)


@dataclass(frozen=True)
class Destination:
    """A block that a product is added to: its coefficient, and the factor of the block's old value (0, 1 or beta).

    If it `is_contended`, other products of the launch are added to it at the same time, all by atomic additions.
    """

    space: int
    row: int
    column: int
    coefficient: Coefficient
    kept: str
    is_contended: bool = False


@dataclass(frozen=True)
class Multiplication:
    """One product of a launch: (index of the space, grid row, grid column) of each operand, and its range of the destinations."""

    left: tuple[int, int, int]
    right: tuple[int, int, int]
    first_destination: int
    destinations: int


@dataclass(frozen=True)
class ProductKernel:
    """Multiplies blocks. Each row of its table is one product with its destinations; products of one launch share only contended ones.

    `lefts`, `rights` and `results` list the spaces to which the indices in operands and destinations refer. A block of threads runs `turns`
    rows of the table one after the other, or `beside` rows at once, a warp each.
    """

    name: str
    comment: str
    element: Element
    arguments: tuple[Argument, ...]
    tile: ProductTile
    lefts: tuple[str, ...]
    rights: tuple[str, ...]
    results: tuple[str, ...]
    products: tuple[Multiplication, ...]
    destinations: tuple[Destination, ...]
    turns: int = 1
    beside: int = 1
    guarded: bool = False  # True if the kernel does nothing unless the int at the argument `flag` is set.
    rows_are: str = ""
    """How the rows of both operands lie, if that is known: `EVEN` (side by side, at multiples of 16 bytes) or `ANY`. The text has one body
    then, for three of which a thread takes one, and compiles in half of the time."""

    @property
    def rows(self) -> int:
        """Rows of the table that a block of threads runs."""
        return self.turns * self.beside

    @property
    def barrier(self) -> str:
        """The barrier of the threads that share a tile: of a block, or of a warp if each warp has its own tile."""
        return "__syncthreads" if self.beside == 1 else "__syncwarp"

    @property
    def template(self) -> str:
        """The template for the tile's instruction."""
        return self.tile.template

    @property
    def copies(self) -> str:
        """The template of copies from global to shared memory, which holds elements in the type of the computation."""
        return "copies_async.cu.j2" if self.element.wider is None else "copies_converting.cu.j2"

    @property
    def begins(self) -> tuple[bool, ...]:
        """For each result space: True if some block in it keeps beta times its old value (then no block of that space is overwritten)."""
        with_beta = {d.space for d in self.destinations if d.kept == "beta"}
        return tuple(space in with_beta for space in range(len(self.results)))

    @property
    def is_contended(self) -> bool:
        """Whether some products add to one block at the same time; then no block of their launch is overwritten."""
        return any(d.is_contended for d in self.destinations)

    @property
    def bounds(self) -> str:
        """The launch bounds for the compiler: threads of a block, and blocks of a multiprocessor."""
        return f"{self.tile.threads * self.beside}, {self.tile.blocks}"

    @property
    def lanes(self) -> int:
        """Elements in 16 bytes of shared memory, which a thread copies at once."""
        return self.element.arithmetic.lanes

    @property
    def shared_elements(self) -> int:
        """Elements of all slices of a tile in flight; the kernel text asserts this number."""
        return self.tile.stages * self.tile.slice_elements(self.lanes)

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block of threads, in bytes: all slices in flight."""
        return self.shared_elements * self.element.arithmetic.bytes * self.beside

    @property
    def threads(self) -> tuple[int, int]:
        """Threads of a block along x and y."""
        return (self.tile.threads, self.beside)

    def reference(self, values: KernelValues) -> None:
        """Run the products of the table from `first` on."""
        if self.guarded and not values.is_set():
            return
        (first,), (bm, bk, bn) = values("first"), values("bm", "bk", "bn")
        real, multiplied = np.dtype(self.element.arithmetic.code).type, self.tile.instruction.multiplied.arithmetic.code

        def block(space: str, row: int, column: int, shape: tuple[int, int]) -> Array:
            rows, columns = values(f"{space}_rs", f"{space}_cs")
            begin = row * shape[0] * rows + column * shape[1] * columns
            return values.view(space, stored_type(self.element), shape, (rows, columns), begin)

        for product in self.products[first : first + values.blocks[1] * self.rows]:
            (left, *at), (right, *there) = product.left, product.right
            for space in (self.lefts[left], self.rights[right]):
                rows, columns = values(f"{space}_rs", f"{space}_cs")
                if self.rows_are == "EVEN" and (columns != 1 or rows % self.lanes or bk % self.lanes or bn % self.lanes):
                    raise ValueError(f"{self.name}: the rows of {space} are not even")
            operands = block(self.lefts[left], at[0], at[1], (bm, bk)), block(self.rights[right], there[0], there[1], (bk, bn))
            a, b = (loaded(x, self.element).astype(multiplied) for x in operands)
            total = (a @ b).astype(real)
            for d in self.destinations[product.first_destination : product.first_destination + product.destinations]:
                to, begins = block(self.results[d.space], d.row, d.column, (bm, bn)), self.begins[d.space]
                keep = 1 if d.kept == "1" else values.numbers["beta"] if begins else 0
                value = real(values.numbers["alpha"]) * constant(d.coefficient, self.element) * total
                store(to, value if keep == 0 else real(keep) * loaded(to, self.element) + value, self.element)


SHARED_BESIDE = 1024  # Bytes of shared memory that the driver takes for each block.


def _matrix(name: str) -> tuple[Argument, ...]:
    return Argument("pointer", name), *indices(f"{name}_rs", f"{name}_cs")


@dataclass(frozen=True)
class ThinKernel:
    """C (m x n) = alpha * A (m x k) * B (k x n) + beta * C where an extent is short; sums may be split in `parts` of `depth` terms.

    An operand lies `along` if its neighbours in memory are terms of one sum; C `by_rows` if its neighbours lie in one row. The widths are
    the elements that one copy of an operand takes: those of 16 bytes if all its lines begin at multiples of 16 bytes, else 1.
    """

    name: str
    element: Element
    tile: AnyThinTile
    left_along: bool
    right_along: bool
    by_rows: bool
    left_width: int
    right_width: int
    arguments: tuple[Argument, ...] = (
        *_matrix("A"),
        *_matrix("B"),
        *_matrix("C"),
        *indices("m", "k", "n", "parts", "depth", "apart"),
        *FACTORS,
    )

    @property
    def template(self) -> str:
        """The text of its kind of tile."""
        return self.tile.template

    @property
    def features(self) -> str:
        """The suffix of the only architecture that has its instructions; empty if later ones have them, too."""
        return self.tile.features

    @property
    def bounds(self) -> str:
        """The launch bounds for the compiler: threads of a block, and blocks of a multiprocessor."""
        return f"{self.tile.threads}, {self.tile.resident(self.element.lanes)}"

    @property
    def shared_elements(self) -> int:
        """Elements in shared memory; the kernel text asserts this number."""
        return self.tile.shared_elements(self.element.lanes, self.left_along, self.right_along, self.by_rows)

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block of threads, in bytes."""
        return self.shared_elements * self.element.bytes

    def resident_in(self, shared: int) -> int:
        """Blocks of threads that a multiprocessor holds at once if one of them can have so many bytes of shared memory."""
        return min(self.tile.resident(self.element.lanes), (shared + SHARED_BESIDE) // (self.shared_bytes + SHARED_BESIDE))

    @property
    def threads(self) -> tuple[int, int]:
        """Threads of a block along x and y."""
        return (self.tile.threads, 1)

    def reference(self, values: KernelValues) -> None:
        """Multiply, each part of the sums into a matrix of its own."""
        (m, k, n), (parts, depth, apart) = values("m", "k", "n"), values("parts", "depth", "apart")
        code = self.element.code
        a, b = values.view("A", code, (m, k), ("A_rs", "A_cs")), values.view("B", code, (k, n), ("B_rs", "B_cs"))
        for part in range(parts):
            terms = slice(part * depth, (part + 1) * depth)
            scaled_sum(values.view("C", code, (m, n), ("C_rs", "C_cs"), part * apart), a[:, terms] @ b[terms], *factors(values, code))


@dataclass(frozen=True)
class PartsKernel(WithoutShared):
    """C = alpha * (the sum of `parts` matrices P) + beta * C; P and C have `lines` lines of `line` elements.

    The first of `threads` are elements of a block of threads, the second the threads that share the parts of each.
    """

    name: str
    element: Element
    threads: tuple[int, int] = (32, 32)
    arguments: tuple[Argument, ...] = (
        Argument("pointer", "P"),
        Argument("pointer", "C"),
        *indices("C_line", "C_neighbour", "lines", "line", "parts"),
        *FACTORS,
    )
    template: str = field(default="sum_parts.cu.j2", init=False)

    def reference(self, values: KernelValues) -> None:
        """Add the matrices up."""
        (parts, lines, line), code = values("parts", "lines", "line"), self.element.code
        total = values.view("P", code, (parts, lines, line), (lines * line, line, 1)).sum(0)
        scaled_sum(values.view("C", code, (lines, line), ("C_line", "C_neighbour")), total, *factors(values, code))


MATRIX = (*_matrix("X"), *indices("rows", "columns"))  # The matrix that a kernel reads.


@dataclass(frozen=True)
class ScanKernel(WithoutShared):
    """One launch that searches the matrix X (rows x columns) for values that are not finite."""

    name: str
    element: Element
    threads: tuple[int, int] = (256, 1)
    arguments: tuple[Argument, ...] = (*MATRIX, Argument("flag", "found"))
    template: str = field(default="scan.cu.j2", init=False)

    def reference(self, values: KernelValues) -> None:
        """Set `found` if a value is not finite."""
        x = loaded(values.view("X", stored_type(self.element), values("rows", "columns"), ("X_rs", "X_cs")), self.element)
        values.set("found", not np.isfinite(x).all())


@dataclass(frozen=True)
class MagnitudeKernel(WithoutShared):
    """One launch that finds max|x| of every block of the matrix X. X is cut into `across` blocks a row, each rows x columns.

    The number of threads in a block must be a power of two, because they reduce by halves.
    """

    name: str
    element: Element
    threads: tuple[int, int] = (256, 1)
    template: str = field(default="magnitudes.cu.j2", init=False)

    def reference(self, values: KernelValues) -> None:
        """The first of the blocks of threads that share a block of X finds its largest magnitude, and the others find 0."""
        (rows, columns, across), (sharing, count) = values("rows", "columns", "across"), values.blocks
        found, size = np.zeros((count, sharing), self.element.code), (rows * count // across, columns * across)
        x = abs(values.view("X", self.element.code, size, ("X_rs", "X_cs"))).reshape(-1, rows, across, columns)
        found[:, 0] = x.max((1, 3), initial=0).ravel()
        values.view("largest", self.element.code, (count, sharing), (sharing, 1))[...] = found


@dataclass(frozen=True)
class DigestKernel(WithoutShared):
    """One launch that adds up a hash of every element of the matrix X (rows x columns), of its bits and its place, modulo 2^64.

    Each block of threads writes a sum of its own. Their number must be a power of two, because they reduce by halves.
    """

    name: str
    element: Element
    threads: tuple[int, int] = (256, 1)
    arguments: tuple[Argument, ...] = (*MATRIX, Argument("pointer", "sums"))
    template: str = field(default="digest.cu.j2", init=False)

    def reference(self, values: KernelValues) -> None:
        """The first block of threads has the whole sum, and the others have 0."""
        rows, columns, step = values("rows", "columns", "X_cs")
        bits = values.view("X", f"u{self.element.bytes}", (rows, columns), ("X_rs", "X_cs"))
        bits = (bits if step == 1 else bits.T).astype(np.uint64).ravel()
        x = (bits + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + np.arange(bits.size, dtype=np.uint64) * np.uint64(0xD1B54A32D192ED03)
        x = (x ^ x >> np.uint64(32)) * np.uint64(0xD6E8FEB86659FD93)
        sums = values.view("sums", "u8", (values.blocks[0],), (1,))
        sums[...], sums[0] = 0, (x ^ x >> np.uint64(32)).sum(dtype=np.uint64)


@dataclass(frozen=True)
class MirrorKernel(WithoutShared):
    """Copies the lower triangles of `count` matrices C (n x n), `apart` elements from each other, to the upper ones, tile by tile.

    Elements have so many `bytes`. If there is a flag, nothing is copied unless it is set.
    """

    bytes: int = 4
    element: Element = FLOAT32
    arguments: tuple[Argument, ...] = (
        Argument("bytes", "C"),
        *indices("C_rs", "C_cs", "n", "apart", "count"),
        Argument("flag", "flag"),
    )
    template: str = field(default="mirror.cu.j2", init=False)

    @property
    def threads(self) -> tuple[int, int]:
        """A thread for each column of a tile, and the rows that are read at once."""
        return (64, 4) if self.bytes <= 4 else (32, 8)

    @property
    def gap(self) -> int:
        """Elements behind each row of a tile."""
        return max(1, 4 // self.bytes)

    @property
    def name(self) -> str:
        """The name of the function."""
        return f"mirror_{self.bytes}"

    @property
    def stored(self) -> str:
        """The CUDA type that is copied; none has 16 bytes."""
        return {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "unsigned long long"}.get(self.bytes, "")

    def reference(self, values: KernelValues) -> None:
        """Copy the triangles."""
        n, count, flag = values("n", "count", "flag")
        if flag == 0 or values.is_set():
            stored = f"u{self.bytes}" if self.bytes <= 8 else "c16"
            c = values.view("C", stored, (count, n, n), ("apart", "C_rs", "C_cs"))
            rows, columns = np.tril_indices(n, -1)
            c[:, columns, rows] = c[:, rows, columns]


@dataclass(frozen=True)
class GramHalvesKernel:
    """alpha * X X^T + beta * C of a matrix of 16 bits by rows, n x k, of which the lower triangle of C is read: tiles of one triangle.

    X is a map of the driver for copies of boxes. C lies by rows, too; its lines, and those of X, begin at multiples of 16 bytes.
    """

    element: Element
    threads: tuple[int, int] = (384, 1)
    arguments: tuple[Argument, ...] = (Argument("map", "X"), Argument("digits", "C"), *indices("C_rs", "n", "k"), *FACTORS)
    template: str = field(default="gram_halves.cu.j2", init=False)
    stages: int = field(default=5, init=False)
    features = "a"
    band: int = field(default=32, init=False)  # Rows of tiles whose columns are taken together.
    shared_bytes: int = field(default=5 * 32768 + 8 * 6144 + 1024, init=False)

    @property
    def name(self) -> str:
        """The name of the function."""
        return f"gram_{self.element}"

    @property
    def is_bfloat16(self) -> bool:
        """Which of the two types it is."""
        return self.element.code == ""

    def pairs(self, n: int) -> int:
        """Pairs of tiles of 128 x 128, each of a cluster of two blocks: as many of the triangle of n rows as share a panel."""
        rows = -(-n // 128)
        return rows * rows // 4 + (rows + 3) // 4


LANE = 16  # Bytes of a row of B and C that a thread holds.
WORD = 8  # Bytes of a row of A that a thread reads at once, a chunk of 64 terms.


@dataclass(frozen=True)
class BitProductKernel(WithoutShared):
    """C = A * B over Z/2, rows packed as `numpy.packbits` packs them; a block computes `rows` rows a thread of 16 bytes of C.

    For a chunk of 64 terms the threads form the 16 sums of every 4 rows of B in shared memory; each 4 bits of A choose one of them
    (Arlazarov, Dinic, Kronrod, Faradzev 1970). The rows of A, B and C begin `a_pitch`, `b_pitch` and `c_pitch` bytes apart, and those of B
    and C have `bytes` bytes.
    """

    is_aligned: bool  # Whether rows of B and C begin and end at multiples of 16 bytes, those of A at 8.
    rows: int = 4
    threads: tuple[int, int] = (256, 1)
    element: Element = FLOAT32
    arguments: tuple[Argument, ...] = (
        *(Argument("bytes", name) for name in "ABC"),
        *indices("m", "k", "bytes", "a_pitch", "b_pitch", "c_pitch"),
    )
    template: str = field(default="bit_product.cu.j2", init=False)

    @property
    def name(self) -> str:
        """The name of the function."""
        return f"bit_product_{'lanes' if self.is_aligned else 'bytes'}"

    @property
    def tall(self) -> int:
        """The rows of C of a block."""
        return self.rows * self.threads[0]

    def reference(self, values: KernelValues) -> None:
        """Multiply without the packing."""
        m, k, count = values("m", "k", "bytes")
        a = np.unpackbits(values.view("A", "u1", (m, ceil(k / 8)), ("a_pitch", 1)), axis=1)[:, :k]
        b = np.unpackbits(values.view("B", "u1", (k, count), ("b_pitch", 1)), axis=1)
        values.view("C", "u1", (m, count), ("c_pitch", 1))[...] = np.packbits((a.astype(float) @ b % 2).astype(np.uint8), axis=1)
