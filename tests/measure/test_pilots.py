"""Pilots: from the times of a device that obeys the model, its rates come out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from mode_model import Steps, extended_seconds, published
from pilots import FREE, LARGE_SIZE, SMALL_SIZE, Pilot, PilotPlan, pilot_plans, pilots, placed, rates_of

from bilinear.ir.placement import KERNELS
from bilinear.planner.device import Device, ModeRates
from bilinear.planner.device_files import load_device

AGAIN = (("S-M-T", 9e3), ("S-T-M", 5e3), ("M-M-M", 6e3))
TRUE = ModeRates(132, 256, 8, 0.02, 0.125, 0.25, 1.5, AGAIN, (("float64", 12.0), ("float32", 24.0)))


def device(rates: ModeRates) -> Device:
    return replace(load_device("h200"), modes=rates)


def times_of(rates: ModeRates) -> dict[Pilot, float]:
    """By equation 4.1. Empty blocks of a whole step begin as one; what runs alone has the latency of a launch, too."""
    return {
        pilot: 3 + published([Steps(pilot.groups, pilot.items // (32 if pilot.apart else 1), pilot.each, 1, alike=not pilot.apart)], rates)
        for pilot in pilots(rates.groups)
    }


def stages_of_plans(rates: ModeRates) -> dict[PilotPlan, list[float]]:
    found = {}
    for plan in pilot_plans():
        launches, placement = placed(plan.mode, plan.dtype, plan.size)
        stages = [1e6 * seconds for seconds in extended_seconds(launches, placement, plan.dtype, device(rates))]
        found[plan] = stages if plan.size > SMALL_SIZE else [sum(stages)]
    return found


def test_the_rates_of_a_device_that_obeys_the_model_come_out() -> None:
    found = rates_of(times_of(replace(TRUE, item=0.0)), stages_of_plans(replace(TRUE, item=0.0)), device(TRUE))
    assert (found.groups, found.items, found.warps) == (132, 256, 8)
    assert found.single == pytest.approx(0.25)
    assert found.branch == pytest.approx(1.5, rel=1e-3), "the two modes do not read again at one rate"
    assert dict(found.again) == pytest.approx(dict(AGAIN), rel=1e-3)
    assert dict(found.warp_tile) == pytest.approx(dict(TRUE.warp_tile))
    assert found.group == pytest.approx(0.02) and found.item == 0


def test_the_time_to_start_threads_is_told_from_empty_blocks() -> None:
    times = times_of(TRUE)
    assert rates_of(times, stages_of_plans(replace(TRUE, item=0.0)), device(TRUE)).item == pytest.approx(0.125)


def test_where_more_threads_never_take_longer_all_run_at_the_same_time() -> None:
    wide = replace(TRUE, items=1024, warps=32, item=0.0)
    found = rates_of(times_of(wide), stages_of_plans(wide), device(wide))
    assert (found.items, found.warps, found.item) == (1024, 32, 0.0)


def test_reading_again_that_takes_no_time_has_a_rate_without_meaning() -> None:
    free = replace(TRUE, again=tuple((mode, 1e15) for mode, _ in AGAIN), item=0.0)
    assert dict(rates_of(times_of(free), stages_of_plans(free), device(free)).again)[KERNELS] == pytest.approx(FREE)


def test_pilot_plans_are_large_enough_to_be_all_traffic() -> None:
    _, placement = placed(KERNELS, "float32", LARGE_SIZE)
    assert 4 * placement.block[0] ** 2 > load_device("h200").l2, "a block that is read again has left the cache"
