"""The backend for a kind of array."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from bilinear.backends.executor import Executor
from bilinear.runtime.arrays import Kind

if TYPE_CHECKING:  # imported with the first call on a GPU
    from bilinear.backends.cuda_executor import CudaExecutor


def make_executor(kind: Kind) -> Executor:
    """The backend for a kind of array."""
    if kind.on_gpu:
        return gpu_executor()
    from bilinear.backends.numpy_executor import NumpyExecutor

    return NumpyExecutor()


@cache
def gpu_executor() -> CudaExecutor:
    """The backend for the arrays of CuPy."""
    from bilinear.backends.cuda_executor import CudaExecutor

    return CudaExecutor()
