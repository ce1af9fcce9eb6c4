"""Placements on matrices of float16 or bfloat16: sums of blocks by generated kernels, products by cuBLAS.

Kernels read 16 bits, sum in float32, and round once where they store. cuBLAS multiplies on the matrix units, sums in float32 and stores 16
bits. alpha, beta and all coefficients are float32.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from bilinear.backends.bound_launches import Bound, Place, launch_values
from bilinear.backends.cublas import handle_on
from bilinear.backends.cuda_executor import CudaExecutor, Step, launch_kernel
from bilinear.backends.executor import ready_on_views
from bilinear.backends.gemm import gemm_of
from bilinear.backends.loaded_kernels import loaded_launches
from bilinear.backends.numpy_sums import kept_factor
from bilinear.backends.same import Same
from bilinear.errors import fail
from bilinear.ir.element import Element
from bilinear.ir.matrix import Call, Factor, Matrix
from bilinear.ir.number import to_float
from bilinear.ir.placement import Placement
from bilinear.ir.schedule import Block, LinearStage, Product, ProductStage, Schedule, Stage

COMPUTE_32F, DEFAULT_ALGORITHM = 68, -1
"""`CUBLAS_COMPUTE_32F`, in which sums are float32, and `CUBLAS_GEMM_DEFAULT`."""
WHOLE_REDUCTIONS = 16
"""`CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION`: parts of sums are added up in float32, too, and not in 16 bits."""


@dataclass
class HalfExecutor(CudaExecutor):
    """Runs placements that only read A and B, on matrices of an element type of 16 bits, whatever dtype their arrays name."""

    element: Element

    def ready(self, placement: Placement, call: Call) -> AbstractContextManager[Sequence[Step]]:
        """Each strip and each stage of the core as a call."""
        return _in_whole_reductions(ready_on_views(self, placement, call))

    def steps(self, placement: Placement, stages: tuple[Stage, ...], spaces: dict[str, Matrix], alpha: Factor, beta: Factor) -> list[Step]:
        """Each stage as a call: the launch of a linear kernel, or cuBLAS for each product."""
        linear = iter(self._sums(placement, stages, spaces, beta))
        products = partial(self._product, placement.schedule, spaces, alpha, beta)
        return [next(linear) if isinstance(stage, LinearStage) else _all([products(x) for x in stage.products]) for stage in stages]

    def _sums(self, placement: Placement, stages: tuple[Stage, ...], spaces: dict[str, Matrix], beta: Factor) -> list[Step]:
        """The launches of the linear stages, in order; the bases of their arguments are the spaces."""
        own = _only_sums(Same(placement.schedule))
        if not own.stages or not stages:
            return []
        places = {name: Place(number, 0, x.layout.strides, x.layout.itemsize) for number, (name, x) in enumerate(spaces.items())}
        values = launch_values(placement, places, 1, "beta", lambda place: place)
        launches = loaded_launches(own, self.element, placement.tile, placement.mode)
        bound = Bound(self.element, ((launch, function, values) for launch, function in launches), launch_kernel())
        with bound.ready([x.address for x in spaces.values()], 1, beta, self.stream()) as steps:
            return [partial(_run, step, bound) for step in steps]

    def _product(self, schedule: Schedule, spaces: dict[str, Matrix], alpha: Factor, beta: Factor, product: Product) -> Step:
        """One product by cuBLAS, into its only target."""
        import cupy
        from cupy_backends.cuda.libs import cublas

        handle = handle_on(cupy.cuda.runtime.getDevice())
        (target,) = product.targets
        a, b, c = (_block(schedule, spaces, x) for x in (product.left, product.right, target.block))
        gemm = gemm_of(a.layout, b.layout, c.layout)
        if gemm is None:
            raise ValueError("the rows or the columns of each block must be contiguous, and none may be empty")
        factors = (ctypes.c_float * 2)(float(alpha) * to_float(target.coefficient), float(kept_factor(target.kept, beta)))  # type: ignore[arg-type]  # beta is a number
        first, second = (b.address, a.address) if gemm.swaps else (a.address, b.address)
        (lda, ldb, ldc), kind, here = gemm.leading, self.element.library, ctypes.addressof(factors)

        def run(_: object = factors) -> None:
            left, right = (here, first, kind, lda), (second, kind, ldb)
            old = here + ctypes.sizeof(ctypes.c_float), c.address, kind, ldc
            cublas.gemmEx(handle, *gemm.operations, *gemm.extents, *left, *right, *old, COMPUTE_32F, DEFAULT_ALGORITHM)

        return run


def require_single_targets(schedule: Schedule) -> None:
    """Refuse (E776) a schedule that adds a product to several blocks: the library writes one."""
    products = [product for stage in schedule.stages if isinstance(stage, ProductStage) for product in stage.products]
    if any(len(product.targets) != 1 for product in products):
        what = f"{schedule.name} adds a product to several blocks, and the library, which multiplies this type, writes one"
        raise fail("E776", what, "take a scheme without a schedule, such as winograd")


@lru_cache(maxsize=64)
def _only_sums(schedule: Same[Schedule]) -> Schedule:
    """The linear stages of a schedule; kept, so that its kernels are found again."""
    return replace(schedule.what, stages=tuple(stage for stage in schedule.what.stages if isinstance(stage, LinearStage)))


def _block(schedule: Schedule, spaces: dict[str, Matrix], block: Block) -> Matrix:
    whole, grid = spaces[block.space], schedule.space(block.space)
    height, width = whole.layout.shape[0] // grid.rows, whole.layout.shape[1] // grid.columns
    return whole.part((block.row * height, (block.row + 1) * height), (block.column * width, (block.column + 1) * width))


def _all(steps: Sequence[Step]) -> Step:
    def run() -> None:
        for step in steps:
            step()

    return run


def _run(step: Step, _: Bound) -> None:
    """Run a step of launches that are bound for it alone, which keeps the memory of their arguments."""
    step()


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
