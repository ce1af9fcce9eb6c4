"""`matmul` over the ranks of a communicator, for pieces that are arrays and for PyTorch's DTensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from bilinear.distributed.connection import connected
from bilinear.distributed.cupy_arrays import cupy_arrays_of, multiply_cupy_arrays
from bilinear.distributed.distributions import Distribution, Slab
from bilinear.distributed.dtensor import dtensors_of, multiply_dtensors
from bilinear.distributed.multiply import CLASSICAL, TIMEOUT, Asked, run
from bilinear.distributed.rank_plan import Extents
from bilinear.frontend import Loaded
from bilinear.ir.matrix import Array

if TYPE_CHECKING:
    from mpi4py import MPI


def matmul(
    a: Array,
    b: Array,
    *,
    shape: Extents | None = None,
    distributions: Distribution | Sequence[Distribution] | None = None,
    placements: Sequence[object] | None = None,
    decomposition: str | Loaded = CLASSICAL,
    levels: int | Literal["auto"] = "auto",
    memory: int | None = None,
    algorithm: str = "auto",
    local_levels: int | Literal["auto"] = "auto",
    accuracy: float | Literal["classical", "twice"] | None = None,
    comm: MPI.Intracomm | None = None,
    timeout: float = TIMEOUT,
) -> Array:
    """This rank's piece of C = A B, a new array; every rank of `comm` (an mpi4py communicator, by default all processes) must call.

    `shape` is (m, k, n) of the whole product, m x k by k x n. `distributions` say how A and B lie and how C is to lie, one for each or one
    for all: `Slab.X`, `Slab.Y`, `BlockNonCyclic`, `BlockCyclic`. `a` and `b` are this rank's pieces: matrices of NumPy, CuPy or any library
    that speaks DLPack, of one type of integers or floating-point numbers. They are not written. C has their type.

    `a` and `b` may also be two DTensors of PyTorch over one mesh, in memory of the host or of GPUs, which say themselves how they lie:
    `Shard(0)`, `Shard(1)`, `Replicate()` and `Partial()` along each dimension of the mesh. C is a DTensor, without a gradient. `placements`
    are those in which C is asked for, one for each dimension of the mesh; by default they follow from those of A and B, by the table in
    docs/distributed.md. The ranks of the mesh, in ascending order, must be those of `comm`.

    Two distributed arrays of CuPy (`cupyx.distributed.array`), on GPUs of this process, are multiplied without MPI: each GPU is a rank. C
    is a distributed array in slabs of rows.

    `decomposition` is how the product is spread over the ranks: "2d" computes C in a tile a rank, the classical way; the name or path of a
    scheme multiplies blocks by it, `levels` of it at once, by default the fewest with a product for each rank. `algorithm` and
    `local_levels` are those of `bilinear.matmul`, for the products on each rank; `accuracy`, too, which needs "2d": k is not cut then, so
    that its promise holds for C. `memory` is the most bytes that a rank may take beside its pieces; as many depth-first levels, or panels
    of "2d", as that asks for are added. It does not count sums of `Partial`, copies of `Replicate`, and what a named algorithm needs.

    Arrays of the host travel by MPI. Those of GPUs travel by NCCL, on a stream of their own beside the products, if each rank has a GPU for
    itself; otherwise through memory of the host, with a warning. The result is valid on the current stream.

    The ranks first agree that all call the same. `timeout` is how many seconds they wait for each other there. Where they differ, all raise
    the same `BilinearError` (E763, E767), and so where the arguments are wrong (E516, E528, E543, E760 to E762, E768, E795 to E798, and
    what `load` raises). If a rank does not call (E765), fails, ends or is not heard of for 20 s (E764), all others raise that. The
    communicator cannot be used any more then, and the process ends with exit code 1. Raises E766 if mpi4py is not usable, and `TypeError`
    if arrays come without `shape` and `distributions`, or with `placements`, or DTensors with one of the former.
    """
    dtensors, own = dtensors_of(a, b), cupy_arrays_of(a, b)
    asked = Asked((0, 0, 0), (Slab.X,) * 3, decomposition, levels, memory, algorithm, local_levels, accuracy)
    if dtensors is not None:
        if shape is not None or distributions is not None:
            raise TypeError("matmul: DTensors say their shapes and how they lie themselves; placements= says how C is to lie")
        return multiply_dtensors(connected(comm, timeout), dtensors, (a, b), placements, asked, timeout)
    if own is not None:
        if any(x is not None for x in (shape, distributions, placements, comm)):
            raise TypeError("matmul: CuPy's distributed arrays say how they lie, and their GPUs belong to this process")
        return multiply_cupy_arrays(own, a, b, asked)
    if shape is None or distributions is None or placements is not None:
        raise TypeError("matmul: shape= and distributions= say how arrays lie; placements= is for DTensors")
    three = (distributions,) * 3 if not isinstance(distributions, Sequence) else tuple(distributions)
    asked = Asked(shape, three, decomposition, levels, memory, algorithm, local_levels, accuracy)  # type: ignore[arg-type]
    return run(connected(comm, timeout), a, b, asked, timeout)
