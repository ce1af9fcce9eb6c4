"""Time products of digits and of rounded numbers on the current GPU, launch by launch, under the power that long work has."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import prod
from typing import NamedTuple

import numpy as np

from bilinear.backends.target_here import has_digit_units, multiplies_by_warps, target_here
from bilinear.codegen.build import build_kernel
from bilinear.ir.digit_kernel import DigitProductKernel, ExpandKernel, LargestKernel, LoadingKernel, RecomposeKernel
from bilinear.ir.matrix import Array, Layout
from bilinear.ir.residue_kernel import ResidueExpandKernel, ResidueProductKernel, ResidueRecomposeKernel, ScaleKernel
from bilinear.ir.tile import LOADING_TILES
from bilinear.measure.timing import BRIEF_MS, settled, settled_steps
from bilinear.methods.digits.binding import kernels_of, multiply_of
from bilinear.methods.digits.choice import Digits
from bilinear.methods.digits.schemes import element_of
from bilinear.methods.rounded.launches import rounded_multiply_of
from bilinear.planner.policy import Extents

SEARCH, EXPANSION, PRODUCT, RECOMPOSITION, BESIDE = range(5)
PASSES: tuple[tuple[type, ...], ...] = (
    (LargestKernel, ScaleKernel),
    (ExpandKernel, ResidueExpandKernel),
    (DigitProductKernel, LoadingKernel, ResidueProductKernel),
    (RecomposeKernel, ResidueRecomposeKernel),
)
"""The kernels of each pass, in the order of `DigitTimes`; others clear words, or end at once."""
MOST_MEMORY = 0.85
"""The part of the free memory that a product may take."""


class DigitCase(NamedTuple):
    """A product of digits of this name below these levels, of matrices of these extents (m, k, n) by rows."""

    products: str
    extents: Extents
    levels: tuple[str, ...] = ()
    by_warps: bool = False
    """Whether warps multiply, as on chips without warpgroups."""


class DigitTimes(NamedTuple):
    """Seconds of the passes that find scales, of those that cut, of the products, and of putting together; and of all launches."""

    search: float
    expansion: float
    product: float
    recomposition: float
    whole: float


def able_digits(names: Iterable[str], by_warps: bool) -> tuple[str, ...]:
    """Those products of digits, by warps or by warpgroups, that the current GPU has the instructions for."""
    if not has_digit_units() or (multiplies_by_warps() and not by_warps):
        return ()
    return tuple(name for name in names if not (name in LOADING_TILES and by_warps))


def build_digits(cases: Iterable[DigitCase]) -> None:
    """Build the kernels of these products into the cache, one thread a core."""
    target = target_here()
    wanted = {kernel for case in cases for kernel in kernels_of(*layouts(case), digits_of(case), case.by_warps)}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda kernel: build_kernel(kernel, target), wanted))


def time_digits(case: DigitCase) -> DigitTimes | None:
    """The times of a product, by the launches that `matmul` runs; None if the GPU has no memory for it."""
    import cupy

    multiply = multiply_of(*layouts(case), digits_of(case), case.by_warps)
    operands = _operands(case.extents, np.dtype(str(element_of(case.products))), multiply.workspace)
    if operands is None:
        return None
    a, b, c, workspace = (int(x.data.ptr) for x in operands)
    multiprocessors = cupy.cuda.Device().attributes["MultiProcessorCount"]
    kernels = [launch.kernel for launch, _ in multiply.launches(True, multiprocessors)]
    passes = [next((i for i, types in enumerate(PASSES) if isinstance(kernel, types)), BESIDE) for kernel in kernels]
    stream = cupy.cuda.get_current_stream().ptr
    with multiply.bound(True).ready((a, b, c, workspace, c), *multiply.factors(1, 0), stream) as steps:
        ms = settled_steps(steps)
    search, expansion, product, recomposition = (
        1e-3 * sum(one for one, own in zip(ms, passes, strict=True) if own == kind) for kind in range(BESIDE)
    )
    steps_alone = DigitTimes(search, expansion, product, recomposition, 1e-3 * sum(ms))
    if sum(ms) >= BRIEF_MS:
        return steps_alone
    whole = 1e-3 * settled(partial(multiply, a, b, c, 1, 0, workspace))  # without the events between launches
    return DigitTimes(*(seconds * whole / steps_alone.whole for seconds in steps_alone))


def time_rounded(name: str, size: int) -> float | None:
    """Seconds of the library's product of float32 numbers that are rounded so; None without memory, or if it multiplies none."""
    layout = _layout((size, size), np.dtype("float32"))
    multiply = rounded_multiply_of(layout, layout, layout, name)
    operands = None if multiply is None else _operands((size, size, size), np.dtype("float32"), multiply.workspace)
    if multiply is None or operands is None:
        return None
    a, b, c, workspace = (int(x.data.ptr) for x in operands)
    return 1e-3 * settled(partial(multiply, a, b, c, 1, 0, workspace))


def digits_of(case: DigitCase) -> Digits:
    """How it runs."""
    return Digits(case.levels, case.products)


def layouts(case: DigitCase) -> tuple[Layout, Layout, Layout]:
    """A, B and C by rows."""
    (m, k, n), dtype = case.extents, np.dtype(str(element_of(case.products)))
    return _layout((m, k), dtype), _layout((k, n), dtype), _layout((m, n), dtype)


def _layout(shape: tuple[int, int], dtype: np.dtype[np.generic]) -> Layout:
    return Layout(shape, (shape[1] * dtype.itemsize, dtype.itemsize), dtype)


def _operands(extents: Extents, dtype: np.dtype[np.generic], workspace: int) -> tuple[Array, ...] | None:
    """A and B of normal numbers, C, and a workspace of so many elements; None if the GPU lacks the memory."""
    import cupy

    m, k, n = extents
    shapes = (m, k), (k, n), (m, n), (max(1, workspace),)
    cupy.get_default_memory_pool().free_all_blocks()
    if sum(map(prod, shapes)) * dtype.itemsize > MOST_MEMORY * cupy.cuda.Device().mem_info[0]:
        return None
    generator = cupy.random.default_rng(1)
    a, b = (generator.standard_normal(shape, dtype=dtype) for shape in shapes[:2])
    return a, b, *(cupy.empty(shape, dtype) for shape in shapes[2:])
