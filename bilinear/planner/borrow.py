"""Borrow: compute C in parts. The temporaries of each part lie in the rows of C (columns if C is column-major) that are computed later.

One level of a depth-first schedule needs temporaries for a quarter of A's part and a quarter of B. With equal extents it can thus compute
three fifths of C, then an eighth; the rest runs without temporaries. Nothing is allocated, and A and B are never written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from bilinear.ir.element import ELEMENTS
from bilinear.ir.placement import Placement
from bilinear.lowering.place import place_schedule
from bilinear.planner.device import Device
from bilinear.planner.model import fastest_tile
from bilinear.planner.plan import Candidate, Panel
from bilinear.planner.portfolio import portfolio
from bilinear.planner.problem import Problem
from bilinear.planner.profiles import outline
from bilinear.planner.scheduled import Scheduled
from bilinear.planner.ways import Way

STEP = 128
"""The rows of a finest block are a multiple of this, the extent of the largest tile."""
MOST_PARTS = 3


class _BorrowedRows(NamedTuple):
    """A number of rows, and what computes them."""

    extent: int
    choice: Scheduled


@dataclass(frozen=True)
class _PartSequence:
    """Parts of a multiply that run one after the other."""

    seconds: float
    parts: tuple[_BorrowedRows, ...]


@dataclass(frozen=True)
class Borrowing:
    """The fastest chain for one problem on one device among the `allowed` ways; blocks have at least `least` rows and columns."""

    problem: Problem
    device: Device
    least: int
    allowed: Callable[[Way], bool] = lambda way: True

    def best(self) -> Candidate | None:
        """The chain as a candidate without a workspace; None if no part of C can be lent."""
        found = [chain for chain in self._chains(self.problem.lines[0], MOST_PARTS) if len(chain.parts) > 1] if self.problem.lends else []
        if not found:
            return None
        chain = min(found, key=lambda chain: chain.seconds)
        (_, first), *rest = chain.parts
        return Candidate(replace(first, strategy="borrow", rest=tuple(Panel(*part) for part in rest)), chain.seconds * 1e3, 0)

    def _chains(self, extent: int, parts: int) -> list[_PartSequence]:
        """For each first way, the fastest chain of at most `parts` parts that computes the last `extent` rows."""
        found = [self._timed(way, extent) for way in self._last]
        for way in self._heads if parts > 1 and found else ():
            own = self._lent(way, extent)
            if own:
                head, tail = self._timed(way, own), min(self._chains(extent - own, parts - 1), key=lambda chain: chain.seconds)
                found.append(_PartSequence(head.seconds + tail.seconds, head.parts + tail.parts))
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
        fitting = _largest(
            lambda count: self._placement(way, count * step).workspace_elements <= (extent - count * step) * across, extent // step
        )
        return fitting * step if min(*blocks, fitting * STEP) >= self.least else 0

    def _placement(self, way: Way, extent: int) -> Placement:
        p, own = self.problem, outline(way)
        m, n = (p.m, extent) if self.problem.by_columns else (extent, p.n)
        return place_schedule(own.frame, m, p.k, n, ELEMENTS[p.dtype].bytes, frozenset(p.column_major), own.lifetimes)

    def _timed(self, way: Way, extent: int) -> _PartSequence:
        seconds, tile = fastest_tile(outline(way).profile, self._placement(way, extent), self.problem.dtype, self.device)
        return _PartSequence(seconds, (_BorrowedRows(extent, Scheduled(way.levels, way.inputs, tile=tile)),))


def _largest(holds: Callable[[int], bool], most: int) -> int:
    """The largest count up to `most` for which `holds` is true; `holds` must be monotone. 0 if it is never true."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
