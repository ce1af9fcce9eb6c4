"""What the tests of thin products have in common whose slices warps of their own fetch: emulated calls in every order, and mutants."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from codegen.test_thin_on_cpu import element_of, emulated, laid, strides

from bilinear.emulator import LaunchError, Order
from bilinear.ir.element import ELEMENTS
from bilinear.ir.kernel import ThinKernel
from bilinear.ir.thin_tile import AnyThinTile

ORDERS = {
    "CCC": (True, True, True),
    "FFF": (False, False, False),
    "CCF": (True, True, False),
    "FCC": (False, True, True),
    "CFC": (True, False, True),
}
RUNS: tuple[Order, ...] = ("ascending", "descending", "random")


Tile = TypeVar("Tile", bound=AnyThinTile)


def common_mutants(kept: Tile, ring: Tile) -> dict[str, tuple[Tile, str, str]]:
    """Texts without a part that all kernels have whose slices warps fetch."""
    return {
        "a slice is filled again too early": (kept, "barrier_wait(&empty[s], parity);", ""),
        "a slice is read before it is full": (kept, "barrier_wait(&full[s], parity);", ""),
        "A is not copied": (kept, "a.copy(to, &full[s], fetcher);", ""),
        "B is not copied": (ring, "if (!KEEPS) b.copy(to + SLICE_A, &full[s], fetcher);", ""),
    }


def kernel_of(tile: AnyThinTile, dtype: str, orders: str, left_is_even: bool, right_is_even: bool) -> ThinKernel:
    """The kernel for operands all of whose lines begin at multiples of 16 bytes, or that do not."""
    (a_by_rows, b_by_rows, by_rows), element = ORDERS[orders], ELEMENTS[dtype]
    left, right = (element.lanes if is_even else 1 for is_even in (left_is_even, right_is_even))
    return ThinKernel("thin", element, tile, a_by_rows, not b_by_rows, by_rows, left, right)


def begins_evenly(x: Any, by_rows: bool) -> bool:
    """Whether all lines begin at multiples of 16 bytes."""
    return bool(x.strides[0 if by_rows else 1] % 16 == 0 and x.__array_interface__["data"][0] % 16 == 0)


def is_exact(
    tile: AnyThinTile, dtype: str, orders: str, shape: tuple[int, int, int, int], order: Order, part: str = "", instead: str = ""
) -> bool:
    """Whether 2 A B + 3 C is exact, by two blocks of threads with many units, also with a part of the text replaced."""
    (m, k, n, gap), (a_by_rows, b_by_rows, by_rows), generator = shape, ORDERS[orders], np.random.default_rng(sum(shape))
    a, b, old = (generator.integers(-8, 9, extents).astype(dtype) for extents in ((m, k), (k, n), (m, n)))
    left, right, out = laid(a, a_by_rows, gap), laid(b, b_by_rows, gap), laid(old, by_rows, gap)
    between(out, by_rows, gap)[:] = 1
    kernel = kernel_of(tile, dtype, orders, begins_evenly(left, a_by_rows), begins_evenly(right, b_by_rows))
    module = emulated(kernel, part, instead)
    depth = -(-k // tile.k) * tile.k
    factors = element_of(dtype, 2), element_of(dtype, 3)
    arguments: tuple[Any, ...] = (left, *strides(left), right, *strides(right), out, *strides(out), m, k, n, 1, depth, 0, *factors)
    module.launch("thin", (2, 1, 1), (tile.threads, 1, 1), arguments, order=order, seed=m, shared_bytes=kernel.shared_bytes, seconds=20)
    return bool((out == 2 * (a.astype(object) @ b.astype(object)) + 3 * old).all() and (between(out, by_rows, gap) == 1).all())


def is_found_out(tile: AnyThinTile, dtype: str, shapes: tuple[tuple[int, int, int, int], ...], part: str, instead: str) -> bool:
    """Whether a kernel with a part of its text replaced has a wrong result, or fails, in some order."""
    for orders in ("CCC", "FFF"):
        for shape in shapes:
            for order in RUNS:
                try:
                    if not is_exact(tile, dtype, orders, shape, order, part, instead):
                        return True
                except LaunchError:
                    return True
    return False


def between(x: Any, by_rows: bool, gap: int) -> Any:
    """What lies between the lines of a matrix that `laid` has put into memory, and behind the last one."""
    lines = x if by_rows else x.T
    count, length = lines.shape
    return np.lib.stride_tricks.as_strided(lines, (count, length + gap), lines.strides)[:, length:]
