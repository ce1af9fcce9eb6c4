"""Plans in files: pinned by name, hashes and version, so that the same plan runs, or none."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from bilinear.errors import BilinearError, fail
from bilinear.planner.choose import LIBRARY, Candidate, Choice, Problem, hashes
from bilinear.resources import write_file
from bilinear.version import __version__

FORMAT = "bilinear-plan/1"


def plan_json(choice: Choice) -> str:
    """A choice as JSON text, complete: `plan_from_json` gives an equal one."""
    return json.dumps({"format": FORMAT, **asdict(choice)}, indent=1) + "\n"


def save_plan(choice: Choice, path: str | Path) -> None:
    """Write a plan to a file; raises `BilinearError` (E612) where that fails."""
    write_file(Path(path), plan_json(choice))


def load_plan(path: str | Path) -> Choice:
    """The plan of a file. Raises `BilinearError`: E545 where it is none, E546 where this version would run something else."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise fail("E545", f"{path} cannot be read: {error}") from None
    return plan_from_json(text, str(path))


def plan_from_json(text: str, document: str) -> Choice:
    """The plan of a JSON text; errors as in `load_plan`."""
    try:
        value = json.loads(text)
        if value.pop("format") != FORMAT:
            raise ValueError(f"its format is not {FORMAT!r}")
        candidates = tuple(_record(Candidate, c) for c in value.pop("candidates"))
        problem = value.pop("problem")
        problem["column_major"] = tuple(problem["column_major"])
        choice = Choice(problem=_record(Problem, problem), candidates=candidates, **value)
        _check(choice)
    except BilinearError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        raise fail("E545", f"{document} is no plan: {error or type(error).__name__}", "write one with `bilinear plan --json`") from None
    _check_same(choice, document)
    return choice


def _record(kind: Any, value: dict[str, Any]) -> Any:
    """A frozen record of exactly the fields that it has."""
    missing = {field.name for field in fields(kind)} - set(value)
    if missing:
        raise ValueError(f"{', '.join(sorted(missing))} is missing")
    return kind(**value)


def _check(choice: Choice) -> None:
    """What running relies on."""
    chosen = choice.chosen
    texts = (chosen.algorithm, chosen.inputs, choice.version, choice.scheme_sha256, choice.schedule_sha256)
    if not all(isinstance(text, str) for text in texts) or not isinstance(chosen.levels, int) or isinstance(chosen.levels, bool):
        raise ValueError("a field has the wrong type")
    if not 0 <= chosen.levels <= 8 or (chosen.levels == 0) != (chosen.algorithm == LIBRARY) or not chosen.algorithm.isidentifier():
        raise ValueError("its first candidate makes no sense")
    if chosen.inputs not in ("preserve", choice.problem.inputs):
        raise ValueError("its promise of the inputs is not the problem's")


def _check_same(choice: Choice, document: str) -> None:
    again = "plan again with this version"
    if choice.version != __version__:
        raise fail("E546", f"{document} was planned by version {choice.version}, this is {__version__}", again)
    if hashes(choice.chosen.algorithm) != (choice.scheme_sha256, choice.schedule_sha256):
        raise fail("E546", f"{choice.chosen.algorithm} is not what it was when {document} was planned", again)
