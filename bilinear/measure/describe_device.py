"""Describe a device: measure the rates that the planner needs, in about a minute."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isqrt
from typing import Protocol

from bilinear.codegen.build import Progress, no_progress
from bilinear.errors import fail
from bilinear.ir.element import ELEMENTS, IN_ARRAYS
from bilinear.ir.matrix import Array
from bilinear.ir.schedule import Schedule
from bilinear.ir.tile import LARGE, SMALL, TILES, USUAL
from bilinear.lowering.place import PEELED_FROM, place_schedule
from bilinear.lowering.prepare import plain
from bilinear.measure.timing import milliseconds
from bilinear.planner.device import Device, ElementRates, TileRates, at
from bilinear.planner.device_files import device_named
from bilinear.planner.model import LinearWork, Part, ProductWork, geometric_mean, linear_seconds, product_seconds
from bilinear.planner.policy import Extents
from bilinear.planner.ways import Way, lowered
from bilinear.runtime.matmul import matmul

SIZES = (256, 512, 1024, 2048, 3072, 4096, 8192, 16384)
LEAST_PRODUCT = 1024
"""Below this size the product kernel does not fill a device, so its rate is not measured."""
DEPTHS = (512, 4096)
STREAMED = (Way(("msmes",), "restore"), *(Way(("winograd",) * levels) for levels in (1, 2, 3)))
ADDING = Way(("msmes", "msmes"), "restore")
"""The way whose stages show how fast products are added to blocks."""
STREAMED_SIZE = 8192
COPIED = 2**30
SHARE_OF_MEMORY = 0.5
UNKNOWN = 1.0
FREE = 1e12
"""GB/s of the epilogue while each product writes one block: that write is part of a tile's start-up cost."""
PLAIN = ProductWork(1, 0, 1)
"""The plain multiply: one product of A and B themselves."""


@dataclass(frozen=True)
class Facts:
    """What the driver reports about a device."""

    name: str
    processors: int
    memory: int
    l2: int


class Bench(Protocol):
    """A source of times, all in seconds on the device."""

    def facts(self) -> Facts:
        """What the driver reports."""

    def product(self, extents: Extents, dtype: str, tile: str = USUAL) -> float:
        """The plain product kernel in a tile, on a multiply of these extents."""

    def library(self, extents: Extents, dtype: str) -> float:
        """The library's own multiply."""

    def stages(self, schedule: Schedule, size: int, dtype: str, tile: str = USUAL) -> list[float]:
        """Each stage of a schedule for square matrices, with products in a tile."""

    def copy(self, count: int) -> float:
        """A copy of `count` bytes."""

    def call(self) -> float:
        """A whole call of `bilinear.matmul` on matrices so small that only overhead counts."""


def tune(progress: Progress = no_progress, bench: Bench | None = None) -> Device:
    """The description of the current GPU, measured now; nothing else should run on it.

    `progress` is called with (what, done, of). Raises `BilinearError` (E512) without CuPy, and CuPy's errors where there is no GPU.
    """
    bench = _gpu_bench() if bench is None else bench
    facts, of = bench.facts(), 4
    progress("memory", 0, of)
    rates = tuple((dtype, _start_of(dtype)) for dtype in IN_ARRAYS)
    bandwidth = 2 * COPIED / bench.copy(COPIED) * 1e-9
    launch = bench.product((16, 16, 16), "float32") * 1e6
    shipped = device_named(facts.name)
    thin = () if shipped is None else shipped.thin  # not measured: what is shipped for a GPU of this name stays
    device = Device(facts.name, facts.processors, facts.memory, facts.l2, bandwidth, launch, 1.0, 1.0, rates, thin=thin)
    for i, dtype in enumerate(IN_ARRAYS):
        progress(f"products of {dtype}", 1 + i, of)
        device = device.with_rates(dtype, _rates(bench, device, dtype))
    progress("calls", 3, of)
    return replace(device, call=max(1.0, bench.call() * 1e6 - 3 * launch), scan=2 * launch + 10)


def _start_of(dtype: str) -> ElementRates:
    """The tiles, with rates still to be measured."""
    tiles = tuple(
        TileRates(name, tile.m, tile.n, tile.blocks, 0.0, 0.5, ((1.0, 1.0),), 1.0, 1 / tile.blocks) for name, tile in TILES[dtype].items()
    )
    flat = ((1.0, UNKNOWN),)
    none = {"accumulating": 1.0, "epilogue": FREE, "scattered_epilogue": 1.0, "strip": 1.0}
    more = {"scattered": 1.0, "streaming": flat, "product": flat, "library": flat, "library_unaligned": 1.0}
    return ElementRates(tiles=tiles, **none, **more)  # type: ignore[arg-type]  # the fields of these names


def _tile_rates(bench: Bench, device: Device, dtype: str) -> tuple[TileRates, ...]:
    """Start-up cost of a tile, and its speed alone and on a full device, from results with one tile a place, shallow and deep.

    On a full multiprocessor, one block's epilogue is assumed to be exposed.
    """
    measured = []
    for own in device.rates(dtype).tiles:
        full = device.processors * own.blocks
        waves = (full, DEPTHS[0]), (full, DEPTHS[1]), (device.processors, DEPTHS[1])
        times = (bench.product(_one_wave(own, tiles, depth), dtype, own.name) for tiles, depth in waves)
        shallow, deep, single = (seconds - device.launch * 1e-6 for seconds in times)
        step = (deep - shallow) / (DEPTHS[1] - DEPTHS[0])
        start = max(0.0, shallow / step - DEPTHS[0])
        lone = min(1.0, max(1 / own.blocks, deep / (own.blocks * single)))
        measured.append((full * own.rows * own.columns / step, replace(own, start=start, lone=lone)))
    return tuple(replace(own, share=((1.0, rate / measured[0][0]),)) for rate, own in measured)


def _one_wave(own: TileRates, tiles: int, depth: int) -> Extents:
    """A multiply whose result has this many tiles, as square as possible, so that operands are read from the cache."""
    down = max(d for d in range(1, isqrt(tiles) + 1) if tiles % d == 0)
    return down * own.rows, depth, tiles // down * own.columns


def _rates(bench: Bench, device: Device, dtype: str) -> ElementRates:
    """The rates of one element type: first the costs of the tiles, then the remaining time of large multiplies."""
    rates = replace(device.rates(dtype), tiles=_tile_rates(bench, device, dtype))
    device = device.with_rates(dtype, rates)
    sizes = [n for n in SIZES if 3 * n * n * ELEMENTS[dtype].bytes < SHARE_OF_MEMORY * device.memory]
    product = tuple((float(n), _product_rate(device, dtype, n, bench.product((n, n, n), dtype))) for n in sizes if n >= LEAST_PRODUCT)
    library = tuple((float(n), 2e-12 * n**3 / (bench.library((n, n, n), dtype) - device.launch * 1e-6)) for n in sizes)
    even, uneven = (bench.library((n, n, n), dtype) / n**3 for n in (4096, 4095))
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


def _memory_rates(bench: Bench, device: Device, dtype: str) -> ElementRates:
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


def _shares(bench: Bench, device: Device, dtype: str, way: Way, size: int) -> list[tuple[float, float]]:
    """(streams, share of the bandwidth) of the linear stages of a schedule."""
    schedule, profile = lowered(way)
    block = (size // schedule.m,) * 3
    found = []
    for work, seconds in zip(profile.works, bench.stages(schedule, size, dtype), strict=True):
        if isinstance(work, LinearWork):
            expected = linear_seconds(work, block, dtype, replace(device, launch=0.0))
            found.append((float(max(map(_streams, work.parts))), expected / (seconds - device.launch * 1e-6)))
    return found


def _epilogue(bench: Bench, device: Device, dtype: str, aligned_rate: float | None = None) -> float:
    """GB/s at which target blocks of products are read and written: the median over stages clearly slower than their arithmetic.

    Measured in the large tile, where nothing is hidden. One aligned block a product is part of a tile's start-up cost. The rate of
    unaligned blocks is derived from that of aligned ones.
    """
    schedule, profile = lowered(ADDING)
    aligned = aligned_rate is None
    size = STREAMED_SIZE if aligned else PEELED_FROM - schedule.m  # blocks with an odd number of columns
    block = (size // schedule.m,) * 3
    bare = replace(device, launch=0.0, bandwidth=1e12)
    rates = []
    for work, seconds in zip(profile.works, bench.stages(schedule, size, dtype, LARGE), strict=True):
        if isinstance(work, ProductWork):
            arithmetic = product_seconds(replace(work, read=0, written=0), block, dtype, bare, size, aligned, tile=LARGE)
            beyond, gigabytes = seconds - device.launch * 1e-6 - arithmetic, 1e-9 * block[0] * block[2] * ELEMENTS[dtype].bytes
            visits = work.read + work.written - (work.products if aligned_rate is None else 0)
            paid = 0.0 if aligned_rate is None else work.products * gigabytes / aligned_rate
            if beyond > 0.05 * arithmetic:
                rates.append(visits * gigabytes / (beyond + paid))
    return statistics.median(rates) if rates else device.bandwidth


def _product_rate(device: Device, dtype: str, n: int, seconds: float) -> float:
    """TFLOP/s of a full device for which the model predicts the measured time of a product."""
    unit = product_seconds(PLAIN, (n, n, n), dtype, replace(device, bandwidth=1e12, launch=0.0), n)  # at UNKNOWN TFLOP/s
    return UNKNOWN * unit / (seconds - device.launch * 1e-6)


def _streams(part: Part) -> int:
    return part.sources + part.targets


def _gpu_bench() -> Bench:
    try:
        import cupy  # noqa: F401  # imported here, so that a missing CuPy is reported at once
    except ImportError:
        hint = "pip install 'bilinear[cuda13]' (or cuda12, after the driver's version)"
        raise fail("E512", "tuning measures a GPU, but CuPy is not installed", hint) from None
    return GpuBench()


class GpuBench:
    """Times on the current GPU by events; each is the median of a few runs after a warm-up."""

    repeats = 5

    def facts(self) -> Facts:
        """What the driver reports."""
        import cupy

        p = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
        return Facts(p["name"].decode(), int(p["multiProcessorCount"]), int(p["totalGlobalMem"]), int(p["l2CacheSize"]))

    def product(self, extents: Extents, dtype: str, tile: str = USUAL) -> float:
        """The plain product kernel."""
        a, b, c = _operands(extents, dtype)
        schedule = plain().schedule
        (step,) = _steps(schedule, a, b, c, tile)
        return self._seconds(step, 50 if extents[0] < 256 else 1)

    def library(self, extents: Extents, dtype: str) -> float:
        """`cupy.matmul`."""
        import cupy

        a, b, c = _operands(extents, dtype)
        return self._seconds(lambda: cupy.matmul(a, b, out=c), 50 if extents[0] < 1024 else 1)

    def stages(self, schedule: Schedule, size: int, dtype: str, tile: str = USUAL) -> list[float]:
        """Each stage."""
        return [self._seconds(step, 1) for step in _steps(schedule, *_operands((size, size, size), dtype), tile)]

    def copy(self, count: int) -> float:
        """A copy on the device."""
        import cupy

        x, y = (cupy.zeros(count // 8) for _ in range(2))
        return self._seconds(lambda: cupy.copyto(y, x), 1)

    def call(self) -> float:
        """A small multiply by Strassen's scheme."""
        a, b, c = _operands((64, 64, 64), "float32")
        return self._seconds(lambda: matmul(a, b, c, algorithm="strassen", levels=1), 1)

    def _seconds(self, call: Callable[[], object], times: int) -> float:
        """Seconds of one of `times` calls in a row."""
        call()
        return 1e-3 * statistics.median(milliseconds(call, times) for _ in range(self.repeats))


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
