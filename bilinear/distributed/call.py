"""`matmul` over ranks, for pieces that are arrays, and for PyTorch's DTensors; and for CuPy's distributed arrays, a thread for each GPU."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Literal

from bilinear.distributed.connection import connected, run_steps
from bilinear.distributed.distributions import Distribution, Slab, Spread
from bilinear.distributed.dtensor import multiply_dtensors
from bilinear.distributed.multiply import CLASSICAL, TIMEOUT, Request, check_pieces, local_multiply, plan_for, run
from bilinear.distributed.rank import steps_of
from bilinear.distributed.rank_plan import Extents
from bilinear.errors import fail
from bilinear.frontend import Loaded
from bilinear.ir.matrix import Array
from bilinear.runtime.arrays import cupy_module

if TYPE_CHECKING:
    from mpi4py import MPI


def module_with(name: str, kind: str, *matrices: Array) -> ModuleType | None:
    """The module of this name if a matrix is of its class `kind`, else None. Nothing is imported."""
    module = sys.modules.get(name)
    known = getattr(module, kind, None)
    return module if known is not None and any(isinstance(x, known) for x in matrices) else None


def multiply_cupy_arrays(module: ModuleType, a: Array, b: Array, asked: Request) -> Array:
    """A B as a distributed array in slabs of rows on the GPUs of A and B. Raises `BilinearError` (E760, E762, E767, E798)."""
    for name, x in (("A", a), ("B", b)):
        if not isinstance(x, module.DistributedArray):
            raise fail("E798", f"{name} is of type {type(x).__name__}, and the other operand a distributed array", "distribute both")
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise fail("E798", f"A and B have the shapes {a.shape} and {b.shape}", "give two matrices, m x k and k x n")
    if a.dtype != b.dtype:
        raise fail("E798", f"A is of {a.dtype}, and B of {b.dtype}", "the matrices are of one type")
    (m, k), n = a.shape, b.shape[1]
    gpus = sorted({*a.devices, *b.devices})[: min(m, k)]  # each has some rows of A, of B and of C
    asked = replace(asked, shape=(m, k, n), distributions=(Slab.X,) * 3)
    plan, _ = plan_for(asked, str(a.dtype), len(gpus))
    asked.require_bits(a.dtype, True)
    left, right = (_slabs(module, x, spread, gpus) for x, spread in zip((a, b), plan.given[:2], strict=True))
    for number, pieces in enumerate(zip(left, right, strict=True)):
        check_pieces(dict(zip("AB", pieces, strict=True)), plan.given, number)
    from bilinear.backends.peer_copies import PeerCarrier, PeerCopies

    def work(number: int, carrier: PeerCarrier) -> Array:
        multiply = local_multiply(asked, plan, number, True, left[number].dtype.itemsize)
        return run_steps(steps_of(plan, number, left[number], right[number], multiply), carrier)

    _settle(gpus)
    found = PeerCopies(gpus).run(work)
    return _distributed(module, found, plan.given[2], gpus, (m, n))


def _slabs(module: ModuleType, x: Array, spread: Spread, gpus: list[int]) -> list[Array]:
    """The rows of each GPU; summands and the like are put together first."""
    chunks = x.change_mode(module.REPLICA).reshard(_map(spread, gpus)).all_chunks()
    return [chunks[gpu][0] for gpu in gpus]


def _distributed(module: ModuleType, pieces: list[Array], spread: Spread, gpus: list[int], shape: tuple[int, int]) -> Array:
    """A distributed array of pieces. It is made from broadcast zeros, because CuPy cannot make one from chunks."""
    cupy = cupy_module()
    with cupy.cuda.Device(gpus[0]):
        zeros = cupy.broadcast_to(cupy.zeros((1, 1), pieces[0].dtype), shape)
    out = module.distributed_array(zeros, _map(spread, gpus))
    chunks = out.all_chunks()
    for gpu, piece in zip(gpus, pieces, strict=True):
        with cupy.cuda.Device(gpu):
            chunks[gpu][0][...] = piece
    _settle(gpus)
    return out


def _map(spread: Spread, gpus: list[int]) -> dict[int, list[tuple[slice, slice]]]:
    """CuPy's `index_map` of slabs of rows."""
    return {gpu: [(slice(*part.rows[0]), slice(*part.columns[0]))] for gpu, part in zip(gpus, spread, strict=True)}


def _settle(gpus: list[int]) -> None:
    """Wait for all that the GPUs were given, on any stream."""
    cupy = cupy_module()
    for gpu in gpus:
        with cupy.cuda.Device(gpu) as device:
            device.synchronize()


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
    reproducible: Literal["bitwise"] | None = None,
    balance: Literal["static", "queue"] | None = None,
    comm: MPI.Intracomm | None = None,
    timeout: float = TIMEOUT,
) -> Array:
    """This rank's piece of C = A B, a new array. Every rank must call it with the same options.

    Arrays in the host's memory travel by MPI. Arrays on GPUs travel by NCCL, on a stream of their own beside the products, if each rank
    has a GPU for itself; otherwise they travel through the host's memory, with a warning. The result is valid on the current stream.

    Two DTensors of PyTorch over one mesh say themselves how they lie: `Shard(0)`, `Shard(1)`, `Replicate()` and `Partial()` along each
    dimension of the mesh. C is then a DTensor, without a gradient. The ranks of the mesh, in ascending order, must be those of `comm`.

    Two distributed arrays of CuPy (`cupyx.distributed.array`), on GPUs of this process, are multiplied without MPI: each GPU is a rank. C
    is a distributed array in slabs of rows.

    Parameters
    ----------
    a : array or DTensor or distributed array
        This rank's piece of A: a matrix of integers or floating-point numbers from NumPy, CuPy or any library that speaks DLPack. It is
        not written.
    b : array or DTensor or distributed array
        This rank's piece of B, of the same type, which C has, too.
    shape : (int, int, int), optional
        m, k, n of the whole product, m x k by k x n.
    distributions : distribution or sequence of three, optional
        How A and B lie and how C is to lie, one for each or one for all: `Slab.X`, `Slab.Y`, `BlockNonCyclic`, `BlockCyclic`, `Pieces`.
    placements : sequence of placements, optional
        For DTensors, how C is to lie, one for each dimension of the mesh. By default this follows from A and B, by the table in
        docs/distributed.md.
    decomposition : str or Algorithm
        How the product is spread over the ranks. "2d" computes C in one tile a rank, the classical way; a scheme multiplies blocks.
    levels : int or "auto"
        The levels of that scheme, by default the fewest with a product for each rank.
    memory : int, optional
        The most bytes that a rank may take beside its pieces: depth-first levels, or panels of "2d", are added to keep it. Sums of
        `Partial`, copies of `Replicate`, and what a named algorithm needs are not counted.
    algorithm : str
        What multiplies on each rank, as in `bilinear.matmul`. A schedule runs in place, in copies of what is not received.
    local_levels : int or "auto"
        The levels of that.
    accuracy : float or "classical" or "twice", optional
        As in `bilinear.matmul`. It needs "2d", which does not cut k, so that the promise holds for C.
    reproducible : "bitwise", optional
        C has the bits of `bilinear.matmul` on one process, whatever the ranks. It needs "2d", which does not cut k, and no `Partial`.
    balance : {"static", "queue"}, optional
        With "2d", C is cut in blocks of all k, equally many a rank. By a queue, a rank that was faster is dealt more of those left; the
        blocks are the same, and so are the bits on ranks of one kind. By default C is cut in a tile a rank.
    comm : mpi4py communicator, optional
        The ranks; by default all processes.
    timeout : float
        How many seconds the ranks wait for each other to agree that all call the same.

    Returns
    -------
    array or DTensor or distributed array

    Raises
    ------
    BilinearError
        On all ranks alike: E763 and E767 if they differ, E516, E528, E543, E760 to E762, E768, E795 to E798, E820, E821 for wrong
        arguments, and what `load` raises. E765 if a rank does not call, E764 if one fails, ends or is not heard of for 20 s: in both cases
        the communicator becomes unusable, and the process ends with exit code 1. E766 if mpi4py is not usable.
    TypeError
        If arrays come without `shape` and `distributions` or with `placements`, or DTensors with `shape` or `distributions`.

    Examples
    --------
    On a single rank the pieces are the matrices:

    >>> import numpy as np
    >>> from bilinear.distributed import Slab, matmul
    >>> a = np.arange(6.0).reshape(2, 3)
    >>> matmul(a, np.ones((3, 2)), shape=(2, 3, 2), distributions=Slab.X)
    array([[ 3.,  3.],
           [12., 12.]])
    """
    dtensors = module_with("torch.distributed.tensor", "DTensor", a, b)
    own = module_with("cupyx.distributed.array", "DistributedArray", a, b)
    options = decomposition, levels, memory, algorithm, local_levels, accuracy, reproducible, balance
    asked = Request((0, 0, 0), (Slab.X,) * 3, *options)
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
    asked = replace(asked, shape=shape, distributions=three)  # type: ignore[arg-type]
    return run(connected(comm, timeout), a, b, asked, timeout)
