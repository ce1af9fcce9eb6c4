"""The pilots of execution modes on a real GPU. Skipped without one."""

from __future__ import annotations

import pytest

from bilinear.ir.placement import AGAIN, GROUPS, KERNELS
from bilinear.measure.mode_pilots import EACH, SMALL_SIZE, Pilot, PilotPlan, pilots
from bilinear.measure.mode_stand import time_pilots, time_plan

pytestmark = pytest.mark.gpu


def test_the_pilot_kernel_takes_longer_for_more_elements() -> None:
    times = time_pilots(pilots(2), rounds=3)
    assert set(times) == set(pilots(2)) and min(times.values()) > 0
    assert times[Pilot(1, 32, 0)] < times[Pilot(1, 32)] < times[Pilot(1, 32, 16 * EACH)]


@pytest.mark.parametrize("mode", AGAIN)
def test_each_stage_of_a_plan_is_exact_and_timed(mode: str) -> None:
    assert all(us > 1 for us in time_plan(PilotPlan(mode, "float32", 512), rounds=3))


def test_small_plans_are_timed_as_graphs() -> None:
    (one,), (many,) = (time_plan(PilotPlan(mode, "float32", SMALL_SIZE), rounds=3) for mode in (GROUPS, KERNELS))
    assert 1 < one < many, "more kernels for the same tasks"
