"""Accuracy as a budget: certain bounds of max|C - A*B| / (max|A| max|B|), and probable errors by norm beside the classical multiply's.

A class of accuracy limits the probable error |C - A*B| / |A*B| in the Frobenius norm, for independent centred data, to a multiple of what
sums of K terms in order have, each rounded to nearest in the element type.
"""

from __future__ import annotations

from dataclasses import replace
from math import isfinite

from bilinear.planner.plan import Candidate
from bilinear.planner.problem import CLASSES, USUAL_LIMIT, Problem


def with_errors(candidate: Candidate, problem: Problem, explain: bool) -> Candidate:
    """A candidate with its certain bound and its probable error. Each is computed if the accuracy needs it, or to explain everything."""
    asked, inner, dtype = problem.accuracy, problem.k, problem.dtype
    certain = known_bound(candidate, inner, dtype) if explain or isinstance(asked, float | int) else None
    probable = candidate.choice.probable(inner, dtype) if explain or isinstance(asked, str) else None
    return replace(candidate, error=certain, probable=probable)


def why_inaccurate(candidate: Candidate, asked: float | str | None) -> str:
    """Why a candidate with its errors is less accurate than is asked for; empty if it is accurate enough."""
    if isinstance(asked, str):
        times = candidate.probable or 0.0
        return f"its probable error is {times:.2g} times the classical multiply's" if times > CLASSES[asked] else ""
    if asked is None:
        return ""
    if candidate.error is None:
        return "no error bound is known for sums of so many terms"
    return f"its error bound {candidate.error:.2g} is above {asked:.2g}" if candidate.error > asked else ""


def why_far(candidate: Candidate, problem: Problem) -> str:
    """Why a candidate is not accurate enough for a call that requests no accuracy; empty if it is."""
    if problem.accuracy is not None or not candidate.choice.may_be_far:
        return ""
    times = candidate.choice.probable(problem.k, problem.dtype)
    asked = f"more than {USUAL_LIMIT:g} times has to be asked for by accuracy="
    return f"its probable error is {times:.2g} times the classical multiply's, and {asked}" if times > USUAL_LIMIT else ""


def known_bound(candidate: Candidate, inner: int, dtype: str) -> float | None:
    """The bound that always holds for a candidate; None if sums are so long that none is known."""
    found = candidate.choice.bound(inner, dtype)
    return found if isfinite(found) else None
