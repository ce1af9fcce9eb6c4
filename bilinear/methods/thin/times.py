"""Thin products: how a tile of our own kernel sees a problem, whether it suits it, and how long it takes."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from bilinear.ir.element import Element
from bilinear.ir.kernel import MOST_SHARED_BYTES, ThinKernel
from bilinear.ir.thin_tile import AnyThinTile, ThinTileFacts
from bilinear.planner.device import Device
from bilinear.planner.problem import SHORT, Problem
from bilinear.planner.thin_rates import LONG_SUM, ThinRates, ThinTileRates

if TYPE_CHECKING:  # readers are imported lazily: most plans need none
    pass

LEAST_DEPTH, LEAST_COLUMNS = 16, 16
"""The least depth and columns of a tile on matrix units."""
COPIES_OF_LINE = 32
"""A bulk copy of a line takes as long as so many copies of 16 bytes."""
SECTOR, SPLIT = 32, 1.6
"""The bytes that memory reads and writes at once, and how many times as long it takes to write them in parts."""


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
    swaps: bool
    """Whether it is C^T = B^T A^T."""

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
    if tile.on_units:
        return _suits_units(tile, view) and _kernel(tile, view, element).shared_bytes <= shared
    if tile.n >= 8 * view.n or tile.n * 2 < min(view.n, SHORT) or tile.m >= 16 * view.m or tile.k >= 16 * view.k:
        return False
    return _kernel(tile, view, element).shared_bytes <= shared


def _suits_units(tile: AnyThinTile, view: View) -> bool:
    """Whether a tile on matrix units is not far too large for a problem; instructions outside of the result are left out."""
    is_deep = tile.k <= LEAST_DEPTH or tile.k < 4 * view.k
    if tile.keeps:
        return is_deep and (tile.n <= LEAST_COLUMNS or tile.n < 4 * view.n)
    return is_deep and tile.m < 8 * view.m and min(view.n, LEAST_COLUMNS) <= tile.n < 4 * max(view.n, LEAST_COLUMNS)


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
    torn = rates.torn if not tile.on_units and view.tears(element) else SPLIT if tile.writes_parts and view.splits(element) else 1
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
    slice_us = _operations(tile, view) / speed + view.copies(tile, element) / rates.copies
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


def _operations(tile: AnyThinTile, view: View) -> int:
    """Operations of a slice; the units for doubles multiply blocks of rows, columns and terms, and those outside are left out."""
    if tile.block is None:
        return 2 * tile.m * tile.n * tile.k
    m, n, k = tile.block
    return 2 * min(tile.m, ceil(view.m / m) * m) * min(tile.n, ceil(view.n / n) * n) * min(tile.k, ceil(view.k / k) * k)
