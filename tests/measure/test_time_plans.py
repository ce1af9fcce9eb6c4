"""Plans that are timed: what the search times and chooses by a table of times, and the whole of it on a pretended GPU."""

from __future__ import annotations

import json
import os
import re
import signal
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from measure.bench_gpu import SLOW_LIBRARY, Gpu, Timed, pretend
from runtime.pretended_gpu import forget_devices
from shell import Shell

import bilinear
from bilinear.errors import BilinearError, StageError, fail
from bilinear.frontend.files import shipped
from bilinear.ir.kernel import LinearKernel, ProductKernel
from bilinear.ir.launch import AnyKernel
from bilinear.ir.measurement import LeftOut
from bilinear.ir.tile import LARGE, SMALL, TILES
from bilinear.measure import bench, bench_check, describe_device, time_plans
from bilinear.measure.time_plans import AT_ONCE, FEW, FINALISTS, MOST, NEAR, ROUNDS, GpuStand, Multiprocessor, fastest
from bilinear.methods.planning import load_plan, make_plan, plan_from_json
from bilinear.methods.thin.choice import Thin
from bilinear.planner import choose, kept_plans
from bilinear.planner.device import Device, Policy
from bilinear.planner.device_files import load_device
from bilinear.planner.kept_plans import FORMAT, keep_plan, kept_at, kept_description, plan_json
from bilinear.planner.library import LIBRARY_ITSELF
from bilinear.planner.own import add, remove
from bilinear.planner.plan import LIBRARIES, Candidate, Panel, Plan
from bilinear.planner.problem import Problem
from bilinear.planner.profiles import own_ways
from bilinear.planner.scheduled import Scheduled
from bilinear.runtime import ahead, decide, devices_here

PROBLEM = Problem(4096, 4096, 4096)
HERE = replace(load_device("h200"), name="a pretended GPU", thin=(), digits=(), policy=Policy(least_timed_block=32))
LEVELS = [(name,) * levels for name in ("winograd", "strassen", "laderman", "hopcroft_kerr") for levels in (1, 2)]
WAYS = [(levels, tile) for levels in (*LEVELS, *(("split_k",) * most for most in range(1, 12))) for tile in TILES["float64"]]
Way = tuple[tuple[str, ...], str]
"""Levels and tile of a candidate, the name of a library in the place of levels."""
LIBRARY_WAYS: list[Way] = [((name,), LIBRARY_ITSELF.tile) for name in LIBRARIES]
NAMED = dict.fromkeys(LIBRARY_WAYS[1:], inf)
"""The times of cuBLAS and cublasLt by name, where a test says nothing of them."""


def way_of(candidate: Candidate) -> Way:
    return candidate.levels or (candidate.strategy,), candidate.tile


def predicted(times: Sequence[float]) -> tuple[Candidate, ...]:
    """Contenders of these predicted times."""
    return tuple(Candidate(Scheduled(levels, tile=tile), ms, 8) for (levels, tile), ms in zip(WAYS, times, strict=False))


@dataclass
class Table(GpuStand):
    """A stand whose times come from a table: for all contenders, and for the last ones where they differ."""

    few: dict[Way, float]
    final: dict[Way, float] = field(default_factory=dict)
    wrong: Way | None = None
    too_large: Way | None = None  # What finds memory for a multiply, and none for a check.
    seconds: float = 0.0
    multiprocessor: Multiprocessor = field(default_factory=Multiprocessor)
    clock: list[float] = field(default_factory=lambda: [0.0])
    events: list[tuple[str, list[Way]]] = field(default_factory=list)

    def build(self, candidates: Sequence[Candidate]) -> None:
        self.events.append(("build", [*map(way_of, candidates)]))

    def times(self, candidates: Sequence[Candidate], rounds: int) -> list[float]:
        found = [*map(way_of, candidates)]
        self.events.append((f"{rounds} rounds", found))
        self.clock[0] += self.seconds
        return [{**NAMED, **self.few, **(self.final if rounds == ROUNDS else {})}[way] for way in found]

    def bound(self, candidate: Candidate) -> float:
        self.events.append(("check", [way_of(candidate)]))
        if way_of(candidate) == self.wrong:
            raise fail("E685", "wrong")
        if way_of(candidate) == self.too_large:
            raise MemoryError
        return 1e-9 * len(candidate.levels)

    def those(self, what: str) -> list[Way]:
        """All that something was done with."""
        return [way for event, ways in self.events if event == what for way in ways]


LIBRARY_WAY = way_of(LIBRARY_ITSELF)


def found_by(monkeypatch: pytest.MonkeyPatch, found: Sequence[Candidate], stand: Table, ends: float = inf) -> Plan:
    """The fastest of given contenders; the time is that of the stand's clock."""
    monkeypatch.setattr(time_plans, "contenders", lambda problem, device: tuple(found))
    monkeypatch.setattr(time_plans, "perf_counter", lambda: stand.clock[0])
    return fastest(PROBLEM, HERE, stand, ends)


def test_the_fastest_that_was_measured_runs_whatever_the_model_says(monkeypatch: pytest.MonkeyPatch) -> None:
    found = predicted([10.0 + 0.1 * i for i in range(12)])
    few = dict(zip(map(way_of, found), (9.0, 8.0, 9.5, 8.5, 9.5, 9.5, 9.5, 9.5, 9.5, 9.5, 9.5, 7.0), strict=True))
    table = Table({LIBRARY_WAY: 12.0, **few}, {way_of(found[11]): 7.5, way_of(found[1]): 7.6, LIBRARY_WAY: 11.25})
    choice = found_by(monkeypatch, found, table)
    assert [(way_of(c), c.ms) for c in choice.candidates] == [
        (way_of(found[11]), 7.5),
        (way_of(found[1]), 7.6),
        (way_of(found[3]), 8.5),
        (way_of(found[0]), 9.0),
        (LIBRARY_WAY, 11.25),
    ], "those of the last rounds"
    assert [c.why for c in choice.candidates[:3]] == [
        "timed: 1.50 times as fast as the library",
        "timed: 1.3% slower",
        "timed: 13.3% slower",
    ]
    assert [c.error for c in choice.candidates] == [pytest.approx(1e-9 * len(c.levels)) for c in choice.candidates]
    assert (choice.problem, choice.device) == (PROBLEM, HERE.name) and plan_from_json(plan_json(choice), "x") == choice


def test_what_is_timed_is_built_before_and_the_last_ones_are_checked_before_they_are_timed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    found = predicted([10.0] * (AT_ONCE + 3))
    table = Table({LIBRARY_WAY: 12.0, **{way_of(c): 9.0 - 0.1 * i for i, c in enumerate(found)}})
    found_by(monkeypatch, found, table)
    first, second = [*map(way_of, found[:AT_ONCE])], [*map(way_of, found[AT_ONCE:])]
    last = [way_of(c) for c in reversed(found[-FINALISTS:])]
    few, final = f"{FEW} rounds", f"{ROUNDS} rounds"
    assert table.events == [
        *[(few, LIBRARY_WAYS), ("build", first), (few, first), ("build", second), (few, second)],
        *[("check", [way]) for way in (LIBRARY_WAY, *last)],
        (final, [LIBRARY_WAY, *last]),
    ]


def test_a_library_by_name_is_chosen_where_it_is_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    found, (_, cublas, lt) = predicted([10.0]), LIBRARY_WAYS
    choice = found_by(monkeypatch, found, Table({LIBRARY_WAY: 10.0, cublas: 10.0, lt: 8.0, way_of(found[0]): 9.0}))
    assert choice.is_library and [way_of(c) for c in choice.candidates[:2]] == [lt, way_of(found[0])]
    assert (choice.chosen.name, choice.chosen.why) == ("cublaslt", "timed: 1.25 times as fast as the library")
    assert plan_from_json(plan_json(choice), "x") == choice


@pytest.mark.parametrize(("gain", "is_kept"), [(-0.2, True), (0.019, True), (0.021, False)])
def test_the_library_is_kept_where_nothing_gains_two_percent(gain: float, is_kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    found = predicted([10.0, 10.1])
    own = 10 * (1 - gain)
    choice = found_by(monkeypatch, found, Table({LIBRARY_WAY: 10.0, way_of(found[0]): own + 0.5, way_of(found[1]): own}))
    assert choice.is_library == is_kept and len(choice.candidates) == 3
    assert choice.chosen.ms == (10.0 if is_kept else own) and bool(choice.sha256) != is_kept
    reasons = {-0.2: "nothing is faster", 0.019: "no plan gains the margin", 0.021: "1.02 times as fast as the library"}
    assert choice.chosen.why == f"timed: {reasons[gain]}"
    assert choice.candidates[1].why == {-0.2: "timed: 20.0% slower", 0.019: "timed: 1.9% faster", 0.021: "timed: 2.1% slower"}[gain]


def test_what_finds_no_memory_is_never_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    found = predicted([10.0, 10.1, 10.2])
    few = {LIBRARY_WAY: 12.0, way_of(found[0]): inf, way_of(found[1]): 8.0, way_of(found[2]): 7.0}
    table = Table(few, {way_of(found[2]): inf})
    choice = found_by(monkeypatch, found, table)
    assert [way_of(c) for c in choice.candidates] == [way_of(found[1]), LIBRARY_WAY], "nor is what found it only once"
    assert way_of(found[0]) not in table.those("check")
    nothing = Table({**few, **{way_of(c): inf for c in found}})
    assert found_by(monkeypatch, found, nothing).candidates == (
        replace(LIBRARY_ITSELF, ms=12.0, error=0.0, why="timed: nothing is faster"),
    )
    assert nothing.those("check") == [LIBRARY_WAY]


def test_what_finds_no_memory_for_its_check_is_never_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    found = predicted([10.0, 10.1])
    few = {LIBRARY_WAY: 12.0, way_of(found[0]): 8.0, way_of(found[1]): 7.0}
    choice = found_by(monkeypatch, found, Table(few, too_large=way_of(found[1])))
    assert [way_of(c) for c in choice.candidates] == [way_of(found[0]), LIBRARY_WAY]
    with pytest.raises(MemoryError):
        found_by(monkeypatch, found, Table(few, too_large=LIBRARY_WAY))


def test_what_multiplies_wrongly_stops_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    found = predicted([10.0 + 0.1 * i for i in range(6)])
    few = {LIBRARY_WAY: 12.0, **{way_of(c): 9.0 + i for i, c in enumerate(found)}}
    with pytest.raises(BilinearError, match="E685"):
        found_by(monkeypatch, found, Table(few, wrong=way_of(found[FINALISTS - 1])))
    assert not found_by(monkeypatch, found, Table(few, wrong=way_of(found[FINALISTS]))).is_library, "what does not run is not checked"
    with pytest.raises(BilinearError, match="E685"):
        found_by(monkeypatch, found, Table(few, wrong=LIBRARY_WAY))


@pytest.mark.parametrize(("ends", "timed"), [(-1.0, AT_ONCE), (2.5, 2 * AT_ONCE), (inf, MOST)])
def test_where_the_time_is_over_only_the_first_are_timed(ends: float, timed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three calls of the stand take a second each: the library, and twice what is timed at once."""
    found = predicted([10.0 + 0.01 * i for i in range(MOST + 5)])
    assert len(found) == MOST + 5
    table = Table({LIBRARY_WAY: 12.0, **{way_of(c): 9.0 - 0.1 * i for i, c in enumerate(found)}}, seconds=1.0)
    choice = found_by(monkeypatch, found, table, ends)
    assert table.those(f"{FEW} rounds") == [*LIBRARY_WAYS, *map(way_of, found[:timed])]
    assert way_of(choice.chosen) == way_of(found[timed - 1])


@pytest.mark.parametrize(("library", "timed"), [(100.0, 2), (10.0, 2), (8.0, 1), (7.0, 0)])
def test_what_is_predicted_far_behind_model_and_library_is_not_timed(library: float, timed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = predicted([10.0, 10 * NEAR, 10 * NEAR + 0.1])
    table = Table({LIBRARY_WAY: library, **{way_of(c): 1.0 for c in found}})
    choice = found_by(monkeypatch, found, table)
    assert table.those(f"{FEW} rounds")[len(LIBRARIES) :] == [*map(way_of, found[:timed])] and choice.is_library == (timed == 0)


def test_without_a_contender_the_library_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    choice = found_by(monkeypatch, (), Table({LIBRARY_WAY: 1.0}))
    assert choice.is_library and len(choice.candidates) == 1 and choice.chosen.ms == 1.0


# On the pretended GPU.


def forget() -> None:
    forget_devices()
    decide._decisions.clear()


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Gpu]:
    """Calls are long, so that few are made; blocks of 32 are timed; what is kept lies in a folder of the test."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("BILINEAR_DEVICE", raising=False)
    found = pretend(monkeypatch)
    found.library_ms, found.launch_ms = 60.0, 10.0
    monkeypatch.setattr(devices_here, "current_device", lambda: HERE)
    forget()
    yield found
    forget()


def searched(*shapes: tuple[tuple[int, int, int], str], inputs: str = "preserve", budget: int | None = None) -> list[Plan | LeftOut]:
    return list(time_plans.search(shapes, inputs, budget, HERE, 60))


def test_every_problem_gets_the_plan_that_the_clock_finds_fastest(gpu: Gpu) -> None:
    told: list[tuple[str, int, int]] = []
    shapes = [((64, 65, 64), "float64"), ((64, 64, 64), "float32")]
    odd, even = time_plans.search(shapes, "preserve", None, HERE, 60, lambda *of: told.append(of))
    assert told == [("64x65x64 float64", 0, 2), ("64x64x64 float32", 1, 2), ("done", 2, 2)]
    assert isinstance(odd, Plan) and odd.problem == Problem(64, 65, 64, lies_evenly=False)
    assert isinstance(even, Plan) and even.problem == Problem(64, 64, 64, "float32")
    for choice, ms in ((odd, 40.0), (even, 30.0)):  # a strip is a launch more
        assert choice.chosen.levels == ("winograd",) and choice.device == HERE.name
        assert {c.ms for c in choice.candidates if c.levels} == {ms} and {c.ms for c in choice.candidates if c.is_library} == {60.0}
        assert all(c.error is not None and 0 < c.error < 1e-1 for c in choice.candidates)
        assert make_plan(choice.problem, HERE).is_library, "which the model alone does not find"


def test_limits_are_kept_and_inputs_restored(gpu: Gpu) -> None:
    gpu.launch_ms = 5.0
    (choice,) = searched(((64, 64, 64), "float64"), inputs="restore", budget=0)
    assert isinstance(choice, Plan) and choice.problem == Problem(64, 64, 64, inputs="restore", workspace=0)
    assert {(c.levels, c.promise, c.workspace) for c in choice.candidates} == {(("msmes",), "restore", 0), ((), "preserve", 0)}
    assert (choice.chosen.levels, choice.chosen.ms) == (("msmes",), 35.0)


@pytest.mark.parametrize(
    "damage",
    [lambda a, b, c: c.__setitem__((40, 3), c[40, 3] + 1), lambda a, b, c: a.__setitem__((7, 9), a[7, 9] + 1)],
    ids=["C", "A"],
)
def test_a_wrong_result_is_an_error(gpu: Gpu, damage: Any) -> None:
    gpu.damage = damage
    with pytest.raises(BilinearError, match=r"E685.*winograd, 1 level at 64x64x64, float64, failed its check"):
        searched(((64, 64, 64), "float64"))


def test_where_memory_ends_the_other_problems_are_timed(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def empty(shape: Any, dtype: Any = float) -> Any:
        if shape[0] > 1000:
            raise MemoryError("no room")
        return np.empty(shape, dtype)

    monkeypatch.setattr(gpu, "empty", empty)
    left, found = searched(((2000, 64, 64), "float64"), ((64, 64, 64), "float64"))
    assert left == LeftOut("2000x64x64 float64", "out of memory: no room") and isinstance(found, Plan)


@pytest.mark.parametrize(
    ("error", "why"),
    [(fail("E614", "nvrtc refused it"), "nvrtc refused it"), (RuntimeError("launch failed"), "RuntimeError: launch failed")],
    ids=["of ours", "of the driver"],
)
def test_what_fails_leaves_a_problem_out_and_the_others_are_timed(
    error: Exception, why: str, gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = GpuStand.build

    def fails(stand: GpuStand, candidates: Sequence[Candidate]) -> None:
        if stand.problem.dtype == "float32":
            raise error
        build(stand, candidates)

    monkeypatch.setattr(GpuStand, "build", fails)
    left, found = searched(((64, 64, 64), "float32"), ((64, 64, 64), "float64"))
    assert left == LeftOut("64x64x64 float32", why) and isinstance(found, Plan)


def test_a_plan_without_room_is_not_run(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(Timed, "allocate", none_left)
    monkeypatch.setattr(time_plans, "NEAR", inf)
    gpu.launch_ms = 5.0
    (choice,) = searched(((64, 64, 64), "float64"), inputs="restore")
    assert isinstance(choice, Plan) and {c.levels for c in choice.candidates} == {("msmes",), ()}
    assert choice.chosen.levels == ("msmes",)


def test_what_is_refused_is_not_weighed_and_what_fails_while_it_runs_ends_the_search(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    steps = Timed.steps

    def fails(error: Exception) -> Any:
        def raises(timed: Timed, plan: Any, *rest: Any) -> Any:
            if plan.schedule.name.startswith("msmes"):
                raise error
            return steps(timed, plan, *rest)

        return raises

    monkeypatch.setattr(time_plans, "NEAR", inf)
    gpu.launch_ms = 5.0
    monkeypatch.setattr(Timed, "steps", fails(fail("E614", "nvrtc refused it")))
    (choice,) = searched(((64, 64, 64), "float64"), inputs="restore")
    assert (
        isinstance(choice, Plan) and choice.chosen.levels == ("winograd",) and {c.levels for c in choice.candidates} == {("winograd",), ()}
    )
    assert [r.levelname for r in caplog.records] == ["WARNING"] and "msmes, 1 level cannot run" in caplog.text, "in the tile of its blocks"
    monkeypatch.setattr(Timed, "steps", fails(StageError("an illegal address", (), ())))
    with pytest.raises(BilinearError, match=r"E685.*64x64x64 float64: a plan failed while it ran: an illegal address"):
        searched(((64, 64, 64), "float64"), inputs="restore")


def test_a_kernel_that_fails_on_the_gpu_ends_the_search(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is noticed where the GPU is waited for, and there for ever after."""
    steps = Timed.steps

    def fails(timed: Timed, plan: Any, *rest: Any) -> Any:
        gpu.error = RuntimeError("an illegal memory access")
        return steps(timed, plan, *rest)

    monkeypatch.setattr(Timed, "steps", fails)
    with pytest.raises(BilinearError, match=r"E685.*64x64x64 float64: a kernel failed on the GPU: an illegal memory access"):
        searched(((64, 64, 64), "float64"), ((64, 64, 64), "float32"))


def test_where_there_is_no_room_for_a_check_the_data_are_normal_again(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    stand = GpuStand((64, 64, 64), "float64", "preserve", None, HERE)
    before = [x.copy() for x in stand._operands[:2]]

    def full(call: Any, a: Any, b: Any, *_: Any) -> Any:
        a[...] = b[...] = 1
        raise MemoryError

    monkeypatch.setattr(bench_check, "check", full)
    with pytest.raises(MemoryError, match="library"):
        stand.bound(LIBRARY_ITSELF)
    for x, wanted in zip(stand._operands, before, strict=False):
        np.testing.assert_array_equal(x, wanted)
    assert len(np.unique(before[0])) > 1000, "or the test shows nothing"


def test_the_operands_of_a_problem_make_room_for_the_next(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[weakref.ref[Any]] = []
    seen: list[int] = []

    def empty(shape: Any, dtype: Any = float) -> Any:
        seen.append(sum(array() is not None for array in alive))
        made = np.empty(shape, dtype)
        alive.append(weakref.ref(made))
        return made

    monkeypatch.setattr(gpu, "empty", empty)
    searched(((64, 64, 64), "float64"), ((64, 64, 64), "float32"))
    assert seen == [0, 1, 2] * 2


def test_time_that_is_over_leaves_the_rest_out(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_plans, "perf_counter", lambda: gpu.now)
    shapes = [((64, 64, 64), "float64"), ((64, 64, 64), "float32")]
    first, second = time_plans.search(shapes, "preserve", None, HERE, 1.0)
    assert isinstance(first, Plan) and second == LeftOut("64x64x64 float32", "the time was over")


def test_a_problem_takes_its_share_of_the_time_that_is_left(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    now, ends = [100.0], []

    def spend(problem: Problem, device: Device, stand: object, until: float) -> Plan:
        ends.append(until)
        now[0] += 6
        return make_plan(problem, device)

    monkeypatch.setattr(time_plans, "perf_counter", lambda: now[0])
    monkeypatch.setattr(time_plans, "fastest", spend)
    list(time_plans.search([((64, 64, 64), "float64")] * 3, "preserve", None, HERE, 30.0))
    assert ends == [110.0, 118.0, 130.0]


def test_short_calls_are_timed_on_the_device(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("IN_A_ROW", 2), ("SETTLE_MS", 0.0), ("NEAR", inf)):
        monkeypatch.setattr(time_plans, name, value)
    gpu.library_ms, gpu.launch_ms = 0.04, 0.005
    (short,) = searched(((64, 64, 64), "float64"))
    assert isinstance(short, Plan) and len(gpu.held) == FEW * (1 + 3 + 1) + ROUNDS * (1 + 3), (
        "three libraries, and the one tile of blocks of 32"
    )
    assert [c.ms for c in short.candidates] == pytest.approx([0.015] + [0.04] * 3)
    gpu.held.clear()
    gpu.library_ms, gpu.launch_ms = 0.4, 0.5
    searched(((64, 64, 64), "float64"))
    assert len(gpu.held) == FEW, "which tells that they are not short"
    gpu.held.clear()
    gpu.library_ms = 1.5
    searched(((64, 64, 64), "float64"))
    assert not gpu.held


@pytest.fixture
def built(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> list[AnyKernel]:
    """The kernels that are built."""
    found: list[AnyKernel] = []
    monkeypatch.setattr(ahead, "build_kernels", lambda kernels, target, progress: found.extend(kernels))
    return found


def test_the_kernels_of_all_parts_are_built(built: list[AnyKernel]) -> None:
    stand = GpuStand((64, 64, 64), "float64", "restore", None, HERE)
    rest = (Panel(16, Scheduled(("classical",), "preserve", tile=SMALL)), Panel(16, Scheduled(("msmes",), "restore", tile=LARGE)))
    chain = Candidate(Scheduled(("winograd_depth_first",), "preserve", "borrow", LARGE, rest), 1.0, 0)
    stand.build([chain, LIBRARY_ITSELF])
    assert len(built) == len(set(built))
    tiles = {kernel.tile for kernel in built if isinstance(kernel, ProductKernel)}
    assert tiles == {TILES["float64"][LARGE], TILES["float64"][SMALL]}
    assert {kernel.name.partition("_l1")[0] for kernel in built if isinstance(kernel, LinearKernel)} >= {"winograd_depth_first", "msmes"}


def test_the_kernels_of_thin_products_are_built(built: list[AnyKernel]) -> None:
    """C^T = B^T A^T is computed, for n > m; sums in parts are added up by another kernel."""
    stand = GpuStand((8, 4000, 12), "float32", "preserve", None, load_device("h200"))
    tile = "16x16x128-2x2x32"
    stand.build([Candidate(Thin(tile, parts, True), 1.0, 0) for parts in (1, 7)])
    assert {kernel.name for kernel in built} == {"thin_16x16x128_2x2x32_cac_4_4_f32", "sum_parts_8_f32"}


# The command.


@pytest.fixture
def shell(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(monkeypatch, capsys, "tune")


def kept_files(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in tmp_path.rglob("*.json"))


def test_the_command_keeps_what_auto_then_runs(gpu: Gpu, shell: Shell, tmp_path: Path) -> None:
    status, out, err = shell("--shape", "64", "--shape", "64x65x128", "--dtype", "float64")
    folder = tmp_path / "data" / "bilinear" / "devices" / "a-pretended-gpu-13000"
    assert (status, err) == (0, "") and kept_files(tmp_path) == ["float64-64x64x64-preserve.json", "float64-64x65x128-preserve.json"]
    header, rule, *rows, last = out.splitlines()
    assert header.split() == ["shape", "dtype", "inputs", "fastest", "tile", "workspace", "ms", "library", "ratio"]
    assert set(rule) == {"-", " "} and last == f"kept in {folder}: `auto` runs them on every a pretended GPU under this driver"
    cells = [re.split(r"\s{2,}", row.strip()) for row in rows]
    assert [c[:4] + c[6:] for c in cells] == [
        ["64x64x64", "float64", "preserve", "winograd, 1 level", "30", "60", "2.00"],
        ["64x65x128", "float64", "preserve", "winograd, 1 level", "40", "60", "1.50"],
    ]
    assert all(c[4] in TILES["float64"] for c in cells) and [len(row) for row in rows] == [len(header)] * 2
    for (m, k, n), launches in (((64, 64, 64), 3), ((64, 65, 128), 4)):
        kept = load_plan(folder / f"float64-{m}x{k}x{n}-preserve.json")
        a, b, c, before = np.ones((m, k)), np.ones((k, n)), np.empty((m, n)), gpu.now
        bilinear.matmul(a, b, c)
        assert gpu.now - before == gpu.launch_ms * launches and (c == k).all(), "the kept plan"
        assert bilinear.plan(m, k, n) == kept != make_plan(kept.problem, HERE)
        before = gpu.now
        bilinear.matmul(a, b, c, workspace="none")
        assert gpu.now - before == gpu.library_ms, "within other limits the model chooses, and here the library"


def test_an_algorithm_of_ones_own_is_timed_kept_and_run_until_it_is_removed(
    gpu: Gpu, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mine.bl"
    file.write_text(shipped()["strassen"].read_text(encoding="utf-8").replace("scheme strassen ", "scheme mine "), encoding="utf-8")
    add(str(file))
    monkeypatch.setattr(choose, "ways", own_ways)
    status, out, err = shell("--shape", "64", "--dtype", "float64")
    assert (status, err) == (0, "") and re.search(r"64x64x64 +float64 +preserve +mine, 1 level +\S.* 30 +60 +2\.00\n", out)
    a, c = np.ones((64, 64)), np.empty((64, 64))
    for change, ms in ((lambda: None, 30.0), (lambda: remove("mine"), 60.0)):
        change()
        forget()
        before = gpu.now
        bilinear.matmul(a, a, c)
        assert gpu.now - before == ms and (c == 64).all()


def test_what_was_decided_by_a_kept_plan_is_decided_anew_where_a_description_is_named(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """By name it may be the description that is known here anyway, and a kept plan is not used beside it."""
    (choice,) = searched(((64, 64, 64), "float64"))
    assert isinstance(choice, Plan) and not choice.is_library
    keep_plan(choice, 13000)
    a, c = np.ones((64, 64)), np.empty((64, 64))
    for named, ms in (("", 30.0), ("h200", 60.0), ("", 30.0)):
        monkeypatch.setenv("BILINEAR_DEVICE", named)
        before = gpu.now
        bilinear.matmul(a, a, c)
        assert gpu.now - before == ms and (c == 64).all()


def test_the_command_keeps_plans_within_limits(gpu: Gpu, shell: Shell, tmp_path: Path) -> None:
    gpu.launch_ms = 5.0
    status, out, _ = shell("--shape", "64", "--dtype", "float32", "--inputs", "restore", "--workspace", "none", "--time", "60s")
    assert status == 0 and re.search(r"64x64x64 +float32 +restore +msmes, 1 level +\S.* 0 +35 +60 +1\.71\n", out)
    assert kept_files(tmp_path) == ["float32-64x64x64-restore-0.json"]
    a, before = np.ones((64, 64), "float32"), gpu.now
    bilinear.matmul(a, a.copy(), inputs="restore", workspace="none")
    assert gpu.now - before == 35
    (tmp_path / "shapes.txt").write_text("64  # one\n")
    status, _, _ = shell("--shapes-file", tmp_path / "shapes.txt", "--dtype", "float32", "--workspace", 10**6)
    assert status == 0 and kept_files(tmp_path) == ["float32-64x64x64-preserve-1000000.json", "float32-64x64x64-restore-0.json"]


def test_the_command_prints_json(gpu: Gpu, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def empty(shape: Any, dtype: Any = float) -> Any:
        if dtype == "float32":
            raise MemoryError("no room")
        return np.empty(shape, dtype)

    monkeypatch.setattr(gpu, "empty", empty)
    found = shell.json("--shape", "64")
    assert found["left_out"] == [{"what": "64x64x64 float32", "why": "out of memory: no room"}]
    (plan,) = found["plans"]
    (file,) = tmp_path.rglob("*.json")
    assert plan["format"] == FORMAT and json.loads(file.read_text()) == plan
    status, out, _ = shell("--shape", "64")
    assert status == 0 and out.splitlines()[-2:] == [
        "left out: 64x64x64 float32: out of memory: no room",
        f"kept in {file.parent}: `auto` runs them on every a pretended GPU under this driver",
    ]


def test_the_table_says_where_nothing_is_faster(gpu: Gpu, shell: Shell) -> None:
    gpu.library_ms = 20.0
    status, out, _ = shell("--shape", "64", "--dtype", "float64")
    assert status == 0 and re.search(r"64x64x64 +float64 +preserve +library +- +0 +20 +20 +1\.00\n", out)


def test_a_gpu_is_described_where_that_is_asked_for_or_needed(
    gpu: Gpu, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = replace(SLOW_LIBRARY, name=HERE.name)
    monkeypatch.setattr(describe_device, "tune_here", lambda progress: described)
    assert shell("--shape", "64", "--dtype", "float64")[0] == 0
    assert kept_description(HERE.name, 13000) is None, "one is known"
    told = f"kept in {kept_at(HERE.name, 13000)}: `auto` uses it on every {HERE.name} under this driver\n"
    status, out, err = shell("--shape", "64", "--dtype", "float64", "--keep")
    assert status == 0, err
    assert out.startswith(told) and kept_description(HERE.name, 13000) == described
    (tmp_path / "data" / "bilinear" / "devices" / "a-pretended-gpu-13000.json").unlink()
    for known in (None, replace(described, estimate="a data sheet")):
        monkeypatch.setattr(devices_here, "current_device", lambda found=known: found)
        assert shell.json("--shape", "64", "--dtype", "float64")["plans"] and kept_description(HERE.name, 13000) == described
        (tmp_path / "data" / "bilinear" / "devices" / "a-pretended-gpu-13000.json").unlink()


@pytest.mark.parametrize(
    ("words", "environment", "code"),
    [
        (("--shape", "64", "-o", "x.json"), {}, "E557"),
        (("--shape", "64", "--shapes-file", "x.txt"), {}, "E684"),
        (("--shapes-file", "/no/such/file"), {}, "E681"),
        (("--dtype", "float32"), {}, "E557"),
        (("--inputs", "restore"), {}, "E557"),
        (("--workspace", "none", "--keep"), {}, "E557"),
        (("--time", "5m"), {}, "E557"),
        (("--json",), {}, "E557"),
        (("--shape", "64", "--dtype", ""), {}, "E503"),
        (("--shape", "64", "--inputs", ""), {}, "E513"),
        (("--shape", "64", "--time", ""), {}, "E664"),
        (("--shape", "64", "--inputs", "consume"), {}, "E513"),
        (("--shape", "64", "--dtype", "int8"), {}, "E503"),
        (("--shape", "64x64"), {}, "E681"),
        (("--shape", ""), {}, "E681"),
        (("--shape", "64", "--workspace", "some"), {}, "E534"),
        (("--shape", "64", "--time", "soon"), {}, "E664"),
        (("--shape", "64"), {"BILINEAR_DEVICE": "h200"}, "E687"),
        (("--shape", "64"), {"BILINEAR_USE_LIBRARY": "1"}, "E687"),
        (("--shape", "64", "--dtype", "float32"), {"CUPY_TF32": "1"}, "E687"),
    ],
)
def test_what_cannot_be_searched_is_refused_at_once(
    words: tuple[str, ...], environment: dict[str, str], code: str, gpu: Gpu, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(describe_device, "tune_here", lambda progress: pytest.fail("measured"))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    status, out, err = shell(*words)
    assert (status, out) == (1, "") and f"error[{code}]" in err and not gpu.now and not list(tmp_path.iterdir())
    assert all(name in err for name in environment)


@pytest.mark.parametrize("words", [(), ("--keep",)])
def test_a_place_where_nothing_can_be_kept_is_told_before_anything_is_timed(
    words: tuple[str, ...], gpu: Gpu, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(describe_device, "tune_here", lambda progress: pytest.fail("measured"))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    status, out, err = shell("--shape", "64", *words)
    assert (status, out) == (1, "") and "error[E612]: cannot make" in err and "XDG_DATA_HOME" in err and not gpu.now


def test_what_was_kept_before_the_disk_was_full_is_shown(gpu: Gpu, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fills(choice: Plan, driver: int) -> Path:
        if choice.problem.dtype == "float32":
            raise fail("E612", "no space left")
        return keep_plan(choice, driver)

    monkeypatch.setattr(kept_plans, "keep_plan", fills)
    status, out, err = shell("--shape", "64")
    assert status == 1 and "error[E612]: no space left" in err and kept_files(tmp_path) == ["float64-64x64x64-preserve.json"]
    assert re.search(r"64x64x64 +float64 .*\nkept in ", out) and "float32" not in out


def test_without_a_gpu_it_is_said(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "why_no_gpu", lambda: "CuPy is not installed")
    status, out, err = shell("--shape", "64")
    assert (status, out) == (1, "") and "error[E680]" in err and "CuPy is not installed" in err


def test_nothing_measured_is_an_error(gpu: Gpu, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(gpu, "empty", no_room)
    status, out, err = shell("--shape", "64", "--dtype", "float64")
    assert status == 1 and out == "left out: 64x64x64 float64: out of memory: no room\n"
    assert "error[E686]: nothing was measured\n  note: 64x64x64 float64: out of memory: no room" in err and not kept_files(tmp_path)


def test_what_was_found_before_sigterm_is_shown(gpu: Gpu, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = GpuStand.build

    def ends(stand: GpuStand, candidates: Sequence[Candidate]) -> None:
        if stand.problem.dtype == "float32":
            os.kill(os.getpid(), signal.SIGTERM)
        build(stand, candidates)

    monkeypatch.setattr(GpuStand, "build", ends)
    before = signal.getsignal(signal.SIGTERM)
    status, out, _ = shell("--shape", "64")
    assert status == 128 + signal.SIGTERM and signal.getsignal(signal.SIGTERM) is before
    assert re.search(r"64x64x64 +float64 .*\nkept in ", out) and kept_files(tmp_path) == ["float64-64x64x64-preserve.json"]


def test_what_was_found_before_a_wrong_result_stays_kept(gpu: Gpu, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def damage(a: Any, b: Any, c: Any) -> None:
        if c.dtype == "float32":
            c[0, 0] += 1

    gpu.damage = damage
    status, out, err = shell("--shape", "64")
    assert status == 1 and "error[E685]: winograd, 1 level at 64x64x64, float32, failed its check" in err
    assert re.search(r"64x64x64 +float64 .*\nkept in ", out) and "float32" not in out
    assert kept_files(tmp_path) == ["float64-64x64x64-preserve.json"]


@pytest.mark.gpu
def test_a_search_on_a_gpu_keeps_what_auto_then_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is fastest there is not for a test to say: it is checked, kept, found again, and exact."""
    cupy = pytest.importorskip("cupy")
    bench.require_gpu()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("BILINEAR_DEVICE", raising=False)
    monkeypatch.setattr(time_plans, "MOST", AT_ONCE)
    forget()
    device = devices_here.current_device() or load_device("h200")
    shapes = [((300, 1000, 70), "float32"), ((1024, 1024, 1024), "float64")]
    for choice in time_plans.search(shapes, "preserve", None, device, 60.0):
        assert isinstance(choice, Plan) and all(c.ms and c.ms > 0 and c.error for c in choice.candidates)
        p = choice.problem
        monkeypatch.setattr(devices_here, "current_device", lambda found=device: found)
        keep_plan(replace(choice, device=devices_here._identity(0)[0]), devices_here._identity(0)[1])
        assert bilinear.plan(p.m, p.k, p.n, p.dtype).candidates == choice.candidates
        x, y = (np.random.default_rng(1).integers(-4, 5, sides) for sides in ((p.m, p.k), (p.k, p.n)))
        found = bilinear.matmul(cupy.asarray(x, p.dtype), cupy.asarray(y, p.dtype))
        np.testing.assert_array_equal(found.get(), x @ y)
    forget()
