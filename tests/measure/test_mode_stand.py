"""Pilots of execution modes on a pretended GPU: what is timed was built, is exact, and is replayed as a graph if it is small."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from runtime.pretended_gpu import Array, Gpu, pretend

from bilinear.codegen.render import render
from bilinear.emulator import skip_reason
from bilinear.errors import BilinearError
from bilinear.ir.placement import GROUPS, ITEMS
from bilinear.measure import mode_stand
from bilinear.measure.device_bench import GpuBench
from bilinear.measure.mode_pilots import SMALL_SIZE, Pilot, PilotPlan, pilots

pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=str(skip_reason()))
EACH_US = 7.0


class Stream:
    """A stream whose launches are replayed as a graph if they were captured. As on a GPU, what is captured does not run."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def begin_capture(self) -> None:
        self._desk.captured = []

    def end_capture(self) -> Any:
        captured, self._desk.captured = self._desk.captured or [], None

        def replay() -> None:
            for launch in captured:
                self._desk.launch(*launch)

        return SimpleNamespace(launch=replay)


class Desk:
    """What was built and timed."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.built: set[str] = set()
        self.timed: list[int] = []
        """How many launches each timed call made."""
        self.pilots: list[tuple[Any, ...]] = []
        """The arguments of the pilot kernel."""
        self.captured: list[tuple[int, ...]] | None = None
        """Launches since the capture began."""

    def launch(self, *launch: int) -> None:
        """`cuLaunchKernel`."""
        if self.captured is None:
            self.gpu.launch(*launch)
        else:
            self.captured.append(launch)

    def queued(self, calls: Mapping[Any, Callable[[], object]], rounds: int, in_a_row: int) -> dict[Any, list[float]]:
        """Milliseconds, whose median counts: each call takes `EACH_US` more than the one before."""
        for call in calls.values():
            before = len(self.gpu.launches)
            call()
            self.timed.append(len(self.gpu.launches) - before)
        return {key: [1e9, 1e-3 * EACH_US * (i + 1), 0.0] for i, key in enumerate(calls)}


class Generator:
    """CuPy's generator of random numbers."""

    def __init__(self, seed: int) -> None:
        self._host = np.random.default_rng(seed)

    def integers(self, low: int, high: int, shape: tuple[int, int]) -> Array:
        return Array(self._host.integers(low, high, shape))

    def standard_normal(self, shape: tuple[int, int], dtype: Any) -> Array:
        return Array(self._host.standard_normal(shape, dtype=dtype))


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    found = Desk(pretend(monkeypatch))
    cupy, cuda = sys.modules["cupy"], sys.modules["cupy.cuda"]
    monkeypatch.setattr(cupy, "nan", np.nan, raising=False)
    monkeypatch.setattr(cupy, "random", SimpleNamespace(default_rng=Generator), raising=False)
    monkeypatch.setattr(cupy, "get_default_memory_pool", lambda: SimpleNamespace(free_all_blocks=lambda: None), raising=False)
    monkeypatch.setattr(cupy, "RawKernel", lambda text, name: lambda *launch: found.pilots.append(launch), raising=False)
    monkeypatch.setattr(cuda, "Stream", lambda non_blocking: Stream(found))
    monkeypatch.setattr(cuda.driver, "launchKernel", found.launch)
    cuda.Device().synchronize = lambda: None
    monkeypatch.setattr(mode_stand, "build_all", lambda requests: found.built.update(source for source, _, _ in requests))
    monkeypatch.setattr(mode_stand, "queued", found.queued)
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_each_stage_of_a_plan_is_timed(desk: Desk, dtype: str) -> None:
    assert GpuBench().pilot_plan(PilotPlan(ITEMS, dtype, 64)) == pytest.approx([EACH_US, 2 * EACH_US, 3 * EACH_US])
    assert len(desk.timed) == 3 and 2 * sum(desk.timed) == len(desk.gpu.launches), "each stage ran in the check, too"
    assert {render(kernel) for _, kernel, _ in desk.gpu.functions.values()} == desk.built, "what ran had been built"


def test_a_small_plan_is_timed_as_a_graph(desk: Desk) -> None:
    assert GpuBench().pilot_plan(PilotPlan(GROUPS, "float32", SMALL_SIZE)) == pytest.approx([EACH_US])
    (launches,) = desk.timed
    assert launches > 1 and len(desk.gpu.launches) == 3 * launches, "ahead of the capture, in the check, and timed"


def test_a_graph_that_computes_nothing_is_refused(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """C is right after the call ahead of the capture, so it must be undone before the check."""
    monkeypatch.setattr(Stream, "end_capture", lambda self: SimpleNamespace(launch=lambda: None))
    with pytest.raises(BilinearError, match="E685"):
        GpuBench().pilot_plan(PilotPlan(GROUPS, "float32", SMALL_SIZE))


def test_a_plan_that_multiplies_wrongly_is_refused(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    multiply = desk.gpu.matmul

    def off_by_one(a: Array, b: Array) -> Array:
        wanted = multiply(a, b)
        wanted.host[-1, -1] += 1
        return wanted

    monkeypatch.setattr(sys.modules["cupy"], "matmul", off_by_one)
    with pytest.raises(BilinearError) as caught:
        GpuBench().pilot_plan(PilotPlan(ITEMS, "float32", 64))
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "E685" and diagnostic.message == "the pilot of float32 in mode S-M-T, size 64, is not exact on integers"
    assert not desk.timed


def test_the_pilot_kernel_runs_as_each_pilot_says(desk: Desk) -> None:
    runs = pilots(132)
    assert list(GpuBench().pilots(runs)) == list(runs)
    touched = 0
    for run, ((groups,), (items,), (x, y, each, apart)) in zip(runs, desk.pilots, strict=True):
        assert run == Pilot(groups, items, int(each), bool(apart)) and x.shape == y.shape
        touched = max(touched, run.groups * run.items * run.each)
    assert (touched,) == desk.pilots[0][2][0].shape
