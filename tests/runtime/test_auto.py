"""`auto` and `plan=` on arrays of a pretended GPU: which plan runs, when the library runs instead, and what is refused."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from each_case import each

import bilinear
from bilinear.backends.numpy_executor import NumpyExecutor
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.errors import BilinearError, Diagnostic
from bilinear.ir.tile import LARGE, TILES, USUAL
from bilinear.methods.planning import make_plan
from bilinear.planner import choose, profiles
from bilinear.planner.device import Device, Policy
from bilinear.planner.device_files import device_json, load_device
from bilinear.planner.plan import Plan
from bilinear.planner.problem import Problem
from bilinear.planner.ways import hashes
from bilinear.runtime import ahead, auto, decide, devices_here, multiply, run
from bilinear.runtime.arrays import Kind
from bilinear.runtime.operands import layouts_of

H200 = replace(load_device("h200"), policy=Policy(least_block=128))
"""This description allows blocks of 128, so that the tests need no large matrices."""
SLOW = ((1.0, 0.001),)
SLOW_LIBRARY = replace(H200, thin=(), digits=(), elements=tuple((dtype, replace(rates, library=SLOW)) for dtype, rates in H200.elements))
"""A device on which every fast scheme wins at every size."""
N = 256


class Counting(NumpyExecutor):
    """An executor that records the plans that ran."""

    def __init__(self, ran: list[tuple[str, int]]) -> None:
        super().__init__()
        self.ran = ran

    def steps(self, plan: Any, *rest: Any) -> Any:
        self.ran.append((plan.schedule.scheme, plan.schedule.levels))
        return super().steps(plan, *rest)


@pytest.fixture(autouse=True)
def _fast_schemes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave the classical algorithm out of the portfolio, so that only fast schemes compete."""
    own = profiles.portfolio()
    fast = replace(own, expand=tuple(levels for levels in own.expand if levels != ("classical",)))
    monkeypatch.setattr(profiles, "portfolio", lambda: fast)
    choose.make_plan.cache_clear()
    decide._decisions.clear()
    yield
    choose.make_plan.cache_clear()
    decide._decisions.clear()


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The plans that run. NumPy arrays count as arrays on a GPU where every fast scheme wins."""
    plans: list[tuple[str, int]] = []
    monkeypatch.setattr("bilinear.runtime.accept.kind_of", lambda *arrays: Kind(np, True, lambda result: result))
    monkeypatch.setattr(run, "make_executor", lambda kind: Counting(plans))
    monkeypatch.setattr(devices_here, "current_device", lambda: SLOW_LIBRARY)
    monkeypatch.delenv("BILINEAR_USE_LIBRARY", raising=False)
    return plans


def integers(*shape: int, dtype: str = "float64") -> Any:
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype(dtype)


def operands(n: int = N, dtype: str = "float64") -> tuple[Any, Any, Any]:
    a, b = integers(n, n, dtype=dtype), integers(n, n + 2, dtype=dtype)
    return a, b, a @ b  # integers: exact in both types


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_auto_runs_what_the_model_chooses(ran: list[tuple[str, int]], dtype: str) -> None:
    a, b, wanted = operands(dtype=dtype)
    np.testing.assert_array_equal(bilinear.matmul(a, b), wanted)
    chosen = make_plan(Problem(N, N, N + 2, dtype), SLOW_LIBRARY).chosen
    assert not chosen.is_library and (chosen.levels[0], len(chosen.levels)) in ran


@pytest.mark.parametrize("fails", [False, True])
def test_the_library_stands_in_while_kernels_are_built_behind(
    ran: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """A build that fails is left to the call that needs it. What the library does not keep is waited for."""
    asked, go = [], threading.Event()

    def build(kernels: Any, target: CudaTarget) -> None:
        asked.append((len(kernels), target.name))
        assert go.wait(60)
        if fails:
            raise BilinearError([Diagnostic("E601", "there is no compiler")])

    ahead._begun.clear()
    monkeypatch.setattr(ahead, "build_kernels", build)
    monkeypatch.setattr("bilinear.backends.machine.target_here", lambda *_: CudaTarget("sm_90"))
    monkeypatch.setenv("BILINEAR_BUILD", "behind")
    a, b, wanted = operands()
    for _ in range(2):
        np.testing.assert_array_equal(bilinear.matmul(a, b), wanted)
    assert not ran
    least = make_plan(Problem(N, N, N + 2), SLOW_LIBRARY).chosen.choice.bound(N, "float64")
    with pytest.raises(BilinearError, match="E519"):
        bilinear.matmul(a, b, accuracy=least / 1e6)
    go.set()
    for done in ahead._begun.values():
        assert done.wait(60)
    np.testing.assert_array_equal(bilinear.matmul(a, b), wanted)
    assert ran and len(asked) == 1 and asked[0][0] > 0 and asked[0][1] == "sm_90"
    ahead._begun.clear()
    monkeypatch.setenv("BILINEAR_BUILD", "later")
    decide._decisions.clear()
    with pytest.raises(BilinearError, match="E547"):
        bilinear.matmul(a, b)


def fast_in(tile: str) -> Device:
    """A device on which this tile is ten times as fast as the others, and the library is very slow."""
    rates = H200.rates("float64")
    tiles = (replace(rates.tile(USUAL), name=name, share=((1.0, 10.0 if name == tile else 1.0),)) for name in TILES["float64"])
    return H200.with_rates("float64", replace(rates, tiles=tuple(tiles), library=((1.0, 1.0),)))


def test_a_named_algorithm_runs_in_the_fastest_tile(ran: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a description of the device it runs in the usual tile. A plan always runs in its own tile."""
    tiles: list[str] = []

    class Telling(Counting):
        def steps(self, plan: Any, *rest: Any) -> Any:
            tiles.append(plan.tile)
            return super().steps(plan, *rest)

    monkeypatch.setattr(run, "make_executor", lambda kind: Telling(ran))
    a, b = integers(N, N), integers(N, N)
    for tile, device in ((USUAL, None), *((tile, fast_in(tile)) for tile in TILES["float64"]), (USUAL, None)):
        monkeypatch.setattr(devices_here, "current_device", lambda device=device: device)
        for options in ({"algorithm": "strassen"}, {"algorithm": "msmes", "inputs": "restore"}):
            np.testing.assert_array_equal(bilinear.matmul(a, b, **options), a @ b)  # type: ignore[call-overload]
            assert set(tiles) == {tile}
            tiles.clear()
    chosen = make_plan(Problem(N, N, N), fast_in(USUAL))
    assert chosen.chosen.tile == USUAL
    monkeypatch.setattr(devices_here, "current_device", lambda: fast_in(LARGE))
    np.testing.assert_array_equal(bilinear.matmul(a, b, plan=chosen), a @ b)
    assert set(tiles) == {USUAL}


def test_small_blocks_are_for_one_matrix_each_of_even_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan for a matrix with aligned rows is not used for a batch, or for views whose rows begin anywhere: the library runs."""
    monkeypatch.setattr(devices_here, "current_device", lambda: H200)
    a, b, out = (np.zeros(shape, "float32") for shape in ((32, 4096), (4096, 4096), (32, 4096)))
    wide = np.zeros((4096, 4097), "float32")

    def plan(x: Any, y: Any, c: Any = None) -> tuple[str, ...]:
        choice = auto.plan_for(layouts_of(x, y, c), "preserve", None)
        assert choice is not None
        return choice.chosen.levels

    assert plan(a, b) == plan(a, b, out) == ("split_k", "split_k")
    assert plan(np.stack([a, a]), b) == plan(a, wide[:, :4096]) == plan(a, b, wide[:32, :4096]) == ()


def test_auto_takes_out_alpha_beta_and_batches(ran: list[tuple[str, int]]) -> None:
    a, b, _ = operands()
    out = integers(3, N, N + 2)
    stacked = np.stack([a, a + 1, a - 1])
    wanted = 2 * stacked @ b + 3 * out
    assert bilinear.matmul(stacked, b, out, alpha=2, beta=3) is out
    np.testing.assert_array_equal(out, wanted)
    assert len(ran) >= 3


def test_one_variable_of_the_environment_switches_everything_to_the_library(
    ran: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, wanted = operands()
    plan = make_plan(Problem(N, N, N + 2), SLOW_LIBRARY)
    monkeypatch.setenv("BILINEAR_USE_LIBRARY", "1")
    options: tuple[dict[str, Any], ...] = ({}, {"algorithm": "strassen"}, {"plan": plan}, {"algorithm": "msmes", "inputs": "restore"})
    for option in options:
        np.testing.assert_array_equal(bilinear.matmul(a, b, **option), wanted)
    assert not ran
    monkeypatch.setenv("BILINEAR_USE_LIBRARY", "0")
    bilinear.matmul(a, b)
    assert ran


def test_an_unknown_device_is_the_library(ran: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices_here, "current_device", lambda: None)
    a, b, wanted = operands()
    np.testing.assert_array_equal(bilinear.matmul(a, b), wanted)
    assert not ran


def test_numpy_arrays_stay_with_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices_here, "current_device", lambda: SLOW_LIBRARY)
    monkeypatch.setattr(run, "make_executor", lambda kind: pytest.fail("a schedule ran"))
    a, b, wanted = operands()
    np.testing.assert_array_equal(bilinear.matmul(a, b), wanted)


@pytest.mark.parametrize("workspace", ["none", 0, np.int64(0)])
def test_without_workspace_auto_is_the_library_or_in_place(ran: list[tuple[str, int]], workspace: Any) -> None:
    a, b, wanted = operands()
    np.testing.assert_array_equal(bilinear.matmul(a, b, workspace=workspace), wanted)
    assert not ran
    np.testing.assert_array_equal(bilinear.matmul(a, b, workspace=workspace, inputs="restore"), wanted)
    assert any(name in ("strassen", "winograd") for name, _ in ran)  # the schemes of msmes and of winograd_in_place
    np.testing.assert_array_equal(a @ b, wanted)  # restored


def test_a_buffer_is_used_up_to_its_size(ran: list[tuple[str, int]]) -> None:
    a, b, wanted = operands()
    needed = make_plan(Problem(N, N, N + 2), SLOW_LIBRARY).chosen.workspace
    assert needed
    buffer = np.zeros(needed, np.uint8)
    np.testing.assert_array_equal(bilinear.matmul(a, b, workspace=buffer), wanted)
    assert ran and buffer.any()
    ran.clear()
    np.testing.assert_array_equal(bilinear.matmul(a, b, workspace=np.empty(16, np.uint8)), wanted)
    assert not ran


def test_a_budget_holds_for_a_named_algorithm() -> None:
    a, b, wanted = operands()
    np.testing.assert_array_equal(bilinear.matmul(a, b, algorithm="strassen", workspace="unlimited"), wanted)
    with pytest.raises(BilinearError, match=r"E535.*needs \d+ bytes of workspace, 1000 are allowed"):
        bilinear.matmul(a, b, algorithm="strassen", workspace=1000)
    np.testing.assert_array_equal(bilinear.matmul(a, b, algorithm="msmes", inputs="restore", workspace="none"), wanted)


@each("workspace", ["much", -1, 1.5, True, b"x", object()])
def test_a_malformed_workspace_is_refused(workspace: Any) -> None:
    a, b, _ = operands()
    with pytest.raises(BilinearError, match=r"E534|E529"):
        bilinear.matmul(a, b, algorithm="strassen", workspace=workspace)


def test_memory_that_cannot_be_had_is_the_library(
    ran: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none_left(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(Counting, "allocate", none_left)
    a, b, wanted = operands()
    with caplog.at_level(logging.INFO, "bilinear"):
        np.testing.assert_array_equal(bilinear.matmul(a, b), wanted)
    assert not ran and "cannot run" in caplog.text
    with pytest.raises(MemoryError):
        bilinear.matmul(a, b, plan=make_plan(Problem(N, N, N + 2), SLOW_LIBRARY))


def test_inputs_that_cannot_be_written_are_no_error_of_auto(ran: list[tuple[str, int]]) -> None:
    a, b, wanted = operands()
    a.flags.writeable = False
    np.testing.assert_array_equal(bilinear.matmul(a, b, workspace=0, inputs="restore"), wanted)
    nan = np.full_like(wanted, np.nan)
    poisoned = a.copy()
    poisoned[0, 0] = np.inf
    with np.errstate(invalid="ignore"):
        result = bilinear.matmul(poisoned, b, nan, workspace=0, inputs="restore")
    np.testing.assert_array_equal(result[1:], wanted[1:])
    assert not ran


def test_the_choice_is_logged_once(ran: list[tuple[str, int]], caplog: pytest.LogCaptureFixture) -> None:
    auto._logged.cache_clear()
    a, b, _ = operands()
    with caplog.at_level(logging.INFO, "bilinear"):
        for _ in range(3):
            bilinear.matmul(a, b)
    assert len([r for r in caplog.records if r.message.startswith(f"auto, {N} x {N} x {N + 2} of float64")]) == 1


def test_a_plan_runs_exactly(ran: list[tuple[str, int]], tmp_path: Path) -> None:
    """The third-best plan is given, so that the best plan or the library would be noticed."""
    choice = make_plan(Problem(512, 512, 514), SLOW_LIBRARY)
    third = next(c for c in choice.candidates[2:] if set(c.levels) == {"strassen"} and not c.why.startswith("needs"))
    pinned = replace(choice, candidates=(third,), sha256=hashes(third.levels))
    bilinear.save_plan(pinned, tmp_path / "plan.json")
    a, b, wanted = operands(512)
    np.testing.assert_array_equal(bilinear.matmul(a, b, plan=bilinear.load_plan(tmp_path / "plan.json")), wanted)
    assert set(ran) - {("plain", 1)} == {("strassen", len(third.levels))}


def test_a_plan_runs_on_numpy_arrays_too(ran: list[tuple[str, int]]) -> None:
    a, b, wanted = operands()
    plan = make_plan(Problem(N, N, N + 2), SLOW_LIBRARY)
    np.testing.assert_array_equal(bilinear.matmul(a, b, plan=plan), wanted)
    assert ran


def test_a_plan_gives_the_same_bits_every_time(ran: list[tuple[str, int]]) -> None:
    generator = np.random.default_rng(3)
    a, b = generator.standard_normal((N, N)), generator.standard_normal((N, N + 2))
    plan = make_plan(Problem(N, N, N + 2), SLOW_LIBRARY)
    first, second = (bilinear.matmul(a, b, plan=plan) for _ in range(2))
    np.testing.assert_array_equal(first.view(np.uint64), second.view(np.uint64))


@pytest.mark.parametrize(
    "options",
    [{"algorithm": "strassen"}, {"levels": 1}, {"inputs": "consume"}, {"plan": "plan.json"}],
    ids=["name", "levels", "inputs", "text"],
)
def test_options_beside_a_plan_are_refused(options: dict[str, Any]) -> None:
    a, b, _ = operands()
    plan: Plan = make_plan(Problem(N, N, N + 2), SLOW_LIBRARY)
    with pytest.raises(BilinearError, match="E544"):
        bilinear.matmul(a, b, **{"plan": plan, **options})
    with pytest.raises(BilinearError, match=r"E544.*: plan is of type int, not a plan of bilinear\.plan"):
        bilinear.matmul(a, b, plan=3)  # type: ignore[call-overload]


def test_a_plan_that_consumes_keeps_no_tolerance() -> None:
    plan = bilinear.plan(N, N, N + 2, device="h200", inputs="consume", levels=("msmes",))
    a, b, _ = operands()
    with pytest.raises(BilinearError, match="E532"):
        bilinear.matmul(a, b, plan=plan, tolerance=1e-3)


def test_a_plan_for_another_problem_is_refused() -> None:
    a, b, _ = operands()
    for problem in (Problem(N, N, N), Problem(N, N, N + 2, "float32")):
        with pytest.raises(BilinearError, match="E544"):
            bilinear.matmul(a, b, plan=make_plan(problem, SLOW_LIBRARY))


def test_a_name_that_is_no_text_is_no_dtype() -> None:
    with pytest.raises(BilinearError, match="E543"):
        bilinear.plan(N, N, N, "\ud800", device="h200")


def test_plans_need_no_gpu_but_a_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(device_json(SLOW_LIBRARY))
    choice = bilinear.plan(N, N, N, "float32", device=str(file), workspace="none", inputs="restore")
    assert choice.chosen.promise == "restore" and choice.problem.workspace == 0
    assert bilinear.plan(N, N, N, np.float64, device=SLOW_LIBRARY).problem.dtype == "float64"
    monkeypatch.setenv("BILINEAR_DEVICE", str(file))
    assert devices_here.current_device() == load_device(str(file))
    monkeypatch.setattr(devices_here, "current_device", lambda: None)
    with pytest.raises(BilinearError, match="E541"):
        bilinear.plan(N, N, N)
    with pytest.raises(BilinearError, match="E543"):
        bilinear.plan(N, N, N, "text", device="h200")


def test_threads_plan_and_multiply_at_once(ran: list[tuple[str, int]]) -> None:
    choose.make_plan.cache_clear()
    a, b, wanted = operands()
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(3):
            if not (bilinear.matmul(a, b) == wanted).all():
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and ran


def test_choosing_again_costs_microseconds() -> None:
    """The limit is generous: a cached choice takes ten microseconds, planning anew a hundred times as long."""
    a, b, _ = operands()
    device: Device = SLOW_LIBRARY
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices_here, "current_device", lambda: device)
        auto.plan_for(layouts_of(a, b, None), "preserve", None)
        start = time.process_time()
        for _ in range(1000):
            auto.plan_for(layouts_of(a, b, None), "preserve", None)
        assert (time.process_time() - start) / 1000 < 500e-6


@pytest.mark.parametrize(("inputs", "falls_back"), [("restore", True), ("consume", False)])
def test_the_library_never_multiplies_what_was_consumed(
    ran: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch, inputs: Any, falls_back: bool
) -> None:
    """Memory may run out after the schedule, when its result is converted. A and B are consumed by then."""

    def short(*_: Any) -> None:
        raise MemoryError("behind the schedule")

    monkeypatch.setattr(multiply, "ready_schedule", short)
    a, b, wanted = operands()
    if falls_back:
        np.testing.assert_array_equal(bilinear.matmul(a, b, workspace="none", inputs=inputs), wanted)
        return
    with pytest.raises(MemoryError, match="behind the schedule"):
        bilinear.matmul(a, b, workspace="none", inputs=inputs)
