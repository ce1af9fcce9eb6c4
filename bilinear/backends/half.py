"""Placements on matrices of float16 or bfloat16: sums of blocks by generated kernels, products by cuBLAS.

Kernels read 16 bits, sum in float32, and round once where they store. cuBLAS multiplies on the matrix units, sums in float32 and stores 16
bits. If C is float32, so are the products, and nothing behind the sums of blocks of A and B is rounded to 16 bits. alpha, beta and all
coefficients are float32.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import numpy as np

from bilinear.backends.cublas import call_captured, handle_on
from bilinear.backends.cuda_executor import Step
from bilinear.backends.gemm import gemm_of
from bilinear.backends.numpy_sums import kept_factor
from bilinear.backends.summed_blocks import SummingExecutor, block_of
from bilinear.errors import fail
from bilinear.ir.element import FLOAT16, Element
from bilinear.ir.matrix import Call, Factor, Layout, Matrix
from bilinear.ir.number import to_float
from bilinear.ir.placement import Placement
from bilinear.ir.schedule import Product, ProductStage, Schedule, Stage

PLACED = np.dtype(FLOAT16.name)
"""The type of 16 bits that placements are made for, whichever of the two the matrices hold."""
COMPUTE_32F, DEFAULT_ALGORITHM = 68, -1
"""`CUBLAS_COMPUTE_32F`, in which sums are float32, and `CUBLAS_GEMM_DEFAULT`."""
WHOLE_REDUCTIONS = 16
"""`CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION`: parts of sums are added up in float32, too, and not in 16 bits."""


@dataclass
class HalfExecutor(SummingExecutor):
    """Runs placements that only read A and B, on matrices of an element type of 16 bits, whatever dtype their arrays name.

    `result` is the type of C and of the products: the same, or float32. Then the workspace is one of float32, and sums of blocks of A and B
    lie in the first half of each of their rows.
    """

    result: Element

    def ready(self, placement: Placement, call: Call) -> AbstractContextManager[Sequence[Step]]:
        """Each strip and each stage of the core as a call."""
        return _in_whole_reductions(super().ready(placement, call))

    @property
    def _is_wide(self) -> bool:
        return self.result is not self.element

    def kinds(self) -> tuple[tuple[Element, bool | None], ...]:
        """The element types of sums: those of C may have a type of their own."""
        return ((self.element, False), (self.result, True)) if self._is_wide else super().kinds()

    def steps(self, placement: Placement, stages: tuple[Stage, ...], spaces: dict[str, Matrix], alpha: Factor, beta: Factor) -> list[Step]:
        """Each stage as a call: the launches of linear kernels, or cuBLAS for each product."""
        if self._is_wide:
            spaces = {name: x if placement.schedule.space(name).shape == "C" else _narrow(x) for name, x in spaces.items()}
        return super().steps(placement, stages, spaces, alpha, beta)

    def product(self, schedule: Schedule, spaces: dict[str, Matrix], alpha: Factor, beta: Factor, product: Product) -> Step:
        """One product by cuBLAS, into its only target."""
        import cupy
        from cupy_backends.cuda.libs import cublas

        handle = handle_on(cupy.cuda.runtime.getDevice())
        (target,) = product.targets
        a, b, c = (block_of(schedule, spaces, x) for x in (product.left, product.right, target.block))
        gemm = gemm_of(a.layout, b.layout, c.layout)
        if gemm is None:
            raise ValueError("the rows or the columns of each block must be contiguous, and none may be empty")
        factors = (ctypes.c_float * 2)(float(alpha) * to_float(target.coefficient), float(kept_factor(target.kept, beta)))  # type: ignore[arg-type]  # beta is a number
        first, second = (b.address, a.address) if gemm.swaps else (a.address, b.address)
        (lda, ldb, ldc), kind, here = gemm.leading, self.element.library, ctypes.addressof(factors)
        stored = self.result.library

        def run(_: object = factors) -> None:
            left, right = (here, first, kind, lda), (second, kind, ldb)
            old = here + ctypes.sizeof(ctypes.c_float), c.address, stored, ldc
            arguments = *gemm.operations, *gemm.extents, *left, *right, *old, COMPUTE_32F, DEFAULT_ALGORITHM
            try:
                cublas.gemmEx(handle, *arguments)
            except NotImplementedError:
                call_captured("gemmEx", handle, *arguments)

        return run


def require_single_targets(schedule: Schedule) -> None:
    """Refuse (E776) a schedule that adds a product to several blocks: the library writes one."""
    products = [product for stage in schedule.stages if isinstance(stage, ProductStage) for product in stage.products]
    if any(len(product.targets) != 1 for product in products):
        what = f"{schedule.name} adds a product to several blocks, and the library, which multiplies this type, writes one"
        raise fail("E776", what, "take a scheme without a schedule, such as winograd")


def _narrow(x: Matrix) -> Matrix:
    """A matrix of 16 bits in the memory of one of float32: each line in the first half of its own. A matrix of 16 bits stays itself."""
    (shape, strides, dtype), size = x.layout, PLACED.itemsize
    if dtype.itemsize == size:
        return x
    return Matrix(x.address, Layout(shape, tuple(size if stride == dtype.itemsize else stride for stride in strides), PLACED), x.memory)


@contextmanager
def _in_whole_reductions(ready: AbstractContextManager[Sequence[Step]]) -> Iterator[Sequence[Step]]:
    """The steps, while cuBLAS adds up parts of sums in float32."""
    import cupy
    from cupy_backends.cuda.libs import cublas

    handle = handle_on(cupy.cuda.runtime.getDevice())
    mode = cublas.getMathMode(handle)
    cublas.setMathMode(handle, mode | WHOLE_REDUCTIONS)
    try:
        with ready as steps:
            yield steps
    finally:
        cublas.setMathMode(handle, mode)
