"""Who computes what: even shares of products, and panels of a rank's tile of C, so that one panel travels beside a product."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from math import floor

from bilinear.distributed.rank_plan import Extents, Task
from bilinear.distributed.spread import Run, Runs, joined, length, near_even, run

Tile = tuple[Run, Run]
"""Rows and columns of a tile."""


@lru_cache(maxsize=64)
def tiles(rows: int, columns: int, ranks: int) -> tuple[Tile, ...]:
    """A matrix in as many tiles of equal area, so that the operands of a product in these tiles are read least.

    The tiles stand in columns, as in O. Beaumont, V. Boudet, F. Rastello, Y. Robert, *Matrix multiplication on heterogeneous platforms*
    (IEEE Trans. Parallel Distrib. Syst. 12, 2001): with c columns, the ranks are dealt out to them as evenly as possible, and a column is
    as wide as its share of the ranks. A rank reads its rows of A and its columns of B, so that c is taken for which their sum over all
    ranks is least.
    """
    layouts = (_in_columns(rows, columns, ranks, count) for count in range(1, ranks + 1))

    def cost(found: tuple[Tile, ...]) -> int:
        return sum(row[1] - row[0] + column[1] - column[0] for row, column in found)

    return min(layouts, key=cost)


def _in_columns(rows: int, columns: int, ranks: int, count: int) -> tuple[Tile, ...]:
    shares = near_even(ranks, count)
    edges = [start * columns // ranks for start, _ in shares] + [columns]
    widths = pairwise(edges)
    return tuple((height, width) for (start, stop), width in zip(shares, widths, strict=True) for height in near_even(rows, stop - start))


def shared_products(products: int, block: Extents, ranks: int) -> tuple[tuple[Task, ...], ...]:
    """As many products of blocks shared evenly: whole ones first; those left over are cut so that every rank has the same part of them.

    If the ranks divide into equal groups, one for each product left over, a group cuts its product in tiles. Else the products lie end to
    end, row by row, and every rank takes an equal piece of that line.
    """
    whole, rest = divmod(products, ranks)
    m, k, n = block
    found = [[Task(rank * whole + at, (0, m), run(0, k), (0, n)) for at in range(whole)] for rank in range(ranks)]
    first = ranks * whole
    if rest and ranks % rest == 0:
        group = ranks // rest
        for rank in range(ranks):
            rows, columns = tiles(m, n, group)[rank % group]
            found[rank].append(Task(first + rank // group, rows, run(0, k), columns))
    elif rest:
        for rank in range(ranks):
            found[rank] += _piece_of_line(first, rest, block, Fraction(rest, ranks), rank)
    return tuple(tuple(task for task in tasks if _some(task.rows, task.columns)) for tasks in found)


def _piece_of_line(first: int, count: int, block: Extents, share: Fraction, rank: int) -> list[Task]:
    """The strips of products between two places on the line on which `count` of them lie end to end."""
    m, k, n = block
    start, stop, found = share * rank, share * (rank + 1), []
    for at in range(count):
        low, high = (floor(min(max(edge - at, Fraction(0)), Fraction(1)) * m) for edge in (start, stop))
        found.append(Task(first + at, (low, high), run(0, k), (0, n)))
    return found


def _some(*runs: Run) -> bool:
    return all(start < stop for start, stop in runs)


ROWS, INNER, COLUMNS = range(3)
"""The axes along which a product is cut: rows of its tile, k, columns of its tile."""
Box = tuple[Run, Run, Run]
"""The whole product of a rank, along each axis."""
Held = tuple[Runs, Runs, Runs]
"""Along each axis, the panels of which a rank has both operands."""
FIRST = 15
"""A rank that has nothing begins with a fifteenth of k: four panels, each twice as long as the one before, are all of it."""


def panel_tasks(
    shares: Sequence[Tile], k: int, held: Sequence[Held], panels: int | None = None, whole: bool = False
) -> tuple[tuple[Task, ...], ...]:
    """The tasks of each rank, which computes a tile.

    If each rank has the operands of some panels along one axis, all begin with those. Otherwise k is cut, or columns if k is to be
    `whole`. Ranks begin then at places of k that differ along the rows and the columns of their tiles, as in Cannon's algorithm, so that
    none is asked by all at once. The first panel is narrow, for its messages are waited for. Each further one is twice as long as the one
    before, up to the `longest`. `panels` asks for that many equal ones.
    """
    boxes: list[Box] = [(rows, (0, k), columns) for rows, columns in shares]
    own = None
    for axis in (COLUMNS, ROWS) if whole else (COLUMNS, ROWS, INNER):
        own = own or _own(axis, boxes, held)
    axis, begins, first = own or _from_nothing(boxes, whole)
    found = []
    for at, (box, begin) in enumerate(zip(boxes, begins, strict=True)):
        extent = box[axis][1] - box[axis][0]
        if panels is not None:
            widths = [stop - start for start, stop in near_even(extent, max(1, min(panels, extent)))]
        else:
            widths = doubling(extent, first[at], longest(extent, _side(shares)))
        found.append(tuple(_tasks(box, axis, begin, widths)))
    return tuple(found)


def longest(extent: int, side: int) -> int:
    """The longest panel of a tile of this side: a fast scheme gains less on narrow panels, and nothing on longer ones."""
    return max(side, -(-extent // 4))


def doubling(extent: int, width: int, most: int) -> list[int]:
    """Widths of panels that are an extent together: each twice that of the one before, up to `most`; the last one takes what is little."""
    found = []
    while extent > 0:
        size = extent if extent < 1.5 * width else width
        found.append(size)
        extent, width = extent - size, max(width, min(2 * width, most))
    return found


def _own(axis: int, boxes: Sequence[Box], held: Sequence[Held]) -> tuple[int, list[int], list[int]] | None:
    """The axis, where each rank begins on it, and its first width, if every rank has a panel that is not too narrow; along k all alike."""
    runs = [max(each[axis], key=lambda part: part[1] - part[0], default=(0, 0)) for each in held]
    widths = [stop - start for start, stop in runs]
    if any(width * FIRST < box[axis][1] - box[axis][0] for width, box in zip(widths, boxes, strict=True)):
        return None
    return axis, [start for start, _ in runs], [min(widths)] * len(widths) if axis == INNER else [max(1, width) for width in widths]


def _from_nothing(boxes: Sequence[Box], whole: bool) -> tuple[int, list[int], list[int]]:
    """The same where not every rank has something: a quarter of its columns first, or a fifteenth of k."""
    if whole:
        return COLUMNS, [box[COLUMNS][0] for box in boxes], [max(1, (box[COLUMNS][1] - box[COLUMNS][0]) // 4) for box in boxes]
    k = boxes[0][INNER][1]
    down, across = (sorted({box[axis] for box in boxes}) for axis in (ROWS, COLUMNS))
    turns = [Fraction(down.index(box[ROWS]), len(down)) + Fraction(across.index(box[COLUMNS]), len(across)) for box in boxes]
    return INNER, [floor(k * (turn % 1)) for turn in turns], [-(-k // FIRST)] * len(boxes)


def _tasks(box: Box, axis: int, begin: int, widths: Sequence[int]) -> Iterator[Task]:
    """Panel after panel from a place on and round to it. What lies in two runs of rows or columns is two tasks."""
    rows, inner, columns = box
    if any(start == stop for start, stop in box):
        return
    for low, high in pairwise((0, *accumulate(widths))):
        runs = _round(box[axis], begin, low, high)
        if axis == INNER:
            yield Task(0, rows, runs, columns)
        for each in runs if axis != INNER else ():
            yield Task(0, each if axis == ROWS else rows, run(*inner), each if axis == COLUMNS else columns)


def _round(whole: Run, begin: int, low: int, high: int) -> Runs:
    """The indices of a run from `low` to before `high`, counted from a place of it on and round."""
    start, extent = whole[0], length(run(*whole))
    low, high = (begin - start + low) % extent, (begin - start + high - 1) % extent + 1
    return run(start + low, start + high) if low < high else joined(((start, start + high), (start + low, whole[1])))


def _side(shares: Sequence[Tile]) -> int:
    """The shorter side of the largest tile."""
    rows, columns = (max(tile[axis][1] - tile[axis][0] for tile in shares) for axis in (0, 1))
    return min(rows, columns)
