"""Products on the units for narrow numbers that are weighed for a problem: digits, residues, and rounded numbers."""

from __future__ import annotations

from collections.abc import Iterator

from bilinear.planner.device import Device
from bilinear.planner.digits import digit_candidates
from bilinear.planner.lent import lent_candidates
from bilinear.planner.loaded import loaded_candidates
from bilinear.planner.plan import Candidate
from bilinear.planner.problem import Problem
from bilinear.planner.residues import residue_candidates
from bilinear.planner.rounded import rounded_candidates


def candidates_of_digits(problem: Problem, device: Device, budget: int, most_ms: float) -> Iterator[Candidate]:
    """The candidates within a budget of bytes where that can be; residues only if they may take less than `most_ms`.

    Pairs of digits are weighed only if an accuracy is requested, because they hold integers of at most 11 bits; rounded numbers only if
    that accuracy is a bound.
    """
    found = [*residue_candidates(problem, device, budget, most_ms), *rounded_candidates(problem, device)]
    if problem.accuracy is not None:
        found += [*digit_candidates(problem, device, budget), *loaded_candidates(problem, device)]
    yield from found
    yield from lent_candidates(problem, device, found, budget)
