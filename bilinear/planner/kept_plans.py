"""Kept plans: the files that `bilinear tune` writes, a device description and timed plans, for each kind of GPU and driver version.

The description of processors is kept for the version of the library behind NumPy in the place of the driver's.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from bilinear.errors import BilinearError, fail
from bilinear.places import require_kept
from bilinear.planner.cpu import Cpu
from bilinear.planner.device import Device
from bilinear.planner.device_files import cpu_json, device_json, parse_cpu, parse_device
from bilinear.planner.plan import Methods, Plan
from bilinear.planner.plan_files import load_plan, save_plan
from bilinear.planner.problem import Problem
from bilinear.reading import read_bounded
from bilinear.writing import make_folder, write_file

Described = TypeVar("Described", Device, Cpu)
log = logging.getLogger("bilinear")
ELSEWHERE = "bilinear tune -o FILE, then BILINEAR_DEVICE=FILE"
HOME = "set XDG_DATA_HOME to a folder that can be written"
"""The hint for users whose plans cannot be kept."""


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
    """Keep a plan for its problem on GPUs of its name under this driver, and return its file.

    Raises `BilinearError` (E612) if that fails.
    """
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
