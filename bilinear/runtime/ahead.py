"""Kernels before they are needed: which ones a plan launches, built for a target with or without its GPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from bilinear.backends.executor import place_strip
from bilinear.codegen.build import distinct_kernels
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.codegen.lower import schedule_to_launches
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
    """The kernels that a plan launches for matrices that lie by rows, at multiples of 16 bytes; none for the library's multiply."""
    problem, choice = plan.problem, plan.chosen.choice
    if isinstance(choice, Bindable):
        a, b, c = _by_rows(problem)
        return method_of(choice).kernels(choice, a, b, c, target.has_warpgroups)
    recipe = chosen_recipe(plan)
    if recipe is None:
        return ()
    placement = fitted_placement(recipe, (problem.m, problem.k, problem.n), np.dtype(problem.dtype))
    return (kernel for part in placement.chain for kernel in _scheduled(part, problem.dtype))


def _by_rows(problem: Problem) -> Iterator[Layout]:
    """The layouts of A, B and C."""
    m, k, n, dtype = problem.m, problem.k, problem.n, np.dtype(problem.dtype)
    for rows, columns in ((m, k), (k, n), (m, n)):
        yield Layout((rows, columns), (columns * dtype.itemsize, dtype.itemsize), dtype)


def _scheduled(placement: Placement, dtype: str) -> Iterable[AnyKernel]:
    """The kernels of a placement and of its strips."""
    element = COMPILED[dtype]
    strips = (place_strip(strip, np.dtype(element.name), placement) for strip in placement.strips)
    for part in (placement, *strips):
        yield from distinct_kernels(schedule_to_launches(part.schedule, element, part.tile, mode=part.mode))
