"""Thin products whose slices warps of their own fetch, emulated: exact however copies land, and mutants that are found out.

Of float64 on matrix units, and of bfloat16 digits, which stay within their bound; Inf and NaN as in the classical product.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codegen.test_thin_on_cpu import assert_exact, element_of, emulated, laid, strides
from each_case import each

from bilinear.codegen.build import build_kernels
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.emulator import LaunchError, Order, skip_reason
from bilinear.ir.element import ELEMENTS
from bilinear.ir.kernel import ThinKernel
from bilinear.ir.thin_tile import THIN_TILES, ThinBulkMmaTile, ThinTriplesTile
from bilinear.ir.tile import MOST_SHARED_BYTES

pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=skip_reason() or "")

Fetched = ThinTriplesTile | ThinBulkMmaTile
ORDERS = {
    "CCC": (True, True, True),
    "FFF": (False, False, False),
    "CCF": (True, True, False),
    "FCC": (False, True, True),
    "CFC": (True, False, True),
}
RUNS: tuple[Order, ...] = ("ascending", "descending", "random")


KEPT = ThinTriplesTile(64, 16, 32, 2, 1, keeps=True, fetchers=1)
KEPT_WIDE = ThinTriplesTile(64, 40, 64, 4, 1, keeps=True, turns=2, fetchers=2)
RING = ThinTriplesTile(64, 16, 64, 2, 1, fetchers=3)
TALL = ThinTriplesTile(128, 48, 32, 3, 1, fetchers=4)
DEEP = ThinTriplesTile(64, 8, 128, 2, 1, k_groups=2, fetchers=1)
RING_OF_DOUBLES = ThinBulkMmaTile(32, 16, 16, 2, 3, 1, fetchers=1)
TALL_OF_DOUBLES = ThinBulkMmaTile(128, 24, 16, 4, 2, 1)
STRIPS = ThinBulkMmaTile(32, 16, 24, 2, 2, 1, keeps=True, fetchers=1)
IN_TURN = ThinBulkMmaTile(32, 32, 16, 1, 4, 1, keeps=True, n_warps=2, turns=2, fetchers=1)
SHAPES: dict[Fetched, tuple[tuple[int, int, int, int], ...]] = {
    KEPT: ((700, 32, 16, 0), (70, 29, 13, 0), (67, 17, 9, 1), (65, 8, 4, 4), (200, 20, 45, 0), (131, 32, 64, 4)),
    KEPT_WIDE: ((128, 64, 40, 0), (131, 53, 37, 0), (65, 9, 33, 2), (300, 31, 97, 1)),
    RING: ((128, 128, 16, 0), (35, 67, 5, 1), (97, 131, 16, 0), (16, 70, 11, 0), (37, 67, 13, 3)),
    TALL: ((256, 64, 96, 0), (135, 33, 61, 3), (150, 100, 44, 0)),
    DEEP: ((64, 512, 8, 0), (7, 301, 5, 0), (65, 203, 8, 3)),
    RING_OF_DOUBLES: ((96, 64, 16, 0), (35, 67, 5, 1), (97, 37, 27, 0), (16, 70, 11, 3), (32, 48, 32, 4)),
    TALL_OF_DOUBLES: ((256, 32, 24, 0), (131, 37, 19, 0), (132, 33, 29, 2)),
    IN_TURN: ((160, 16, 64, 0), (97, 13, 75, 0), (40, 9, 33, 3), (32, 16, 20, 2)),
    STRIPS: ((96, 24, 32, 0), (70, 23, 45, 0), (65, 9, 33, 3), (64, 16, 16, 0)),
}
"""m, k, n, and elements between lines: whole tiles, lines that are one, lines that begin at multiples of 16 bytes and elsewhere."""
IN_ALL = {
    "a slice is filled again too early": ("barrier_wait(&empty[s], parity);", ""),
    "a slice is read before it is full": ("barrier_wait(&full[s], parity);", ""),
    "A is not copied": ("a.copy(to, &full[s], fetcher);", ""),
}
"""Parts that the texts of all kernels have whose slices warps fetch."""
MUTANTS: dict[str, tuple[Fetched, str, str]] = {
    **{f"{what}, of {kept.name}": (kept, *change) for kept in (KEPT, STRIPS) for what, change in IN_ALL.items()},
    **{
        f"B is not copied, of {ring.name}": (ring, "if (!KEEPS) b.copy(to + SLICE_A, &full[s], fetcher);", "")
        for ring in (RING, RING_OF_DOUBLES)
    },
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
    "the strip of doubles is never changed": (STRIPS, "behind_strip = (strip + 1) * tiles_m;", "behind_strip = units;"),
    "a strip is read before all of it is there": (
        STRIPS,
        "read_strip(Index(strip) * TILE_N);\n                meet();",
        "read_strip(Index(strip) * TILE_N);",
    ),
    "terms of doubles behind the last one are multiplied": (STRIPS, "if (!WHOLE && term", "if (false && term"),
    "terms of B outside of it are read": (RING_OF_DOUBLES, "const bool inside = term < terms;", "const bool inside = true;"),
    "rows of doubles behind the last one are written": (TALL_OF_DOUBLES, "int(m - found.row)", "TILE_M"),
    "rows lie elsewhere": (TALL_OF_DOUBLES, "first_row + 2 * g", "first_row + g"),
    "neighbours are not exchanged": (IN_TURN, "if (odd) found =", "if (false) found ="),
    "the first lane is never ahead": (
        IN_TURN,
        "place_of_pair = [&](int b) { return (is_ahead",
        "place_of_pair = [&](int b) { return (false",
    ),
    "a group does not pass": (IN_TURN, "barrier_arrive_here(&empty[STAGES + 1 + (own_turn + 1) % TURNS]);", ";"),
}


def dtype_of(tile: Fetched) -> str:
    return "float32" if isinstance(tile, ThinTriplesTile) else "float64"


def kernel_of(tile: Fetched, orders: str, left_is_even: bool, right_is_even: bool) -> ThinKernel:
    """The kernel for operands all of whose lines begin at multiples of 16 bytes, or that do not."""
    (a_by_rows, b_by_rows, by_rows), element = ORDERS[orders], ELEMENTS[dtype_of(tile)]
    left, right = (element.lanes if is_even else 1 for is_even in (left_is_even, right_is_even))
    return ThinKernel("thin", element, tile, a_by_rows, not b_by_rows, by_rows, left, right)


def begins_evenly(x: Any, by_rows: bool) -> bool:
    """Whether all lines begin at multiples of 16 bytes."""
    return bool(x.strides[0 if by_rows else 1] % 16 == 0 and x.__array_interface__["data"][0] % 16 == 0)


Change = tuple[str, str]


def run(
    tile: Fetched, orders: str, left: Any, right: Any, out: Any, factors: tuple[int, int], change: Change = ("", ""), **how: Any
) -> None:
    """C = alpha A B + beta C by blocks of threads with many units, also with a part of the text replaced."""
    (m, k), n, (a_by_rows, b_by_rows, _) = left.shape, right.shape[1], ORDERS[orders]
    kernel = kernel_of(tile, orders, begins_evenly(left, a_by_rows), begins_evenly(right, b_by_rows))
    depth, numbers = -(-k // tile.k) * tile.k, [element_of(dtype_of(tile), factor) for factor in factors]
    arguments = (left, *strides(left), right, *strides(right), out, *strides(out), m, k, n, 1, depth, 0, *numbers)
    blocks, how = how.pop("blocks", 2), {"shared_bytes": kernel.shared_bytes, "seconds": 60, **how}
    emulated(kernel, *change).launch("thin", (blocks, 1, 1), (tile.threads, 1, 1), arguments, **how)


def is_exact(tile: Fetched, orders: str, shape: tuple[int, int, int, int], order: Order, change: Change = ("", "")) -> bool:
    """Whether 2 A B + 3 C is exact."""
    (m, k, n, gap), (a_by_rows, b_by_rows, by_rows), generator = shape, ORDERS[orders], np.random.default_rng(sum(shape))
    a, b, old = (generator.integers(-8, 9, extents).astype(dtype_of(tile)) for extents in ((m, k), (k, n), (m, n)))
    left, right, out = laid(a, a_by_rows, gap), laid(b, b_by_rows, gap), laid(old, by_rows, gap)
    between(out, by_rows, gap)[:] = 1
    run(tile, orders, left, right, out, (2, 3), change, order=order, seed=m)
    return bool((out == 2 * (a.astype(object) @ b.astype(object)) + 3 * old).all() and (between(out, by_rows, gap) == 1).all())


def between(x: Any, by_rows: bool, gap: int) -> Any:
    """What lies between the lines of a matrix that `laid` has put into memory, and behind the last one."""
    lines = x if by_rows else x.T
    count, length = lines.shape
    return np.lib.stride_tricks.as_strided(lines, (count, length + gap), lines.strides)[:, length:]


@pytest.mark.sample(0, slow=6)
@pytest.mark.parametrize("tile", SHAPES, ids=lambda tile: tile.name)
@pytest.mark.parametrize("orders", ORDERS)
def test_products_are_exact_in_every_order_of_copies_and_threads(tile: Fetched, orders: str) -> None:
    for shape in SHAPES[tile]:
        for order in RUNS:
            assert is_exact(tile, orders, shape, order), (shape, order)


@pytest.mark.sample(1, slow=10)
@pytest.mark.parametrize("tile", [tile for tile in SHAPES if isinstance(tile, ThinBulkMmaTile)], ids=lambda tile: tile.name)
@pytest.mark.parametrize("orders", range(8))
def test_every_layout_is_exact(tile: ThinBulkMmaTile, orders: int) -> None:
    assert_exact(tile, "float64", orders)


@pytest.mark.sample(0, slow=10)
@pytest.mark.parametrize("orders", ORDERS)
@pytest.mark.parametrize("name", [name for name, tile in THIN_TILES["float64"].items() if isinstance(tile, ThinBulkMmaTile)])
def test_every_shipped_tile_is_exact(name: str, orders: str) -> None:
    tile = THIN_TILES["float64"][name]
    assert isinstance(tile, ThinBulkMmaTile)
    for shape in ((tile.m + 19, tile.k + (0 if tile.keeps else 5), tile.n + 3, 0), (tile.m, tile.k, tile.n, 0)):
        assert is_exact(tile, orders, shape, "random"), shape


@pytest.mark.sample(1)
@pytest.mark.parametrize("what", MUTANTS)
def test_a_text_without_one_of_its_parts_is_found_out(what: str) -> None:
    """It has a wrong result, or fails, in some order."""
    tile, part, instead = MUTANTS[what]
    for orders in ("CCC", "FFF"):
        for shape in SHAPES[tile]:
            for order in RUNS:
                try:
                    if not is_exact(tile, orders, shape, order, (part, instead)):
                        return
                except LaunchError:
                    return
    pytest.fail(f"nothing notices that {what}")


def product(tile: Fetched, a: Any, b: Any, by_rows: bool, part: str = "", instead: str = "") -> Any:
    """A B, all by rows or by columns."""
    left, right, out = (laid(x, by_rows, 0) for x in (a, b, np.full((a.shape[0], b.shape[1]), 7, dtype_of(tile))))
    run(tile, "CCC" if by_rows else "FFF", left, right, out, (1, 0), (part, instead))
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


@each("tile", [KEPT, RING])
@each("size", [-44, -41, -38, -36, -30, 30, 33, 35, 38])
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


@pytest.mark.parametrize(("tile", "orders"), [(RING_OF_DOUBLES, "CCC"), (RING_OF_DOUBLES, "FFF"), (STRIPS, "CFC")])
def test_nan_beside_the_matrices_does_not_spread(tile: ThinBulkMmaTile, orders: str) -> None:
    """Nor do those in C, if beta is 0, and those that the units of a block before left in a slice."""
    (a_by_rows, b_by_rows, by_rows), generator = ORDERS[orders], np.random.default_rng(5)
    m, k, n = 75, 21, 13
    a, b = (generator.integers(-8, 9, extents).astype("float64") for extents in ((m, k), (k, n)))
    left, right, out = laid(a, a_by_rows, 3), laid(b, b_by_rows, 3), laid(np.full((m, n), np.nan), by_rows, 3)
    for x, lies in ((left, a_by_rows), (right, b_by_rows), (out, by_rows)):
        between(x, lies, 3)[:] = np.nan
    left[5, 7] = np.nan
    run(tile, orders, left, right, out, (1, 0), blocks=1)
    assert np.isnan(out[5]).all() and np.isnan(between(out, by_rows, 3)).all()
    others = np.arange(m) != 5
    assert (out[others] == (a @ b)[others]).all()


def test_a_kept_tile_holds_only_a_b_of_one_slice() -> None:
    assert KEPT.holds(32, 16, 1) and not KEPT.holds(33, 16, 1) and KEPT.holds(32, 17, 1) and not KEPT.holds(32, 16, 2)
    assert STRIPS.holds(24, 1000, 1) and not STRIPS.holds(25, 16, 1) and not STRIPS.holds(24, 16, 2)
    assert RING.holds(10**6, 100, 7) and RING_OF_DOUBLES.holds(10**6, 100, 7)


@each("tile", [tile for tile in THIN_TILES["float64"].values() if isinstance(tile, ThinBulkMmaTile)])
def test_the_registers_of_all_threads_fit_a_multiprocessor(tile: ThinBulkMmaTile) -> None:
    """Each quarter of it has every fourth warp."""
    all_warps = tile.threads // 32
    assert tile.blocks == 1 or all_warps % 2 == 0
    if tile.registers:
        fetching, others = (warps * tile.blocks // 4 for warps in (tile.fetchers, all_warps - tile.fetchers))
        assert 32 * (fetching * tile.given_registers + others * tile.registers) <= 65536 // 4 and tile.registers <= 255
    else:
        assert tile.given_registers == 0


SPILLS = {ThinTriplesTile: 400, ThinBulkMmaTile: 104}
SHIPPED = [tile for tiles in THIN_TILES.values() for tile in tiles.values() if isinstance(tile, Fetched)]


@pytest.mark.sample(1, slow=10)
@pytest.mark.parametrize("is_even", [True, False])
@pytest.mark.parametrize("orders", ["CCC", "FFF"])
@pytest.mark.parametrize("tile", SHIPPED, ids=lambda tile: tile.name)
def test_few_words_of_registers_are_spilled(tile: Fetched, orders: str, is_even: bool) -> None:
    kernel = kernel_of(tile, orders, is_even, is_even)
    built = build_kernels((kernel,), CudaTarget("sm_90"))[0]
    assert built.image != b"" and kernel.resident_in(MOST_SHARED_BYTES) == tile.blocks
    (used,) = built.resources
    assert max(used.spill_stores, used.spill_loads) <= SPILLS[type(tile)]
