"""Hashes that name a scheme and a schedule by what they compute, not by how they are written."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from bilinear.ir.linear import Form
from bilinear.ir.schedule import LinearStage, Schedule
from bilinear.ir.scheme import Scheme


def scheme_hash(scheme: Scheme) -> str:
    """SHA-256 of the format and the exact tables U, V, W; names, comments and sub-expressions do not enter."""
    tables = [[_row(row) for row in table] for table in scheme.tables]
    return _digest([[scheme.m, scheme.k, scheme.n], tables])


def schedule_hash(schedule: Schedule) -> str:
    """SHA-256 of the grid, the workspaces and the stages with their exact coefficients."""
    stages: list[Any] = []
    for stage in schedule.stages:
        if isinstance(stage, LinearStage):
            maps = [[list(map(str, m.sources)), list(map(str, m.targets)), [_row(row) for row in m.map.matrix]] for m in stage.maps]
            stages.append(["linear", maps])
        else:
            products = [[str(p.left), str(p.right), [[str(t.block), str(t.coefficient)] for t in p.targets]] for p in stage.products]
            stages.append(["product", products])
    spaces = [[s.name, s.shape, s.rows, s.columns] for s in schedule.workspaces]
    return _digest([[schedule.m, schedule.k, schedule.n], spaces, stages])


def _row(row: Form) -> list[list[Any]]:
    return [[index, str(coefficient)] for index, coefficient in row]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, separators=(",", ":")).encode()).hexdigest()
