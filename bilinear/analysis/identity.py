"""Hashes of schemes and schedules by what they compute, independent of how they are written."""

from __future__ import annotations

import hashlib
import json

from bilinear.ir.linear import Form
from bilinear.ir.schedule import AnySchedule, LinearStage, ScaledSchedule, ScaledTarget, Target
from bilinear.ir.scheme import Scheme


def scheme_hash(scheme: Scheme) -> str:
    """SHA-256 of the format and the exact tables U, V, W; names, comments and sub-expressions are ignored."""
    tables = [[_row(row) for row in table] for table in scheme.tables]
    return _digest([[scheme.m, scheme.k, scheme.n], tables])


def schedule_hash(schedule: AnySchedule) -> str:
    """SHA-256 of the grid, the workspaces, the stages with exact coefficients, and the scaling of the schedule.

    Products that overwrite are marked. The write of a block of C that keeps beta times its old value is not marked, because it is always
    the first one in the order of the stages; nor is what a map keeps, because it adds to C unless the schedule overwrites C.
    """
    stages: list[object] = []
    for stage in schedule.stages:
        if isinstance(stage, LinearStage):
            maps = [[list(map(str, m.sources)), list(map(str, m.targets)), [_row(row) for row in m.map.matrix]] for m in stage.maps]
            stages.append(["linear", maps])
        else:
            stages.append(["product", [[str(p.left), str(p.right), list(map(target_entry, p.targets))] for p in stage.products]])
    spaces = [[s.name, s.shape, s.rows, s.columns] for s in schedule.workspaces]
    return _digest([[schedule.m, schedule.k, schedule.n], spaces, stages, *_scaling(schedule)])


def target_entry(target: Target) -> list[object]:
    """Block and coefficient; then `first` if the product overwrites, or the terms that a schedule with explicit scaling adds."""
    if isinstance(target, ScaledTarget):
        terms = [[str(block), str(coefficient)] for block, coefficient in target.terms]
        more: list[object] = [terms] if terms else []
    else:
        more = [] if target.kept else ["first"]
    return [str(target.block), str(target.coefficient), *more]


def _scaling(schedule: AnySchedule) -> list[object]:
    """Empty, `overwriting`, or the result as written."""
    if isinstance(schedule, ScaledSchedule):
        return [[str(schedule.result.alpha), str(schedule.result.beta)]]
    return ["overwriting"] if schedule.overwrites else []


def _row(row: Form) -> list[list[object]]:
    return [[index, str(coefficient)] for index, coefficient in row]


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, separators=(",", ":")).encode()).hexdigest()
