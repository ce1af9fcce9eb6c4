"""The in-place schedules that are shipped: proved at several levels, exact, and what their files say of them."""

from __future__ import annotations

import re

import pytest
from oracle import computes

from bilinear.frontend import Loaded, load
from bilinear.ir.schedule import LinearStage, ProductStage, Schedule
from bilinear.lowering.prepare import runnable
from bilinear.passes.drop_restoration import drop_restoration
from bilinear.passes.fuse_linear_stages import fuse_linear_stages
from bilinear.passes.nest_levels import nest_levels
from bilinear.resources import algorithms_folder
from bilinear.scheduling.in_place.find import find_in_place
from bilinear.verify.schedule import prove_schedule

SHIPPED = {"winograd_in_place": 3, "hopcroft_kerr_in_place": 2, "laderman_in_place": 2}
"""To how many levels each is multiplied with here."""


def schedule_of(loaded: Loaded) -> Schedule:
    assert isinstance(loaded.schedule, Schedule)
    return loaded.schedule


def traffic(schedule: Schedule) -> int:
    maps = [m for stage in fuse_linear_stages(schedule).stages if isinstance(stage, LinearStage) for m in stage.maps]
    return sum(len(m.sources) + len(m.targets) for m in maps)


@pytest.mark.parametrize("name", SHIPPED)
def test_it_computes_the_product_and_recurses(name: str) -> None:
    loaded = load(name)
    schedule = schedule_of(loaded)
    assert schedule.name == name and schedule.in_place and not schedule.workspaces
    proof = prove_schedule(runnable(schedule), loaded.scheme)
    assert proof.holds and proof.recursive and proof.restored == ("A", "B")
    assert computes(runnable(schedule))
    assert computes(runnable(fuse_linear_stages(nest_levels([schedule] * 2))), trials=1)


@pytest.mark.parametrize("name", SHIPPED)
def test_its_file_says_what_it_takes(name: str) -> None:
    text = (algorithms_folder() / f"{name}.bl").read_text(encoding="utf-8")
    schedule = schedule_of(load(name))
    widths = " + ".join(str(len(stage.products)) for stage in schedule.stages if isinstance(stage, ProductStage))
    additions = sum(m.map.additions for stage in schedule.stages if isinstance(stage, LinearStage) for m in stage.maps)
    moved = f"{traffic(schedule) // 4} N^2 elements" if name.startswith("winograd") else f"{traffic(schedule)} blocks"
    assert f"{widths} products, {additions} additions on A and B with the restoration, {moved} moved." in text
    assert re.search(r"^  source ", text, re.M)


def test_a_consuming_schedule_stands_above_restoring_ones() -> None:
    restoring, consuming = schedule_of(load("winograd_in_place")), find_in_place(load("winograd").scheme, consume=True)
    assert not prove_schedule(runnable(consuming)).recursive
    mixed = drop_restoration(nest_levels([consuming, restoring]))
    lowered = runnable(fuse_linear_stages(mixed))
    assert computes(lowered, trials=1) and prove_schedule(lowered).holds
    assert traffic(mixed) < traffic(drop_restoration(nest_levels([restoring] * 2)))
