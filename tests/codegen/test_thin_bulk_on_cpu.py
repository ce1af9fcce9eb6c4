"""Thin products whose slices a warp fetches by bulk copies, emulated: exact however copies land, and wrong if a barrier is left out."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import pytest
from codegen.test_thin_on_cpu import element_of, emulated, laid, strides

from bilinear.codegen.build import build_kernel
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.emulator import LaunchError, Order, skip_reason
from bilinear.ir.element import ELEMENTS, IN_ARRAYS
from bilinear.ir.kernel import MOST_SHARED_BYTES, ThinKernel
from bilinear.ir.thin_tile import THIN_TILES, AnyThinTile, ThinBulkTile

pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=skip_reason() or "")

KEPT = ThinBulkTile(64, 8, 8, 16, 2, 1, 3, 1, keeps=True)
STAGED = ThinBulkTile(64, 8, 8, 16, 2, 1, 3, 1, keeps=True, staged=True)
FETCHED_BY_THREE = ThinBulkTile(32, 8, 32, 8, 1, 8, 2, 1, fetchers=3)
RING = ThinBulkTile(32, 8, 32, 8, 1, 4, 2, 1)
SMALL = ThinBulkTile(8, 8, 64, 2, 2, 16, 3, 1)
SHAPES = {
    KEPT: ((264, 8, 8, 0), (452, 8, 8, 0), (132, 5, 7, 0), (131, 5, 7, 0), (68, 8, 5, 4), (70, 7, 3, 1), (193, 4, 4, 0)),
    STAGED: ((132, 5, 7, 0), (264, 8, 5, 0), (131, 5, 7, 0), (264, 8, 8, 0), (68, 8, 5, 4)),
    FETCHED_BY_THREE: ((96, 128, 8, 0), (35, 67, 5, 1), (97, 131, 8, 0)),
    RING: ((96, 128, 8, 0), (100, 100, 8, 0), (35, 67, 5, 1), (64, 36, 7, 4), (33, 70, 2, 0), (97, 131, 11, 0)),
    SMALL: ((8, 300, 8, 0), (7, 301, 5, 0), (4, 300, 4, 0), (5, 203, 8, 3)),
}
"""m, k, n, and elements between lines: whole tiles, lines that are one, lines that begin at multiples of 16 bytes and elsewhere."""
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


MUTANTS = {
    **common_mutants(KEPT, RING),
    "a slice is given back before it is read": (
        RING,
        "barrier_wait(&full[s], parity);",
        "barrier_wait(&full[s], parity); if (lane == 31) barrier_arrive_here(&empty[s]);",
    ),
    "no bytes are expected": (KEPT, "a.bytes(fetcher) + ", ""),
    "lines begin anywhere": (RING, "return EVEN ? 0 : ", "return 0 * "),
    "the last 16 bytes of a line are left out": (RING, "(leads(line) + length + LANES - 1)", "(leads(line) + length)"),
    "slices are not given back": (KEPT, "if (lane == 0) barrier_arrive_here(&empty[s]);", ""),
    "sums are added before they are given": (RING, "meet();", ""),
    "results are written before they are staged": (STAGED, "__syncwarp();\n    for (int piece", "for (int piece"),
    "the terms of the next row are multiplied": (KEPT, "left_over >= TILE_K && pitch_a == PITCH_A", "left_over >= 1"),
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


@pytest.mark.sample(6)
@pytest.mark.parametrize("dtype", IN_ARRAYS)
@pytest.mark.parametrize("tile", SHAPES, ids=lambda tile: tile.name)
@pytest.mark.parametrize("orders", ORDERS)
def test_products_are_exact_in_every_order_of_copies_and_threads(tile: ThinBulkTile, dtype: str, orders: str) -> None:
    for shape in SHAPES[tile]:
        for order in RUNS:
            assert is_exact(tile, dtype, orders, shape, order), (shape, order)


@pytest.mark.sample(4)
@pytest.mark.parametrize("what", MUTANTS)
def test_a_text_without_one_of_its_parts_is_found_out(what: str) -> None:
    tile, part, instead = MUTANTS[what]
    assert is_found_out(tile, "float32", SHAPES[tile], part, instead), f"nothing notices that {what}"


def test_a_kept_tile_holds_only_a_b_of_one_slice() -> None:
    assert KEPT.holds(8, 8, 1) and not KEPT.holds(9, 8, 1) and not KEPT.holds(8, 9, 1) and not KEPT.holds(8, 8, 2)
    assert RING.holds(10**6, 100, 7)


@pytest.mark.sample(4)
@pytest.mark.parametrize("is_even", [True, False])
@pytest.mark.parametrize("orders", ["CCC", "FFF"])
@pytest.mark.parametrize(
    ("dtype", "name"),
    [(dtype, name) for dtype, tiles in THIN_TILES.items() for name, tile in tiles.items() if isinstance(tile, ThinBulkTile)],
)
def test_registers_suffice_but_for_two_words(dtype: str, name: str, orders: str, is_even: bool) -> None:
    tile = THIN_TILES[dtype][name]
    assert isinstance(tile, ThinBulkTile)
    kernel = kernel_of(tile, dtype, orders, is_even, is_even)
    built = build_kernel(kernel, CudaTarget("sm_90"))
    assert built.image != b"" and kernel.resident_in(MOST_SHARED_BYTES) == tile.blocks
    (used,) = built.resources
    assert max(used.spill_stores, used.spill_loads) <= 8
