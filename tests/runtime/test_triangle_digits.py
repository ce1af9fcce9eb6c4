"""A*A^T by digits in one launch, on a pretended GPU that runs the emitted kernels: both triangles, exact, symmetric bit by bit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from runtime import pretended_gpu
from runtime.pretended_gpu import Array, Gpu, undescribed

import bilinear
from bilinear.codegen import render as rendering
from bilinear.emulator import skip_reason
from bilinear.ir.matrix import layout_of
from bilinear.ir.tile import DIGIT_TILES
from bilinear.methods import program
from bilinear.methods.digits.choice import Digits, triangle_tiles
from bilinear.methods.digits.launches import TriangleMultiply, triangle_multiply_of
from bilinear.planner.device_files import load_device
from bilinear.planner.gram import ONE_TRIANGLE
from bilinear.runtime import devices_here

pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=skip_reason() or "")
PAIRS = Digits((), "pairs")
LAYOUTS = ("C", "F", "padded")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    """A pretended GPU that is described as an H200, with bands of four rows of tiles, so that small results have several."""
    with undescribed(monkeypatch) as found:
        monkeypatch.setattr(devices_here, "_described", lambda named, index: load_device("h200"))
        monkeypatch.setitem(DIGIT_TILES, "pairs", replace(DIGIT_TILES["pairs"], band=4))
        program._kept.cache_clear()
        yield found
        program._kept.cache_clear()


def laid(x: Any, layout: str) -> Any:
    """The matrix as float32 in this order, or in rows that are apart by three elements of NaN."""
    if layout != "padded":
        return np.array(x, np.float32, order=layout)  # type: ignore[call-overload]
    rows = np.full((x.shape[0], x.shape[1] + 3), np.nan, np.float32)
    rows[:, : x.shape[1]] = x
    return rows[:, : x.shape[1]]


def multiply_of(a: Any, c: Any) -> TriangleMultiply:
    found = triangle_multiply_of(layout_of(a), layout_of(c), PAIRS)
    assert found is not None
    return found


def run(a: Any, c: Any, alpha: float = 1, beta: float = 0) -> None:
    x, out = Array(a), Array(c)
    multiply_of(a, c)(x.data.ptr, x.data.ptr, out.data.ptr, alpha, beta)


@pytest.mark.sample(9)
@pytest.mark.parametrize(("layout", "result"), [*product(LAYOUTS, ("C", "padded"))])
@pytest.mark.parametrize(("n", "k"), [(2, 1), (130, 70), (300, 41)])
def test_integers_are_exact_in_both_triangles(gpu: Gpu, layout: str, result: str, n: int, k: int) -> None:
    generator = np.random.default_rng(n)
    whole, old = generator.integers(-30, 31, (n, k)), generator.integers(-30, 31, (n, n))
    a, lower = laid(whole, layout), np.tril(old)
    symmetric = lower + np.tril(old, -1).T
    for alpha, beta in ((1, 0), (3, -2)):
        c = laid(np.full((n, n), np.nan) if beta == 0 else old, result)
        run(a, c, alpha, beta)
        np.testing.assert_array_equal(c, alpha * (whole @ whole.T) + beta * symmetric)
        np.testing.assert_array_equal(a, whole)
    if result == "padded":
        assert np.isnan(c.base[:, n:]).all()


def test_every_tile_of_several_bands_is_computed_once(gpu: Gpu) -> None:
    """Results that are added to twice, or never, are not exact."""
    for n in (700, 1100):
        whole = np.random.default_rng(n).integers(-9, 10, (n, 9))
        c = np.ones((n, n), np.float32)
        run(whole.astype(np.float32), c, 1, 1)
        np.testing.assert_array_equal(c, whole @ whole.T + 1)


def test_the_number_of_tiles_is_that_of_a_triangle() -> None:
    for rows, cluster in product(range(1, 9), (1, 2)):
        wanted = sum(1 for i in range(rows * cluster) for j in range(rows * cluster) if j // cluster <= i // cluster)
        assert triangle_tiles(rows * cluster, cluster) == wanted


def test_results_are_symmetric_and_as_accurate_as_float32(gpu: Gpu) -> None:
    a = np.random.default_rng(1).standard_normal((300, 500)).astype(np.float32)
    c = np.full((300, 300), np.nan, np.float32)
    run(a, c)
    assert np.array_equal(c, c.T)
    wanted = a.astype(float) @ a.T.astype(float)
    assert np.linalg.norm(c - wanted) < 6e-7 * np.linalg.norm(wanted)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_inf_and_nan_are_those_of_the_classical_product(gpu: Gpu, value: float) -> None:
    """The bits are those of any symmetric result: the classical product's lower triangle, copied."""
    a = np.random.default_rng(2).integers(-9, 10, (150, 40)).astype(np.float32)
    a[140, 7] = value
    c = np.zeros((150, 150), np.float32)
    run(a, c)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(c, a @ a.T)
    assert np.array_equal(c, c.T, equal_nan=True)
    a[140, 7] = 3
    run(a, c)
    np.testing.assert_array_equal(c, a @ a.T)


def test_gram_takes_it_with_an_accuracy(gpu: Gpu) -> None:
    plan = bilinear.plan_gram(8192, 8192, "float32", device="h200", accuracy="classical")
    (step,) = plan.steps
    assert step.plan == ONE_TRIANGLE and plan.gains and plan.multiplications == 8192 * 8193 // 2 * 8192
    assert all(not step.is_mirrored for step in bilinear.plan_gram(8192, 8192, "float32", device="h200").steps)
    least = bilinear.plan_gram(8192, 8192, "float32", device="h200", accuracy="classical", workspace=2**20)
    assert all(not step.is_mirrored for step in least.steps)


def test_what_does_not_suit_is_left_to_two_matrices(gpu: Gpu) -> None:
    a, c = np.ones((200, 30), np.float32), np.ones((200, 200), np.float32)
    assert triangle_multiply_of(layout_of(a.astype(float)), layout_of(c.astype(float)), PAIRS) is None
    assert triangle_multiply_of(layout_of(a), layout_of(np.asfortranarray(c)), PAIRS) is None
    assert triangle_multiply_of(layout_of(a[:1]), layout_of(c[:1, :1]), PAIRS) is None


MISTAKES = (
    ("j + f <= row + 8 * half", "j + f < row + 8 * half"),
    ("j + f < row + 8 * half))", "false))"),
    ("C[(j + f) * C_rs + (row + 8 * half) * C_cs]", "C[(j + f) * C_cs + (row + 8 * half) * C_rs]"),
    ("if (beta != 0) value[f] += beta * to[f * C_cs];", ""),
    ("at -= before(first);", ""),
    ("const bool below = panels.y < panels.x;", "const bool below = panels.y <= panels.x;"),
    ("if (flag && *flag == 0) return;", "return;"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("text", "instead"), MISTAKES, ids=lambda text: text[:40])
def test_mistakes_in_the_kernels_show(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, text: str, instead: str) -> None:
    changed = []

    def with_mistake(kernel: Any) -> str:
        source = rendering.render(kernel)
        if "triangle" in kernel.name or "mirror" in kernel.name:
            changed.extend([kernel.name] * (text in source))
            source = source.replace(text, instead)
        return source

    monkeypatch.setattr(pretended_gpu, "render", with_mistake)
    gpu.runs = "text"
    generator = np.random.default_rng(4)
    whole, old = generator.integers(-30, 31, (700, 40)).astype(np.float32), generator.integers(-30, 31, (700, 700)).astype(np.float32)
    symmetric, right = np.tril(old) + np.tril(old, -1).T, True
    for alpha, beta in ((1, 0), (3, -2)):
        c = np.full((700, 700), np.nan, np.float32) if beta == 0 else old.copy()
        run(whole, c, alpha, beta)
        right &= np.array_equal(c, alpha * (whole @ whole.T) + beta * symmetric)
    normal, c = generator.standard_normal((700, 40)).astype(np.float32), np.empty((700, 700), np.float32)
    run(normal, c)
    right &= np.array_equal(c, c.T)
    whole[600, 3], old = np.inf, symmetric.copy()
    old[np.triu_indices(700, 1)] = 7
    run(whole, old, 1, 1)
    right &= np.array_equal(old, old.T, equal_nan=True)
    assert changed and not right
