"""Times of the pilots of execution modes on a device that obeys the cost model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from bilinear.measure.mode_pilots import Pilot, PilotPlan, placed
from bilinear.planner.device import Device, ModeRates
from bilinear.planner.mode_model import Steps, extended_seconds, published

AGAIN = (("S-M-T", 9e3), ("S-T-M", 5e3), ("M-M-M", 6e3))
TRUE = ModeRates(132, 256, 8, 0.02, 0.125, 0.25, 1.5, AGAIN, (("float64", 12.0), ("float32", 24.0)))
"""Rates of a device on which more threads of a block take longer."""


def pilot_times(runs: Iterable[Pilot], rates: ModeRates) -> dict[Pilot, float]:
    """By equation 4.1. Empty blocks of a whole step begin as one; a pilot also has the latency of a launch."""
    return {
        pilot: 3 + published([Steps(pilot.groups, pilot.items // (32 if pilot.apart else 1), pilot.each, 1, alike=not pilot.apart)], rates)
        for pilot in runs
    }


def plan_times(plan: PilotPlan, rates: ModeRates, device: Device) -> list[float]:
    """By the extension, in which threads start in no time."""
    launches, placement = placed(plan.mode, plan.dtype, plan.size)
    rates = replace(rates, item=0.0)
    stages = [1e6 * seconds for seconds in extended_seconds(launches, placement, plan.dtype, replace(device, modes=rates))]
    return [sum(stages)] if plan.is_small else stages
