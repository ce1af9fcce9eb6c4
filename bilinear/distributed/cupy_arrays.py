"""CuPy's distributed arrays, on several GPUs of one process: multiplied by the plans of ranks, a thread for each GPU, and made."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType

from bilinear.distributed.connection import run_steps
from bilinear.distributed.distributions import Slab, Spread
from bilinear.distributed.multiply import Request, check_piece, local_multiply, plan_for
from bilinear.distributed.rank import steps_of
from bilinear.errors import fail
from bilinear.ir.matrix import Array
from bilinear.runtime.arrays import cupy_module


def cupy_arrays_of(*matrices: Array) -> ModuleType | None:
    """The module `cupyx.distributed.array` if a matrix is one of its arrays, else None. Nothing is imported."""
    module = sys.modules.get("cupyx.distributed.array")
    kind = getattr(module, "DistributedArray", None)
    return module if kind is not None and any(isinstance(x, kind) for x in matrices) else None


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
    left, right = (_slabs(module, x, spread, gpus) for x, spread in zip((a, b), plan.given[:2], strict=True))
    for number, pieces in enumerate(zip(left, right, strict=True)):
        for name, piece, spread in zip("AB", pieces, plan.given[:2], strict=True):
            check_piece(name, piece, spread[number].shape)
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
