"""Execution modes: what their launches share, and that each of them multiplies; and the order of tiles at extents beyond any memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from codegen.emulated import EmulatedExecutor, c_types
from codegen.test_kernels_on_cpu import layout
from each_case import each

from bilinear.backends.bound_launches import MOST_BLOCKS, MOST_DEPTH, grid_blocks
from bilinear.backends.executor import execute
from bilinear.codegen.build import build_program
from bilinear.codegen.cuda import nvrtc
from bilinear.codegen.cuda.target import targets_of
from bilinear.codegen.lower import schedule_to_launches
from bilinear.codegen.modes import require_mode
from bilinear.codegen.render import render
from bilinear.emulator import ORDERS, Order, compile_on_cpu, skip_reason
from bilinear.errors import BilinearError
from bilinear.frontend import load
from bilinear.ir.element import ELEMENTS, FLOAT32, FLOAT64, IN_ARRAYS
from bilinear.ir.kernel import Cover, Grid, LinearKernel, ProductKernel
from bilinear.ir.launch import Launch
from bilinear.ir.matrix import call_of
from bilinear.ir.placement import ALIKE, GROUPS, ITEMS, KERNELS, MODES
from bilinear.ir.schedule import LinearStage, Schedule
from bilinear.ir.tile import LARGE, SMALL, USUAL
from bilinear.lowering.place import place_schedule
from bilinear.lowering.prepare import plain, prepare

CUT = (ITEMS, GROUPS, ALIKE, KERNELS)
CASES = [("strassen", 1), ("strassen", 2), ("winograd", 2), ("laderman", 1), ("hopcroft_kerr", 1), ("strassen", 3)]
FIRST_IS_QUICK = [CASES[0], *(pytest.param(*case, marks=pytest.mark.slow) for case in CASES[1:])]
needs_emulator = pytest.mark.skipif(skip_reason() is not None, reason=str(skip_reason()))
needs_nvrtc = pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))


def lowered(name: str, levels: int, mode: str) -> Schedule:
    return prepare(load(name).scheme, None, levels, "preserve", mode).schedule


def launches_of(name: str, levels: int, mode: str) -> tuple[Launch, ...]:
    return schedule_to_launches(lowered(name, levels, mode), FLOAT64, mode=mode)


def multiply(name: str, levels: int, mode: str, shape: tuple[int, int, int], dtype: str, **how: Any) -> None:
    """One multiply with alpha = 2 and beta = -1, or beta = 0 onto NaN, compared with the classical product of integers."""
    m, k, n = shape
    generator = np.random.default_rng(m * 10007 + k * 101 + n)
    whole = [generator.integers(-4, 5, s) for s in ((m, k), (k, n), (m, n))]
    orders, beta = how.get("orders", "CCC"), how.get("beta", -1)
    a, b, c = (layout(x.astype(dtype), order) for x, order in zip(whole, orders, strict=True))
    if beta == 0:
        c[...] = np.nan
    columns = frozenset(s for s, order in zip("ABC", orders, strict=True) if order == "F")
    plan = place_schedule(lowered(name, levels, mode), m, k, n, a.itemsize, columns, mode=mode)
    execute(EmulatedExecutor(how.get("order", "ascending"), seed=m), plan, call_of(a, b, c, 2, beta))
    np.testing.assert_array_equal(c, 2 * (whole[0] @ whole[1]) + (beta * whole[2] if beta else 0))
    np.testing.assert_array_equal(a, whole[0])
    np.testing.assert_array_equal(b, whole[1])


@pytest.mark.sample(3, slow=8)
@needs_emulator
@pytest.mark.parametrize("mode", CUT)
@pytest.mark.parametrize(("name", "levels"), FIRST_IS_QUICK)
def test_odd_rectangles(name: str, levels: int, mode: str) -> None:
    multiply(name, levels, mode, (43, 29, 38), "float64")


@pytest.mark.sample(2)
@needs_emulator
@pytest.mark.parametrize("dtype", IN_ARRAYS)
@pytest.mark.parametrize("mode", CUT)
def test_whole_lanes_in_several_tiles(mode: str, dtype: str) -> None:
    multiply("strassen", 1, mode, (144, 48, 272), dtype, beta=0)


@pytest.mark.sample(2, slow=8)
@needs_emulator
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("orders", ["FCF", "SFC"])
@pytest.mark.parametrize("mode", CUT)
def test_other_orders_of_memory_and_of_threads(mode: str, orders: str, order: Order) -> None:
    multiply("winograd", 1, mode, (70, 37, 41), "float32", orders=orders, order=order)


@pytest.mark.sample(0, slow=4)
@needs_nvrtc
@pytest.mark.parametrize("mode", CUT)
@pytest.mark.parametrize(("name", "levels"), [("strassen", 2), ("laderman", 1)])
def test_every_kernel_is_built(name: str, levels: int, mode: str) -> None:
    """Tasks of linear stages are light; products spill no more than in the default mode."""
    for element in IN_ARRAYS.values():
        for own in build_program(lowered(name, levels, mode), element, targets_of(["sm_90"]), mode=mode).kernels:
            for used in own.images[0].resources:
                most = 512 if isinstance(own.kernel, ProductKernel) else 0
                assert used.spill_stores + used.spill_loads <= most, own.kernel.name


@each(("name", "levels"), CASES)
def test_every_task_runs_once(name: str, levels: int) -> None:
    """The rows that a stage's launches run are its tasks: a form each, or a product each, or a whole place."""
    for mode in CUT:
        schedule = lowered(name, levels, mode)
        launches = schedule_to_launches(schedule, FLOAT64, mode=mode)
        for number, stage in enumerate(schedule.stages):
            own = [launch for launch in launches if launch.stage == number]
            rows = [row for launch in own for row in rows_of(launch)]
            if isinstance(stage, LinearStage):
                targets = sum(len(m.targets) for m in stage.maps)
                assert sum(rows) == targets, mode
                assert mode == ALIKE or set(rows) == {1}
            else:
                assert sum(rows) == len(stage.products)


def rows_of(launch: Launch) -> list[int]:
    """What each row of a launch writes: the targets of a part, or a product; nothing for padding."""
    kernel, rows = launch.kernel, launch.grid.y * launch.kernel.rows
    if isinstance(kernel, ProductKernel):
        return [1 for product in kernel.products[launch.first : launch.first + rows] if product.destinations]
    places = kernel.places[launch.first : launch.first + rows]
    return [len(kernel.parts[place[0]].targets) for place in places if place[0] >= 0]


def test_one_level_of_strassen_is_what_the_classes_say() -> None:
    """Five of its seven forms of A and of B are sums, and it adds up four blocks of seven products.

    Equal sums at other places are one path: A21 + A22 and A11 + A12, and M2 + M4 and M3 + M5.
    """
    assert [shape_of(launch) for launch in launches_of("strassen", 1, "stage")] == [(2, 2, 1), (0, 7, 1), (1, 1, 1)]
    assert [shape_of(launch) for launch in launches_of("strassen", 1, GROUPS)] == [(8, 10, 1), (0, 7, 1), (3, 4, 1)]
    assert [shape_of(launch) for launch in launches_of("strassen", 1, ITEMS)] == [(4, 1, 5), (4, 1, 5), (0, 1, 7), (3, 1, 4)]
    assert [shape_of(launch) for launch in launches_of("strassen", 1, ALIKE)] == [(1, 1, 1), (1, 1, 1), (0, 1, 7), (1, 1, 1)]
    kernels = launches_of("strassen", 1, KERNELS)
    assert [shape_of(launch) for launch in kernels] == [(1, 1, 1)] * 10 + [(0, 1, 1)] * 7 + [(1, 1, 1)] * 4
    assert all(launch.at_once for launch in kernels)
    assert [launch.stage for launch in kernels] == [0] * 10 + [1] * 7 + [2] * 4


def shape_of(launch: Launch) -> tuple[int, int, int]:
    """The parts of a launch's kernel (none: products), its blocks for one tile, and the rows that a block runs."""
    parts = len(launch.kernel.parts) if isinstance(launch.kernel, LinearKernel) else 0
    return parts, launch.grid.y, launch.kernel.rows


def test_two_levels_are_two_passes_in_every_mode_but_the_default() -> None:
    """As in the thesis, an iteration decomposes the blocks of the last one; its products are one stage."""
    assert [isinstance(stage, LinearStage) for stage in lowered("strassen", 2, "stage").stages] == [True, False, True]
    for mode in CUT:
        assert [isinstance(stage, LinearStage) for stage in lowered("strassen", 2, mode).stages] == [True, True, False, True, True]
    products = [launch for launch in launches_of("strassen", 2, ALIKE) if isinstance(launch.kernel, ProductKernel)]
    assert [(launch.grid.y, launch.kernel.rows) for launch in products] == [(7, 7)]


def test_more_tasks_than_a_block_has_warps_are_padded() -> None:
    (product,) = (launch for launch in launches_of("laderman", 1, ITEMS) if isinstance(launch.kernel, ProductKernel))
    assert (product.grid.y, product.kernel.rows, product.kernel.threads) == (2, 12, (32, 12))
    assert len(rows_of(product)) == 23


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(BilinearError) as caught:
        require_mode("S-T-T")
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.code, diagnostic.message) == ("E503", "no kernels for mode='S-T-T'")
    assert diagnostic.hints == (f"choose one of {', '.join(MODES)}",)


def test_a_warp_has_no_tile_on_the_units_for_doubles() -> None:
    require_mode(KERNELS, "doubles")
    with pytest.raises(BilinearError) as caught:
        require_mode(ITEMS, "doubles")
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "E557"
    assert diagnostic.message == "floats='doubles' has no meaning with mode='S-M-T': a warp multiplies on its own pipes"
    assert diagnostic.hints == ("leave it out",)


def test_a_schedule_that_updates_blocks_in_place_has_no_tasks() -> None:
    loaded = load("msmes")
    schedule = prepare(loaded.scheme, loaded.schedule, 1, "restore").schedule
    with pytest.raises(BilinearError) as caught:
        schedule_to_launches(schedule, FLOAT32, mode=GROUPS)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "E557"
    assert diagnostic.message == f"mode='S-T-M' has no meaning for {schedule.name}: its stage 1 reads and writes A12"
    assert diagnostic.hints == ("use inputs='preserve' and a scheme without a schedule, or leave the mode out",)
    assert schedule_to_launches(replace(schedule, name="other"), FLOAT32)


BAND = 8
PROBE = """
extern "C" __global__ void probe(long long bm, long long bn, unsigned* tiles, int count, long long* found)
{
    for (int i = 0; i < count; ++i) {
        Index row = -1, column = -1;
        found[3 * i] = find_tile(tiles[i], bm, bn, row, column);
        found[3 * i + 1] = row, found[3 * i + 2] = column;
    }
}
"""


def place(tile: int, tiles_m: int, tiles_n: int) -> tuple[int, int]:
    """The place of a tile: bands of eight rows of tiles, each walked column by column. The last band may be lower."""
    band, within = divmod(tile, BAND * tiles_n)
    height = min(BAND, tiles_m - band * BAND)
    return band * BAND + within % height, within // height


@pytest.mark.sample(2)
@pytest.mark.skipif(skip_reason() is not None, reason=str(skip_reason()))
@pytest.mark.parametrize(("dtype", "tile"), [("float64", SMALL), ("float32", USUAL), ("float32", LARGE), ("float32", "doubles-small")])
def test_tiles_lie_where_they_should_at_any_extent(dtype: str, tile: str) -> None:
    (launch,) = schedule_to_launches(plain().schedule, ELEMENTS[dtype], tile)
    kernel = launch.kernel
    assert isinstance(kernel, ProductKernel)
    types = {kernel.name: c_types(kernel), "probe": ["long long", "long long", "unsigned *", "int", "long long *"]}
    module = compile_on_cpu(render(kernel) + PROBE, types)
    m, n, most = kernel.tile.m, kernel.tile.n, MOST_BLOCKS[0]
    generator = np.random.default_rng(7)
    extents = [(1, most * n), (most * m, 1), (3 * m, most // 3 * n), (8 * m, most // 8 * n), (9 * m, 2**27 * n), (7 * m + 1, 2**28 * n - 1)]
    extents += [(2**34, n), (n, 2**34), (1, 2**35), (46340 * m, 46341 * n), (33, 65)]
    extents = [(bm, bn) for bm, bn in extents if -(-bm // m) * -(-bn // n) <= most]
    assert sum(max(pair) >= 2**34 for pair in extents) >= 4
    for bm, bn in extents:
        tiles_m, tiles_n = -(-bm // m), -(-bn // n)
        count = tiles_m * tiles_n
        edges = [0, 1, BAND, count // 2, count - 2, count - 1, count, min(count + BAND, most), most]
        tiles = np.array([*(t for t in edges if t >= 0), *generator.integers(0, count, 200)], np.uint32)
        found = np.zeros((len(tiles), 3), np.int64)
        module.launch("probe", 1, 1, [bm, bn, tiles, len(tiles), found])
        for own, (inside, row, column) in zip(tiles.tolist(), found.tolist(), strict=True):
            assert bool(inside) == (own < count)
            if inside:
                i, j = place(own, tiles_m, tiles_n)
                assert (row, column) == (i * m, j * n), (bm, bn, own)


def test_launches_that_kernels_cannot_count_are_refused() -> None:
    grid = Grid(((Cover("bm", 32), Cover("bn", 32)),), 1)
    assert grid_blocks(grid, {"bm": 32, "bn": 32 * MOST_BLOCKS[0], "bk": MOST_DEPTH}) == (MOST_BLOCKS[0], 1)
    for values in ({"bm": 32, "bn": 32 * MOST_BLOCKS[0] + 1, "bk": 1}, {"bm": 1, "bn": 1, "bk": MOST_DEPTH + 1}):
        with pytest.raises(BilinearError, match="E531"):
            grid_blocks(grid, values)
