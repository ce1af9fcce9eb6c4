"""The residual of a large scheme by products of float64 matrices, none of whose sums is rounded.

Row c of the residual is U' diag(W[c]) V as a matrix, blocks of A by blocks of B. Every partial sum, in whatever order a library adds, is an
integer of absolute value at most the sum over the products of |w| max|u| max|v|. If this bound is below 2**53, float64 holds all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from bilinear.analysis.integer_tables import Integers, Row, Terms

EXACT = 2**53
"""float64 holds all integers up to this one."""
FEW_TERMS = 200_000
"""Fewer products of coefficients than this are added up one by one, in a few hundredths of a second."""
WORTH = 500
"""This many multiplications of a matrix product take as long as adding one product of coefficients by itself."""
MOST_MULTIPLICATIONS = 2 * 10**10
"""The most multiplications in all matrix products; they take a few seconds."""
MOST_ENTRIES = 2**25
"""The most entries of both matrices, 256 MiB."""


def goes_by_matrices(tables: Integers, blocks: tuple[int, int], terms: int) -> bool:
    """True if matrix products give the residual exactly, soon, and sooner than `terms` single products of coefficients.

    `blocks` are the numbers of blocks of A and of B.
    """
    a, b = blocks
    work = sum(map(len, tables.outputs)) * a * b
    small = work <= min(MOST_MULTIPLICATIONS, WORTH * terms) and len(tables.left) * (a + b) <= MOST_ENTRIES
    return terms >= FEW_TERMS and small and tables.units.reach == 0 and _largest_sum(tables) < EXACT


def rows_by_matrices(tables: Integers, blocks: tuple[int, int], needed: Callable[[int], Iterable[int]]) -> Iterator[Row]:
    """The rows of the residual, without zeros; `goes_by_matrices` must be true. `needed` gives the pairs of blocks of an output."""
    import numpy as np

    a, b = blocks
    left, right = np.zeros((len(tables.left), a)), np.zeros((len(tables.right), b))
    for matrix, rows, step in ((left, tables.left, tables.units.width), (right, tables.right, 1)):
        for p, row in enumerate(rows):
            for place, value in row:
                matrix[p, place // step] = value
    for output, terms in enumerate(tables.outputs):
        products = [p for p, _ in terms]
        factors = np.array([factor[0][1] for _, factor in terms], dtype=np.float64)
        found = ((left[products] * factors[:, None]).T @ right[products]).ravel()
        found[list(needed(output))] -= tables.units.scale
        yield {int(pair): int(found[pair]) for pair in np.flatnonzero(found)}


def _largest_sum(tables: Integers) -> int:
    """A bound on the absolute value of every sum in a row of the residual."""
    sizes = [_largest(u) * _largest(v) for u, v in zip(tables.left, tables.right, strict=True)]
    sums = (sum(abs(factor[0][1]) * max(sizes[p], 1) for p, factor in row) for row in tables.outputs)
    return tables.units.scale + max(sums, default=0)


def _largest(terms: Terms) -> int:
    return max((abs(value) for _, value in terms), default=0)
