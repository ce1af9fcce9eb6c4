"""A*A^T, and checks of products, on a GPU: beside exact integers and the processor's check."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bilinear
from bilinear.planner.gram import plan_by_size

pytestmark = pytest.mark.gpu


def integers(shape: tuple[int, int], dtype: str, order: str = "C") -> Any:
    import cupy

    return cupy.array(cupy.random.default_rng(3).integers(-9, 10, shape).astype(dtype), order=order)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("n", "k"), [(4096, 1024), (4099, 1027), (2 * 128 + 5, 64)])
def test_one_triangle_by_digits_is_exact_and_mirrored(order: str, n: int, k: int) -> None:
    import cupy

    from bilinear.ir.matrix import layout_of
    from bilinear.methods.digits.choice import Digits
    from bilinear.methods.digits.launches import triangle_multiply_of

    a, c = integers((n, k), "float32", order), cupy.full((n, n), cupy.nan, "float32")
    own = triangle_multiply_of(layout_of(a), layout_of(c), Digits((), "pairs"))
    assert own is not None
    wanted = a.astype("float64") @ a.T.astype("float64")
    for alpha, beta in ((1, 0), (3, -2)):
        before = 0 if beta == 0 else cupy.tril(c) + cupy.tril(c, -1).T
        own(a.data.ptr, a.data.ptr, c.data.ptr, alpha, beta)
        assert bool((c == alpha * wanted + beta * before).all())
    a[n // 2, k // 3] = cupy.inf
    own(a.data.ptr, a.data.ptr, c.data.ptr, 1, 0)
    right = cupy.matmul(a, a.T)
    assert bool((cupy.isnan(c) == cupy.isnan(right)).all()) and bool((cupy.nan_to_num(c) == cupy.nan_to_num(right)).all())


@pytest.mark.parametrize(("dtype", "accuracy"), [("float32", "classical"), ("float32", None), ("float64", None)])
def test_gram_and_matmul_of_one_matrix_are_exact(dtype: str, accuracy: Any) -> None:
    a = integers((4096, 2048), dtype)
    wanted = a.astype("float64") @ a.T.astype("float64")
    out = bilinear.gram(a, accuracy=accuracy)
    assert bool((out == wanted).all())
    assert bool((bilinear.matmul(a, a.T, accuracy=accuracy) == wanted).all())
    lower = bilinear.gram(a, triangle="lower", accuracy=accuracy)
    assert bool((lower == np.tril(wanted.get())).all() if isinstance(lower, np.ndarray) else (lower.get() == np.tril(wanted.get())).all())


def test_blocks_with_and_without_mirrors() -> None:
    """A plan of several blocks, of which those on the diagonal are mirrored by their own multiply."""
    from dataclasses import replace

    from bilinear.planner.gram import ONE_TRIANGLE
    from bilinear.runtime.arrays import kind_of
    from bilinear.runtime.gram_blocks import gram_arrays
    from bilinear.runtime.options import Options

    a = integers((3000, 500), "float32")
    halves = plan_by_size(3000, 500, "float32", 1500, "auto")
    steps = tuple(replace(step, plan=ONE_TRIANGLE) if step.is_diagonal else step for step in halves.steps)
    asked = Options(1, 0, "auto", "auto", "preserve", None, None, None, "classical")
    found = gram_arrays(asked, kind_of(a), a, None, None, replace(halves, steps=steps))
    assert bool((found == a.astype("float64") @ a.T.astype("float64")).all())


@pytest.mark.parametrize("dtypes", [("float64",) * 3, ("float32",) * 3, ("float32", "float64", "float64")], ids="-".join)
@pytest.mark.parametrize(("m", "k", "n"), [(1000, 700, 900), (33, 5000, 17)])
def test_a_check_on_a_gpu_is_that_of_the_processor(dtypes: tuple[str, ...], m: int, k: int, n: int) -> None:
    import cupy

    generator = np.random.default_rng(m)
    a, b = (generator.standard_normal(side).astype(dtype) for side, dtype in zip(((m, k), (k, n)), dtypes, strict=False))
    before = generator.standard_normal((m, n)).astype(dtypes[2])
    c = (2 * (a.astype("longdouble") @ b) - before).astype(dtypes[2])
    options: dict[str, Any] = {"alpha": 2, "beta": -1}
    found = bilinear.check(*map(cupy.asarray, (a, b, c)), before=cupy.asarray(before), **options)
    wanted = bilinear.check(a, b, c, before=before, **options)
    assert abs(found.estimate - wanted.estimate) <= 1e-3 * wanted.estimate and abs(found.scale / wanted.scale - 1) < 1e-12
    assert found.rounding <= 2 * wanted.rounding + 1e-18 * wanted.scale
    c[m // 2, n // 3] += 1e-3
    worse = bilinear.check(*map(cupy.asarray, (a, b, c)), before=cupy.asarray(before), **options)
    assert worse.row == (m // 2,) and worse.at_least < 1e-3 < worse.bound
