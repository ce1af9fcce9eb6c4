"""A product of matrices over a mesh: of what each rank holds if that is enough, otherwise by a plan that moves pieces between ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bilinear.distributed.mesh import Mesh, MeshPlacement, MeshPlacements, held, shared
from bilinear.distributed.parts import dense, put, take
from bilinear.distributed.rank import HOME_A, HOME_B, RESULT, Multiply, Post, Steps, Wait, steps_of
from bilinear.distributed.rank_plan import Extents, RankPlan
from bilinear.distributed.spread import Rect, Runs, Spread, joined, meet, run
from bilinear.ir.matrix import Array

COPIES, SUMMANDS = MeshPlacement.COPIES, MeshPlacement.SUMMANDS


@dataclass(frozen=True)
class Operand:
    """A matrix over a mesh.

    Each rank holds `whole`. Summands are added up before anything else; then a rank has `summed`. `owned` has each element once: copies,
    too, are cut up among the ranks that hold them.
    """

    placements: MeshPlacements
    whole: Spread
    summed: Spread
    owned: Spread


@dataclass(frozen=True)
class MeshPlan:
    """A product over a mesh.

    Either each rank multiplies what it has, over the range `inner` of k, which gives `part` of C or a summand of that; or `plan` says what
    the ranks do with what they own.
    """

    mesh: Mesh
    a: Operand
    b: Operand
    c: Operand
    part: Spread
    inner: tuple[Runs, ...] | None
    plan: RankPlan | None


def plan_over(
    mesh: Mesh, extents: Extents, placements: tuple[MeshPlacements, ...], planned: Callable[..., RankPlan], stay: bool
) -> MeshPlan:
    """The plan of a product of matrices with the placements of A, B and C.

    `stay` allows products of what each rank has, without messages; else, or where that is not enough, `planned` gives the plan from what
    the ranks own of A, B and C.
    """
    m, k, n = extents
    a = _operand(mesh, placements[0], m, k, MeshPlacement.ROWS)
    b = _operand(mesh, placements[1], k, n, MeshPlacement.COLUMNS)
    c = _operand(mesh, placements[2], m, n, MeshPlacement.ROWS)
    part = shared(mesh, c.placements, c.whole, COPIES, MeshPlacement.ROWS)
    inner = _inner(mesh, a, b, c, part, k) if stay else None
    plan = planned(a.owned, b.owned, c.owned) if inner is None else None
    return MeshPlan(mesh, a, b, c, part if plan is None else c.owned, inner, plan)


def _operand(mesh: Mesh, placements: MeshPlacements, rows: int, columns: int, by: MeshPlacement) -> Operand:
    whole = held(mesh, placements, rows, columns)
    summed = shared(mesh, placements, whole, SUMMANDS, by)
    return Operand(placements, whole, summed, shared(mesh, placements, summed, COPIES, by))


def _inner(mesh: Mesh, a: Operand, b: Operand, c: Operand, part: Spread, k: int) -> tuple[Runs, ...] | None:
    """The range of k over which each rank multiplies what it has; None unless that computes each product of two elements exactly once."""
    found = tuple(meet(left.columns, right.rows) for left, right in zip(a.summed, b.summed, strict=True))
    for rank, wanted in enumerate(part):
        ends_meet = joined(sorted(each for other in _beside(mesh, c, rank, SUMMANDS) for each in found[other])) == run(0, k)
        has_all = meet(wanted.rows, a.summed[rank].rows) == wanted.rows and meet(wanted.columns, b.summed[rank].columns) == wanted.columns
        if wanted.size and not (ends_meet and has_all):
            return None
    return found


def _beside(mesh: Mesh, operand: Operand, rank: int, kind: MeshPlacement) -> tuple[int, ...]:
    """The ranks that hold copies, or summands, of what a rank holds, and the rank itself."""
    return mesh.beside(rank, [at for at, placement in enumerate(operand.placements) if placement is kind])


def mesh_steps(plan: MeshPlan, rank: int, a: Array, b: Array, multiply: Multiply) -> Steps:
    """A rank's piece of C, from its pieces of A and B, which have one element type."""
    a = yield from _added_up(plan.mesh, plan.a, rank, a, HOME_A)
    b = yield from _added_up(plan.mesh, plan.b, rank, b, HOME_B)
    if plan.plan is None:
        c = _here(plan, rank, a, b, multiply)
    else:
        left, right = (take(x, had.summed[rank], had.owned[rank]) for x, had in ((a, plan.a), (b, plan.b)))
        c = yield from steps_of(plan.plan, rank, left, right, multiply)
        del left, right
    del a, b
    return (yield from _copied(plan, rank, c))


def _here(plan: MeshPlan, rank: int, a: Array, b: Array, multiply: Multiply) -> Array:
    """A rank's part of C, or a summand of it, of what the rank has."""
    assert plan.inner is not None
    part, inner = plan.part[rank], plan.inner[rank]
    if part.size == 0 or not inner:
        return np.zeros_like(a, shape=part.shape, order="C")
    left = take(a, plan.a.summed[rank], Rect(part.rows, inner))
    right = take(b, plan.b.summed[rank], Rect(inner, part.columns))
    return dense(multiply(left, right))


def _added_up(mesh: Mesh, operand: Operand, rank: int, x: Array, tag: int) -> Steps:
    """What a rank has of a matrix after each of those that hold summands has added up its share of them, in the order of the ranks."""
    others, whole, own = _beside(mesh, operand, rank, SUMMANDS), operand.whole[rank], operand.summed[rank]
    if len(others) == 1:
        return x
    post, summands = Post(), dict[int, Array]()
    for other in others:
        leaves = operand.summed[other]
        if other != rank and leaves.size:
            post.sends.append((other, tag, dense(take(x, whole, leaves))))
        summands[other] = take(x, whole, own) if other == rank else np.empty_like(x, shape=own.shape, order="C")
        if other != rank and own.size:
            post.receives.append((other, tag, summands[other]))
    ticket = yield post
    yield Wait(ticket)
    total = np.zeros_like(x, shape=own.shape, order="C")
    for other in others:
        np.add(total, summands.pop(other), out=total)
    return total


def _copied(plan: MeshPlan, rank: int, c: Array) -> Steps:
    """What a rank is to hold of C, from what each has computed; a summand is zero where others have computed."""
    whole, own = plan.c.whole[rank], plan.part[rank]
    others = [other for other in _beside(plan.mesh, plan.c, rank, COPIES) if other != rank]
    if own == whole and not others:
        return c
    out, post = np.zeros_like(c, shape=whole.shape, order="C"), Post()
    put(out, whole, own, c)
    arrivals = []
    for other in others:
        if own.size:
            post.sends.append((other, RESULT, dense(c)))
        if plan.part[other].size:
            arrivals.append((plan.part[other], np.empty_like(c, shape=plan.part[other].shape, order="C")))
            post.receives.append((other, RESULT, arrivals[-1][1]))
    ticket = yield post
    yield Wait(ticket)
    for part, buffer in arrivals:
        put(out, whole, part, buffer)
    return out
