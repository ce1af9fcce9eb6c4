"""The projections of a check by generated kernels, run on the CPU: their errors beside exact fractions, and mistakes that must show."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from each_case import each
from runtime.pretended_gpu import Array, Gpu, pretend

import bilinear
from bilinear.backends import projections
from bilinear.codegen import render as rendering
from bilinear.emulator import skip_reason
from bilinear.ir.projection_kernel import COLUMNS
from bilinear.runtime import projected
from bilinear.runtime.check import _problem
from bilinear.runtime.projected import Residuals, random_entries, residuals_of_floats, residuals_on_gpu

pytestmark = [
    pytest.mark.skipif(skip_reason() is not None, reason=str(skip_reason())),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]
FRACTION = np.frompyfunc(Fraction, 1, 1)
KIND: Any = SimpleNamespace(module=None, on_gpu=True, name="cupy")


class OnGpu(Array):
    """An array that can be read back."""

    def get(self) -> Any:
        return self.host

    def __getitem__(self, index: Any) -> OnGpu:
        return OnGpu(self.host[index])


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    found = pretend(monkeypatch)
    found.runs = "text"  # whose errors beside exact fractions are what is tested
    cupy = sys.modules["cupy"]
    monkeypatch.setattr(cupy, "asarray", lambda array, dtype=None: OnGpu(array))
    monkeypatch.setattr(cupy, "empty", lambda count, dtype: OnGpu(np.full(count, np.nan, dtype)))
    forget()
    yield found
    forget()


def forget() -> None:
    projections._plan.cache_clear()
    projected._random_vectors.cache_clear()


def norm(row: Any) -> float:
    """The 2-norm of fractions, to a rounding."""
    return math.sqrt(sum((x * x for x in row), Fraction(0)))


def drawn(generator: np.random.Generator, shape: tuple[int, int], dtype: str, spread: int, order: str) -> Any:
    """Normal numbers times powers of ten, in this order, or as every other element of a larger matrix (S)."""
    x = (generator.standard_normal(shape) * 10.0 ** generator.integers(-spread, spread + 1, shape)).astype(dtype)
    if order == "S":
        larger = np.full((2 * shape[0], 3 * shape[1]), np.nan, dtype)
        larger[::2, ::3] = x
        return larger[::2, ::3]
    return np.array(x, order=order)  # type: ignore[call-overload]


def case_of(seed: int, shape: tuple[int, int, int], dtypes: tuple[str, ...], spread: int = 0) -> tuple[Any, ...]:
    """A, B, C0 and C = alpha*A*B + beta*C0 as that is rounded, with the factors."""
    generator, (m, k, n) = np.random.default_rng(seed), shape
    orders = [generator.choice(["C", "F", "S"]) for _ in "abd"]
    sides = ((m, k), (k, n), (m, n))
    a, b, before = (drawn(generator, side, dtype, spread, order) for side, dtype, order in zip(sides, dtypes, orders, strict=True))
    alpha, beta = ((1, 0), (0.3, 0), (-2, 0.7))[seed % 3]
    c = (alpha * (a.astype(float) @ b) + beta * before).astype(dtypes[2])
    return a, b, c, before if beta else None, alpha, beta


def problem_of(a: Any, b: Any, c: Any, before: Any, alpha: float, beta: float, seed: int) -> Any:
    given = [None if x is None else OnGpu(x) for x in (a, b, c, before)]
    return _problem(KIND, given, alpha, beta, np.dtype(float), COLUMNS, seed)


def is_outside(wanted: Any, found: Residuals) -> bool:
    """Whether what was found is not what the exact rows say, within its errors."""
    rows = [norm(row) for row in wanted]
    whole, most = norm(wanted.ravel()), max(rows)
    if found.rows != len(rows) or not abs(whole - found.norm) <= found.error * (1 + 1e-6) + 1e-150:
        return True
    if not most <= found.most * (1 + 1e-12) <= most + 3 * found.error + 1e-150 + 1e-11 * most:
        return True
    return not rows[found.worst] >= most - 2 * found.error - 1e-11 * most


SHAPES = ((1, 1, 1), (17, 33, 5), (70, 100, 40), (5, 300, 3), (131, 7, 70))
TYPES = (("float64",) * 3, ("float32",) * 3, ("float32", "float64", "float32"))


@pytest.mark.slow
@pytest.mark.parametrize("dtypes", TYPES, ids="-".join)
@pytest.mark.parametrize("spread", [0, 40])
def test_the_roundings_are_within_their_bound(gpu: Gpu, dtypes: tuple[str, ...], spread: int) -> None:
    for seed, shape in enumerate(SHAPES):
        a, b, c, before, alpha, beta = case_of(seed, shape, dtypes, spread if "float32" not in dtypes else min(spread, 9))
        problem = problem_of(a, b, c, before, alpha, beta, seed)
        found = residuals_on_gpu(problem)
        assert found is not None and (len(gpu.launches) == (6 if beta else 5)) and not gpu.launches.clear()  # type: ignore[func-returns-value]
        factors = Fraction(float(problem.alpha)), Fraction(float(problem.beta))
        entries = FRACTION(random_entries(shape[2], COLUMNS, seed).astype(object))
        a, b, c = (FRACTION(x.astype(float)) for x in (a, b, c))
        wanted = c @ entries - factors[0] * (a @ (b @ entries))
        if beta:
            wanted = wanted - factors[1] * (FRACTION(before.astype(float)) @ entries)
        assert not is_outside(wanted, found)
        size = float(np.linalg.norm(entries.astype(float)))
        most = 1e-20 if problem.is_wide else 1e-12
        assert found.error <= most * size * found.scale + 1e-14 * found.norm


def test_it_finds_what_the_processor_finds(gpu: Gpu) -> None:
    """The same scale and nearly the same residuals, which are far above their errors."""
    for seed, dtypes in product(range(3), TYPES):
        a, b, c, before, alpha, beta = case_of(seed, (70, 100, 40), dtypes)
        found = residuals_on_gpu(problem_of(a, b, c, before, alpha, beta, seed))
        host = SimpleNamespace(module=np, on_gpu=False, name="numpy")
        wanted = residuals_of_floats(_problem(host, [a, b, c, before], alpha, beta, np.dtype(float), COLUMNS, seed))  # type: ignore[arg-type]
        assert found is not None and found.longest == wanted.longest
        np.testing.assert_allclose(found.scale, wanted.scale, rtol=1e-12)
        errors = found.error + wanted.error
        np.testing.assert_allclose(found.norm, wanted.norm, atol=errors, rtol=1e-10)
        np.testing.assert_allclose(found.most, wanted.most, atol=2 * errors, rtol=1e-10)
        assert (found.rows, found.worst) == (wanted.rows, wanted.worst)


@each("value", [np.nan, np.inf, 1e308])
@each("place", range(3))
def test_what_is_not_finite_has_no_bound(gpu: Gpu, value: float, place: int) -> None:
    arrays = [np.ones((40, 40)) for _ in "abc"]
    arrays[place][37, 3] = value
    if value == 1e308:
        arrays[place][37, 4] = value
    found = residuals_on_gpu(problem_of(arrays[0], arrays[1], arrays[2], None, 1, 0, 1))
    assert found is not None and not math.isfinite(found.norm + found.error) and not math.isfinite(found.most)


def test_zeros_and_small_numbers(gpu: Gpu) -> None:
    for scale in (0.0, 5e-324, 1e-308, 1e-160):
        a, b = np.full((33, 40), scale), np.ones((40, 20))
        found = residuals_on_gpu(problem_of(a, b, a @ b, None, 1, 0, 1))
        assert found is not None and found.norm <= found.error + 1e-150


def test_other_problems_take_the_general_way(gpu: Gpu) -> None:
    a = np.ones((4, 4))
    assert residuals_on_gpu(problem_of(a, a, 4 * a, None, 0, 0, 1)) is None
    assert residuals_on_gpu(_problem(KIND, [OnGpu(a)] * 3 + [None], 1, 0, np.dtype(float), 15, 1)) is None
    host = SimpleNamespace(module=np, on_gpu=False, name="numpy")
    assert residuals_on_gpu(_problem(host, [a, a, a, None], 1, 0, np.dtype(float), COLUMNS, 1)) is None  # type: ignore[arg-type]


def is_off(seed: int) -> bool:
    """Whether a projected row, or the scale, is off by more than its bound: A B is only nearly C, so that every part of a sum counts."""
    a, b, c, before, alpha, beta = case_of(seed, (20, 100, 24), ("float64",) * 3)
    problem = problem_of(a, b, c, before, alpha, beta, seed)
    found = residuals_on_gpu(problem)
    assert found is not None
    entries, x = (
        FRACTION(random_entries(24, COLUMNS, seed).astype(object)),
        [FRACTION(each) if each is not None else None for each in (a, b, c, before)],
    )
    wanted = (x[2] @ entries - Fraction(alpha) * (x[0] @ (x[1] @ entries))) - Fraction(beta) * (x[3] @ entries if beta else 0)
    scale = abs(alpha) * np.linalg.norm(a) * np.linalg.norm(b) + (abs(beta) * np.linalg.norm(before) if beta else 0)
    return is_outside(wanted, found) or not abs(found.scale / scale - 1) <= 1e-9


MISTAKES = {
    "projection": (
        ("low[half][e], sum[e])", "low[half][e], 2 * sum[e])"),
        ("add_piece(low[half], lower, vectors, PIECES - 1, half);", ""),
        ("add_piece(low[half], upper, vectors, EXACT, half);", ""),
        ("upper[s][e] = rounded(value, shift[e % 2]);", "upper[s][e] = value;"),
        ("low += (high - (total - back)) + (value - back);", ""),
        ("s * 4 + member < columns", "s * 4 + member <= columns"),
        ("++s, from += 4 * X_cs)", "++s, from += 4)"),
        ("(chunk + 1) * CHUNK <= columns", "chunk * CHUNK <= columns"),
        ("size[h] += beside(size[h], 2);", ""),
        ("first + each < all ? first + each : all", "all"),
    ),
    "projected_vectors": (
        ("(remains - second) + low", "remains - second"),
        ("low += from[COLUMNS + column];", ""),
        ("lane % STEP_K / 4", "lane % 2"),
        ("sums[4] = { rows_squared", "sums[4] = { 0.5 * rows_squared"),
    ),
    "projected_rows": (
        ("low -= fma(factor, whole, -scaled);", ""),
        ("low -= factor * rest;", ""),
        ("rest += from[COLUMNS + column];", ""),
        ("column, alpha)", "column, 1)"),
        ("sum += of_rows[r][value];", "sum = of_rows[r][value];"),
        ("asked < rows ? length : 0", "length"),
        ("most_in = r;", ""),
        ("        most = of_rows[r][value];", ""),
        ("__syncthreads();", ""),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "text", "instead"), [(kernel, *pair) for kernel, pairs in MISTAKES.items() for pair in pairs], ids=lambda text: text[:40]
)
def test_mistakes_in_the_kernels_show(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, kernel: str, text: str, instead: str) -> None:
    """A product that is right to the last bit has a residual within its error; with the mistake in a kernel one of them has not."""
    right, is_changed = rendering.environment().get_template, []

    def changed(kernel_asked: Any) -> str:
        source = right(kernel_asked.template).render(kernel=kernel_asked, stored="Real", packed="Lanes")
        if kernel_asked.template == f"{kernel}.cu.j2" and text in source:
            is_changed.append(kernel_asked.name)
            return source.replace(text, instead, 1) + f"// {kernel} {text}"
        return source

    from runtime import pretended_gpu

    monkeypatch.setattr(pretended_gpu, "render", changed)
    gpu.runs = "text"
    forget()
    seen = [is_off(seed) for seed in (1, 2)]
    assert is_changed and any(seen)


def test_check_uses_them(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """`bilinear.check` of arrays of a GPU: a wrong element is found in its row, and the roundings are far below float64's."""
    a, b, c, *_ = case_of(0, (70, 100, 40), ("float64",) * 3)
    found = bilinear.check(*(OnGpu(x) for x in (a, b, c)))
    assert found.bound < 1e-15 * found.scale and found.rounding < 1e-17 * found.scale and len(gpu.launches) == 5
    c[33, 7] += 1e-6
    worse = bilinear.check(*(OnGpu(x) for x in (a, b, c)))
    assert worse.row == (33,) and worse.at_least < 1e-6 < worse.bound
