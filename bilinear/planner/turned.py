"""Which of the two products a kernel for thin ones computes: C = A B, or C^T = B^T A^T."""

from __future__ import annotations

from bilinear.ir.thin_tile_facts import ThinTileFacts
from bilinear.planner.problem import SHORT, Problem


def is_turned(problem: Problem, tile: ThinTileFacts) -> bool:
    """Whether it is C^T = B^T A^T, so that the longer extent of C is always its rows.

    A tile of strips runs wide results, too. If both extents of C are long, it computes the one that lies by columns: a warp then writes
    more neighbours at once.
    """
    if tile.strips and min(problem.m, problem.n) > SHORT:
        return "C" not in problem.column_major
    return problem.n > problem.m
