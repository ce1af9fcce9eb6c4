"""Thin products on a real GPU, by our own kernel, compared with the classical product in integers."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from choices import in_thin_tile
from runtime.test_gpu import cupy, integers, on_gpu

import bilinear
from bilinear.analysis.digit_bounds import Summation, digit_bound, probable_classical
from bilinear.codegen.cuda.target import target_of
from bilinear.frontend.algorithms import load_digits
from bilinear.ir.thin_tile import THIN_TILES, ThinBulkMmaTile, ThinTriplesTile
from bilinear.methods.planning import make_plan
from bilinear.methods.thin.choice import thin_of
from bilinear.planner.device_files import load_device
from bilinear.planner.plan import Plan
from bilinear.planner.problem import Problem
from bilinear.runtime.ahead import fill_cache

pytestmark = pytest.mark.gpu

KINDS = {
    "large by tall and skinny": (1003, 517, 5),
    "tall and skinny by small": (50_001, 7, 9),
    "transposed": (8, 40_000, 12),
    "of low rank": (900, 5, 1100),
}
ORDERS = ("CCC", "FFF", "FCF")


@cache
def thin_plans(m: int, k: int, n: int, dtype: str, orders: str) -> list[Plan]:
    """Our kernel with sums in parts where there is such a candidate, and with whole sums, each the first predicted."""
    by_column = tuple(name for name, order in zip("ABC", orders, strict=True) if order == "F")
    plan = make_plan(Problem(m, k, n, dtype, column_major=by_column), load_device("h200"), explain=True)
    thin = [own for own in plan.candidates if own.strategy == "thin"]
    split = [own for own in thin if thin_of(own).parts > 1]
    whole = [own for own in thin if thin_of(own).parts == 1]
    return [replace(plan, candidates=(own,)) for own in (*split[:1], *whole[:1])]


@cache
def build_ahead() -> None:
    """All kernels at once: one after the other they would take longer than everything else here."""
    cases = [(*shape, dtype, orders) for shape in KINDS.values() for dtype in ("float32", "float64") for orders in ORDERS]
    fill_cache(plan for case in cases for plan in thin_plans(*case))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
def test_thin_products_are_exact(kind: str, dtype: str) -> None:
    """By rows and by columns, with factors; with beta = 0 the NaN in C is not read. What `auto` runs is exact, too."""
    build_ahead()
    m, k, n = KINDS[kind]
    x, y, old = (integers(shape, seed) for seed, shape in enumerate(((m, k), (k, n), (m, n))))
    wanted = x @ y
    for orders in ORDERS:
        a, b = on_gpu(x, dtype, orders[0]), on_gpu(y, dtype, orders[1])
        plans = thin_plans(m, k, n, dtype, orders)
        assert plans
        for plan in (*plans, None):
            c = on_gpu(old, dtype, orders[2])
            bilinear.matmul(a, b, c, alpha=2, beta=-1, plan=plan)
            np.testing.assert_array_equal(c.get(), 2 * wanted - old)
            for _ in range(2):
                c[...] = np.nan
                bilinear.matmul(a, b, c, plan=plan)
                np.testing.assert_array_equal(c.get(), wanted)
        np.testing.assert_array_equal(a.get(), x)
        np.testing.assert_array_equal(b.get(), y)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_views_between_nan_are_exact(dtype: str) -> None:
    """Lines that begin at any element, and elements with gaps between them; nothing beside the result is written."""
    m, k, n = KINDS["large by tall and skinny"]
    x, y = integers((m, k), 1), integers((k, n), 2)
    for plan in thin_plans(m, k, n, dtype, "CCC"):
        for late in range(4):
            wide = [cupy().full((rows, late + columns + 3), np.nan, dtype) for rows, columns in ((m, k), (k, n), (m, n))]
            a, b, c = (w[:, late : w.shape[1] - 3] for w in wide)
            a[...], b[...] = cupy().asarray(x), cupy().asarray(y)
            bilinear.matmul(a, b, c, plan=plan)
            np.testing.assert_array_equal(c.get(), x @ y)
            assert wide[2].size - int(cupy().isnan(wide[2]).sum()) == m * n
        a, b, around = on_gpu(x, dtype, "S"), on_gpu(y, dtype, "S"), cupy().full((2 * m, 2 * n), np.nan, dtype)
        bilinear.matmul(a, b, around[::2, ::2], plan=plan)
        np.testing.assert_array_equal(around[::2, ::2].get(), x @ y)
        assert int(cupy().isnan(around).sum()) == around.size - m * n


def test_an_out_that_overlaps_an_operand_and_vectors_are_exact() -> None:
    m, k, n = KINDS["large by tall and skinny"]
    x, y = integers((m, k), 1), integers((k, n), 2)
    for plan in thin_plans(m, k, n, "float32", "CCC"):
        a, b = on_gpu(x, "float32", "C"), on_gpu(y, "float32", "C")
        bilinear.matmul(a, b, a[:, :n], alpha=3, beta=-2, plan=plan)
        np.testing.assert_array_equal(a[:, :n].get(), 3 * (x @ y) - 2 * x[:, :n])
        row = replace(plan, problem=Problem(1, k, n, "float32"))
        for _ in range(2):
            found = bilinear.matmul(on_gpu(x[0], "float32", "C"), b, plan=row)
            np.testing.assert_array_equal(found.get(), x[0] @ y)


Fetching = ThinTriplesTile | ThinBulkMmaTile
FETCHED = [(dtype, name) for dtype, tiles in THIN_TILES.items() for name, tile in tiles.items() if isinstance(tile, Fetching)]


@cache
def fetched_plan(dtype: str, name: str, orders: str) -> Plan:
    """A tile whose slices warps fetch on a product of many units that it can run, with sums in three parts if it can split them."""
    tile = THIN_TILES[dtype][name]
    assert isinstance(tile, Fetching)
    odd = int(tile.fetches and orders in ("CCC", "FCF"))  # lines begin anywhere
    m, k, n = 20 * tile.m + 4 - odd, 7 * tile.k + 8 - odd, tile.n - odd
    if tile.keeps:
        m, k, n = 40_004, tile.k - tile.staged, tile.n - tile.staged
    if tile.strips and orders in ("CFC", "FCF"):
        m, k, n = 10_004 - odd, tile.k, 3 * tile.n + 12 - odd
    (plan, *_) = thin_plans(*KINDS["large by tall and skinny"], dtype, orders)
    parts = 1 if tile.keeps else 3
    by_column = tuple(x for x, order in zip("ABC", orders, strict=True) if order == "F")
    problem = Problem(m, k, n, dtype, column_major=by_column)
    return replace(plan, problem=problem, candidates=(in_thin_tile(plan.chosen, problem, name, parts),))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tiles_whose_slices_warps_fetch_are_exact(dtype: str) -> None:
    """All of them, by rows and by columns: the ring is filled again and again, and no copy is late."""
    target = target_of(cupy().cuda.Device().compute_capability)
    names = [name for own, name in FETCHED if own == dtype and THIN_TILES[dtype][name].runs_on(target.capability)]
    plans = [(fetched_plan(dtype, name, orders), orders) for name in names for orders in ("CCC", "FFF", "CFC", "FCF")]
    if not plans:
        pytest.skip("bulk copies need sm_90")
    fill_cache(plan for plan, _ in plans)
    for plan, orders in plans:
        m, k, n = plan.problem.m, plan.problem.k, plan.problem.n
        x, y, old = (integers(shape, seed) for seed, shape in enumerate(((m, k), (k, n), (m, n))))
        a, b, c = on_gpu(x, dtype, orders[0]), on_gpu(y, dtype, orders[1]), on_gpu(old, dtype, orders[2])
        bilinear.matmul(a, b, c, alpha=2, beta=-1, plan=plan)
        np.testing.assert_array_equal(c.get(), 2 * (x @ y) - old)
        for _ in range(3):
            c[...] = np.nan
            bilinear.matmul(a, b, c, plan=plan)
            np.testing.assert_array_equal(c.get(), x @ y)


TRIPLES = ("triples128x64x64-1-2x4", "triples64x48x64-2-3x4", "triples_kept64x64x64-3-6x4")


def triples_plan(shape: tuple[int, int, int], name: str) -> Plan:
    """A tile by bfloat16 digits on a product of matrices by rows."""
    if not THIN_TILES["float32"][name].runs_on(target_of(cupy().cuda.Device().compute_capability).capability):
        pytest.skip("digits on load need sm_90")
    (plan, *_) = thin_plans(*KINDS["large by tall and skinny"], "float32", "CCC")
    problem = Problem(*shape, "float32")
    return replace(plan, problem=problem, candidates=(in_thin_tile(plan.chosen, problem, name, 1),))


@pytest.mark.parametrize("name", TRIPLES)
def test_products_of_digits_are_as_accurate_as_classical_ones(name: str) -> None:
    """Numbers over twelve decades: within the certain bound of every element, and by norm below the classical product's probable error."""
    m, k, n = (1000, 61, 39) if THIN_TILES["float32"][name].keeps else (1000, 3001, 39)
    plan, draw = triples_plan((m, k, n), name), np.random.default_rng(7)
    wide = [(draw.standard_normal(shape) * 10.0 ** draw.uniform(-6, 6, shape)).astype("float32") for shape in ((m, k), (k, n))]
    usual = [draw.standard_normal(shape).astype("float32") for shape in ((m, k), (k, n))]
    bound = digit_bound(load_digits("triples"), k, Summation(THIN_TILES["float32"][name].k)).relative
    for x, y in (wide, usual):
        found = bilinear.matmul(on_gpu(x, "float32", "C"), on_gpu(y, "float32", "C"), plan=plan).get()
        exact = x.astype("float64") @ y.astype("float64")
        assert (abs(found - exact) <= bound * (abs(x).astype("float64") @ abs(y).astype("float64"))).all()
    assert np.linalg.norm(found - exact) <= 1.2 * probable_classical(k, 2.0**-24) * np.linalg.norm(exact)


@pytest.mark.parametrize("name", TRIPLES)
@pytest.mark.parametrize("size", [-44, -41, -38, -36, -30, 30, 33, 35, 38])
def test_no_digit_of_the_smallest_and_largest_numbers_is_lost(name: str, size: int) -> None:
    m, k, n = (300, 61, 39) if THIN_TILES["float32"][name].keeps else (300, 301, 39)
    draw = np.random.default_rng(4)
    x = (draw.uniform(1, 2, (m, k)) * 10.0**size).astype("float32")
    y = (draw.uniform(1, 2, (k, n)) * 10.0 ** float(np.clip(-size, -37, 37))).astype("float32")
    bound = digit_bound(load_digits("triples"), k, Summation(THIN_TILES["float32"][name].k)).relative
    found = bilinear.matmul(on_gpu(x, "float32", "C"), on_gpu(y, "float32", "C"), plan=triples_plan((m, k, n), name)).get()
    exact = x.astype("float64") @ y.astype("float64")
    assert (abs(found - exact) <= bound * exact).all()


@pytest.mark.parametrize("name", TRIPLES)
def test_products_of_digits_are_infinite_and_nan_where_classical_ones_are(name: str) -> None:
    """Also where digits of the largest floats would be infinite, and the product is not."""
    m, k, n = 300, 61, 39
    x, y = np.ones((m, k), "float32"), np.ones((k, n), "float32")
    x[3, 5], x[200, 60], x[6, 0], y[2, 7], x[9, 2], y[3, 8] = np.inf, -np.inf, np.nan, np.inf, 0, np.float32(3.4e38)
    x[11], y[:, 3] = np.finfo("float32").max, 2.0**-10
    found = bilinear.matmul(on_gpu(x, "float32", "C"), on_gpu(y, "float32", "C"), plan=triples_plan((m, k, n), name)).get()
    with np.errstate(invalid="ignore", over="ignore"):
        expected = np.zeros((m, n), "float32")
        for term in range(k):
            expected += np.outer(x[:, term], y[term])
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert np.isfinite(expected[11, 3]) and np.isinf(expected[3, 0]) and np.isnan(expected[6, 0])
