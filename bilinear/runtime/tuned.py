"""Tuned: where what `bilinear tune` found is kept, for each kind of GPU and version of its driver: a description, and timed plans."""

from __future__ import annotations

import logging
import re
from pathlib import Path

from bilinear.errors import BilinearError, fail
from bilinear.planner.choice import Choice, Problem
from bilinear.planner.device import Device, parse_device
from bilinear.planner.saved import load_plan, save_plan
from bilinear.resources import write_file

log = logging.getLogger("bilinear")
ELSEWHERE = "bilinear tune -o FILE, then BILINEAR_DEVICE=FILE"


def driver_version() -> int:
    """The version of the GPU's driver, as 13000 for CUDA 13.0."""
    import cupy

    return int(cupy.cuda.runtime.driverGetVersion())


def kept_at(name: str, driver: int) -> Path | None:
    """The file for a GPU of this name under this driver; None where there is no home folder."""
    from platformdirs import user_data_path

    try:
        folder = user_data_path("bilinear") / "devices"
    except RuntimeError:
        return None
    stem = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return folder / f"{stem}-{driver}.json" if folder.is_absolute() else None


def keep_description(device: Device, driver: int) -> Path:
    """Keep a description for GPUs of its name under this driver, and say where. Raises `BilinearError` (E612) where that fails."""
    path = kept_at(device.name, driver)
    if path is None:
        raise fail("E612", "there is no home folder to keep a description in", ELSEWHERE)
    _make_folder(path)
    write_file(path, device.json())
    return path


def kept_plan_at(problem: Problem, name: str, driver: int) -> Path | None:
    """The file for the plan of a problem on such a GPU; None without a home folder, and for unusual layouts and limits."""
    described, p = kept_at(name, driver), problem
    if described is None or p != Problem(p.m, p.k, p.n, p.dtype, p.inputs, p.workspace, lies_evenly=p.lies_evenly):
        return None
    budget = "" if p.workspace is None else f"-{p.workspace}"
    return described.with_suffix("") / f"{p.dtype}-{p.m}x{p.k}x{p.n}-{p.inputs}{budget}.json"


def keep_plan(choice: Choice, driver: int) -> Path:
    """Keep a plan for its problem on GPUs of its name under this driver, and say where. Raises `BilinearError` (E612) where that fails."""
    path = kept_plan_at(choice.problem, choice.device, driver)
    if path is None:
        raise fail("E612", "there is no place to keep this plan in", "bilinear plan --json, and load_plan")
    _make_folder(path)
    save_plan(choice, path)
    return path


def kept_plan(problem: Problem, name: str, driver: int) -> Choice | None:
    """The plan that is kept for a problem on such a GPU, or None. One that this version would run otherwise is told, and not used."""
    path = kept_plan_at(problem, name, driver)
    if path is None:
        return None
    try:
        choice = load_plan(path) if path.exists() else None
    except (OSError, BilinearError) as error:
        log.warning("a plan is not used: %s", error)
        return None
    return choice if choice is not None and (choice.problem, choice.device) == (problem, name) else None


def _make_folder(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise fail("E612", f"cannot write {path}: {error.strerror or error}", ELSEWHERE) from None


def kept_description(name: str, driver: int) -> Device | None:
    """What is kept for GPUs of this name under this driver; None where nothing is. What cannot be read is told, and not used."""
    path = kept_at(name, driver)
    if path is None:
        return None
    try:
        device = parse_device(path.read_bytes(), str(path))
    except FileNotFoundError:
        return None
    except (OSError, BilinearError) as error:
        log.warning("a description is not used: %s", error)
        return None
    return device if device.name == name else None
