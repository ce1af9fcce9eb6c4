"""Build, ahead of the first call, the kernels that the usual products of a card need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from bilinear.codegen.build import Progress, build_kernels, no_progress
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.ir.launch import AnyKernel
from bilinear.planner.device import Device
from bilinear.planner.problem import Problem
from bilinear.runtime.ahead import kernels_of
from bilinear.runtime.auto import plan

SQUARES = tuple(2**power for power in range(9, 16))
SHORT = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""The short extents of thin products."""
LONG = (4096, 65536)
"""Their long extents."""


@dataclass(frozen=True)
class Warmed:
    """What was there or was built: images for a target, of which some were in the cache before."""

    device: str
    target: str
    plans: int
    kernels: int
    built: int
    seconds: float


def warm(device: Device, target: CudaTarget, dtypes: Sequence[str], progress: Progress = no_progress) -> Warmed:
    """Build the kernels of the plans for the usual problems. Raises `BilinearError` (E601 to E603)."""
    began = perf_counter()
    problems = [problem for dtype in dtypes for problem in usual_problems(dtype)]
    kernels: dict[AnyKernel, None] = {}
    for done, p in enumerate(problems):
        progress("planning", done, len(problems))
        found = plan(p.m, p.k, p.n, p.dtype, device=device, workspace=p.workspace, accuracy=p.accuracy, accumulate=p.accumulate)
        kernels |= dict.fromkeys(kernels_of(found, target))
    built = build_kernels([*kernels], target, progress)
    new = sum(not image.cached for image in built)
    return Warmed(device.name, target.name, len(problems), len(kernels), new, perf_counter() - began)


def usual_problems(dtype: str) -> Iterator[Problem]:
    """Squares with each class of accuracy, without workspace, and added to C; and thin products."""
    for n in SQUARES:
        square = Problem(n, n, n, dtype)
        yield from (square, replace(square, accuracy="classical"), replace(square, workspace=0), replace(square, accumulate=True))
    for short in SHORT:
        for long in LONG:
            yield from (Problem(long, 4096, short, dtype), Problem(short, 4096, long, dtype), Problem(long, short, short, dtype))
