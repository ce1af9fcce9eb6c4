"""Even shares: which rank computes which part of which product."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import floor

from bilinear.distributed.plan import Extents, Task
from bilinear.distributed.spread import Run, Runs, near_even, run

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

    `held` are the k of which a rank has both operands. It begins there, with the longest run, and each further panel is twice as long as
    the one before. So no rank waits as long as messages take less than half the time of products, and there are few panels: a fast scheme
    gains less on narrow ones. A rank that has nothing begins with a narrow panel. `panels` asks for that many equal ones.
    """
    found = []
    for rank, (rows, columns) in enumerate(shares):
        begin, end = max(held[rank], key=lambda each: each[1] - each[0], default=(k * rank // len(shares),) * 2)
        runs = _equal(k, panels, begin) if panels else _doubling(k, begin, max(end - begin, -(-k // FIRST)))
        found.append(tuple(Task(0, rows, inner, columns) for inner in runs if _some(rows, inner, columns)))
    return tuple(found)


def column_tasks(shares: Sequence[Tile], k: int, held: Sequence[Runs], panels: int | None = None) -> tuple[tuple[Task, ...], ...]:
    """The same with k uncut, for products whose accuracy is promised for all of k: panels of columns of the tile, the first a quarter."""
    found = []
    for rank, (rows, (start, stop)) in enumerate(shares):
        edges = [start, start + (stop - start) // 4, stop] if held[rank] != run(0, k) else [start, stop]
        cut = [(start + low, start + high) for low, high in near_even(stop - start, panels)] if panels else pairwise(edges)
        found.append(tuple(Task(0, rows, (0, k), columns) for columns in cut if _some(rows, (0, k), columns)))
    return tuple(found)


def _equal(k: int, panels: int, begin: int) -> list[Run]:
    """Panels of equal length; ranks begin with different ones, for the few that hold one cannot send it to all at once."""
    parts = near_even(k, panels)
    turn = next((at for at, (_, stop) in enumerate(parts) if begin < stop), 0)
    return [*parts[turn:], *parts[:turn]]


def _doubling(k: int, begin: int, width: int) -> list[Run]:
    """All of k from a place on and round to it, in panels each of which is twice as long as the one before."""
    found, done = list[Run](), 0
    while done < k:
        size = min(width, k - done)
        low = (begin + done) % k
        found += [(low, min(low + size, k)), (0, max(0, low + size - k))]
        done, width = done + size, 2 * width
    return [each for each in found if _some(each)]


def shared_products(products: int, block: Extents, ranks: int) -> tuple[tuple[Task, ...], ...]:
    """As many products of blocks shared evenly: whole ones first; those left over are cut so that every rank has the same part of them.

    If the ranks divide into equal groups, one for each product left over, a group cuts its product in tiles. Else the products lie end to
    end, row by row, and every rank takes an equal piece of that line.
    """
    whole, rest = divmod(products, ranks)
    m, k, n = block
    found = [[Task(rank * whole + at, (0, m), (0, k), (0, n)) for at in range(whole)] for rank in range(ranks)]
    first = ranks * whole
    if rest and ranks % rest == 0:
        group = ranks // rest
        for rank in range(ranks):
            rows, columns = tiles(m, n, group)[rank % group]
            found[rank].append(Task(first + rank // group, rows, (0, k), columns))
    elif rest:
        for rank in range(ranks):
            found[rank] += _piece_of_line(first, rest, block, Fraction(rest, ranks), rank)
    return tuple(tuple(task for task in tasks if _some(task.rows, task.inner, task.columns)) for tasks in found)


def _piece_of_line(first: int, count: int, block: Extents, share: Fraction, rank: int) -> list[Task]:
    """The strips of products between two places on the line on which `count` of them lie end to end."""
    m, k, n = block
    start, stop, found = share * rank, share * (rank + 1), []
    for at in range(count):
        low, high = (floor(min(max(edge - at, Fraction(0)), Fraction(1)) * m) for edge in (start, stop))
        found.append(Task(first + at, (low, high), (0, k), (0, n)))
    return found


def _some(*runs: Run) -> bool:
    return all(start < stop for start, stop in runs)
