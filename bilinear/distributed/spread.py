"""Where the elements of a matrix lie: runs of rows and of columns, and what two places have in common."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise

Run = tuple[int, int]
"""Indices from the first to before the second."""
Runs = tuple[Run, ...]
"""Runs in ascending order that neither overlap nor touch."""


@dataclass(frozen=True)
class Rect:
    """The elements of a matrix in some rows and some columns; one rank holds them as a matrix without gaps."""

    rows: Runs
    columns: Runs

    @property
    def shape(self) -> tuple[int, int]:
        """How many rows and columns."""
        return length(self.rows), length(self.columns)

    @property
    def size(self) -> int:
        """How many elements."""
        return length(self.rows) * length(self.columns)

    def meet(self, other: Rect) -> Rect:
        """The elements of both."""
        return Rect(meet(self.rows, other.rows), meet(self.columns, other.columns))

    def inside(self, other: Rect) -> Rect:
        """These elements in the coordinates of `other`'s own matrix, which holds them all."""
        return Rect(inside(self.rows, other.rows), inside(self.columns, other.columns))


Spread = tuple[Rect, ...]
"""What each rank holds of a matrix."""


def run(start: int, stop: int) -> Runs:
    """One run; none if it is empty."""
    return ((start, stop),) if start < stop else ()


def joined(runs: Iterable[Run]) -> Runs:
    """Ascending runs with those that touch made one, and empty ones left out."""
    found: list[Run] = []
    for start, stop in runs:
        if start >= stop:
            continue
        if found and found[-1][1] == start:
            found[-1] = found[-1][0], stop
        else:
            found.append((start, stop))
    return tuple(found)


def length(runs: Runs) -> int:
    """How many indices."""
    return sum(stop - start for start, stop in runs)


@lru_cache(maxsize=2**16)
def meet(left: Runs, right: Runs) -> Runs:
    """The indices of both."""
    found, i, j = [], 0, 0
    while i < len(left) and j < len(right):
        start, stop = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if start < stop:
            found.append((start, stop))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return joined(found)


@lru_cache(maxsize=2**16)
def inside(runs: Runs, holder: Runs) -> Runs:
    """The places of indices among those of a holder, which has them all."""
    starts = [start for start, _ in holder]
    before = (0, *accumulate(stop - start for start, stop in holder))
    found = []
    for start, stop in runs:
        at = bisect_right(starts, start) - 1
        found.append((before[at] + start - starts[at], before[at] + stop - starts[at]))
    return joined(found)


def near_even(extent: int, parts: int) -> tuple[Run, ...]:
    """An extent in as many contiguous parts, the first `extent % parts` of them longer by one."""
    size, longer = divmod(extent, parts)
    ends = (0, *accumulate(size + (part < longer) for part in range(parts)))
    return tuple(pairwise(ends))
