"""Tampered certificates: the stranger's checker accepts what is so, and nothing else."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import io
import json
import random
import traceback
from functools import cache
from pathlib import Path
from typing import Any

from soak.case import PASSED, REFUSED, Case, Finding
from soak.command import drawn, within
from soak.lockstep import Unknown
from soak.mangle import NUMBERS, mangled_bytes, piece
from soak.statements import Untrue, is_so, rehashed

from bilinear.frontend import load
from bilinear.lowering.prepare import is_runnable, natural_inputs, prepare, proved
from bilinear.reporting.certificate import certificate

CHECKER = Path(__file__).parents[3] / "examples" / "check_certificate.py"
NAMES = (
    *("msmes", "strassen", "winograd", "naive2x2", "winograd_depth_first", "winograd_in_place", "split_k", "classical", "hopcroft_kerr"),
    *("karstadt_schwartz", "bini", "accurate_sqrt3", "accurate_halves", "laderman_in_place"),
)
Json = Any


def run(case: Case) -> str:
    """Change a certificate, most often with its hashes made anew, and ask the checker."""
    draw = drawn(case)
    whole = _certificate(draw.choice(NAMES))
    path = case.folder / "x.json"
    if draw.random() < 0.1:
        path.write_bytes(mangled_bytes(json.dumps(whole, indent=1).encode(), draw))
        found = _read(path)
        _require(path, accepted=True if found == whole else None if found is None else False)
        return REFUSED
    told = copy.deepcopy(whole)
    for _ in range(draw.choice((0, 1, 1, 1, 2, 3))):
        _tamper(told, draw)
    if draw.random() < 0.75:
        with contextlib.suppress(LookupError, TypeError, AttributeError, ValueError):  # what has lost its parts keeps its old hashes
            told = rehashed(told)
    path.write_text(json.dumps(told), encoding="utf-8")
    if told == whole and json.dumps(told) == json.dumps(whole):
        return _require(path, accepted=True)
    return _require(path, accepted=None if _is_so(told, draw) else False)


@cache
def _certificate(name: str) -> dict[str, Json]:
    """The certificate of a shipped algorithm: as it is written, and as it runs where it does."""
    loaded = load(name)
    proof = proved(loaded.scheme)
    schedules = [] if loaded.schedule is None else [loaded.schedule]
    inputs = natural_inputs(loaded.schedule)
    if is_runnable(loaded.scheme, loaded.schedule, inputs):
        prepared = prepare(loaded.scheme, loaded.schedule, 1, inputs)
        schedules = [prepared.authored, prepared.schedule]
    found: dict[str, Json] = certificate(loaded.scheme, schedules, proof.order)
    return found


def _is_so(told: Json, draw: random.Random) -> bool:
    """Whether what a certificate says is true, as far as we can tell."""
    try:
        with within():
            is_so(told, draw)
    except Untrue:
        return False
    except Unknown:
        return True
    except Finding:
        raise
    except Exception:  # it says nothing that has a meaning
        return False
    return True


def _read(path: Path) -> Json:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return None


def _require(path: Path, accepted: bool | None) -> str:
    """The checker's answer, which is as it must be where that is known; it never fails otherwise."""
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), within():
            status = _checker().main([str(path)])
    except Finding as found:
        raise Finding(f"{found}: check_certificate.py\n{path.read_text(errors='replace')[:2000]}") from None
    except BaseException:
        raise Finding(f"check_certificate.py fails: {traceback.format_exc()[-1500:]}") from None
    if status not in (0, 1) or (status == 1 and "refused:" not in out.getvalue()):
        raise Finding(f"check_certificate.py leaves with {status}: {out.getvalue()[-500:]}")
    if accepted is not None and accepted != (status == 0):
        raise Finding(
            f"{'a true' if accepted else 'an untrue'} certificate is {'refused' if accepted else 'accepted'}: {out.getvalue()[-900:]}"
        )
    return REFUSED if status else PASSED


@cache
def _checker() -> Any:
    spec = importlib.util.spec_from_file_location("check_certificate", CHECKER)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _tamper(told: Json, draw: random.Random) -> None:
    """One change in place: of a coefficient, of a step, or of anything."""
    way = draw.random()
    scheme, schedules = told.get("scheme"), told.get("schedules")
    if way < 0.3 and isinstance(scheme, dict):
        _change_row(scheme.get(draw.choice("uvw")), draw)
    elif way < 0.65 and schedules and isinstance(schedules, list):
        _change_stages(draw.choice(schedules), draw)
    else:
        _change_anything(told, draw)


def _change_row(table: Json, draw: random.Random) -> None:
    if not isinstance(table, list) or not table:
        return
    row = draw.choice(table)
    if not isinstance(row, list) or not row:
        return
    entry = draw.choice(row)
    if not isinstance(entry, list) or len(entry) < 2:
        return
    way = draw.randrange(5)
    if way == 0:
        row.remove(entry)
    elif way == 1:
        entry[0] = draw.choice((0, 1, 2, 3, -1, 10**9, True, "0"))
    elif way == 2:
        row.append(list(entry))
    else:
        entry[1] = draw.choice(("1", "-1", "2", "1/2", "lambda", "sqrt(3)", "0", "1-1", f"1*{entry[1]}", *NUMBERS))


def _change_stages(entry: Json, draw: random.Random) -> None:
    stages = entry.get("stages") if isinstance(entry, dict) else None
    if not isinstance(stages, list) or not stages:
        return
    way, at, other = draw.randrange(7), draw.randrange(len(stages)), draw.randrange(len(stages))
    if way == 0:
        del stages[at]
        return
    if way == 1:
        stages[at], stages[other] = stages[other], stages[at]
        return
    if way == 2:
        stages.insert(at, copy.deepcopy(stages[other]))
        return
    steps = next((value for value in stages[at].values() if isinstance(value, list)), None) if isinstance(stages[at], dict) else None
    if not steps:
        return
    step = draw.choice(steps)
    if way == 3:
        steps.remove(step)
    elif way == 4 and isinstance(step, dict) and "left" in step:
        side = draw.choice(("left", "right"))
        step[side] = draw.choice(("A11", "A12", "A22", "B11", "B21", "C11", "X11", "Q"))
    elif isinstance(step, dict) and "matrix" in step:
        _change_row(step["matrix"], draw)
    elif isinstance(step, dict) and "targets" in step:
        _change_row([step["targets"]], draw)


def _change_anything(told: Json, draw: random.Random) -> None:
    """One value somewhere, dropped, or exchanged for one of another kind."""
    places: list[tuple[Json, Any]] = []

    def visit(node: Json) -> None:
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, value in items:
            places.append((node, key))
            visit(value)

    visit(told)
    shallow = [(node, key) for node, key in places if isinstance(node, dict)]
    node, key = draw.choice(shallow if shallow and draw.random() < 0.6 else places)
    way = draw.randrange(4)
    if way == 0:
        del node[key]
    elif way == 1 and isinstance(node[key], str):
        node[key] = draw.choice(
            (piece(draw), node[key] + "1", "A", "B", "C", "Z", "Q", "Z/2", "Q[lambda]", "implied", "written", "overwriting")
        )
    elif way == 1 and isinstance(node[key], int):
        node[key] = draw.choice((node[key] + 1, -1, 0, 10**6, 10**30, True))
    else:
        values: tuple[Json, ...] = (
            None,
            True,
            0,
            1,
            -1,
            2.5,
            10**40,
            "",
            "1",
            "A",
            [],
            {},
            ["A"],
            ["A", "B"],
            [[]],
            [[0, "1"]],
            {"maps": []},
            _deep(draw),
        )
        node[key] = copy.deepcopy(draw.choice(values))


def _deep(draw: random.Random) -> Json:
    nested: Json = "1"
    for _ in range(draw.choice((10, 100, 400))):
        nested = [nested] if draw.random() < 0.5 else {"maps": nested}
    return nested
