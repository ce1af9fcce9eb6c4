"""The gain on this machine: on a GPU, a multiply timed beside the library's at a size with an expected gain; elsewhere the expectation."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from bilinear.backends.doctor import why_no_gpu
from bilinear.errors import BilinearError
from bilinear.ir.measurement import LeftOut, Measurement
from bilinear.measure.bench import Effort, measure
from bilinear.measure.bench_tasks import BenchCase, BenchTask, build_ahead
from bilinear.methods.planning import make_plan
from bilinear.planner.device import Device
from bilinear.planner.device_files import load_device
from bilinear.planner.plan import Plan
from bilinear.planner.problem import Problem
from bilinear.runtime import devices_here
from bilinear.runtime.devices_here import uses_library

SIZES = 2048, 4096, 8192, 16384
DTYPES = "float32", "float64"
MOST_LIBRARY_MS = 60.0
"""The library's time at the largest size: a demonstration takes some twenty multiplies, and lasts seconds."""
SHARE = 0.5  # The part of the device's memory that A, B, C, the library's result and the workspace may take.
EFFORT = Effort(rounds=5, problem_ms=3000.0, launches=False)
EXAMPLE = "h200"  # The device of the report if there is no GPU.


def gain(device: Device) -> list[str]:
    """Measure at the size with the largest expected gain, and report the result in lines; a failed check is reported without a time."""
    plan = most_gain(device)
    if plan is None:
        return [f"gain: none expected on this GPU ({device.name}) at N = {SIZES[0]} to {SIZES[-1]}: `auto` is the library's multiply"]
    p = plan.problem
    task = BenchTask((p.m, p.k, p.n), p.dtype, (BenchCase(),))
    build_ahead([task], device)
    return [line for found in measure([task], device, EFFORT) for line in _told(found)]


def _told(found: Measurement | LeftOut) -> Iterable[str]:
    if isinstance(found, LeftOut):
        return [f"{found.what} was not measured: {found.why}"]
    size = f"N = {found.shape[0]}, {found.dtype}"
    if not found.trust.holds:
        return [f"{size}: {found.plan} FAILED its check, so there is no time"]
    speed = f"{found.ratio:.2f} times as fast" if found.ratio >= 1 else f"slower ({found.ratio:.2f} times as fast)"
    measured = f"{found.library} {found.library_ms:.2f} ms, {found.plan} {found.ms:.2f} ms: {speed}"
    return [f"gain on this GPU at {size}, checked, measured in {EFFORT.rounds} rounds beside the fastest library: {measured}"]


def most_gain(device: Device) -> Plan | None:
    """The plan with the largest expected gain over the library among those that are quick to show and fit; None if none gains."""
    plans = [make_plan(Problem(n, n, n, dtype), device) for dtype in DTYPES for n in SIZES if _fits(n, dtype, device)]
    found = [(_expected(plan), plan) for plan in plans if not plan.is_library and _library_ms(plan) <= MOST_LIBRARY_MS]
    ratio, best = max(found, key=lambda pair: pair[0], default=(0.0, None))
    return best if ratio > 1 else None


def _fits(n: int, dtype: str, device: Device) -> bool:
    bytes_each = n * n * (4 if dtype == "float32" else 8)
    return 8 * bytes_each <= SHARE * device.memory  # A, B, C, a library's C, and a workspace of some 4 N^2


def _library_ms(plan: Plan) -> float:
    return next((c.ms for c in plan.candidates if c.is_library and c.ms is not None), 0.0)


def _expected(plan: Plan) -> float:
    return _library_ms(plan) / (plan.chosen.ms or float("inf"))


def expected(why: str) -> list[str]:
    """The report without a GPU: nothing is gained here, and the expectation on a described GPU."""
    plan = most_gain(load_device(EXAMPLE))
    assert plan is not None, "the shipped description is of a device that gains"
    p = plan.problem
    gained = (
        f"{_library_ms(plan):.1f} ms by the library, {plan.chosen.ms:.1f} ms by {plan.chosen.name}: {_expected(plan):.2f} times as fast"
    )
    return [
        f"gain: none here ({why}); predicted for an {plan.device} at N = {p.n}, {p.dtype}: {gained}",
        f"next: `.venv/bin/bilinear plan --shape {p.n} --dtype {p.dtype} --device {EXAMPLE}` shows the choice; README.md leads on",
    ]


def main() -> int:
    """Report the gain on this machine."""
    why = why_no_gpu()
    if why is None and uses_library():
        why = "BILINEAR_USE_LIBRARY makes every call the library's multiply"
    device = devices_here.current_device() if why is None else None
    try:
        if why is not None:
            lines = expected(why)
        elif device is None:
            lines = [
                "gain: none, for this GPU is not described and `auto` is the library: run `bilinear tune --keep`, then `bilinear bench`"
            ]
        else:
            lines = gain(device)
    except BilinearError as error:
        print(error, file=sys.stderr)
        return 1
    print(*lines, sep="\n")
    return 1 if any("FAILED" in line for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
