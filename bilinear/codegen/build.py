"""Build kernels: lower a schedule to launches, render their kernels, and compile the texts for targets.

`compile` and a call at run time both use it. The code that runs images only loads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from bilinear.codegen.cuda.nvrtc import Built, build_all
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.codegen.lower import schedule_to_launches
from bilinear.codegen.render import render
from bilinear.errors import fail
from bilinear.ir.digit_kernel import DigitProductKernel, LoadingKernel
from bilinear.ir.element import COMPILED, COMPLEX, FLOAT32, Element
from bilinear.ir.kernel import GramHalvesKernel, ThinKernel
from bilinear.ir.launch import AnyKernel, Kernel, Launch
from bilinear.ir.placement import STAGE
from bilinear.ir.residue_kernel import ResidueProductKernel
from bilinear.ir.schedule import Schedule
from bilinear.ir.tile import MMA_FLOAT64, USUAL, tile_on

FLOATS = {"own": USUAL, "doubles": tile_on("float32", MMA_FLOAT64.unit)}
"""The units that products of floats run on, and the usual tile there."""

Progress = Callable[[str, int, int], None]  # Called with (what, done, of) while long work goes on.


def no_progress(what: str, done: int, of: int) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class ProgramKernel:
    """A kernel of a program: its source, and its image for each target."""

    kernel: Kernel
    source: str
    images: tuple[Built, ...]


@dataclass(frozen=True)
class LaunchProgram:
    """A schedule for one element type (of a complex one, its parts'): its launches in order, and their distinct kernels."""

    schedule: Schedule
    dtype: str
    launches: tuple[Launch, ...]
    kernels: tuple[ProgramKernel, ...]

    @property
    def numbers(self) -> str:
        """The type of the matrices, which may be complex."""
        if not self.schedule.is_complex:
            return self.dtype
        return next(name for name, part in COMPLEX.items() if part.name == self.dtype)


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
    mode: str = STAGE,
) -> LaunchProgram:
    """The launches of a schedule for an element type, with its products in this tile, and an image of each kernel for each target.

    The names of kernels begin with `named`, by default with a stem made of the schedule's name and levels. Raises `BilinearError` (E601
    to E603; E557 if the schedule cannot be launched in this mode).
    """
    launches = schedule_to_launches(schedule, element, tile, named, mode)
    distinct = distinct_kernels(launches)
    sources = [render(kernel) for kernel in distinct]
    requests = [(source, kernel.name, target) for kernel, source in zip(distinct, sources, strict=True) for target in targets]
    images = iter(build_all(requests, done=lambda done: progress(f"{element} kernels", done, len(requests))))
    progress(f"{element} kernels", len(requests), len(requests))
    kernels = (ProgramKernel(kernel, source, tuple(islice(images, len(targets)))) for kernel, source in zip(distinct, sources, strict=True))
    return LaunchProgram(schedule, element.name, launches, tuple(kernels))


def build_programs(
    schedule: Schedule,
    dtypes: Sequence[str],
    targets: Sequence[CudaTarget],
    floats: str = "own",
    named: str = "",
    progress: Progress = no_progress,
    mode: str = STAGE,
) -> tuple[LaunchProgram, ...]:
    """A schedule as a program for each element type, whose products of floats run on these units."""
    elements = [COMPILED[dtype] for dtype in dtypes]
    tiles = {element: FLOATS[floats] if element == FLOAT32 else USUAL for element in elements}
    return tuple(build_program(schedule, element, targets, tile, named, progress, mode) for element, tile in tiles.items())


def dtypes_of(names: Sequence[str]) -> tuple[str, ...]:
    """The element types of these names, each once. Raises `BilinearError` (E503) for none, unknown ones, or real and complex ones."""
    dtypes = names if isinstance(names, str) else tuple(dict.fromkeys(names))
    if isinstance(dtypes, str) or not dtypes or any(dtype not in COMPILED for dtype in dtypes):
        raise fail("E503", f"no kernels for dtypes={dtypes!r}", f"give a list of some of {', '.join(COMPILED)}")
    if not COMPLEX.keys().isdisjoint(dtypes) and not COMPLEX.keys() >= set(dtypes):
        message = f"{' and '.join(dtypes)} have different schedules, and a folder holds one"
        raise fail("E503", message, "compile real and complex types one after the other, each to a folder of its own")
    return dtypes


def require_floats(floats: str) -> None:
    """Refuse (E503) unknown units for products of floats."""
    if floats not in tuple(FLOATS):
        raise fail("E503", f"no kernels for floats={floats!r}", f"choose one of {', '.join(FLOATS)}")


def build_kernels(kernels: Sequence[AnyKernel], target: CudaTarget, progress: Progress = no_progress) -> tuple[Built, ...]:
    """The images of kernels that have no table in common, built side by side. Raises `BilinearError` (E601 to E603)."""
    requests = [(render(kernel), kernel.name, own_target(kernel, target)) for kernel in kernels]
    return build_all(requests, done=lambda done: progress("building kernels", done, len(requests)))


def own_target(kernel: AnyKernel, target: CudaTarget) -> CudaTarget:
    """For what a kernel is built: one that needs the features of one chip, for that chip alone."""
    of_one_chip = DigitProductKernel | LoadingKernel | ResidueProductKernel | ThinKernel | GramHalvesKernel
    return CudaTarget(f"{target.name}{kernel.features}") if isinstance(kernel, of_one_chip) else target
