"""Kernels before they are needed: which ones a plan launches, built for a target with or without its GPU."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import numpy as np

from bilinear.backends.executor import place_strip
from bilinear.backends.machine import target_here
from bilinear.codegen.build import Progress, build_kernels, distinct_kernels, no_progress
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.codegen.lower import schedule_to_launches
from bilinear.errors import BilinearError
from bilinear.ir.element import COMPILED
from bilinear.ir.launch import AnyKernel
from bilinear.ir.matrix import Layout
from bilinear.ir.placement import Placement
from bilinear.methods.method import Bindable
from bilinear.methods.registry import method_of
from bilinear.planner.plan import Plan
from bilinear.planner.problem import Problem
from bilinear.runtime.recipe import chosen_recipe, fitted_placement


def kernels_of(plan: Plan, target: CudaTarget) -> Iterable[AnyKernel]:
    """The kernels that a plan launches for matrices without gaps, at multiples of 16 bytes; none for the library's multiply."""
    problem, choice = plan.problem, plan.chosen.choice
    if isinstance(choice, Bindable):
        a, b, c = (_without_gaps(problem, name) for name in "ABC")
        return method_of(choice).kernels(choice, a, b, c, target.has_warpgroups)
    recipe = chosen_recipe(plan)
    if recipe is None:
        return ()
    by_column = frozenset(problem.column_major)
    placement = fitted_placement(recipe, (problem.m, problem.k, problem.n), np.dtype(problem.dtype), by_column)
    return (kernel for part in placement.chain for kernel in _scheduled(part, problem.dtype))


def fill_cache(plans: Iterable[Plan], progress: Progress = no_progress) -> None:
    """Build the kernels of plans for the current GPU, several at once. What cannot be built is reported when it is to run."""
    target, needed = target_here(), dict[AnyKernel, None]()
    for plan in plans:
        with suppress(BilinearError):
            needed |= dict.fromkeys(kernels_of(plan, target))
    with suppress(BilinearError):
        build_kernels([*needed], target, progress)


def _without_gaps(p: Problem, name: str) -> Layout:
    """The layout of a new matrix A, B or C of a problem."""
    (m, n), size = {"A": (p.m, p.k), "B": (p.k, p.n), "C": (p.m, p.n)}[name], np.dtype(p.dtype).itemsize
    return Layout((m, n), (size, m * size) if name in p.column_major else (n * size, size), np.dtype(p.dtype))


def _scheduled(placement: Placement, dtype: str) -> Iterable[AnyKernel]:
    """The kernels of a placement and of its strips."""
    element = COMPILED[dtype]
    strips = (place_strip(strip, np.dtype(element.name), placement) for strip in placement.strips)
    for part in (placement, *strips):
        yield from distinct_kernels(schedule_to_launches(part.schedule, element, part.tile, mode=part.mode))
