"""Describe a device: measure the rates that the planner needs, in less than three minutes.

From times: the interface to a source of them, the current GPU's, and times that are kept in a file meanwhile.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from math import isqrt
from pathlib import Path
from typing import Never, cast

from bilinear.analysis.identity import schedule_hash
from bilinear.backends.machine import target_here
from bilinear.backends.timing import in_a_queue, settled
from bilinear.codegen.build import Progress, build_kernels, no_progress
from bilinear.codegen.lower import schedule_to_launches
from bilinear.errors import BilinearError, fail, install
from bilinear.ir.element import ELEMENTS, IN_ARRAYS
from bilinear.ir.matrix import Array
from bilinear.ir.schedule import Schedule
from bilinear.ir.tile import LARGE, MOST_SHARED_BYTES, SMALL, TILES, USUAL
from bilinear.lowering.place import PEELED_FROM, place_schedule
from bilinear.lowering.prepare import plain
from bilinear.methods.digits.rates import DigitBench, DigitTimes
from bilinear.methods.method import Binding
from bilinear.methods.registry import METHODS
from bilinear.methods.rounded.launches import RoundedBench
from bilinear.methods.thin.choice import View
from bilinear.methods.thin.rates import ThinBench, ThinPoint
from bilinear.planner.device import Device, ElementRates, Extents, TileRates, at
from bilinear.planner.estimates import tile_bytes
from bilinear.planner.kept_plans import folder_of_plans
from bilinear.planner.library_points import Measured
from bilinear.planner.model import LinearWork, ProductWork, geometric_mean, linear_seconds, product_seconds
from bilinear.planner.ways import Way, lowered
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
    shared: int = MOST_SHARED_BYTES  # The shared memory that a block of threads can have.
    capability: int = 90  # The compute capability, times ten.


def gpu_bench() -> GpuBench:
    """The times of the current GPU; E512 without CuPy."""
    try:
        import cupy  # noqa: F401  # imported here, so that a missing CuPy is reported at once
    except ImportError:
        hint = f"{install('cuda13')} (or cuda12, after the driver's version)"
        raise fail("E512", "tuning measures a GPU, but CuPy is not installed", hint) from None
    return GpuBench()


class GpuBench(ThinBench, DigitBench, RoundedBench):
    """Times on the current GPU alone, in seconds without the host's; each is a median, under the power that long work has."""

    def facts(self) -> Facts:
        """What the driver reports."""
        import cupy

        device = cupy.cuda.Device()
        p, shared = cupy.cuda.runtime.getDeviceProperties(device.id), int(device.attributes["MaxSharedMemoryPerBlockOptin"])
        counts = int(p["multiProcessorCount"]), int(p["totalGlobalMem"]), int(p["l2CacheSize"])
        return Facts(p["name"].decode(), *counts, shared, int(device.compute_capability))

    def product(self, extents: Extents, dtype: str, tile: str = USUAL, number: int = 0) -> float:
        """The plain product kernel in a tile, on a multiply of these extents, in the round of this number."""
        (step,) = _steps(plain().schedule, *_operands(extents, dtype), tile)
        return self._seconds(step)

    def burst(self, extents: Extents, dtype: str, tile: str) -> float:
        """The same in a queue of a few, where power does not limit it yet."""
        (step,) = _steps(plain().schedule, *_operands(extents, dtype), tile)
        return 1e-3 * in_a_queue(step)

    def library(self, extents: Extents, dtype: str, number: int = 0) -> float:
        """`cupy.matmul`, in the round of this number."""
        import cupy

        a, b, c = _operands(extents, dtype)
        return self._seconds(lambda: cupy.matmul(a, b, out=c))

    def stages(self, schedule: Schedule, size: int, dtype: str, tile: str = USUAL) -> list[float]:
        """Each stage of a schedule for square matrices, with products in a tile."""
        return [self._seconds(step) for step in _steps(schedule, *_operands((size, size, size), dtype), tile)]

    def copy(self, count: int) -> float:
        """A copy of `count` bytes on the device."""
        import cupy

        x, y = (cupy.zeros(count // 8) for _ in range(2))
        return self._seconds(lambda: cupy.copyto(y, x))

    def call(self) -> float:
        """A whole call of `bilinear.matmul` on matrices so small that only overhead counts."""
        a, b, c = _operands((64, 64, 64), "float32")
        return self._seconds(lambda: matmul(a, b, c, algorithm="strassen", levels=1))

    def build(self, products: Sequence[tuple[Schedule, str, str]]) -> None:
        """Build the kernels of schedules for an element type and a tile, which are timed next, several at once."""
        own = [launch for schedule, dtype, tile in products for launch in schedule_to_launches(schedule, ELEMENTS[dtype], tile)]
        build_kernels([*dict.fromkeys(launch.kernel for launch in own)], target_here())

    def _seconds(self, call: Callable[[], object]) -> float:
        return 1e-3 * settled(call)


def _operands(extents: Extents, dtype: str) -> tuple[Array, Array, Array]:
    import cupy

    m, k, n = extents
    cupy.get_default_memory_pool().free_all_blocks()
    generator = cupy.random.default_rng(1)
    return generator.standard_normal((m, k), dtype=dtype), generator.standard_normal((k, n), dtype=dtype), cupy.zeros((m, n), dtype)


def _steps(schedule: Schedule, a: Array, b: Array, c: Array, tile: str = USUAL) -> list[Callable[[], None]]:
    from bilinear.backends.cuda_executor import CudaExecutor
    from bilinear.backends.executor import allocate_workspace, lay_out
    from bilinear.ir.matrix import call_of

    executor = CudaExecutor()
    placement = place_schedule(schedule, a.shape[0], a.shape[1], b.shape[1], a.itemsize, tile=tile)
    buffer = allocate_workspace(executor, placement, c.dtype)
    return executor.steps(placement, schedule.stages, lay_out(placement, call_of(a, b, c, workspace=buffer)), 1, 0)


KEPT: dict[str, Callable[..., object]] = {
    **dict.fromkeys(("product", "burst", "library", "copy", "call", "rounded"), float),
    "stages": list,
    "digits": lambda value: DigitTimes(*value),
    "thin_tiles": lambda value: [ThinPoint(tile, View(**view), parts, us) for tile, view, parts, us in value],
    "thin_library": lambda value: [Measured(tuple(shape), order, tuple(proposed), *us) for shape, order, proposed, *us in value],
}
"""The times that are kept while a device is described, and how each is read back from JSON."""


class KeptTimes:
    """A bench whose times are written to a file line by line, and read back from there: an interrupted `tune` goes on where it was.

    Times of another implementation are forgotten. Lines that make no sense, such as one that was cut off, count as not there.
    """

    def __init__(self, bench: GpuBench, path: Path) -> None:
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


SIZES = (256, 512, 1024, 2048, 3072, 4096, 8192, 16384)
ROUNDS = 3  # How often each size is timed, interleaved: at its power limit a chip changes its clock.
LEAST_PRODUCT = 1024  # Below this size the product kernel does not fill a device: its rate is not measured.
UNEVEN = 4095
DEPTHS = (512, 4096)
STREAMED = (Way(("msmes",), "restore"), *(Way(("winograd",) * levels) for levels in (1, 2, 3)))
ADDING = Way(("msmes", "msmes"), "restore")  # Its stages show how fast products are added to blocks.
STREAMED_SIZE = 8192
COPIED = 2**30
SHARE_OF_MEMORY = 0.5
UNKNOWN = 1.0
FREE = 1e12  # GB/s of the epilogue while each product writes one block: it is part of a tile's start.
PLAIN = ProductWork(1, 0, 1)  # The plain multiply: one product of A and B themselves.


def tune(progress: Progress = no_progress, bench: GpuBench | None = None) -> Device:
    """The description of the current GPU, measured now; nothing else should run on it.

    `progress` is called with (what, done, of). Raises `BilinearError`: E512 without CuPy. Without a GPU it raises CuPy's errors.
    """
    bench = gpu_bench() if bench is None else bench
    facts, of = bench.facts(), 4 + len(METHODS)
    progress("kernels", 0, of)
    rates = tuple((dtype, _start_of(dtype, facts.shared)) for dtype in IN_ARRAYS)
    alone = [(plain().schedule, dtype, tile.name) for dtype, own in rates for tile in own.tiles]
    streamed = [(lowered(way)[0], dtype, USUAL) for dtype, _ in rates for way in STREAMED]
    bench.build([*alone, *streamed, *((lowered(ADDING)[0], dtype, _unhidden(own)) for dtype, own in rates)])
    progress("memory", 0, of)
    bandwidth = 2 * COPIED / bench.copy(COPIED) * 1e-9
    launch = bench.product((16, 16, 16), "float32") * 1e6
    what = facts.name, facts.processors, facts.memory, facts.l2
    device = Device(*what, bandwidth, launch, 1.0, 1.0, rates, shared=facts.shared, capability=facts.capability)
    for i, dtype in enumerate(IN_ARRAYS):
        progress(f"products of {dtype}", 1 + i, of)
        device = device.with_rates(dtype, _rates(bench, device, dtype))
    progress("calls", 3, of)
    device = replace(device, call=max(0.0, bench.call() * 1e6 - 3 * launch), scan=2 * launch + 10)
    for i, method in enumerate(cast("tuple[Binding[Never, GpuBench], ...]", METHODS), 4):

        def tell(what: str, done: int = i) -> None:
            progress(what, done, of)

        device = method.measured(bench, device, tell)
    return device


def tune_here(progress: Progress = no_progress) -> Device:
    """The same of the current GPU. If it is interrupted, the next call goes on from there, if the home folder keeps files."""
    from bilinear.backends.machine import driver_version

    bench = gpu_bench()
    try:
        times = folder_of_plans(bench.facts().name, driver_version()) / "tune.times"
    except BilinearError:
        return tune(progress, bench)
    device = tune(progress, cast("GpuBench", KeptTimes(bench, times)))
    times.unlink(missing_ok=True)
    return device


def _unhidden(rates: ElementRates) -> str:
    """The tile whose epilogue no other block hides, if it fits into shared memory."""
    return LARGE if LARGE in (tile.name for tile in rates.tiles) else USUAL


def _start_of(dtype: str, shared: int) -> ElementRates:
    """The tiles that fit into the shared memory of a block of threads, with rates still to be measured."""
    tiles = tuple(
        TileRates(name, tile.m, tile.n, tile.blocks, 0.0, 0.5, ((1.0, 1.0),), 1.0, 1 / tile.blocks)
        for name, tile in TILES[dtype].items()
        if tile_bytes(tile, dtype) <= shared
    )
    flat = ((1.0, UNKNOWN),)
    none = {"accumulating": 1.0, "epilogue": FREE, "scattered_epilogue": 1.0, "strip": 1.0}
    more = {"scattered": 1.0, "streaming": flat, "product": flat, "library": flat, "library_unaligned": 1.0}
    return ElementRates(tiles=tiles, **none, **more)  # type: ignore[arg-type]  # the fields of these names


def _tile_rates(bench: GpuBench, device: Device, dtype: str) -> tuple[TileRates, ...]:
    """Start-up cost of a tile, and its speed alone and on a full device, from results with one tile a place, shallow and deep.

    On a full multiprocessor, one block's epilogue is assumed to be exposed.
    """
    measured = []
    for own in device.rates(dtype).tiles:
        full = device.processors * own.blocks
        waves = (full, DEPTHS[0]), (full, DEPTHS[1]), (device.processors, DEPTHS[1])
        times = []
        for tiles, depth in waves:  # each result as square as possible, so that operands are read from the cache
            down = max(d for d in range(1, isqrt(tiles) + 1) if tiles % d == 0)
            times.append(bench.burst((down * own.rows, depth, tiles // down * own.columns), dtype, own.name))
        shallow, deep, single = (seconds - device.launch * 1e-6 for seconds in times)
        step = (deep - shallow) / (DEPTHS[1] - DEPTHS[0])
        start = max(0.0, shallow / step - DEPTHS[0])
        lone = min(1.0, max(1 / own.blocks, deep / (own.blocks * single)))
        measured.append((full * own.rows * own.columns / step, replace(own, start=start, lone=lone)))
    return tuple(replace(own, share=((1.0, rate / measured[0][0]),)) for rate, own in measured)


def _rates(bench: GpuBench, device: Device, dtype: str) -> ElementRates:
    """The rates of one element type: first the costs of the tiles, then the remaining time of large multiplies."""
    rates = replace(device.rates(dtype), tiles=_tile_rates(bench, device, dtype))
    device = device.with_rates(dtype, rates)
    sizes = [n for n in SIZES if 3 * n * n * ELEMENTS[dtype].bytes < SHARE_OF_MEMORY * device.memory]
    rounds = [
        {
            n: (
                bench.product((n,) * 3, dtype, number=number) if n >= LEAST_PRODUCT and n != UNEVEN else 0.0,
                bench.library((n,) * 3, dtype, number),
            )
            for n in (*sizes, UNEVEN)
        }
        for number in range(ROUNDS)
    ]
    ours, theirs = ({n: statistics.median(one[n][i] for one in rounds) for n in (*sizes, UNEVEN)} for i in (0, 1))
    full = replace(device, bandwidth=1e12, launch=0.0)
    units = [(n, product_seconds(PLAIN, (n, n, n), dtype, full, n)) for n in sizes if n >= LEAST_PRODUCT]  # at UNKNOWN TFLOP/s
    product = tuple((float(n), UNKNOWN * unit / (ours[n] - device.launch * 1e-6)) for n, unit in units)  # as the model predicts it
    library = tuple((float(n), 2e-12 * n**3 / max(theirs[n] - device.launch * 1e-6, 0.1 * theirs[n])) for n in sizes)
    even, uneven = (theirs[n] / n**3 for n in (UNEVEN + 1, UNEVEN))
    rates = replace(rates, product=product, library=library, library_unaligned=min(1.0, even / uneven))
    odd, device, tiles = (4096, 4097, 4097), device.with_rates(dtype, rates), []
    for own in rates.tiles:
        aligned = product_seconds(PLAIN, odd, dtype, device, geometric_mean(*odd), tile=own.name)
        tiles.append(replace(own, unaligned=min(1.0, aligned / bench.product(odd, dtype, own.name))))
    rates = replace(rates, tiles=tuple(tiles))
    device = device.with_rates(dtype, rates)
    thin = (4096, 4097, 2)
    expected = product_seconds(PLAIN, thin, dtype, device, geometric_mean(*thin), False, tile=SMALL)
    rates = replace(rates, strip=min(1.0, expected / bench.product(thin, dtype, SMALL)))
    return _memory_rates(bench, device.with_rates(dtype, rates), dtype)


def _memory_rates(bench: GpuBench, device: Device, dtype: str) -> ElementRates:
    """The rates of linear kernels and of the epilogue, with and without aligned blocks, from the stages of a few schedules."""
    rates = device.rates(dtype)
    found: dict[float, list[float]] = {}
    for way in STREAMED:
        for streams, share in _shares(bench, device, dtype, way, STREAMED_SIZE):
            found.setdefault(streams, []).append(share)
    streaming = tuple((key, min(1.0, statistics.median(found[key]))) for key in sorted(found))
    narrow = [share for _, share in _shares(bench, device, dtype, STREAMED[1], PEELED_FROM - 2)]
    wide = [share for _, share in _shares(bench, device, dtype, STREAMED[1], STREAMED_SIZE)]
    scattered = min(1.0, statistics.median(narrow) / statistics.median(wide))
    epilogue = _epilogue(bench, device, dtype)
    share = min(1.0, _epilogue(bench, device, dtype, epilogue) / epilogue)
    a_visit = ELEMENTS[dtype].bytes / (epilogue * 1e9) * at(rates.product, STREAMED_SIZE) * 1e12 / 2  # in steps of the inner dimension
    tiles = tuple(replace(own, start=max(0.0, own.start - own.exposed * a_visit)) for own in rates.tiles)
    return replace(rates, streaming=streaming, scattered=scattered, epilogue=epilogue, scattered_epilogue=share, tiles=tiles)


def _shares(bench: GpuBench, device: Device, dtype: str, way: Way, size: int) -> list[tuple[float, float]]:
    """(streams, share of the bandwidth) of the linear stages of a schedule."""
    schedule, profile = lowered(way)
    block = (size // schedule.m,) * 3
    found = []
    for work, seconds in zip(profile.works, bench.stages(schedule, size, dtype), strict=True):
        if isinstance(work, LinearWork):
            expected = linear_seconds(work, block, dtype, replace(device, launch=0.0))
            found.append((float(max(part.sources + part.targets for part in work.parts)), expected / (seconds - device.launch * 1e-6)))
    return found


def _epilogue(bench: GpuBench, device: Device, dtype: str, aligned_rate: float | None = None) -> float:
    """GB/s at which target blocks of products are read and written: the median over stages clearly slower than their arithmetic.

    Measured in the large tile, which hides nothing, if it fits. One aligned block a product is part of a tile's start-up cost. The rate of
    unaligned blocks is derived from that of aligned ones.
    """
    schedule, profile = lowered(ADDING)
    aligned = aligned_rate is None
    tile = _unhidden(device.rates(dtype))
    size = STREAMED_SIZE if aligned else PEELED_FROM - schedule.m  # blocks with an odd number of columns
    block = (size // schedule.m,) * 3
    bare = replace(device, launch=0.0, bandwidth=1e12)
    rates = []
    for work, seconds in zip(profile.works, bench.stages(schedule, size, dtype, tile), strict=True):
        if isinstance(work, ProductWork):
            arithmetic = product_seconds(replace(work, read=0, written=0), block, dtype, bare, size, aligned, tile=tile)
            beyond, gigabytes = seconds - device.launch * 1e-6 - arithmetic, 1e-9 * block[0] * block[2] * ELEMENTS[dtype].bytes
            visits = work.read + work.written - (work.products if aligned_rate is None else 0)
            paid = 0.0 if aligned_rate is None else work.products * gigabytes / aligned_rate
            if beyond > 0.05 * arithmetic:
                rates.append(visits * gigabytes / (beyond + paid))
    return statistics.median(rates) if rates else device.bandwidth
