"""Float16 and bfloat16: sums of blocks by generated kernels, around products by cuBLAS; their plans, and the bounds of their errors.

Kernels read 16 bits, sum in float32, and round once where they store. cuBLAS multiplies on the matrix units, sums in float32 and stores 16
bits. If C is float32, so are the products, and nothing behind the sums of blocks of A and B is rounded to 16 bits. alpha, beta and all
coefficients are float32.

No times are known, so a plan is the library's multiply unless levels are named. Probable errors by norm are in units of the library's.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod, sqrt
from typing import TYPE_CHECKING

import numpy as np

from bilinear.backends.cublas import DEFAULT_ALGORITHM, gemm_ex, handle_on, multiplies_batch
from bilinear.backends.cuda_executor import Step
from bilinear.backends.factor import kept_factor
from bilinear.backends.gemm import gemm_of
from bilinear.backends.summed_blocks import SummingExecutor, block_of
from bilinear.errors import fail
from bilinear.ir.element import ELEMENTS, FLOAT16, FLOAT32, HALVES, Element
from bilinear.ir.matrix import Call, Factor, Layout, Matrix
from bilinear.ir.number import to_float
from bilinear.ir.placement import Placement
from bilinear.ir.schedule import Product, ProductStage, Schedule, Stage
from bilinear.lowering.place import place_schedule
from bilinear.planner.choose import too_inaccurate, why_inaccurate
from bilinear.planner.library import Library
from bilinear.planner.library_points import CUBLAS
from bilinear.planner.plan import Candidate, Plan
from bilinear.planner.problem import Problem
from bilinear.planner.scheduled import Scheduled
from bilinear.planner.ways import (
    Way,
    algorithm_named,
    forget_changed_files,
    full_names,
    hashes,
    kept_by_names,
    lowered,
    require_sound,
    strategies,
)
from bilinear.resources import implementation_sha256

if TYPE_CHECKING:
    from bilinear.ir.scheme import Scheme

WAYS = ("winograd",), ("winograd", "winograd")  # The levels that are told beside the library's multiply.
SUMMED = 2.0**-22 * (1 + 2.0**-20)
"""The unit roundoff of a term in sums of the matrix units for 16 bits, which cut off what they add.

A step of t <= 16 terms multiplies the sum of sizes by at most 1 + w, w = t 2^-23 + 2^-23 + t 2^-46 (docs/digits.md, sums in the unit).
That is at most (1 + SUMMED)^t.
"""
PLACED = np.dtype(FLOAT16.name)  # What placements are made for, whichever 16-bit type there is.
COMPUTE_32F = 68  # `CUBLAS_COMPUTE_32F`, in which sums are float32.
WHOLE_REDUCTIONS = 16  # `CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION`: parts add up in float32, too.


@dataclass
class HalfExecutor(SummingExecutor):
    """Runs placements that only read A and B, on matrices of an element type of 16 bits, whatever dtype their arrays name.

    `result` is the type of C and of the products: the same, or float32. Then the workspace is one of float32, and sums of blocks of A and B
    lie in the first half of each of their rows.
    """

    result: Element

    @contextmanager
    def ready(self, placement: Placement, call: Call) -> Iterator[Sequence[Step]]:
        """Each strip and each stage of the core as a call, while cuBLAS adds up parts of sums in float32."""
        with _whole_reductions(), super().ready(placement, call) as steps:
            yield steps

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
            gemm_ex(handle, *gemm.operations, *gemm.extents, *left, *right, *old, COMPUTE_32F)

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
def _whole_reductions() -> Iterator[int]:
    import cupy
    from cupy_backends.cuda.libs import cublas

    handle = handle_on(cupy.cuda.runtime.getDevice())
    mode = cublas.getMathMode(handle)
    cublas.setMathMode(handle, mode | WHOLE_REDUCTIONS)
    try:
        yield handle
    finally:
        cublas.setMathMode(handle, mode)


def multiplies_triangle(element: Element, x: Matrix, c: Matrix, size: int, alpha: float, beta: float) -> bool:
    """The lower triangles of alpha * x @ x^T + beta * c, by all blocks of `size` rows and columns in one call of cuBLAS.

    x and c are batches of the same extents. They have whole blocks, and those on the diagonal are computed as a whole. c is of the element
    type, or of float32. False, with nothing written, if cuBLAS has no such call.
    """
    import cupy

    (*batch, n, k), whole = x.layout.shape, ((0, size), (0, size))
    first = x.at((0,) * len(batch)).part((0, size), (0, k))
    gemm = gemm_of(first.layout, first.layout.T, c.at((0,) * len(batch)).part(*whole).layout)
    if gemm is None:
        return False
    rows, columns = (size * index for index in np.tril_indices(n // size))
    each = np.indices(tuple(batch)).reshape(len(batch), prod(batch))
    (*of_x, down), (*of_c, below, beside) = x.layout.strides[:-1], c.layout.strides
    starts = [x.address + np.array(of_x, int) @ each, c.address + np.array(of_c, int) @ each]
    left, right, out = (
        np.add.outer(start, moves).ravel()
        for start, moves in ((starts[0], rows * down), (starts[0], columns * down), (starts[1], rows * below + columns * beside))
    )
    addresses = cupy.asarray(np.array((right, left, out) if gemm.swaps else (left, right, out), np.uint64))
    a, b, to = (addresses.data.ptr + line * 8 * out.size for line in range(3))
    factors, (lda, ldb, ldc), kind = (ctypes.c_float * 2)(alpha, beta), gemm.leading, element.library
    here, stored = ctypes.addressof(factors), kind if c.layout.dtype.itemsize == PLACED.itemsize else FLOAT32.library
    old = here + ctypes.sizeof(ctypes.c_float), to, stored, ldc, out.size
    with _whole_reductions() as handle:
        arguments = *gemm.operations, *gemm.extents, here, a, kind, lda, b, kind, ldb, *old, COMPUTE_32F, DEFAULT_ALGORITHM
        return multiplies_batch(handle, *arguments)


def half_plan(problem: Problem, device: str, levels: tuple[str, ...] | None = None) -> Plan:
    """The plan of a product of 16-bit matrices on a GPU; `levels` are run if they are named.

    Raises `BilinearError`: E519 if the chosen way is less accurate than is asked for, E528 for coefficients that the type cannot hold, E543
    for levels that do not fit the limits, and what `algorithm_named`, the proofs and the lowering raise.
    """
    from bilinear.analysis.accuracy import classical_bound
    from bilinear.lowering.prepare import Level, prepare_levels

    forget_changed_files()
    u = HALVES[problem.dtype].roundoffs[0]
    library = _judged(Candidate(Library(), None, 0, u * classical_bound(problem.k, u, SUMMED), 1.0), problem)
    if levels is not None:
        if not levels:
            raise fail("E543", "no level is named", 'give algorithms, such as ("winograd",)')
        levels = full_names(levels)
        prepare_levels(tuple(Level(x.scheme, x.schedule) for x in map(algorithm_named, levels)), "preserve")
        require_sound(levels, problem.dtype)
        named = _judged(_candidate(levels, problem), problem)
        if named.why:
            raise fail("E543", f"{named.name}: {named.why}", "allow more, or choose other levels")
        first = replace(named, why="asked for: no time is known")
        return Plan(problem, device, (first, library), hashes(first.levels), implementation_sha256())
    if library.why:
        raise too_inaccurate(library.why)
    found = [_judged(_candidate(way, problem), problem) for way in WAYS]
    others = [replace(one, why=one.why or "not timed on a GPU: name it to run it") for one in found]
    return Plan(problem, device, (replace(library, why="no times are known"), *others), (), implementation_sha256())


def _candidate(levels: tuple[str, ...], problem: Problem) -> Candidate:
    """A way with its workspace and its bound; `why` says why it cannot run."""
    p, way = problem, Way(levels)
    schedule = lowered(way)[0]
    placement = place_schedule(schedule, p.m, p.k, p.n, ELEMENTS[p.dtype].bytes, frozenset(p.column_major))
    found = Candidate(Scheduled(levels, tile=CUBLAS), None, placement.workspace_elements * ELEMENTS[p.dtype].bytes)
    if not placement.core[0]:
        return replace(found, why="blocks are too small")
    return replace(found, error=way_error(way, p.k, p.dtype), probable=way_probable(way, p.k, p.dtype))


def _judged(found: Candidate, problem: Problem) -> Candidate:
    asked, limit = problem.accuracy, problem.workspace
    if found.why:
        return found
    if limit is not None and (found.workspace or 0) > limit:
        return replace(found, why=f"it needs {found.workspace} bytes of workspace, {limit} are allowed")
    return replace(found, why=why_inaccurate(found, asked))


@kept_by_names(256)
def way_error(way: Way, inner: int, dtype: str) -> float:
    """The bound of max|C - A*B| / (max|A| max|B|) of a way, for sums that are stored in 16 bits without overflow or underflow."""
    from bilinear.analysis.accuracy import run_error_bound

    u = HALVES[dtype].roundoffs[0]
    return u * run_error_bound(lowered(way)[0], inner, u, SUMMED).product


@kept_by_names(256)
def way_probable(way: Way, inner: int, dtype: str) -> float:
    """The probable error by norm of a way, for independent centred data, in units of the library's: float32 sums, rounded once to `dtype`.

    With expanded levels a sum of blocks, a product and a block of C are each rounded once, where they are stored, however many levels
    there are; what is a block itself is not rounded. Errors of different products are taken as independent, but cutting off in the matrix
    unit shrinks all products alike, and C by as much (`probable_digits`).
    """
    from bilinear.analysis.digit_bounds import ROUNDED, Unit, block_variance, cut_off

    schemes = [algorithm_named(name).scheme for name in way.levels]
    u = HALVES[dtype].roundoffs[0]
    rounded = (ROUNDED * u) ** 2
    shrunk, varied = cut_off(inner, Unit())
    library = shrunk**2 + varied + rounded
    shrunk, varied = cut_off(max(1, inner // prod(scheme.k for scheme in schemes)), Unit())
    leaf = varied + rounded
    if set(strategies(way)) == {"expand"}:
        every, left, right = (
            prod(_growth(scheme, *single) for scheme in schemes) for single in ((False, False), (True, False), (False, True))
        )
        amplified = every * leaf + rounded * (every - left + every - right + 1)
    else:
        amplified = leaf
        for scheme in reversed(schemes):
            amplified = block_variance(scheme, 1, amplified, u)
    return sqrt((shrunk**2 + amplified) / library)


def _growth(scheme: Scheme, single_left: bool, single_right: bool) -> float:
    """By how much one level amplifies variances by norm: the mean over C's blocks of sum w^2 |u|^2 |v|^2 / k.

    Only of products whose left, or right, factor is a single block, where that is asked for.
    """
    u, v, w = scheme.tables
    left, right = (
        [0.0 if single and len(row) > 1 else sum(to_float(c) ** 2 for _, c in row) for row in table]
        for table, single in ((u, single_left), (v, single_right))
    )
    return sum(to_float(c) ** 2 * left[p] * right[p] for row in w for p, c in row) / (len(w) * scheme.k)
