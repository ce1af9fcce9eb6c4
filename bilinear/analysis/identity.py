"""Hashes that name a scheme and a schedule by what they compute, not by how they are written."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from bilinear.ir.linear import Form
from bilinear.ir.schedule import LinearStage, Schedule, Target
from bilinear.ir.scheme import Scheme


def scheme_hash(scheme: Scheme) -> str:
    """SHA-256 of the format and the exact tables U, V, W; names, comments and sub-expressions do not enter."""
    tables = [[_row(row) for row in table] for table in scheme.tables]
    return _digest([[scheme.m, scheme.k, scheme.n], tables])


def schedule_hash(schedule: Schedule) -> str:
    """SHA-256 of the grid, the workspaces and the stages with their exact coefficients, and of the result that is written if one is."""
    stages: list[Any] = []
    for stage in schedule.stages:
        if isinstance(stage, LinearStage):
            maps = [[list(map(str, m.sources)), list(map(str, m.targets)), [_row(row) for row in m.map.matrix]] for m in stage.maps]
            stages.append(["linear", maps])
        else:
            stages.append(["product", [[str(p.left), str(p.right), [_target(t) for t in p.targets]] for p in stage.products]])
    spaces = [[s.name, s.shape, s.rows, s.columns] for s in schedule.workspaces]
    result = [] if schedule.result is None else [[str(schedule.result.alpha), str(schedule.result.beta)]]
    return _digest([[schedule.m, schedule.k, schedule.n], spaces, stages, *result])


def _target(target: Target) -> list[Any]:
    """Block and coefficient, and what a schedule that scales for itself adds."""
    plus = [[str(block), str(coefficient)] for block, coefficient in target.plus]
    return [str(target.block), str(target.coefficient), *([plus] if plus else [])]


def _row(row: Form) -> list[list[Any]]:
    return [[index, str(coefficient)] for index, coefficient in row]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, separators=(",", ":")).encode()).hexdigest()
