"""Choose: weigh the library's multiply and the shipped algorithms against each other by the performance model.

Some compute C in parts, and borrow: the temporaries of each part lie in the rows of C (columns if C is column-major) that are computed
later. One level of a depth-first schedule needs temporaries for a quarter of A's part and a quarter of B. With equal extents it can thus
compute three fifths of C, then an eighth; the rest runs without temporaries. Nothing is allocated, and A and B are never written.

Accuracy is a budget: certain bounds of max|C - A*B| / (max|A| max|B|), and probable errors by norm beside the classical multiply's. A class
of accuracy limits the probable error |C - A*B| / |A*B| in the Frobenius norm, for independent centred data, to a multiple of what sums of K
terms in order have, each rounded to nearest in the element type.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, isfinite
from operator import lt

from bilinear.errors import BilinearError, fail
from bilinear.ir.element import ELEMENTS
from bilinear.ir.placement import Placement
from bilinear.lowering.place import core_of
from bilinear.planner.device import Device
from bilinear.planner.library import Library, thin_library
from bilinear.planner.library_points import Kernels
from bilinear.planner.model import (
    ProductWork,
    each_tile,
    fastest_tile,
    geometric_mean,
    is_aligned,
    library_seconds,
    product_seconds,
)
from bilinear.planner.plan import LIBRARY, Candidate, Method, Methods, Panel, Plan
from bilinear.planner.problem import CLASSES, USUAL_LIMIT, Problem
from bilinear.planner.profiles import outline, portfolio, ways
from bilinear.planner.scheduled import Scheduled, scheduled
from bilinear.planner.ways import Way, kept_by_names
from bilinear.resources import implementation_sha256

STEP = 128  # The rows of a finest block are a multiple of this, the extent of the largest tile.
MOST_PARTS = 3


_Chain = tuple[float, tuple[tuple[int, Scheduled], ...]]
"""The seconds of parts that run one after the other; the rows of each, and what computes them."""


@dataclass(frozen=True)
class Borrowing:
    """The fastest chain for one problem on one device among the `allowed` ways; blocks have at least `least` rows and columns."""

    problem: Problem
    device: Device
    least: int
    allowed: Callable[[Way], bool] = lambda way: True

    def best(self) -> Candidate | None:
        """The chain as a candidate without a workspace; None if no part of C can be lent."""
        found = [chain for chain in self._chains(self.problem.lines[0], MOST_PARTS) if len(chain[1]) > 1] if self.problem.lends else []
        if not found:
            return None
        seconds, ((_, first), *rest) = min(found, key=_seconds)
        return Candidate(replace(first, strategy="borrow", rest=tuple(Panel(*part) for part in rest)), seconds * 1e3, 0)

    def _chains(self, extent: int, parts: int) -> list[_Chain]:
        """For each first way, the fastest chain of at most `parts` parts that computes the last `extent` rows."""
        found = [self._timed(way, extent) for way in self._last]
        for way in self._heads if parts > 1 and found else ():
            own = self._lent(way, extent)
            if own:
                head, tail = self._timed(way, own), min(self._chains(extent - own, parts - 1), key=_seconds)
                found.append((head[0] + tail[0], head[1] + tail[1]))
        return found

    @cached_property
    def _heads(self) -> Sequence[Way]:
        return tuple(filter(self.allowed, map(Way, portfolio().first)))

    @cached_property
    def _last(self) -> Sequence[Way]:
        in_place = portfolio().last_in_place if self.problem.inputs != "preserve" else ()
        return tuple(filter(self.allowed, (*map(Way, portfolio().last), *(Way(levels, self.problem.inputs) for levels in in_place))))

    def _lent(self, way: Way, extent: int) -> int:
        """The most of the last `extent` rows that a way can compute with its temporaries in the others; 0 if none."""
        grid = outline(way).profile
        step = STEP * (grid.n if self.problem.by_columns else grid.m)
        _, across = self.problem.lines
        blocks = (self.problem.k // grid.k, across // (grid.m if self.problem.by_columns else grid.n))

        def exceeds(count: int) -> bool:
            return self._placement(way, count * step).workspace_elements > (extent - count * step) * across

        fitting = bisect_left(range(1, extent // step + 1), True, key=exceeds)  # more rows need more, and leave less
        return fitting * step if min(*blocks, fitting * STEP) >= self.least else 0

    def _placement(self, way: Way, extent: int) -> Placement:
        return outline(way).placed(self.problem.of_lines(extent), self.problem.itemsize)

    def _timed(self, way: Way, extent: int) -> _Chain:
        seconds, tile = fastest_tile(outline(way).profile, self._placement(way, extent), self.problem.dtype, self.device)
        return seconds, ((extent, Scheduled(way.levels, way.inputs, tile=tile)),)


def _seconds(chain: _Chain) -> float:
    return chain[0]


LEAST_TIMED_GAIN = 0.02  # The library is kept unless another one was timed faster by this fraction.


@kept_by_names(1024)
def make_plan(methods: Methods, problem: Problem, device: Device, explain: bool = False, kernels: Kernels | None = None) -> Plan:
    """The plan for a problem on a device, from the device's description alone: it needs no GPU, and the choice is always the same.

    Some `methods` compete with schedules and with the library's multiply. With `explain` everything is computed for every candidate that
    fits; else times only of those that may win, and error bounds only where an accuracy is asked for. `kernels` are those that the current
    GPU's library proposes for a thin product. Raises `BilinearError` (E519) if no plan is accurate enough, not even the library's multiply.
    """
    weighed = Weighing(problem, device, explain, methods, kernels=kernels)
    library = weighed.library()
    found = [library, *(one for method in methods for one in weighed.by(method, None if explain else method.most_weighed))]
    able: list[Candidate] = [candidate for candidate in found if not candidate.why]
    refused: list[Candidate] = [candidate for candidate in found if candidate.why]
    best = min((c for c in able if c is library or weighed.is_worth_it(c, library)), key=_by_time, default=library)
    for least, way in sorted((weighed.least_ms(way), way) for way in weighed.ways()):
        candidate = weighed.weigh(way, least, library if explain else best)
        (refused if candidate.why else able).append(candidate)
        best = min(best, candidate, key=_by_time) if weighed.is_worth_it(candidate, library) else best
    borrowed = weighed.borrowed() if any(candidate.workspace for candidate in refused) else None
    if borrowed is not None:
        (refused if borrowed.why else able).append(borrowed)
    able.sort(key=_by_time)
    chosen = next((candidate for candidate in able if weighed.is_worth_it(candidate, library)), library)
    if chosen is library and library.why:
        raise too_inaccurate(library.why)
    others = [replace(c, why=weighed.why_lost(c, chosen, library)) for c in able if c is not chosen]
    why = "nothing is faster" if able[0] is library else "no plan gains the margin"
    if chosen is not library:
        why = f"{(library.ms or 0.0) / (chosen.ms or 1.0):.2f} times as fast as the library"
    if library.why:
        why = f"the fastest that is accurate enough; of the library's multiply {library.why}"
    if problem.operand_bytes > device.memory:
        why += "; A, B and C need more memory than the device has"
    first = replace(chosen, why=f"chosen: {why}")
    unable = [replace(c, able=False) for c in refused]
    return Plan(problem, device.title, (first, *others, *unable), hashes_of(chosen), implementation_sha256())


def too_inaccurate(why: str) -> BilinearError:
    """The refusal (E519) of an accuracy that not even the library's multiply reaches."""
    return fail("E519", f"no plan is accurate enough, not even the library's multiply: {why}", "allow more, or use a wider type")


def contenders(methods: Methods, problem: Problem, device: Device) -> tuple[Candidate, ...]:
    """The candidates to time, because the model may err: every way in every tile that fits the limits, by predicted time.

    Blocks may be smaller than those for which the model is trusted, and plain ones of any size.
    """
    weighed = Weighing(problem, device, False, methods)
    found, own = list[Candidate](), device.policy
    for way in weighed.ways():
        block = weighed.block(way)
        if min(block) >= own.least_timed_block or (portfolio().is_plain(way.levels) and block[1] >= own.least_timed_inner):
            found += weighed.in_each_tile(way)
    borrowed = weighed.borrowed()
    found += [] if borrowed is None else [borrowed]
    found += [one for method in methods for one in weighed.by(method, method.most_timed)]
    return tuple(sorted((c for c in found if not c.why), key=_by_time))


def timed_plan(problem: Problem, device: Device, timed: Sequence[Candidate]) -> Plan:
    """The plan of the first of some candidates that were timed, whose `ms` are measured."""
    chosen, library = timed[0], _library_of(timed)
    off = [(candidate.ms or 0.0) / (chosen.ms or 1.0) - 1 for candidate in timed]
    gain = f"the fastest of {len(timed)}" if library is None else f"{ms_of(library) / (chosen.ms or 1.0):.2f} times as fast as the library"
    if chosen is library:
        gain = "no plan gains the margin" if min(off) < 0 else "nothing is faster"
    first = replace(chosen, why=f"timed: {gain}")
    others = [replace(c, why=f"timed: {abs(x):.1%} {'slower' if x >= 0 else 'faster'}") for c, x in zip(timed[1:], off[1:], strict=True)]
    return Plan(problem, device.name, (first, *others), hashes_of(chosen), implementation_sha256())


def in_order(timed: Sequence[Candidate]) -> list[Candidate]:
    """Candidates that were timed, the one to run first: the library's multiply, unless another one is faster by `LEAST_TIMED_GAIN`."""
    order, library = sorted(timed, key=ms_of), _library_of(timed)
    if library is None or ms_of(order[0]) < (1 - LEAST_TIMED_GAIN) * ms_of(library):
        return order
    return [library, *(candidate for candidate in order if candidate is not library)]


def _library_of(timed: Sequence[Candidate]) -> Candidate | None:
    return next((candidate for candidate in timed if candidate.strategy == LIBRARY), None)


def ms_of(candidate: Candidate) -> float:
    """The time of a candidate; infinite if it is not known."""
    return inf if candidate.ms is None else candidate.ms


def hashes_of(chosen: Candidate) -> tuple[tuple[str, str], ...]:
    """Of every level of every part."""
    return tuple(one for part in chosen.parts if part.levels for one in outline(Way(part.levels, part.inputs)).sha256)


@dataclass(frozen=True)
class Weighing:
    """Candidates of one problem on one device."""

    problem: Problem
    device: Device
    explain: bool
    methods: Methods = ()
    named: bool = False  # Whether the caller names the levels: only a requested accuracy then limits errors.
    kernels: Kernels | None = None

    def ways(self) -> Iterator[Way]:
        """The ways with few enough products that proving and building them is worth the time for this problem."""
        found, own = ways(self.problem) if self.device.runs_kernels else (), self.device.policy
        is_long = (self.library().ms or 0.0) >= own.long_ms
        return (way for way in found if is_long or outline(way).products <= own.many_products)

    def by(self, method: Method, most: int | None) -> list[Candidate]:
        """The candidates of a method; if there may be at most so many, those that may run come first, by time."""
        if not self.device.runs_kernels:
            return []
        most_ms = inf if self.explain or self.problem.accuracy is not None else self.modelled_ms
        found = [self.judged(one) for one in method.candidates(self.problem, self.device, self.budget, most_ms)]
        ranked = method.most_weighed is not None
        return sorted(found, key=lambda c: (bool(c.why), *_by_time(c)))[:most] if ranked else found

    def judged(self, candidate: Candidate) -> Candidate:
        """A candidate with its error bound, if that is needed, and why it may not run."""
        found = with_errors(candidate, self.problem, self.explain)
        return replace(found, why=self.why_not(found))

    def library(self) -> Candidate:
        """The library's multiply: by times of thin products if they are known, else by its rate."""
        found = thin_library(self.problem, self.device, self.kernels)
        if found is None:
            found = Candidate(Library(), self.modelled_ms, 0)
        return self.judged(found)

    def least_ms(self, way: Way) -> float:
        """What the products of a way take alone, in milliseconds."""
        p = self.problem
        size = geometric_mean(p.m, p.k, p.n)
        alone, block = ProductWork(outline(way).products, 0, 0), self.block(way)
        return min(product_seconds(alone, block, p.dtype, self.device, size, tile=tile) for tile in self.device.tiles(p.dtype)) * 1e3

    def block(self, way: Way) -> tuple[int, int, int]:
        """The extents of the finest blocks; at least 1."""
        p, grid = self.problem, outline(way).profile
        m, k, n = core_of((grid.m, grid.k, grid.n), (p.m, p.k, p.n), ELEMENTS[p.dtype].bytes)
        return max(1, m // grid.m), max(1, k // grid.k), max(1, n // grid.n)

    def weigh(self, way: Way, least: float, best: Candidate) -> Candidate:
        """A candidate with its figures; `why` says why it cannot run, or that it is not worth a closer look."""
        p, block = self.problem, self.block(way)
        is_even = p.lies_evenly and not p.column_major and is_aligned(p.k, p.n, p.dtype)
        enough = self.device.policy.least_extents(p.dtype, is_even and portfolio().is_plain(way.levels))
        if any(map(lt, block, enough)):  # the model is trusted for larger ones
            return Candidate(scheduled(way), why=f"blocks of {'x'.join(map(str, block))} are too small")
        if least >= (best.ms or 0.0):
            return Candidate(scheduled(way), why=f"its products alone take {least:.3g} ms, {best.name} {best.ms:.3g}")
        return self.figures(way)

    def figures(self, way: Way) -> Candidate:
        """A candidate with its figures, in the tile that is fastest for it; `why` says why it cannot run."""
        placement = outline(way).placed(self.problem, self.problem.itemsize)
        return self.in_a_tile(way, placement, *fastest_tile(outline(way).profile, placement, self.problem.dtype, self.device))

    def in_each_tile(self, way: Way) -> Iterator[Candidate]:
        """The same, in every tile."""
        placement = outline(way).placed(self.problem, self.problem.itemsize)
        each = each_tile(outline(way).profile, placement, self.problem.dtype, self.device)
        return (self.in_a_tile(way, placement, *found) for found in each)

    def in_a_tile(self, way: Way, placement: Placement, seconds: float, tile: str) -> Candidate:
        """A candidate that takes so long in a tile."""
        workspace = placement.workspace_elements * ELEMENTS[self.problem.dtype].bytes
        return self.judged(Candidate(replace(scheduled(way), tile=tile), seconds * 1e3, workspace))

    def borrowed(self) -> Candidate | None:
        """What computes C in parts, with temporaries in C itself; `why` says why it cannot run."""
        if not self.device.runs_kernels:
            return None
        found = Borrowing(self.problem, self.device, self.device.policy.least_block, self.is_accurate).best()
        return None if found is None else self.judged(found)

    def is_worth_it(self, candidate: Candidate, library: Candidate) -> bool:
        """Whether a candidate can run, and gains enough; any gain is enough if the library's multiply is not accurate enough."""
        if candidate.why or library.why:
            return not candidate.why
        least, saved = candidate.choice.least_saved(self.device.policy), 1e3 * ((library.ms or 0.0) - (candidate.ms or 0.0))
        return self.gain(candidate, library) > candidate.choice.least_gain(self.device.policy) and (not least or saved >= least)

    def gain(self, candidate: Candidate, library: Candidate) -> float:
        """The part of the library's time saved; its modelled time counts if that is shorter, and the candidate's time holds no call."""
        ms = library.ms or 0.0
        return 1 - (candidate.ms or 0.0) / ((ms if candidate.choice.counts_calls else min(ms, self.modelled_ms)) or 1.0)

    @property
    def modelled_ms(self) -> float:
        """The time of the library's multiply by its rate."""
        return library_seconds((self.problem.m, self.problem.k, self.problem.n), self.problem.dtype, self.device) * 1e3

    def why_lost(self, candidate: Candidate, chosen: Candidate, library: Candidate) -> str:
        """Why a candidate that can run was not chosen."""
        off = (candidate.ms or 0.0) / (chosen.ms or 1.0) - 1
        if off < 0:
            gain, least = self.gain(candidate, library), candidate.choice.least_gain(self.device.policy)
            if gain > least:
                return f"saves less than {candidate.choice.least_saved(self.device.policy):g} us, which is within the model's error"
            return f"gains {gain:.1%}, and less than {least:.0%} is within the model's error"
        return f"{off:.1%} slower"

    def is_accurate(self, way: Way) -> bool:
        """Whether a way is as accurate as is asked for."""
        return not why_inaccurate(with_errors(Candidate(scheduled(way)), self.problem, self.explain), self.problem.accuracy)

    def why_not(self, found: Candidate) -> str:
        """Why a candidate may not run; empty if it may."""
        p = self.problem
        if found.workspace is not None and found.workspace > self.budget and not (p.workspace == 0 and found.choice.needs_little):
            what = "allowed" if self.budget == p.workspace else "left on the device beside A, B and C"
            return f"needs {found.workspace} bytes of workspace, {self.budget} are {what}"
        return found.choice.why_not(p, self.device.policy) or why_inaccurate(found, p.accuracy) or ("" if self.named else why_far(found, p))

    @property
    def budget(self) -> int:
        """Bytes of workspace that are left."""
        return self.problem.budget_in(self.device.memory * self.device.memory_share)


def _by_time(candidate: Candidate) -> tuple[float, str]:
    return candidate.ms or 0.0, candidate.name


def with_errors(candidate: Candidate, problem: Problem, explain: bool) -> Candidate:
    """A candidate with its certain bound and its probable error. Each is computed if the accuracy needs it, or to explain everything."""
    asked, inner, dtype = problem.accuracy, problem.k, problem.dtype
    certain = known_bound(candidate, inner, dtype) if explain or isinstance(asked, float | int) else None
    probable = candidate.choice.probable(inner, dtype) if explain or isinstance(asked, str) else None
    return replace(candidate, error=certain, probable=probable)


def why_inaccurate(candidate: Candidate, asked: float | str | None) -> str:
    """Why a candidate with its errors is less accurate than is asked for; empty if it is accurate enough."""
    if isinstance(asked, str):
        times = candidate.probable or 0.0
        return f"its probable error is {times:.2g} times the classical multiply's" if times > CLASSES[asked] else ""
    if asked is None:
        return ""
    if candidate.error is None:
        return "no error bound is known for sums of so many terms"
    return f"its error bound {candidate.error:.2g} is above {asked:.2g}" if candidate.error > asked else ""


def why_far(candidate: Candidate, problem: Problem) -> str:
    """Why a candidate is not accurate enough for a call that requests no accuracy; empty if it is."""
    if problem.accuracy is not None or not candidate.choice.may_be_far:
        return ""
    times = candidate.choice.probable(problem.k, problem.dtype)
    asked = f"more than {USUAL_LIMIT:g} times has to be asked for by accuracy="
    return f"its probable error is {times:.2g} times the classical multiply's, and {asked}" if times > USUAL_LIMIT else ""


def known_bound(candidate: Candidate, inner: int, dtype: str) -> float | None:
    """The bound that always holds for a candidate; None if sums are so long that none is known."""
    found = candidate.choice.bound(inner, dtype)
    return found if isfinite(found) else None
