"""The library multiplies that plans are compared with; the fastest of them is the baseline."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bilinear.ir.matrix import Array
from bilinear.measure.timing import Call

Make = Callable[[Array, Array, Array], Call]
"""Makes the call of a library."""

NOT_TRANSPOSED = 0
"""`CUBLAS_OP_N`."""


def library_calls(a: Array, b: Array, c: Array) -> dict[str, Call]:
    """c = a @ b by every installed library: CuPy, cuBLAS called directly, PyTorch, and cublasLt through PyTorch.

    Of complex matrices cuBLAS has two, `gemm`, and `gemm3m` by three real products. A library that fails does so when called. CuPy computes
    FP64 in a mode that can be slower than `cublasDgemm`, so both are included. CuPy has no bindings of cublasLt; PyTorch falls back to
    cuBLAS if cublasLt refuses a problem.
    """
    import cupy

    calls: dict[str, Call] = {"cupy": lambda: cupy.matmul(a, b, out=c)}
    own: tuple[tuple[str, Make], ...] = (("cublas", _cublas),)
    if a.dtype.kind == "c":
        own = tuple((name, partial(complex_cublas, name)) for name in ("gemm", "gemm3m"))
    for name, make in (*own, ("torch", _torch), ("cublaslt", _cublaslt)):
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


def complex_cublas(name: str, a: Array, b: Array, c: Array) -> Call:
    """cublasCgemm or cublasZgemm, or with the name `gemm3m` their variants, for row-major arrays, as the product of the transposed ones.

    CuPy binds no `gemm3m`, so they are called in the library that CuPy has loaded.
    """
    import cupy

    letter, part = ("C", ctypes.c_float) if str(a.dtype) == "complex64" else ("Z", ctypes.c_double)
    multiply = getattr(_loaded_cublas(), f"cublas{letter}{name}{'_v2' if name == 'gemm' else ''}")
    one, zero, handle = (part * 2)(1, 0), (part * 2)(0, 0), ctypes.c_void_p(cupy.cuda.Device().cublas_handle)
    (m, k), n = a.shape, b.shape[1]

    def call() -> None:
        left, right, out = (ctypes.c_void_p(x.data.ptr) for x in (b, a, c))
        sizes = NOT_TRANSPOSED, NOT_TRANSPOSED, n, m, k
        status = multiply(handle, *sizes, ctypes.byref(one), left, n, right, k, ctypes.byref(zero), out, n)
        if status:
            raise RuntimeError(f"cuBLAS returns {status}")

    return call


def _loaded_cublas() -> ctypes.CDLL:
    """The cuBLAS that CuPy has loaded into this process."""
    import cupy

    cupy.matmul(cupy.ones((2, 2)), cupy.ones((2, 2)))
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return ctypes.CDLL(min(line.split()[-1] for line in lines if "libcublas.so" in line))


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
