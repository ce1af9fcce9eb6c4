"""Products by cuBLAS of rounded numbers: launches that round, where the unit does not drop bits itself, and a call of the library."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from math import ceil

from bilinear.backends.bound_launches import Bound, Place, Values, run_launches
from bilinear.backends.caches import MOST_KEPT
from bilinear.backends.capture import not_captured
from bilinear.backends.cublas import Multiply, handle_on
from bilinear.backends.cuda_executor import CudaExecutor, launch_kernel
from bilinear.backends.factor import factor
from bilinear.backends.gemm import ALIGNMENT, gemm_of, is_by_rows, is_in_lanes
from bilinear.backends.loaded_kernels import built_function
from bilinear.ir.element import FLOAT32
from bilinear.ir.kernel import Cover, Grid
from bilinear.ir.launch import PlainLaunch
from bilinear.ir.matrix import Factor, Layout
from bilinear.ir.rounded import CELL, FLOAT32_LIBRARY, ROUNDINGS, RoundKernel, lines_of

DEFAULT_ALGORITHM = -1
"""`CUBLAS_GEMM_DEFAULT`."""


class RoundedMultiply:
    """C = alpha * A * B + beta * C for float32 matrices of these layouts, called with addresses like a library's multiply.

    `workspace` is the number of elements that a call allocates from CuPy's pool for rounded operands. The caller's memory, in its place,
    must begin at a multiple of `alignment` bytes.
    """

    alignment = ALIGNMENT

    def __init__(self, a: Layout, b: Layout, c: Layout, name: str) -> None:
        import numpy as np

        self._own, self._layouts, self._dtype = ROUNDINGS[name], (a, b), c.dtype
        self._places, end, stored = [0, 0], 0, []
        for number, x in enumerate((a, b)):
            by_columns = not is_by_rows(x)
            count, line = lines_of(x.shape, by_columns)
            pitch, size = self._own.line_bytes(line), self._own.stored
            self._places[number], end = end, end + ceil(count * pitch / CELL) * CELL
            stored.append(Layout(x.shape, (size, pitch) if by_columns else (pitch, size), np.dtype("float16")))
        left, right = stored if self._own.stored else (a, b)
        gemm = gemm_of(left, right, c)
        if gemm is None:
            raise ValueError("cuBLAS reads the rows or the columns of each matrix, side by side")
        self._gemm, self.workspace = gemm, end // c.itemsize
        self._bound: dict[bool, Bound] = {}

    def __call__(self, a: int, b: int, c: int, alpha: Factor, beta: Factor, workspace: int = 0) -> None:
        """Launch on CuPy's current stream; `workspace` is the address of the caller's memory, if there is one.

        Raises `BilinearError` (E536) while the stream is captured, because CuPy calls no cuBLAS then, `StageError` if a launch fails.
        """
        import cupy
        from cupy_backends.cuda.libs import cublas

        pooled = None
        if self._own.stored:
            if not workspace:
                pooled = cupy.empty(self.workspace, self._dtype)  # freed in stream order
                workspace = pooled.data.ptr
            bound = self._rounding((a | b) % ALIGNMENT == 0)
            with bound.ready((a, b, 0, workspace), 1, 0, CudaExecutor().stream()) as steps:
                run_launches(steps, "rounding an operand", 0)
            a, b = (workspace + place for place in self._places)
        gemm, own = self._gemm, self._own
        factors = (ctypes.c_float * 2)(*(factor(name, value, self._dtype) for name, value in (("alpha", alpha), ("beta", beta))))
        here, (lda, ldb, ldc) = ctypes.addressof(factors), gemm.leading
        a, b = (b, a) if gemm.swaps else (a, b)
        left, right = (here, a, own.library, lda), (b, own.library, ldb)
        old = here + ctypes.sizeof(ctypes.c_float), c, FLOAT32_LIBRARY, ldc
        handle = handle_on(cupy.cuda.runtime.getDevice())
        try:
            cublas.gemmEx(handle, *gemm.operations, *gemm.extents, *left, *right, *old, own.compute, DEFAULT_ALGORITHM)
        except NotImplementedError:
            raise not_captured(f"CuPy calls no cuBLAS then, which multiplies {own.name}", "ask for more accuracy") from None

    def within(self, workspace: int) -> Multiply:
        """The same, with rounded operands in the caller's memory at this address."""
        return lambda a, b, c, alpha, beta: self(a, b, c, alpha, beta, workspace)

    def _rounding(self, is_aligned: bool) -> Bound:
        """The launches that round A and B, whose addresses are multiples of 16 bytes or any."""
        found = self._bound.get(is_aligned)
        if found is None:
            import cupy

            device = cupy.cuda.Device().id
            each = [self._launch(number, x, is_aligned) for number, x in enumerate(self._layouts)]
            loaded = [(launch, built_function(launch.kernel, device), values) for launch, values in each]
            found = self._bound[is_aligned] = Bound(FLOAT32, loaded, launch_kernel())
        return found

    def _launch(self, number: int, x: Layout, is_aligned: bool) -> tuple[PlainLaunch, Values]:
        kernel, size = kernel_for(x, is_aligned), x.itemsize
        count, line = lines_of(x.shape, not is_by_rows(x))
        pitch = self._own.line_bytes(line) // self._own.stored
        values: Values = {"X": Place(number, 0, x.strides, size), "Y": Place(3, self._places[number], (0, 0), size)}
        values |= {"apart": x.strides[0 if is_by_rows(x) else 1] // size, "line": line, "lines": count, "pitch": pitch}
        values["blocks"] = count * ceil(pitch / (kernel.threads[0] * kernel.lanes))
        return PlainLaunch(kernel, Grid(((Cover("blocks", 1),),), 1)), values


def rounded_multiply_of(a: Layout, b: Layout, c: Layout, name: str) -> RoundedMultiply | None:
    """The product for matrices of these layouts on the current device; None if cuBLAS does not multiply them as they lie."""
    if any(str(x.dtype) != FLOAT32.name for x in (a, b, c)) or gemm_of(a, b, c) is None:
        return None
    import cupy

    return _kept(a, b, c, name, cupy.cuda.runtime.getDevice())


@lru_cache(MOST_KEPT)
def _kept(a: Layout, b: Layout, c: Layout, name: str, device: int) -> RoundedMultiply:
    """The product, with the launches that it has bound on a device."""
    return RoundedMultiply(a, b, c, name)


def kernels_of(a: Layout, b: Layout, name: str) -> set[RoundKernel]:
    """The kernels of a product of matrices of these layouts whose addresses are multiples of 16 bytes."""
    return {kernel_for(x, True) for x in (a, b)} if ROUNDINGS[name].stored else set()


def kernel_for(x: Layout, is_aligned: bool) -> RoundKernel:
    """The kernel that rounds a matrix of this layout."""
    return RoundKernel(4 if is_aligned and is_in_lanes(x) else 1)
