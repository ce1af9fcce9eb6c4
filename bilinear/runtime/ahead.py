"""Kernels before they are needed: which ones a plan launches, built for a target with or without its GPU, or behind the caller.

Or, ahead of the first call, those that the usual products of a card need.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Event, Lock, Thread
from time import perf_counter

import numpy as np

from bilinear.backends.caches import keep
from bilinear.backends.executor import place_strip
from bilinear.backends.machine import target_here
from bilinear.codegen.build import Progress, build_kernels, distinct_kernels, no_progress
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.codegen.lower import schedule_to_launches
from bilinear.errors import BilinearError
from bilinear.ir.element import COMPILED
from bilinear.ir.launch import AnyKernel
from bilinear.ir.matrix import Layout, dense
from bilinear.methods.registry import method_of
from bilinear.planner.device import Device
from bilinear.planner.plan import Plan
from bilinear.planner.problem import Problem
from bilinear.runtime.auto import plan
from bilinear.runtime.recipe import chosen_recipe, fitted_placement

MOST_BEGUN = 1024  # The most plans whose builds are remembered; what a forgotten one built is cached.
_begun: dict[tuple[Plan, CudaTarget], Event] = {}
_lock = Lock()


def is_built(plan: Plan, target: CudaTarget) -> bool:
    """Whether a plan's kernels are built. The first call begins to build them, on a thread that no process waits for."""
    with _lock:
        done = _begun.get((plan, target))
        if done is None:
            done = Event()
            keep(_begun, (plan, target), done, MOST_BEGUN)
            Thread(target=_build, args=(plan, target, done), daemon=True).start()
    return done.is_set()


def _build(plan: Plan, target: CudaTarget, done: Event) -> None:
    """What cannot be built is left to the call that needs it, which says why."""
    try:
        build_kernels([*kernels_of(plan, target)], target)
    except (BilinearError, RuntimeError) as error:  # the latter while the interpreter ends
        logging.getLogger("bilinear").info("%s was not built ahead: %s", plan.chosen.name, error)
    finally:
        done.set()


def kernels_of(plan: Plan, target: CudaTarget) -> Iterator[AnyKernel]:
    """The kernels that a plan launches for matrices without gaps, at multiples of 16 bytes; none for the library's multiply."""
    problem, choice = plan.problem, plan.chosen.choice
    if choice.is_bound:
        a, b, c = (_without_gaps(problem, name) for name in "ABC")
        yield from method_of(choice).kernels(choice, a, b, c, target.has_warpgroups)
        return
    recipe = chosen_recipe(plan)
    if recipe is None:
        return
    element, by_column = COMPILED[problem.dtype], frozenset(problem.column_major)
    placement = fitted_placement(recipe, (problem.m, problem.k, problem.n), np.dtype(problem.dtype), by_column)
    for part in placement.chain:
        for own in (part, *(place_strip(strip, np.dtype(element.name), part) for strip in part.strips)):
            yield from distinct_kernels(schedule_to_launches(own.schedule, element, own.tile, mode=own.mode))


def fill_cache(plans: Iterable[Plan], progress: Progress = no_progress) -> None:
    """Build the kernels of plans for the current GPU, several at once. What cannot be built is reported when it is to run."""
    target, needed = target_here(), dict[AnyKernel, None]()
    for found in plans:
        with suppress(BilinearError):
            needed |= dict.fromkeys(kernels_of(found, target))
    with suppress(BilinearError):
        build_kernels([*needed], target, progress)


def _without_gaps(p: Problem, name: str) -> Layout:
    return dense({"A": (p.m, p.k), "B": (p.k, p.n), "C": (p.m, p.n)}[name], np.dtype(p.dtype), name in p.column_major)


SQUARES = tuple(2**power for power in range(9, 16))
SHORT = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # The short extents of thin products.
LONG = (4096, 65536)  # Their long extents.


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
