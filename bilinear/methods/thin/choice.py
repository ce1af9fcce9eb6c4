"""What a thin product runs: how a tile of our own kernel sees a problem, how long it takes, its proved bound and its probable error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, hypot
from typing import TYPE_CHECKING, ClassVar

from bilinear.ir.element import COMPILED, ELEMENTS, FLOAT32, Element
from bilinear.ir.kernel import ThinKernel
from bilinear.ir.thin_tile import LEAST_TERMS, THIN_TILES, AnyThinTile, ThinTileFacts, ThinTriplesTile
from bilinear.ir.tile import MOST_SHARED_BYTES
from bilinear.planner.device import LONG_SUM, Device, Policy, ThinRates, ThinTileRates
from bilinear.planner.library import classical_error, is_thin, probable_classical_of
from bilinear.planner.plan import Candidate, Choice
from bilinear.planner.problem import SHORT, Problem

if TYPE_CHECKING:  # imported late
    from bilinear.analysis.digit_bounds import Summation
    from bilinear.analysis.traffic import Streaming

LEAST_DEPTH, LEAST_COLUMNS = 16, 16  # The least depth and columns of a tile on matrix units.
COPIES_OF_LINE = 32  # A bulk copy of a line takes as long as so many copies of 16 bytes.
WAVES = (1, 2, 4)  # Sums are split so that the units, a tile and a part each, fill the device so often.
SECTOR, SPLIT = 32, 1.6  # Bytes that memory moves at once; how much longer writes in parts take.


def is_turned(problem: Problem, tile: ThinTileFacts) -> bool:
    """Whether it is C^T = B^T A^T, so that the longer extent of C is always its rows.

    A tile of strips runs wide results, too. If both extents of C are long, it computes the one that lies by columns: a warp then writes
    more neighbours at once.
    """
    if tile.strips and min(problem.m, problem.n) > SHORT:
        return "C" not in problem.column_major
    return problem.n > problem.m


@dataclass(frozen=True)
class View:
    """A problem as the thin kernel sees it: C or C^T is m x n (`turned.py`), and whether neighbours of A and B are terms of one sum."""

    m: int
    k: int
    n: int
    left_along: bool
    right_along: bool
    by_rows: bool
    swaps: bool  # Whether it is C^T = B^T A^T.

    def copies(self, tile: AnyThinTile, element: Element) -> int:
        """Copies of one slice of both operands: of 16 bytes, or of single elements if lines do not begin at multiples of that."""
        if tile.copies_beside:
            return 0
        m, n = (min(tile.m, self.m), min(tile.n, self.n)) if tile.on_units else (tile.m, tile.n)
        if tile.copies_lines:
            lines = (m if self.left_along else tile.k) + (0 if tile.keeps else n if self.right_along else tile.k)
            return COPIES_OF_LINE * lines
        left = element.lanes if (tile.keeps and self.left_along) or (self.k if self.left_along else self.m) % element.lanes == 0 else 1
        right = element.lanes if (self.k if self.right_along else self.n) % element.lanes == 0 else 1
        return m * tile.k // left + (0 if tile.keeps else n * tile.k // right)

    def splits(self, element: Element) -> bool:
        """Whether lines of C do not begin at multiples of 32 bytes, so that some of these are written in parts."""
        return (self.n if self.by_rows else self.m) * element.bytes % SECTOR != 0

    def tears(self, element: Element) -> bool:
        """Whether a thread writes C element by element: it has no neighbours of C, or lines of C do not begin at multiples of 16 bytes."""
        is_vector = not self.right_along if self.by_rows else not self.left_along
        return not is_vector or (self.n if self.by_rows else self.m) % element.lanes != 0


def view_of(problem: Problem, tile: AnyThinTile) -> View:
    """How the thin kernel computes a problem in a tile."""
    p = problem
    a_by_rows, b_by_rows, c_by_rows = (name not in p.column_major for name in "ABC")
    if is_turned(p, tile):
        return View(p.n, p.k, p.m, not b_by_rows, a_by_rows, not c_by_rows, True)
    return View(p.m, p.k, p.n, a_by_rows, not b_by_rows, c_by_rows, False)


KINDS = {
    (False, False, True): "large x tall-and-skinny (TSM2R)",
    (False, True, True): "tall-and-skinny x small (TSM2L)",
    (True, False, True): "A^T B of two tall-and-skinny matrices",
    (False, True, False): "update of low rank",
}
"""By which of m, k and n are short, m >= n; the names in parentheses are those of TSM2X."""


def kind_of(view: View) -> str:
    """The kind of a thin product, as docs/thin.md lists them; that of small matrices throughout has no name."""
    return KINDS.get((view.m <= SHORT, view.k <= SHORT, view.n <= SHORT), "small matrices")


def suits(tile: AnyThinTile, view: View, element: Element, shared: int = MOST_SHARED_BYTES) -> bool:
    """Whether a tile can run a problem on a device with so much shared memory, and is not far too large or too small for it."""
    if not tile.admits(element.lanes, view.left_along, view.right_along):
        return False
    if tile.copies_lines and not tile.keeps and view.k <= SHORT:
        return False
    if tile.on_units:  # which leave instructions outside of the result out
        is_deep = tile.k <= LEAST_DEPTH or tile.k < 4 * view.k
        fits = tile.n <= LEAST_COLUMNS or tile.n < 4 * view.n
        if not tile.keeps:
            fits = tile.m < 8 * view.m and min(view.n, LEAST_COLUMNS) <= tile.n < 4 * max(view.n, LEAST_COLUMNS)
        return is_deep and fits and _kernel(tile, view, element).shared_bytes <= shared
    if tile.n >= 8 * view.n or tile.n * 2 < min(view.n, SHORT) or tile.m >= 16 * view.m or tile.k >= 16 * view.k:
        return False
    return _kernel(tile, view, element).shared_bytes <= shared


def _kernel(tile: AnyThinTile, view: View, element: Element) -> ThinKernel:
    """The kernel for matrices at any addresses."""
    return ThinKernel("", element, tile, view.left_along, view.right_along, view.by_rows, 1, 1)


def units_in_hand(tile: AnyThinTile, view: View, element: Element, shared: int) -> int:
    """The units that a multiprocessor has in hand, by the blocks of threads that it holds, on a device with so much shared memory."""
    return _kernel(tile, view, element).resident_in(shared) * tile.turns


def thin_seconds(
    own: ThinTileRates,
    tile: AnyThinTile,
    view: View,
    parts: int,
    element: Element,
    device: Device,
    rates: ThinRates,
    accumulate: bool = False,
) -> float:
    """The seconds of a thin product.

    The longest of three: the traffic, each operand once from memory and what is read again from the cache; the copies and the arithmetic of
    whole tiles in whole waves; and the slices of one block, each of which waits for memory or for the multiprocessor that its neighbours
    share. The shorter ones of traffic and work overlap only in part with the longest, so a quarter of the shorter one is added.
    """
    m, k, n = view.m, view.k, view.n
    tiles_m, tiles_n, slices = ceil(m / tile.m), ceil(n / tile.n), ceil(ceil(k / parts) / tile.k)
    units, resident = tiles_m * tiles_n * parts, units_in_hand(tile, view, element, device.shared)
    slots = device.processors * resident
    torn = rates.torn if not tile.on_units and view.tears(element) else SPLIT if tile.fetches and view.splits(element) else 1
    results = m * n * torn * (2 if accumulate else 1) + (parts * m * n if parts > 1 else 0)
    once = (m * k + k * n + results) * element.bytes
    right_again = 0 if tile.keeps else tiles_m - 1
    again = (m * k * (tiles_n - 1) + k * n * right_again) * element.bytes
    along, across = (own.along, own.across) if k > LONG_SUM else (own.short_along, own.short_across)
    share = along if view.left_along else across
    beside = ceil(units / device.processors)
    idle = max(0.0, beside * device.processors / units - 1) if units >= device.processors else 0.0
    memory = (once / share + again / rates.again) / (device.bandwidth * 1e3) * (1 + rates.tail * idle)
    speed = thin_peak(tile, rates) * 1e6 * own.arithmetic / device.processors  # operations of a multiprocessor in a us
    rows, columns, terms = tile.block or (tile.m, tile.n, tile.k)  # instructions outside of the result are left out
    operations = 2 * min(tile.m, ceil(m / rows) * rows) * min(tile.n, ceil(n / columns) * columns) * min(tile.k, ceil(k / terms) * terms)
    slice_us = operations / speed + view.copies(tile, element) / rates.copies
    waves = ceil(units / slots)
    busy = waves * slots / units if units > slots else max(1.0, device.processors / units)
    arithmetic = slice_us * slices * units / device.processors * busy
    begins = waves if tile.gathers else 1  # threads that share sums gather them before they begin the next unit
    slowest = max(slice_us * min(resident, beside), rates.latency / (tile.stages - 1))
    block = waves * slices * slowest + (rates.latency + rates.gathering) * begins
    us = rates.launch + max(memory, arithmetic, block) + min(memory, arithmetic) / 4 + (rates.adding if parts > 1 else 0)
    return us * 1e-6


def thin_peak(tile: AnyThinTile, rates: ThinRates) -> float:
    """The operations of a tile's unit, or of the pipes, in 10^12 per second."""
    return rates.units * tile.times_doubles if tile.on_units else rates.pipes


@dataclass(frozen=True)
class Thin(Choice):
    """How a thin product runs: the name of its tile, in how many parts sums are split, and whether C^T = B^T A^T is computed instead."""

    tile: str
    parts: int = 1
    swaps: bool = False
    method: ClassVar[str] = "thin"
    strategy = "thin"
    counts_calls: ClassVar[bool] = True
    may_be_far: ClassVar[bool] = True
    title: ClassVar[str] = "kernel for thin products"
    needs: ClassVar[str] = (
        "multiplies two arrays of one type (by triples: of sm_90, sums of at least "
        f"{LEAST_TERMS} terms; keeping B: one that its tile holds), and needs an out of that type"
    )
    less: ClassVar[str] = "plan with this workspace, for sums that are whole need none, or use algorithm='auto'"

    @property
    def name(self) -> str:
        """A readable name."""
        return self.strategy if self.parts == 1 else f"{self.strategy}, sums in {self.parts} parts"

    @property
    def summed_in(self) -> int:
        """The parts of sums."""
        return self.parts

    def bound(self, inner: int, dtype: str) -> float:
        """The bound that always holds: that of the classical multiply, or of digits if it is larger."""
        classical, tile = classical_error(inner, COMPILED[dtype]), THIN_TILES[dtype][self.tile]
        return max(triples_error(inner, self.parts, tile), classical) if isinstance(tile, ThinTriplesTile) else classical

    def probable(self, inner: int, dtype: str) -> float:
        """The probable error by norm in units of the classical multiply's."""
        tile = THIN_TILES[dtype][self.tile]
        if not isinstance(tile, ThinTriplesTile):
            return 1.0
        return max(1.0, _probable_triples(inner, self.parts, tile) / probable_classical_of(inner, dtype))

    def least_gain(self, policy: Policy) -> float:
        """The part of the library's time that it must save to be chosen."""
        return policy.least_gain_thin

    def least_saved(self, policy: Policy) -> float:
        """The microseconds that it must save."""
        return policy.least_saved_thin

    def why_not(self, problem: Problem, policy: Policy) -> str:
        """Why it may not run for a problem; empty if it may."""
        is_vector = min(problem.m, problem.n) < policy.least_thin
        return "the library multiplies by a vector at the speed of memory" if is_vector else ""

    def rate(self, problem: Problem, device: Device) -> float | None:
        """The operations a second of the tile's unit on a full device; None if the device has no rates."""
        rates = device.thin_rates(problem.dtype)
        return None if rates is None else thin_peak(THIN_TILES[problem.dtype][self.tile], rates) * 1e12

    def streaming(self, problem: Problem, device: Device, ms: float | None) -> Streaming | None:
        """The models' answer for a kernel that takes so long; None if the device has no rates."""
        from bilinear.analysis import traffic as models

        rates, rate = device.thin_rates(problem.dtype), self.rate(problem, device)
        if rates is None or rate is None:
            return None
        tile, element = THIN_TILES[problem.dtype][self.tile], ELEMENTS[problem.dtype]
        view = view_of(problem, tile)
        memory = device.bandwidth * 1e9
        units = ceil(view.m / tile.m) * ceil(view.n / tile.n) * self.parts
        blocks = min(units_in_hand(tile, view, element, device.shared), ceil(units / device.processors))
        lines = min(tile.m, view.m) + (0 if tile.keeps else min(tile.n, view.n))
        under_way = blocks * (tile.stages - 1) * lines * min(tile.k, view.k) * element.bytes
        extents = view.m, view.k, view.n
        reading = 1 - view.m * view.n / models.least_traffic(extents)
        needed = reading * memory / device.processors * rates.latency * 1e-6  # Little's law
        share = min(1.0, under_way / needed)
        moving, multiplying = models.least_traffic(extents) * element.bytes / memory, models.operations(extents) / rate
        bound = models.bound_by(share, moving, multiplying, ms)
        return models.Streaming(
            kind_of(view), models.threshold(rate, memory, element.bytes), blocks, under_way, round(needed), share, bound
        )

    def check(self, problem: Problem) -> None:
        """Raise a `ValueError` if the fields make no sense."""
        if self.tile not in THIN_TILES.get(problem.dtype, {}):
            raise ValueError(f"there is no tile {self.tile!r}")
        if type(self.parts) is not int or not 0 < self.parts < 2**80:
            raise ValueError("its parts of sums make no sense")
        if self.swaps is not is_turned(problem, THIN_TILES[problem.dtype][self.tile]):
            raise ValueError("its tile does not compute the product this way round")


def thin_of(candidate: Candidate) -> Thin:
    """What a candidate by a tile runs."""
    if not isinstance(candidate.choice, Thin):
        raise TypeError("the candidate is by another method")
    return candidate.choice


def _terms_of_part(inner: int, parts: int, tile: ThinTriplesTile) -> int:
    """The terms of the longest part: all but the last one have whole slices."""
    return min(inner, ceil(ceil(inner / parts) / tile.k) * tile.k)


def in_triples(tile: ThinTriplesTile) -> Summation:
    """How the thin kernel adds up the products of bfloat16 digits: a warpgroup has its share of a slice in the unit."""
    from bilinear.analysis.digit_bounds import Summation

    return Summation(tile.k // tile.k_groups, others="before")


@lru_cache(maxsize=256)
def triples_error(inner: int, parts: int, tile: ThinTriplesTile) -> float:
    """The certain bound of sums in parts, which are added up in float32, in units of the largest elements of both operands."""
    from bilinear.analysis.digit_bounds import digit_bound
    from bilinear.analysis.rounding import gamma
    from bilinear.frontend.algorithms import load_digits

    part = digit_bound(load_digits("triples"), _terms_of_part(inner, parts, tile), in_triples(tile)).of_largest
    adding = gamma(parts, FLOAT32.unit_roundoff)
    return (part + adding + part * adding) * inner


@lru_cache(maxsize=256)
def _probable_triples(inner: int, parts: int, tile: ThinTriplesTile) -> float:
    """The probable error by norm. That of independent parts is the same in each, and their sum is rounded as a classical one."""
    from bilinear.analysis.digit_bounds import probable_classical, probable_digits
    from bilinear.frontend.algorithms import load_digits

    part = probable_digits(load_digits("triples"), _terms_of_part(inner, parts, tile), in_triples(tile))
    return hypot(part, probable_classical(parts, FLOAT32.unit_roundoff) if parts > 1 else 0.0)


def thin_candidates(problem: Problem, device: Device, also: Sequence[int] = ()) -> Iterator[Candidate]:
    """Every tile that suits a thin problem, its sums whole and split; long sums also in so many parts."""
    rates = device.thin_rates(problem.dtype)
    if rates is None or not is_thin(problem):
        return
    element = ELEMENTS[problem.dtype]
    for own in rates.tiles:
        tile = THIN_TILES[problem.dtype][own.name]
        view = view_of(problem, tile)
        if not suits(tile, view, element, device.shared):
            continue
        for parts in _parts(tile, view, device.processors * units_in_hand(tile, view, element, device.shared), also):
            if not tile.holds(view.k, view.n, parts):
                continue
            workspace = parts * view.m * view.n * element.bytes if parts > 1 else 0
            ms = thin_seconds(own, tile, view, parts, element, device, rates, problem.accumulate) * 1e3
            yield Candidate(Thin(tile.name, parts, view.swaps), ms, workspace)


def _parts(tile: AnyThinTile, view: View, slots: int, also: Sequence[int]) -> Iterator[int]:
    """In how many parts to split sums, each of whole slices of the tile, for a device that holds so many blocks of threads."""
    tiles = ceil(view.m / tile.m) * ceil(view.n / tile.n)
    wanted = [1]
    if view.k > LONG_SUM:
        wanted += [max(1, min(ceil(view.k / tile.k), waves * slots // tiles)) for waves in WAVES]
        wanted += also
    yield from dict.fromkeys(ceil(view.k / (ceil(ceil(view.k / parts) / tile.k) * tile.k)) for parts in wanted)
