"""Plans in files, pinned by name, hashes and version: loading one runs exactly that plan, or fails.

And the files that `bilinear tune` keeps, a device description and timed plans, for each kind of GPU and driver version. The description of
processors is kept for the version of the library behind NumPy in the place of the driver's.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from bilinear.errors import BilinearError, fail
from bilinear.ir.element import COMPLEX
from bilinear.ir.placement import MOST_WORKSPACE
from bilinear.places import require_kept
from bilinear.planner.cpu import Cpu
from bilinear.planner.device import Device
from bilinear.planner.device_files import cpu_json, device_json, parse_cpu, parse_device
from bilinear.planner.library import Library
from bilinear.planner.plan import Candidate, Choice, Methods, Panel, Plan
from bilinear.planner.problem import Problem
from bilinear.planner.scheduled import Scheduled
from bilinear.planner.ways import forget_changed_files, hashes
from bilinear.reading import read_bounded
from bilinear.resources import implementation_sha256
from bilinear.version import __version__
from bilinear.writing import make_folder, write_file

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Record = TypeVar("Record", bound="DataclassInstance")
Object = dict[str, object]
Kinds = Mapping[str, "type[DataclassInstance]"]  # What plans may choose, by the names of methods.
FORMAT = "bilinear-plan/12"
HINT = "write one with save_plan, or with `bilinear plan --json`"


def plan_json(plan: Plan) -> str:
    """A plan as complete JSON text: `plan_from_json` returns an equal plan."""
    return json.dumps({"format": FORMAT, **_fields(plan)}, indent=1) + "\n"


def _fields(record: DataclassInstance) -> Object:
    """The fields of a record by name; beside a choice stands the name of its method."""
    own = {field.name: _value(getattr(record, field.name)) for field in fields(record)}
    return {"method": record.choice.method, **own} if isinstance(record, Candidate | Panel) else own


def _value(value: object) -> object:
    if isinstance(value, tuple):
        return [_value(one) for one in value]
    return _fields(value) if is_dataclass(value) and not isinstance(value, type) else value


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
        E545 if it is no plan, E612 if it cannot be written.

    Examples
    --------
    >>> import bilinear
    >>> plan = bilinear.plan(8192, 8192, 8192, "float64", device="h200")
    >>> bilinear.save_plan(plan, "plan.json")
    """
    if not isinstance(plan, Plan):
        raise fail("E545", f"a {type(plan).__name__} is not a plan", "give one of bilinear.plan, or of load_plan")
    write_file(Path(path), plan_json(plan))


def load_plan(methods: Methods, path: str | Path) -> Plan:
    """Read a plan from a file. Raises `BilinearError`: E545 if it is not a plan, E546 if this version would run something else."""
    try:
        text = read_bounded(path).decode()
    except OSError as error:
        raise fail("E545", f"{path} cannot be read: {error.strerror or error}", HINT) from None
    except UnicodeDecodeError as error:
        raise fail("E545", f"{path} cannot be read: {error}", HINT) from None
    return plan_from_json(methods, text, str(path))


def plan_from_json(methods: Methods, text: str, document: str) -> Plan:
    """Read a plan from JSON text; raises the errors of `load_plan`."""
    try:
        choices: tuple[type[Choice], ...] = Library, Scheduled, *(method.choice for method in methods)
        kinds = {choice.method: cast("type[DataclassInstance]", choice) for choice in choices}
        plan = _plan(_object(json.loads(text), "the document"), kinds)
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


def _plan(value: Object, kinds: Kinds) -> Plan:
    if _field(value, "format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT!r}")
    value.pop("format"), value.pop("roofline", None)  # of `plan --explain --json`: it follows from the rest
    candidates = tuple(_record(Candidate, _with_choice(_object(x, "a candidate"), kinds)) for x in _list(value, "candidates"))
    if not candidates:
        raise ValueError("candidates is empty")
    problem = _object(_field(value, "problem"), "problem")
    problem["column_major"] = tuple(_list(problem, "column_major"))
    hashes_of = [x if isinstance(x, list) else [] for x in _list(value, "sha256")]
    if any(len(pair) != 2 for pair in hashes_of):
        raise ValueError("sha256 is not a list of pairs")
    value["sha256"] = tuple((str(scheme), str(schedule)) for scheme, schedule in hashes_of)
    return _record(Plan, {**value, "problem": _record(Problem, problem), "candidates": candidates})


def _with_choice(value: Object, kinds: Kinds) -> Object:
    """The fields of a candidate or of a part, with what it chooses as a record of its method."""
    name = _field(value, "method")
    if not isinstance(name, str) or name not in kinds:
        raise ValueError(f"there is no method {name!r}")
    own = _object(_field(value, "choice"), "choice")
    lists = {key: tuple(found) for key, found in own.items() if isinstance(found, list)}
    if "rest" in own:
        lists["rest"] = tuple(_record(Panel, _with_choice(_object(part, "a part"), kinds)) for part in _list(own, "rest"))
    return {key: found for key, found in value.items() if key != "method"} | {"choice": _record(kinds[name], own | lists)}


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
        raise ValueError(f"{', '.join(map(repr, sorted(unknown)))} is no field of a {getattr(kind, 'method', kind.__name__.lower())}")
    make: Callable[..., Record] = kind
    return make(**value)


def _check(plan: Plan) -> None:
    chosen, p = plan.chosen, plan.problem
    if p.workspace is not None and p.workspace > MOST_WORKSPACE:
        raise ValueError(f"its workspace is above {MOST_WORKSPACE} bytes")
    for c in plan.candidates:
        if not isinstance(c.why, str) or not isinstance(c.able, bool):
            raise ValueError("a field of a candidate has the wrong type")
        if not all(isinstance(name, str) and is_level_name(name) for name in c.all_levels):
            raise ValueError("a field of a candidate has the wrong type")
        if not all(isinstance(part.inputs, str) for part in c.parts):
            raise ValueError("a field of a candidate has the wrong type")
        counts = 0 if c.workspace is None else c.workspace, *(part.extent for part in c.rest)
        if not all(type(count) is int and 0 <= count < MOST_WORKSPACE for count in counts) or not all(part.extent for part in c.rest):
            raise ValueError("a count of a candidate is no such number")
        if not all(x is None or (type(x) in (int, float) and isfinite(x) and x >= 0) for x in (c.ms, c.error, c.probable)) or c.ms == 0:
            raise ValueError("a time or an error is not such a number")
        c.choice.check(p)
    if not all(isinstance(text, str) for text in (plan.version, plan.implementation_sha256, plan.device)):
        raise ValueError("a field has the wrong type")
    for part in chosen.parts:
        if part.inputs not in ("preserve", p.inputs):
            raise ValueError("its promise of the inputs is not the problem's")
        if part is not chosen.parts[-1] and part.inputs != "preserve":
            raise ValueError("a part that is not the last one writes the inputs")
    if len(plan.sha256) != len(chosen.all_levels):
        raise ValueError("its first candidate makes no sense")
    if p.dtype in COMPLEX and chosen.promise != "preserve":
        raise ValueError("complex matrices are not multiplied so")
    if chosen.rest and sum(part.extent for part in chosen.rest) >= p.lines[0]:
        raise ValueError("its parts are not those of the result")


def is_level_name(name: str) -> bool:
    """True if this can name a level: an identifier, or an absolute path of a file, perhaps with the name of an algorithm in it."""
    path, mark, picked = name.rpartition(".bl:")
    file = path + ".bl" if mark else name
    return name.isidentifier() or (Path(file).is_absolute() and Path(file).suffix == ".bl" and (not mark or picked.isidentifier()))


def check_same(plan: Plan, document: str) -> None:
    """Refuse a plan that this version would run differently (E546)."""
    again = "plan again with this version"
    forget_changed_files()
    if plan.version != __version__:
        raise fail("E546", f"{document} was planned by version {plan.version}, this is {__version__}", again)
    if len(plan.sha256) != len(plan.chosen.all_levels):
        raise fail("E546", f"{document} has hashes of {len(plan.sha256)} levels, and {len(plan.chosen.all_levels)} levels", again)
    try:
        hashes_now = hashes(plan.chosen.all_levels)
    except BilinearError as error:
        raise fail("E546", f"{document} names an algorithm that cannot be read: {error.diagnostics[0].message}", again) from None
    for name, then, now in zip(plan.chosen.all_levels, plan.sha256, hashes_now, strict=True):
        if now != then:
            raise fail("E546", f"{name} is not what it was when {document} was planned", again)
    if plan.chosen.choice.has_kernels and plan.implementation_sha256 != implementation_sha256():
        raise fail("E546", f"the kernels are not what they were when {document} was planned", again)


Described = TypeVar("Described", Device, Cpu)
log = logging.getLogger("bilinear")
ELSEWHERE = "bilinear tune -o FILE, then BILINEAR_DEVICE=FILE"
HOME = "set XDG_DATA_HOME to a folder that can be written"  # The hint for users whose plans cannot be kept.


def kept_at(name: str, driver: int | str) -> Path | None:
    """The description's file for a GPU of this name under this driver (or for processors and library); None if there is no home folder."""
    from platformdirs import user_data_path

    try:
        folder = user_data_path("bilinear") / "devices"
    except RuntimeError:
        return None
    stem = re.sub(r"[^a-z0-9]+", "-", f"{name}-{driver}".lower()).strip("-")
    return folder / f"{stem}.json" if folder.is_absolute() else None


def require_place() -> None:
    """Refuse (E612), before it is measured, a description that could not be kept."""
    path = kept_at("any", "version")
    if path is None:
        raise fail("E612", "there is no home folder to keep a description in", HOME)
    require_kept(path.parent, HOME)


def keep_description(device: Device, driver: int) -> Path:
    """Keep a description for GPUs of its name under this driver, and return its file. Raises `BilinearError` (E612) if that fails."""
    return _keep(kept_at(device.name, driver), device_json(device), ELSEWHERE)


def keep_cpu(cpu: Cpu) -> Path:
    """Keep a description for processors of its name and its library, and return its file. Raises `BilinearError` (E612) if that fails."""
    return _keep(kept_at(cpu.name, cpu.library), cpu_json(cpu), HOME)


def _keep(path: Path | None, text: str, hint: str) -> Path:
    if path is None:
        raise fail("E612", "there is no home folder to keep a description in", hint)
    make_folder(path.parent, hint)
    write_file(path, text)
    return path


def kept_plan_at(problem: Problem, name: str, driver: int) -> Path | None:
    """The file for the plan of a problem on such a GPU; None without a home folder."""
    described = kept_at(name, driver)
    return None if described is None else described.with_suffix("") / _file_of_plan(problem)


def _file_of_plan(p: Problem) -> str:
    layout = ("columns" + "".join(p.column_major)) * bool(p.column_major), "gaps" * p.has_gaps
    limits = "" if p.workspace is None else str(p.workspace), "" if p.accuracy is None else f"accuracy{p.accuracy}"
    told = p.dtype, f"{p.m}x{p.k}x{p.n}", p.inputs, *limits, "accumulate" * p.accumulate, *layout
    return "-".join(filter(None, told)) + ".json"


def folder_of_plans(name: str, driver: int) -> Path:
    """The folder for plans of GPUs of this name under this driver, created if missing; E612 if it cannot be written."""
    described = kept_at(name, driver)
    if described is None:
        raise fail("E612", "there is no home folder to keep plans in", HOME)
    folder = described.with_suffix("")
    make_folder(folder, HOME)
    require_kept(folder, HOME)
    return folder


def keep_plan(plan: Plan, driver: int) -> Path:
    """Keep a plan for its problem on GPUs of its name and driver; returns its file. Raises `BilinearError` (E612)."""
    path = folder_of_plans(plan.device, driver) / _file_of_plan(plan.problem)
    save_plan(plan, path)
    return path


def kept_plan(methods: Methods, problem: Problem, name: str, driver: int) -> Plan | None:
    """The kept plan for a problem on such a GPU, or None. A plan that this version would run differently is reported and not used."""
    path = kept_plan_at(problem, name, driver)
    if path is None:
        return None
    try:
        plan = load_plan(methods, path) if path.exists() else None
    except (OSError, BilinearError) as error:
        log.warning("a plan is not used: %s", error)
        return None
    return plan if plan is not None and (plan.problem, plan.device) == (problem, name) else None


def kept_description(name: str, driver: int) -> Device | None:
    """The kept description for GPUs of this name under this driver, or None. A file that cannot be read is reported and not used."""
    device = _read(kept_at(name, driver), parse_device)
    return device if device is not None and device.name == name else None


def kept_cpu(name: str, library: str) -> Cpu | None:
    """The kept description for processors of this name and this library, or None. A file that cannot be read is reported and not used."""
    cpu = _read(kept_at(name, library), parse_cpu)
    return cpu if cpu is not None and (cpu.name, cpu.library) == (name, library) else None


def _read(path: Path | None, parse: Callable[[bytes, str], Described]) -> Described | None:
    if path is None:
        return None
    try:
        return parse(read_bounded(path), str(path))
    except FileNotFoundError:
        return None
    except (OSError, BilinearError) as error:
        log.warning("a description is not used: %s", error)
        return None
