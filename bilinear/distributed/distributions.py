"""Distributions of a matrix over ranks, by the names that nvmath-python gives them, and ScaLAPACK's descriptor."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import ClassVar, Protocol

from bilinear.errors import fail

LAYOUTS = "row-major", "column-major"


class Distribution(Protocol):
    """What says where the elements of a matrix lie."""

    def spread(self, rows: int, columns: int, ranks: int) -> Spread:
        """The part of a matrix of this shape that each rank holds. Raises `BilinearError` (E761) if it is not for so many ranks."""
        ...


def shape(distribution: Distribution, rank: int, global_shape: tuple[int, int], ranks: int) -> tuple[int, int]:
    """The shape of a rank's piece."""
    return distribution.spread(*global_shape, ranks)[rank].shape


@dataclass(frozen=True)
class Slab:
    """Contiguous rows (`Slab.X`) or columns (`Slab.Y`) a rank; the first ranks have one more where the number does not divide."""

    axis: int
    X: ClassVar[Slab]
    Y: ClassVar[Slab]

    def __post_init__(self) -> None:
        if self.axis not in (0, 1):
            raise fail("E761", f"a slab along axis {self.axis!r} of a matrix", "take Slab.X (rows) or Slab.Y (columns)")

    def spread(self, rows: int, columns: int, ranks: int) -> Spread:
        """One slab a rank."""
        if self.axis == 0:
            return tuple(Rect(run(*part), run(0, columns)) for part in near_even(rows, ranks))
        return tuple(Rect(run(0, rows), run(*part)) for part in near_even(columns, ranks))


Slab.X = Slab(0)
Slab.Y = Slab(1)


@dataclass(frozen=True)
class ProcessGrid:
    """Ranks as a grid of `shape`, numbered row by row (`row-major`) or column by column (`column-major`, BLACS' default is the former)."""

    shape: tuple[int, int]
    layout: str = LAYOUTS[0]

    def __post_init__(self) -> None:
        if len(self.shape) != 2 or not all(_is_count(extent) for extent in self.shape):
            raise fail("E761", f"a process grid of shape {self.shape!r}", "give two positive integers")
        if self.layout not in LAYOUTS:
            raise fail("E761", f"a process grid with layout={self.layout!r}", f"choose one of {', '.join(LAYOUTS)}")

    def place(self, rank: int) -> tuple[int, int]:
        """The row and the column of a rank."""
        rows, columns = self.shape
        return divmod(rank, columns) if self.layout == LAYOUTS[0] else (rank % rows, rank // rows)


@dataclass(frozen=True)
class BlockCyclic:
    """Blocks of `block_sizes` dealt out in turn to the rows and columns of a grid, from `first_process` on: ScaLAPACK's distribution."""

    process_grid: ProcessGrid
    block_sizes: tuple[int, int]
    first_process: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        if len(self.block_sizes) != 2 or not all(_is_count(size) for size in self.block_sizes):
            raise fail("E761", f"blocks of size {self.block_sizes!r}", "give two positive integers")
        _require_first(self.first_process, self.process_grid)

    def spread(self, rows: int, columns: int, ranks: int) -> Spread:
        """The blocks of each rank."""
        (p, q), (first, second) = self.process_grid.shape, self.first_process
        if p * q != ranks:
            what = f"a grid of {p} x {q} processes, and there are {ranks}"
            raise fail("E761", what, "give a grid with as many processes as the communicator")
        dealt = [_dealt(rows, self.block_sizes[0], p, i - first) for i in range(p)]
        across = [_dealt(columns, self.block_sizes[1], q, j - second) for j in range(q)]
        places = (self.process_grid.place(rank) for rank in range(ranks))
        return tuple(Rect(dealt[i], across[j]) for i, j in places)


@dataclass(frozen=True)
class BlockNonCyclic:
    """One block a rank of a grid, of ceil(rows / grid rows) x ceil(columns / grid columns); the last ones may be smaller or empty."""

    process_grid: ProcessGrid
    first_process: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        _require_first(self.first_process, self.process_grid)

    def spread(self, rows: int, columns: int, ranks: int) -> Spread:
        """The block of each rank."""
        p, q = self.process_grid.shape
        sizes = max(1, -(-rows // p)), max(1, -(-columns // q))
        return BlockCyclic(self.process_grid, sizes, self.first_process).spread(rows, columns, ranks)


@dataclass(frozen=True)
class Pieces:
    """Any part a rank, as `RankPlan.home` gives them: the distributions from which a plan moves nothing before its products."""

    parts: Spread = field(repr=False)

    def spread(self, rows: int, columns: int, ranks: int) -> Spread:
        """The parts, within the matrix."""
        if len(self.parts) != ranks:
            raise fail("E761", f"pieces for {len(self.parts)} ranks, and there are {ranks}")
        whole = Rect(run(0, rows), run(0, columns))
        found = tuple(part.meet(whole) for part in self.parts)
        if sum(part.size for part in found) != rows * columns or any(x.meet(y).size for i, x in enumerate(found) for y in found[:i]):
            raise fail("E761", "the pieces do not hold each element once", f"they are for another shape than {rows} x {columns}")
        return found


def from_descriptor(descriptor: Sequence[int], process_grid: ProcessGrid) -> tuple[tuple[int, int], BlockCyclic]:
    """The shape and the distribution of a matrix with ScaLAPACK's array descriptor on a grid.

    The descriptor is (DTYPE, CTXT, M, N, MB, NB, RSRC, CSRC, LLD) of DESCINIT; the context is the grid's, and the leading dimension does
    not matter, for pieces are arrays. Raises `BilinearError` (E761) for one of another type.
    """
    values = tuple(int(value) for value in descriptor)
    if len(values) != 9 or values[0] != 1:
        raise fail("E761", f"{values} is not a descriptor of a dense block-cyclic matrix", "it has nine integers, the first of them 1")
    _, _, m, n, mb, nb, first, second, _ = values
    return (m, n), BlockCyclic(process_grid, (mb, nb), (first, second))


def _dealt(extent: int, block: int, parts: int, part: int) -> Runs:
    starts = range(part % parts * block, extent, block * parts)
    return joined((start, min(start + block, extent)) for start in starts)


def _require_first(first: tuple[int, int], grid: ProcessGrid) -> None:
    inside = len(first) == 2 and all(isinstance(x, int) and 0 <= x < extent for x, extent in zip(first, grid.shape, strict=True))
    if not inside:
        raise fail("E761", f"first_process={first!r} is outside of a grid of {grid.shape[0]} x {grid.shape[1]}")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


Run = tuple[int, int]  # Indices from the first to before the second.
Runs = tuple[Run, ...]  # Runs in ascending order that neither overlap nor touch.


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


Spread = tuple[Rect, ...]  # What each rank holds of a matrix.


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
