"""A plan beside the bounds of the machine: its arithmetic intensity, the device's balance, and its traffic beside the least there is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from bilinear.analysis.traffic import (
    Extents,
    Streaming,
    balance,
    balancing_side,
    bound_by,
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
from bilinear.planner.device import Device
from bilinear.planner.model import ProductWork, Work, geometric_mean
from bilinear.planner.plan import Choice, Plan
from bilinear.planner.problem import Problem
from bilinear.planner.profiles import outline
from bilinear.planner.ways import Way


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


def roofline(plan: Plan, device: Device) -> Roofline:
    """The plan that runs, beside the bounds of a device that it was planned for; the rate of what multiplies must be known."""
    p, itemsize = plan.problem, ELEMENTS[plan.problem.dtype].bytes
    rate, streamed = plan.chosen.choice.rate(p, device), streaming(plan, device)
    if rate is None:
        raise ValueError("no rate of what multiplies is known")
    extents, fast = (p.m, p.k, p.n), max(1, device.l2 // itemsize)
    done_by, moved_by, orders, omegas = zip(*(_counts(part, own, p, fast) for part, own in _parts(plan)), strict=True)
    done, moved, omega = sum(done_by), sum(moved_by) * itemsize, min(omegas)
    least = float(traffic_bound(extents, fast)) if omega == 3 else max(least_traffic(extents), sum(orders))
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


def streaming(plan: Plan, device: Device) -> Streaming | None:
    """The models' answer for a plan that runs a kernel for thin products; None for others."""
    return plan.chosen.choice.streaming(plan.problem, device, plan.chosen.ms)


def _parts(plan: Plan) -> Iterator[tuple[Choice, Extents]]:
    """What computes C, with its extents: parts are rows of C, or columns if C is column-major."""
    p, chosen = plan.problem, plan.chosen
    later = [part.extent for part in chosen.rest]
    for part, extent in zip(chosen.parts, (p.lines[0] - sum(later), *later), strict=True):
        yield part, (p.m, p.k, extent) if p.by_columns else (extent, p.k, p.n)


def _counts(part: Choice, extents: Extents, p: Problem, fast: int) -> tuple[int, int, float, float]:
    """Operations and elements moved by a part of a plan, the order of the least that may be moved, and omega."""
    m, _, n = extents
    size, side = geometric_mean(*extents), fitting_side(fast)
    if not part.levels:
        split = part.summed_in
        results = (p.accumulate + (2 * split if split > 1 else 0)) * m * n  # partial results are written, and read again
        return operations(extents), tiled_traffic(extents, side, side) + results, traffic_order(size, size, 3, fast), 3
    own = outline(Way(part.levels, part.inputs))
    profile, grid = own.profile, (own.profile.m, own.profile.k, own.profile.n)
    placement = own.placed(replace(p, m=m, n=n), p.itemsize)
    works, block = profile.works if placement.core[0] else (), placement.block
    omega = 3.0 if own.products == prod(grid) else exponent_of(*grid, own.products)
    strips = [(s.rows[1] - s.rows[0], s.inner[1] - s.inner[0], s.columns[1] - s.columns[0]) for s in placement.strips]
    moved = sum(_moved(work, block, side) for work in works) + sum(tiled_traffic(strip, side, side) for strip in strips)
    moved += sum(a * c for strip, (a, _, c) in zip(placement.strips, strips, strict=True) if strip.inner[0])  # where results are added
    moved += least_traffic(extents) - m * n if profile.scans else 0
    done = sum(operations(strip) for strip in strips) + (own.products * operations(block) if works else 0)
    return done, moved, traffic_order(size, geometric_mean(*block), omega, fast), omega


def _moved(work: Work, block: Extents, side: int) -> int:
    bm, bk, bn = block
    if isinstance(work, ProductWork):
        return work.products * operand_reads(block, side, side) + (work.read + work.written) * bm * bn
    elements = {"A": bm * bk, "B": bk * bn, "C": bm * bn}
    return sum(part.places * (part.sources + part.targets) * elements[part.shape] for part in work.parts)
