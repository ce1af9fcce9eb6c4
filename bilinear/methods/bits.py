"""Products of packed matrices over Z/2: by tables of sums of rows, with NumPy or by a generated kernel on a GPU, below schemes over Z/2."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from types import ModuleType

import numpy as np

from bilinear.backends.array_sums import blocks_of
from bilinear.backends.caches import Same
from bilinear.backends.loaded_kernels import built_function
from bilinear.frontend import Loaded
from bilinear.ir.kernel import LANE, WORD, BitProductKernel
from bilinear.ir.matrix import Array
from bilinear.ir.number import residue
from bilinear.lowering.prepare import proved, require_numbers, require_residues

BITS = 8  # Bits in a byte; with NumPy each byte of A chooses one of the 256 sums of eight rows of B.


def multiply_on_cpu(a: Array, b: Array) -> Array:
    """A * B over Z/2 for packed arrays of NumPy: for each byte of A's rows, the sum of eight rows of B that it chooses.

    Rows are added 64 bits at a time. Source: Arlazarov, Dinic, Kronrod and Faradzev, *On economical construction of the transitive closure
    of an oriented graph*, 1970.
    """
    k, width = b.shape
    words = np.zeros((k, ceil(width / WORD) * WORD), np.uint8)
    words[:, :width] = b
    rows = words.view(np.uint64)
    result = np.zeros((a.shape[0], rows.shape[1]), np.uint64)
    table, chosen = np.zeros((1 << BITS, rows.shape[1]), np.uint64), np.empty_like(result)
    for byte in range(ceil(k / BITS)):
        own, size = rows[byte * BITS : (byte + 1) * BITS], 1
        for bit in reversed(range(BITS)):  # the first row is the highest bit
            table[size : 2 * size] = table[:size] ^ own[bit] if bit < len(own) else table[:size]
            size *= 2
        np.take(table, a[:, byte], axis=0, out=chosen)
        result ^= chosen
    return np.ascontiguousarray(result.view(np.uint8)[:, :width])


def kernel_for(places: list[tuple[int, int]], width: int) -> BitProductKernel:
    """The kernel for A, B and C at these addresses with these bytes between rows."""
    needed = WORD, LANE, LANE
    even = all(address % size == 0 and pitch % size == 0 for (address, pitch), size in zip(places, needed, strict=True))
    return BitProductKernel(even and width % LANE == 0)


def address_of(array: Array) -> int:
    """Where a CuPy array begins."""
    return int(array.data.ptr)


def launch(kernel: BitProductKernel, blocks: tuple[int, int, int], values: list[int]) -> None:
    """Run the kernel on CuPy's current stream."""
    import cupy

    types = [np.uint64 if argument.kind == "bytes" else np.int64 for argument in kernel.arguments]
    function = built_function(kernel, cupy.cuda.Device().id)
    function(blocks, (*kernel.threads, 1), tuple(own(value) for own, value in zip(types, values, strict=True)))


class BitTables:
    """A scheme over Z/2: its format, and what each product and each block of C adds up, by odd coefficients."""

    def __init__(self, loaded: Loaded) -> None:
        scheme = loaded.scheme
        require_numbers(scheme, proved(scheme), 2)
        require_residues(scheme, (c for table in scheme.tables for row in table for _, c in row), 2)
        self.name, self.sizes = scheme.name, (scheme.m, scheme.k, scheme.n)
        odd = [tuple(tuple(i for i, c in row if residue(c, 2)) for row in table) for table in scheme.tables]
        self.u, self.v, self.w = odd


@lru_cache(maxsize=16)
def tables_of(loaded: Same[Loaded]) -> BitTables:
    """The tables of an algorithm. Raises `BilinearError` (E506, E594) for a scheme that does not hold over Z/2."""
    return BitTables(loaded.what)


@dataclass(frozen=True)
class BitProducts:
    """Products of packed arrays of NumPy, or of CuPy on a GPU."""

    xp: ModuleType
    on_gpu: bool

    def product(self, a: Array, b: Array) -> Array:
        """The product without a scheme: on a GPU by one launch on CuPy's current stream."""
        if not self.on_gpu:
            return multiply_on_cpu(a, b)
        a, b = (x if x.strides[1] == 1 else self.xp.ascontiguousarray(x) for x in (a, b))
        (m, _), (k, width) = a.shape, b.shape
        result = self.xp.empty((m, width), "uint8")
        if result.size:
            matrices = a, b, result
            pitches, addresses = [x.strides[0] for x in matrices], [*map(address_of, matrices)]
            kernel = kernel_for([*zip(addresses, pitches, strict=True)], width)
            launch(kernel, (ceil(m / kernel.tall), ceil(width / LANE), 1), [*addresses, m, k, width, *pitches])
        return result

    def by_scheme(self, tables: BitTables, a: Array, b: Array, levels: int) -> Array:
        """The product by levels of a scheme on operands that are filled up with zeros to a multiple of its blocks, bytes of bits."""
        m, k, n = (size**levels for size in tables.sizes)
        (rows, _), (inner, width) = a.shape, b.shape
        whole = ceil(inner / (BITS * k)) * k
        left = self._padded(a, ceil(rows / m) * m, whole)
        right = self._padded(b, whole * BITS, ceil(width / n) * n)
        return self.xp.ascontiguousarray(self._level(tables, left, right, levels)[:rows, :width])

    def _level(self, tables: BitTables, a: Array, b: Array, levels: int) -> Array:
        """One product after another, each added to the blocks of C that need it; sums of blocks are exclusive ors."""
        if levels == 0:
            return self.product(a, b)
        m, k, n = tables.sizes
        left, right = blocks_of(a, m, k), blocks_of(b, k, n)
        result = self.xp.zeros((a.shape[0], b.shape[1]), "uint8")
        targets = blocks_of(result, m, n)
        for p, (u, v) in enumerate(zip(tables.u, tables.v, strict=True)):
            places = [target for row, target in zip(tables.w, targets, strict=True) if p in row]
            if u and v and places:
                product = self._level(tables, _sum(left, u), _sum(right, v), levels - 1)
                for place in places:
                    place[...] ^= product
        return result

    def _padded(self, x: Array, rows: int, width: int) -> Array:
        """A matrix with zeros behind its rows and columns; itself if there are none."""
        if x.shape == (rows, width):
            return x
        padded = self.xp.zeros((rows, width), "uint8")
        padded[: x.shape[0], : x.shape[1]] = x
        return padded


def _sum(blocks: list[Array], chosen: tuple[int, ...]) -> Array:
    """The sum of some blocks over Z/2; a single block itself."""
    total = blocks[chosen[0]]
    for number in chosen[1:]:
        total = total ^ blocks[number]
    return total
