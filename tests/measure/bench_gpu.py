"""A GPU that is pretended for benchmarks: NumPy's arrays, and a clock that launches and the library's multiplies move by known times."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bilinear.backends import timing as bench_timing
from bilinear.backends.numpy_executor import NumpyExecutor
from bilinear.ir.measurement import Measurement
from bilinear.measure import bench, bench_library
from bilinear.measure.bench import Effort, measure
from bilinear.measure.bench_tasks import BenchTask
from bilinear.planner import choose
from bilinear.planner.device import Policy
from bilinear.planner.device_files import load_device
from bilinear.planner.problem import Problem
from bilinear.planner.ways import Way
from bilinear.runtime import accept, ahead, auto, call, decide, devices_here, run
from bilinear.runtime.arrays import Kind

H200 = replace(load_device("h200"), thin=(), policy=Policy(least_block=32))
SLOW = ((1.0, 0.001),)
SLOW_LIBRARY = replace(H200, digits=(), elements=tuple((dtype, replace(rates, library=SLOW)) for dtype, rates in H200.elements))
"""A device on which every fast scheme is predicted to win."""


class Gpu(ModuleType):
    """As much of CuPy as a benchmark uses."""

    def __init__(self) -> None:
        super().__init__("cupy")
        self.now = 0.0
        self.library_ms = 6.0
        self.launch_ms = 1.0
        self.held: list[float] = []
        self.damage: Callable[[Any, Any, Any], None] = lambda a, b, c: None
        self.__version__ = "pretended"
        self.nan, self.empty, self.random = np.nan, np.empty, np.random
        self.ndarray = type("ndarray", (), {})
        properties = {"name": b"a pretended GPU", "maxThreadsPerMultiProcessor": 2048, "warpSize": 32, "regsPerMultiprocessor": 65536}
        properties |= {"sharedMemPerMultiprocessor": 233472, "sharedMemPerBlockOptin": 232448, "reservedSharedMemPerBlock": 1024}
        versions = {"runtimeGetVersion": lambda: 13000, "driverGetVersion": lambda: 13000}
        self.error: Exception | None = None
        """What a kernel that failed has the GPU say wherever it is waited for."""
        runtime = SimpleNamespace(
            getDeviceProperties=lambda index: properties, streamIsCapturing=lambda stream: False, deviceSynchronize=self.wait, **versions
        )
        stream = SimpleNamespace(synchronize=lambda: None, ptr=0)
        device = SimpleNamespace(id=0, compute_capability="90", pci_bus_id="0000:00:00.0")
        elapsed = lambda start, end: end.at - start.at  # noqa: E731
        self.cuda = SimpleNamespace(
            Event=lambda: Event(self),
            get_elapsed_time=elapsed,
            get_current_stream=lambda: stream,
            Device=lambda: device,
            runtime=runtime,
        )

    def wait(self) -> None:
        if self.error is not None:
            raise self.error

    def get_default_memory_pool(self) -> Any:
        return SimpleNamespace(free_all_blocks=lambda: None)

    def matmul(self, a: Any, b: Any, out: Any = None) -> Any:
        self.now += self.library_ms
        return np.matmul(a, b, out=out)

    def RawKernel(self, text: str, name: str) -> Any:  # CuPy's name
        return lambda blocks, threads, arguments: self.held.append(int(arguments[0]) / bench_timing.CYCLES_PER_MS)


@dataclass
class Event:
    """A moment of the pretended clock."""

    gpu: Gpu
    at: float = 0.0
    done: bool = False

    def record(self) -> None:
        self.at = self.gpu.now

    def synchronize(self) -> None:
        self.gpu.wait()


def few_ways(problem: Problem) -> tuple[Way, ...]:
    """One plan with a workspace, one in place: what is weighed here, so that nothing else needs to be lowered."""
    return (Way(("winograd",)), *((Way(("msmes",), "restore"),) if problem.inputs == "restore" else ()))


class Timed(NumpyExecutor):
    """Moves the clock with every launch; may do damage after the last one."""

    def __init__(self, gpu: Gpu) -> None:
        super().__init__()
        self._gpu = gpu

    def steps(self, plan: Any, stages: Any, spaces: Any, alpha: Any, beta: Any) -> Any:
        found = super().steps(plan, stages, spaces, alpha, beta)

        def timed(step: Any, is_last: bool) -> Any:
            def run() -> None:
                self._gpu.now += self._gpu.launch_ms
                step()
                if is_last:
                    self._gpu.damage(*(spaces[name].memory for name in "ABC"))

            return run

        return [timed(step, i + 1 == len(found)) for i, step in enumerate(found)]


def pretend_accepted(monkeypatch: pytest.MonkeyPatch, kind: Kind) -> None:
    """Until the test ends, arrays that `matmul` accepts are of this kind; those of other calls are what they are."""

    @contextmanager
    def accepted(*arrays: Any, **options: Any) -> Iterator[accept.Given]:
        with accept.accepted(*arrays, **options) as given:
            yield given._replace(kind=kind)

    monkeypatch.setattr(call, "accepted", accepted)


def pretend(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """Until the test ends, NumPy's arrays lie on a GPU, and blocks of 32 are weighed."""
    gpu = Gpu()
    arrays: Any = SimpleNamespace(matmul=gpu.matmul, empty=np.empty, ndarray=np.ndarray, asarray=np.asarray)
    monkeypatch.setitem(sys.modules, "cupy", gpu)
    pretend_accepted(monkeypatch, Kind(arrays, True, lambda result: result))
    for user in (run, bench):
        monkeypatch.setattr(user, "make_executor", lambda kind: Timed(gpu))
    monkeypatch.setattr(devices_here, "current_device", lambda: SLOW_LIBRARY)
    monkeypatch.setattr(bench, "why_no_gpu", lambda: None)
    told = {"clocks.sm": "1755 MHz", "power.draw": "612.30 W", "temperature.gpu": "64"}
    told |= {"driver_version": "580.1", "clocks.max.sm": "1980 MHz", "power.limit": "700 W"}
    monkeypatch.setattr(bench_library, "_query", lambda names: ["echo", ", ".join(told[name] for name in names)])
    monkeypatch.setattr(ahead, "build_kernels", lambda kernels, target, progress: ())
    monkeypatch.setattr(choose, "ways", few_ways)
    monkeypatch.delenv("BILINEAR_USE_LIBRARY", raising=False)
    for cached in (choose.make_plan, auto._chosen, auto._logged, devices_here._identity, bench_timing._holder):
        cached.cache_clear()
    decide._decisions.clear()
    return gpu


def rows_of(*tasks: BenchTask, effort: Effort | None = None) -> list[Measurement]:
    found = list(measure(tasks, SLOW_LIBRARY, effort or Effort()))
    assert all(isinstance(one, Measurement) for one in found), found
    return [one for one in found if isinstance(one, Measurement)]
