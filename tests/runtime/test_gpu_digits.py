"""Products of digits in blocks and in parts of C, and of rounded numbers, on a GPU: beside exact integers, and within their bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bilinear
from bilinear.analysis.digit_bounds import rounded_bound
from bilinear.ir.rounded import ROUNDINGS
from bilinear.methods.digits.choice import Digits

pytestmark = pytest.mark.gpu


def integers(shape: tuple[int, int], dtype: str, order: str, most: int = 15) -> Any:
    import cupy

    return cupy.array(cupy.random.default_rng(3).integers(-most, most + 1, shape).astype(dtype), order=order)


@pytest.mark.parametrize("orders", ["CCC", "FCF", "CFC"])
@pytest.mark.parametrize("share", [0, 0.5, 1])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_c_lends_memory_and_nothing_more_than_the_plan_says_is_allocated(dtype: str, share: float, orders: str) -> None:
    """Into NaN, between guards; with an Inf the result is that of the classical product."""
    import cupy

    m, k, n = 8192, 4096, 8192
    a, b = integers((m, k), dtype, orders[0]), integers((k, n), dtype, orders[1])
    wanted = a @ b
    memory = cupy.full(m * n + 80, 77, dtype)
    c = memory[16:-64].reshape((m, n)) if orders[2] == "C" else memory[16:-64].reshape((n, m)).T
    budget = int(share * c.nbytes)
    column_major = tuple(name for name, order in zip("ABC", orders, strict=True) if order == "F")
    chosen = _planned(m, k, n, dtype, budget, column_major)
    cupy.get_default_memory_pool().free_all_blocks()
    for alpha in (1, -2):
        c[...] = cupy.nan
        before = cupy.get_default_memory_pool().total_bytes()
        bilinear.matmul(a, b, c, alpha=alpha, accuracy="classical", workspace=budget or "none")
        taken = cupy.get_default_memory_pool().total_bytes() - before
        assert taken <= max(chosen.workspace or 0, 0) + 2**21
        assert bool((c == alpha * wanted).all()) and bool((memory[:16] == 77).all()) and bool((memory[-64:] == 77).all())
    a[m - 3, 5] = cupy.inf
    bilinear.matmul(a, b, c, accuracy="classical", workspace=budget or "none")
    right = cupy.matmul(a, b)
    assert bool((cupy.isnan(c) == cupy.isnan(right)).all()) and bool((cupy.nan_to_num(c) == cupy.nan_to_num(right)).all())


def _planned(m: int, k: int, n: int, dtype: str, budget: int, column_major: tuple[str, ...]) -> Any:
    from bilinear.methods.planning import make_plan
    from bilinear.planner.problem import Problem
    from bilinear.runtime import devices_here

    device = devices_here.current_device()
    assert device is not None
    return make_plan(Problem(m, k, n, dtype, "preserve", budget, "classical", column_major), device).chosen


@pytest.mark.parametrize("products", ["pairs", "residues7", "residues14"])
def test_blocks_of_c_share_their_scales(products: str) -> None:
    import cupy

    from bilinear.ir.matrix import layout_of
    from bilinear.methods.digits.binding import digit_multiply_of

    dtype = "float64" if products == "residues14" else "float32"
    a, b, c = integers((1000, 700), dtype, "C"), integers((700, 1300), dtype, "F"), cupy.full((1000, 1300), 3, dtype)
    wanted = a @ b
    for levels in ((), ("winograd",)):
        own = digit_multiply_of(layout_of(a), layout_of(b), layout_of(c), Digits(levels, products, (3, 2)))
        assert own is not None
        c[...] = 3
        own(a.data.ptr, b.data.ptr, c.data.ptr, 2, -1)
        assert bool((c == 2 * wanted - 3).all())


def test_dps_444_above_pairs_is_exact_on_small_integers() -> None:
    import cupy

    a, b, c = integers((2050, 1030), "float32", "C", 3), integers((1030, 2041), "float32", "C", 3), cupy.empty((2050, 2041), "float32")
    plan = bilinear.plan(2050, 1030, 2041, "float32", device="h200", levels=("dps_444",), products="pairs")
    c[...] = cupy.nan
    bilinear.matmul(a, b, c, plan=plan)
    assert bool((c == a @ b).all())


@pytest.mark.parametrize("name", ROUNDINGS)
@pytest.mark.parametrize("orders", ["CC", "FC", "CF"])
def test_rounded_numbers_keep_their_bounds(name: str, orders: str) -> None:
    import cupy

    draw = cupy.random.default_rng(5)
    a, b = (cupy.array(draw.standard_normal(s, dtype="float32"), order=o) for s, o in zip(((1111, 3001), (3001, 777)), orders, strict=True))
    c = cupy.full((1111, 777), cupy.nan, "float32")
    plan = bilinear.plan(1111, 3001, 777, "float32", device="h200", products=name)
    bilinear.matmul(a, b, c, plan=plan)
    exact = a.astype("float64") @ b.astype("float64")
    off = float(abs(c - exact).max()) / (float(abs(a).max()) * float(abs(b).max()))
    error = float(cupy.linalg.norm(c - exact) / cupy.linalg.norm(exact))
    assert off <= rounded_bound(ROUNDINGS[name], 3001)
    assert 2e-5 < error < 5e-3 and np.isfinite(error)  # it is that of fewer bits


@pytest.mark.parametrize("orders", ["CCC", "FCF", "CFC"])
@pytest.mark.parametrize("levels", [(), ("winograd",)])
@pytest.mark.parametrize(("dtype", "products"), [("complex64", "gaussian7"), ("complex128", "gaussian15")])
def test_gaussian_residues_are_exact_on_integers(dtype: str, products: str, levels: tuple[str, ...], orders: str) -> None:
    """Into NaN, between guards, which stay."""
    import cupy

    m, k, n = 1031, 713, 1277
    a, b = (
        cupy.array(integers(shape, dtype, order) + 1j * integers(shape, dtype, order)[::-1], order=order)
        for shape, order in (((m, k), orders[0]), ((k, n), orders[1]))
    )
    memory = cupy.full(m * n + 80, 77, dtype)
    c = memory[16:-64].reshape((m, n)) if orders[2] == "C" else memory[16:-64].reshape((n, m)).T
    c[...] = cupy.nan
    bilinear.matmul(a, b, c, plan=bilinear.plan(m, k, n, dtype, device="h200", levels=levels, products=products))
    assert bool((c == a.astype("complex128") @ b.astype("complex128")).all())
    assert bool((memory[:16] == 77).all()) and bool((memory[-64:] == 77).all())
