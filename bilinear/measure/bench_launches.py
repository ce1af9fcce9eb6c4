"""The time of a placement by launch: every launch is timed between two events, in the order in which they run."""

from __future__ import annotations

from statistics import median

from bilinear.backends.executor import allocate_workspace, parts_of
from bilinear.backends.panels import pieces_of
from bilinear.ir.matrix import Array, real_type
from bilinear.ir.measurement import LaunchTime
from bilinear.ir.placement import Placement, Strip
from bilinear.ir.schedule import LinearStage, ProductStage, Stage
from bilinear.measure.timing import each_milliseconds
from bilinear.planner.plan import Plan
from bilinear.runtime import multiply
from bilinear.runtime.arrays import kind_of
from bilinear.runtime.complex_parts import Turns
from bilinear.runtime.layouts import layouts_of
from bilinear.runtime.recipe import chosen_recipe, placement_for

REPEATS = 3


def launch_times(plan: Plan, a: Array, b: Array, c: Array) -> tuple[LaunchTime, ...]:
    """Medians of a few runs after a warm-up; empty for the library, whose launches are its own."""
    recipe = chosen_recipe(plan)
    if recipe is None:
        return ()
    placement, executor = placement_for(recipe, layouts_of(a, b, c)), multiply.make_executor(kind_of(a, b, c))
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
