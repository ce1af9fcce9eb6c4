"""Thin products of float64 on matrix units whose slices warps of their own fetch, emulated: exact however copies land."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codegen.test_thin_on_cpu import assert_exact, element_of, emulated, laid, strides
from codegen.thin_fetched import ORDERS, RUNS, begins_evenly, between, common_mutants, is_exact, is_found_out, kernel_of

from bilinear.codegen.build import build_kernel
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.emulator import skip_reason
from bilinear.ir.thin_tile import THIN_TILES, ThinBulkMmaTile
from bilinear.ir.tile import MOST_SHARED_BYTES

pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=skip_reason() or "")

RING = ThinBulkMmaTile(32, 16, 16, 2, 3, 1, fetchers=1)
TALL = ThinBulkMmaTile(128, 24, 16, 4, 2, 1)
STRIPS = ThinBulkMmaTile(32, 16, 24, 2, 2, 1, keeps=True, fetchers=1)
IN_TURN = ThinBulkMmaTile(32, 32, 16, 1, 4, 1, keeps=True, n_warps=2, turns=2, fetchers=1)
SHAPES = {
    RING: ((96, 64, 16, 0), (35, 67, 5, 1), (97, 37, 27, 0), (16, 70, 11, 3), (32, 48, 32, 4)),
    TALL: ((256, 32, 24, 0), (131, 37, 19, 0), (132, 33, 29, 2)),
    IN_TURN: ((160, 16, 64, 0), (97, 13, 75, 0), (40, 9, 33, 3), (32, 16, 20, 2)),
    STRIPS: ((96, 24, 32, 0), (70, 23, 45, 0), (65, 9, 33, 3), (64, 16, 16, 0)),
}
"""m, k, n, and elements between lines: whole tiles, lines that are one, lines that begin at multiples of 16 bytes and elsewhere."""
MUTANTS = {
    **common_mutants(STRIPS, RING),
    "the strip of B is never changed": (STRIPS, "behind_strip = (strip + 1) * tiles_m;", "behind_strip = units;"),
    "a strip is read before all of it is there": (
        STRIPS,
        "read_strip(Index(strip) * TILE_N);\n                meet();",
        "read_strip(Index(strip) * TILE_N);",
    ),
    "terms behind the last one are multiplied": (STRIPS, "if (!WHOLE && term", "if (false && term"),
    "terms of B outside of it are read": (RING, "const bool inside = term < terms;", "const bool inside = true;"),
    "rows behind the last one are written": (TALL, "int(m - found.row)", "TILE_M"),
    "rows lie elsewhere": (TALL, "first_row + 2 * g", "first_row + g"),
    "neighbours are not exchanged": (IN_TURN, "if (odd) found =", "if (false) found ="),
    "the first lane is never ahead": (
        IN_TURN,
        "place_of_pair = [&](int b) { return (is_ahead",
        "place_of_pair = [&](int b) { return (false",
    ),
    "a group does not pass": (IN_TURN, "barrier_arrive_here(&empty[STAGES + 1 + (own_turn + 1) % TURNS]);", ";"),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("tile", SHAPES, ids=lambda tile: tile.name)
@pytest.mark.parametrize("orders", ORDERS)
def test_products_are_exact_in_every_order_of_copies_and_threads(tile: ThinBulkMmaTile, orders: str) -> None:
    for shape in SHAPES[tile]:
        for order in RUNS:
            assert is_exact(tile, "float64", orders, shape, order), (shape, order)


@pytest.mark.sample(3)
@pytest.mark.parametrize("tile", SHAPES, ids=lambda tile: tile.name)
@pytest.mark.parametrize("orders", range(8))
def test_every_layout_is_exact(tile: ThinBulkMmaTile, orders: int) -> None:
    assert_exact(tile, "float64", orders)


@pytest.mark.sample(1)
@pytest.mark.parametrize("orders", ORDERS)
@pytest.mark.parametrize("name", [name for name, tile in THIN_TILES["float64"].items() if isinstance(tile, ThinBulkMmaTile)])
def test_every_shipped_tile_is_exact(name: str, orders: str) -> None:
    tile = THIN_TILES["float64"][name]
    for shape in ((tile.m + 19, tile.k + (0 if tile.keeps else 5), tile.n + 3, 0), (tile.m, tile.k, tile.n, 0)):
        assert is_exact(tile, "float64", orders, shape, "random"), shape


@pytest.mark.sample(4)
@pytest.mark.parametrize("what", MUTANTS)
def test_a_text_without_one_of_its_parts_is_found_out(what: str) -> None:
    tile, part, instead = MUTANTS[what]
    assert is_found_out(tile, "float64", SHAPES[tile], part, instead), f"nothing notices that {what}"


@pytest.mark.parametrize(("tile", "orders"), [(RING, "CCC"), (RING, "FFF"), (STRIPS, "CFC")])
def test_nan_beside_the_matrices_does_not_spread(tile: ThinBulkMmaTile, orders: str) -> None:
    """Nor do those in C, if beta is 0, and those that the units of a block before left in a slice."""
    (a_by_rows, b_by_rows, by_rows), generator = ORDERS[orders], np.random.default_rng(5)
    m, k, n = 75, 21, 13
    a, b = (generator.integers(-8, 9, extents).astype("float64") for extents in ((m, k), (k, n)))
    left, right, out = laid(a, a_by_rows, 3), laid(b, b_by_rows, 3), laid(np.full((m, n), np.nan), by_rows, 3)
    for x, lies in ((left, a_by_rows), (right, b_by_rows), (out, by_rows)):
        between(x, lies, 3)[:] = np.nan
    left[5, 7] = np.nan
    kernel = kernel_of(tile, "float64", orders, begins_evenly(left, a_by_rows), begins_evenly(right, b_by_rows))
    module = emulated(kernel)
    factors = element_of("float64", 1), element_of("float64", 0)
    depth = -(-k // tile.k) * tile.k
    arguments: tuple[Any, ...] = (left, *strides(left), right, *strides(right), out, *strides(out), m, k, n, 1, depth, 0, *factors)
    module.launch("thin", (1, 1, 1), (tile.threads, 1, 1), arguments, shared_bytes=kernel.shared_bytes, seconds=60)
    assert np.isnan(out[5]).all() and np.isnan(between(out, by_rows, 3)).all()
    others = np.arange(m) != 5
    assert (out[others] == (a @ b)[others]).all()


def test_a_kept_tile_holds_any_strips_of_a_b_of_one_slice() -> None:
    assert STRIPS.holds(24, 1000, 1) and not STRIPS.holds(25, 16, 1) and not STRIPS.holds(24, 16, 2)
    assert RING.holds(10**6, 100, 7)


@pytest.mark.parametrize(
    "tile", [tile for tile in THIN_TILES["float64"].values() if isinstance(tile, ThinBulkMmaTile)], ids=lambda x: x.name
)
def test_the_registers_of_all_threads_fit_a_multiprocessor(tile: ThinBulkMmaTile) -> None:
    """Each quarter of it has every fourth warp."""
    all_warps = tile.threads // 32
    assert tile.blocks == 1 or all_warps % 2 == 0
    if tile.registers:
        fetching, others = (warps * tile.blocks // 4 for warps in (tile.fetchers, all_warps - tile.fetchers))
        assert 32 * (fetching * tile.given_registers + others * tile.registers) <= 65536 // 4 and tile.registers <= 255
    else:
        assert tile.given_registers == 0


@pytest.mark.sample(1)
@pytest.mark.parametrize("is_even", [True, False])
@pytest.mark.parametrize("orders", ["CCC", "FFF"])
@pytest.mark.parametrize("name", [name for name, tile in THIN_TILES["float64"].items() if isinstance(tile, ThinBulkMmaTile)])
def test_few_words_of_registers_are_spilled(name: str, orders: str, is_even: bool) -> None:
    tile = THIN_TILES["float64"][name]
    kernel = kernel_of(tile, "float64", orders, is_even, is_even)
    built = build_kernel(kernel, CudaTarget("sm_90"))
    assert isinstance(tile, ThinBulkMmaTile)
    assert built.image != b"" and kernel.resident_in(MOST_SHARED_BYTES) == tile.blocks
    (used,) = built.resources
    assert max(used.spill_stores, used.spill_loads) <= 104
