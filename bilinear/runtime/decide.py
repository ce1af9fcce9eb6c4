"""Decide: what runs for operands of some layout; for arrays on a GPU it is decided once and found again in microseconds."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bilinear.backends.newest import keep
from bilinear.errors import BilinearError
from bilinear.ir.element import ELEMENTS
from bilinear.ir.placement import Plan
from bilinear.lowering.prepare import check_promise
from bilinear.planner.choice import LIBRARY, Choice
from bilinear.runtime.arrays import multiplies_itself
from bilinear.runtime.auto import check_plan_fits, choice_for, gpu_here
from bilinear.runtime.problem import ArrayProblem, fit
from bilinear.runtime.recipe import Recipe, Same, chosen_recipe, fitted_plan
from bilinear.runtime.safety import is_by_column

log = logging.getLogger("bilinear")

MOST_DECISIONS = 1024
"""Decisions that are kept; the oldest goes first."""


class Asked(NamedTuple):
    """What a caller asks for beside the operands. Algorithm, plan and device are compared by identity.

    No `algorithm` and no `plan` is the library's multiply, or where there is a `device` what was timed or else what the model chooses; of a
    named algorithm that chooses the tile alone.
    """

    algorithm: Same | None
    levels: int | str
    inputs: str
    budget: int | None
    plan: Same | None
    device: Same | None
    multiplies: bool
    """Whether alpha is not 0."""
    accumulates: bool
    """Whether beta is not 0."""
    on_gpu: bool

    @property
    def is_automatic(self) -> bool:
        """Whether what runs is left to timed plans and to the model."""
        return self.algorithm is None and self.plan is None and self.device is not None


@dataclass(frozen=True)
class Decision:
    """What runs: a recipe, or the library's multiply for some reason.

    `plan` is what the recipe comes to where the operands run as they lie; None where they are converted first. Of what was chosen here
    (`is_automatic`) and then cannot run, nobody is told: the library's multiply runs. `library` is one of `LIBRARIES`.
    """

    problem: ArrayProblem
    recipe: Recipe | None
    plan: Plan | None = None
    is_automatic: bool = False
    library: str = LIBRARY


_decisions: dict[tuple[Any, ...], Decision] = {}


def decide(asked: Asked, a: Any, b: Any, out: Any, touches: bool) -> Decision:
    """What runs for these operands; `touches` says that `out` shares memory with one of them.

    Raises what `fit` raises, and `BilinearError` where what was asked for cannot run. The values of the operands play no part, nor their
    addresses, so that on a GPU the answer is kept by layout; NumPy's arrays also differ in kind and in flags, and are decided anew.
    """
    if not asked.on_gpu:
        return _decide(asked, a, b, out, touches)
    given = None if out is None else (out.shape, out.strides, out.dtype)
    key = (asked, gpu_here() if asked.is_automatic else None, a.shape, a.strides, a.dtype, b.shape, b.strides, b.dtype, given, touches)
    found = _decisions.get(key)
    if found is None:
        found = _decide(asked, a, b, out, touches)
        keep(_decisions, key, found, MOST_DECISIONS)
    return found


def _decide(asked: Asked, a: Any, b: Any, out: Any, touches: bool) -> Decision:
    problem = fit(a, b, out)
    choice = _choice(asked, a, b, out, problem)
    recipe = _named(asked) if choice is None else chosen_recipe(choice)
    reason = _why_library(asked, recipe, problem.dtype, a, b, out)
    if recipe is None or reason is not None:
        log.debug("matmul %s by %s of %s: the library's multiply (%s)", a.shape, b.shape, problem.dtype, reason)
        library = choice.chosen.strategy if choice is not None and choice.is_library else LIBRARY
        return Decision(problem, None, library=library)
    is_automatic = asked.is_automatic
    try:
        plan = None if touches or not recipe.suits(out) or _is_converted(problem, a, b, out) else _plan(recipe, a, b, out)
    except BilinearError as error:
        if not is_automatic:
            raise
        log.info("matmul %s by %s: %s cannot run (%s); the library's multiply", a.shape, b.shape, recipe.loaded.scheme.name, error)
        return Decision(problem, None)
    return Decision(problem, recipe, plan, is_automatic)


def _named(asked: Asked) -> Recipe | None:
    """The recipe of an algorithm that is asked for by name."""
    return None if asked.algorithm is None else Recipe((asked.algorithm.what,), asked.levels, asked.inputs, device=asked.device)


def _choice(asked: Asked, a: Any, b: Any, out: Any, problem: ArrayProblem) -> Choice | None:
    """The plan that is given, or what the model chooses where that is left to it."""
    if asked.plan is not None:
        choice: Choice = asked.plan.what
        check_plan_fits(choice, a, b, problem.dtype)
        return choice
    if asked.is_automatic:
        return choice_for(a, b, out, problem.dtype, asked.inputs, asked.budget, asked.accumulates)
    return None


def _why_library(asked: Asked, recipe: Recipe | None, dtype: Any, *operands: Any) -> str | None:
    """Why the library's multiply runs instead of a schedule, or None."""
    if recipe is None:
        return "that was chosen, algorithm is auto, or levels is 0"
    if not asked.multiplies:
        return "alpha is 0, so nothing is multiplied"
    if asked.on_gpu and dtype.name not in ELEMENTS:
        return f"no kernels for {dtype}"
    if dtype.kind not in "fiuO" or dtype == np.float16 or any(x.dtype.kind not in "biufcO" for x in operands if x is not None):
        return f"no schedule runs on {dtype}"
    own = next((type(operand).__name__ for operand in operands if multiplies_itself(operand)), None)
    return None if own is None else f"no schedule runs on {own}, which multiplies in its own way"


def _is_converted(problem: ArrayProblem, a: Any, b: Any, out: Any) -> bool:
    """Whether the operands are not matrices of the product's type, so that a plan can only be made when they are."""
    given = [x for x in (a, b, out) if x is not None]
    return 0 in problem.shape or any(x.ndim < 2 or x.dtype != problem.dtype for x in given)


def _plan(recipe: Recipe, a: Any, b: Any, out: Any) -> Plan:
    writing = recipe.writing
    check_promise(writing.loaded.scheme, writing.loaded.schedule, writing.inputs)
    return plan_for(recipe, a, b, out)


def plan_for(recipe: Recipe, a: Any, b: Any, out: Any) -> Plan:
    """The plan of a recipe for matrices, or batches of them, of one type; `out` None, or one that does not suit, is a fresh result."""
    spaces = (("A", a), ("B", b), ("C", out if recipe.rest is None else None))
    by_column = frozenset(name for name, x in spaces if x is not None and is_by_column(x))
    if recipe.rest is not None and recipe.by_columns:
        by_column |= {"C"}
    return fitted_plan(recipe, (a.shape[-2], a.shape[-1], b.shape[-1]), a.dtype, by_column)
