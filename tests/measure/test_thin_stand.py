"""The stand for thin products on a pretended GPU: what is timed, in which memory, and for how long."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bilinear.backends.gemm import Gemm
from bilinear.ir.kernel import ThinKernel
from bilinear.ir.matrix import Layout
from bilinear.methods.thin import rates as thin_stand
from bilinear.methods.thin.rates import TIMED_TILES, ThinBench, ThinCase, ThinStand, timed_cases
from bilinear.planner.device_files import load_device
from bilinear.planner.library_points import ORDERS, Measured
from bilinear.planner.problem import SHORT

H200 = load_device("h200")
US = {"cublas": 50.0, "cublaslt": 40.0, "thin": 30.0}
FREE = 6400  # Bytes of the pretended device, of which a quarter is for each matrix.


class Desk:
    """What was asked of the pretended GPU."""

    def __init__(self) -> None:
        self.free = FREE
        self.named: list[str] = []
        self.largest = 0
        self.called: list[tuple[int, ...]] = []
        self.proposes: Callable[[Gemm], Any] = lambda gemm: ("a", "b")
        self.built: set[ThinKernel] = set()

    def multiply_of(self, a: Layout, b: Layout, c: Layout, name: str) -> Callable[..., None]:
        self.named.append(name)
        self.largest = max(self.largest, *(x.shape[0] * x.shape[1] for x in (a, b, c)))
        return lambda *arguments: self.called.append(arguments)

    def thin_multiply_of(self, a: Layout, b: Layout, c: Layout, thin: Any) -> Callable[..., None] | None:
        return None if thin.parts > 1 else self.multiply_of(a, b, c, thin.tile)


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    found = Desk()
    memory = iter(range(16, 10**6, 16))
    array = lambda size, dtype: SimpleNamespace(data=SimpleNamespace(ptr=next(memory)), size=size)  # noqa: E731
    device = SimpleNamespace(id=0, compute_capability="90")
    cupy = SimpleNamespace(
        get_default_memory_pool=lambda: SimpleNamespace(free_all_blocks=lambda: None),
        cuda=SimpleNamespace(Device=lambda: SimpleNamespace(**vars(device), mem_info=(found.free, 10**12))),
        random=SimpleNamespace(standard_normal=array),
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(thin_stand, "multiply_of", found.multiply_of)
    monkeypatch.setattr(thin_stand, "thin_multiply_of", found.thin_multiply_of)
    monkeypatch.setattr(thin_stand, "proposed", lambda gemm, dtype, device: found.proposes(gemm))
    monkeypatch.setattr(thin_stand, "build_kernels", lambda kernels, target: found.built.update(kernels))
    monkeypatch.setattr(thin_stand, "queued", queued)
    return found


def queued(calls: Mapping[str, Callable[[], object]], rounds: int, in_a_row: int, hold: float) -> dict[str, list[float]]:
    """Milliseconds, the median of which counts."""
    return {name: [9.0, US[name] * 1e-3, 1e-9][:rounds] for name in calls}


def test_both_calls_are_timed_on_the_stands_memory(desk: Desk) -> None:
    seen: list[Gemm] = []
    desk.proposes = lambda gemm: seen.append(gemm) or ("55.11.31", "0.0.0")  # type: ignore[func-returns-value]
    stand = ThinStand("float64")
    assert stand.most_elements == FREE // 4 // 8
    assert stand.library(ThinCase((5, 7, 9), "TN")) == Measured((5, 7, 9), "TN", ("55.11.31", "0.0.0"), 50.0, 40.0)
    (own,) = seen
    assert (own.extents, own.operations, own.swaps, own.leading) == ((5, 7, 9), (1, 0), False, (9, 9, 5))
    assert desk.named == ["cublas", "cublaslt"] and desk.called == [(16, 32, 48, 1, 0)] * 2


def test_products_that_cublaslt_refuses_are_left_out(desk: Desk) -> None:
    desk.proposes = lambda gemm: None
    assert ThinStand("float32").library(ThinCase((5, 7, 9), "NN")) is None and not desk.called


def test_the_library_is_timed_until_the_time_is_over(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    now, shares = iter(np.arange(0.0, 100.0, 0.5)), list[float]()
    monkeypatch.setattr(thin_stand, "perf_counter", lambda: float(next(now)))
    desk.free = 8 * 10**6
    found = ThinBench().thin_library("float32", 2.0, shares.append)
    assert shares == [0.25, 0.5, 0.75, 1.0] and len(found) == 4
    assert 0 < desk.largest <= 500_000 and all(min(one.shape) <= 64 for one in found)


def test_the_fastest_tiles_are_built_and_timed(desk: Desk) -> None:
    desk.free = 2 * 10**9
    points = ThinBench().thin_tiles("float32", H200)
    cases = timed_cases(125_000_000)
    assert all(max(m * k, k * n, m * n) <= 125_000_000 for (m, n, k), _ in cases) and cases != timed_cases()
    assert 0 < len(points) <= TIMED_TILES * len(cases)
    assert {point.tile for point in points} <= {kernel.tile.name for kernel in desk.built} and {point.us for point in points} == {30.0}
    assert all(point.parts == 1 for point in points), "the others could not run here"
    assert {point.view.left_along for point in points} == {False, True}


def test_more_short_products_are_drawn_if_asked() -> None:
    def short(brief: float) -> int:
        cases = islice(thin_stand.drawn(1, brief=brief), 300)
        return sum(m * k + k * n + m * n < thin_stand.BRIEF and m * n * k < thin_stand.BRIEF_WORK for (m, n, k), _ in cases)

    assert short(0.0) == 0 < short(thin_stand.MOST_BRIEF) < short(1.0) / 2


def test_products_of_short_sides_alone_are_drawn() -> None:
    """`auto` runs the library on them, so its description must know them, with every order."""
    tiny = [case for case in islice(thin_stand.drawn(1, brief=1.0), 2_000) if max(case.shape) <= SHORT]
    assert len(tiny) > 10 and {case.order for case in tiny} == set(ORDERS)
    assert min(min(case.shape) for case in tiny) == 1
