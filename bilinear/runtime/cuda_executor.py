"""Plans on a GPU: the generated kernels, built once for the device and launched through CuPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from threading import Lock
from typing import Any

import numpy as np

from bilinear.codegen.nvrtc import build
from bilinear.codegen.program import distinct_kernels
from bilinear.codegen.render import render
from bilinear.codegen.schedule_to_launches import schedule_to_launches
from bilinear.errors import fail
from bilinear.ir.kernel import Grid, InputKernel, Kernel, Launch, MagnitudeKernel, ScanKernel
from bilinear.ir.plan import Plan
from bilinear.ir.schedule import Schedule, Stage

Step = Callable[[], None]
Values = dict[str, Any]

ELEMENTS = {"f4": "float", "f8": "double"}
SCAN_BLOCKS = 1024
MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
"""`CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES` of the CUDA driver: more than 48 KiB must be asked for."""
MOST_BLOCKS = (2**31 - 1, 65535)
"""Largest extents of a launch grid along x and y."""


class CudaExecutor:
    """Runs plans on 2-D CuPy arrays of any strides, in float32 or float64, on the current stream."""

    name = "cuda"

    def allocate(self, elements: int, like: Any) -> Any:
        """One uninitialised workspace buffer, from CuPy's pool."""
        import cupy

        return cupy.empty(elements, like.dtype)

    def steps(self, plan: Plan, stages: tuple[Stage, ...], spaces: dict[str, Any], alpha: Any, beta: Any) -> list[Step]:
        """Each stage as a call that launches its kernel."""
        if not stages:
            return []
        real = spaces["C"].dtype.type
        element = ELEMENTS[spaces["C"].dtype.str[1:]]
        values = launch_values(plan, spaces, real(alpha), real(beta), lambda array: int(array.data.ptr))
        schedule = plan.schedule
        if stages is not schedule.stages:
            schedule = replace(schedule, stages=stages, name=f"{schedule.name}-undo")
        return [_launcher(launch, function, values) for launch, function in _loaded(schedule, element)]

    def wait(self) -> None:
        """Wait for the current stream."""
        import cupy

        cupy.cuda.get_current_stream().synchronize()

    def is_finite(self, array: Any) -> bool:
        """Whether every element is finite: one pass, one number back."""
        import cupy

        found, function = _scanner(ELEMENTS[array.dtype.str[1:]], cupy.cuda.Device().id)
        found.fill(0)
        strides = (np.int64(stride // array.itemsize) for stride in array.strides)
        extents = (np.int64(extent) for extent in array.shape)
        function((SCAN_BLOCKS, 1, 1), (256, 1, 1), (np.uint64(array.data.ptr), *strides, *extents, np.uint64(found.data.ptr)))
        return int(found) == 0

    def magnitudes(self, array: Any, rows: int, columns: int) -> Any:
        """max|x| of each of rows x columns equal blocks: one pass over the matrix; not finite where an element is not."""
        import cupy

        function = _measurer(ELEMENTS[array.dtype.str[1:]], cupy.cuda.Device().id)
        sharing = max(1, SCAN_BLOCKS // (rows * columns))
        largest = cupy.empty((rows, columns, sharing), array.dtype)
        strides = (np.int64(stride // array.itemsize) for stride in array.strides)
        extents = (np.int64(array.shape[0] // rows), np.int64(array.shape[1] // columns), np.int64(columns))
        function((sharing, rows * columns, 1), (256, 1, 1), (np.uint64(array.data.ptr), *strides, *extents, np.uint64(largest.data.ptr)))
        return largest.get().max(2)


def launch_values(plan: Plan, spaces: dict[str, Any], alpha: Any, beta: Any, address: Callable[[Any], int]) -> Values:
    """What the arguments of every kernel of a plan are, by name; `address` gives the address of an array's first element."""
    bm, bk, bn = (np.int64(extent) for extent in plan.block)
    values: Values = {"bm": bm, "bk": bk, "bn": bn, "alpha": alpha, "beta": beta}
    for name, array in spaces.items():
        values[name] = np.uint64(address(array))
        values[f"{name}_rs"], values[f"{name}_cs"] = (np.int64(stride // array.itemsize) for stride in array.strides)
    return values


def grid_blocks(grid: Grid, values: Values) -> tuple[int, int]:
    """Blocks along x and y for these extents."""
    x = 1
    for tiling in grid.tilings:
        blocks = 1
        for cover in tiling:
            blocks *= -(-int(values[cover.name]) // cover.step)
        x = max(x, blocks)
    if x > MOST_BLOCKS[0] or grid.y > MOST_BLOCKS[1]:
        raise fail("E531", f"a launch of {x} x {grid.y} blocks is more than a GPU takes", "use fewer levels")
    return x, grid.y


def launch_arguments(launch: Launch, values: Values) -> tuple[Any, ...]:
    """The values of a launch's arguments, in the order of its kernel's parameters."""
    own = {**values, "first": np.int64(launch.first)}
    return tuple(own[argument.name] for argument in launch.kernel.arguments)


def _launcher(launch: Launch, function: Any, values: Values) -> Step:
    blocks = grid_blocks(launch.grid, values)
    arguments = launch_arguments(launch, values)
    threads, shared = launch.kernel.threads, launch.kernel.shared_bytes

    def run() -> None:
        function((*blocks, 1), (*threads, 1), arguments, shared)

    return run


_functions: dict[tuple[int, str, int], tuple[Schedule, list[tuple[Launch, Any]]]] = {}
_lock = Lock()


def _loaded(schedule: Schedule, element: str) -> list[tuple[Launch, Any]]:
    """The launches of a schedule with their functions on the current device, built and loaded once.

    The key is the schedule's identity: hashing a deep schedule at every call would cost more than the launches. The entry keeps the
    schedule alive, so an identity is never used twice.
    """
    import cupy

    device = cupy.cuda.Device()
    key = (id(schedule), element, device.id)
    with _lock:
        if key not in _functions:
            launches = schedule_to_launches(schedule, element)
            architecture = f"sm_{device.compute_capability}"
            functions = {kernel.name: _function(kernel, architecture) for kernel in distinct_kernels(launches)}
            _functions[key] = (schedule, [(launch, functions[launch.kernel.name]) for launch in launches])
        return _functions[key][1]


def _function(kernel: Kernel | InputKernel, architecture: str) -> Any:
    from cupy.cuda import driver
    from cupy.cuda.function import Module

    module = Module()
    module.load(build(render(kernel), kernel.name, architecture).image)
    function = module.get_function(kernel.name)
    if kernel.shared_bytes:
        driver.funcSetAttribute(function.ptr, MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel.shared_bytes)
    return function


@cache
def _scanner(element: str, device: int) -> tuple[Any, Any]:
    """The flag and the function that look for values that are not finite, one of each a device and element type."""
    import cupy

    kernel = ScanKernel(f"scan_{element}", element)
    capability = cupy.cuda.Device(device).compute_capability
    return cupy.zeros((), np.int32), _function(kernel, f"sm_{capability}")


@cache
def _measurer(element: str, device: int) -> Any:
    """The function that finds the largest magnitudes of blocks, one a device and element type."""
    import cupy

    capability = cupy.cuda.Device(device).compute_capability
    return _function(MagnitudeKernel(f"magnitudes_{element}", element), f"sm_{capability}")
