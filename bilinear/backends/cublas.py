"""The library's multiply of matrices on a GPU: `cublasSgemm`, `cublasDgemm` or cublasLt, called with what their layouts come to.

`cupy.matmul` copies operands with gaps, wants C by rows and without gaps, and has neither alpha nor beta. It calls `cublasGemmEx`, which is
slower than these for some shapes, and what it finds out at every call takes longer than small products.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from threading import local
from typing import Any

from bilinear.backends.capture import not_captured
from bilinear.backends.cublas_lt import ALIGNMENT, Launch, launch_of
from bilinear.backends.factor import factor
from bilinear.backends.gemm import Gemm, gemm_of
from bilinear.ir.matrix import Layout
from bilinear.planner.plan import CUBLASLT, LIBRARY

DOTS = range(1024, 2**15)
"""Lengths of vectors whose product others than cuBLAS compute sooner, mostly: on an H200 of 16,384 doubles cublasLt in 5.6 microseconds and
`cupy.matmul` in 8.4 for 33, of as many floats `cupy.matmul` in 8 for 12. Doubles at addresses that are no multiples of 16 take the 33."""
SHORT_SUM, MEDIUM_SUM, MANY, MANY_RESULTS, MOST_EVEN = 256, 512, 128, 500_000, 2_000_000
"""cublasLt mostly multiplies sooner for float32 where sums have at most `SHORT_SUM` terms; not so where all rows begin at multiples of 16
bytes and there are more than `MOST_EVEN` results. Where rows do not, it does so up to `MEDIUM_SUM` terms: for floats with at least
`MANY_RESULTS` results, for doubles with at least `MANY` rows and columns. On an H200 it takes 6 microseconds for 25 at 18153 x 46 x 2
floats, and 483 for 607 at 17844 x 21 x 7000 doubles; where none of this holds it takes up to four times as long."""
FEW, LONG = 4, 10000
"""So it does for doubles where a result whose rows are contiguous has so few columns and more than so many rows, or the other way round."""
SOME, WIDE, DEEP = range(8, 33), 7000, 2000
"""So it does, mostly, for doubles where a result has so many rows, which are contiguous, at least `WIDE` columns, and sums of at least
`DEEP` terms: of 51 such shapes it was 2 % ahead or more at 23, up to 36 %, and behind at 5, up to 14 %."""
Multiply = Callable[[int, int, int, Any, Any], None]
"""C = alpha * A * B + beta * C on CuPy's current stream, by the addresses of A, B and C, and the factors. With beta = 0 C is not read."""


def multiply_of(a: Layout, b: Layout, c: Layout, library: str = LIBRARY) -> Multiply | None:
    """The multiply of matrices of these layouts on the current device; None for what is left to `cupy.matmul`.

    It is that of cuBLAS or of cublasLt where `library` names one (what cublasLt refuses goes to cuBLAS), else what rules choose. Left to
    `cupy.matmul` is what `gemm_of` leaves, by rules a row by a column of medium length that cublasLt does not take, other types than
    float32 and float64, and float32 where the environment's CUPY_TF32 asks for TF32.
    """
    import cupy

    if not a.dtype == b.dtype == c.dtype or a.dtype.char not in "fd":
        return None
    if a.dtype.char == "f" and asks_for_tf32():
        return None
    gemm, device = gemm_of(a, b, c), cupy.cuda.runtime.getDevice()
    if gemm is None:
        return None
    is_ruled = library == LIBRARY
    lt = launch_of(gemm, a.dtype, device) if (suits_lt(gemm, a.dtype) if is_ruled else library == CUBLASLT) else None
    return None if is_ruled and _is_dot(gemm) and lt is None else _bound(gemm, a.dtype, device, lt)


def suits_lt(gemm: Gemm, dtype: Any) -> bool:
    """Whether cublasLt is asked first."""
    m, n, k = gemm.extents
    is_uneven = any(apart * dtype.itemsize % ALIGNMENT for apart in gemm.leading)
    if dtype.char == "d":
        is_wide = m >= WIDE and n in SOME and k >= DEEP
        return (is_uneven and min(m, n) >= MANY and k <= MEDIUM_SUM) or (m <= FEW and n > LONG) or is_wide or _is_dot(gemm)
    if k <= SHORT_SUM:
        return is_uneven or m * n <= MOST_EVEN
    return is_uneven and k <= MEDIUM_SUM and m * n >= MANY_RESULTS


def _is_dot(gemm: Gemm) -> bool:
    """Whether it is a row by a column of medium length."""
    m, n, k = gemm.extents
    return m == n == 1 and k in DOTS


def asks_for_tf32() -> bool:
    """Whether the environment has CuPy multiply float32 as TF32, with 10 bits of its 23 (what is set inside CuPy is not asked)."""
    return os.environ.get("CUPY_TF32", "0") not in ("", "0")


def _bound(gemm: Gemm, dtype: Any, device: int, lt: Launch | None) -> Multiply:
    """The multiply with all found once that depends on layouts. CuPy's binding takes its current stream.

    The factors of a call are its own, and read before it returns: CuPy's handles take pointers of the host. What cublasLt refuses, and
    matrices at addresses that are no multiples of 16, go to cuBLAS. CuPy refuses to call that while the stream is captured; then cublasLt
    is asked for a kernel that needs no memory.
    """
    import cupy
    from cupy_backends.cuda.libs import cublas

    call, number = (cublas.sgemm, ctypes.c_float) if dtype.char == "f" else (cublas.dgemm, ctypes.c_double)
    pair, size = number * 2, ctypes.sizeof(number)
    plain = pair(1, 0)
    current = cupy.cuda.get_current_stream
    swaps, (first, second), (m, n, k), (lda, ldb, ldc) = gemm.swaps, gemm.operations, gemm.extents, gemm.leading

    def multiply(a: int, b: int, c: int, alpha: Any, beta: Any) -> None:
        factors = plain if alpha == 1 and beta == 0 else pair(factor("alpha", alpha, dtype), factor("beta", beta, dtype))
        address = ctypes.addressof(factors)
        handle = _handles.of.get(device) or _new_handle(device)
        if swaps:
            a, b = b, a
        is_aligned = (a | b | c) % ALIGNMENT == 0
        if lt is not None and is_aligned and lt(handle, a, b, c, address, address + size, current().ptr):
            return
        try:
            call(handle, first, second, m, n, k, address, a, lda, b, ldb, address + size, c, ldc)
        except NotImplementedError:
            bare = launch_of(gemm, dtype, device, workspace=0) if is_aligned else None
            if bare is None or not bare(handle, a, b, c, address, address + size, current().ptr):
                raise not_captured("CuPy calls no cuBLAS then, and cublasLt has no kernel for it", "give algorithm='classical'") from None

    return multiply


class _Handles(local):
    """cuBLAS's handles of a thread by device, which CuPy makes and keeps as long as the thread lives."""

    def __init__(self) -> None:
        self.of: dict[int, int] = {}


_handles = _Handles()


def _new_handle(device: int) -> int:
    import cupy

    handle = _handles.of[device] = int(cupy.cuda.Device(device).cublas_handle)
    return handle
