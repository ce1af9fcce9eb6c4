"""A rank's pieces: as arrays of NumPy or CuPy, the GPU on which they lie, and what carries them to other ranks."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from bilinear.errors import BilinearError, fail
from bilinear.ir.matrix import Array
from bilinear.runtime.arrays import Kind, adopt, cupy_module, kind_of

MARGIN = 0.05
"""The part of a GPU's memory that is left alone: kernels and libraries need some, and pools are in fragments."""
BY_MPI = "MPI"


def adopted(*pieces: Array) -> tuple[Kind, list[Array]]:
    """A rank's pieces as arrays of NumPy or, on one GPU, of CuPy. Raises `BilinearError` (E511, E767)."""
    kind = kind_of(*pieces)
    found = [adopt(piece, kind) for piece in pieces]
    gpus = {int(x.device.id) for x in found} if kind.on_gpu else set()
    if len(gpus) > 1:
        raise fail("E767", f"its pieces lie on the GPUs {', '.join(map(str, sorted(gpus)))}", "a rank's pieces lie on one GPU")
    return kind, found


def current(piece: Array, on_gpu: bool) -> AbstractContextManager[object]:
    """Make the GPU of a piece the current one."""
    return piece.device if on_gpu else nullcontext()


def carrier(on_gpu: bool) -> str:
    """What carries arrays of GPUs, or of the host, with its version: it must be the same on all ranks."""
    try:
        return BY_MPI if not on_gpu else f"NCCL {_nccl()}"
    except BilinearError:
        return "no NCCL"


def require_carrier(on_gpu: bool, ranks: int) -> None:
    """Refuse (E768) pieces on GPUs that nothing can carry to other ranks."""
    if on_gpu and ranks > 1:
        _nccl()


def _nccl() -> str:
    from bilinear.backends.nccl_rounds import version

    return version()


def free_memory() -> int:
    """Bytes of the current GPU that can be allocated: those that are free, and those that CuPy's pool keeps unused."""
    cupy = cupy_module()
    free, whole = cupy.cuda.runtime.memGetInfo()
    return int(free + cupy.get_default_memory_pool().free_bytes() - MARGIN * whole)
