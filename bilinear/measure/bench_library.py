"""The library multiplies that plans are compared with; the fastest of them is the baseline."""

from __future__ import annotations

from functools import partial

from bilinear.ir.matrix import Array
from bilinear.measure.timing import Call

NOT_TRANSPOSED = 0
"""`CUBLAS_OP_N`."""


def library_calls(a: Array, b: Array, c: Array) -> dict[str, Call]:
    """c = a @ b by every installed library: CuPy, cuBLAS called directly, PyTorch, and cublasLt through PyTorch.

    A library that fails does so when called. CuPy computes FP64 in a mode that can be slower than `cublasDgemm`, so both are included. CuPy
    has no bindings of cublasLt; PyTorch falls back to cuBLAS if cublasLt refuses a problem.
    """
    import cupy

    calls: dict[str, Call] = {"cupy": lambda: cupy.matmul(a, b, out=c)}
    for name, make in (("cublas", _cublas), ("torch", _torch), ("cublaslt", _cublaslt)):
        try:
            calls[name] = make(a, b, c)
        except ImportError:
            continue
        except Exception as error:  # of many kinds; the call raises it, so that a missing baseline is reported
            calls[name] = partial(_fail, error)
    return calls


def _fail(error: Exception) -> None:
    raise error


def _cublas(a: Array, b: Array, c: Array) -> Call:
    """cublasDgemm or cublasSgemm for row-major arrays, called on the transposed, column-major matrices."""
    import cupy
    import numpy as np
    from cupy_backends.cuda.libs import cublas

    multiply = {"float64": cublas.dgemm, "float32": cublas.sgemm}[str(a.dtype)]
    (m, k), n, handle = a.shape, b.shape[1], cupy.cuda.Device().cublas_handle
    factors = np.array([1, 0], a.dtype)
    one, zero = (factors[i:].ctypes.data for i in range(2))

    def call(_: object = factors) -> None:  # keeps them alive
        left, right = (b.data.ptr, n), (a.data.ptr, k)
        multiply(handle, NOT_TRANSPOSED, NOT_TRANSPOSED, n, m, k, one, *left, *right, zero, c.data.ptr, n)

    return call


def _torch(a: Array, b: Array, c: Array) -> Call:
    """`torch.mm` without TF32. All libraries use the default stream, so that CuPy's events cover PyTorch's launches."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    x, y, z = torch.from_dlpack(a), torch.from_dlpack(b), torch.from_dlpack(c)
    return lambda: torch.mm(x, y, out=z)


def _cublaslt(a: Array, b: Array, c: Array) -> Call:
    """`torch.mm` with cublasLt preferred; the process's own preference is restored afterwards."""
    import torch

    multiply, prefer = _torch(a, b, c), torch.backends.cuda.preferred_blas_library

    def call() -> None:
        before = prefer()
        try:
            prefer("cublaslt")
            multiply()
        finally:
            prefer(before)

    return call
