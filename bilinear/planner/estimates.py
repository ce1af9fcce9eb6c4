"""Estimates: what a GPU that nobody has measured is likely to do, from its data sheet and the rates of one that was measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log

from bilinear.ir.element import ELEMENTS, IN_ARRAYS
from bilinear.ir.kernel import SHARED_BESIDE
from bilinear.ir.thin_tile import THIN_TILES
from bilinear.ir.tile import FLOAT_TILES, MMA_FLOAT64, TILES, ProductTile
from bilinear.planner.device import LEAST_CAPABILITY, Device, DigitRates, ElementRates, Policy, Table


@dataclass(frozen=True)
class DataSheet:
    """A GPU by its data sheet: bytes, GB/s, MHz, the compute capability times ten, and the peaks of multiply-adds in TFLOP/s, or TOP/s.

    `shared` is the shared memory that a block of threads can have. `float64` is the peak of the pipes, `float64_units` that of the matrix
    units, or again of the pipes if those are as fast. `float16` (with sums in float32), `bfloat16`, `tf32` and `int8` are the peaks of
    matrix units without sparsity, 0 if there are none. `source` says where the figures are from.
    """

    name: str
    capability: int
    processors: int
    memory: int
    l2: int
    shared: int
    clock: float
    bandwidth: float
    float32: float
    float64: float
    float64_units: float
    float16: float
    bfloat16: float
    tf32: float
    int8: float
    source: str


WARPGROUPS = 90  # The compute capability, times ten, whose units warpgroups use.
BY_WARPS = {90: 0.5, 100: 0.25, 103: 0.25}
"""By compute capability, times ten: the part of the peak of matrix units that instructions of a warp can reach; all of it elsewhere.

An H100 takes 8 cycles for m16n8k16 (benchmarks/NOTES.md); what later chips with instructions of their own do is taken from their cores."""
CORES = {
    80: (64, 32, 64, 1024, 512, 2048),
    86: (128, 2, 2, 256, 128, 1024),
    87: (128, 2, 2, 256, 128, 1024),
    89: (128, 2, 2, 256, 128, 1024),
    90: (128, 64, 128, 2048, 1024, 4096),
    100: (128, 64, 64, 4096, 2048, 8192),
    103: (128, 2, 2, 4096, 2048, 256),
}
"""By compute capability, times ten: multiply-adds of a multiprocessor in a cycle in float32, float64, and on matrix units for float64, 16
bits, TF32 and int8.

From the throughputs of arithmetic instructions in NVIDIA's CUDA C++ Programming Guide, and from white papers.
"""
USUAL_CORES = (128, 2, 2, 256, 128, 1024)  # The same of capabilities that are not listed.
REPORTED = "properties that the driver reports"
WIDE = Policy(least_gain=0.12, least_gain_plain=0.2, least_gain_thin=0.3, least_gain_digits=0.2)
"""The margins of an estimate: its rates are off by more than those of a description."""
TUNING_SECONDS = 180  # What `bilinear tune` takes, about.


def data_sheet(
    name: str, capability: int, processors: int, memory: int, l2: int, shared: int, clock: float, memory_clock: float, bus: int
) -> DataSheet | None:
    """The figures of a GPU as its driver reports them (MHz, bits of the memory's `bus`); None before sm_80, or if one is missing."""
    if capability < LEAST_CAPABILITY or not all((processors, memory, shared, clock, memory_clock, bus)):
        return None
    single, double, units, half, tf32, int8 = (2 * processors * clock * cores / 1e6 for cores in CORES.get(capability, USUAL_CORES))
    rates = 2e-3 * memory_clock * bus / 8, single, double, units, half, half, tf32, int8
    return DataSheet(name, capability, processors, memory, max(1, l2), shared, clock, *rates, REPORTED)


def apart(sheet: DataSheet, other: DataSheet) -> tuple[int, float]:
    """How far two GPUs are from each other: first by their compute capabilities, then by memory and arithmetic."""
    pairs = (sheet.bandwidth, other.bandwidth), (sheet.float32, other.float32)
    return abs(sheet.capability - other.capability), sum(abs(log(own / its)) for own, its in pairs)


def estimate(sheet: DataSheet, measured: Device, known: DataSheet) -> Device:
    """A description by the rates of a measured GPU, scaled by the peaks, the bandwidth and the clock of both data sheets.

    Rates of products grow with the peak of their unit, those of memory with the bandwidth. Tiles that do not fit into shared memory, and
    thin tiles that need more than `LEAST_CAPABILITY`, are left out. What a launch costs and how long memory takes to answer are taken over.
    """
    own = {"float32": sheet.float32 / known.float32, "float64": sheet.float64_units / known.float64_units}
    thin = {"float32": own["float32"], "float64": sheet.float64 / known.float64}
    memory, clock = sheet.bandwidth / known.bandwidth, sheet.clock / known.clock
    rounded = {"tf32": sheet.tf32 / known.tf32, "bfloat16": sheet.bfloat16 / known.bfloat16}
    shared = sheet.shared if sheet.capability >= LEAST_CAPABILITY else known.shared  # of tiles that never run nothing need be known
    described = Device(
        *(sheet.name, sheet.processors, sheet.memory, sheet.l2, measured.bandwidth * memory),
        *(measured.launch, measured.call, measured.scan),
        tuple((dtype, _rates(measured.rates(dtype), dtype, own, memory, shared, known.shared)) for dtype in IN_ARRAYS),
        policy=WIDE,
        library_rules=measured.library_rules,
        digits=_digits(sheet, measured, known),
        rounded=tuple((name, _scaled(table, rounded[name])) for name, table in measured.rounded if rounded[name]),
        shared=sheet.shared,
        capability=sheet.capability,
        estimate=sheet.source,
    )
    scaled = []
    for dtype, its in measured.thin:
        able = tuple(tile for tile in its.tiles if THIN_TILES[dtype][tile.name].runs_on(LEAST_CAPABILITY))
        pipes, units = its.pipes * thin[dtype], its.units * own["float64"]
        scaled.append((dtype, replace(its, pipes=pipes, units=units, copies=its.copies * clock, tiles=able)))
    return replace(described, thin=tuple(scaled))


def _digits(sheet: DataSheet, measured: Device, known: DataSheet) -> tuple[tuple[str, DigitRates], ...]:
    """The rates of digits: by the same instructions on both, as parts of what those reach on each."""
    if sheet.capability < LEAST_CAPABILITY:
        return ()
    family, parts = measured.digits, (1.0, 1.0)
    if sheet.capability != WARPGROUPS:
        family = measured.by_warps if known.capability == WARPGROUPS else measured.digits
        parts = BY_WARPS.get(sheet.capability, 1.0), BY_WARPS.get(known.capability, 1.0)
    found = []
    for name, rates in family:
        peak, its = (sheet.float16, known.float16) if name in FLOAT_TILES else (sheet.int8, known.int8)
        if peak and its:
            faster = peak * parts[0] / (its * parts[1])
            each = faster * known.processors / sheet.processors  # of one multiprocessor
            beside = {field: getattr(rates, field) / each for field in ("start", "direct", "uneven")}
            found.append((name, replace(rates, product=_scaled(rates.product, faster), **beside)))
    return tuple(found)


def _rates(rates: ElementRates, dtype: str, peaks: dict[str, float], memory: float, shared: int, its: int) -> ElementRates:
    """The rates of an element type, with those tiles of which a multiprocessor holds at least one."""
    tiles = []
    for own in rates.tiles:
        tile = TILES[dtype][own.name]
        needed = tile_bytes(tile, dtype) + SHARED_BESIDE
        blocks = own.blocks if shared >= its else min(own.blocks, (shared + SHARED_BESIDE) // needed)
        by_doubles = peaks["float64"] / peaks[dtype] if tile.instruction == MMA_FLOAT64 else 1.0
        if blocks:
            tiles.append(replace(own, blocks=blocks, share=_scaled(own.share, by_doubles)))
    product, library = (_scaled(table, peaks[dtype]) for table in (rates.product, rates.library))
    return replace(rates, tiles=tuple(tiles), epilogue=rates.epilogue * memory, product=product, library=library)


def tile_bytes(tile: ProductTile, dtype: str) -> int:
    """The shared memory of a block of threads, in bytes."""
    return tile.stages * tile.slice_elements(ELEMENTS[dtype].lanes) * ELEMENTS[dtype].bytes


def _scaled(table: Table, factor: float) -> Table:
    return tuple((key, value * factor) for key, value in table)
