"""Products of digits, of rounded numbers and modulo p, on a real GPU: beside exact integers, and within their bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runtime.one_modulus import over
from runtime.operands import exact_modulo, residues

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


MODULI = (2, 257, 65521, 2**31 - 1, 2**61 - 1, 2**62 - 57)


def cupy() -> Any:
    return pytest.importorskip("cupy")


@pytest.mark.parametrize("p", MODULI)
@pytest.mark.parametrize(("algorithm", "inputs", "levels"), [("msmes", "restore", 2), ("winograd_in_place", "consume", 1)])
def test_in_place(algorithm: str, inputs: Any, levels: int, p: int) -> None:
    a, b, old = residues(1, (137, 94), p), residues(2, (94, 121), p), residues(3, (137, 121), p)
    for order in "CF":
        left, right, out = (cupy().array(x, order=order) for x in (a, b, old))
        options: dict[str, Any] = {"algorithm": algorithm, "levels": levels, "inputs": inputs, "workspace": "none"}
        bilinear.matmul(left, right, out, modulus=p, alpha=3, beta=-2, **options)
        np.testing.assert_array_equal(out.get().astype(object), (3 * exact_modulo(a, b, p) - 2 * old.astype(object)) % p)
        if inputs == "restore":
            np.testing.assert_array_equal(left.get(), a)
            np.testing.assert_array_equal(right.get(), b)


@pytest.mark.parametrize("p", MODULI[1:])
def test_fractions_and_deep_levels(p: int) -> None:
    a, b = residues(4, (203, 150), p), residues(5, (150, 170), p)
    for algorithm, levels in (("accurate_halves", 2), ("winograd", 3), ("laderman", 3)):
        found = bilinear.matmul(cupy().asarray(a), cupy().asarray(b), modulus=p, algorithm=algorithm, levels=levels)
        np.testing.assert_array_equal(found.get().astype(object), exact_modulo(a, b, p))


@pytest.mark.parametrize("p", [65521, 2**31 - 1])
def test_schemes_that_hold_for_one_modulus(p: int, tmp_path: Path) -> None:
    (tmp_path / "only_modulo.bl").write_text(over(p, 12345))
    a, b = residues(6, (151, 133), p), residues(7, (133, 142), p)
    for levels in (1, 2):
        named = bilinear.load(tmp_path / "only_modulo.bl")
        found = bilinear.matmul(cupy().asarray(a), cupy().asarray(b), modulus=p, algorithm=named, levels=levels)
        np.testing.assert_array_equal(found.get().astype(object), exact_modulo(a, b, p))


def test_products_in_several_parts() -> None:
    """Large enough that the residues of a product of blocks exceed the buffer; checked by Freivalds' vectors in Python's integers."""
    p, n = 2**62 - 57, 4600
    a, b = residues(8, (n, n), p), residues(9, (n, n), p)
    left, right, out = cupy().asarray(a), cupy().asarray(b), cupy().empty((n, n), "int64")
    bilinear.matmul(left, right, out, modulus=p, algorithm="msmes", levels=1, inputs="restore", workspace="none")
    x = np.random.default_rng(10).integers(0, 2, (n, 2)).astype(object)
    np.testing.assert_array_equal(exact_modulo(out.get(), x, p), exact_modulo(a, exact_modulo(b, x, p), p))
    np.testing.assert_array_equal(left.get(), a)
    np.testing.assert_array_equal(right.get(), b)


def test_on_a_stream_with_other_types() -> None:
    p, generator = 257, np.random.default_rng(11)
    a, b = (generator.integers(2**63, 2**64, (130, 130), "uint64") for _ in "ab")
    old = generator.integers(0, p, (130, 130), "int16")
    left, right, out = (cupy().asarray(x) for x in (a, b, old))
    cupy().cuda.Device().synchronize()
    with cupy().cuda.Stream(non_blocking=True) as stream:
        bilinear.matmul(left, right, out, modulus=p, algorithm="accurate_halves", levels=1, beta=5)
        stream.synchronize()
    np.testing.assert_array_equal(out.get().astype(object), (exact_modulo(a, b, p) + 5 * old.astype(object)) % p)


def test_pytorchs_tensors_in_place() -> None:
    torch, p = pytest.importorskip("torch"), 65521
    a, b = (torch.randint(0, p, (96, 96), device="cuda") for _ in "ab")
    before, out = a.clone(), torch.empty_like(a)
    bilinear.matmul(a, b, out, modulus=p, algorithm="msmes", levels=1, inputs="restore", workspace="none")
    np.testing.assert_array_equal(out.cpu().numpy().astype(object), exact_modulo(a.cpu().numpy(), b.cpu().numpy(), p))
    assert torch.equal(a, before)
