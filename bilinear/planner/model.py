"""The performance model: how long a schedule takes on a device, from counts of its stages; docs/planning.md derives it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import cbrt, ceil

from bilinear.ir.element import ELEMENTS
from bilinear.ir.placement import Placement, Strip
from bilinear.ir.schedule import LinearStage, ProductStage, Schedule
from bilinear.ir.tile import TILES, USUAL
from bilinear.planner.device import Device, TileRates, at
from bilinear.planner.policy import Extents


@dataclass(frozen=True)
class Part:
    """Equal maps of a linear stage: `shape` names the operand like whose blocks theirs are; each place reads and writes so many."""

    shape: str
    sources: int
    targets: int
    places: int


@dataclass(frozen=True)
class LinearWork:
    """A linear stage: one launch of its parts."""

    parts: tuple[Part, ...]


@dataclass(frozen=True)
class ProductWork:
    """A product stage: how many products, and how many blocks they read and write beyond their operands."""

    products: int
    read: int
    written: int


Work = LinearWork | ProductWork


@dataclass(frozen=True)
class Profile:
    """What the model needs of a lowered schedule: its grid, its stages as counts, and whether its inputs are scanned first."""

    m: int
    k: int
    n: int
    works: tuple[Work, ...]
    scans: bool

    @cached_property
    def counts(self) -> Counter[Work]:
        """How many stages are the same: a depth-first schedule has hundreds, of few kinds."""
        return Counter(self.works)


def profile_of(schedule: Schedule) -> Profile:
    """The counts of a lowered schedule; one work a stage, in order."""
    shape_of = {space.name: space.shape for space in schedule.spaces}
    works = tuple(_linear(s, shape_of) if isinstance(s, LinearStage) else _products(s) for s in schedule.stages)
    return Profile(schedule.m, schedule.k, schedule.n, works, schedule.writes_operands)


def _linear(stage: LinearStage, shape_of: dict[str, str]) -> LinearWork:
    from bilinear.analysis.block_maps import components  # a plan from the table of outlines counts nothing

    pieces = [piece for block_map in stage.maps for piece in components(block_map)]
    counts = Counter((shape_of[p.targets[0].space], len(p.sources), len(p.targets)) for p in pieces)
    return LinearWork(tuple(Part(*key, places) for key, places in counts.items()))


def _products(stage: ProductStage) -> ProductWork:
    targets = [target for product in stage.products for target in product.targets]
    return ProductWork(len(stage.products), sum(t.kept == 1 for t in targets), len(targets))


def predict(profile: Profile, placement: Placement, dtype: str, device: Device) -> float:
    """Seconds that a placement takes with beta = 0: its strips, its stages, its launches, and the scan of inputs that it writes."""
    return _beside_products(profile, placement, dtype, device) + _in_a_tile(profile, placement, dtype, device)


def fastest_tile(profile: Profile, placement: Placement, dtype: str, device: Device) -> tuple[float, str]:
    """Seconds that a placement takes in the tile that is fastest for it, and that tile: of equally fast ones the first in the table."""
    return min(each_tile(profile, placement, dtype, device), key=lambda found: found[0])


def each_tile(profile: Profile, placement: Placement, dtype: str, device: Device) -> Iterator[tuple[float, str]]:
    """Seconds that a placement takes in each tile, and that tile."""
    beside = _beside_products(profile, placement, dtype, device)
    return ((beside + _in_a_tile(profile, replace(placement, tile=tile), dtype, device), tile) for tile in TILES[dtype])


def _beside_products(profile: Profile, placement: Placement, dtype: str, device: Device) -> float:
    """What a placement takes in any tile."""
    seconds = device.call * 1e-6
    if placement.core[0] and profile.scans:
        seconds += device.scan * 1e-6 + (placement.m * placement.k + placement.k * placement.n) * ELEMENTS[dtype].bytes / (
            device.bandwidth * 1e9
        )
    return seconds + _stages(LinearWork, profile, placement, dtype, device)


def _in_a_tile(profile: Profile, placement: Placement, dtype: str, device: Device) -> float:
    """The products of a placement's strips and of its core."""
    size, aligned = geometric_mean(placement.m, placement.k, placement.n), is_aligned(placement.k, placement.n, dtype)
    strips = sum(strip_seconds(strip, dtype, device, size, aligned, placement.tile) for strip in placement.strips)
    return strips / device.rates(dtype).strip + _stages(ProductWork, profile, placement, dtype, device)


def _stages(kind: type[Work], profile: Profile, placement: Placement, dtype: str, device: Device) -> float:
    """All stages of a kind in the placement's core."""
    works = [work for work in profile.counts if isinstance(work, kind)] if placement.core[0] else []
    return sum(profile.counts[work] * one for work, one in zip(works, stage_seconds(works, placement, dtype, device), strict=True))


def strip_seconds(strip: Strip, dtype: str, device: Device, size: float, aligned: bool, tile: str) -> float:
    """A thin product by peeling, beside a core in a tile.

    The rest of the sum takes its traffic, that of C above all, or its arithmetic; others are as products.
    """
    m, k, n = (stop - start for start, stop in (strip.rows, strip.inner, strip.columns))
    if strip.inner[0]:
        moved = (m * k + k * n + 2 * m * n) * ELEMENTS[dtype].bytes
        arithmetic = 2 * m * k * n / (at(device.rates(dtype).product, size) * 1e12)
        return device.launch * 1e-6 + max(moved / (device.bandwidth * 1e9), arithmetic)
    return product_seconds(ProductWork(1, 0, 1), (m, k, n), dtype, device, size, aligned, tile=strip.tile(dtype, tile))


def stage_seconds(works: Iterable[Work], placement: Placement, dtype: str, device: Device) -> tuple[float, ...]:
    """Seconds of each of some stages of the placement's core, its launch included."""
    size = geometric_mean(placement.m, placement.k, placement.n)
    own, blocks = is_aligned(placement.k, placement.n, dtype), is_aligned(*placement.block[1:], dtype)
    aligned, sums_aligned = own and blocks, blocks and (own or bool(placement.slots))  # few products are of blocks of A or B themselves
    results_aligned = is_aligned(placement.n, placement.block[2], dtype)
    return tuple(
        linear_seconds(work, placement.block, dtype, device, aligned)
        if isinstance(work, LinearWork)
        else product_seconds(work, placement.block, dtype, device, size, sums_aligned, results_aligned, placement.tile)
        for work in works
    )


def linear_seconds(work: LinearWork, block: Extents, dtype: str, device: Device, aligned: bool = True) -> float:
    """One pass over memory: every source read once, every target written once, at the share of the bandwidth that so many streams reach."""
    rates = device.rates(dtype)
    bandwidth = device.bandwidth * 1e9 * (1 if aligned else rates.scattered)
    bm, bk, bn = block
    elements = {"A": bm * bk, "B": bk * bn, "C": bm * bn}
    seconds = device.launch * 1e-6
    for part in work.parts:
        streams = part.sources + part.targets
        moved = part.places * streams * elements[part.shape] * ELEMENTS[dtype].bytes
        seconds += moved / (at(rates.streaming, streams) * bandwidth)
    return seconds


def product_seconds(
    work: ProductWork,
    block: Extents,
    dtype: str,
    device: Device,
    size: float,
    aligned: bool = True,
    results_aligned: bool = True,
    tile: str = USUAL,
) -> float:
    """Arithmetic in waves of tiles, and after it the traffic of the results; or the traffic of all operands, where that takes longer."""
    rates, itemsize = device.rates(dtype), ELEMENTS[dtype].bytes
    own = rates.tile(tile)
    bm, bk, bn = block
    tiles = work.products * ceil(bm / own.rows) * ceil(bn / own.columns)
    rate = at(rates.product, size) * at(own.share, geometric_mean(bm, bk, bn)) * 1e12
    rate *= (1 if aligned else own.unaligned) * (rates.accumulating if work.read else 1)
    wave = device.processors * own.blocks * 2 * own.rows * own.columns * (bk + own.start) / rate
    visits = work.read + work.written
    results = own.exposed * visits * bm * bn * itemsize / (rates.epilogue * 1e9 * (1 if results_aligned else rates.scattered_epilogue))
    operands = (work.products * (bm * bk + bk * bn) + visits * bm * bn) * itemsize / (device.bandwidth * 1e9)
    return device.launch * 1e-6 + max(waves(tiles, device, own) * wave + results, operands)


def waves(tiles: int, device: Device, own: TileRates) -> float:
    """Full waves that so many tiles take as long as; in the last one a multiprocessor has fewer blocks, and is faster at each of them.

    Its speed rises with its blocks from that of a lone one until it is the full one.
    """
    full, rest = divmod(tiles, device.processors * own.blocks)
    beside = ceil(rest / device.processors)
    return full + (min(1.0, beside / (own.blocks * min(1.0, beside * own.lone))) if rest else 0.0)


def library_seconds(extents: Extents, dtype: str, device: Device) -> float:
    """The library's own multiply: a measured rate by size, or its traffic where that takes longer."""
    m, k, n = extents
    rates = device.rates(dtype)
    rate = at(rates.library, geometric_mean(m, k, n)) * 1e12 * (1 if is_aligned(k, n, dtype) else rates.library_unaligned)
    moved = (m * k + k * n + m * n) * ELEMENTS[dtype].bytes
    return device.launch * 1e-6 + max(2 * m * k * n / rate, moved / (device.bandwidth * 1e9))


def geometric_mean(m: int, k: int, n: int) -> float:
    """The size of a multiply: the side of a cube of as many multiplications."""
    return cbrt(m * k * n)


def is_aligned(k: int, n: int, dtype: str) -> bool:
    """Whether rows of k and of n elements are whole numbers of 16 bytes."""
    return (k * ELEMENTS[dtype].bytes) % 16 == 0 and (n * ELEMENTS[dtype].bytes) % 16 == 0
