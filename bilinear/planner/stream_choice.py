"""Choose the blocks of a streamed multiply: the least predicted time within the memory of a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bilinear.errors import BilinearError, fail
from bilinear.planner.choose import make_plan
from bilinear.planner.device import Device
from bilinear.planner.model import library_seconds
from bilinear.planner.plan import Methods
from bilinear.planner.problem import Problem
from bilinear.planner.streamed import Extents, StreamPlan, even_blocks

BUS = 25e9
"""Bytes a second from and to the host, each way: an estimate, for descriptions of devices have no rate of their bus."""
MOST_COUNT = 128
"""The most blocks along a side that are weighed."""
REFINED = 6
"""How many of the best by the library's rate are predicted by the planner itself, which takes longer."""


def stream_plan(
    methods: Methods, problem: Problem, gpus: int, memory: int, device: Device | None = None, *, named: bool = False, bus: float = BUS
) -> StreamPlan:
    """The plan of a product of host matrices on GPUs, each with `memory` bytes.

    The time is the longest of copies in, copies out and products on one GPU, with the first load and the last store. Products take what
    the planner predicts for a block, in place if that is faster though blocks are loaded again; without a description of the device they
    count as nothing, and a named algorithm by the library's rate, with workspace as large as its blocks. Raises `BilinearError` (E774) if
    no blocks fit.
    """
    whole = problem.m, problem.k, problem.n
    fitting = list(_candidates(whole, problem, gpus, memory, named, bus))
    if not fitting:
        hint = "give more memory=, or run on a GPU with more of it free" + ("; without accuracy= k may be cut" if problem.accuracy else "")
        raise fail("E774", f"no blocks of {' x '.join(map(str, whole))} fit {memory} bytes of a GPU", hint)
    if device is None:
        return replace(min(fitting, key=lambda plan: _seconds(plan, 0.0)), compute=None, seconds=None)
    by_library = sorted((_timed(plan, _library(plan, problem, device)) for plan in fitting), key=_by_time)
    if named:
        return by_library[0]
    refined = []
    for plan in by_library[:REFINED]:
        for inputs in ("preserve", "consume"):
            tried = replace(plan, inputs=inputs)
            if tried.workspace >= 0:
                refined.append(_timed(tried, _planned(methods, tried, problem, device)))
    return min(refined, key=_by_time)


def _candidates(whole: Extents, problem: Problem, gpus: int, memory: int, named: bool, bus: float) -> Iterator[StreamPlan]:
    """For every number of blocks along m and k, the fewest along n that fit, and the next three: more blocks hide more of a copy.

    With an accuracy k is not cut: the promise of one product does not hold for a sum of several.
    """
    m, k, n = whole
    seen: set[Extents] = set()
    for inner in _counts(k) if problem.accuracy is None else (1,):
        for rows in _counts(m):
            fitting = 0
            for columns in _counts(n):
                block = even_blocks(m, rows), even_blocks(k, inner), even_blocks(n, columns)
                plan = StreamPlan(whole, block, problem.itemsize, gpus, memory, reads=problem.accumulate, bus=bus)
                reserve = sum(map(plan.most_elements, "ABC")) * problem.itemsize if named else 0
                if plan.workspace < reserve or plan.counts[0] * plan.counts[2] < gpus:
                    continue
                fitting += 1
                if block not in seen:
                    seen.add(block)
                    yield plan
                if fitting == 4:
                    break
        if seen and inner >= 2:  # to cut k further loads and accumulates more
            return


def _counts(extent: int) -> Iterator[int]:
    count = 1
    while count <= min(extent, MOST_COUNT):
        yield count
        count = count + 1 if count < 4 else count * 3 // 2


def _library(plan: StreamPlan, problem: Problem, device: Device) -> float:
    return library_seconds(plan.block, _real(problem.dtype), device) * (4 if problem.dtype.startswith("complex") else 1)


def _planned(methods: Methods, plan: StreamPlan, problem: Problem, device: Device) -> float:
    """Seconds of a block by the planner; by the library's rate where it plans nothing."""
    m, k, n = plan.block
    accumulates = plan.reads or plan.counts[1] > 1
    one = replace(problem, m=m, k=k, n=n, inputs=plan.inputs, workspace=plan.workspace, accumulate=accumulates)
    try:
        ms = None if problem.dtype.startswith("complex") else make_plan(methods, one, device).chosen.ms
    except BilinearError:
        if problem.accuracy is not None:
            raise
        ms = None
    return _library(plan, problem, device) if ms is None else ms * 1e-3


def _real(dtype: str) -> str:
    return {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)


def _timed(plan: StreamPlan, block_seconds: float) -> StreamPlan:
    m, k, n = plan.extents
    bm, bk, bn = plan.block
    compute = block_seconds * (m / bm) * (k / bk) * (n / bn) / plan.gpus
    return replace(plan, compute=compute, seconds=_seconds(plan, compute))


def _seconds(plan: StreamPlan, compute: float) -> float:
    each = [plan.traffic(gpu) for gpu in range(plan.gpus)]
    loads, stores = max(t.loaded for t in each), max(t.stored for t in each)
    ends = sum(map(plan.most_elements, "ABCC" if plan.reads else "ABC"))
    return max(loads * plan.itemsize / plan.bus, stores * plan.itemsize / plan.bus, compute) + ends * plan.itemsize / plan.bus


def _by_time(plan: StreamPlan) -> tuple[float, Extents]:
    return plan.seconds or 0.0, plan.block
