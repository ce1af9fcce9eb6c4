"""The performance model: how long a schedule takes on a device, from the counts of its stages; docs/planning.md derives it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import cbrt, ceil

from bilinear.ir.element import ELEMENTS
from bilinear.ir.placement import Placement, Strip
from bilinear.ir.schedule import LinearStage, Schedule
from bilinear.ir.tile import USUAL
from bilinear.planner.device import Device, Extents, TileRates, at

SINGLE_COPIES = 1.9e9  # Elements a second that a multiprocessor copies singly; 1.6 to 6e9 on an H100.


@dataclass(frozen=True)
class StageMaps:
    """Equal maps of a linear stage; `shape` names the operand whose blocks have the same size, and the counts are blocks per place."""

    shape: str
    sources: int
    targets: int
    places: int


@dataclass(frozen=True)
class LinearWork:
    """A linear stage: one launch of its parts."""

    parts: tuple[StageMaps, ...]


@dataclass(frozen=True)
class ProductWork:
    """A product stage: the number of products, and of the blocks that they read and write beyond their operands."""

    products: int
    read: int
    written: int


Work = LinearWork | ProductWork


@dataclass(frozen=True)
class Profile:
    """What the model needs of a lowered schedule: its grid, the counts of its stages, and whether its inputs are scanned first."""

    m: int
    k: int
    n: int
    works: tuple[Work, ...]
    scans: bool

    @cached_property
    def counts(self) -> Counter[Work]:
        """How often each kind of stage occurs: a depth-first schedule has hundreds of stages but few kinds."""
        return Counter(self.works)


def profile_of(schedule: Schedule) -> Profile:
    """The counts of a lowered schedule: one work for each stage, in order."""
    from bilinear.analysis.block_maps import components  # imported late: planning from the table of outlines counts nothing

    shape_of = {space.name: space.shape for space in schedule.spaces}
    works: list[Work] = []
    for stage in schedule.stages:
        if isinstance(stage, LinearStage):
            pieces = [piece for block_map in stage.maps for piece in components(block_map)]
            counts = Counter((shape_of[p.targets[0].space], len(p.sources), len(p.targets)) for p in pieces)
            works.append(LinearWork(tuple(StageMaps(*key, places) for key, places in counts.items())))
        else:
            targets = [target for product in stage.products for target in product.targets]
            works.append(ProductWork(len(stage.products), sum(t.kept == 1 for t in targets), len(targets)))
    return Profile(schedule.m, schedule.k, schedule.n, tuple(works), schedule.writes_operands)


def fastest_tile(profile: Profile, placement: Placement, dtype: str, device: Device) -> tuple[float, str]:
    """The shortest time for a placement in seconds, and its tile; among equally fast tiles, the first in the table."""
    return min(each_tile(profile, placement, dtype, device), key=lambda found: found[0])


def each_tile(profile: Profile, placement: Placement, dtype: str, device: Device) -> Iterator[tuple[float, str]]:
    """For each tile, the seconds that a placement takes in it, and the tile's name."""
    seconds = device.call * 1e-6
    if placement.core[0] and profile.scans:
        moved = (placement.m * placement.k + placement.k * placement.n) * ELEMENTS[dtype].bytes
        seconds += device.scan * 1e-6 + moved / (device.bandwidth * 1e9)
    beside = seconds + _stages(LinearWork, profile, placement, dtype, device)
    return ((beside + _in_a_tile(profile, replace(placement, tile=tile), dtype, device), tile) for tile in device.tiles(dtype))


def _in_a_tile(profile: Profile, placement: Placement, dtype: str, device: Device) -> float:
    size, aligned = geometric_mean(placement.m, placement.k, placement.n), is_aligned(placement.k, placement.n, dtype)
    strips = sum(strip_seconds(strip, dtype, device, size, aligned, placement.tile, strided(placement)) for strip in placement.strips)
    return strips / device.rates(dtype).strip + _stages(ProductWork, profile, placement, dtype, device)


def _stages(kind: type[Work], profile: Profile, placement: Placement, dtype: str, device: Device) -> float:
    works = [work for work in profile.counts if isinstance(work, kind)] if placement.core[0] else []
    return sum(profile.counts[work] * one for work, one in zip(works, stage_seconds(works, placement, dtype, device), strict=True))


def strided(placement: Placement) -> frozenset[str]:
    """Those of A and B that lie otherwise than C, so that product kernels copy their elements one by one; sums in memory lie as C does."""
    if placement.slots:
        return frozenset()
    others = placement.column_major & {"A", "B"}
    return frozenset({"A", "B"}) - others if "C" in placement.column_major else others


def strip_seconds(
    strip: Strip, dtype: str, device: Device, size: float, aligned: bool, tile: str, copied: frozenset[str] = frozenset()
) -> float:
    """The seconds of a thin product left over by peeling, given the core's tile.

    A strip over the rest of K takes the time of its traffic, mostly C's, or of its arithmetic; other strips are timed like products.
    """
    m, k, n = (stop - start for start, stop in (strip.rows, strip.inner, strip.columns))
    if strip.inner[0]:
        moved = (m * k + k * n + 2 * m * n) * ELEMENTS[dtype].bytes
        arithmetic = 2 * m * k * n / (at(device.rates(dtype).product, size) * 1e12)
        return device.launch * 1e-6 + max(moved / (device.bandwidth * 1e9), arithmetic)
    return product_seconds(ProductWork(1, 0, 1), (m, k, n), dtype, device, size, aligned, tile=strip.tile(dtype, tile), copied=copied)


def stage_seconds(works: Iterable[Work], placement: Placement, dtype: str, device: Device) -> tuple[float, ...]:
    """The seconds of each of these stages of the placement's core, launch included."""
    size = geometric_mean(placement.m, placement.k, placement.n)
    own, blocks = is_aligned(placement.k, placement.n, dtype), is_aligned(*placement.block[1:], dtype)
    aligned, sums_aligned = own and blocks, blocks and (own or bool(placement.slots))  # few products read blocks of A or B directly
    results_aligned = is_aligned(placement.n, placement.block[2], dtype)
    return tuple(
        linear_seconds(work, placement.block, dtype, device, aligned)
        if isinstance(work, LinearWork)
        else product_seconds(work, placement.block, dtype, device, size, sums_aligned, results_aligned, placement.tile, strided(placement))
        for work in works
    )


def linear_seconds(work: LinearWork, block: Extents, dtype: str, device: Device, aligned: bool = True) -> float:
    """One pass over memory: every source read once, every target written once, at the bandwidth that this number of streams reaches."""
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
    copied: frozenset[str] = frozenset(),
) -> float:
    """The seconds of products: arithmetic in waves of tiles, then traffic of the results; or all operand traffic if that is longer.

    The elements of `copied` operands, whose neighbours of a row do not lie side by side, are copied one by one, which hides behind nothing.
    """
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
    singly = tiles * (own.rows * ("A" in copied) + own.columns * ("B" in copied)) * bk / (device.processors * SINGLE_COPIES)
    return device.launch * 1e-6 + max(waves(tiles, device, own) * wave + results, operands) + singly


def waves(tiles: int, device: Device, own: TileRates) -> float:
    """The number of full waves that take as long as these tiles; in a partial last wave each block runs faster than in a full one.

    A multiprocessor's speed rises with its number of blocks, from that of a lone block to the full speed.
    """
    full, rest = divmod(tiles, device.processors * own.blocks)
    beside = ceil(rest / device.processors)
    return full + (min(1.0, beside / (own.blocks * min(1.0, beside * own.lone))) if rest else 0.0)


def library_seconds(extents: Extents, dtype: str, device: Device) -> float:
    """The seconds of the library's multiply: from its measured rate by size, or from its traffic if that takes longer."""
    m, k, n = extents
    rates = device.rates(dtype)
    rate = at(rates.library, geometric_mean(m, k, n)) * 1e12 * (1 if is_aligned(k, n, dtype) else rates.library_unaligned)
    moved = (m * k + k * n + m * n) * ELEMENTS[dtype].bytes
    return device.launch * 1e-6 + max(2 * m * k * n / rate, moved / (device.bandwidth * 1e9))


def geometric_mean(m: int, k: int, n: int) -> float:
    """The size of a multiply: the side of the cube with the same number of multiplications."""
    return cbrt(m * k * n)


def is_aligned(k: int, n: int, dtype: str) -> bool:
    """True if rows of k and of n elements are multiples of 16 bytes."""
    return (k * ELEMENTS[dtype].bytes) % 16 == 0 and (n * ELEMENTS[dtype].bytes) % 16 == 0
