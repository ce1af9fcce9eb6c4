"""PyTorch's DTensors as matrices over a mesh of ranks: read, multiplied where they lie, and made."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from itertools import product
from types import ModuleType

import numpy as np

from bilinear.distributed.connection import Connection
from bilinear.distributed.distributions import Pieces, Rect, Run, Runs, Spread, joined, meet, run
from bilinear.distributed.multiply import (
    CLASSICAL,
    Request,
    agreed,
    carrier,
    check_options,
    check_pieces,
    local_multiply,
    plan_for,
    require_carrier,
    said,
)
from bilinear.distributed.rank import HOME_A, HOME_B, RESULT, Multiply, Post, Steps, Wait, dense, put, steps_of, take
from bilinear.distributed.rank_plan import Extents, RankPlan, require_extents
from bilinear.errors import fail
from bilinear.ir.matrix import Array
from bilinear.runtime.arrays import adopt_tensor, give_tensor, records_gradients, surroundings


class MeshPlacement(Enum):
    """How a matrix lies along one dimension of a mesh; the values are what PyTorch prints."""

    ROWS = "Shard(0)"
    COLUMNS = "Shard(1)"
    COPIES = "Replicate()"
    SUMMANDS = "Partial(sum)"


MeshPlacements = tuple[MeshPlacement, ...]
"""One placement for each dimension of a mesh; the first one cuts the matrix, the next one what that leaves."""


@dataclass(frozen=True)
class Mesh:
    """Ranks in a grid of any number of dimensions: `ranks` lists them with the last coordinate running fastest."""

    shape: tuple[int, ...]
    ranks: tuple[int, ...]

    @cached_property
    def places(self) -> dict[int, tuple[int, ...]]:
        """The coordinates of each rank."""
        return dict(zip(self.ranks, product(*map(range, self.shape)), strict=True))

    def beside(self, rank: int, placements: MeshPlacements, kind: MeshPlacement) -> tuple[int, ...]:
        """The ranks, in ascending order, that hold copies, or summands, of what a rank holds, and the rank itself."""
        fixed = [at for at, placement in enumerate(placements) if placement is not kind]
        return tuple(sorted(other for other, place in self.places.items() if all(place[at] == self.places[rank][at] for at in fixed)))


def held(mesh: Mesh, placements: MeshPlacements, rows: int, columns: int) -> Spread:
    """What each rank holds of a matrix: chunks of ceil(length / ranks) rows or columns, the last ones shorter or empty."""
    return tuple(_held(mesh, mesh.places[rank], placements, (0, rows), (0, columns)) for rank in range(len(mesh.ranks)))


def _held(mesh: Mesh, place: tuple[int, ...], placements: MeshPlacements, rows: Run, columns: Run) -> Rect:
    for placement, ranks, at in zip(placements, mesh.shape, place, strict=True):
        if placement is MeshPlacement.ROWS:
            rows = chunk(rows, ranks, at)
        elif placement is MeshPlacement.COLUMNS:
            columns = chunk(columns, ranks, at)
    return Rect(run(*rows), run(*columns))


def shared(mesh: Mesh, placements: MeshPlacements, spread: Spread, kind: MeshPlacement, by: MeshPlacement) -> Spread:
    """What each rank has of a spread if those that hold the same part, by placements of this kind, cut it up by rows or columns."""
    cut = tuple(by if placement is kind else MeshPlacement.COPIES for placement in placements)
    found = []
    for rank, part in enumerate(spread):
        (rows,), (columns,) = part.rows or ((0, 0),), part.columns or ((0, 0),)
        found.append(_held(mesh, mesh.places[rank], cut, rows, columns))
    return tuple(found)


def chunk(whole: Run, parts: int, at: int) -> Run:
    """One of the parts of `torch.chunk`, which may be empty."""
    start, stop = whole
    size = -(-(stop - start) // parts)
    return min(start + at * size, stop), min(start + (at + 1) * size, stop)


def of_product(a: MeshPlacements, b: MeshPlacements) -> MeshPlacements:
    """The placements of A B, dimension by dimension of the mesh (docs/distributed.md has the table).

    If some placements need no messages, they are these, as for PyTorch's own multiply; otherwise C is cut as A or B is.
    """
    return tuple(map(_of_product, a, b))


def _of_product(a: MeshPlacement, b: MeshPlacement) -> MeshPlacement:
    if a in (MeshPlacement.ROWS, MeshPlacement.SUMMANDS):
        return MeshPlacement.ROWS
    if b in (MeshPlacement.COLUMNS, MeshPlacement.SUMMANDS):
        return MeshPlacement.COLUMNS
    return MeshPlacement.COPIES if a is b else MeshPlacement.SUMMANDS


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
        ends_meet = joined(sorted(each for other in mesh.beside(rank, c.placements, SUMMANDS) for each in found[other])) == run(0, k)
        has_all = meet(wanted.rows, a.summed[rank].rows) == wanted.rows and meet(wanted.columns, b.summed[rank].columns) == wanted.columns
        if wanted.size and not (ends_meet and has_all):
            return None
    return found


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
    others, whole, own = mesh.beside(rank, operand.placements, SUMMANDS), operand.whole[rank], operand.summed[rank]
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
    yield Wait((yield post))
    total = np.zeros_like(x, shape=own.shape, order="C")
    for other in others:
        np.add(total, summands.pop(other), out=total)
    return total


def _copied(plan: MeshPlan, rank: int, c: Array) -> Steps:
    """What a rank is to hold of C, from what each has computed; a summand is zero where others have computed."""
    whole, own = plan.c.whole[rank], plan.part[rank]
    others = [other for other in plan.mesh.beside(rank, plan.c.placements, COPIES) if other != rank]
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
    yield Wait((yield post))
    for part, buffer in arrivals:
        put(out, whole, part, buffer)
    return out


def multiply_dtensors(
    connection: Connection,
    module: ModuleType,
    operands: tuple[Array, Array],
    wanted: Sequence[object] | None,
    asked: Request,
    timeout: float,
) -> Array:
    """A B as a DTensor on the mesh of A and B, in the placements that are wanted or follow from theirs.

    `asked` has the options of `matmul`; its shape and distributions are not read. Raises what `matmul` raises.
    """
    torch, rank = sys.modules["torch"], connection.comm.rank
    with ExitStack() as stack:

        def planned() -> tuple[tuple[MeshPlan, Extents, Array, Array], str]:
            mesh, extents = _mesh_of(module, operands, connection), _extents(operands)
            placements = _all_placements(module, operands, wanted)
            if records_gradients(torch, *operands):
                raise fail("E516", "a DTensor requires gradients, and this product records none", "use torch.no_grad(), or tensor.detach()")
            local = [x.to_local() for x in operands]
            local = [x.wait() if hasattr(x, "wait") else x for x in local]  # one that is still on its way from other ranks is awaited
            stack.enter_context(surroundings(torch, None, *local))
            a, b = (adopt_tensor(torch, x) for x in local)
            on_gpu = not isinstance(a, np.ndarray)
            require_carrier(on_gpu, connection.comm.size)
            asked.require_bits(a.dtype, on_gpu)
            plan, digest = _plan(mesh, extents, placements, asked, str(a.dtype))
            check_pieces({"A": a, "B": b}, (plan.a.whole, plan.b.whole), rank)
            return (plan, extents, a, b), digest

        plan, (m, _, n), a, b = agreed(connection, _facts(operands, wanted, asked), planned, timeout)
        on_gpu = not isinstance(a, np.ndarray)
        multiply = local_multiply(asked, plan.plan, rank, on_gpu, a.dtype.itemsize)
        piece = give_tensor(torch, connection.run(mesh_steps(plan, rank, a, b, multiply), on_gpu))
    made = dict(zip(MeshPlacement, (module.Shard(0), module.Shard(1), module.Replicate(), module.Partial()), strict=True))
    placements = [made[placement] for placement in plan.c.placements]
    return module.DTensor.from_local(piece, operands[0].device_mesh, placements, run_check=False, shape=torch.Size((m, n)), stride=(n, 1))


def _plan(mesh: Mesh, extents: Extents, placements: tuple[MeshPlacements, ...], asked: Request, dtype: str) -> tuple[MeshPlan, str]:
    """The plan, and a digest of it. With a scheme the ranks share its products, wherever the operands lie."""
    digests = ["each what it has"]

    def planned(a: Spread, b: Spread, c: Spread) -> RankPlan:
        plan, digest = plan_for(replace(asked, shape=extents, distributions=(Pieces(a), Pieces(b), Pieces(c))), dtype, len(mesh.ranks))
        digests[:] = [digest]
        return plan

    require_extents(extents)
    check_options(asked)
    if asked.reproducible is not None and any(MeshPlacement.SUMMANDS in one for one in placements):
        hint = "redistribute A and B to Shard or Replicate, and name such placements= of C"
        raise fail("E796", "reproducible= promises nothing of Partial, whose sums over ranks are rounded", hint)
    plan = plan_over(mesh, extents, placements, planned, stay=asked.decomposition == CLASSICAL and asked.balance is None)
    return plan, digests[0]


def _facts(operands: tuple[Array, Array], wanted: Sequence[object] | None, asked: Request) -> dict[str, str]:
    """What must be the same on all ranks, as text; also of operands that are refused."""
    values: dict[str, object] = {}
    for name, x in zip("AB", operands, strict=True):
        mesh = getattr(x, "device_mesh", None)
        values[f"the shape of {name}"] = tuple(getattr(x, "shape", ()))
        values[f"the mesh of {name}"] = None if mesh is None else (mesh.device_type, mesh.mesh.tolist())
        values[f"the placements of {name}"] = getattr(x, "placements", None)
    values["placements"] = wanted
    kinds = {getattr(getattr(x, "device_mesh", None), "device_type", "") for x in operands}
    own = said(operands[0], asked, carrier("cuda" in kinds), but=("shape", "distributions"))
    return own | {name: str(value) for name, value in values.items()}


def _mesh_of(module: ModuleType, operands: tuple[Array, Array], connection: Connection) -> Mesh:
    for name, x in zip("AB", operands, strict=True):
        if not isinstance(x, module.DTensor):
            raise fail("E797", f"{name} is of type {type(x).__name__}, and the other operand a DTensor", "distribute_tensor(...) makes one")
    mesh, other = (x.device_mesh for x in operands)
    if mesh != other:
        raise fail("E797", f"A lies on {mesh}, and B on {other}", "lay both over one mesh")
    ranks, comm = mesh.mesh.flatten().tolist(), connection.comm
    if len(ranks) != comm.size:
        hint = "start the processes by mpirun, lay the matrices over all of them, or give comm= with the ranks of the mesh"
        raise fail("E795", f"the mesh has {len(ranks)} ranks, and the communicator of MPI {comm.size}", hint)
    own, numbers = mesh.get_rank(), {rank: at for at, rank in enumerate(sorted(ranks))}
    if numbers.get(own) != comm.rank:
        place = f"number {numbers[own]} of the mesh" if own in numbers else "not in the mesh"
        hint = "give init_process_group the rank and size of MPI; comm.Split(color, key=torch's rank) makes a communicator of a part of it"
        raise fail("E795", f"MPI's rank {comm.rank} is PyTorch's rank {own}, {place}", hint)
    if not all(bool((mesh.mesh.diff(dim=at) > 0).all()) for at in range(mesh.mesh.ndim)):
        hint = "PyTorch itself numbers the ranks of each line of a mesh in ascending order when it moves pieces"
        raise fail("E795", f"the ranks of the mesh {mesh.mesh.tolist()} do not ascend along each of its dimensions", hint)
    return Mesh(tuple(mesh.mesh.shape), tuple(numbers[rank] for rank in ranks))


def _extents(operands: tuple[Array, Array]) -> Extents:
    a, b = (tuple(x.shape) for x in operands)
    if len(a) != 2 or len(b) != 2 or a[1] != b[0]:
        raise fail("E797", f"A and B have the shapes {a} and {b}", "give two matrices, m x k and k x n")
    return a[0], a[1], b[1]


def _all_placements(module: ModuleType, operands: tuple[Array, Array], wanted: Sequence[object] | None) -> tuple[MeshPlacements, ...]:
    a, b = (tuple(_read(module, placement) for placement in x.placements) for x in operands)
    if wanted is None:
        return a, b, of_product(a, b)
    if not isinstance(wanted, Sequence) or len(wanted) != len(a):
        raise fail("E796", f"placements={wanted!r} for a mesh of {len(a)} dimensions", "give a list of one for each dimension")
    return a, b, tuple(_read(module, placement) for placement in wanted)


def _read(module: ModuleType, placement: Array) -> MeshPlacement:
    """A placement of PyTorch's; those that are made from others, such as strided shards, are of types of their own, and refused (E796)."""
    if type(placement) is module.Replicate:
        return MeshPlacement.COPIES
    if type(placement) is module.Partial and placement.reduce_op == "sum":
        return MeshPlacement.SUMMANDS
    if type(placement) is module.Shard and -2 <= placement.dim < 2:
        return (MeshPlacement.ROWS, MeshPlacement.COLUMNS)[placement.dim]
    hint = "redistribute the matrix to Shard(0), Shard(1), Replicate() or Partial() first"
    raise fail("E796", f"the placement {placement!r} is not one that is multiplied", hint)
