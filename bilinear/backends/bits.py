"""Products of packed matrices over Z/2: by tables of sums of rows, with NumPy or by a generated kernel on a GPU."""

from __future__ import annotations

from math import ceil

import numpy as np

from bilinear.backends.loaded_kernels import built_function
from bilinear.ir.bit_kernel import LANE, WORD, BitProductKernel
from bilinear.ir.matrix import Array

BITS = 8
"""Bits in a byte; with NumPy each byte of A chooses one of the 256 sums of eight rows of B."""


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


def multiply_on_gpu(a: Array, b: Array, c: Array) -> None:
    """C = A * B over Z/2 for packed matrices on the current device, whose rows lie side by side, by one launch on CuPy's current stream."""
    (m, _), (k, width) = a.shape, b.shape
    pitches = [x.strides[0] for x in (a, b, c)]
    kernel = kernel_for([(address_of(x), pitch) for x, pitch in zip((a, b, c), pitches, strict=True)], width)
    blocks = ceil(m / kernel.tall), ceil(width / LANE), 1
    launch(kernel, blocks, [*map(address_of, (a, b, c)), m, k, width, *pitches])


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
