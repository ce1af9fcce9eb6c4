"""Thin products of bfloat16 digits, emulated: exact however copies land, within their bound; Inf and NaN as in the classical product."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codegen.test_thin_on_cpu import element_of, emulated, laid, strides
from codegen.thin_fetched import ORDERS, RUNS, begins_evenly, common_mutants, is_exact, is_found_out, kernel_of

from bilinear.codegen.build import build_kernel
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.emulator import skip_reason
from bilinear.ir.thin_tile import THIN_TILES, ThinTriplesTile
from bilinear.ir.tile import MOST_SHARED_BYTES

pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=skip_reason() or "")

KEPT = ThinTriplesTile(64, 16, 32, 2, 1, keeps=True, fetchers=1)
KEPT_WIDE = ThinTriplesTile(64, 40, 64, 4, 1, keeps=True, turns=2, fetchers=2)
RING = ThinTriplesTile(64, 16, 64, 2, 1, fetchers=3)
TALL = ThinTriplesTile(128, 48, 32, 3, 1, fetchers=4)
DEEP = ThinTriplesTile(64, 8, 128, 2, 1, k_groups=2, fetchers=1)
SHAPES = {
    KEPT: ((700, 32, 16, 0), (70, 29, 13, 0), (67, 17, 9, 1), (65, 8, 4, 4), (200, 20, 45, 0), (131, 32, 64, 4)),
    KEPT_WIDE: ((128, 64, 40, 0), (131, 53, 37, 0), (65, 9, 33, 2), (300, 31, 97, 1)),
    RING: ((128, 128, 16, 0), (35, 67, 5, 1), (97, 131, 16, 0), (16, 70, 11, 0), (37, 67, 13, 3)),
    TALL: ((256, 64, 96, 0), (135, 33, 61, 3), (150, 100, 44, 0)),
    DEEP: ((64, 512, 8, 0), (7, 301, 5, 0), (65, 203, 8, 3)),
}
"""m, k, n, and elements between lines: whole tiles, lines that are one, lines that begin at multiples of 16 bytes and elsewhere."""
MUTANTS = {
    **common_mutants(KEPT, RING),
    "lines begin anywhere": (RING, "return EVEN ? 0 : ", "return 0 * "),
    "slices are not given back": (KEPT, "if (lane == 0) barrier_arrive_here(&empty[s]);", ""),
    "the strip of B is never changed": (KEPT, "while (behind_strip <= unit)", "while (!behind_strip)"),
    "warpgroups read each other's slices": (KEPT_WIDE, "int s = own_turn", "int s = 0"),
    "rows are written before they are staged": (KEPT, "__syncwarp();\n        if (one_line)", "if (one_line)"),
    "registers are written while the unit reads them": (RING, "group_wait<1>();", ""),
    "sums of the other warpgroup are not added": (DEEP, "+= given[e * IN_TILE];", "+= 0;"),
    "lines behind the last one are written": (KEPT, "row >= rows || column >= columns", "row >= rows + 8"),
    "elements behind the last one are written": (
        RING,
        "ALL_INSIDE || (BY_ROWS ? column + 1 < columns : (IN_PAIRS ? 1 : 8) < rows)",
        "true",
    ),
    "terms behind the last one are multiplied": (DEEP, "WHOLE || term < deep ?", "true ?"),
    "rows behind the last one are written": (TALL, "int(m - found.row)", "TILE_M"),
    "the products of high digits are left out": (KEPT, "KEEPS ? of_slice[e]", "KEEPS ? 0"),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("tile", SHAPES, ids=lambda tile: tile.name)
@pytest.mark.parametrize("orders", ORDERS)
def test_products_are_exact_in_every_order_of_copies_and_threads(tile: ThinTriplesTile, orders: str) -> None:
    for shape in SHAPES[tile]:
        for order in RUNS:
            assert is_exact(tile, "float32", orders, shape, order), (shape, order)


@pytest.mark.sample(4)
@pytest.mark.parametrize("what", MUTANTS)
def test_a_text_without_one_of_its_parts_is_found_out(what: str) -> None:
    tile, part, instead = MUTANTS[what]
    assert is_found_out(tile, "float32", SHAPES[tile], part, instead), f"nothing notices that {what}"


def product(tile: ThinTriplesTile, a: Any, b: Any, by_rows: bool, part: str = "", instead: str = "") -> Any:
    """A B by the emulated kernel, C by rows or by columns."""
    (m, k), n, orders = a.shape, b.shape[1], "CCC" if by_rows else "FFF"
    (a_by_rows, b_by_rows, _) = ORDERS[orders]
    left, right, out = laid(a, a_by_rows, 0), laid(b, b_by_rows, 0), laid(np.full((m, n), 7, "float32"), by_rows, 0)
    kernel = kernel_of(tile, "float32", orders, begins_evenly(left, a_by_rows), begins_evenly(right, b_by_rows))
    module = emulated(kernel, part, instead)
    depth = -(-k // tile.k) * tile.k
    factors = element_of("float32", 1), element_of("float32", 0)
    arguments: tuple[Any, ...] = (left, *strides(left), right, *strides(right), out, *strides(out), m, k, n, 1, depth, 0, *factors)
    module.launch("thin", (2, 1, 1), (tile.threads, 1, 1), arguments, shared_bytes=kernel.shared_bytes, seconds=60)
    return out


@pytest.mark.sample(1)
@pytest.mark.parametrize("by_rows", [True, False])
@pytest.mark.parametrize("tile", [KEPT, RING])
def test_numbers_of_any_size_are_within_the_bound(tile: ThinTriplesTile, by_rows: bool) -> None:
    generator = np.random.default_rng(3)
    a, b = (generator.standard_normal(shape) * 10.0 ** generator.uniform(-6, 6, shape) for shape in ((40, 31), (31, 15)))
    a, b = a.astype("float32"), b.astype("float32")
    exact, sizes = a.astype("float64") @ b.astype("float64"), abs(a).astype("float64") @ abs(b).astype("float64")
    found = product(tile, a, b, by_rows)
    assert (abs(found - exact) <= 40 * 2.0**-24 * sizes).all()
    for part, instead in (
        ("low[now], at(own), own", "low[now], at(own) + 2 * after, own"),
        ("middle[now], at(own), true", "middle[now], at(own) + after, true"),
    ):
        without = product(tile, a, b, by_rows, part, instead)
        assert not (abs(without - exact) <= 40 * 2.0**-24 * sizes).all()


@pytest.mark.parametrize("tile", [KEPT, RING])
@pytest.mark.parametrize("size", [-44, -41, -38, -36, -30, 30, 33, 35, 38])
def test_no_digit_is_lost_below_the_smallest_bfloat16_or_above_the_largest(tile: ThinTriplesTile, size: int) -> None:
    """Also of numbers below the smallest normal float: A has them, and B makes the product usual where it can."""
    generator = np.random.default_rng(4)
    a = (generator.uniform(1, 2, (40, 31)) * 10.0**size).astype("float32")
    b = (generator.uniform(1, 2, (31, 15)) * 10.0 ** float(np.clip(-size, -37, 37))).astype("float32")
    exact = a.astype("float64") @ b.astype("float64")
    assert (abs(product(tile, a, b, True) - exact) <= 40 * 2.0**-24 * exact).all()
    if size < -37:
        without = product(tile, a, b, True, "ENLARGED = 0x1p16f, REDUCED = 0x1p-32f", "ENLARGED = 1, REDUCED = 1")
        assert not (abs(without - exact) <= 40 * 2.0**-24 * exact).all()


@pytest.mark.parametrize("by_rows", [True, False])
@pytest.mark.parametrize("tile", [KEPT, RING])
def test_what_is_not_finite_is_what_the_classical_product_has(tile: ThinTriplesTile, by_rows: bool) -> None:
    a, b = np.ones((40, 31), "float32"), np.ones((31, 15), "float32")
    a[3, 5], a[4, 30], a[6, 0], b[2, 7], a[9, 2], b[2, 8] = np.inf, -np.inf, np.nan, np.inf, 0, np.float32(3.4e38)
    a[11], b[:, 3] = np.finfo("float32").max, 2.0**-10
    with np.errstate(invalid="ignore", over="ignore"):
        expected = np.zeros((40, 15), "float32")
        for term in range(31):
            expected += np.outer(a[:, term], b[term])
    found = product(tile, a, b, by_rows)
    assert np.isnan(expected).any() and np.isinf(expected).any() and np.isfinite(expected[11, 3])
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_kept_tile_holds_only_a_b_of_one_slice() -> None:
    assert KEPT.holds(32, 16, 1) and not KEPT.holds(33, 16, 1) and KEPT.holds(32, 17, 1) and not KEPT.holds(32, 16, 2)
    assert RING.holds(10**6, 100, 7)


@pytest.mark.sample(1)
@pytest.mark.parametrize("is_even", [True, False])
@pytest.mark.parametrize("orders", ["CCC", "FFF"])
@pytest.mark.parametrize("name", [name for name, tile in THIN_TILES["float32"].items() if isinstance(tile, ThinTriplesTile)])
def test_few_words_of_registers_are_spilled(name: str, orders: str, is_even: bool) -> None:
    tile = THIN_TILES["float32"][name]
    assert isinstance(tile, ThinTriplesTile)
    kernel = kernel_of(tile, "float32", orders, is_even, is_even)
    built = build_kernel(kernel, CudaTarget("sm_90"))
    assert built.image != b"" and kernel.resident_in(MOST_SHARED_BYTES) == tile.blocks
    (used,) = built.resources
    assert max(used.spill_stores, used.spill_loads) <= 400
