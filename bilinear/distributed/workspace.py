"""The memory of a plan: elements that a rank holds at once beside the pieces that it was given and the one that it gives back."""

from __future__ import annotations

from itertools import pairwise
from math import prod

from bilinear.distributed.rank_plan import RankPlan, results_of
from bilinear.distributed.spread import Rect


def workspace(plan: RankPlan) -> int:
    """The most elements over all ranks."""
    return max(rank_workspace(plan, rank) for rank in range(plan.ranks))


def rank_workspace(plan: RankPlan, rank: int) -> int:
    """Elements of one rank: the most that are held while A or B comes home, while C is computed, or while it leaves."""
    a, b, c = (0 if plan.home[i] == plan.given[i] else plan.home[i][rank].size for i in range(3))
    computing = a + b + c + _depth(plan, rank) + _breadth(plan, rank) + _tasks(plan, rank)
    return max(3 * a, a + 3 * b, computing, 3 * c)  # what travels is packed here and arrives there, beside its place


def _depth(plan: RankPlan, rank: int) -> int:
    """A factor of A, one of B, a product, and what is multiplied by a coefficient, for each depth-first level."""
    a, b, c = (plan.home[i][rank].size for i in range(3))
    total = 0
    for scheme in plan.depth:
        a, b, c = a // (scheme.m * scheme.k), b // (scheme.k * scheme.n), c // (scheme.m * scheme.n)
        total += 2 * a + 2 * b + 2 * c
    return total


def _breadth(plan: RankPlan, rank: int) -> int:
    """All factors and products, and those of the level above them while they are computed, with named sums of one at a time.

    Without levels the factors are A and B themselves, and the product is C.
    """
    a, b, c = (plan.form[i][rank].size for i in range(3))
    if not plan.breadth:
        return 0 if plan.home[2] == plan.given[2] and not plan.depth else c
    last, above = plan.breadth[-1], prod(scheme.rank for scheme in plan.breadth[:-1])
    factors = above * (a * last.m * last.k + b * last.k * last.n + c * last.m * last.n) if above > 1 else 0
    named = a * len(last.u.steps) + b * len(last.v.steps) + c * (len(last.w.steps) + last.m * last.n)
    return plan.products * (a + b + c) + factors + named


def _tasks(plan: RankPlan, rank: int) -> int:
    """Count the elements of two rounds of operands (one is multiplied while the next arrives), and of results that other ranks get."""
    tasks, most = plan.tasks[rank], max(map(len, plan.tasks))
    rounds = [_operands(plan, rank, at) for at in range(most)]
    operands = max(map(sum, pairwise([*rounds, 0])))
    held = plan.form[2][rank]
    results = [group[0].result.size for group in results_of(tasks) if held.meet(group[0].result) != group[0].result]
    returned = 2 * held.size if plan.products > 1 or results else 0  # strips that come back beside their place
    partial = max((group[0].result.size for group in results_of(tasks) if len(group) > 1), default=0)
    return operands + 2 * sum(results) + returned + partial


def _operands(plan: RankPlan, rank: int, at: int) -> int:
    """Count the elements that one round needs beyond the rank's own pieces.

    These are operands that must be assembled, parts that are received elsewhere and then copied, and parts that are packed to be sent.
    """
    total, packed = 0, set[tuple[int, int, Rect]]()
    for target, tasks in enumerate(plan.tasks):
        for side in (0, 1) if at < len(tasks) else ():
            wanted, form, product = tasks[at].operands[side], plan.form[side], tasks[at].product
            mine = form[rank].meet(wanted)
            if target != rank:
                packed.add((side, product, mine))
            elif mine != wanted:
                total += wanted.size + sum(part.size for x in form if (part := x.meet(wanted)) != mine and not _is_dense(part, wanted))
            elif not _is_one(wanted.inside(form[rank])):
                total += wanted.size
    return total + sum(part.size for side, _, part in packed if not _is_dense(part, plan.form[side][rank]))


def _is_dense(part: Rect, held: Rect) -> bool:
    """Whether a part of what is held has no gaps."""
    local = part.inside(held)
    return _is_one(local) and (part.columns == held.columns or part.shape[0] <= 1)


def _is_one(local: Rect) -> bool:
    return len(local.rows) <= 1 and len(local.columns) <= 1
