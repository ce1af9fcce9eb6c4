"""Candidates that run something else than was planned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bilinear.ir.thin_tile import THIN_TILES
from bilinear.methods.thin.choice import Thin, is_turned
from bilinear.planner.plan import Candidate
from bilinear.planner.problem import Problem


def running(candidate: Candidate, workspace: int | None = None, **fields: Any) -> Candidate:
    """The candidate with these fields of its choice replaced, and perhaps its bytes of workspace."""
    choice: Any = candidate.choice
    bytes_needed = candidate.workspace if workspace is None else workspace
    return replace(candidate, choice=replace(choice, **fields), workspace=bytes_needed)


def in_thin_tile(candidate: Candidate, problem: Problem, tile: str, parts: int) -> Candidate:
    """A thin product of this problem in a tile, its sums in so many parts; the time is that of the candidate."""
    workspace = parts * problem.m * problem.n * np.dtype(problem.dtype).itemsize if parts > 1 else 0
    return replace(candidate, choice=Thin(tile, parts, is_turned(problem, THIN_TILES[problem.dtype][tile])), workspace=workspace)
