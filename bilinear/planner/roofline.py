"""A plan beside the bounds of the machine: its arithmetic intensity, the device's balance, and its traffic beside the least there is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod

from bilinear.analysis.traffic import (
    Extents,
    balance,
    balancing_side,
    fitting_side,
    intensity,
    least_traffic,
    operand_reads,
    operations,
    tiled_traffic,
    traffic_bound,
    traffic_order,
)
from bilinear.ir.element import ELEMENTS
from bilinear.ir.scheme import exponent_of
from bilinear.ir.thin_tile import THIN_TILES
from bilinear.lowering.place import place_schedule
from bilinear.planner.device import Device
from bilinear.planner.model import ProductWork, Work, geometric_mean
from bilinear.planner.plan import Candidate, Panel, Plan
from bilinear.planner.problem import Problem
from bilinear.planner.profiles import outline
from bilinear.planner.thin import kind_of, thin_peak, units_in_hand, view_of
from bilinear.planner.ways import Way

LATENCY, MEMORY, ARITHMETIC = "latency", "memory", "arithmetic"
"""What bounds the time of a plan."""
ENOUGH = 0.5
"""With less than this share of the bytes that must be under way, or of the time in traffic or arithmetic, latency bounds a kernel."""


@dataclass(frozen=True)
class Roofline:
    """A plan on a device by the models of `analysis.traffic`; the fast memory is the device's last cache, of `cache` bytes.

    `operations` are those of the plan's products as they run, sums not counted. `traffic` is in bytes: each launch begins with an empty
    cache, a linear stage reads and writes each of its blocks once, and a product runs in the largest square tiles of which three fit into
    the cache. `intensity` is the ratio of the two, `highest_intensity` that of a classical multiply that moves each element once.

    `rate` is in operations a second, that of the plan's kernel on a full device, `bandwidth` in bytes a second, `balance` their ratio.
    `bound_by` says whether arithmetic or memory sets the time, or latency, if neither takes half of it: then launches and waiting do.

    `least_traffic` is in bytes. It is a proved bound if the plan does the classical arithmetic (`omega` is 3), else the order of the bound,
    without its constant, which is unknown. `balancing_side` is the least side of tiles that reach the balance, `fitting_side` the largest
    of which three fit into the cache.
    """

    operations: int
    traffic: int
    intensity: float
    highest_intensity: float
    rate: float
    bandwidth: float
    balance: float
    bound_by: str
    cache: int
    least_traffic: float
    omega: float
    balancing_side: int
    fitting_side: int

    @property
    def is_proved(self) -> bool:
        """Whether `least_traffic` is a bound with its constant."""
        return self.omega == 3

    @property
    def factor(self) -> float:
        """How many times the least traffic the plan moves."""
        return self.traffic / self.least_traffic


@dataclass(frozen=True)
class _Counts:
    """Operations and elements moved by a part of a plan, and the order of the least that may be moved."""

    operations: int
    moved: int
    order: float
    omega: float


def roofline(plan: Plan, device: Device) -> Roofline:
    """The plan that runs, beside the bounds of a device that it was planned for."""
    p, itemsize = plan.problem, ELEMENTS[plan.problem.dtype].bytes
    extents, fast = (p.m, p.k, p.n), max(1, device.l2 // itemsize)
    parts = [_counts(part, own, p, fast) for part, own in _parts(plan)]
    done, moved = sum(part.operations for part in parts), sum(part.moved for part in parts) * itemsize
    omega = min(part.omega for part in parts)
    least = float(traffic_bound(extents, fast)) if omega == 3 else max(least_traffic(extents), sum(part.order for part in parts))
    rate, streamed = _full_rate(plan, device), streaming(plan, device)
    own, machine = intensity(done, moved), balance(rate, device.bandwidth * 1e9)
    bound = bound_by(1.0, moved / (device.bandwidth * 1e9), done / rate, plan.chosen.ms) if streamed is None else streamed.bound_by
    return Roofline(
        operations=done,
        traffic=moved,
        intensity=own,
        highest_intensity=intensity(operations(extents), least_traffic(extents) * itemsize),
        rate=rate,
        bandwidth=device.bandwidth * 1e9,
        balance=machine,
        bound_by=bound,
        cache=device.l2,
        least_traffic=least * itemsize,
        omega=omega,
        balancing_side=balancing_side(machine, itemsize),
        fitting_side=fitting_side(fast),
    )


def _full_rate(plan: Plan, device: Device) -> float:
    """The operations a second of what multiplies, on a full device."""
    thin, rates = device.thin_rates(plan.problem.dtype), device.rates(plan.problem.dtype)
    if thin is not None and plan.chosen.is_thin:
        return thin_peak(THIN_TILES[plan.problem.dtype][plan.chosen.tile], thin) * 1e12
    return max(rate for _, rate in (rates.library if plan.is_library else rates.product)) * 1e12


def _parts(plan: Plan) -> Iterator[tuple[Candidate | Panel, Extents]]:
    """What computes C, with its extents: parts are rows of C, or columns if C is column-major."""
    p = plan.problem
    by_columns, first, *rest = p.by_columns, *plan.chosen.parts
    later = [part.extent for part in rest if isinstance(part, Panel)]
    for part, extent in zip((first, *rest), ((p.n if by_columns else p.m) - sum(later), *later), strict=True):
        yield part, (p.m, p.k, extent) if by_columns else (extent, p.k, p.n)


def _counts(part: Candidate | Panel, extents: Extents, p: Problem, fast: int) -> _Counts:
    """The counts of a part that computes a result of these extents."""
    m, _, n = extents
    size, side = geometric_mean(*extents), fitting_side(fast)
    if not part.levels:
        split = part.parts_of_sums if isinstance(part, Candidate) else 1
        results = (p.accumulate + (2 * split if split > 1 else 0)) * m * n  # partial results are written, and read again
        return _Counts(operations(extents), tiled_traffic(extents, side, side) + results, traffic_order(size, size, 3, fast), 3)
    own = outline(Way(part.levels, part.inputs))
    profile, grid = own.profile, (own.profile.m, own.profile.k, own.profile.n)
    placement = place_schedule(own.frame, *extents, ELEMENTS[p.dtype].bytes, frozenset(p.column_major), own.lifetimes)
    works, block = profile.works if placement.core[0] else (), placement.block
    omega = 3.0 if own.products == prod(grid) else exponent_of(*grid, own.products)
    strips = [(s.rows[1] - s.rows[0], s.inner[1] - s.inner[0], s.columns[1] - s.columns[0]) for s in placement.strips]
    moved = sum(_moved(work, block, side) for work in works) + sum(tiled_traffic(strip, side, side) for strip in strips)
    moved += sum(a * c for strip, (a, _, c) in zip(placement.strips, strips, strict=True) if strip.inner[0])  # where results are added
    moved += least_traffic(extents) - m * n if profile.scans else 0
    done = sum(operations(strip) for strip in strips) + (own.products * operations(block) if works else 0)
    return _Counts(done, moved, traffic_order(size, geometric_mean(*block), omega, fast), omega)


def _moved(work: Work, block: Extents, side: int) -> int:
    """Elements that a stage reads and writes."""
    bm, bk, bn = block
    if isinstance(work, ProductWork):
        return work.products * operand_reads(block, side, side) + (work.read + work.written) * bm * bn
    elements = {"A": bm * bk, "B": bk * bn, "C": bm * bn}
    return sum(part.places * (part.sources + part.targets) * elements[part.shape] for part in work.parts)


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


def bound_by(share: float, moving: float, multiplying: float, ms: float | None = None) -> str:
    """What bounds a kernel that can use this share of the bandwidth, whose traffic and arithmetic take so many seconds at full speed.

    If `ms`, the milliseconds that are predicted for it, are more than twice as many, launches and waiting are the larger part: latency.
    """
    at_full_speed = max(moving / share, multiplying)
    if share < ENOUGH or (ms is not None and at_full_speed < ENOUGH * ms * 1e-3):
        return LATENCY
    return MEMORY if moving / share >= multiplying else ARITHMETIC


@dataclass(frozen=True)
class Streaming:
    """A thin product's kernel on a device; `kind` says which extents are short.

    Above `threshold` columns, arithmetic takes longer than reading A.

    `blocks` of threads are on a multiprocessor, with `under_way` bytes of slices. To read at full speed needs `needed` bytes: reads have
    the part of the bandwidth that writing C, which nothing waits for, leaves them. So they can use the `share` of it. `bound_by` says
    whether latency, memory or arithmetic sets the time.
    """

    kind: str
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
    tile, element = THIN_TILES[p.dtype][own.tile], ELEMENTS[p.dtype]
    view = view_of(p, tile)
    rate = thin_peak(tile, rates) * 1e12
    memory = device.bandwidth * 1e9
    units = ceil(view.m / tile.m) * ceil(view.n / tile.n) * own.parts_of_sums
    blocks = min(units_in_hand(tile, view, element, device.shared), ceil(units / device.processors))
    lines = min(tile.m, view.m) + (0 if tile.keeps else min(tile.n, view.n))
    under_way = blocks * (tile.stages - 1) * lines * min(tile.k, view.k) * element.bytes
    extents = view.m, view.k, view.n
    reading = 1 - view.m * view.n / least_traffic(extents)
    needed = needed_under_way(reading * memory / device.processors, rates.latency * 1e-6)
    share = utilisation(under_way, needed)
    moving, multiplying = least_traffic(extents) * element.bytes / memory, operations(extents) / rate
    bound = bound_by(share, moving, multiplying, own.ms)
    return Streaming(kind_of(view), threshold(rate, memory, element.bytes), blocks, under_way, round(needed), share, bound)
