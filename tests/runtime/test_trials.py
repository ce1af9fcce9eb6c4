"""BILINEAR_MEASURE on a pretended GPU: each plan gets its turns in the caller's calls, and the fastest is kept."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from runtime.pretended_gpu import Array, Gpu, undescribed

import bilinear
from bilinear.errors import BilinearError
from bilinear.planner.device import Device, Policy
from bilinear.planner.device_files import load_device
from bilinear.planner.kept_plans import kept_plan_at
from bilinear.planner.plan import Plan
from bilinear.planner.problem import Problem
from bilinear.runtime import auto, decide, devices_here, repeat, trials

N, NAME, DRIVER = 64, "a pretended GPU", 13000
H200 = load_device("h200")
SLOW = tuple((dtype, replace(rates, library=((1.0, 0.001),))) for dtype, rates in H200.elements)
DESCRIBED = replace(H200, policy=Policy(least_block=16), digits=(), thin=(), elements=SLOW)
"""Where schedules gain at this size, also those that write A and B."""
ESTIMATE = replace(DESCRIBED, estimate="a data sheet")
Ran = tuple[tuple[str, ...], int]
"""The names of the kernels that a call launched, and how often it called the library."""


class Clock:
    """Events of a GPU on which one plan is the fastest, by what each call runs."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.fast, self.timed = gpu, list[Ran](), list[Ran]()

    def ran(self, start: tuple[int, int]) -> Ran:
        return tuple(name for name, _ in self.gpu.launches[start[0] :]), self.gpu.library - start[1]

    def here(self) -> tuple[int, int]:
        return len(self.gpu.launches), self.gpu.library

    def elapsed(self, start: Any, end: Any) -> float:
        names = tuple(name for name, _ in self.gpu.launches[start.at[0] : end.at[0]])
        self.timed.append((names, end.at[1] - start.at[1]))
        return 1.0 if self.timed[-1] in self.fast else 5.0

    def event(self) -> Any:
        clock = self

        class Event:
            at = 0, 0

            def record(self) -> None:
                assert not clock.gpu.is_capturing, "an event would become part of the graph"
                self.at = clock.here()

            def synchronize(self) -> None:
                pass

        return Event()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[Clock]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("BILINEAR_MEASURE", raising=False)
    for name, value in {"LEAST_MS": 0.0, "NEAR": 1e9, "LIBRARY_NEAR": 1e9}.items():  # no size here is worth a trial, or near
        monkeypatch.setattr(trials, name, value)
    with undescribed(monkeypatch) as gpu:
        clock = Clock(gpu)
        monkeypatch.setattr(sys.modules["cupy.cuda"], "Event", clock.event, raising=False)
        monkeypatch.setattr(sys.modules["cupy.cuda"], "get_elapsed_time", clock.elapsed, raising=False)
        describe(monkeypatch, ESTIMATE)
        yield clock
        forget()


def describe(monkeypatch: pytest.MonkeyPatch, device: Device) -> None:
    monkeypatch.setattr(devices_here, "_described", lambda named, index: device)
    forget()


def forget() -> None:
    """As a new process."""
    for held in (auto.measured, trials._open, decide._decisions, repeat._repeats):
        held.clear()
    auto._chosen.cache_clear()
    auto._logged.cache_clear()


def integers(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype(float)


def call(clock: Clock, **options: Any) -> Ran:
    """A product that must be right, and what it ran. A and B are as they were, if they are to be."""
    beta = options.get("beta", 0)
    a, b, c = (integers(N, N) + number for number in range(3))
    left, right, out, start = Array(a.copy()), Array(b.copy()), Array(c.copy()), clock.here()
    bilinear.matmul(left, right, out, **options)
    np.testing.assert_array_equal(out.host, a @ b + beta * c)
    if options.get("inputs") != "consume":
        np.testing.assert_array_equal(left.host, a)
        np.testing.assert_array_equal(right.host, b)
    return clock.ran(start)


def kept(**limits: Any) -> Plan | None:
    path = kept_plan_at(Problem(N, N, N, "float64", **limits), NAME, DRIVER)
    assert path is not None
    return bilinear.load_plan(path) if path.exists() else None


@pytest.mark.parametrize("winner", range(4))
@pytest.mark.parametrize(
    ("options", "limits"),
    [({}, {}), ({"beta": 2, "accuracy": "classical"}, {"accumulate": True, "accuracy": "classical"})],
    ids=["plain", "beta"],
)
def test_the_first_calls_find_the_plan_that_is_fastest_here(
    clock: Clock, caplog: pytest.LogCaptureFixture, options: dict[str, Any], limits: dict[str, Any], winner: int
) -> None:
    """Whichever that is: each plan runs `ROUNDS` times, is timed but for the first, and no call runs more than one."""
    caplog.set_level(logging.INFO, "bilinear")
    first = [call(clock, **options) for _ in range(4)]
    assert len(set(first)) == 4 and kept(**limits) is None, first
    clock.fast.append(first[winner])
    assert [call(clock, **options) for _ in range(4 * (trials.ROUNDS - 1))] == first * (trials.ROUNDS - 1)
    assert sorted(clock.timed) == sorted(first * (trials.ROUNDS - 1))
    assert [call(clock, **options) for _ in range(3)] == [first[winner]] * 3
    found = kept(**limits)
    assert found is not None and found.is_timed and found.chosen.ms == 1.0 and [c.ms for c in found.candidates[1:]] == [5.0] * 3
    assert caplog.text.count("measured on a pretended GPU") == 1 and not trials.is_open()
    assert auto.plan(N, N, N, "float64", accuracy=limits.get("accuracy"), accumulate="accumulate" in limits) == found
    forget()
    assert call(clock, **options) == first[winner] and len(clock.timed) == 4 * (trials.ROUNDS - 1), "a later process reads it"


def test_the_library_stays_unless_a_plan_gains_what_is_above_noise(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["cupy.cuda"], "get_elapsed_time", lambda start, end: 5.0 if clock.here()[1] else 4.95)
    turns = [call(clock) for _ in range(4 * trials.ROUNDS)]
    assert call(clock) == turns[3] and turns[3][1] == 1


@pytest.mark.parametrize(
    ("variable", "device", "turns"),
    [
        ("", ESTIMATE, True),
        ("first", ESTIMATE, True),
        ("first", DESCRIBED, True),
        ("always", DESCRIBED, True),
        ("never", ESTIMATE, False),
        ("", DESCRIBED, False),
        ("never", DESCRIBED, False),
    ],
)
def test_when_calls_are_measured(clock: Clock, monkeypatch: pytest.MonkeyPatch, variable: str, device: Device, turns: bool) -> None:
    """`always` measures anew in each process, `first` only what was never measured."""
    describe(monkeypatch, device)
    if variable:
        monkeypatch.setenv("BILINEAR_MEASURE", variable)
    calls = 4 * trials.ROUNDS if turns else 2
    assert len({call(clock) for _ in range(calls)}) == (4 if turns else 1) and (kept() is not None) is turns
    forget()
    assert len({call(clock) for _ in range(4)}) == (4 if variable == "always" else 1)


def test_what_is_short_captured_or_needs_fixed_bits_is_not_measured(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A captured call neither takes a turn nor keeps the next one from it."""
    a, b, out = (Array(integers(N, N)) for _ in range(3))
    with clock.gpu.using(is_capturing=True, allocate=clock.gpu.malloc_async):
        for _ in range(3):
            bilinear.matmul(a, b, out)
    for _ in range(2):
        bilinear.matmul(a, b, out, reproducible="bitwise")
    assert all(not runs for trial in trials._open.values() for runs in trial.runs)
    assert len({call(clock) for _ in range(4)}) == 4
    monkeypatch.setattr(trials, "LEAST_MS", 1.0)
    forget()
    assert len({call(clock) for _ in range(4)}) == 1 and not trials.is_open()


def test_what_is_built_behind_the_caller_waits_for_its_turn(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody takes the library, which stands in, for the plan; `settle` ends with the trial."""
    monkeypatch.setenv("BILINEAR_BUILD", "behind")
    monkeypatch.setattr("bilinear.runtime.ahead.is_built", lambda plan, target: False)
    assert {call(clock) for _ in range(4)} == {((), 1)} and not any(runs for trial in trials._open.values() for runs in trial.runs)
    monkeypatch.setattr("bilinear.runtime.ahead.is_built", lambda plan, target: True)
    turns: list[Ran] = []
    trials.settle(lambda: turns.append(call(clock)), ESTIMATE)
    assert len(turns) == 4 * trials.ROUNDS and len(set(turns)) == 4 and kept() is not None


@pytest.mark.parametrize("inputs", ["restore", "consume"])
def test_plans_that_write_their_operands_run_once_a_call(clock: Clock, monkeypatch: pytest.MonkeyPatch, inputs: str) -> None:
    options = {"inputs": inputs, "workspace": 0}
    plan = auto.plan(N, N, N, "float64", inputs=inputs, workspace=0)
    tried = trials._tried(plan)
    assert any(c.promise != "preserve" for c in tried), [c.name for c in tried]
    first = [call(clock, **options) for _ in tried]
    clock.fast.append(first[1])
    for _ in range(len(tried) * (trials.ROUNDS - 1)):
        call(clock, **options)
    assert call(clock, **options) == first[1] and kept(inputs=inputs, workspace=0) is not None


def test_a_plan_that_cannot_run_is_tried_once(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library multiplies in its place, and its time is not taken for that of the plan."""
    ready_schedule = sys.modules["bilinear.runtime.multiply"].ready_schedule
    broken = auto.plan(N, N, N, "float64").chosen.levels

    def fails(options: Any, decision: Any, recipe: Any, *rest: Any) -> Any:
        if tuple(loaded.scheme.name for loaded in recipe.algorithms) == broken:
            raise BilinearError([])
        return ready_schedule(options, decision, recipe, *rest)

    monkeypatch.setattr("bilinear.runtime.multiply.ready_schedule", fails)
    turns = [call(clock) for _ in range(1 + 3 * trials.ROUNDS)]
    assert turns[0] == ((), 1) and len(set(turns[1:4])) == 3
    found = kept()
    assert found is not None and len(found.candidates) == 3 and broken not in [c.levels for c in found.candidates]


def test_a_wrong_word_or_call_changes_nothing(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, out = (Array(integers(N, N)) for _ in range(3))
    before = out.host.copy()
    with pytest.raises(BilinearError, match="E530"):
        bilinear.matmul(a, b, Array(integers(N, N).astype("int32")))
    assert not any(runs for trial in trials._open.values() for runs in trial.runs)
    forget()
    monkeypatch.setenv("BILINEAR_MEASURE", "sometimes")
    with pytest.raises(BilinearError, match=r"E548.*sometimes"):
        bilinear.matmul(a, b, out)
    np.testing.assert_array_equal(out.host, before)
    assert not clock.gpu.launches and not clock.gpu.library and not trials.is_open() and kept() is None


def test_without_a_place_the_process_remembers(clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    turns = [call(clock) for _ in range(4)]
    clock.fast.append(turns[2])
    for _ in range(4 * (trials.ROUNDS - 1)):
        call(clock)
    assert call(clock) == turns[2]
