"""PyTorch's DTensors as matrices over a mesh of ranks: read, multiplied where they lie, and made."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import ModuleType

import numpy as np

from bilinear.distributed.connection import Connection
from bilinear.distributed.decompose import require_extents
from bilinear.distributed.distributions import Pieces
from bilinear.distributed.mesh import Mesh, MeshPlacement, MeshPlacements, of_product
from bilinear.distributed.mesh_product import MeshPlan, mesh_steps, plan_over
from bilinear.distributed.multiply import (
    CLASSICAL,
    Asked,
    agreed,
    carrier,
    check_options,
    check_pieces,
    local_multiply,
    options_of,
    plan_for,
    require_carrier,
    said,
)
from bilinear.distributed.rank_plan import Extents, RankPlan
from bilinear.distributed.spread import Spread
from bilinear.errors import fail
from bilinear.ir.matrix import Array
from bilinear.runtime.torch_memory import adopt_tensor, give_tensor, records_gradients, surroundings


def dtensors_of(*matrices: Array) -> ModuleType | None:
    """The module `torch.distributed.tensor` if a matrix is a DTensor, else None. Nothing is imported."""
    module = sys.modules.get("torch.distributed.tensor")
    kind = getattr(module, "DTensor", None)
    return module if kind is not None and any(isinstance(x, kind) for x in matrices) else None


@dataclass(frozen=True)
class _Taken:
    """What a rank multiplies: its pieces as arrays, and the plan; and how C lies."""

    plan: MeshPlan
    extents: Extents
    a: Array
    b: Array


def multiply_dtensors(
    connection: Connection,
    module: ModuleType,
    operands: tuple[Array, Array],
    wanted: Sequence[object] | None,
    asked: Asked,
    timeout: float,
) -> Array:
    """A B as a DTensor on the mesh of A and B, in the placements that are wanted or follow from theirs.

    `asked` has the options of `matmul`; its shape and distributions are not read. Raises what `matmul` raises.
    """
    torch, rank = sys.modules["torch"], connection.comm.rank
    with ExitStack() as stack:

        def planned() -> tuple[_Taken, str]:
            mesh, extents = _mesh_of(module, operands, connection), _extents(operands)
            placements = _all_placements(module, operands, wanted)
            _require_no_gradient(torch, operands)
            local = [_local(x) for x in operands]
            stack.enter_context(surroundings(torch, None, *local))
            a, b = (adopt_tensor(torch, x) for x in local)
            require_carrier(not isinstance(a, np.ndarray), connection.comm.size)
            plan, digest = _plan(mesh, extents, placements, asked, str(a.dtype))
            check_pieces((plan.a.whole, plan.b.whole), rank, a, b)
            return _Taken(plan, extents, a, b), digest

        taken = agreed(connection, _facts(operands, wanted, asked), planned, timeout)
        on_gpu = not isinstance(taken.a, np.ndarray)
        multiply = local_multiply(asked, taken.plan.plan, rank, on_gpu, taken.a.dtype.itemsize)
        piece = give_tensor(torch, connection.run(mesh_steps(taken.plan, rank, taken.a, taken.b, multiply), on_gpu))
    m, _, n = taken.extents
    placements = [_written(module, placement) for placement in taken.plan.c.placements]
    return module.DTensor.from_local(piece, operands[0].device_mesh, placements, run_check=False, shape=torch.Size((m, n)), stride=(n, 1))


def _plan(mesh: Mesh, extents: Extents, placements: tuple[MeshPlacements, ...], asked: Asked, dtype: str) -> tuple[MeshPlan, str]:
    """The plan, and a digest of it. With a scheme the ranks share its products, wherever the operands lie."""
    digests = ["each what it has"]

    def planned(a: Spread, b: Spread, c: Spread) -> RankPlan:
        plan, digest = plan_for(replace(asked, shape=extents, distributions=(Pieces(a), Pieces(b), Pieces(c))), dtype, len(mesh.ranks))
        digests[:] = [digest]
        return plan

    require_extents(extents)
    check_options(asked)
    plan = plan_over(mesh, extents, placements, planned, stay=asked.decomposition == CLASSICAL)
    return plan, digests[0]


def _facts(operands: tuple[Array, Array], wanted: Sequence[object] | None, asked: Asked) -> dict[str, str]:
    """What must be the same on all ranks, as text; also of operands that are refused."""
    values: dict[str, object] = {}
    for name, x in zip("AB", operands, strict=True):
        mesh = getattr(x, "device_mesh", None)
        values[f"the shape of {name}"] = tuple(getattr(x, "shape", ()))
        values[f"the mesh of {name}"] = None if mesh is None else (mesh.device_type, mesh.mesh.tolist())
        values[f"the placements of {name}"] = getattr(x, "placements", None)
    values["placements"] = wanted
    kinds = {getattr(getattr(x, "device_mesh", None), "device_type", "") for x in operands}
    return said(operands[0], values | options_of(asked), carrier("cuda" in kinds))


def _mesh_of(module: ModuleType, operands: tuple[Array, Array], connection: Connection) -> Mesh:
    """The mesh of both operands, with the ranks of the communicator. Raises `BilinearError` (E795, E797)."""
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


def _written(module: ModuleType, placement: MeshPlacement) -> object:
    makers = {
        MeshPlacement.ROWS: lambda: module.Shard(0),
        MeshPlacement.COLUMNS: lambda: module.Shard(1),
        MeshPlacement.COPIES: module.Replicate,
        MeshPlacement.SUMMANDS: module.Partial,
    }
    return makers[placement]()


def _require_no_gradient(torch: ModuleType, operands: tuple[Array, Array]) -> None:
    if records_gradients(torch, *operands):
        raise fail("E516", "a DTensor requires gradients, and this product records none", "use torch.no_grad(), or tensor.detach()")


def _local(x: Array) -> Array:
    """A rank's piece; one that is still on its way from other ranks is awaited."""
    piece = x.to_local()
    return piece.wait() if hasattr(piece, "wait") else piece
