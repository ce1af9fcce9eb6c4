"""Benchmarks of complex types on a pretended GPU: three real products beside the library's multiplies, each part checked."""

from __future__ import annotations

import ctypes
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from measure.bench_gpu import SLOW_LIBRARY, Gpu, pretend, rows_of
from shell import Shell

import bilinear
from bilinear.errors import BilinearError
from bilinear.ir.measurement import LeftOut
from bilinear.measure import bench, bench_library
from bilinear.measure.bench import Effort, errors_by_level, measure
from bilinear.measure.bench_check import check, fill_integers, fill_normal, wrong_libraries
from bilinear.measure.bench_tasks import AUTO, PLANNED, BenchCase, BenchTask, pinned, tasks_for
from bilinear.reporting.bench_page import workspace_share

SHAPE = (64, 65, 64)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    found = pretend(monkeypatch)
    monkeypatch.setattr(bench, "library_calls", lambda a, b, c: {"cupy": partial(found.matmul, a, b, out=c)})
    return found


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_plans_auto_and_named_algorithms_are_checked_and_timed(gpu: Gpu, dtype: str) -> None:
    planned, auto, two = rows_of(BenchTask(SHAPE, dtype, (BenchCase(), AUTO, pinned("strassen:2"))))
    assert (planned.asked, auto.asked, two.asked) == ("plan", "auto", "strassen:2")
    assert two.levels == ("strassen", "strassen") and two.plan == "strassen, 2 levels"
    for row in (planned, auto, two):
        assert row.trust.exact and row.trust.is_integral and row.trust.restored and row.trust.holds
        assert 0 <= row.trust.error <= row.trust.bound < (0.1 if dtype == "complex64" else 1e-9)
        assert row.library == "cupy" and row.ratio == pytest.approx(gpu.library_ms / row.ms)
    kinds = [launch.kind for launch in two.launches]
    assert kinds.count("products") == 1 and kinds.count("sums") == 2 and "strip" in kinds
    products = next(launch for launch in two.launches if launch.kind == "products")
    assert products.flops == 3 * 7**2 * 2 * 16**3
    element = np.dtype(dtype).itemsize
    assert workspace_share(two) == two.workspace / (64 * 64 * element) > 1


def test_only_operands_that_are_read_are_timed() -> None:
    (task,) = tasks_for("64", None, False, ("complex64",), ("plan",))
    assert task.cases == PLANNED[:1]
    real, other = tasks_for("64", None, False, ("float32", "complex64"), ("plan", "auto"))
    assert real.cases == (*PLANNED, AUTO) and other.cases == (PLANNED[0], AUTO)


def test_products_are_named_below_levels() -> None:
    for word, levels, products in (
        ("pairs", (), "pairs"),
        ("winograd+gaussian15", ("winograd",), "gaussian15"),
        ("winograd+strassen", ("winograd", "strassen"), ""),
    ):
        case = pinned(word)
        assert (case.levels, case.products, case.asked) == (levels, products, word)
    with pytest.raises(BilinearError, match="E121"):
        pinned("pairs:1")


def test_what_would_write_complex_operands_is_left_out(gpu: Gpu) -> None:
    found = list(measure([BenchTask(SHAPE, "complex128", (AUTO, pinned("msmes:1")))], SLOW_LIBRARY, Effort()))
    (left_out,) = (one for one in found if isinstance(one, LeftOut))
    assert "complex operands are only read" in left_out.why and len(found) == 2


@pytest.mark.parametrize("part", ["real", "imag"])
def test_damage_to_one_part_is_found(gpu: Gpu, part: str) -> None:
    a, b, c = (np.empty(s, "complex64") for s in ((64, 64), (64, 64), (64, 64)))

    def damaged() -> None:
        np.matmul(a, b, out=c)
        getattr(c, part)[40, 7] += 1

    def changed() -> None:
        np.matmul(a, b, out=c)
        getattr(a, part)[3, 3] += 1

    assert check(lambda: np.matmul(a, b, out=c), a, b, c, "preserve", 1e-3, True).holds
    assert not check(damaged, a, b, c, "preserve", 1e-3, True).exact
    assert not check(changed, a, b, c, "preserve", 1e-3, True).restored
    assert np.isnan(check(lambda: c.imag.fill(np.nan), a, b, c, "preserve", 1e-3, True).error)


def test_both_parts_are_filled() -> None:
    a, b = (np.zeros((20, 20), "complex64") for _ in "ab")
    kept = fill_integers(a, b, np.random.default_rng(1))
    assert len(kept) == 4 and (a.imag == kept[1]).all() and set(np.unique(b.imag)) == {-2, -1, 0, 1, 2}
    fill_normal(a, b, np.random.default_rng(1))
    assert len(np.unique(a.imag)) == 400 and not (a.real == a.imag).any()


def test_errors_by_level_are_of_algorithms_that_only_read(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bilinear.measure.bench.ERROR_SIZE", 64)
    monkeypatch.setattr("bilinear.measure.bench.MOST_ERROR_LEVELS", 1)
    points = list(errors_by_level(["complex64"], SLOW_LIBRARY))
    assert [(p.algorithm, p.levels) for p in points] == [("winograd", 0), ("winograd", 1)]
    assert 0 < points[0].error < points[1].error < points[1].bound and points[0].error < points[0].bound


@pytest.mark.parametrize(("dtype", "letter"), [("complex64", "C"), ("complex128", "Z")])
@pytest.mark.parametrize("name", ["gemm", "gemm3m"])
def test_cublas_multiplies_the_transposed_matrices(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, dtype: str, letter: str, name: str) -> None:
    memory: dict[int, Any] = {}

    class Array(np.ndarray):
        @property
        def data(self) -> Any:
            memory[self.ctypes.data] = self
            return SimpleNamespace(ptr=self.ctypes.data)

    def multiply(handle: Any, ta: int, tb: int, m: int, n: int, k: int, one: Any, x: Any, ldx: int, y: Any, ldy: int, *rest: Any) -> int:
        zero, z, ldz = rest
        left, right, result = (memory[p.value].reshape(-1, ld).T for p, ld in ((x, ldx), (y, ldy), (z, ldz)))
        assert (ta, tb, left.shape, right.shape, result.shape) == (0, 0, (m, k), (k, n), (m, n))
        part = ctypes.c_float if letter == "C" else ctypes.c_double
        assert [ctypes.cast(f, ctypes.POINTER(part))[0] for f in (one, zero)] == [1, 0]
        result[...] = left @ right
        return 0

    asked = f"cublas{letter}{name}{'_v2' if name == 'gemm' else ''}"
    monkeypatch.setattr(bench_library, "_loaded_cublas", lambda: SimpleNamespace(**{asked: multiply}))
    gpu.cuda.Device = lambda: SimpleNamespace(cublas_handle=1)
    a, b, c = (np.empty(shape, dtype).view(Array) for shape in ((5, 3), (3, 4), (5, 4)))
    calls = bench_library.library_calls(a, b, c)
    assert set(calls) >= {"cupy", "gemm", "gemm3m"} and "cublas" not in calls
    assert not wrong_libraries({name: calls[name]}, a, b, c)


def test_the_command_times_complex_types(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shell = Shell(monkeypatch, capsys)
    monkeypatch.setattr("bilinear.backends.doctor.why_no_gpu", lambda: None)
    status, out, err = shell("bench", "--shape", "64", "--dtype", "complex64", "--algorithms", "auto,winograd:1", "--rounds", "3")
    assert status == 0, err
    assert out.count("complex64") == 2 and "winograd, 1 level" in out and "NO" not in out


@pytest.mark.parametrize("levels", [("winograd",), ("strassen", "winograd")])
def test_a_plan_of_levels_runs_them(gpu: Gpu, levels: tuple[str, ...]) -> None:
    """The same as naming the algorithm; its bound holds for each part."""
    plan = bilinear.plan(64, 64, 64, "complex128", device=SLOW_LIBRARY, levels=levels)
    assert plan.chosen.levels == levels and plan.chosen.workspace and plan.chosen.error and plan.chosen.ms and plan.chosen.probable
    generator = np.random.default_rng(2)
    a, b = (generator.integers(-9, 10, (2, 64, 64)) for _ in "ab")
    x, y = (z[0] + 1j * z[1] for z in (a, b))
    assert (bilinear.matmul(x, y, plan=plan) == x @ y).all()
    with pytest.raises(BilinearError, match="E543"):
        bilinear.plan(64, 64, 64, "complex128", device=SLOW_LIBRARY, levels=levels, workspace=8)
    with pytest.raises(BilinearError, match="E785"):
        bilinear.plan(64, 64, 64, "complex128", device=SLOW_LIBRARY, levels=("msmes",), inputs="restore")
