"""The times from which a device is described: the interface, the current GPU's, and times that are kept in a file meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from bilinear.analysis.identity import schedule_hash
from bilinear.backends.machine import target_here
from bilinear.backends.timing import in_a_queue, settled
from bilinear.codegen.build import build_kernels
from bilinear.codegen.lower import schedule_to_launches
from bilinear.errors import fail, install
from bilinear.ir.element import ELEMENTS
from bilinear.ir.matrix import Array
from bilinear.ir.schedule import Schedule
from bilinear.ir.tile import MOST_SHARED_BYTES, USUAL
from bilinear.lowering.place import place_schedule
from bilinear.lowering.prepare import plain
from bilinear.methods.digits.rates import DigitBench, DigitCase, DigitTimes, able_digits, build_digits, time_digits
from bilinear.methods.rounded.launches import time_rounded
from bilinear.methods.rounded.method import RoundedBench
from bilinear.methods.thin.choice import View
from bilinear.methods.thin.rates import ThinBench, ThinPoint, time_library, time_tiles
from bilinear.planner.device import Device, Extents
from bilinear.planner.library_points import Measured
from bilinear.reading import read_bounded
from bilinear.resources import implementation_sha256
from bilinear.runtime.matmul import matmul


@dataclass(frozen=True)
class Facts:
    """What the driver reports about a device."""

    name: str
    processors: int
    memory: int
    l2: int
    shared: int = MOST_SHARED_BYTES
    """The shared memory that a block of threads can have."""
    capability: int = 90
    """The compute capability, times ten."""


class DeviceTimes(ThinBench, DigitBench, RoundedBench, Protocol):
    """A source of times, all in seconds on the device."""

    def facts(self) -> Facts:
        """What the driver reports."""

    def build(self, products: Sequence[tuple[Schedule, str, str]]) -> None:
        """Build the kernels of schedules for an element type and a tile, which are timed next."""

    def product(self, extents: Extents, dtype: str, tile: str = USUAL, number: int = 0) -> float:
        """The plain product kernel in a tile, on a multiply of these extents, in the round of this number."""

    def burst(self, extents: Extents, dtype: str, tile: str) -> float:
        """The same where power does not limit it yet."""

    def library(self, extents: Extents, dtype: str, number: int = 0) -> float:
        """The library's own multiply, in the round of this number."""

    def stages(self, schedule: Schedule, size: int, dtype: str, tile: str = USUAL) -> list[float]:
        """Each stage of a schedule for square matrices, with products in a tile."""

    def copy(self, count: int) -> float:
        """A copy of `count` bytes."""

    def call(self) -> float:
        """A whole call of `bilinear.matmul` on matrices so small that only overhead counts."""


def gpu_bench() -> DeviceTimes:
    """The times of the current GPU; E512 without CuPy."""
    try:
        import cupy  # noqa: F401  # imported here, so that a missing CuPy is reported at once
    except ImportError:
        hint = f"{install('cuda13')} (or cuda12, after the driver's version)"
        raise fail("E512", "tuning measures a GPU, but CuPy is not installed", hint) from None
    return GpuBench()


class GpuBench:
    """Times on the current GPU alone, without the host's; each is a median, under the power that long work has."""

    thin_tiles, thin_library = staticmethod(time_tiles), staticmethod(time_library)
    able_digits, build_digits, rounded = staticmethod(able_digits), staticmethod(build_digits), staticmethod(time_rounded)

    def facts(self) -> Facts:
        """What the driver reports."""
        import cupy

        device = cupy.cuda.Device()
        p, shared = cupy.cuda.runtime.getDeviceProperties(device.id), int(device.attributes["MaxSharedMemoryPerBlockOptin"])
        counts = int(p["multiProcessorCount"]), int(p["totalGlobalMem"]), int(p["l2CacheSize"])
        return Facts(p["name"].decode(), *counts, shared, int(device.compute_capability))

    def product(self, extents: Extents, dtype: str, tile: str = USUAL, number: int = 0) -> float:
        """The plain product kernel."""
        (step,) = _steps(plain().schedule, *_operands(extents, dtype), tile)
        return self._seconds(step)

    def burst(self, extents: Extents, dtype: str, tile: str) -> float:
        """The same in a queue of a few."""
        (step,) = _steps(plain().schedule, *_operands(extents, dtype), tile)
        return 1e-3 * in_a_queue(step)

    def library(self, extents: Extents, dtype: str, number: int = 0) -> float:
        """`cupy.matmul`."""
        import cupy

        a, b, c = _operands(extents, dtype)
        return self._seconds(lambda: cupy.matmul(a, b, out=c))

    def stages(self, schedule: Schedule, size: int, dtype: str, tile: str = USUAL) -> list[float]:
        """Each stage."""
        return [self._seconds(step) for step in _steps(schedule, *_operands((size, size, size), dtype), tile)]

    def copy(self, count: int) -> float:
        """A copy on the device."""
        import cupy

        x, y = (cupy.zeros(count // 8) for _ in range(2))
        return self._seconds(lambda: cupy.copyto(y, x))

    def call(self) -> float:
        """A small multiply by Strassen's scheme."""
        a, b, c = _operands((64, 64, 64), "float32")
        return self._seconds(lambda: matmul(a, b, c, algorithm="strassen", levels=1))

    def digits(self, case: DigitCase, number: int) -> DigitTimes | None:
        """The launches that `matmul` runs."""
        return time_digits(case)

    def build(self, products: Sequence[tuple[Schedule, str, str]]) -> None:
        """Build several kernels at once."""
        own = [launch for schedule, dtype, tile in products for launch in schedule_to_launches(schedule, ELEMENTS[dtype], tile)]
        build_kernels([*dict.fromkeys(launch.kernel for launch in own)], target_here())

    def _seconds(self, call: Callable[[], object]) -> float:
        """Seconds of a call on the device."""
        return 1e-3 * settled(call)


def _operands(extents: Extents, dtype: str) -> tuple[Array, Array, Array]:
    import cupy

    m, k, n = extents
    cupy.get_default_memory_pool().free_all_blocks()
    generator = cupy.random.default_rng(1)
    return generator.standard_normal((m, k), dtype=dtype), generator.standard_normal((k, n), dtype=dtype), cupy.zeros((m, n), dtype)


def _steps(schedule: Schedule, a: Array, b: Array, c: Array, tile: str = USUAL) -> list[Callable[[], None]]:
    """The launches of a schedule on these arrays."""
    from bilinear.backends.cuda_executor import CudaExecutor
    from bilinear.backends.executor import allocate_workspace, lay_out
    from bilinear.ir.matrix import call_of

    executor = CudaExecutor()
    placement = place_schedule(schedule, a.shape[0], a.shape[1], b.shape[1], a.itemsize, tile=tile)
    buffer = allocate_workspace(executor, placement, c.dtype)
    return executor.steps(placement, schedule.stages, lay_out(placement, call_of(a, b, c, workspace=buffer)), 1, 0)


def _thin_points(value: Sequence[tuple[str, Mapping[str, bool], int, float]]) -> list[ThinPoint]:
    return [ThinPoint(tile, View(**view), parts, us) for tile, view, parts, us in value]


def _measured(value: Sequence[Measured]) -> list[Measured]:
    return [Measured((m, n, k), order, (small, large), cublas, lt) for (m, n, k), order, (small, large), cublas, lt in value]


KEPT: dict[str, Callable[..., object]] = {
    **dict.fromkeys(("product", "burst", "library", "copy", "call", "rounded"), float),
    "stages": list,
    "digits": lambda value: DigitTimes(*value),
    "thin_tiles": _thin_points,
    "thin_library": _measured,
}
"""The times that are kept while a device is described, and how each is read back from JSON."""


class KeptTimes:
    """A bench whose times are written to a file line by line, and read back from there: an interrupted `tune` goes on where it was.

    Times of another implementation are forgotten. Lines that make no sense, such as one that was cut off, count as not there.
    """

    def __init__(self, bench: DeviceTimes, path: Path) -> None:
        self._bench, self._path, self._of = bench, path, implementation_sha256()
        self._known: dict[str, object] = {}
        for line in read_bounded(path, 2**28).decode(errors="replace").splitlines() if path.exists() else ():
            try:
                of, key, value = json.loads(line)
            except ValueError:
                continue
            if of == self._of:
                self._known[key] = value

    def __getattr__(self, name: str) -> Callable[..., object]:
        """A method of the bench; its times are kept by its name and arguments, apart from descriptions and functions."""
        measure: Callable[..., object] = getattr(self._bench, name)
        if name not in KEPT:
            return measure

        def timed(*arguments: object, **named: object) -> object:
            told = [schedule_hash(x) if isinstance(x, Schedule) else x for x in arguments if not (isinstance(x, Device) or callable(x))]
            key = json.dumps([name, told, named])
            if key not in self._known:
                self._known[key] = json.loads(json.dumps(measure(*arguments, **named), default=asdict))
                with self._path.open("a") as file:
                    file.write(json.dumps((self._of, key, self._known[key])) + "\n")
            value = self._known[key]  # tuples are lists here
            return None if value is None else KEPT[name](value)

        return timed
