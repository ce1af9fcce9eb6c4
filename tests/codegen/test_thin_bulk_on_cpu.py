"""Thin products whose slices a warp fetches by bulk copies, emulated: exact however copies land, and wrong if a barrier is left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codegen.test_thin_on_cpu import element_of, emulated, laid, strides

from bilinear.codegen.build import build_kernel
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.codegen.render import render
from bilinear.emulator import LaunchError, Module, Order, compile_on_cpu, skip_reason
from bilinear.ir.element import ELEMENTS, IN_ARRAYS
from bilinear.ir.kernel import MOST_SHARED_BYTES, ThinKernel
from bilinear.ir.thin_tile import THIN_TILES, ThinBulkTile

pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=skip_reason() or "")

KEPT = ThinBulkTile(64, 8, 8, 16, 2, 1, 3, 1, keeps=True)
STAGED = ThinBulkTile(64, 8, 8, 16, 2, 1, 3, 1, keeps=True, staged=True)
RING = ThinBulkTile(32, 8, 32, 8, 1, 4, 2, 1)
FETCHED_BY_THREE = ThinBulkTile(32, 8, 32, 8, 1, 8, 2, 1, fetchers=3)
SHAPES = {
    KEPT: ((264, 8, 8, 0), (452, 8, 8, 0), (132, 5, 7, 0), (131, 5, 7, 0), (68, 8, 5, 4), (70, 7, 3, 1)),
    STAGED: ((132, 5, 7, 0), (264, 8, 5, 0), (131, 5, 7, 0), (264, 8, 8, 0), (68, 8, 5, 4)),
    FETCHED_BY_THREE: ((96, 128, 8, 0), (35, 67, 5, 1)),
    RING: ((96, 128, 8, 0), (100, 100, 8, 0), (35, 67, 5, 1), (64, 36, 7, 4)),
}
"""m, k, n, and elements between lines: whole tiles, lines that are one, addresses that are and are not multiples of 16 bytes."""
ORDERS = {
    "CCC": (True, True, True),
    "FFF": (False, False, False),
    "CCF": (True, True, False),
    "FCC": (False, True, True),
    "CFC": (True, False, True),
}
MUTANTS = {
    "a slice is filled again too early": (KEPT, "barrier_wait(&empty[s], parity);", ""),
    "a slice is read before it is full": (KEPT, "barrier_wait(&full[s], parity);", ""),
    "a slice is given back before it is read": (
        RING,
        "barrier_wait(&full[s], parity);",
        "barrier_wait(&full[s], parity); if (lane == 31) barrier_arrive_here(&empty[s]);",
    ),
    "no bytes are expected": (KEPT, "a.bytes(fetcher) + ", ""),
    "A is not copied": (KEPT, "a.copy_body(to, &full[s], fetcher);", ""),
    "B is not copied": (RING, "if (!KEEPS) b.copy_body(to + SLICE_A, &full[s], fetcher);", ""),
    "what is left of A is not copied": (KEPT, "a.copy_rest(to, fetcher);", ""),
    "what is left of B is not copied": (RING, "if (!KEEPS) b.copy_rest(to + SLICE_A, fetcher);", ""),
    "the rest is not waited for": (
        RING,
        "__syncwarp();\n                if (lane == 0) barrier_arrive_here(&full[s]);",
        "if (lane == 31) barrier_arrive_here(&full[s]);",
    ),
    "slices are not given back": (KEPT, "if (lane == 0) barrier_arrive_here(&empty[s]);", ""),
    "sums are added before they are given": (RING, "meet();", ""),
    "results are written before they are staged": (STAGED, "__syncwarp();\n    for (int piece", "for (int piece"),
    "the terms of the next row are multiplied": (KEPT, "left_over >= TILE_K && pitch_a == PITCH_A", "true"),
}


def kernel_of(tile: ThinBulkTile, dtype: str, orders: str) -> ThinKernel:
    a_by_rows, b_by_rows, by_rows = ORDERS[orders]
    return ThinKernel("thin", ELEMENTS[dtype], tile, a_by_rows, not b_by_rows, by_rows, 1, 1)


def is_exact(module: Module, kernel: ThinKernel, shape: tuple[int, int, int, int], order: Order = "ascending", seed: int = 0) -> bool:
    """Whether 2 A B + 3 C is exact, with two blocks of threads that run units one after the other."""
    (m, k, n, gap), dtype, tile, generator = shape, kernel.element.name, kernel.tile, np.random.default_rng(sum(shape))
    a, b, old = (generator.integers(-8, 9, extents).astype(dtype) for extents in ((m, k), (k, n), (m, n)))
    left, right = laid(a, kernel.left_along, gap), laid(b, not kernel.right_along, gap)
    out = laid(old, kernel.by_rows, gap)
    factors = element_of(dtype, 2), element_of(dtype, 3)
    depth = -(-k // tile.k) * tile.k
    arguments: tuple[Any, ...] = (left, *strides(left), right, *strides(right), out, *strides(out), m, k, n, 1, depth, 0, *factors)
    module.launch("thin", (2, 1, 1), (tile.threads, 1, 1), arguments, order=order, seed=seed, shared_bytes=kernel.shared_bytes, seconds=20)
    return bool((out == 2 * (a.astype(object) @ b.astype(object)) + 3 * old).all())


@pytest.mark.parametrize("dtype", IN_ARRAYS)
@pytest.mark.parametrize("tile", SHAPES, ids=lambda tile: tile.name)
@pytest.mark.parametrize("orders", ORDERS)
def test_products_are_exact_in_every_order_of_copies_and_threads(tile: ThinBulkTile, dtype: str, orders: str) -> None:
    kernel = kernel_of(tile, dtype, orders)
    module = emulated(kernel)
    for shape in SHAPES[tile]:
        assert is_exact(module, kernel, shape), shape
        assert is_exact(module, kernel, shape, "descending"), shape
        assert is_exact(module, kernel, shape, "random", sum(shape)), shape


@pytest.mark.parametrize("what", MUTANTS)
def test_a_text_without_one_of_its_parts_is_found_out(what: str) -> None:
    tile, part, instead = MUTANTS[what]
    for orders in ("CCC", "FFF"):
        kernel = kernel_of(tile, "float32", orders)
        text = render(kernel)
        assert part in text
        types = [{"pointer": "float *", "index": "long long", "scalar": "float"}[one.kind] for one in kernel.arguments]
        module = compile_on_cpu(text.replace(part, instead), {"thin": types})
        runs: tuple[tuple[Order, int], ...] = (("ascending", 0), ("descending", 0), ("random", 1))
        for shape in SHAPES[tile]:
            for order, seed in runs:
                try:
                    if not is_exact(module, kernel, shape, order, seed):
                        return
                except LaunchError:
                    return
    raise AssertionError(f"nothing notices that {what}")


def test_a_kept_tile_holds_only_a_b_of_one_slice() -> None:
    assert KEPT.holds(8, 8, 1) and not KEPT.holds(9, 8, 1) and not KEPT.holds(8, 9, 1) and not KEPT.holds(8, 8, 2)
    assert RING.holds(10**6, 100, 7)


@pytest.mark.sample(4)
@pytest.mark.parametrize("orders", ["CCC", "FFF"])
@pytest.mark.parametrize(
    ("dtype", "name"),
    [(dtype, name) for dtype, tiles in THIN_TILES.items() for name, tile in tiles.items() if isinstance(tile, ThinBulkTile)],
)
def test_no_tile_keeps_registers_in_memory(dtype: str, name: str, orders: str) -> None:
    tile = THIN_TILES[dtype][name]
    assert isinstance(tile, ThinBulkTile)
    kernel = kernel_of(tile, dtype, orders)
    built = build_kernel(kernel, CudaTarget("sm_90"))
    assert built.image != b"" and kernel.resident_in(MOST_SHARED_BYTES) == tile.blocks
    (used,) = built.resources
    assert used.spill_stores == used.spill_loads == 0
