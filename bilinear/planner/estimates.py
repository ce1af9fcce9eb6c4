"""Estimates: what a GPU that nobody has measured is likely to do, from its data sheet and the rates of one that was measured."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bilinear.ir.element import ELEMENTS, IN_ARRAYS
from bilinear.ir.kernel import SHARED_BESIDE
from bilinear.ir.thin_tile import THIN_TILES
from bilinear.ir.tile import MMA_FLOAT64, TILES, ProductTile
from bilinear.planner.device import Device, ElementRates, Table
from bilinear.planner.policy import Policy
from bilinear.planner.thin_rates import ThinRates


@dataclass(frozen=True)
class DataSheet:
    """A GPU by its data sheet: bytes, GB/s, MHz, and the peaks of multiply-adds in TFLOP/s.

    `shared` is the shared memory that a block of threads can have. `float64` is the peak of the pipes, `float64_units` that of the matrix
    units, or again of the pipes if those are as fast. `source` says where the figures are from.
    """

    name: str
    processors: int
    memory: int
    l2: int
    shared: int
    clock: float
    bandwidth: float
    float32: float
    float64: float
    float64_units: float
    source: str


MEASURED = DataSheet("NVIDIA H200", 132, 141 * 10**9, 52_428_800, 232_448, 1980, 4800, 67, 34, 67, "NVIDIA H200, data sheet (2024): SXM")
"""The GPU whose measured rates are scaled."""
LEAST_CAPABILITY = 80
"""The first compute capability, times ten, whose GPUs copy to shared memory asynchronously: others have no estimate."""
CORES = {80: (64, 32, 64), 86: (128, 2, 2), 87: (128, 2, 2), 89: (128, 2, 2), 90: (128, 64, 128), 100: (128, 64, 64), 103: (128, 2, 2)}
"""By compute capability, times ten: multiply-adds of a multiprocessor in a cycle in float32, float64, and float64 on matrix units.

From the throughputs of arithmetic instructions in NVIDIA's CUDA C++ Programming Guide.
"""
USUAL_CORES = (128, 2, 2)
"""The same of capabilities that are not listed."""
REPORTED = "properties that the driver reports"
WIDE = Policy(least_gain=0.12, least_gain_plain=0.2, least_gain_thin=0.3)
"""The margins of an estimate: its rates are off by more than those of a description."""
TUNING_SECONDS = 150
"""What `bilinear tune` takes, about."""


def data_sheet(
    name: str, capability: int, processors: int, memory: int, l2: int, shared: int, clock: float, memory_clock: float, bus: int
) -> DataSheet | None:
    """The figures of a GPU as its driver reports them, clocks in MHz, the width of the memory's `bus` in bits.

    None before sm_80, or if the driver does not report one of them.
    """
    if capability < LEAST_CAPABILITY or not all((processors, memory, shared, clock, memory_clock, bus)):
        return None
    single, double, units = (2 * processors * clock * cores / 1e6 for cores in CORES.get(capability, USUAL_CORES))
    bandwidth = 2e-3 * memory_clock * bus / 8
    return DataSheet(name, processors, memory, max(1, l2), shared, clock, bandwidth, single, double, units, REPORTED)


def estimate(sheet: DataSheet, measured: Device) -> Device:
    """A description by the rates of the measured GPU, scaled by the peaks, the bandwidth and the clock of both data sheets.

    Rates of products grow with the peak of their unit, those of memory with the bandwidth. Tiles that do not fit into shared memory, and
    thin tiles that need more than `LEAST_CAPABILITY`, are left out. What a launch costs and how long memory takes to answer are taken to
    be the same.
    """
    own = {"float32": sheet.float32 / MEASURED.float32, "float64": sheet.float64_units / MEASURED.float64_units}
    thin = {"float32": own["float32"], "float64": sheet.float64 / MEASURED.float64}
    memory, clock = sheet.bandwidth / MEASURED.bandwidth, sheet.clock / MEASURED.clock
    described = Device(
        *(sheet.name, sheet.processors, sheet.memory, sheet.l2, measured.bandwidth * memory),
        *(measured.launch, measured.call, measured.scan),
        tuple((dtype, _rates(measured.rates(dtype), dtype, own, memory, sheet.shared)) for dtype in IN_ARRAYS),
        policy=WIDE,
        library_rules=measured.library_rules,
        shared=sheet.shared,
        estimate=sheet.source,
    )
    scaled = ((dtype, rates) for dtype, rates in measured.thin if dtype in thin)
    return replace(described, thin=tuple((dtype, _thin(rates, dtype, thin[dtype], own["float64"], clock)) for dtype, rates in scaled))


def _rates(rates: ElementRates, dtype: str, peaks: dict[str, float], memory: float, shared: int) -> ElementRates:
    """The rates of an element type, with those tiles of which a multiprocessor holds at least one."""
    tiles = []
    for own in rates.tiles:
        tile = TILES[dtype][own.name]
        needed = tile_bytes(tile, dtype) + SHARED_BESIDE
        blocks = own.blocks if shared >= MEASURED.shared else min(own.blocks, (shared + SHARED_BESIDE) // needed)
        by_doubles = peaks["float64"] / peaks[dtype] if tile.instruction == MMA_FLOAT64 else 1.0
        if blocks:
            tiles.append(replace(own, blocks=blocks, share=_scaled(own.share, by_doubles)))
    product, library = (_scaled(table, peaks[dtype]) for table in (rates.product, rates.library))
    return replace(rates, tiles=tuple(tiles), epilogue=rates.epilogue * memory, product=product, library=library)


def tile_bytes(tile: ProductTile, dtype: str) -> int:
    """The shared memory of a block of threads, in bytes."""
    return tile.stages * tile.slice_elements(ELEMENTS[dtype].lanes) * ELEMENTS[dtype].bytes


def _thin(rates: ThinRates, dtype: str, peak: float, units: float, clock: float) -> ThinRates:
    able = tuple(own for own in rates.tiles if THIN_TILES[dtype][own.name].runs_on(LEAST_CAPABILITY))
    return replace(rates, pipes=rates.pipes * peak, units=rates.units * units, copies=rates.copies * clock, tiles=able)


def _scaled(table: Table, factor: float) -> Table:
    return tuple((key, value * factor) for key, value in table)
