"""Benchmarks on a pretended GPU whose clock is known: what is timed, what is checked, what is found wrong, and what is kept."""

from __future__ import annotations

import ctypes
import itertools
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from math import comb
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from measure.bench_gpu import SLOW_LIBRARY, Gpu, Timed, pretend, rows_of

from bilinear.backends.timing import LONGEST_HOLD, MOST_IN_A_ROW, interleaved, median_interval, queued
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.errors import BilinearError
from bilinear.ir.launch import AnyKernel
from bilinear.ir.measurement import Benchmark, LeftOut, Load, Measurement
from bilinear.measure import bench, bench_check, bench_library, bench_tasks
from bilinear.measure.bench import Effort, collect, launch_times, measure
from bilinear.measure.bench_check import check, fill_integers, wrong_libraries
from bilinear.measure.bench_tasks import (
    AUTO,
    FAMILIES,
    LARGEST_SIDE,
    MOST_FLOPS,
    PLANNED,
    BenchCase,
    BenchTask,
    build_ahead,
    choose,
    grid,
    pinned,
    read_shapes_file,
    read_sizes,
    tasks_for,
)
from bilinear.planner.device_files import load_device
from bilinear.reporting.bench_page import bench_table
from bilinear.runtime import ahead, devices_here
from bilinear.runtime.matmul import matmul

SMALL = (64, 65, 64)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    return pretend(monkeypatch)


def test_the_three_plans_are_checked_and_timed_by_the_clock(gpu: Gpu) -> None:
    rows = rows_of(BenchTask(SMALL, "float64"))
    assert [(row.asked, row.inputs, row.budget, row.levels) for row in rows] == [
        ("plan", "preserve", None, ("winograd",)),
        ("plan", "restore", 0.0, ("msmes",)),
        ("plan", "preserve", 0.0, ()),
    ]
    for row, launches in zip(rows, (4, 8, 0), strict=True):
        assert row.ms == (launches or gpu.library_ms) and row.library_ms == gpu.library_ms and row.library == "cupy"
        assert row.ratio == pytest.approx(6.0 / row.ms) and row.interval.low == row.interval.high == pytest.approx(row.ratio)
        assert len(row.times) == 7 and row.timing == "event" and row.device_ratio is None
        assert row.trust.exact and row.trust.restored and 0 <= row.trust.error <= row.trust.bound < 1e-9 and row.trust.holds
        assert row.load == Load(1755.0, 612.3, 64.0)
        assert [launch.ms for launch in row.launches] == [1.0] * launches
    assert rows[0].trust.error > 0 and rows[0].workspace > 0 == rows[1].workspace
    first, *_, last = rows[0].launches
    assert (first.kind, first.what, first.flops) == ("strip", "64 x 1 x 64", 2 * 64 * 64)
    assert [launch.kind for launch in rows[0].launches] == ["strip", "sums", "products", "sums"]
    assert rows[0].launches[2].flops == 7 * 2 * 32**3 and last.bytes == (7 + 4) * 32 * 32 * 8


def test_a_call_that_is_left_to_auto_and_pinned_levels(gpu: Gpu) -> None:
    auto_row, two, mixed = rows_of(BenchTask((64, 64, 64), "float32", (AUTO, pinned("msmes:2"), pinned("msmes+winograd"))))
    assert (auto_row.asked, auto_row.levels) == ("auto", ("winograd",)) and auto_row.ms == 3
    assert (two.asked, two.inputs, two.levels) == ("msmes:2", "restore", ("msmes", "msmes"))
    assert (mixed.asked, mixed.levels) == ("msmes+winograd", ("msmes", "winograd")) and mixed.trust.holds


def test_prepared_operands_are_timed_beside_plain_calls(gpu: Gpu) -> None:
    """A call of the check prepares for the numbers of that check; no plan in place, and none of `auto`, comes again."""
    tasks = tasks_for("64", None, False, ("float64",), ("plan",), kept=("left", "right"))
    plain, *_, left, right = rows_of(*tasks)
    assert (left.asked, right.asked) == ("plan, left kept", "plan, right kept")
    assert right.plan == f"{plain.plan}, right operand kept" and left.plan == f"{plain.plan}, left operand kept"
    for row in (left, right):
        assert row.trust.holds and row.trust.exact and row.trust.error == plain.trust.error and row.launches == ()
        assert row.ms <= plain.ms and row.ratio >= plain.ratio
    assert len(tasks[0].cases) == 5 and tasks_for("64", None, False, ("float64",), ("auto",), kept=("left",))[0].cases == (AUTO,)


def test_a_plan_that_keeps_nothing_is_left_out_alone(gpu: Gpu) -> None:
    kept = BenchCase("restore", levels=("msmes",), asked="msmes, right kept", kept="right")
    found = list(measure([BenchTask((64, 64, 64), "float64", (pinned("winograd"), kept))], SLOW_LIBRARY, Effort()))
    (left_out,) = (one for one in found if isinstance(one, LeftOut))
    assert len(found) == 2 and left_out.what == "msmes, right kept at 64x64x64 float64" and "writes its operands" in left_out.why


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda a, b, c: c.__setitem__((-1, -1), c[-1, -1] + 1), "exact"),
        (lambda a, b, c: c.__setitem__((40, 3), np.nan), "exact"),
        (lambda a, b, c: a.__setitem__((7, 9), a[7, 9] + 1), "restored"),
        (lambda a, b, c: b.__setitem__((-1, 0), 9), "restored"),
    ],
    ids=["an element", "an element that is not written", "A", "B"],
)
def test_damage_is_found(gpu: Gpu, damage: Callable[[Any, Any, Any], None], what: str) -> None:
    """The damage is done to the core of every run; a result that is wrong in one place of 4,096 fails."""
    gpu.damage = damage
    effort = Effort(1, 1, launches=False)
    (row,) = rows_of(BenchTask((64, 64, 64), "float64", (BenchCase("restore", 0.0),)), effort=effort)
    assert row.levels == ("msmes",) and not row.trust.holds
    assert getattr(row.trust, what) is False and row.to_json()["holds"] is False


def test_an_error_above_the_bound_fails(gpu: Gpu) -> None:
    a, b, c = (np.empty((64, 64)) for _ in range(3))

    def multiply(off: float) -> Callable[[], object]:
        def call() -> None:
            np.matmul(a, b, out=c)
            if not (a == a.round()).all():  # on normal data alone
                c[32, 5] += off * abs(a).max() * abs(b).max()

        return call

    assert check(multiply(1e-13), a, b, c, "preserve", 1e-12, True).holds
    wrong = check(multiply(1e-11), a, b, c, "preserve", 1e-12, True)
    assert wrong.exact and wrong.error == pytest.approx(1e-11, rel=0.01) and not wrong.holds
    fill_integers(a, b, np.random.default_rng(7))
    np.matmul(a, b, out=c)  # what another call has left there
    silent = check(lambda: None, a, b, c, "preserve", 1e-12, True)
    assert not silent.exact and np.isnan(silent.error) and not silent.holds
    calls: Iterator[Callable[[], object]] = iter([multiply(0.0), lambda: None])

    def in_turn() -> object:
        return next(calls)()

    once = check(in_turn, a, b, c, "preserve", 1e-12, True)
    assert once.exact and np.isnan(once.error) and not once.holds
    assert not check(multiply(np.nan), a, b, c, "preserve", np.inf, True).holds


def test_figures_are_medians_of_the_rounds_and_the_ratio_is_taken_round_by_round(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    own, theirs = [3.0, 1.0, 2.0, 10.0, 2.0, 4.0, 2.5], [5.0, 4.0, 6.0, 9.0, 7.0, 8.0, 90.0]
    lists = {True: theirs, False: own}
    monkeypatch.setattr(bench, "interleaved", lambda calls, rounds, *rest: {what: lists[what == "cupy"][:rounds] for what in calls})
    (row,) = rows_of(BenchTask((64, 64, 64), "float64", (BenchCase(),)), effort=Effort(7, 7, launches=False))
    assert (row.ms, row.library_ms, row.times) == (2.5, 7.0, tuple(own)) and row.ratio == 2.8
    assert (row.interval.low, row.interval.high) == (0.9, 36.0) and row.interval.confidence == 1 - 2 / 2**7


def test_short_calls_are_timed_on_the_device(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "IN_A_ROW", 3)
    gpu.library_ms, gpu.launch_ms = 0.04, 0.02
    task, effort = BenchTask((64, 64, 64), "float64", (BenchCase(),)), Effort(2, 2, launches=False)
    (row,) = rows_of(task, effort=effort)
    assert row.timing == "device" and gpu.held
    assert row.ms == pytest.approx(0.06) and row.library_ms == pytest.approx(0.04) and row.device_ratio == pytest.approx(2 / 3)
    gpu.library_ms = 0.4
    (row,) = rows_of(task, effort=effort)
    assert row.timing == "event" and row.device_ratio == pytest.approx(20 / 3)


def test_the_device_is_held_until_all_calls_are_queued(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first two times the device was free before the last call was queued; what waits for the device is not held for ever."""
    started = iter([True, True, False, False])
    monkeypatch.setattr(gpu.cuda, "Event", lambda: SimpleNamespace(record=lambda: None, synchronize=lambda: None, done=next(started, True)))
    gpu.cuda.get_elapsed_time = lambda start, end: 5.0
    assert queued({"call": lambda: None}, 1, 10) == {"call": [0.5]}
    assert gpu.held == [1.0, 2.0]
    gpu.held.clear()
    queued({"call": lambda: None}, 1, 10)
    assert gpu.held[-1] == LONGEST_HOLD


def test_every_round_has_an_order_of_its_own(gpu: Gpu) -> None:
    made: list[str] = []

    def call(name: str) -> None:
        gpu.now += 5
        made.append(name)

    calls = {name: partial(call, name) for name in "abc"}
    assert interleaved(calls, 20, 0).keys() == calls.keys()
    assert made[:3] == ["a", "b", "c"], "how long each takes"
    assert made[3::2] == made[4::2], "each behind one of its kind"
    rounds = ["".join(made[3 + i : 9 + i : 2]) for i in range(0, 120, 6)]
    assert all(sorted(order) == ["a", "b", "c"] for order in rounds) and len(set(rounds)) == 6
    made.clear()
    interleaved(calls, 20, 0)
    assert rounds == ["".join(made[3 + i : 9 + i : 2]) for i in range(0, 120, 6)]


def test_short_calls_are_made_in_a_row(gpu: Gpu) -> None:
    made: list[str] = []

    def call(name: str, ms: float) -> Callable[[], None]:
        def run() -> None:
            gpu.now += ms
            made.append(name)

        return run

    calls = {"short": call("short", 0.3), "long": call("long", 2.5), "tiny": call("tiny", 1e-4)}
    assert {name: pytest.approx([ms, ms]) for name, ms in (("short", 0.3), ("long", 2.5), ("tiny", 1e-4))} == interleaved(calls, 2, 0)
    assert Counter(made) == {"short": 1 + 2 * 8, "long": 1 + 2 * 2, "tiny": 1 + 2 * (1 + MOST_IN_A_ROW)}
    made.clear()
    interleaved(calls, 1, 2, {"short": 1.0, "long": 1.0, "tiny": 9.0})
    assert Counter(made) == {"short": 2 + 3, "long": 2 + 3, "tiny": 2 + 2}


def test_short_calls_begin_behind_one_of_their_kind_that_is_not_timed(gpu: Gpu) -> None:
    """A call is slow where another one was made before it; long ones are timed as they come."""
    last: list[str] = []

    def call(name: str, ms: float) -> None:
        gpu.now += ms if last[-1:] == [name] else ms + 0.1
        last.append(name)

    calls = {name: partial(call, name, ms) for name, ms in (("short", 3.0), ("almost", 19.5), ("long", 20.0))}
    found = interleaved(calls, 9, 0)
    assert found["short"] == pytest.approx([3.0] * 9) and found["almost"] == pytest.approx([19.5] * 9)
    assert max(found["long"]) == pytest.approx(20.1)
    assert Counter(last) == {"short": 1 + 9 * 2, "almost": 1 + 9 * 2, "long": 1 + 9}


def test_calls_that_settle_come_so_long_before_and_are_timed_so_long(gpu: Gpu) -> None:
    """The clock of the pretended device falls for 20 ms after each change."""
    since: dict[str, float] = {}

    def call(name: str, ms: float) -> None:
        if name not in since:
            since.clear()
            since[name] = gpu.now
        gpu.now += ms if gpu.now - since[name] >= 20 else ms * 0.9
        made.append(name)

    made: list[str] = []
    calls = {name: partial(call, name, ms) for name, ms in (("short", 4.0), ("middle", 30.0), ("long", 520.0))}
    found = interleaved(calls, 9, 0, {"short": 4.0, "middle": 30.0, "long": 520.0}, settle_ms=20.0)
    assert found["middle"] == pytest.approx([30.0] * 9)
    assert min(found["short"]) > 0.97 * 4, "five calls of 3.6 take not quite as long"
    assert min(found["long"]) == pytest.approx(468.0)
    assert Counter(made) == {"short": 9 * (5 + 5), "middle": 9 * (1 + 1), "long": 9}


@pytest.mark.parametrize("n", [1, 2, 5, 6, 7, 9, 20, 25])
def test_the_interval_of_a_median_is_the_narrowest_of_its_confidence(n: int) -> None:
    """By counting: of n values each is below the median with one half, and the interval misses it where too few lie on one side."""
    found = median_interval([float(i) for i in range(n, 0, -1)])
    confidences = {k: 1 - 2 * sum(comb(n, i) for i in range(k)) / 2**n for k in range(1, (n + 1) // 2 + 1)}
    wanted = max([k for k, confidence in confidences.items() if confidence >= 0.95], default=1)
    assert (found.low, found.high) == (wanted, n + 1 - wanted)
    assert found.confidence == pytest.approx(max(0.0, confidences[wanted]))


def test_long_calls_get_fewer_rounds(gpu: Gpu) -> None:
    gpu.library_ms = 900.0
    (row,) = rows_of(BenchTask((64, 64, 64), "float64", (BenchCase(),)), effort=Effort(7, 3, 4600.0, launches=False))
    assert len(row.times) == 5
    (row,) = rows_of(BenchTask((64, 64, 64), "float64", (BenchCase(),)), effort=Effort(7, 3, 100.0, launches=False))
    assert len(row.times) == 3


def test_the_fastest_library_that_multiplies_is_the_baseline(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def libraries(a: Any, b: Any, c: Any) -> dict[str, Callable[[], object]]:
        def slow() -> None:
            gpu.now += 2
            gpu.matmul(a, b, c)

        def wrong() -> None:
            c[...] = 0

        def broken() -> None:
            raise RuntimeError("not here")

        return {"slow": slow, "fast": lambda: gpu.matmul(a, b, c), "wrong": wrong, "broken": broken}

    monkeypatch.setattr(bench, "library_calls", libraries)
    found = list(measure([BenchTask((64, 64, 64), "float64", (BenchCase(),))], SLOW_LIBRARY, Effort(launches=False)))
    assert [(one.what, one.why) for one in found if isinstance(one, LeftOut)] == [
        ("wrong at 64x64x64 float64", "no baseline: it does not multiply integers exactly"),
        ("broken at 64x64x64 float64", "no baseline: RuntimeError: not here"),
    ]
    (row,) = (one for one in found if isinstance(one, Measurement))
    assert row.library == "fast" and dict(row.libraries) == {"slow": 8.0, "fast": 6.0} and row.library_ms == 6.0


def test_without_a_baseline_nothing_is_timed(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "library_calls", lambda a, b, c: {"wrong": lambda: c.fill(0)})
    (found,) = measure([BenchTask((64, 64, 64), "float64", (BenchCase(),))], SLOW_LIBRARY, Effort(launches=False))
    assert isinstance(found, LeftOut) and found.what.startswith("wrong")


def test_cublas_multiplies_the_transposed_matrices(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a `dgemm` of columns in NumPy."""
    memory: dict[int, Any] = {}

    class Array(np.ndarray):
        @property
        def data(self) -> Any:
            memory[self.ctypes.data] = self
            return SimpleNamespace(ptr=self.ctypes.data)

    def gemm(
        handle: int, ta: int, tb: int, m: int, n: int, k: int, one: int, a: int, lda: int, b: int, ldb: int, zero: int, *rest: int
    ) -> None:
        c, ldc = rest
        left, right, result = memory[a].reshape(-1, lda).T, memory[b].reshape(-1, ldb).T, memory[c].reshape(-1, ldc).T
        assert (ta, tb, left.shape, right.shape, result.shape) == (0, 0, (m, k), (k, n), (m, n))
        result[...] = left @ right

    monkeypatch.setitem(sys.modules, "cupy_backends.cuda.libs", SimpleNamespace(cublas=SimpleNamespace(dgemm=gemm, sgemm=gemm)))
    gpu.cuda.Device = lambda: SimpleNamespace(cublas_handle=1)
    a, b, c = (np.empty(shape).view(Array) for shape in ((5, 3), (3, 4), (5, 4)))
    calls = bench_library.library_calls(a, b, c)
    assert list(calls)[:2] == ["cupy", "cublas"]
    assert not wrong_libraries({"cublas": calls["cublas"]}, a, b, c)


def test_pytorch_is_asked_by_both_of_its_libraries(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    preferred: list[str] = ["its own"]
    asked: list[str] = []

    def prefer(name: str | None = None) -> str:
        preferred.append(name or preferred[-1])
        return preferred[-1]

    def mm(a: Any, b: Any, out: Any) -> None:
        asked.append(preferred[-1])
        np.matmul(a, b, out=out)

    cuda = SimpleNamespace(matmul=SimpleNamespace(allow_tf32=True), preferred_blas_library=prefer)
    torch = SimpleNamespace(backends=SimpleNamespace(cuda=cuda), from_dlpack=lambda array: array, mm=mm)
    monkeypatch.setitem(sys.modules, "torch", torch)
    a, b, c = (np.empty(shape) for shape in ((5, 3), (3, 4), (5, 4)))
    calls = bench_library.library_calls(a, b, c)
    for name in ("torch", "cublaslt"):
        assert not wrong_libraries({name: calls[name]}, a, b, c)
        assert preferred[-1] == "its own"
    assert set(asked[: len(asked) // 2]) == {"its own"}
    assert set(asked[len(asked) // 2 :]) == {"cublaslt"}
    assert not cuda.matmul.allow_tf32

    def failing(*_: Any, **__: Any) -> None:
        raise RuntimeError("out of memory")

    torch.mm = failing
    with pytest.raises(RuntimeError, match="out of memory"):
        bench_library.library_calls(a, b, c)["cublaslt"]()
    assert preferred[-1] == "its own"


def test_a_library_that_cannot_be_set_up_says_so_when_called(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("no handle")

    monkeypatch.setattr(bench_library, "_cublas", broken)
    calls = bench_library.library_calls(*(np.empty((4, 4)) for _ in range(3)))
    with pytest.raises(RuntimeError, match="no handle"):
        calls["cublas"]()


def test_what_was_found_before_stays_until_something_is_found(gpu: Gpu, tmp_path: Path) -> None:
    file = tmp_path / "kept.json"
    file.write_text("of an earlier run")

    def nothing() -> Iterator[Measurement]:
        raise KeyboardInterrupt
        yield

    with pytest.raises(KeyboardInterrupt):
        bench.collect(nothing(), "best", ["best.py"], file)
    assert file.read_text() == "of an earlier run"


def test_what_cannot_be_measured_is_left_out_and_the_rest_goes_on(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny, huge = BenchTask((64, 64, 64), "float64", (BenchCase(),)), BenchTask((60_000, 60_000, 60_000), "float64", (pinned("winograd:3"),))

    def empty(shape: Any, dtype: Any = float) -> Any:
        if shape[0] > 10_000:
            raise MemoryError("no room")
        return np.empty(shape, dtype)

    monkeypatch.setattr(gpu, "empty", empty)
    found = list(measure([huge, tiny], SLOW_LIBRARY, Effort(launches=False)))
    assert found[0] == LeftOut("60000x60000x60000 float64", "MemoryError: no room") and isinstance(found[1], Measurement)
    monkeypatch.setattr(gpu, "empty", lambda shape, dtype=float: np.broadcast_to(np.zeros(1), shape))
    monkeypatch.setattr(bench, "wrong_libraries", lambda *rest: {})
    left = next(measure([replace(huge, cases=(pinned("winograd:3"),))], SLOW_LIBRARY, Effort()))
    assert isinstance(left, LeftOut) and left.what == "winograd:3 at 60000x60000x60000 float64" and "workspace" in left.why


def test_times_are_those_of_normal_data_also_behind_a_check_that_was_cut(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Integers draw less power."""
    timed: list[Any] = []

    def cut(call: Any, a: Any, b: Any, *rest: Any) -> Any:
        fill_integers(a, b, np.random.default_rng(1))
        raise MemoryError

    monkeypatch.setattr(bench_check, "check", cut)

    def watched(a: Any, b: Any, c: Any) -> None:
        timed.append(a.copy())
        gpu.matmul(a, b, c)

    monkeypatch.setattr(bench, "library_calls", lambda *arrays: {"cupy": partial(watched, *arrays)})
    list(measure([BenchTask((64, 64, 64), "float64", (BenchCase(),))], SLOW_LIBRARY, Effort(1, 1, launches=False)))
    assert (timed[0] == timed[0].round()).all() and not any((a == a.round()).all() for a in timed[1:]) and len(timed) > 1


def test_a_plan_without_room_is_left_out_alone(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(Timed, "allocate", none_left)
    left, restored, library = measure([BenchTask((64, 64, 64), "float64")], SLOW_LIBRARY, Effort(1, 1, launches=False))
    assert isinstance(left, LeftOut) and left.what == "winograd, 1 level at 64x64x64 float64" and left.why.startswith("out of memory")
    assert isinstance(restored, Measurement) and restored.levels == ("msmes",) and restored.ms == 7
    assert isinstance(library, Measurement) and library.levels == ()


def test_a_plain_call_is_plain(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `auto` measures is a call with the three arrays, what `plan` measures a call with the plan."""
    said: set[tuple[str, ...]] = set()

    def spied(a: Any, b: Any, c: Any, **options: Any) -> Any:
        said.add(tuple(options))
        return matmul(a, b, c, **options)

    monkeypatch.setattr(bench, "matmul", spied)
    exact = replace(AUTO, accuracy="classical")
    for case, options in ((AUTO, ()), (exact, ("accuracy",)), (BenchCase(), ("plan",))):
        said.clear()
        rows_of(BenchTask((64, 64, 64), "float64", (case,)), effort=Effort(1, 1, launches=False))
        assert said == {options}


@pytest.mark.slow
def test_an_accuracy_is_kept_by_what_is_chosen() -> None:
    """Pairs of digits are weighed only where an accuracy is asked for, and a bound that nothing keeps is refused."""
    device, task = load_device("h200"), BenchTask((8192,) * 3, "float32")
    usual, classical = (choose(task, BenchCase(accuracy=accuracy), device).chosen for accuracy in (None, "classical"))
    assert (usual.tile, classical.tile) == ("residues7", "pairs")
    for accuracy, tile in ((None, "residues14"), ("classical", "residues15")):
        (bits,) = tasks_for("8192", None, False, ("float64",), ("bitwise",), accuracy)
        same: Any = choose(bits, bits.cases[0], device).chosen.choice
        assert same.same_bits and same.tile == tile
    with pytest.raises(BilinearError, match="E5"):
        choose(task, BenchCase(accuracy=1e-30), device)


def test_time_that_is_over_leaves_the_rest_out(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.0, 99.0])
    monkeypatch.setattr(bench, "perf_counter", lambda: next(clock))
    told: list[tuple[str, int, int]] = []
    task = BenchTask((64, 64, 64), "float64", (BenchCase(),))
    found = list(measure([task, task], SLOW_LIBRARY, Effort(seconds=50, launches=False), lambda *of: told.append(of)))
    assert isinstance(found[0], Measurement) and found[1] == LeftOut("64x64x64 float64", "the time was over")
    assert told == [("64x64x64 float64", 0, 2), ("64x64x64 float64", 1, 2), ("done", 2, 2)]


def test_a_launch_is_timed_after_a_run_that_is_not_counted(gpu: Gpu) -> None:
    each = iter([1.0, 3.0, 2.0, 0.0])

    def next_run(*spaces: Any) -> None:
        gpu.launch_ms = next(each)

    task, case = BenchTask((64, 64, 64), "float64"), pinned("msmes:1")
    gpu.launch_ms, gpu.damage = 50.0, next_run
    a, b, c = np.ones((64, 64)), np.ones((64, 64)), np.empty((64, 64))
    assert [launch.ms for launch in launch_times(choose(task, case, SLOW_LIBRARY), a, b, c)] == [2.0] * 7


def test_errors_by_level_rise_below_their_bounds(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "ERROR_SIZE", 64)
    monkeypatch.setattr(bench, "MOST_ERROR_LEVELS", 2)
    empty = Benchmark("bench", {}, ())
    assert bench.with_errors(empty, SLOW_LIBRARY).errors == ()
    (row,) = rows_of(BenchTask((64, 64, 64), "float32", (BenchCase(),)), effort=Effort(1, 1, launches=False))
    points = bench.with_errors(replace(empty, rows=(row,)), SLOW_LIBRARY).errors
    assert [(p.algorithm, p.levels) for p in points] == [(name, level) for name in ("winograd", "msmes") for level in range(3)]
    assert all(0 < p.error < p.bound and p.dtype == "float32" and p.size == 64 for p in points)
    assert [p.bound for p in points[:3]] == sorted(p.bound for p in points[:3])


def test_what_is_found_is_kept_also_where_the_run_is_broken_off(gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCHMARK_COMMIT", "abc")
    file = tmp_path / "found.json"
    (row,) = rows_of(BenchTask((64, 64, 64), "float64", (BenchCase("restore", 0.0),)), effort=Effort(7, 1))

    def broken() -> Iterator[Measurement | LeftOut]:
        assert json.loads(file.read_text())["rows"] == []
        yield row
        yield LeftOut("x", "y")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect(broken(), "bench", ["/somewhere/best.py", "--json", "x"], file)
    kept = json.loads(file.read_text())
    assert (
        kept["benchmark"] == "bench" and kept["command"] == ["best.py", "--json", "x"] and kept["left_out"] == [{"what": "x", "why": "y"}]
    )
    assert (kept["machine"]["gpu"], kept["machine"]["commit"], kept["machine"]["power.limit"]) == ("a pretended GPU", "abc", "700 W")
    (found,) = kept["rows"]
    wanted = {"n": 64, "dtype": "float64", "inputs": "restore", "budget": 0.0, "plan": "msmes, 1 level", "workspace": 0, "ms": 7.0}
    wanted |= {"library_ms": 6.0, "ratio": 6 / 7, "exact": True, "restored": True, "shape": [64, 64, 64], "rounds": 7, "clock": 1755.0}
    assert wanted.items() <= found.items() and found["error"] <= found["bound"] and len(found["launches"]) == 7


def test_what_is_found_is_saved_every_few_seconds(gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saves: list[int] = []
    clock = iter([0.0, 2.0, 6.0, 6.0, 8.0, 14.0, 14.0])
    monkeypatch.setattr(bench, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(bench, "save", lambda result, file: saves.append(len(result.left_out)))
    collect((LeftOut(str(i), "") for i in range(4)), "bench", [], tmp_path / "x")
    assert saves == [0, 2, 4, 4]


@pytest.mark.parametrize("fresh", [False, True])
def test_a_grid_is_two_hundred_shapes_of_every_kind(fresh: bool) -> None:
    shapes = grid(fresh)
    assert len(shapes) == len({shape for shape, _ in shapes}) == 200 and shapes == grid(fresh)
    assert [dtype for _, dtype in shapes].count("float32") == 100
    assert all(1 <= side <= LARGEST_SIDE for shape, _ in shapes for side in shape)
    assert all(2.0 * m * k * n <= MOST_FLOPS for (m, k, n), _ in shapes)
    powers, primes, odd, tall, wide = ([shape for shape, _ in shapes[i : i + 40]] for i in range(0, 200, 40))
    assert all(side & (side - 1) == 0 for shape in powers for side in shape)
    assert all(side > 1 and all(side % d for d in range(2, int(side**0.5) + 1)) for shape in primes for side in shape)
    assert all(side % 2 for shape in odd for side in shape)
    assert all(max(shape) >= 1000 and sum(side <= 64 for side in shape) == 2 for shape in tall)
    assert all(sum(side >= 1000 for side in shape) == 2 and min(shape) <= 64 for shape in wide)
    assert sum(FAMILIES) == 200 and sum(len(set(shape)) == 1 for shape, _ in shapes) >= 36
    assert sum(min(shape) >= 1024 for shape, _ in shapes) >= (25 if fresh else 30) and any(
        max(shape) < (32 if fresh else 16) for shape, _ in shapes
    )
    if not fresh:
        assert shapes[:3] == (((256,) * 3, "float64"), ((32,) * 3, "float32"), ((16384,) * 3, "float64")), "the same on every machine"
    assert len({shape for shape, _ in shapes} & {shape for shape, _ in grid(not fresh)}) == 13, "powers of two and small cubes"


def test_shapes_are_read_as_they_are_written(tmp_path: Path) -> None:
    assert read_sizes("4096, 20x30x40") == ((4096,) * 3, (20, 30, 40))
    file = tmp_path / "shapes.txt"
    file.write_text("# mine\n128\n\n  7,8,9   # odd\n1x2x3 5\n")
    assert read_shapes_file(file) == ((128,) * 3, (7, 8, 9), (1, 2, 3), (5, 5, 5))
    assert tasks_for("9", file, False, ("float32",), ("plan", "auto"))[1] == BenchTask((7, 8, 9), "float32", (*PLANNED, AUTO))
    assert len(tasks_for("", None, True, ("float32",), ("auto",))) == 100


@pytest.mark.parametrize("text", ["", "0", "a", "3x4", "1x2x3x4", "-5", "1x0x2", "12345678901", "4096;5"])
def test_what_is_no_shape_is_refused_at_its_place(text: str, tmp_path: Path) -> None:
    with pytest.raises(BilinearError, match="E681"):
        read_sizes(text)
    file = tmp_path / "shapes.txt"
    file.write_text(f"10\n  {text} # that\n" if text else "# nothing\n")
    with pytest.raises(BilinearError, match="E681") as refused:
        read_shapes_file(file)
    if text:
        assert f"{file}:2:3: error[E681]: {text!r} is not a shape" in str(refused.value)
        assert f"2 |   {text} # that" in str(refused.value)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\0")
    for file in (tmp_path / "missing", tmp_path, binary):
        with pytest.raises(BilinearError, match=r"E681.*cannot read"):
            read_shapes_file(file)


@pytest.mark.parametrize(
    ("word", "code"),
    [
        ("winograd:0", "E682"),
        ("winograd:x", "E682"),
        ("winograd:99", "E682"),
        ("winograd:21", "E682"),
        ("msmes:", "E682"),
        ("no_such:2", "E121"),
    ],
)
def test_levels_that_mean_nothing_are_refused(word: str, code: str) -> None:
    if not code:
        assert pinned(word) == BenchCase("restore", None, ("msmes",), word)
        return
    with pytest.raises(BilinearError, match=code):
        pinned(word)


def test_auto_without_a_description_is_refused(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bench.described([BenchTask((8, 8, 8), "float64", (AUTO,))]) is SLOW_LIBRARY
    monkeypatch.setattr(devices_here, "current_device", lambda: None)
    monkeypatch.setattr(bench, "tune", lambda progress: "measured now")
    assert bench.described([BenchTask((8, 8, 8), "float64")]) == "measured now"  # type: ignore[comparison-overlap]
    with pytest.raises(BilinearError, match="E687"):
        bench.described([BenchTask((8, 8, 8), "float64", (AUTO,))])


@pytest.mark.parametrize("case", [AUTO, BenchCase(), pinned("msmes:1")])
def test_the_library_under_the_name_of_a_plan_is_refused(case: BenchCase, gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BILINEAR_USE_LIBRARY", "1")
    with pytest.raises(BilinearError, match=r"E687.*BILINEAR_USE_LIBRARY"):
        bench.described([BenchTask((8, 8, 8), "float64", (case,))])


def test_kernels_are_built_ahead_each_once(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[AnyKernel] = []
    monkeypatch.setattr(ahead, "build_kernels", lambda kernels, target, progress: built.extend(kernels))
    tasks = [BenchTask((65, 64, 64), "float32", (*PLANNED, AUTO, pinned("msmes:1")))] * 2
    build_ahead(tasks, SLOW_LIBRARY)
    plans = [bench_tasks.choose(tasks[0], case, SLOW_LIBRARY) for case in tasks[0].cases]
    assert {plan.chosen.levels for plan in plans} == {(), ("winograd",), ("msmes",)}
    assert len(built) == len(set(built)) > 0 and set(built) == {
        one for plan in plans for one in ahead.kernels_of(plan, CudaTarget("sm_90"))
    }


def test_the_machine_is_told_without_a_gpu_and_without_its_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    facts = bench_library.machine()
    assert facts["gpu"] is None and facts["why"] and facts["commit"]
    monkeypatch.setattr(bench_library, "_query", lambda names: ["/no/such/tool"])
    assert bench_library.gpu_state() == {}


def test_the_load_is_asked_for_while_the_call_runs(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    monkeypatch.setattr(bench_library, "_query", lambda names: ["sh", "-c", "sleep 0.05; echo '1500 MHz, [N/A], 71'"])
    watch = bench_library.Watch(1e6)
    assert watch(lambda: made.append(1)) == Load(1500.0, None, 71.0) and made
    count = len(made)
    assert watch(lambda: made.append(1)) == Load(1500.0, None, 71.0) and len(made) == count, "the answer counts for a while"
    for broken in (["/no/such/tool"], ["false"], ["echo", "one field"]):
        monkeypatch.setattr(bench_library, "_query", lambda names, words=broken: words)
        assert bench_library.load_during(lambda: None) == Load()


def test_energy_is_counted_between_two_steps_of_the_counter(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call takes 3 mJ; the counter moves after every 40 calls."""
    made: list[int] = []
    call, counter = partial(made.append, 1), lambda: len(made) // 40 * 120
    assert bench_library.joules(call, 5.0, counter, 0.001) == pytest.approx(0.003)
    monkeypatch.setattr(bench_library, "STILL_S", 0.01)
    assert bench_library.joules(call, 5.0, lambda: 7, 0.001) is None
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())
    assert bench_library.energy_counter() is None, "a driver without the function"


@pytest.mark.parametrize("counts", [True, False])
def test_joules_stand_beside_times_where_the_driver_counts(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, counts: bool) -> None:
    """A reading is 5 J more than the one before; between two there are two calls of 7 ms."""
    reading = itertools.count(0, 5000)
    monkeypatch.setattr(bench, "energy_counter", lambda: partial(next, reading) if counts else None)
    (row,) = rows_of(BenchTask((64, 64, 64), "float64", (BenchCase("restore", 0.0),)), effort=Effort(1, 1, launches=False, energy=1e-9))
    text, told = bench_table(Benchmark("bench", {}, (), (row,))), row.to_json()
    assert (row.joules, row.library_joules) == ((2.5, 2.5) if counts else (None, None)) == (told["joules"], told["library_joules"])
    assert told["gflops_per_watt"] == (pytest.approx(2e-9 * 64**3 / 2.5) if counts else None)
    assert ("GFLOP/s/W" in text, "The driver counted no joules." in text) == (counts, not counts)


@pytest.mark.gpu
def test_plans_on_a_gpu_are_checked_and_timed() -> None:
    bench.require_gpu()
    known = devices_here.current_device()
    device, own = (SLOW_LIBRARY, PLANNED) if known is None else (known, (*PLANNED, AUTO))  # which runs what is known here
    tasks = [BenchTask((1024, 1000, 1024), dtype, (*own, pinned("msmes:1"))) for dtype in ("float32", "float64")]
    rows = [one for one in measure(tasks, device, Effort(3, 3)) if isinstance(one, Measurement)]
    assert len(rows) == 2 * len(own) + 2 and all(row.trust.holds and row.ms > 0 and row.library_ms > 0 for row in rows)
    assert all(row.launches for row in rows if row.levels)
    (tiny,) = (one for one in measure([BenchTask((64, 64, 64), "float32", own[-1:])], device, Effort(3, 3)) if isinstance(one, Measurement))
    assert tiny.trust.holds and tiny.ms > 0  # how it is timed depends on what else runs there
