"""The kernel for a thin product beside the models of `analysis.streaming`."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from bilinear.analysis.streaming import bound_by, needed_under_way, threshold, utilisation
from bilinear.analysis.traffic import least_traffic, operations
from bilinear.ir.element import ELEMENTS
from bilinear.ir.thin_tile import THIN_TILES, ThinMmaTile
from bilinear.planner.device import Device
from bilinear.planner.plan import Plan
from bilinear.planner.thin import resident_blocks, view_of


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
