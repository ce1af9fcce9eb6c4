"""The errors of a few algorithms by their number of levels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from bilinear.codegen.build import Progress, no_progress
from bilinear.ir.element import COMPLEX
from bilinear.ir.matrix import Array
from bilinear.ir.measurement import Benchmark, ErrorPoint, LeftOut, Shape
from bilinear.measure.bench_check import check
from bilinear.measure.bench_tasks import Case, Task, bound_of, choose, pinned
from bilinear.planner.device import Device
from bilinear.runtime.matmul import matmul

ERROR_SIZE = 2048
ERROR_WAYS = ("winograd", "msmes")
MOST_ERROR_LEVELS = 3


def with_errors(result: Benchmark, device: Device, progress: Progress = no_progress) -> Benchmark:
    """The benchmark with errors by level for the element types measured; errors that cannot be measured are left out."""
    try:
        return replace(result, errors=tuple(errors_by_level(dict.fromkeys(row.dtype for row in result.rows), device, progress)))
    except Exception as error:  # as in `measure`
        return replace(result, left_out=(*result.left_out, LeftOut("errors by level", f"{type(error).__name__}: {error}")))


def errors_by_level(dtypes: Iterable[str], device: Device, progress: Progress = no_progress) -> Iterator[ErrorPoint]:
    """The error of a few algorithms at 0 to 3 levels, each checked as in `measure`."""
    size = ERROR_SIZE
    for dtype in dtypes:
        progress(f"errors by level, {dtype}", 0, 1)
        a, b, c = operands((size, size, size), dtype)
        for name in ERROR_WAYS[:1] if dtype in COMPLEX else ERROR_WAYS:  # complex operands are only read
            for levels in range(MOST_ERROR_LEVELS + 1):
                case = pinned(f"{name}:{levels}") if levels else Case()
                plan = choose(Task((size,) * 3, dtype), case, device) if levels else None
                call = partial(matmul, a, b, c, plan=plan) if plan else partial(matmul, a, b, c, levels=0)
                bound = bound_of(plan, size, dtype)
                trust = check(call, a, b, c, case.inputs, bound, True)
                yield ErrorPoint(name, levels, dtype, size, trust.error, bound)


def operands(shape: Shape, dtype: str) -> tuple[Array, Array, Array]:
    """Arrays for A, B and C that hold no values yet."""
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()
    m, k, n = shape
    return cupy.empty((m, k), dtype), cupy.empty((k, n), dtype), cupy.empty((m, n), dtype)
