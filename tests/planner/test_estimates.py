"""Estimates of GPUs that nobody has measured: from data sheets, and from what a driver reports."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from each_case import each
from runtime.pretended_gpu import forget_devices

from bilinear.backends import doctor
from bilinear.backends.machine import description
from bilinear.ir.thin_tile import THIN_TILES
from bilinear.methods.planning import make_plan
from bilinear.planner.device import LEAST_CAPABILITY
from bilinear.planner.device_files import data_sheets, device_json, device_named, known_devices, load_device, parse_device, shipped_devices
from bilinear.planner.estimates import REPORTED, WIDE, DataSheet, data_sheet, estimate
from bilinear.planner.kept_plans import keep_description
from bilinear.planner.problem import Problem
from bilinear.reporting.plans import plan_table
from bilinear.runtime import auto, devices_here

H200 = load_device("h200")
H100 = load_device("h100")
ESTIMATED = tuple(short for short in known_devices() if short not in shipped_devices())
H200_ATTRIBUTES = {
    "MultiProcessorCount": 132,
    "L2CacheSize": H200.l2,
    "MaxSharedMemoryPerBlockOptin": H200.shared,
    "ClockRate": 1_980_000,
    "MemoryClockRate": 3_201_000,
    "GlobalMemoryBusWidth": 6144,
}


def pretend(monkeypatch: pytest.MonkeyPatch, name: str, capability: str = "90", **attributes: int) -> None:
    """A CuPy with a GPU of this name, which reports the attributes of an H200 but for these."""
    runtime = SimpleNamespace(
        getDeviceProperties=lambda index: {"name": name.encode(), "totalGlobalMem": 80 * 10**9}, driverGetVersion=lambda: 13000
    )
    device = SimpleNamespace(id=0, compute_capability=capability, attributes=H200_ATTRIBUTES | attributes)
    cuda = SimpleNamespace(Device=lambda *_: device, runtime=runtime, is_available=lambda: True)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda, __version__="14.2"))
    forget_devices()


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("BILINEAR_DEVICE", raising=False)
    forget_devices()
    yield
    forget_devices()


def test_the_measured_gpu_scaled_to_itself_is_itself_but_for_the_margins() -> None:
    """But for these, what is not estimated, and the thin tiles that not every estimated GPU can run."""
    sheet = data_sheets()["h100"]
    found, known = estimate(sheet, H100, sheet), H100
    able = {dtype: {name for name, t in tiles.items() if t.runs_on(LEAST_CAPABILITY)} for dtype, tiles in THIN_TILES.items()}
    thin = tuple((dtype, replace(r, tiles=tuple(own for own in r.tiles if own.name in able[dtype]))) for dtype, r in known.thin)
    same = replace(found, policy=H100.policy, estimate="", memory=H100.memory, by_warps=H100.by_warps)
    assert same == replace(known, thin=thin)
    assert found.policy == WIDE and WIDE.least_gain > H100.policy.least_gain and WIDE.least_gain_digits > H100.policy.least_gain_digits


def test_rates_follow_the_data_sheets() -> None:
    a100 = load_device("a100")
    assert a100.bandwidth / H100.bandwidth == pytest.approx(2039 / 3350)
    assert a100.rates("float32").library[-1][1] / H100.rates("float32").library[-1][1] == pytest.approx(19.5 / 67)
    assert a100.rates("float64").product[-1][1] / H100.rates("float64").product[-1][1] == pytest.approx(19.5 / 67)
    assert dict(a100.thin)["float64"].pipes / dict(H100.thin)["float64"].pipes == pytest.approx(9.7 / 34)
    doubles = a100.rates("float32").tile("doubles-usual").share[0][1] / H100.rates("float32").tile("doubles-usual").share[0][1]
    assert doubles == pytest.approx(1), "float32 and the units for doubles are as fast on both"
    (slow,) = (own.share[0][1] for own in load_device("l40s").rates("float32").tiles if own.name == "doubles-usual")
    assert slow < 0.05, "the units for doubles are of no use there"
    for name, peak in (("pairs", 312 / 989), ("residues of float64", 624 / 1979)):
        ours, theirs = dict(a100.digits)[name], dict(H100.by_warps)[name]
        assert ours.product[-1][1] / theirs.product[-1][1] == pytest.approx(2 * peak), "warps reach half of what an H100's units do"
    h20 = dict(load_device("h20").digits)["pairs_on_load"].product[0][1]
    reference = min(("h100", "h200"), key=lambda short: abs(data_sheets()[short].bandwidth - 4000))
    assert h20 / dict(load_device(reference).digits)["pairs_on_load"].product[0][1] == pytest.approx(148 / 989)


@each("short", ["a10", "a40", "rtx3090", "l4", "l40s", "rtx4090", "rtx6000ada", "rtx5090", "rtxpro6000", "gb10"])
def test_where_float64_is_slow_residues_multiply_it(short: str) -> None:
    library, chosen = (
        next(c for c in make_plan(Problem(8192, 8192, 8192), load_device(short)).candidates if c.is_library is is_library)
        for is_library in (True, False)
    )
    assert chosen.tile == "residues14" and 10 < (library.ms or 0.0) / (chosen.ms or 1.0) < 40


@each("short", ["k20c", "k40c", "m40", "p100", "v100", "t4", "gtx1660ti"])
def test_before_sm_80_all_is_left_to_the_library(short: str) -> None:
    for problem in (
        Problem(8192, 8192, 8192, "float32", accuracy="classical"),
        Problem(10**6, 8, 8),
        Problem(8192, 8192, 8192, workspace=0),
    ):
        plan = make_plan(problem, load_device(short), explain=True)
        assert [c.name for c in plan.candidates] == ["library"] and "an estimate" in plan.device


@each("name", ESTIMATED)
def test_shipped_estimates_say_what_they_are_and_can_be_kept(name: str) -> None:
    device = load_device(name)
    assert device_named(device.name) == device and device.policy == WIDE
    assert any(word in device.estimate for word in ("data sheet", "white paper", "specification"))
    assert parse_device(device_json(device).encode(), name) == device
    plan = make_plan(Problem(16384, 16384, 16384, "float32"), device)
    assert f"{device.name}, an estimate" in plan_table(plan)
    assert set(shipped_devices()) == {"h100", "h200"}


def test_tiles_that_do_not_fit_into_shared_memory_are_not_weighed() -> None:
    small = load_device("rtx4090")
    assert "large" in H200.tiles("float64") and "large" not in small.tiles("float64")
    assert small.rates("float64").tile("usual").blocks < H200.rates("float64").tile("usual").blocks
    for problem in (Problem(20_000, 20_000, 4, "float64"), Problem(8, 10**6, 8)):
        tiles = {c.tile for c in make_plan(problem, small, explain=True).candidates if c.strategy == "thin"}
        assert tiles < {c.tile for c in make_plan(problem, H200, explain=True).candidates if c.strategy == "thin"}


def test_a_gpu_of_no_known_name_is_estimated_from_what_its_driver_reports(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    pretend(monkeypatch, "NVIDIA H800", MultiProcessorCount=66)
    with caplog.at_level(logging.INFO, "bilinear"):
        device = devices_here.current_device()
        assert devices_here.current_device() is device
    assert device is not None and device.title == "NVIDIA H800, an estimate" and device.memory == 80 * 10**9
    assert device.bandwidth == pytest.approx(H200.bandwidth, rel=0.03)
    assert device.rates("float32").product[-1][1] == pytest.approx(H200.rates("float32").product[-1][1] / 2, rel=0.01)
    assert dict(device.digits)["pairs"].product[-1][1] == pytest.approx(dict(H200.digits)["pairs"].product[-1][1] / 2, rel=0.1)
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith("the description of NVIDIA H800 is an estimate (properties that the driver reports)")
    assert "`bilinear tune --keep` replaces it, and takes about" in line
    plan = auto.plan(10**6, 8, 8, "float32")
    assert plan.chosen.strategy == "thin" and plan.device == "NVIDIA H800, an estimate"


def test_a_measured_description_takes_the_place_of_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "NVIDIA H100 80GB HBM3")
    assert devices_here.current_device() == load_device("h100")
    mine = replace(H200, name="NVIDIA H100 80GB HBM3")
    keep_description(mine, 13000)
    forget_devices()
    assert devices_here.current_device() == mine


def test_old_and_silent_gpus_have_no_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    for capability, attributes in (("75", {}), ("90", {"MemoryClockRate": 0})):
        pretend(monkeypatch, "a GPU", capability, **attributes)
        assert devices_here.current_device() is None and description("a GPU", 13000) is None
    found = data_sheet("x", 120, 10, 1, 1, 1, 1000, 1000, 100)
    assert found == DataSheet("x", 120, 10, 1, 1, 1, 1000, 25, 2.56, 0.04, 0.04, 5.12, 5.12, 2.56, 20.48, REPORTED)


def test_doctor_says_by_what_it_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "why_no_gpu", lambda: None)
    for name, told in (
        ("NVIDIA A100-SXM4-80GB", "an estimate (NVIDIA A100 Tensor Core GPU, data sheet"),
        ("NVIDIA H200", "a measured description of NVIDIA H200"),
    ):
        pretend(monkeypatch, name)
        (found,) = doctor._description()
        assert found.usable and found.detail.startswith(told)
    pretend(monkeypatch, "an old GPU", "70")
    (found,) = doctor._description()
    assert not found.usable and found.remedy == "bilinear tune --keep"
