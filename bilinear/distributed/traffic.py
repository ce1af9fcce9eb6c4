"""The traffic of a plan, counted from its messages, by a formula, and beside what is proved to be least. All in elements."""

from __future__ import annotations

from collections import Counter
from math import prod, sqrt

from bilinear.distributed.rank_plan import Extents, Move, RankPlan, moves_between, operand_moves, product_moves
from bilinear.ir.scheme import exponent_of

Pairs = Counter[tuple[int, int]]
"""Elements by source and target."""


def traffic(plan: RankPlan) -> Pairs:
    """What every rank sends to every other one."""
    found: Pairs = Counter()
    _count(found, moves_between(plan.given[0], plan.home[0]), 1)
    _count(found, moves_between(plan.given[1], plan.home[1]), 1)
    _count(found, (*operand_moves(plan, 0), *operand_moves(plan, 1), *product_moves(plan)), plan.rounds)
    _count(found, moves_between(plan.home[2], plan.given[2]), 1)
    return found


def _count(found: Pairs, moves: tuple[Move, ...], times: int) -> None:
    for move in moves:
        found[move.source, move.target] += times * move.part.size


def busiest(pairs: Pairs, ranks: int) -> int:
    """The most that one rank receives or sends."""
    both = (sum(size for pair, size in pairs.items() if pair[end] == rank) for rank in range(ranks) for end in (0, 1))
    return max(both)


def classical_bound(extents: Extents, ranks: int) -> float:
    """What one rank at least sends or receives in any classical multiply, whatever its memory.

    Each element of A, B and C lies on one rank at the beginning or the end, and ranks have equal shares of the arithmetic or of the data.
    H. Al Daas, G. Ballard, L. Grigori, S. Kumar, K. Rouse, *Tight memory-independent parallel matrix multiplication communication lower
    bounds*, SPAA 2022.
    """
    small, middle, large = sorted(extents)
    if ranks * middle <= large:
        read = (large * middle + large * small) / ranks + middle * small
    elif ranks * small**2 <= large * middle:
        read = 2 * sqrt(large * middle * small**2 / ranks) + large * middle / ranks
    else:
        read = 3 * (large * middle * small / ranks) ** (2 / 3)
    return read - (large * middle + large * small + middle * small) / ranks


def recursive_order(plan: RankPlan, ranks: int) -> float:
    """The order of what one rank at least sends or receives by the plan's levels, whatever its memory: n^2 / P^(2 / omega).

    G. Ballard, J. Demmel, O. Holtz, B. Lipshitz, O. Schwartz, *Strong scaling of matrix multiplication algorithms and memory-independent
    communication lower bounds*, SPAA 2012. The constant is not known. n is the cube root of m k n, omega that of all levels together.
    """
    m, k, n = (prod(getattr(level, extent) for level in plan.levels) for extent in "mkn")
    omega = exponent_of(m, k, n, prod(level.rank for level in plan.levels))
    return float(prod(plan.extents) ** (2 / 3) / ranks ** (2 / omega))
