"""What a benchmark can measure beside times of whole calls: launches, calls with a prepared operand, and errors by level."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from statistics import median

from bilinear.backends.executor import allocate_workspace, parts_of, pieces_of
from bilinear.backends.timing import Call, each_milliseconds
from bilinear.codegen.build import Progress, no_progress
from bilinear.ir.element import COMPLEX
from bilinear.ir.matrix import Array, real_type
from bilinear.ir.measurement import Benchmark, ErrorPoint, LaunchTime, LeftOut, Shape
from bilinear.ir.placement import Placement, Strip
from bilinear.ir.schedule import LinearStage, ProductStage, Stage
from bilinear.measure.bench_check import check
from bilinear.measure.bench_tasks import BenchCase, BenchTask, bound_of, choose, pinned
from bilinear.planner.device import Device
from bilinear.planner.plan import Plan
from bilinear.runtime.arrays import kind_of, make_executor
from bilinear.runtime.complex_parts import Turns
from bilinear.runtime.matmul import matmul
from bilinear.runtime.operands import layouts_of
from bilinear.runtime.prepared import prepare
from bilinear.runtime.recipe import chosen_recipe, placement_for

REPEATS = 3


def launch_times(plan: Plan, a: Array, b: Array, c: Array) -> tuple[LaunchTime, ...]:
    """Medians of a few runs after a warm-up; empty for the library, whose launches are its own."""
    recipe = chosen_recipe(plan)
    if recipe is None:
        return ()
    placement, executor = placement_for(recipe, layouts_of(a, b, c)), make_executor(kind_of(a, b, c))
    buffer = allocate_workspace(executor, placement, real_type(c.dtype))
    whole = Turns.of(1.0, 0.0).call_of(a, b, c, 0.0, buffer)
    found: list[LaunchTime] = []
    for own, call in pieces_of(placement, whole):
        with executor.ready(own, call) as steps:
            runs = [each_milliseconds(steps) for _ in range(1 + REPEATS)]
        times = [median(values) for values in zip(*runs[1:], strict=True)]
        found += [_told(own, part, ms, real_type(a.dtype).itemsize) for part, ms in zip(parts_of(own), times, strict=True)]
    return tuple(found)


def _told(placement: Placement, part: Strip | Stage, ms: float, itemsize: int) -> LaunchTime:
    bm, bk, bn = placement.block
    if isinstance(part, Strip):
        m, k, n = (stop - start for start, stop in (part.rows, part.inner, part.columns))
        return LaunchTime("strip", f"{m} x {k} x {n}", ms, flops=2 * m * k * n)
    if isinstance(part, ProductStage):
        count = len(part.products)
        return LaunchTime("products", f"{count} of {bm} x {bk} x {bn}", ms, flops=2 * count * bm * bk * bn)
    return LaunchTime("sums", _sums(part), ms, bytes=_moved(placement, part) * itemsize)


def _sums(stage: LinearStage) -> str:
    """`A 4 to 3, B 4 to 3`: for each space the number of blocks read and of blocks written."""
    found: dict[str, list[int]] = {}
    for one in stage.maps:
        sources, targets = found.setdefault(one.sources[0].space, [0, 0])
        found[one.sources[0].space] = [sources + len(one.sources), targets + len(one.targets)]
    return ", ".join(f"{space} {sources} to {targets}" for space, (sources, targets) in found.items())


def _moved(placement: Placement, stage: LinearStage) -> int:
    """Elements that a linear stage reads and writes: every source once, every target once."""
    bm, bk, bn = placement.block
    size = {"A": bm * bk, "B": bk * bn, "C": bm * bn}
    shape = {space.name: space.shape for space in placement.schedule.spaces}
    return sum(size[shape[block.space]] for one in stage.maps for block in (*one.sources, *one.targets))


SIDES = LEFT, RIGHT = "left", "right"


class KeptCall:
    """C = A * B by a plan that keeps its results from one operand alone between calls.

    Calls do not check whether the operand has changed. Raises `BilinearError` (E539) if there is nothing to keep.
    """

    def __init__(self, plan: Plan, side: str, a: Array, b: Array, c: Array) -> None:
        self._plan, self._side, self._arrays = plan, side, (a, b, c)
        self._call = self._prepared()

    def __call__(self) -> None:
        """Multiply."""
        self._call()

    def renew(self) -> None:
        """Prepare the operand again, because it has changed."""
        self._call = self._prepared()

    def anew(self) -> None:
        """Prepare the operand, and multiply."""
        self.renew()
        self()

    def _prepared(self) -> Call:
        (a, b, c), plan = self._arrays, self._plan
        if self._side == LEFT:
            return partial(matmul, prepare(a, columns=plan.problem.n, plan=plan, check=False), b, c)
        return partial(matmul, a, prepare(b, rows=plan.problem.m, plan=plan, check=False), c)


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
                case = pinned(f"{name}:{levels}") if levels else BenchCase()
                plan = choose(BenchTask((size,) * 3, dtype), case, device) if levels else None
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
