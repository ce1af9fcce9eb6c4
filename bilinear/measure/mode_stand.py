"""Time pilots of execution modes on the current GPU: the pilot kernel, and each stage of plans that are launched in a mode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from statistics import median
from typing import NamedTuple

import numpy as np

from bilinear.backends.cuda_executor import CudaExecutor
from bilinear.backends.executor import allocate_workspace, execute
from bilinear.backends.target_here import target_here
from bilinear.codegen.build import own_target
from bilinear.codegen.cuda.nvrtc import build_all
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.codegen.render import render
from bilinear.errors import fail
from bilinear.ir.launch import Launch
from bilinear.ir.matrix import call_of
from bilinear.ir.placement import Placement
from bilinear.measure.mode_pilots import Pilot, PilotPlan, placed
from bilinear.measure.timing import Call, queued

ROUNDS, IN_A_ROW, PILOTS_IN_A_ROW = 5, 5, 10
WARPS = 32
"""The most warps of a block of threads."""
ADD = 'for (int i = 0; i < each; ++i) {{ y[i * all + item] = x[i * all + item] + x[i * all + item]; asm volatile("// {0}"); }} break;'
PATHS = "\n".join(f"    case {warp}: {ADD.format(warp)}" for warp in range(WARPS))
PILOT = f"""extern "C" __global__ void __launch_bounds__(1024) pilot(const float* x, float* y, int each, int apart)
{{
    const long long item = blockIdx.x * blockDim.x + threadIdx.x, all = gridDim.x * blockDim.x;
    switch (threadIdx.x / 32 * apart) {{
{PATHS}
    }}
}}"""
"""A warp takes the path of its number if warps are apart; the comment in the assembly keeps the compiler from merging paths."""


class Calls(NamedTuple):
    """A plan on the operands of a stand: the whole call, and each stage by itself."""

    whole: Call
    stages: Sequence[Call]


class ModeStand:
    """Square matrices of one type on the current GPU: integers until `fill_normal`, and what they multiply to."""

    def __init__(self, dtype: str, size: int) -> None:
        import cupy

        cupy.get_default_memory_pool().free_all_blocks()
        self._generator = cupy.random.default_rng(1)
        self.a, self.b = (self._generator.integers(-2, 3, (size, size)).astype(dtype) for _ in range(2))
        self.c, self._wanted = cupy.empty((size, size), dtype), cupy.matmul(self.a, self.b)
        self._executor = CudaExecutor()
        self._held: list[object] = []

    def calls(self, placement: Placement) -> Calls:
        """The calls of a placement on a, b and c. The stand keeps the arguments of the stages."""
        call = call_of(self.a, self.b, self.c, workspace=allocate_workspace(self._executor, placement, self.c.dtype))
        ready = self._executor.ready(placement, call)
        self._held.append(ready)
        return Calls(partial(execute, self._executor, placement, call), ready.__enter__())

    def is_exact(self, *calls: Call) -> bool:
        """Whether these calls, one after the other, multiply a and b, which are still integers, exactly; c is NaN before."""
        import cupy

        self.c[...] = cupy.nan
        cupy.cuda.Device().synchronize()
        for call in calls:
            call()
        cupy.cuda.Device().synchronize()
        return not (self.c != self._wanted).any()

    def fill_normal(self) -> None:
        """Replace the integers by normal data, on which plans are timed."""
        for x in (self.a, self.b):
            x[...] = self._generator.standard_normal(x.shape, dtype=x.dtype)


def graph_of(call: Call) -> Call:
    """The launches of a call as a graph, which replays them without time of the host."""
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        call()
        stream.synchronize()
        stream.begin_capture()
        call()
        launch: Callable[[], object] = stream.end_capture().launch
    return launch


def build_launches(launches: Iterable[Launch], target: CudaTarget) -> int:
    """Build the kernels of launches into the cache, as many at once as there are cores, and return their number."""
    kernels = {launch.kernel for launch in launches}
    build_all([(render(kernel), kernel.name, own_target(kernel, target)) for kernel in kernels])
    return len(kernels)


def time_pilots(runs: Sequence[Pilot], rounds: int = ROUNDS) -> dict[Pilot, float]:
    """Microseconds on the device of these runs of the pilot kernel."""
    import cupy

    kernel, elements = cupy.RawKernel(PILOT, "pilot"), max(run.groups * run.items * run.each for run in runs)
    x, y = (cupy.zeros(elements, "float32") for _ in range(2))
    calls = {run: partial(kernel, (run.groups,), (run.items,), (x, y, np.int32(run.each), np.int32(run.apart))) for run in runs}
    return {run: 1e3 * median(ms) for run, ms in queued(calls, rounds, PILOTS_IN_A_ROW).items()}


def time_plan(plan: PilotPlan, rounds: int = ROUNDS) -> tuple[float, ...]:
    """Microseconds on the device of each stage of a plan; of a small plan those of the whole as a graph.

    Raises `BilinearError` (E685) if what is timed does not multiply integers exactly.
    """
    launches, placement = placed(plan.mode, plan.dtype, plan.size)
    build_launches(launches, target_here())
    stand = ModeStand(plan.dtype, plan.size)
    whole, stages = stand.calls(placement)
    timed = (graph_of(whole),) if plan.is_small else tuple(stages)
    if not stand.is_exact(*timed):
        message = f"the pilot of {plan.dtype} in mode {plan.mode}, size {plan.size}, is not exact on integers"
        raise fail("E685", message, "report it with the device")
    stand.fill_normal()
    return tuple(1e3 * median(ms) for ms in queued(dict(enumerate(timed)), rounds, IN_A_ROW).values())
