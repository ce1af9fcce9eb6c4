"""The one road to a kernel: lower a schedule to launches, render their kernels, and build the texts for targets.

`compile` and a call at run time both use it. The code that runs images only loads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bilinear.codegen.cuda.nvrtc import Built, build
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.codegen.lower import schedule_to_launches
from bilinear.codegen.render import render
from bilinear.ir.element import Element
from bilinear.ir.kernel import DirectKernel, InputKernel, Kernel, Launch
from bilinear.ir.schedule import Schedule
from bilinear.ir.tile import USUAL

Progress = Callable[[str, int, int], None]
"""Called with (what, done, of) while long work goes on."""


def no_progress(what: str, done: int, of: int) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class Program:
    """A schedule for one element type: its launches in order, its distinct kernels, their sources, and their images by target."""

    schedule: Schedule
    dtype: str
    launches: tuple[Launch, ...]
    kernels: tuple[Kernel, ...]
    sources: tuple[str, ...]
    built: tuple[tuple[Built, ...], ...]


def distinct_kernels(launches: Sequence[Launch]) -> tuple[Kernel, ...]:
    """The kernels of these launches, each once, in the order in which they first run."""
    return tuple({launch.kernel.name: launch.kernel for launch in launches}.values())


def build_program(
    schedule: Schedule,
    element: Element,
    targets: Sequence[CudaTarget],
    tile: str = USUAL,
    named: str = "",
    progress: Progress = no_progress,
) -> Program:
    """The launches of a schedule for an element type, with its products in this tile, and an image of each kernel for each target.

    The names of kernels begin with `named`, by default with a stem made of the schedule's name and levels. Raises `BilinearError` (E601
    to E603).
    """
    launches = schedule_to_launches(schedule, element, tile, named)
    kernels = distinct_kernels(launches)
    sources = tuple(render(kernel) for kernel in kernels)
    built = []
    for i, (kernel, source) in enumerate(zip(kernels, sources, strict=True)):
        progress(f"{element} kernels", i, len(kernels))
        built.append(tuple(build(source, kernel.name, target) for target in targets))
    progress(f"{element} kernels", len(kernels), len(kernels))
    return Program(schedule, element.name, launches, kernels, sources, tuple(built))


def build_kernel(kernel: Kernel | InputKernel | DirectKernel, target: CudaTarget) -> Built:
    """The image of one kernel."""
    return build(render(kernel), kernel.name, target)
