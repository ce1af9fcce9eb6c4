"""`multi_dot` over the ranks of a communicator: a chain of matrices, by products on all ranks or on groups of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

import numpy as np

from bilinear.distributed.chain_plan import Part, RankChainPlan, plan_chain
from bilinear.distributed.connection import Connection, connected
from bilinear.distributed.distributions import Distribution, Slab
from bilinear.distributed.model import Machine, machines
from bilinear.distributed.multiply import (
    CLASSICAL,
    TIMEOUT,
    adopted,
    agreed,
    carrier,
    check_piece,
    current,
    name_of,
    require_carrier,
    said,
    scheme_named,
)
from bilinear.distributed.rank import HOME_A, Multiply, Steps, moved, numbered_from, steps_of
from bilinear.errors import fail
from bilinear.frontend import Loaded
from bilinear.ir.matrix import Array
from bilinear.ir.scheme import Scheme
from bilinear.lowering.proofs import ready
from bilinear.planner.chains import MOST_MATRICES
from bilinear.runtime.arrays import Kind, is_on_gpu
from bilinear.runtime.matmul import matmul as multiply_here

if TYPE_CHECKING:
    from mpi4py import MPI

MACHINE = "h200"


@dataclass(frozen=True)
class AskedChain:
    """What a call asks for beside its pieces."""

    extents: tuple[int, ...]
    distributions: Distribution | Sequence[Distribution] = Slab.X
    decomposition: str | Loaded = CLASSICAL
    machine: str | Machine = MACHINE
    algorithm: str = "auto"
    local_levels: int | Literal["auto"] = "auto"


def multi_dot(
    pieces: Sequence[Array],
    *,
    extents: Sequence[int],
    distributions: Distribution | Sequence[Distribution],
    decomposition: str | Loaded = CLASSICAL,
    machine: str | Machine = MACHINE,
    algorithm: str = "auto",
    local_levels: int | Literal["auto"] = "auto",
    comm: MPI.Intracomm | None = None,
    timeout: float = TIMEOUT,
) -> Array:
    """This rank's piece of A1 A2 ... AM, a new array; every rank of `comm` must call.

    `extents` are M + 1 numbers: matrix i is extents[i] x extents[i + 1], counted from 0. `distributions` say how the matrices and the
    result lie: one for all, or M + 1. `pieces` are this rank's, of one type of integers or floating-point numbers. They are not written.

    The order of the products, and which ranks compute each of them, are those of `chain_plan`. All else is as in `matmul`, errors included.
    """
    asked = AskedChain(tuple(extents), distributions, decomposition, machine, algorithm, local_levels)
    return run_chain(connected(comm, timeout), list(pieces), asked, timeout)


def chain_plan(
    extents: Sequence[int],
    ranks: int,
    *,
    distributions: Distribution | Sequence[Distribution] = Slab.X,
    decomposition: str | Loaded = CLASSICAL,
    machine: str | Machine = MACHINE,
    dtype: str = "float64",
) -> RankChainPlan:
    """The order of a chain on so many ranks, and the ranks that compute each product, by the least time in the model of a machine.

    `machine` is the name of one that is described, or a `Machine`. A product runs by the `decomposition` if the model says that it is
    faster than "2d", otherwise by "2d". Raises `BilinearError`: E550 for extents of no chain, E760, E761, and what `load` raises.
    """
    return _plan_for(AskedChain(tuple(extents), distributions, decomposition, machine), dtype, ranks)[0]


def run_chain(connection: Connection, pieces: list[Array], asked: AskedChain, timeout: float) -> Array:
    """`multi_dot` on a connection."""

    def planned() -> tuple[tuple[RankChainPlan, Kind, list[Array]], str]:
        plan, digest = _plan_for(asked, str(pieces[0].dtype) if pieces else "float64", connection.comm.size)
        _check_pieces(plan, connection.comm.rank, pieces)
        kind, own = adopted(*pieces)
        require_carrier(kind.on_gpu, connection.comm.size)
        return (plan, kind, own), digest

    values: dict[str, object] = {
        "extents": asked.extents,
        "distributions": asked.distributions,
        "decomposition": name_of(asked.decomposition),
        "machine": asked.machine,
        "algorithm": asked.algorithm,
        "local_levels": asked.local_levels,
    }
    first = pieces[0] if pieces else None
    plan, kind, own = agreed(connection, said(first, values, carrier(is_on_gpu(first))), planned, timeout)
    multiply = partial(multiply_here, algorithm=asked.algorithm, levels=asked.local_levels)
    with current(own[0], kind.on_gpu):
        return kind.give_back(connection.run(chain_steps(plan, connection.comm.rank, own, multiply), kind.on_gpu))


def chain_steps(plan: RankChainPlan, rank: int, pieces: list[Array], multiply: Multiply) -> Steps:
    """A rank's piece of the product of a chain. First every matrix goes to the group that reads it."""
    held: dict[int, Array] = {}
    for part in sorted((part for part in plan.root.parts if not part.operands), key=lambda part: part.span):
        at, _ = part.span
        held[at] = yield from moved(pieces[at], plan.given[at], part.spread, rank, HOME_A)
    return (yield from _product(plan.root, rank, held, multiply))


def _product(part: Part, rank: int, held: dict[int, Array], multiply: Multiply) -> Steps:
    """A rank's piece of a part of the chain; the rank is in the part's group."""
    if part.plan is None:
        return held.pop(part.span[0])
    operands: list[Array] = []
    for operand in part.operands:
        if rank in range(*operand.group):
            operands.append((yield from _product(operand, rank, held, multiply)))
        else:
            operands.append(None)
    any_of_them = next(x for x in operands if x is not None)
    a, b = (np.empty_like(any_of_them, shape=(0, 0)) if x is None else x for x in operands)
    del operands, any_of_them
    first, _ = part.group
    return (yield from numbered_from(first, steps_of(part.plan, rank - first, a, b, multiply)))


def _check_pieces(plan: RankChainPlan, rank: int, pieces: list[Array]) -> None:
    """Refuse (E767) pieces that are not what the distributions say."""
    if len(pieces) != len(plan.given):
        raise fail("E767", f"{len(pieces)} pieces for a chain of {len(plan.given)} matrices", "give the rank's piece of each matrix")
    for at, (piece, spread) in enumerate(zip(pieces, plan.given, strict=True), 1):
        if piece.dtype != pieces[0].dtype:
            raise fail("E767", f"a piece of A{at} of {piece.dtype}, and one of A1 of {pieces[0].dtype}", "the matrices are of one type")
        check_piece(f"A{at}", piece, spread[rank].shape)


def _plan_for(asked: AskedChain, dtype: str, ranks: int) -> tuple[RankChainPlan, str]:
    """The plan, and a digest of it."""
    extents, given = asked.extents, asked.distributions
    if not 3 <= len(extents) <= MOST_MATRICES + 1:
        hint = f"give M + 1 extents for 2 to {MOST_MATRICES} matrices"
        raise fail("E550", f"{len(extents)} extents are of no chain", hint)
    each = tuple(given) if isinstance(given, Sequence) else (given,) * len(extents)
    if len(each) != len(extents):
        raise fail("E761", f"{len(each)} distributions", f"give those of {len(extents) - 1} matrices and of the result, or one for all")
    machine = asked.machine
    if isinstance(machine, str):
        if machine not in machines():
            raise fail("E760", f"no machine {machine!r} is described", f"choose one of {', '.join(machines())}, or give a Machine")
        machine = machines()[machine]
    return _planned(extents, ranks, each, scheme_named(asked.decomposition), machine, dtype)


@lru_cache(maxsize=16)
def _planned(
    extents: tuple[int, ...], ranks: int, given: tuple[Distribution, ...], scheme: Scheme | None, machine: Machine, dtype: str
) -> tuple[RankChainPlan, str]:
    if not all(isinstance(extent, int) and not isinstance(extent, bool) and extent > 0 for extent in extents):
        raise fail("E760", f"the extents {extents!r} are not all positive integers", "matrix i is extents[i] x extents[i + 1]")
    plan = plan_chain(extents, ranks, given, machine, None if scheme is None else ready(scheme, np.dtype(dtype)))
    told = [(part.span, part.spread, part.plan and (part.plan.name, part.plan.home, part.plan.tasks)) for part in plan.root.parts]
    return plan, sha256(repr(told).encode()).hexdigest()[:16]
