"""The certificate: a scheme and its schedules as exact data, with claims that an independent program can check."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence

from bilinear.analysis.identity import schedule_hash, scheme_hash, target_entry
from bilinear.ir.linear import Form
from bilinear.ir.schedule import AnySchedule, LinearStage, ScaledSchedule, Stage
from bilinear.ir.scheme import Bases, Scheme
from bilinear.verify.recursion import why_not_recursive

FORMAT = "bilinear-certificate/1"
LINE = 140
"""The most characters in a line of JSON."""


def certificate(scheme: Scheme, schedules: Iterable[AnySchedule] = (), order: int | None = None) -> dict[str, object]:
    """The certificate of a proved scheme, and of proved schedules of it; docs/certificate.md says what each entry means.

    `order` is the order of the error in lambda of an approximate scheme. Coefficients are exact text; blocks are given by name. Schedules
    that compute the same in the same stages appear once.
    """
    distinct = {schedule_hash(schedule): schedule for schedule in schedules}
    body: dict[str, object] = {
        "format": FORMAT,
        "scheme": _scheme(scheme, order),
        "schedules": [_schedule(schedule, sha256) for sha256, schedule in distinct.items()],
    }
    return {**body, "sha256": digest(body)}


def certificate_text(scheme: Scheme, schedules: Iterable[AnySchedule] = (), order: int | None = None) -> str:
    """The certificate as JSON text, in lines for readers."""
    found = certificate(scheme, schedules, order)
    return _lines(found, 0) + "\n"


def digest(body: object) -> str:
    """SHA-256 of the JSON text with sorted keys, no spaces, and only ASCII characters."""
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _scheme(scheme: Scheme, order: int | None) -> dict[str, object]:
    u, v, w = scheme.tables
    return {
        "name": scheme.name,
        "citation": scheme.citation,
        "m": scheme.m,
        "k": scheme.k,
        "n": scheme.n,
        "ring": str(scheme.ring),
        "order": order,
        "products": list(scheme.products),
        "u": _matrix(u),
        "v": _matrix(v),
        "w": _matrix(w),
        "bases": None if scheme.bases is None else _bases(scheme, scheme.bases),
        "sha256": scheme_hash(scheme),
    }


def _bases(scheme: Scheme, bases: Bases) -> dict[str, object]:
    """The changes of basis a, b, c and the tables u, v, w between them: U = u*a, V = v*b, W = c*w."""
    maps = {"a": bases.a, "b": bases.b, "c": bases.c, "u": scheme.u, "v": scheme.v, "w": scheme.w}
    return {name: _matrix(linear.matrix) for name, linear in maps.items()}


def _schedule(schedule: AnySchedule, sha256: str) -> dict[str, object]:
    return {
        "name": schedule.name,
        "levels": schedule.levels,
        "m": schedule.m,
        "k": schedule.k,
        "n": schedule.n,
        "workspaces": [[s.name, s.shape, s.rows, s.columns] for s in schedule.workspaces],
        "stages": [_stage(stage) for stage in schedule.stages],
        "claims": {
            **_scaling(schedule),
            "restores": list(schedule.restores),
            "preserves": _never_written(schedule),
            "recurses_in_place": _recurses_in_place(schedule),
        },
        "sha256": sha256,
    }


def _scaling(schedule: AnySchedule) -> dict[str, object]:
    """What C becomes, and whether alpha and beta, only alpha, or neither is implied."""
    if isinstance(schedule, ScaledSchedule):
        return {"result": [str(schedule.result.alpha), str(schedule.result.beta)], "scaling": "written"}
    if schedule.overwrites:
        return {"result": ["alpha", "0"], "scaling": "overwriting"}
    return {"result": ["alpha", "beta"], "scaling": "implied"}


def _recurses_in_place(schedule: AnySchedule) -> bool:
    return schedule.in_place and {"A", "B"} <= set(schedule.restores) and not why_not_recursive(schedule, schedule.restores)


def _stage(stage: Stage) -> dict[str, object]:
    if isinstance(stage, LinearStage):
        return {
            "maps": [
                {"sources": [str(b) for b in m.sources], "targets": [str(b) for b in m.targets], "matrix": _matrix(m.map.matrix)}
                for m in stage.maps
            ]
        }
    return {
        "products": [{"left": str(p.left), "right": str(p.right), "targets": list(map(target_entry, p.targets))} for p in stage.products]
    }


def _never_written(schedule: AnySchedule) -> list[str]:
    written = {
        target.space
        for stage in schedule.stages
        if isinstance(stage, LinearStage)
        for block_map in stage.maps
        for target in block_map.targets
    }
    written |= {t.block.space for s in schedule.stages if not isinstance(s, LinearStage) for p in s.products for t in p.targets}
    return [name for name in ("A", "B") if name not in written]


def _matrix(rows: Sequence[Form]) -> list[list[list[object]]]:
    """Sparse rows: [column from 0, coefficient] for every nonzero entry."""
    return [[[index, str(coefficient)] for index, coefficient in row] for row in rows]


def _lines(value: object, depth: int) -> str:
    """Readable JSON: what fits on a line stays on one."""
    line = json.dumps(value)
    if len(line) + depth <= LINE or not isinstance(value, dict | list):
        return line
    inner, outer = " " * (depth + 1), " " * depth
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {_lines(item, depth + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(inner + part for part in parts) + f"\n{outer}}}"
    return "[\n" + ",\n".join(inner + _lines(item, depth + 1) for item in value) + f"\n{outer}]"
