"""Products by cuBLAS of rounded numbers: launches that round, where the unit does not drop bits itself, and a call of the library."""

from __future__ import annotations

import ctypes
from functools import partial
from math import ceil

import numpy as np

from bilinear.backends.bound_launches import MatrixPlace, Values
from bilinear.backends.cublas import gemm_ex, handle_on
from bilinear.backends.factor import factor
from bilinear.backends.gemm import gemm_of, is_by_rows, is_in_lanes
from bilinear.backends.timing import normal_operands, settled
from bilinear.ir.element import FLOAT32
from bilinear.ir.launch import PlainLaunch
from bilinear.ir.matrix import Factor, Layout, dense
from bilinear.ir.rounded import CELL, FLOAT32_LIBRARY, ROUNDINGS, RoundKernel, lines_of
from bilinear.methods.program import GRID, WORKSPACE, Buffers, NamedLaunch, Program, once


class RoundedMultiply(Program):
    """A product of float32 matrices. Its launches round the operands into the workspace; then the library multiplies."""

    what = "rounding an operand"
    writing = 0

    def __init__(self, a: Layout, b: Layout, c: Layout, name: str) -> None:
        super().__init__((a, b, c), False, FLOAT32)
        self._own, self._places, end, stored = ROUNDINGS[name], [0, 0], 0, []
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

    def __call__(self, a: int, b: int, c: int, alpha: Factor, beta: Factor, workspace: int = 0, kept: int = 0) -> None:
        """Launch on CuPy's current stream; `workspace` is the address of the caller's memory, if there is one.

        Raises `BilinearError` (E536) while the stream is captured, because CuPy calls no cuBLAS then, `StageError` if a launch fails.
        """
        import cupy

        pooled = None
        if self._own.stored:
            if not workspace:
                pooled = self.allocate()  # freed in stream order
                workspace = pooled.data.ptr
            super().__call__(a, b, 0, 1, 0, workspace)
            a, b = (workspace + place for place in self._places)
        gemm, own = self._gemm, self._own
        factors = (ctypes.c_float * 2)(*(factor(name, value, self._dtype) for name, value in (("alpha", alpha), ("beta", beta))))
        here, (lda, ldb, ldc) = ctypes.addressof(factors), gemm.leading
        a, b = (b, a) if gemm.swaps else (a, b)
        left, right = (here, a, own.library, lda), (b, own.library, ldb)
        old = here + ctypes.sizeof(ctypes.c_float), c, FLOAT32_LIBRARY, ldc
        handle = handle_on(cupy.cuda.runtime.getDevice())
        gemm_ex(handle, *gemm.operations, *gemm.extents, *left, *right, *old, own.compute)

    def buffers(self) -> Buffers:
        """Where named buffers lie, rounded operands among them."""
        return {**super().buffers(), **{f"rounded {name}": (WORKSPACE, place) for name, place in zip("AB", self._places, strict=True)}}

    def launches(self, is_aligned: bool, multiprocessors: int) -> list[NamedLaunch]:
        """The launches that round A and B, whose addresses are multiples of 16 bytes or any."""
        return [self._launch(name, x, is_aligned) for name, x in zip("AB", self._layouts, strict=False)]

    def _launch(self, name: str, x: Layout, is_aligned: bool) -> NamedLaunch:
        kernel, size = kernel_for(x, is_aligned), x.itemsize
        count, line = lines_of(x.shape, not is_by_rows(x))
        pitch = self._own.line_bytes(line) // self._own.stored
        values: Values = {"X": MatrixPlace(name, 0, x.strides, size), "Y": MatrixPlace(f"rounded {name}", 0, (0, 0), size)}
        values |= {"apart": x.strides[0 if is_by_rows(x) else 1] // size, "line": line, "lines": count, "pitch": pitch}
        values["blocks"] = count * ceil(pitch / (kernel.threads[0] * kernel.lanes))
        return PlainLaunch(kernel, GRID), values


def rounded_multiply_of(a: Layout, b: Layout, c: Layout, name: str) -> RoundedMultiply | None:
    """The product for matrices of these layouts on the current device; None if cuBLAS does not multiply them as they lie."""
    if any(str(x.dtype) != FLOAT32.name for x in (a, b, c)) or gemm_of(a, b, c) is None:
        return None
    return once(RoundedMultiply, a, b, c, name)


def kernel_for(x: Layout, is_aligned: bool) -> RoundKernel:
    """The kernel that rounds a matrix of this layout."""
    return RoundKernel(4 if is_aligned and is_in_lanes(x) else 1)


class RoundedBench:
    """Times of products of rounded numbers on the current GPU, in seconds."""

    def rounded(self, name: str, size: int) -> float | None:
        """The library's product of square float32 matrices that are rounded so; None without memory, or if it multiplies none."""
        layout = dense((size, size), np.dtype("float32"))
        multiply = rounded_multiply_of(layout, layout, layout, name)
        operands = None if multiply is None else normal_operands((size, size, size), layout.dtype, multiply.workspace)
        if multiply is None or operands is None:
            return None
        a, b, c, workspace = (int(x.data.ptr) for x in operands)
        return 1e-3 * settled(partial(multiply, a, b, c, 1, 0, workspace))
