"""Pilots of execution modes: the rates of a device that obeys the cost model follow from its times."""

from __future__ import annotations

from dataclasses import replace

import pytest
from measure.modes_by_model import AGAIN, TRUE, pilot_times, plan_times

from bilinear.ir.placement import KERNELS
from bilinear.measure.mode_pilots import FREE, LARGE_SIZE, Pilot, PilotPlan, pilot_plans, pilots, placed, rates_of
from bilinear.planner.device import ModeRates
from bilinear.planner.device_files import load_device

H200 = load_device("h200")
WIDE = replace(TRUE, items=1024, warps=32, item=0.0)
"""Rates of a device on which all threads of a block run at the same time."""


def times_of(rates: ModeRates) -> dict[Pilot, float]:
    return pilot_times(pilots(rates.groups), rates)


def stages_of_plans(rates: ModeRates) -> dict[PilotPlan, list[float]]:
    return {plan: plan_times(plan, rates, H200) for plan in pilot_plans()}


def test_the_rates_of_a_device_that_obeys_the_model_come_out() -> None:
    found = rates_of(times_of(replace(TRUE, item=0.0)), stages_of_plans(TRUE), H200)
    assert (found.groups, found.items, found.warps) == (132, 256, 8)
    assert found.single == pytest.approx(0.25)
    assert found.branch == pytest.approx(1.5, rel=1e-3), "the two modes do not read again at one rate"
    assert dict(found.again) == pytest.approx(dict(AGAIN), rel=1e-3)
    assert dict(found.warp_tile) == pytest.approx(dict(TRUE.warp_tile))
    assert found.group == pytest.approx(0.02) and found.item == 0


def test_the_time_to_start_threads_follows_from_empty_blocks() -> None:
    assert rates_of(times_of(TRUE), stages_of_plans(TRUE), H200).item == pytest.approx(0.125)


def test_where_more_threads_never_take_longer_all_run_at_the_same_time() -> None:
    found = rates_of(times_of(WIDE), stages_of_plans(WIDE), H200)
    assert (found.items, found.warps, found.item) == (1024, 32, 0.0)


def test_reading_again_that_takes_no_time_has_a_rate_without_meaning() -> None:
    free = replace(TRUE, again=tuple((mode, 1e15) for mode, _ in AGAIN), item=0.0)
    assert dict(rates_of(times_of(free), stages_of_plans(free), H200).again)[KERNELS] == pytest.approx(FREE)


def test_no_pilot_is_timed_in_vain() -> None:
    """Each of them changes a rate if it takes three times as long, or a third of the time, on one of the two devices."""
    ignored: set[Pilot | PilotPlan] = {*pilots(TRUE.groups), *pilot_plans()}
    for rates in (TRUE, WIDE):
        times, stages = times_of(rates), stages_of_plans(rates)
        known = rates_of(times, stages, H200)
        for factor in (3, 1 / 3):
            ignored -= {pilot for pilot, us in times.items() if rates_of({**times, pilot: factor * us}, stages, H200) != known}
            slower = {plan: {**stages, plan: [factor * us for us in own]} for plan, own in stages.items()}
            ignored -= {plan for plan, changed in slower.items() if rates_of(times, changed, H200) != known}
    assert not ignored


def test_pilot_plans_are_large_enough_to_be_all_traffic() -> None:
    _, placement = placed(KERNELS, "float32", LARGE_SIZE)
    assert 4 * placement.block[0] ** 2 > H200.l2, "a block that is read again has left the cache"
