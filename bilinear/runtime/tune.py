"""Tune: measure what the description of a device needs, in about a minute."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from bilinear.codegen.program import ELEMENTS, Progress, no_progress
from bilinear.codegen.schedule_to_launches import TILES
from bilinear.errors import fail
from bilinear.ir.schedule import LinearStage, Schedule
from bilinear.planner.choose import lowered
from bilinear.planner.device import Device, ElementRates, Table
from bilinear.planner.model import ITEMSIZE, Extents, LinearWork, Part, ProductWork, linear_seconds, product_seconds, stage_seconds
from bilinear.planner.plan import make_plan
from bilinear.planner.prepare import plain

SIZES = (256, 512, 1024, 2048, 3072, 4096, 8192, 16384)
LEAST_PRODUCT = 1024
"""Below this size the product kernel does not fill a device, and its rate is not asked for."""
DEPTHS = (512, 4096)
STREAMED = (("msmes", 1, "restore"), ("winograd", 1, "preserve"), ("winograd", 2, "preserve"), ("msmes", 3, "restore"))
STREAMED_SIZE = 8192
COPIED = 2**30
SHARE_OF_MEMORY = 0.5
UNKNOWN = 1.0


@dataclass(frozen=True)
class Facts:
    """What the driver says of a device."""

    name: str
    processors: int
    memory: int
    l2: int


class Bench(Protocol):
    """Where times come from, all in seconds of the device."""

    def facts(self) -> Facts:
        """What the driver says."""

    def product(self, extents: Extents, dtype: str) -> float:
        """The plain product kernel on a multiply of these extents."""

    def library(self, extents: Extents, dtype: str) -> float:
        """The library's own multiply."""

    def linear(self, schedule: Schedule, size: int, dtype: str) -> list[float]:
        """Each linear stage of a schedule for square matrices."""

    def copy(self, count: int) -> float:
        """A copy of so many bytes."""

    def call(self) -> float:
        """A whole call of `bilinear.matmul` on matrices so small that nothing else counts."""


def tune(progress: Progress = no_progress, bench: Bench | None = None) -> Device:
    """The description of the current GPU, measured now; nothing else should run on it.

    `progress` is called with (what, done, of). Raises `BilinearError` (E512) without CuPy, and CuPy's errors where there is no GPU.
    """
    bench = _gpu_bench() if bench is None else bench
    facts, of = bench.facts(), 5
    progress("memory", 0, of)
    rates = {dtype: _start_of(dtype) for dtype in ITEMSIZE}
    bandwidth = 2 * COPIED / bench.copy(COPIED) * 1e-9
    launch = bench.product((16, 16, 16), "float32") * 1e6
    device = Device(facts.name, facts.processors, facts.memory, facts.l2, bandwidth, ((1.0, 1.0),), launch, 1.0, 1.0, *rates.values())
    progress("linear kernels", 1, of)
    device = replace(device, streaming=_streaming(bench, device))
    for i, dtype in enumerate(ITEMSIZE):
        progress(f"products of {dtype}", 2 + i, of)
        device = replace(device, **{dtype: _rates(bench, device, dtype)})  # type: ignore[arg-type]  # the field of this name
    progress("calls", 4, of)
    return replace(device, call=max(1.0, bench.call() * 1e6 - 3 * launch), scan=2 * launch + 10)


def _start_of(dtype: str) -> ElementRates:
    """The tile, and rates that are yet to be measured."""
    tile = TILES[ELEMENTS[dtype]]
    return ElementRates((tile.m, tile.n), tile.blocks or 1, 0.0, 0.5, 1.0, ((1.0, UNKNOWN),), ((1.0, UNKNOWN),))


def _rates(bench: Bench, device: Device, dtype: str) -> ElementRates:
    """The rates of one element type: first what a tile costs, then how long large multiplies take beside that."""
    rates = device.rates(dtype)
    rows, columns = rates.tile
    full = device.processors * rates.blocks
    shallow, deep = (bench.product((full * rows, depth, columns), dtype) for depth in DEPTHS)
    step = (deep - shallow) / (DEPTHS[1] - DEPTHS[0])
    start = max(0.0, (shallow - device.launch * 1e-6) / step - DEPTHS[0])
    single = bench.product((device.processors * rows, DEPTHS[1], columns), dtype)
    lone = min(1.0, max(1 / rates.blocks, deep / (rates.blocks * single)))
    rates = replace(rates, start=start, lone=lone)
    device = replace(device, **{dtype: rates})  # type: ignore[arg-type]  # the field of this name
    sizes = [n for n in SIZES if 3 * n * n * ITEMSIZE[dtype] < SHARE_OF_MEMORY * device.memory]
    product = tuple((float(n), _product_rate(device, dtype, n, bench.product((n, n, n), dtype))) for n in sizes if n >= LEAST_PRODUCT)
    library = tuple((float(n), 2e-12 * n**3 / (bench.library((n, n, n), dtype) - device.launch * 1e-6)) for n in sizes)
    aligned, odd = (bench.product((4096, n, n), dtype) / n**2 for n in (4096, 4097))
    return replace(rates, product=product, library=library, unaligned=min(1.0, aligned / odd))


def _product_rate(device: Device, dtype: str, n: int, seconds: float) -> float:
    """TFLOP/s of a full device that make the model's time of a product the measured one."""
    work = ProductWork(1, 0, 1)
    unit = product_seconds(work, (n, n, n), dtype, replace(device, bandwidth=1e12, launch=0.0), n)  # at UNKNOWN TFLOP/s
    return UNKNOWN * unit / (seconds - device.launch * 1e-6)


def _streaming(bench: Bench, device: Device) -> Table:
    """The share of the bandwidth by the number of streams, of the linear stages of a few schedules."""
    found: dict[float, list[float]] = {}
    for way in STREAMED:
        schedule, profile = lowered(*way)
        works = [work for work in profile.works if isinstance(work, LinearWork)]
        block = (STREAMED_SIZE // schedule.m,) * 3
        for work, seconds in zip(works, bench.linear(schedule, STREAMED_SIZE, "float64"), strict=True):
            expected = linear_seconds(work, block, "float64", replace(device, launch=0.0))
            share = min(1.0, expected / (seconds - device.launch * 1e-6))
            found.setdefault(float(max(map(_streams, work.parts))), []).append(share)
    return tuple((key, statistics.median(found[key])) for key in sorted(found))


def _streams(part: Part) -> int:
    return part.sources + part.targets


def _gpu_bench() -> Bench:
    try:
        import cupy  # noqa: F401  # asked for here, so that its absence is told at once
    except ImportError:
        hint = "pip install 'bilinear[cuda13]' (or cuda12, after the driver's version)"
        raise fail("E512", "tuning measures a GPU, but CuPy is not installed", hint) from None
    return GpuBench()


class GpuBench:
    """Times of the current GPU, by events; each the median of a few runs after one that is not counted."""

    repeats = 5

    def facts(self) -> Facts:
        """What the driver says."""
        import cupy

        p = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
        return Facts(p["name"].decode(), int(p["multiProcessorCount"]), int(p["totalGlobalMem"]), int(p["l2CacheSize"]))

    def product(self, extents: Extents, dtype: str) -> float:
        """The plain product kernel."""
        a, b, c = _operands(extents, dtype)
        schedule = plain().schedule
        (step,) = _steps(schedule, a, b, c)
        return self._seconds(step, 50 if extents[0] < 256 else 1)

    def library(self, extents: Extents, dtype: str) -> float:
        """`cupy.matmul`."""
        import cupy

        a, b, c = _operands(extents, dtype)
        return self._seconds(lambda: cupy.matmul(a, b, out=c), 50 if extents[0] < 1024 else 1)

    def linear(self, schedule: Schedule, size: int, dtype: str) -> list[float]:
        """Each linear stage."""
        steps = _steps(schedule, *_operands((size, size, size), dtype))
        chosen = [step for step, stage in zip(steps, schedule.stages, strict=True) if isinstance(stage, LinearStage)]
        return [self._seconds(step, 1) for step in chosen]

    def copy(self, count: int) -> float:
        """A copy on the device."""
        import cupy

        x, y = (cupy.zeros(count // 8) for _ in range(2))
        return self._seconds(lambda: cupy.copyto(y, x), 1)

    def call(self) -> float:
        """A small multiply by Strassen's scheme."""
        import bilinear

        a, b, c = _operands((64, 64, 64), "float32")
        return self._seconds(lambda: bilinear.matmul(a, b, c, algorithm="strassen", levels=1), 1)

    def _seconds(self, call: Callable[[], Any], times: int) -> float:
        """Seconds of one of `times` calls in a row."""
        import cupy

        call()
        found = []
        for _ in range(self.repeats):
            start, end = cupy.cuda.Event(), cupy.cuda.Event()
            start.record()
            for _ in range(times):
                call()
            end.record()
            end.synchronize()
            found.append(cupy.cuda.get_elapsed_time(start, end) * 1e-3 / times)
        return float(statistics.median(found))


def _operands(extents: Extents, dtype: str) -> tuple[Any, Any, Any]:
    import cupy

    m, k, n = extents
    cupy.get_default_memory_pool().free_all_blocks()
    generator = cupy.random.default_rng(1)
    return generator.standard_normal((m, k), dtype=dtype), generator.standard_normal((k, n), dtype=dtype), cupy.zeros((m, n), dtype)


def _steps(schedule: Schedule, a: Any, b: Any, c: Any) -> list[Callable[[], None]]:
    """The launches of a schedule on these arrays."""
    from bilinear.runtime.cuda_executor import CudaExecutor
    from bilinear.runtime.executor import allocate_workspace, lay_out

    executor = CudaExecutor()
    plan = make_plan(schedule, a.shape[0], a.shape[1], b.shape[1], a.itemsize)
    buffer = allocate_workspace(executor, plan, c)
    return executor.steps(plan, schedule.stages, lay_out(plan, a, b, c, buffer), 1, 0)
