"""The kernel for a thin product, which streams a matrix past a short extent: what bounds it, and how many bytes must be under way.

C. Rivera, J. Chen, N. Xiong, J. Zhang, S. L. Song, D. Tao, *TSM2X: High-performance tall-and-skinny matrix-matrix multiplication on GPUs*,
J. Parallel Distrib. Comput. 151 (2021), section 3.1.8 (the threshold t2) and 3.1.9 (Little's law).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from bilinear.analysis.traffic import least_traffic, operations
from bilinear.ir.element import ELEMENTS
from bilinear.ir.thin_tile import THIN_TILES, ThinMmaTile
from bilinear.planner.device import Device
from bilinear.planner.plan import Plan
from bilinear.planner.thin import resident_blocks, view_of

LATENCY, MEMORY, ARITHMETIC = "latency", "memory", "arithmetic"
"""What bounds a kernel."""
ENOUGH = 0.5
"""With less than this share of the bytes that must be under way, latency is what bounds a kernel."""


def threshold(operations_per_second: float, bytes_per_second: float, itemsize: int) -> float:
    """The columns of B above which arithmetic takes longer than reading A: 2 operations for each column and element of A.

    The paper counts a multiply-add once, against a peak that counts it twice, so its threshold is twice as high.
    """
    return operations_per_second / bytes_per_second * itemsize / 2


def needed_under_way(bytes_per_second: float, latency: float) -> float:
    """The bytes that must be under way for this bandwidth, if each takes `latency` seconds (Little's law)."""
    return bytes_per_second * latency


def utilisation(under_way: float, needed: float) -> float:
    """The share of the bandwidth that so many bytes under way can use."""
    return min(1.0, under_way / needed)


def bound_by(share: float, reading: float, multiplying: float) -> str:
    """What bounds a kernel with this utilisation, whose traffic and arithmetic take so many seconds at full speed."""
    if share < ENOUGH:
        return LATENCY
    return MEMORY if reading / share >= multiplying else ARITHMETIC


@dataclass(frozen=True)
class Streaming:
    """A thin product's kernel on a device. Above `threshold` columns, arithmetic takes longer than reading A.

    `blocks` of threads are on a multiprocessor, with `under_way` bytes of slices. Full bandwidth needs `needed` bytes, so they can use
    the `share` of it. `bound_by` says whether latency, memory or arithmetic sets the time.
    """

    threshold: float
    blocks: int
    under_way: int
    needed: int
    share: float
    bound_by: str


def streaming(plan: Plan, device: Device) -> Streaming | None:
    """The models' answer for a plan that runs the kernel for thin products; None for others."""
    rates, own, p = device.thin_rates(plan.problem.dtype), plan.chosen, plan.problem
    if rates is None or not own.is_thin:
        return None
    tile, view, element = THIN_TILES[p.dtype][own.tile], view_of(p), ELEMENTS[p.dtype]
    rate = (rates.units if isinstance(tile, ThinMmaTile) else rates.pipes) * 1e12
    memory = device.bandwidth * 1e9
    units = ceil(view.m / tile.m) * ceil(view.n / tile.n) * own.parts_of_sums
    blocks = min(resident_blocks(tile, view, element, device.shared), ceil(units / device.processors))
    keeps = isinstance(tile, ThinMmaTile) and tile.keeps
    lines = min(tile.m, view.m) + (0 if keeps else min(tile.n, view.n))
    under_way = blocks * (tile.stages - 1) * lines * min(tile.k, view.k) * element.bytes
    needed = needed_under_way(memory / device.processors, rates.latency * 1e-6)
    extents = view.m, view.k, view.n
    share = utilisation(under_way, needed)
    bound = bound_by(share, least_traffic(extents) * element.bytes / memory, operations(extents) / rate)
    return Streaming(threshold(rate, memory, element.bytes), blocks, under_way, round(needed), share, bound)
