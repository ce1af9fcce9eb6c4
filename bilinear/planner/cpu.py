"""Processors as planning sees them: their description, how long ways take on them, and the plan for arrays in the host's memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

from bilinear.errors import fail
from bilinear.ir.element import ELEMENTS
from bilinear.ir.placement import Placement, Strip
from bilinear.lowering.place import core_of
from bilinear.planner.choose import too_inaccurate, why_inaccurate, with_errors
from bilinear.planner.device import Extents, Table, at
from bilinear.planner.library import LIBRARY_ITSELF
from bilinear.planner.model import LinearWork, Profile, Work, geometric_mean
from bilinear.planner.plan import Candidate, Plan
from bilinear.planner.problem import Problem
from bilinear.planner.profiles import cpu_ways, outline
from bilinear.planner.scheduled import scheduled
from bilinear.planner.ways import Way
from bilinear.resources import implementation_sha256

ADDING = 3  # The streams of the addition of a product to what a block holds.


@dataclass(frozen=True)
class CpuRates:
    """What processors do with one element type.

    `library` is the rate of NumPy's multiply in GFLOP/s, by the size of a multiply (m k n)**(1/3); `streaming` the GB/s of a linear stage,
    by how many blocks it reads and writes at once. `slack` says by how much a timed way fell short of what these rates promise beside the
    library, by the size of its blocks: at least 1.
    """

    library: Table
    streaming: Table
    slack: Table


@dataclass(frozen=True)
class Cpu:
    """The processors of a machine, and the library behind its NumPy. GB are 10**9 bytes, read and written bytes counted alike.

    `memory` is that of the machine, in bytes: operands and workspace fill at most the part `memory_share` of it where no budget is given.
    `stage` is what one more stage costs beyond its work, in microseconds; `touching` the GB/s at which fresh memory is written beyond the
    time of writing it. A way runs if it is predicted to save more than the part `least_gain` of the library's time; its blocks must be as
    large as the smallest that were timed.
    """

    name: str
    library: str
    memory: int
    stage: float
    touching: float
    elements: tuple[tuple[str, CpuRates], ...]
    least_gain: float = 0.05
    memory_share: ClassVar[float] = 0.5  # Less than a GPU's: a system grants more, and kills its user.

    def rates(self, dtype: str) -> CpuRates | None:
        """What is known of an element type."""
        return dict(self.elements).get(dtype)


def library_seconds(extents: Extents, rates: CpuRates) -> float:
    """The seconds of NumPy's multiply."""
    m, k, n = extents
    return 2e-9 * m * k * n / at(rates.library, geometric_mean(m, k, n))


def way_seconds(profile: Profile, placement: Placement, dtype: str, cpu: Cpu, rates: CpuRates, is_warm: bool) -> float:
    """The seconds of a placement by the rates alone; the workspace `is_warm` if it was written before."""
    itemsize = ELEMENTS[dtype].bytes
    seconds = sum(_strip_seconds(strip, rates, itemsize) for strip in placement.strips)
    if placement.core[0]:
        seconds += sum(count * _stage_seconds(work, placement.block, itemsize, cpu, rates) for work, count in profile.counts.items())
    fresh = 0 if is_warm else placement.workspace_elements * itemsize
    return seconds + fresh / (cpu.touching * 1e9)


def _stage_seconds(work: Work, block: Extents, itemsize: int, cpu: Cpu, rates: CpuRates) -> float:
    bm, bk, bn = block
    if isinstance(work, LinearWork):
        elements = {"A": bm * bk, "B": bk * bn, "C": bm * bn}
        each = ((part.sources + part.targets, part.places * elements[part.shape]) for part in work.parts)
        return cpu.stage * 1e-6 + sum(streams * size * itemsize / (at(rates.streaming, streams) * 1e9) for streams, size in each)
    added = ADDING * bm * bn * itemsize * (work.read + work.written - work.products)  # a product that is only stored is computed there
    products = work.products * (cpu.stage * 1e-6 + library_seconds(block, rates))
    return products + added / (at(rates.streaming, ADDING) * 1e9)


def _strip_seconds(strip: Strip, rates: CpuRates, itemsize: int) -> float:
    m, k, n = (stop - start for start, stop in (strip.rows, strip.inner, strip.columns))
    moved = (m * k + k * n + (ADDING if strip.inner[0] else 1) * m * n) * itemsize
    return max(library_seconds((m, k, n), rates), moved / (at(rates.streaming, ADDING) * 1e9))


@lru_cache(maxsize=1024)
def cpu_plan(problem: Problem, cpu: Cpu, is_warm: bool = False, explain: bool = False) -> Plan:
    """The plan for a problem on described processors; the workspace `is_warm` if the caller keeps it between calls.

    With `explain`, errors are computed for every candidate. Raises `BilinearError`: E543 if nothing is known of the element type, E519 if
    nothing is as accurate as is asked for.
    """
    rates = cpu.rates(problem.dtype)
    if rates is None:
        known = ", ".join(name for name, _ in cpu.elements)
        raise fail("E543", f"the description of {cpu.name} has no rates of {problem.dtype}", f"choose one of {known}")
    weighed = _CpuWeighing(problem, cpu, rates, is_warm, explain)
    library = weighed.library()
    found = [weighed.weigh(way) for way in cpu_ways(problem)]
    able = sorted((c for c in found if not c.why), key=lambda c: (c.ms or 0.0, c.name))
    limit = (1 - cpu.least_gain) * (library.ms or 0.0)
    gains = bool(able) and (able[0].ms or 0.0) < limit
    chosen = able[0] if gains else library
    if chosen is library and library.why:
        raise too_inaccurate(library.why)
    ratio = (library.ms or 0.0) / (chosen.ms or 1.0)
    why = f"chosen: {ratio:.2f} times as fast as the library" if gains else "chosen: no plan gains the margin"
    others = [_lost(candidate, chosen) for candidate in (*able, library) if candidate is not chosen]
    refused = [c for c in found if c.why]
    sha256 = outline(Way(chosen.levels)).sha256 if gains else ()
    return Plan(problem, cpu.name, (replace(chosen, why=why), *others, *refused), sha256, implementation_sha256())


def _lost(candidate: Candidate, chosen: Candidate) -> Candidate:
    off = (candidate.ms or 0.0) / (chosen.ms or 1.0) - 1
    return replace(candidate, why=f"{off:.1%} slower" if off >= 0 else f"gains {-off:.1%}, which is within the margin")


@dataclass(frozen=True)
class _CpuWeighing:
    """Candidates of one problem on processors."""

    problem: Problem
    cpu: Cpu
    rates: CpuRates
    is_warm: bool
    explain: bool

    def library(self) -> Candidate:
        p = self.problem
        found = replace(LIBRARY_ITSELF, ms=library_seconds((p.m, p.k, p.n), self.rates) * 1e3)
        found = with_errors(found, p, self.explain)
        return replace(found, why=why_inaccurate(found, p.accuracy))

    def weigh(self, way: Way) -> Candidate:
        """A candidate with its figures; `why` says why it may not run."""
        p, own, itemsize = self.problem, outline(way), ELEMENTS[self.problem.dtype].bytes
        found = Candidate(scheduled(way))
        grid = own.profile
        core = core_of((grid.m, grid.k, grid.n), (p.m, p.k, p.n), itemsize)
        block = core[0] // grid.m, core[1] // grid.k, core[2] // grid.n
        if min(block) < self.rates.slack[0][0]:
            return replace(found, why=f"blocks of {'x'.join(map(str, block))} are smaller than those that were timed")
        placement = own.placed(p, itemsize)
        slack = at(self.rates.slack, geometric_mean(*block))
        ms = 1e3 * slack * way_seconds(grid, placement, p.dtype, self.cpu, self.rates, self.is_warm)
        found = with_errors(replace(found, ms=ms, workspace=placement.workspace_elements * itemsize), p, self.explain)
        return replace(found, why=self._why_not(found))

    def _why_not(self, found: Candidate) -> str:
        p, workspace = self.problem, found.workspace or 0
        budget = p.budget_in(self.cpu.memory * self.cpu.memory_share) if p.workspace is None else p.workspace
        if workspace > budget:
            what = "left of half the memory" if p.workspace is None else "allowed"
            return f"needs {workspace} bytes of workspace, {budget} are {what}"
        return why_inaccurate(found, p.accuracy)
