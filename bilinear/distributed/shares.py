"""Even shares: which rank computes which part of which product."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import floor

from bilinear.distributed.plan import Extents, Task
from bilinear.distributed.spread import Run, near_even, run

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
