"""A program: the launches of a schedule for one element type, the sources of their kernels, and what was built from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bilinear.codegen.lower import schedule_to_launches
from bilinear.codegen.nvrtc import Built, build
from bilinear.codegen.render import render
from bilinear.ir.element import ELEMENTS
from bilinear.ir.kernel import Kernel, Launch
from bilinear.ir.schedule import Schedule
from bilinear.ir.tile import USUAL

Progress = Callable[[str, int, int], None]
"""Called with (what, done, of) while long work goes on."""


def no_progress(what: str, done: int, of: int) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class Program:
    """A schedule for one element type: its launches in order, its distinct kernels, their sources, and their images by architecture."""

    schedule: Schedule
    dtype: str
    launches: tuple[Launch, ...]
    kernels: tuple[Kernel, ...]
    sources: tuple[str, ...]
    built: tuple[tuple[Built, ...], ...]


def distinct_kernels(launches: Sequence[Launch]) -> tuple[Kernel, ...]:
    """The kernels of some launches, each once, in the order in which they first run."""
    return tuple({launch.kernel.name: launch.kernel for launch in launches}.values())


def build_program(
    schedule: Schedule, dtype: str, architectures: Sequence[str], progress: Progress = no_progress, tile: str = USUAL, named: str = ""
) -> Program:
    """Lower a schedule to launches, render their kernels, and build each for every architecture (`sm_NN`: cubin, `compute_NN`: PTX).

    The names of kernels begin with `named`, by default with a stem made of the schedule's name and levels.
    """
    launches = schedule_to_launches(schedule, ELEMENTS[dtype], tile, named)
    kernels = distinct_kernels(launches)
    sources = tuple(render(kernel) for kernel in kernels)
    built = []
    for i, (kernel, source) in enumerate(zip(kernels, sources, strict=True)):
        progress(f"{dtype} kernels", i, len(kernels))
        built.append(tuple(build(source, kernel.name, architecture) for architecture in architectures))
    progress(f"{dtype} kernels", len(kernels), len(kernels))
    return Program(schedule, dtype, launches, kernels, sources, tuple(built))
