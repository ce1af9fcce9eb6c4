"""Plans in files, pinned by name, hashes and version: loading one runs exactly that plan, or fails."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import asdict, fields
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bilinear.errors import BilinearError, fail
from bilinear.ir.element import COMPLEX, FLOAT32, HALVES, MULTIPLIED
from bilinear.ir.placement import MOST_LEVELS, MOST_WORKSPACE
from bilinear.ir.rounded import ROUNDINGS
from bilinear.ir.thin_tile import THIN_TILES
from bilinear.ir.tile import LOADING_TILES, TILES, USUAL
from bilinear.planner.digits import products_of
from bilinear.planner.plan import CUBLAS, DIGITS, LIBRARIES, ROUNDED, THIN, Candidate, Panel, Plan
from bilinear.planner.problem import Problem
from bilinear.planner.ways import forget_changed_files, hashes
from bilinear.reading import read_bounded
from bilinear.resources import implementation_sha256
from bilinear.version import __version__
from bilinear.writing import write_file

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Record = TypeVar("Record", bound="DataclassInstance")
Object = dict[str, object]
FORMAT = "bilinear-plan/10"
HINT = "write one with save_plan, or with `bilinear plan --json`"
LENT = ("", "A", "B", "P", "AB", "AP", "BP", "ABP")
"""To what a part of C that is computed later may lend memory."""


def plan_json(plan: Plan) -> str:
    """A plan as complete JSON text: `plan_from_json` returns an equal plan."""
    return json.dumps({"format": FORMAT, **asdict(plan)}, indent=1) + "\n"


def save_plan(plan: Plan, path: str | Path) -> None:
    """Write a plan to a file.

    Parameters
    ----------
    plan : Plan
        A plan of `bilinear.plan`.
    path : str or Path
        The file, which is written whole or not at all.

    Raises
    ------
    BilinearError
        E612 if it cannot be written.

    Examples
    --------
    >>> import bilinear
    >>> plan = bilinear.plan(8192, 8192, 8192, "float64", device="h200")
    >>> bilinear.save_plan(plan, "plan.json")
    """
    write_file(Path(path), plan_json(plan))


def load_plan(path: str | Path) -> Plan:
    """Read a plan from a file.

    Parameters
    ----------
    path : str or Path
        A file of `save_plan`, or of `bilinear plan --json`.

    Returns
    -------
    Plan

    Raises
    ------
    BilinearError
        E545 if it is not a plan, E546 if this version would run something else.

    Examples
    --------
    >>> import bilinear
    >>> plan = bilinear.plan(8192, 8192, 8192, "float64", device="h200")
    >>> bilinear.save_plan(plan, "plan.json")
    >>> bilinear.load_plan("plan.json") == plan
    True
    """
    try:
        text = read_bounded(path).decode()
    except OSError as error:
        raise fail("E545", f"{path} cannot be read: {error.strerror or error}", HINT) from None
    except UnicodeDecodeError as error:
        raise fail("E545", f"{path} cannot be read: {error}", HINT) from None
    return plan_from_json(text, str(path))


def plan_from_json(text: str, document: str) -> Plan:
    """Read a plan from JSON text; raises the errors of `load_plan`."""
    try:
        plan = _plan(_object(json.loads(text), "the document"))
        _check(plan)
    except BilinearError as error:  # a field that no call may have either
        raise fail("E545", f"{document} is not a plan: {error.diagnostics[0].message}", HINT) from None
    except json.JSONDecodeError as error:
        raise fail("E545", f"{document} is not JSON: {error}", HINT) from None
    except RecursionError:
        raise fail("E545", f"{document} is not a plan: it is nested too deeply", HINT) from None
    except (ValueError, TypeError, OverflowError) as error:
        cause = error if isinstance(error, ValueError) else "a field has the wrong type"
        raise fail("E545", f"{document} is not a plan: {cause}", HINT) from None
    check_same(plan, document)
    return plan


def _plan(value: Object) -> Plan:
    if _field(value, "format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT!r}")
    value.pop("format"), value.pop("roofline", None)  # of `plan --explain --json`: it follows from the rest
    candidates = tuple(_candidate(_object(x, "a candidate")) for x in _list(value, "candidates"))
    if not candidates:
        raise ValueError("candidates is empty")
    problem = _object(_field(value, "problem"), "problem")
    problem["column_major"] = tuple(_list(problem, "column_major"))
    hashes_of = [x if isinstance(x, list) else [] for x in _list(value, "sha256")]
    if any(len(pair) != 2 for pair in hashes_of):
        raise ValueError("sha256 is not a list of pairs")
    value["sha256"] = tuple((str(scheme), str(schedule)) for scheme, schedule in hashes_of)
    return _record(Plan, {**value, "problem": _record(Problem, problem), "candidates": candidates})


def _candidate(value: Object) -> Candidate:
    parts = [_object(part, "a part") for part in _list(value, "rest")]
    rest = tuple(_record(Panel, {**part, **_tuples(part)}) for part in parts)
    return _record(Candidate, {**value, **_tuples(value), "rest": rest})


def _tuples(value: Object) -> Object:
    return {name: tuple(_list(value, name)) for name in ("levels", "cut")}


def _object(value: object, what: str) -> Object:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not an object with named fields")
    return value


def _field(value: Object, name: str) -> object:
    if name not in value:
        raise ValueError(f"{name} is missing")
    return value[name]


def _list(value: Object, name: str) -> list[object]:
    found = _field(value, name)
    if not isinstance(found, list):
        raise ValueError(f"{name} is not a list")
    return found


def _record(kind: type[Record], value: Object) -> Record:
    """A frozen record of this kind; the JSON object must have exactly its fields."""
    names = {field.name for field in fields(kind)}
    missing, unknown = names - set(value), set(value) - names
    if missing:
        raise ValueError(f"{', '.join(sorted(missing))} is missing")
    if unknown:
        raise ValueError(f"{', '.join(map(repr, sorted(unknown)))} is no field of a {kind.__name__.lower()}")
    make: Callable[..., Record] = kind
    return make(**value)


def _check(plan: Plan) -> None:
    """Check the values on which running and printing the plan rely."""
    chosen, p = plan.chosen, plan.problem
    if p.workspace is not None and p.workspace > MOST_WORKSPACE:
        raise ValueError(f"its workspace is above {MOST_WORKSPACE} bytes")
    for candidate in plan.candidates:
        _check_fields(candidate, _tiles_of(candidate, p.dtype))
    if chosen.ms is None and not chosen.is_digits and not chosen.is_rounded and p.dtype not in HALVES:
        raise ValueError("its first candidate has no time")
    if not all(isinstance(text, str) for text in (plan.version, plan.implementation_sha256, plan.device)):
        raise ValueError("a field has the wrong type")
    for part in chosen.parts:
        if part.inputs not in ("preserve", p.inputs):
            raise ValueError("its promise of the inputs is not the problem's")
        if part is not chosen.parts[-1] and part.inputs != "preserve":
            raise ValueError("a part that is not the last one writes the inputs")
        if chosen.is_digits and chosen.rest and not part.is_digits and part is not chosen.rest[-1]:
            raise ValueError("its first candidate makes no sense")
        if part is chosen and not part.levels and chosen.strategy not in (*LIBRARIES, THIN, DIGITS, ROUNDED):
            raise ValueError(f"there is no library {chosen.strategy!r}")
        if len(part.levels) > MOST_LEVELS or (chosen.rest and not part.levels and not part.is_digits):
            raise ValueError("its first candidate makes no sense")
    if len(plan.sha256) != len(chosen.all_levels) or not all(map(is_level_name, chosen.all_levels)):
        raise ValueError("its first candidate makes no sense")
    if p.dtype in COMPLEX and (chosen.rest or chosen.is_thin or chosen.tile in LOADING_TILES or chosen.promise != "preserve"):
        raise ValueError("complex matrices are not multiplied so")
    extents = [part.extent for part in chosen.rest]
    if not all(type(extent) is int and extent > 0 for extent in extents) or sum(extents) >= p.lines[0]:
        raise ValueError("its parts are not those of the result")


def _tiles_of(candidate: Candidate, dtype: str) -> Collection[str]:
    if candidate.is_digits:
        return (*products_of(dtype), *TILES.get(dtype, ())) if candidate.rest else products_of(dtype)
    if candidate.is_rounded:
        return tuple(ROUNDINGS) if dtype == FLOAT32.name and not candidate.levels and not candidate.rest else ()
    if dtype in HALVES:
        return CUBLAS, USUAL
    own = MULTIPLIED[dtype].name
    return THIN_TILES[own] if candidate.is_thin else TILES[own]


def is_level_name(name: str) -> bool:
    """True if this can name a level: an identifier, or an absolute path of a file, perhaps with the name of an algorithm in it."""
    path, mark, picked = name.rpartition(".bl:")
    file = path + ".bl" if mark else name
    return name.isidentifier() or (Path(file).is_absolute() and Path(file).suffix == ".bl" and (not mark or picked.isidentifier()))


def _check_fields(c: Candidate, tiles: Collection[str]) -> None:
    texts = c.strategy, c.why, *c.all_levels, *(text for part in c.parts for text in (part.inputs, part.tile))
    counts = 0 if c.workspace is None else c.workspace, *(part.extent for part in c.rest)
    if not all(isinstance(text, str) for text in texts) or not all(type(count) is int and 0 <= count < MOST_WORKSPACE for count in counts):
        raise ValueError("a field of a candidate has the wrong type")
    if type(c.parts_of_sums) is not int or not 0 < c.parts_of_sums < MOST_WORKSPACE or (c.levels if c.is_thin else c.parts_of_sums > 1):
        raise ValueError("its parts of sums make no sense")
    for part in c.parts:
        if len(part.cut) != 2 or not all(type(x) is int and 0 < x < MOST_WORKSPACE for x in part.cut):
            raise ValueError("its blocks make no sense")
        if part.cut != (1, 1) and not part.is_digits:
            raise ValueError("its blocks make no sense")
        if part.lent not in LENT or (part.lent and (not part.is_digits or not c.rest or part is c.parts[-1])):
            raise ValueError("what C lends memory to makes no sense")
        if part.tile in LOADING_TILES and (part.levels or part.cut != (1, 1)):
            raise ValueError(f"{part.tile} have no levels above them, and no blocks")
    if not all(x is None or (type(x) in (int, float) and isfinite(x) and x >= 0) for x in (c.ms, c.error, c.probable)) or c.ms == 0:
        raise ValueError("a time or an error is not such a number")
    for tile in (part.tile for part in c.parts):
        if tile not in tiles:
            raise ValueError(f"there is no tile {tile!r}")


def check_same(plan: Plan, document: str) -> None:
    """Refuse a plan that this version would run differently (E546)."""
    again = "plan again with this version"
    forget_changed_files()
    if plan.version != __version__:
        raise fail("E546", f"{document} was planned by version {plan.version}, this is {__version__}", again)
    if len(plan.sha256) != len(plan.chosen.all_levels):
        raise fail("E546", f"{document} has hashes of {len(plan.sha256)} levels, and {len(plan.chosen.all_levels)} levels", again)
    for name, then, now in zip(plan.chosen.all_levels, plan.sha256, hashes(plan.chosen.all_levels), strict=True):
        if now != then:
            raise fail("E546", f"{name} is not what it was when {document} was planned", again)
    if not plan.is_library and plan.implementation_sha256 != implementation_sha256():
        raise fail("E546", f"the kernels are not what they were when {document} was planned", again)
