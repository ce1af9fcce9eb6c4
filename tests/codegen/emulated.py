"""The engine on emulated kernels: the emitted CUDA C runs on the CPU instead of a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import groupby
from typing import Any

import numpy as np

from bilinear.backends.bound_launches import grid_blocks, launch_arguments, launch_values
from bilinear.backends.executor import ready_on_views
from bilinear.codegen.build import distinct_kernels
from bilinear.codegen.lower import schedule_to_launches
from bilinear.codegen.render import render
from bilinear.emulator import CompiledModule, Order, compile_on_cpu
from bilinear.ir.element import ELEMENTS, Element, IntegerElement
from bilinear.ir.kernel import Argument
from bilinear.ir.launch import Kernel, Launch
from bilinear.ir.matrix import Call, Matrix, matrix_of
from bilinear.ir.placement import STAGE, Placement
from bilinear.ir.schedule import Schedule, Stage

Step = Callable[[], None]


def c_types(kernel: Kernel) -> list[str]:
    return [c_type(argument, kernel.element) for argument in kernel.arguments]


def c_type(argument: Argument, element: Element | IntegerElement) -> str:
    types = {"pointer": f"{element.cuda} *", "index": "long long", "scalar": element.arithmetic.cuda, "flag": "int *"}
    return (types | {"words": "unsigned *", "digits": "unsigned short *", "bytes": "unsigned char *", "map": "TensorMap"})[argument.kind]


@cache
def emulated_launches(schedule: Schedule, element: Element, tile: str, mode: str) -> tuple[tuple[Launch, CompiledModule], ...]:
    launches = schedule_to_launches(schedule, element, tile, mode=mode)
    modules = {k.name: compile_on_cpu(render(k), {k.name: c_types(k)}) for k in distinct_kernels(launches)}
    return tuple((launch, modules[launch.kernel.name]) for launch in launches)


def _all(steps: Sequence[Step]) -> None:
    """The launches of a stage, the last one first: they may run at once."""
    for step in reversed(steps):
        step()


def address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


@dataclass
class EmulatedExecutor:
    """Runs plans on NumPy arrays by the emitted kernels, with threads and blocks in the given order."""

    order: Order = "ascending"
    seed: int = 0
    name: str = "emulated"
    element: Element | None = None  # What the arrays hold; by default what their dtype says.

    def allocate(self, elements: int, dtype: Any) -> Matrix:
        size = np.dtype(dtype).itemsize
        return matrix_of(np.full(elements * size, 0xFF, np.uint8).view(dtype))  # NaN, in every type

    def steps(self, plan: Placement, stages: tuple[Stage, ...], spaces: dict[str, Matrix], alpha: Any, beta: Any) -> list[Step]:
        arrays = {name: space.memory for name, space in spaces.items()}
        dtype = arrays["C"].dtype
        values = launch_values(plan, arrays, alpha, beta, address)
        schedule = plan.schedule if stages is plan.schedule.stages else replace(plan.schedule, stages=stages)
        launches = emulated_launches(schedule, self.element or ELEMENTS[dtype.name], plan.tile, plan.mode)
        steps = [(launch.stage, self._launcher(launch, module, values)) for launch, module in launches]
        if plan.mode == STAGE:
            return [step for _, step in steps]
        return [partial(_all, [step for _, step in own]) for _, own in groupby(steps, key=lambda pair: pair[0])]

    def _launcher(self, launch: Launch, module: CompiledModule, values: dict[str, Any]) -> Step:
        arguments = launch_arguments(launch, values)
        grid, block = (*grid_blocks(launch.grid, values), 1), (*launch.kernel.threads, 1)
        shared = launch.kernel.shared_bytes

        def run() -> None:
            module.launch(launch.kernel.name, grid, block, arguments, order=self.order, seed=self.seed, shared_bytes=shared)

        return run

    def ready(self, plan: Placement, call: Call) -> AbstractContextManager[Sequence[Step]]:
        return ready_on_views(self, plan, call)

    def wait(self) -> None:
        pass

    def is_captured(self) -> bool:
        return False

    def is_finite(self, *matrices: Matrix) -> bool:
        return all(bool(np.isfinite(matrix.memory).all()) for matrix in matrices)

    def digest(self, matrix: Matrix) -> int:
        return hash(matrix.memory.tobytes())

    def magnitudes(self, matrix: Matrix, rows: int, columns: int) -> Any:
        array = matrix.memory
        return abs(array).reshape(rows, array.shape[0] // rows, columns, -1).max((1, 3))
