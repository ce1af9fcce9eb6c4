"""Placements on matrices of float16 or bfloat16: sums of blocks by generated kernels, products by cuBLAS.

Kernels read 16 bits, sum in float32, and round once where they store. cuBLAS multiplies on the matrix units, sums in float32 and stores 16
bits. If C is float32, so are the products, and nothing behind the sums of blocks of A and B is rounded to 16 bits. alpha, beta and all
coefficients are float32.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np

from bilinear.backends.bound_launches import Bound, Place, launch_values
from bilinear.backends.caches import Same
from bilinear.backends.cublas import handle_on
from bilinear.backends.cuda_executor import CudaExecutor, Step, launch_kernel
from bilinear.backends.executor import ready_on_views
from bilinear.backends.gemm import gemm_of
from bilinear.backends.loaded_kernels import loaded_launches
from bilinear.backends.numpy_sums import kept_factor
from bilinear.errors import fail
from bilinear.ir.element import FLOAT16, Element
from bilinear.ir.matrix import Call, Factor, Layout, Matrix
from bilinear.ir.number import to_float
from bilinear.ir.placement import Placement
from bilinear.ir.schedule import Block, LinearStage, Product, ProductStage, Schedule, Stage

PLACED = np.dtype(FLOAT16.name)
"""The type of 16 bits that placements are made for, whichever of the two the matrices hold."""
COMPUTE_32F, DEFAULT_ALGORITHM = 68, -1
"""`CUBLAS_COMPUTE_32F`, in which sums are float32, and `CUBLAS_GEMM_DEFAULT`."""
WHOLE_REDUCTIONS = 16
"""`CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION`: parts of sums are added up in float32, too, and not in 16 bits."""


@dataclass
class HalfExecutor(CudaExecutor):
    """Runs placements that only read A and B, on matrices of an element type of 16 bits, whatever dtype their arrays name.

    `result` is the type of C and of the products: the same, or float32. Then the workspace is one of float32, and sums of blocks of A and B
    lie in the first half of each of their rows.
    """

    element: Element
    result: Element

    def ready(self, placement: Placement, call: Call) -> AbstractContextManager[Sequence[Step]]:
        """Each strip and each stage of the core as a call."""
        return _in_whole_reductions(ready_on_views(self, placement, call))

    def steps(self, placement: Placement, stages: tuple[Stage, ...], spaces: dict[str, Matrix], alpha: Factor, beta: Factor) -> list[Step]:
        """Each stage as a call: the launches of linear kernels, or cuBLAS for each product."""
        schedule, is_wide = placement.schedule, self.result is not self.element
        if is_wide:
            spaces = {name: x if schedule.space(name).shape == "C" else _narrow(x) for name, x in spaces.items()}
        kinds = ((self.element, False), (self.result, True)) if is_wide else ((self.element, None),)
        sums = [self._sums(placement, spaces, beta, *kind) for kind in kinds] if stages else []
        products = partial(self._product, schedule, spaces, alpha, beta)
        return [
            _all([own[number] for own in sums if number in own] if isinstance(stage, LinearStage) else map(products, stage.products))
            for number, stage in enumerate(stages)
        ]

    def _sums(
        self, placement: Placement, spaces: dict[str, Matrix], beta: Factor, element: Element, of_result: bool | None
    ) -> dict[int, Step]:
        """The launch of each linear stage by its number, of maps that `_only_sums` keeps; the bases of their arguments are the spaces."""
        own, numbers = _only_sums(Same(placement.schedule), of_result)
        if not own.stages:
            return {}
        places = {name: Place(number, 0, x.layout.strides, x.layout.itemsize) for number, (name, x) in enumerate(spaces.items())}
        values = launch_values(placement, places, 1, "beta", lambda place: place)
        launches = loaded_launches(own, element, placement.tile, placement.mode)
        bound = Bound(element, ((launch, function, values) for launch, function in launches), launch_kernel())
        with bound.ready([x.address for x in spaces.values()], 1, beta, self.stream()) as steps:
            return {number: partial(_run, step, bound) for number, step in zip(numbers, steps, strict=True)}

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
        stored = self.result.library

        def run(_: object = factors) -> None:
            left, right = (here, first, kind, lda), (second, kind, ldb)
            old = here + ctypes.sizeof(ctypes.c_float), c.address, stored, ldc
            cublas.gemmEx(handle, *gemm.operations, *gemm.extents, *left, *right, *old, COMPUTE_32F, DEFAULT_ALGORITHM)

        return run


def require_single_targets(schedule: Schedule) -> None:
    """Refuse (E776) a schedule that adds a product to several blocks: the library writes one."""
    products = [product for stage in schedule.stages if isinstance(stage, ProductStage) for product in stage.products]
    if any(len(product.targets) != 1 for product in products):
        what = f"{schedule.name} adds a product to several blocks, and the library, which multiplies this type, writes one"
        raise fail("E776", what, "take a scheme without a schedule, such as winograd")


@lru_cache(maxsize=64)
def _only_sums(schedule: Same[Schedule], of_result: bool | None) -> tuple[Schedule, tuple[int, ...]]:
    """The linear stages of a schedule, with their numbers; kept, so that its kernels are found again.

    All of their maps, or those whose blocks have the shape of C's, or the others.
    """
    whole, found = schedule.what, dict[int, LinearStage]()
    for number, stage in enumerate(whole.stages):
        if isinstance(stage, LinearStage):
            maps = tuple(m for m in stage.maps if of_result is None or (whole.space(m.targets[0].space).shape == "C") == of_result)
            found |= {number: replace(stage, maps=maps)} if maps else {}
    return replace(whole, stages=tuple(found.values())), tuple(found)


def _narrow(x: Matrix) -> Matrix:
    """A matrix of 16 bits in the memory of one of float32: each line in the first half of its own. A matrix of 16 bits stays itself."""
    (shape, strides, dtype), size = x.layout, PLACED.itemsize
    if dtype.itemsize == size:
        return x
    return Matrix(x.address, Layout(shape, tuple(size if stride == dtype.itemsize else stride for stride in strides), PLACED), x.memory)


def _block(schedule: Schedule, spaces: dict[str, Matrix], block: Block) -> Matrix:
    whole, grid = spaces[block.space], schedule.space(block.space)
    height, width = whole.layout.shape[0] // grid.rows, whole.layout.shape[1] // grid.columns
    return whole.part((block.row * height, (block.row + 1) * height), (block.column * width, (block.column + 1) * width))


def _all(steps: Iterable[Step]) -> Step:
    steps = tuple(steps)

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
