"""Even shares: which rank computes which part of which product."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from math import floor

from bilinear.distributed.plan import Extents, Task
from bilinear.distributed.spread import Run, Runs, joined, near_even, run

Tile = tuple[Run, Run]
"""Rows and columns of a tile."""
FIRST = 15
"""A rank that has nothing begins with a fifteenth of k: four panels, each twice as long as the one before, are all of it."""


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


def panel_tasks(shares: Sequence[Tile], k: int, held: Sequence[Runs], panels: int | None = None) -> tuple[tuple[Task, ...], ...]:
    """The classical multiply: a tile of C a rank, panel of k after panel, so that one panel travels while another is multiplied.

    `held` are the k of which a rank has both operands. If each has some, all begin there. Otherwise ranks begin at places of k that differ
    along the rows and the columns of their tiles, as in Cannon's algorithm, so that none is asked by all at once. The first panel is
    narrow, for its messages are waited for, and each further one is twice as long as the one before, up to the `longest`. `panels` asks
    for that many equal ones.
    """
    own = [max(runs, key=lambda each: each[1] - each[0], default=(0, 0)) for runs in held]
    shortest = min(stop - start for start, stop in own)
    begins = [start for start, _ in own] if shortest * FIRST >= k else [floor(k * turn) for turn in _turns(shares)]
    growing = doubling(k, max(shortest, -(-k // FIRST)), longest(k, _side(shares)))
    widths = [stop - start for start, stop in near_even(k, panels)] if panels else growing
    edges = (0, *accumulate(widths))
    return tuple(
        tuple(Task(0, rows, _round(k, begin, low, high), columns) for low, high in pairwise(edges) if _some(rows, (low, high), columns))
        for begin, (rows, columns) in zip(begins, shares, strict=True)
    )


def column_tasks(shares: Sequence[Tile], k: int, held: Sequence[Runs], panels: int | None = None) -> tuple[tuple[Task, ...], ...]:
    """The same with k uncut, for products whose accuracy is promised for all of k: panels of columns of the tile, the first a quarter."""
    found = []
    for rank, (rows, (start, stop)) in enumerate(shares):
        edges = [start, start + (stop - start) // 4, stop] if held[rank] != run(0, k) else [start, stop]
        cut = [(start + low, start + high) for low, high in near_even(stop - start, panels)] if panels else pairwise(edges)
        found.append(tuple(Task(0, rows, run(0, k), columns) for columns in cut if _some(rows, columns)))
    return tuple(found)


def _turns(shares: Sequence[Tile]) -> list[Fraction]:
    """Where each rank begins, as a part of k."""
    (down, across), found = (sorted({tile[axis] for tile in shares}) for axis in (0, 1)), []
    for rows, columns in shares:
        found.append((Fraction(down.index(rows), len(down)) + Fraction(across.index(columns), len(across))) % 1)
    return found


def _side(shares: Sequence[Tile]) -> int:
    """The shorter side of the largest tile."""
    rows, columns = (max(tile[axis][1] - tile[axis][0] for tile in shares) for axis in (0, 1))
    return min(rows, columns)


def longest(k: int, side: int) -> int:
    """The most k of a panel of a tile of this side: a fast scheme gains less on narrow panels, and nothing on longer ones."""
    return max(side, -(-k // 4))


def doubling(k: int, width: int, most: int) -> list[int]:
    """Widths of panels that are k together: each twice that of the one before, up to `most`; the last one takes what is little."""
    found = []
    while k > 0:
        size = k if k < 1.5 * width else width
        found.append(size)
        k, width = k - size, max(width, min(2 * width, most))
    return found


def _round(k: int, begin: int, low: int, high: int) -> Runs:
    """The indices from begin + low to before begin + high, modulo k."""
    low, high = (begin + low) % k, (begin + high - 1) % k + 1
    return run(low, high) if low < high else joined(((0, high), (low, k)))


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
