"""Decide what runs for a call. Decisions for arrays on a GPU are cached."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from bilinear.backends.caches import Same, keep
from bilinear.backends.capture import fitting, is_captured
from bilinear.errors import BilinearError, fail
from bilinear.frontend import Loaded
from bilinear.ir.element import IN_ARRAYS
from bilinear.ir.matrix import Dtype, real_type
from bilinear.ir.placement import Placement
from bilinear.lowering.prepare import check_promise
from bilinear.planner.choose import too_inaccurate
from bilinear.planner.library import Library
from bilinear.planner.plan import Choice, Plan
from bilinear.runtime import devices_here
from bilinear.runtime.auto import cpu_plan_for, gpu_of, plan_for
from bilinear.runtime.operands import Layouts, fit
from bilinear.runtime.options import Options, check_plan_fits, warn_unused
from bilinear.runtime.recipe import Recipe, chosen_recipe, placement_for
from bilinear.runtime.trials import Turn, trial_of

log = logging.getLogger("bilinear")

MOST_DECISIONS = 1024  # The most decisions that are kept; the oldest is dropped.
THE_LIBRARY = Library()  # The library's multiply, by the rules that choose its call.


@dataclass(frozen=True)
class Decision:
    """What runs, a recipe or the library's multiply, and the shape and dtype of the result.

    `placement` is the recipe's placement if the operands are used where they lie, and None if they are converted first. Without a recipe
    `choice` multiplies: the library, or a method's own kernels.
    """

    shape: tuple[int, ...]
    dtype: Dtype
    recipe: Recipe | None
    placement: Placement | None = None
    choice: Choice = THE_LIBRARY
    workspace: int = 0  # The bytes of workspace of a plan that was chosen.
    is_interim: bool = False  # True if the next call is decided anew: a trial, or kernels are being built.
    turn: Turn | None = None  # The turn of a plan that is tried.


_decisions: dict[tuple[object, ...], Decision] = {}


def decide(options: Options, layouts: Layouts) -> Decision:
    """What runs for operands of these layouts.

    Raises what `fit` raises, and `BilinearError` if the options ask for something that cannot run. Only decisions for a GPU are cached:
    NumPy's additions take far longer than a decision.
    """
    if not options.kind.on_gpu:
        return _decide(options, layouts)
    key = (options.question, devices_here.gpu_here() if options.is_automatic else None, layouts)
    found = _decisions.get(key)
    if found is None:
        found = _decide(options, layouts)
        if not found.is_interim:
            keep(_decisions, key, found, MOST_DECISIONS)
    if options.is_automatic and options.most_bytes is None:
        most = fitting(found.workspace, 0 if layouts.out is not None else prod(found.shape) * found.dtype.itemsize)
        if most is not None:
            log.info("%d bytes of workspace are not free: a plan for %d bytes runs", found.workspace, most)
            return decide(options._replace(workspace=most), layouts)
    return found


def _decide(options: Options, layouts: Layouts) -> Decision:
    shape, dtype = fit(layouts)
    plan = _choice(options, layouts, dtype)
    if plan is None or not options.is_automatic or options.device is None or options.alpha == 0:
        return _decided(options, layouts, plan, shape, dtype)
    trial = trial_of(plan, options.device, gpu_of(layouts))
    if trial is None:
        return _decided(options, layouts, plan, shape, dtype)
    turn = None if is_captured() else Turn(trial, trial.next)  # events would become part of the graph
    tried = plan if turn is None else trial.plans[turn.number]
    found = _decided(options, layouts, tried, shape, dtype)
    if turn is not None and found.recipe is None and found.choice != tried.chosen.choice and not found.is_interim:
        turn.fails()
    return replace(found, turn=None if found.is_interim else turn, is_interim=True)


def _decided(options: Options, layouts: Layouts, plan: Plan | None, shape: tuple[int, ...], dtype: Dtype) -> Decision:
    if plan is not None and options.is_automatic and _stands_in(plan, options, layouts.extents[1], dtype):
        log.info("%s is being built behind the caller: the library's multiply", plan.chosen.name)
        return Decision(shape, dtype, None, is_interim=True)
    recipe = _named(options) if plan is None else chosen_recipe(plan)
    if recipe is not None and options.conjugated:
        recipe = replace(recipe, conjugated=options.conjugated)
    reason, needed = _why_library(options, layouts, recipe, dtype), 0 if plan is None else plan.chosen.workspace or 0
    shapes = layouts.a.shape, layouts.b.shape
    if reason is None and dtype.kind == "c" and options.inputs != "preserve":
        what = f"inputs={options.inputs!r} lets a schedule write A and B, and complex operands are only read"
        raise fail("E785", what, "use inputs='preserve'")
    if recipe is None or reason is not None:
        choice = THE_LIBRARY if plan is None or plan.chosen.choice.lowered_parts else plan.chosen.choice
        if options.algorithm is not None and recipe is not None and options.alpha != 0:
            warn_unused(recipe.loaded.name, str(reason))
        log.debug("matmul %s by %s of %s: %s (%s)", *shapes, dtype, choice.title, reason)
        return Decision(shape, dtype, None, choice=choice, workspace=needed)
    try:
        return Decision(shape, dtype, recipe, placement_as_they_lie(recipe, layouts, shape, dtype), workspace=needed)
    except BilinearError as error:
        if not options.is_automatic:
            raise
        log.info("matmul %s by %s: %s cannot run (%s); the library's multiply", *shapes, recipe.loaded.name, error)
        return Decision(shape, dtype, None)


def _stands_in(plan: Plan, options: Options, inner: int, dtype: Dtype) -> bool:
    """Whether the library multiplies because kernels are built behind the caller. It does not where it is less accurate than asked for."""
    if not plan.chosen.choice.has_kernels or not options.kind.on_gpu or not devices_here.builds_behind():
        return False
    from bilinear.backends.machine import target_here
    from bilinear.runtime.ahead import is_built

    try:
        check_library_accuracy(options.accuracy, inner, dtype)
    except BilinearError:
        return False
    return not is_built(plan, target_here())


def _named(options: Options) -> Recipe | None:
    if not isinstance(options.algorithm, Loaded):
        return None
    device = None if options.device is None else Same(options.device)
    return Recipe(options.algorithm.by_level, options.levels, options.inputs, device=device, contention=options.contention)


def _choice(options: Options, layouts: Layouts, dtype: Dtype) -> Plan | None:
    """The caller's plan, or, if the choice is automatic, one that is found for the described processors or the current GPU."""
    if options.plan is not None:
        check_plan_fits(options.plan, layouts.extents, dtype)
        return options.plan
    found, most, accuracy = None, options.most_bytes, options.accuracy
    if options.is_automatic and options.cpu is not None:
        found = cpu_plan_for(layouts, options.cpu, most, options.buffer is not None, accuracy)
    elif options.is_automatic:
        found = plan_for(layouts, options.inputs, most, bool(options.beta != 0), accuracy)
    if found is not None:
        return found
    check_library_accuracy(options.accuracy, layouts.extents[1], dtype)
    return None


def check_library_accuracy(accuracy: float | str | None, inner: int, dtype: Dtype) -> None:
    """Refuse (E519) an accuracy that the library's multiply of this type does not keep, or for which its error is not known."""
    if accuracy is None or isinstance(accuracy, str):
        return
    if dtype.name not in IN_ARRAYS:
        raise fail("E519", f"no error bound is known for {dtype}", f"use {' or '.join(IN_ARRAYS)}, or leave accuracy= out")
    error = THE_LIBRARY.bound(inner, dtype.name)
    if error > accuracy:
        raise too_inaccurate(f"the error bound {error:.2g} is above {accuracy:.2g}")


def _why_library(options: Options, layouts: Layouts, recipe: Recipe | None, dtype: Dtype) -> str | None:
    if recipe is None:
        return "the plan chose it, algorithm is auto, or levels is 0"
    if options.alpha == 0:
        return "alpha is 0, so nothing is multiplied"
    if options.kind.on_gpu and real_type(dtype).name not in IN_ARRAYS:
        return f"no kernels for {dtype}"
    if dtype.kind not in "fiucO" or dtype == np.float16 or any(x.dtype.kind not in "biufcO" for x in layouts.given):
        return f"no schedule runs on {dtype}"
    own = layouts.own_multiply
    return None if own is None else f"no schedule runs on {own}, which has its own multiply"


def placement_as_they_lie(recipe: Recipe, layouts: Layouts, shape: tuple[int, ...], dtype: Dtype) -> Placement | None:
    """The recipe's placement if all are matrices of the product's type, and `out` suits it and overlaps nothing; else None."""
    if layouts.overlaps or not recipe.suits(layouts.out) or 0 in shape or not layouts.are_matrices_of(dtype):
        return None
    writing = recipe.writing
    check_promise(writing.loaded.scheme, writing.loaded.schedule, writing.inputs)
    return placement_for(recipe, layouts)
