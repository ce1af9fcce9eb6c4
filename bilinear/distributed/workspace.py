"""The memory of a plan: elements that a rank holds at once beside the pieces that it was given and the one that it gives back."""

from __future__ import annotations

from math import prod

from bilinear.distributed.plan import Plan, results_of

WINDOW = 2
"""Tasks whose operands are held at once: one is multiplied while those of the next arrive."""


def workspace(plan: Plan) -> int:
    """The most elements over all ranks."""
    return max(rank_workspace(plan, rank) for rank in range(plan.ranks))


def rank_workspace(plan: Plan, rank: int) -> int:
    """Elements of one rank: the most that are held while A or B comes home, while C is computed, or while it leaves."""
    a, b, c = (0 if plan.home[i] == plan.given[i] else plan.home[i][rank].size for i in range(3))
    computing = a + b + c + _depth(plan, rank) + _breadth(plan, rank) + _tasks(plan, rank)
    return max(3 * a, a + 3 * b, computing, 3 * c)  # what travels is packed here and arrives there, beside its place


def _depth(plan: Plan, rank: int) -> int:
    """A factor of A, one of B, a product, and what is multiplied by a coefficient, for each depth-first level."""
    a, b, c = (plan.home[i][rank].size for i in range(3))
    total = 0
    for scheme in plan.depth:
        a, b, c = a // (scheme.m * scheme.k), b // (scheme.k * scheme.n), c // (scheme.m * scheme.n)
        total += 2 * a + 2 * b + 2 * c
    return total


def _breadth(plan: Plan, rank: int) -> int:
    """All factors and products, and those of the level above them while they are computed, with named sums of one at a time."""
    a, b, c = (plan.form[i][rank].size for i in range(3))
    if not plan.breadth:
        return a + b + c
    last, above = plan.breadth[-1], prod(scheme.rank for scheme in plan.breadth[:-1])
    factors = above * (a * last.m * last.k + b * last.k * last.n + c * last.m * last.n) if above > 1 else 0
    named = a * len(last.u.steps) + b * len(last.v.steps) + c * (len(last.w.steps) + last.m * last.n)
    return plan.products * (a + b + c) + factors + named


def _tasks(plan: Plan, rank: int) -> int:
    """Operands of a window of tasks with messages of them that are not yet in place, and every result until it was sent."""
    tasks = plan.tasks[rank]
    operands = sorted((sum(x.size for x in task.operands) for task in tasks), reverse=True)
    results = [group[0].result.size for group in results_of(tasks)]
    partial = max(results, default=0) if any(len(group) > 1 for group in results_of(tasks)) else 0
    return 2 * sum(operands[:WINDOW]) + 2 * sum(results) + partial
