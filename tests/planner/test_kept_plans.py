"""Descriptions and timed plans that `bilinear tune` keeps: found for their GPU and driver, and for no others."""

from __future__ import annotations

import json
import logging
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from runtime.pretended_gpu import forget_devices
from shell import Shell

import bilinear
from bilinear.errors import BilinearError
from bilinear.ir.tile import SMALL
from bilinear.measure import describe_device
from bilinear.methods.planning import load_plan, make_plan
from bilinear.methods.registry import METHODS
from bilinear.planner.choose import timed_plan
from bilinear.planner.device_files import device_json, load_device
from bilinear.planner.kept_plans import keep_description, keep_plan, kept_at, kept_description, kept_plan, kept_plan_at
from bilinear.planner.library import Library
from bilinear.planner.plan import Candidate, Plan
from bilinear.planner.problem import Problem
from bilinear.planner.scheduled import Scheduled
from bilinear.runtime import auto, devices_here
from bilinear.runtime.operands import layouts_of

H200 = load_device("h200")
MINE = replace(H200, name="My GPU, 80 GB", bandwidth=1234.0)


EVEN, ODD = Problem(600, 512, 640), Problem(601, 511, 77, "float32", "restore", 10**6, lies_evenly=False)


def timed(problem: Problem, *levels: str) -> Plan:
    """A plan in a tile of its own, which the model chooses for no problem here."""
    found = Candidate(Scheduled(levels, tile=SMALL), 0.5, 8, 1e-9)
    return timed_plan(problem, MINE, (found, Candidate(Library(), 1.0, 0, 1e-13)))


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("BILINEAR_DEVICE", raising=False)
    forget_devices()
    yield
    forget_devices()


def gpu(monkeypatch: pytest.MonkeyPatch, name: str, driver: int) -> None:
    """A CuPy that knows the name of the GPU and the version of its driver, and nothing else."""
    facts = {"name": name.encode(), "totalGlobalMem": 0}
    runtime = SimpleNamespace(getDeviceProperties=lambda index: facts, driverGetVersion=lambda: driver)
    device = SimpleNamespace(id=0, compute_capability="90", attributes=defaultdict(int))
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(Device=lambda: device, runtime=runtime)))
    forget_devices()


def test_what_is_kept_is_found_for_its_gpu_and_driver_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = keep_description(MINE, 13000)
    assert path == kept_at(MINE.name, 13000) and path.is_relative_to(tmp_path) and path.name == "my-gpu-80-gb-13000.json"
    for name, driver, found in (
        (MINE.name, 13000, MINE),
        (MINE.name, 13010, None),
        ("My GPU (80 GB)", 13000, None),
        (H200.name, 13000, H200),
    ):
        gpu(monkeypatch, name, driver)
        assert devices_here.current_device() == found, (name, driver)
    monkeypatch.setenv("BILINEAR_DEVICE", "h200")
    gpu(monkeypatch, MINE.name, 13000)
    assert devices_here.current_device() == H200, "what is named comes first"


def test_what_is_kept_comes_before_what_is_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_description(replace(H200, bandwidth=4000.0), 13000)
    gpu(monkeypatch, H200.name, 13000)
    found = devices_here.current_device()
    assert found is not None and found.bandwidth == 4000.0


def test_what_cannot_be_read_is_told_and_not_used(caplog: pytest.LogCaptureFixture) -> None:
    keep_description(MINE, 13000).write_text('{"format": "bilinear-device/2"}')
    with caplog.at_level(logging.WARNING, "bilinear"):
        assert kept_description(MINE.name, 13000) is None
    assert "a description is not used" in caplog.text and "E542" in caplog.text
    caplog.clear()
    path = kept_at(MINE.name, 13000)
    assert path is not None
    path.unlink()
    path.mkdir()  # which no user reads as a file, not even root
    with caplog.at_level(logging.WARNING, "bilinear"):
        assert kept_description(MINE.name, 13000) is None
    assert "a description is not used" in caplog.text


def test_a_place_that_cannot_be_written_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    with pytest.raises(BilinearError, match="E612"):
        keep_description(MINE, 13000)
    with pytest.raises(BilinearError, match="E612"):
        keep_plan(timed(EVEN, "winograd"), 13000)


@pytest.mark.parametrize("problem", [EVEN, ODD, replace(EVEN, workspace=0)])
def test_a_plan_is_found_for_its_problem_gpu_and_driver_alone(problem: Problem) -> None:
    plan = timed(problem, "winograd", "strassen")
    path = keep_plan(plan, 13000)
    assert path == kept_plan_at(problem, MINE.name, 13000) and path.parent.name == "my-gpu-80-gb-13000"
    assert kept_plan(METHODS, problem, MINE.name, 13000) == plan == load_plan(path)
    for name, driver in ((MINE.name, 13010), ("My GPU (80 GB)", 13000), (H200.name, 13000)):
        assert kept_plan(METHODS, problem, name, driver) is None, (name, driver)
    others: list[dict[str, Any]] = [{"m": 602}, {"k": 513}, {"n": 641}, {"inputs": "consume"}, {"workspace": 7}]
    others += [{"dtype": "float64" if problem.dtype == "float32" else "float32"}, {"lies_evenly": not problem.lies_evenly}]
    others += [{"accumulate": True}, {"column_major": ("A",)}, {"has_gaps": True}, {"accuracy": 1e-3}]
    for other in others:
        assert kept_plan(METHODS, replace(problem, **other), MINE.name, 13000) is None, other


LIMITS: list[dict[str, Any]] = [
    *({}, {"workspace": 0}, {"workspace": 1}, {"inputs": "restore"}, {"accuracy": 1}, {"accuracy": 1e-3}, {"accuracy": "classical"}),
    *({"accumulate": True}, {"column_major": ("A",)}, {"column_major": ("A", "C")}, {"has_gaps": True}),
]


def test_plans_within_other_limits_stand_beside_each_other() -> None:
    plans = [timed(replace(EVEN, **limits), "winograd") for limits in LIMITS]
    for plan in plans:
        keep_plan(plan, 13000)
    assert [kept_plan(METHODS, plan.problem, MINE.name, 13000) for plan in plans] == plans


def test_a_file_in_the_place_of_another_is_not_used() -> None:
    path = keep_plan(timed(EVEN, "winograd"), 13000)
    for problem, name in ((replace(EVEN, m=601), MINE.name), (EVEN, "Other")):
        other = kept_plan_at(problem, name, 13000)
        assert other is not None
        other.parent.mkdir(exist_ok=True)
        other.write_bytes(path.read_bytes())
        assert kept_plan(METHODS, problem, name, 13000) is None


def test_auto_runs_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_description(MINE, 13000)
    even, odd = timed(EVEN, "winograd"), timed(ODD, "strassen")
    for plan in (even, odd):
        keep_plan(plan, 13000)
    gpu(monkeypatch, MINE.name, 13000)
    assert bilinear.plan(600, 512, 640) == bilinear.plan(np.int64(600), 512, 640, explain=True) == even  # type: ignore[arg-type]
    limits: dict[str, Any] = {"inputs": "restore", "workspace": 10**6}
    assert bilinear.plan(601, 511, 77, np.float32, **limits) == odd
    a, b, c = np.empty((600, 512)), np.empty((512, 640)), np.empty((600, 640))
    assert auto.plan_for(layouts_of(a, b, None), "preserve", None) == auto.plan_for(layouts_of(a, b, c), "preserve", None) == even
    left, right = np.empty((601, 511), "float32"), np.empty((511, 77), "float32")
    assert auto.plan_for(layouts_of(left, right, None), "restore", 10**6) == odd

    modelled = make_plan(EVEN, MINE)
    assert modelled.is_library, "or the test shows nothing"
    assert bilinear.plan(600, 512, 640, device=MINE) == modelled, "that device is not said to be here"
    assert bilinear.plan(600, 512, 640, levels=("strassen",)).chosen.levels == ("strassen",)
    assert bilinear.plan(600, 512, 640, accumulate=True).is_library and bilinear.plan(600, 512, 640, accuracy=1.0).is_library
    stacked, wide = np.empty((2, 600, 512)), np.empty((600, 641))[:, :640]
    others: list[tuple[Any, ...]] = [(stacked, b, None), (stacked[:1], b, None), (a, np.empty((2, 512, 640)), None)]
    others += [(np.empty((512, 600)).T, b, None), (a, b, np.empty((640, 600)).T), (a, b, wide), (a, b, c, True)]
    others += [(np.empty((600, 513))[:, :512], b, None), (a, wide[:512], None), (np.empty((1200, 512))[::2], b, None)]
    for x, y, out, *accumulate in others:
        found = auto.plan_for(layouts_of(x, y, out), "preserve", None, *accumulate)
        assert found is not None and not found.chosen.why.startswith("timed")
    for x, y in ((np.stack([left] * 2), right), (left, np.stack([right] * 2)), (left[None], right[None])):  # whose rows lie as unevenly
        found = auto.plan_for(layouts_of(x, y, None), "restore", 10**6)
        assert found is not None and not found.chosen.why.startswith("timed")


def test_what_is_kept_is_not_used_where_a_description_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_plan(timed(EVEN, "winograd"), 13000)
    keep_plan(replace(timed(EVEN, "winograd"), device=H200.name), 13000)
    gpu(monkeypatch, H200.name, 13000)
    assert not bilinear.plan(600, 512, 640).is_library
    a, b = np.empty((600, 512)), np.empty((512, 640))
    named = str(kept_at(MINE.name, 13000))
    keep_description(MINE, 13000)
    for name in ("h200", named):
        monkeypatch.setenv("BILINEAR_DEVICE", name)
        assert bilinear.plan(600, 512, 640).is_library
        found = auto.plan_for(layouts_of(a, b, None), "preserve", None)
        assert found is not None and found.is_library
    monkeypatch.delenv("BILINEAR_DEVICE")
    assert not bilinear.plan(600, 512, 640).is_library


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda value: value.update(implementation_sha256="0" * 64), "E546"),
        (lambda value: value["sha256"][0].__setitem__(1, "0" * 64), "E546"),
        (lambda value: value.update(version="0.0.0"), "E546"),
        (lambda value: value.update(format="bilinear-plan/4"), "E545"),
        (lambda value: value["candidates"][1].update(ms="soon"), "E545"),
    ],
)
def test_a_plan_that_would_run_otherwise_is_told_and_not_used(
    change: Any, code: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keep_description(MINE, 13000)
    path = keep_plan(timed(EVEN, "winograd"), 13000)
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))
    gpu(monkeypatch, MINE.name, 13000)
    with caplog.at_level(logging.WARNING, "bilinear"):
        assert bilinear.plan(600, 512, 640) == bilinear.plan(600, 512, 640) == make_plan(EVEN, MINE)
    assert [record.levelname for record in caplog.records] == ["WARNING"], "once"
    assert "a plan is not used" in caplog.text and code in caplog.text and str(path) in caplog.text


def test_a_plan_that_cannot_be_read_is_told_and_not_used(caplog: pytest.LogCaptureFixture) -> None:
    path = keep_plan(timed(EVEN, "winograd"), 13000)
    path.unlink()
    with caplog.at_level(logging.WARNING, "bilinear"):
        assert kept_plan(METHODS, EVEN, MINE.name, 13000) is None and not caplog.records, "a file that was removed"
        path.mkdir()
        assert kept_plan(METHODS, EVEN, MINE.name, 13000) is None
        assert "a plan is not used" in caplog.text and "E545" in caplog.text
        assert kept_plan(METHODS, replace(EVEN, workspace=10**300), MINE.name, 13000) is None, "a name that no file can have"


def test_the_command_keeps_and_prints(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shell = Shell(monkeypatch, capsys)
    monkeypatch.setattr(describe_device, "tune_here", lambda progress: MINE)
    gpu(monkeypatch, MINE.name, 13000)
    status, out, _ = shell("tune")
    assert (status, out) == (0, device_json(MINE)) and kept_description(MINE.name, 13000) is None
    status, out, _ = shell("tune", "--keep", "-o", tmp_path / "mine.json")
    assert status == 0 and "kept in" in out and load_device(str(tmp_path / "mine.json")) == MINE
    assert kept_description(MINE.name, 13000) == MINE
