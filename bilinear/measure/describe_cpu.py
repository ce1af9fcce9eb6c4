"""Describe processors: measure what planning needs of NumPy's multiply and of the schedules on it, in a few minutes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate, product
from statistics import median
from time import perf_counter

import numpy as np

from bilinear.codegen.build import Progress, no_progress
from bilinear.ir.element import ELEMENTS, IN_ARRAYS
from bilinear.lowering.place import place_schedule
from bilinear.planner.cpu import Cpu, CpuRates, library_seconds, way_seconds
from bilinear.planner.device import Table
from bilinear.planner.model import LinearWork
from bilinear.planner.problem import Problem
from bilinear.planner.profiles import outline
from bilinear.planner.ways import Way, lowered

SIZES = (128, 256, 512, 1024, 2048, 4096)  # Of NumPy's multiply.
STREAMED = tuple(Way((name,)) for name in ("winograd_depth_first", "r_s_mm", "w_mm", "s_mm"))
STREAMED_SIZE, TINY = 2048, 64
CHECKED = tuple(Way(levels) for name in ("winograd_depth_first", "w_mm", "r_s_mm") for levels in ((name,), (name, name)))
CHECKED_SIZES = (512, 1024, 2048)  # Whole multiplies that are compared with the model.
LEAST_BLOCK = 256
TOUCHED = 2**28
LEAST = 1e-9  # Seconds; no difference of two times is less.


def tune_cpu(progress: Progress = no_progress, bench: CpuBench | None = None) -> Cpu:
    """The description of the processors here, measured now; nothing else should run on them. `progress` is called with (what, done, of)."""
    bench, of = CpuBench() if bench is None else bench, len(IN_ARRAYS) + 1
    progress("memory", 0, of)
    first, again = bench.touch(TOUCHED)
    touching = TOUCHED * 1e-9 / max(first - again, LEAST)
    stages = [
        s
        for way in STREAMED
        for w, s in zip(lowered(way)[1].works, bench.stages(way, TINY, "float32"), strict=True)
        if isinstance(w, LinearWork)
    ]
    cpu = Cpu(*bench.facts(), stage=1e6 * median(stages), touching=touching, elements=())
    elements = []
    for number, dtype in enumerate(IN_ARRAYS):
        progress(f"products of {dtype}", 1 + number, of)
        elements.append((dtype, _rates(bench, cpu, dtype)))
    progress("done", of, of)
    return replace(cpu, elements=tuple(elements))


def _rates(bench: CpuBench, cpu: Cpu, dtype: str) -> CpuRates:
    measured = [2e-9 * n**3 / bench.library(n, dtype) for n in SIZES]
    fastest = accumulate(measured, max)  # a falling rate means that the measurement was disturbed; schedules would seem to gain
    rates = CpuRates(tuple(zip(map(float, SIZES), fastest, strict=True)), _streaming(bench, cpu, dtype), ((1.0, 1.0),))
    found: dict[float, list[float]] = {}
    for way, size in product(CHECKED, CHECKED_SIZES):
        block = size // lowered(way)[0].m
        if block >= LEAST_BLOCK:
            own = outline(way)
            placement = own.placed(Problem(size, size, size, dtype), ELEMENTS[dtype].bytes)
            expected = way_seconds(own.profile, placement, dtype, cpu, rates, is_warm=True) / library_seconds((size, size, size), rates)
            found.setdefault(float(block), []).append(bench.beside(way, size, dtype) / expected)
    return CpuRates(rates.library, rates.streaming, tuple((block, max(1.0, *found[block])) for block in sorted(found)))


def _streaming(bench: CpuBench, cpu: Cpu, dtype: str) -> Table:
    """GB/s of linear stages by the number of blocks of a place; the median of those with equally many."""
    found: dict[float, list[float]] = {}
    for way in STREAMED:
        schedule, profile = lowered(way)
        size = (STREAMED_SIZE // schedule.m) ** 2 * ELEMENTS[dtype].bytes
        for work, seconds in zip(profile.works, bench.stages(way, STREAMED_SIZE, dtype), strict=True):
            if isinstance(work, LinearWork):
                streams = max(part.sources + part.targets for part in work.parts)
                moved = sum(part.places * (part.sources + part.targets) for part in work.parts) * size
                found.setdefault(float(streams), []).append(moved * 1e-9 / max(seconds - cpu.stage * 1e-6, LEAST))
    return tuple((streams, median(found[streams])) for streams in sorted(found))


class CpuBench:
    """Times here, in seconds: the median of a few runs after some that are not counted; for the library the least of them."""

    rounds, least, long = 5, 0.02, 0.5

    def facts(self) -> tuple[str, str, int]:
        """The processors, the library behind NumPy, by the names for which a description is looked for; and the bytes of memory."""
        from bilinear.backends.machine import cpu_name, library_name, memory_bytes

        return cpu_name(), library_name(), memory_bytes()

    def library(self, size: int, dtype: str) -> float:
        """`numpy.matmul` of two square matrices."""
        a, b, c = _operands(size, dtype)
        return self._seconds(lambda: np.matmul(a, b, out=c), min)

    def stages(self, way: Way, size: int, dtype: str) -> list[float]:
        """Each stage of a way on square matrices, by the engine that runs it in a multiply, in a workspace that was written before."""
        from bilinear.backends.executor import allocate_workspace, lay_out
        from bilinear.backends.numpy_executor import NumpyExecutor
        from bilinear.ir.matrix import call_of

        schedule, (a, b, c) = lowered(way)[0], _operands(size, dtype)
        executor, placement = NumpyExecutor(), place_schedule(schedule, size, size, size, a.itemsize)
        buffer = allocate_workspace(executor, placement, c.dtype)
        steps = executor.steps(placement, schedule.stages, lay_out(placement, call_of(a, b, c, workspace=buffer)), 1, 0)
        for step in steps:
            step()
        return [self._seconds(step) for step in steps]

    def beside(self, way: Way, size: int, dtype: str) -> float:
        """The time of a way in a kept workspace over that of NumPy's multiply: whole calls in turn, so that both see the same machine."""
        from bilinear.runtime.matmul import matmul

        a, b, c = _operands(size, dtype)
        placement = outline(way).placed(Problem(size, size, size, dtype), a.itemsize)
        kept = np.zeros(placement.workspace_elements * a.itemsize, np.uint8)
        name, levels = way.levels[0], len(way.levels)
        calls = (lambda: matmul(a, b, c, algorithm=name, levels=levels, workspace=kept)), (lambda: np.matmul(a, b, out=c))
        times = [[_timed(call) for call in calls] for _ in range(self.rounds + 1)][1:]
        return median(ours for ours, _ in times) / median(theirs for _, theirs in times)

    def touch(self, count: int) -> tuple[float, float]:
        """To allocate and write `count` bytes, and to write them again."""
        start = perf_counter()
        memory = np.empty(count, np.uint8)
        memory.fill(1)
        return perf_counter() - start, self._seconds(lambda: memory.fill(2))

    def _seconds(self, call: Callable[[], object], of: Callable[[list[float]], float] = median) -> float:
        """Seconds of one call, repeated in a row until the calls take at least `least`."""
        once = _timed(call)
        times = max(1, int(self.least / max(min(once, _timed(call)), LEAST)))
        return of([_timed(lambda: [call() for _ in range(times)]) for _ in range(2 if once > self.long else self.rounds)]) / times


def _timed(call: Callable[[], object]) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start


def _operands(size: int, dtype: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(1)
    a, b = (generator.standard_normal((size, size)).astype(dtype) for _ in range(2))
    return a, b, np.zeros((size, size), dtype)
