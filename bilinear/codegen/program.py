"""A program: the kernels of a schedule for one element type, their sources, and what was built from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bilinear.codegen.nvrtc import Built, build
from bilinear.codegen.render import render
from bilinear.codegen.schedule_to_kernels import schedule_to_kernels
from bilinear.ir.kernel import Kernel
from bilinear.ir.schedule import Schedule

ELEMENTS = {"float64": "double", "float32": "float"}
Progress = Callable[[str, int, int], None]
"""Called with (what, done, of) while long work goes on."""


def no_progress(what: str, done: int, of: int) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class Program:
    """One element type: kernels in launch order; `built[i]` are the images of kernel i, one an architecture."""

    schedule: Schedule
    dtype: str
    kernels: tuple[Kernel, ...]
    sources: tuple[str, ...]
    built: tuple[tuple[Built, ...], ...]


def build_program(schedule: Schedule, dtype: str, architectures: Sequence[str], progress: Progress = no_progress) -> Program:
    """Lower a schedule to kernels, render them, and build each for every architecture (`sm_NN`: cubin, `compute_NN`: PTX)."""
    kernels = schedule_to_kernels(schedule, ELEMENTS[dtype])
    sources = tuple(render(kernel) for kernel in kernels)
    built = []
    for i, (kernel, source) in enumerate(zip(kernels, sources, strict=True)):
        progress(f"{dtype} kernels", i, len(kernels))
        built.append(tuple(build(source, kernel.name, architecture) for architecture in architectures))
    progress(f"{dtype} kernels", len(kernels), len(kernels))
    return Program(schedule, dtype, kernels, sources, tuple(built))
