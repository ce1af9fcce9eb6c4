"""Failures part-way, also where C is overwritten: A and B are restored, the exception lists what has changed, and interrupts wait."""

from __future__ import annotations

import _thread
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from each_case import each
from runtime.operands import integers

import bilinear
from bilinear.backends import executor, workers
from bilinear.backends.executor import parts_of
from bilinear.backends.numpy_executor import NumpyExecutor
from bilinear.errors import StageError
from bilinear.frontend import load
from bilinear.ir.placement import Strip
from bilinear.ir.schedule import LinearStage, ProductStage, Stage
from bilinear.lowering.place import place_schedule
from bilinear.lowering.prepare import prepare

Step = Callable[[], None]
Change = Callable[[int, Stage, Step], Step]
SHAPE = (19, 21, 23)  # Every extent is odd, so three strips run before the stages.


def stages_of(name: str, levels: int, inputs: str) -> tuple[Stage, ...]:
    loaded = load(name)
    return prepare(loaded.scheme, loaded.schedule, levels, inputs).schedule.stages


def operands() -> tuple[Any, Any, Any]:
    generator = np.random.default_rng(2)
    m, k, n = SHAPE
    return integers(generator, (m, k)), integers(generator, (k, n)), np.full((m, n), np.nan)


def change_steps(monkeypatch: pytest.MonkeyPatch, stages: tuple[Stage, ...], change: Change) -> None:
    """Wrap the step of every stage of the main schedule, but no strip and no stage that undoes others."""
    steps = NumpyExecutor.steps

    def changed(self: NumpyExecutor, plan: Any, given: Any, *rest: Any) -> list[Step]:
        made = steps(self, plan, given, *rest)
        return made if given != stages else [change(i, stage, step) for i, (stage, step) in enumerate(zip(given, made, strict=True))]

    monkeypatch.setattr(NumpyExecutor, "steps", changed)


def failing(at: int, error: BaseException) -> Change:
    def fail() -> None:
        raise error

    return lambda number, stage, step: fail if number == at else step


def interrupting(at: int) -> Change:
    """Ctrl-C in the middle of a stage."""

    def change(number: int, stage: Stage, step: Step) -> Step:
        def run() -> None:
            signal.raise_signal(signal.SIGINT)
            step()

        return run if number == at else step

    return change


@pytest.fixture(autouse=True)
def handler() -> Iterator[Any]:
    """Python's own handler, which must be back after every call."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


PLACES = [
    (levels, inputs, at) for levels in (1, 2) for inputs in ("restore", "consume") for at in range(len(stages_of("msmes", levels, inputs)))
]


@pytest.mark.sample(20)
@pytest.mark.parametrize(("levels", "inputs", "at"), PLACES)
def test_an_error_in_any_stage(levels: int, inputs: Any, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = stages_of("msmes", levels, inputs)
    a, b, c = operands()
    kept = a.copy(), b.copy()
    change_steps(monkeypatch, stages, failing(at, FloatingPointError("broken")))
    with pytest.raises(StageError, match="broken") as caught:
        bilinear.matmul(a, b, c, algorithm="msmes", levels=levels, inputs=inputs)
    error, stage = caught.value, stages[at]
    assert isinstance(error.__cause__, FloatingPointError)
    assert not set(error.changed) & set(error.undefined)
    named = set(error.changed) | set(error.undefined)
    if isinstance(stage, ProductStage):
        assert set(error.undefined) == {str(t.block) for product in stage.products for t in product.targets}
        assert np.array_equal(a, kept[0]) and np.array_equal(b, kept[1])
        assert all(name.startswith("C") for name in named)
        return
    assert set(error.undefined) == {str(t) for block_map in stage.maps for t in block_map.targets}
    for space, array, old in (("A", a, kept[0]), ("B", b, kept[1])):
        assert changed_blocks(space, array, old, levels) <= named


def changed_blocks(space: str, array: Any, old: Any, levels: int) -> set[str]:
    """The names of the blocks whose values differ from the caller's."""
    grid = 2**levels
    height, width = array.shape[0] // grid, array.shape[1] // grid
    found = set()
    for i in range(grid):
        for j in range(grid):
            place = (slice(i * height, (i + 1) * height), slice(j * width, (j + 1) * width))
            if not np.array_equal(array[place], old[place]):
                found.add(f"{space}{i + 1}{j + 1}")
    return found


@pytest.mark.parametrize("at", range(3))
def test_an_error_by_workspace_says_that_operands_are_untouched(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, c = operands()
    change_steps(monkeypatch, stages_of("strassen", 1, "preserve"), failing(at, ValueError("broken")))
    with pytest.raises(StageError, match="broken") as caught:
        bilinear.matmul(a, b, c, algorithm="strassen", levels=1)
    blocks = {"C11", "C12", "C21", "C22"}
    assert set(caught.value.undefined) == (blocks if at == 2 else set())
    strips = {"C[0:18, 22:23]", "C[18:19, 0:23]"}
    assert set(caught.value.changed) == (strips if at == 2 else strips | blocks)


@pytest.mark.parametrize(("name", "inputs"), [("msmes", "restore"), ("strassen", "preserve")])
@pytest.mark.parametrize("at", range(3))
def test_an_error_in_a_strip(name: str, inputs: Any, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from bilinear.backends import executor

    made = 0
    strip = executor._strip

    def broken(*arguments: Any) -> list[Step]:
        nonlocal made
        made += 1
        (step,) = strip(*arguments)

        def fail() -> None:
            raise FloatingPointError("broken")

        return [fail if made == at + 1 else step]

    monkeypatch.setattr(executor, "_strip", broken)
    a, b, c = operands()
    kept = a.copy(), b.copy()
    with pytest.raises(StageError, match="a strip failed") as caught:
        bilinear.matmul(a, b, c, algorithm=name, levels=1, inputs=inputs)
    assert np.array_equal(a, kept[0]) and np.array_equal(b, kept[1])
    blocks = ("C11", "C12", "C21", "C22")
    parts = [blocks, ("C[0:18, 22:23]",), ("C[18:19, 0:23]",)]
    assert caught.value.undefined == parts[at]
    assert caught.value.changed == tuple(name for part in parts[:at] for name in part)


def test_an_error_while_operands_are_brought_back_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = stages_of("msmes", 1, "restore")
    at = next(i for i, stage in enumerate(stages) if isinstance(stage, ProductStage))
    change_steps(monkeypatch, stages, failing(at, FloatingPointError("broken")))
    monkeypatch.setattr("bilinear.backends.executor.invert_stage", lambda stage: 1 / 0)
    a, b, c = operands()
    with pytest.raises(StageError, match="could not be restored") as caught:
        bilinear.matmul(a, b, c, algorithm="msmes", levels=1, inputs="restore")
    assert {name[0] for name in caught.value.changed} >= {"A", "B"}


@pytest.mark.sample(20)
@pytest.mark.parametrize(("levels", "inputs", "at"), PLACES)
def test_an_interrupt_waits_for_the_end_of_its_stage(levels: int, inputs: Any, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = stages_of("msmes", levels, inputs)
    a, b, c = operands()
    kept, wanted = (a.copy(), b.copy()), a @ b
    change_steps(monkeypatch, stages, interrupting(at))
    with pytest.raises(KeyboardInterrupt):
        bilinear.matmul(a, b, c, algorithm="msmes", levels=levels, inputs=inputs)
    last = at == len(stages) - 1
    if last:
        np.testing.assert_array_equal(c, wanted)
    if inputs == "restore" or not last:
        assert np.array_equal(a, kept[0]) and np.array_equal(b, kept[1])


def test_an_interrupt_during_strips_leaves_operands_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from bilinear.backends import executor

    strip = executor._strip
    ran: list[int] = []

    def interrupting_strip(*arguments: Any) -> list[Step]:
        (step,) = strip(*arguments)

        def run() -> None:
            signal.raise_signal(signal.SIGINT)
            step()
            ran.append(1)

        return [run]

    monkeypatch.setattr(executor, "_strip", interrupting_strip)
    a, b, c = operands()
    kept = a.copy(), b.copy()
    with pytest.raises(KeyboardInterrupt):
        bilinear.matmul(a, b, c, algorithm="msmes", levels=1, inputs="restore")
    assert len(ran) == 1, "the first boundary is after the first strip"
    assert np.array_equal(a, kept[0]) and np.array_equal(b, kept[1])


def test_an_interrupt_after_the_last_check_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """It arrives after all stages and checks, before the caller's handler is given back."""
    from bilinear.backends import workers

    real = vars(workers)["set_handler"]

    def restoring(number: int, action: Any) -> Any:
        if action is signal.default_int_handler:
            signal.raise_signal(signal.SIGINT)
        return real(number, action)

    a, b, c = operands()
    wanted = a @ b
    monkeypatch.setattr(workers, "set_handler", restoring)
    with pytest.raises(KeyboardInterrupt):
        bilinear.matmul(a, b, c, algorithm="msmes", levels=1, inputs="restore")
    monkeypatch.undo()
    np.testing.assert_array_equal(c, wanted)


@pytest.mark.parametrize("ignores", [False, True])
def test_a_handler_that_does_not_raise_lets_the_multiply_end(ignores: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some programs ignore the signal, or only note it and stop later."""
    seen: list[int] = []
    (a, b, c), handler = operands(), signal.SIG_IGN if ignores else lambda number, frame: seen.append(number)
    wanted = a @ b
    change_steps(monkeypatch, stages_of("msmes", 1, "restore"), interrupting(1))
    signal.signal(signal.SIGINT, handler)
    bilinear.matmul(a, b, c, algorithm="msmes", levels=1, inputs="restore")
    assert signal.getsignal(signal.SIGINT) is handler
    signal.signal(signal.SIGINT, signal.default_int_handler)
    np.testing.assert_array_equal(c, wanted)
    assert seen == [signal.SIGINT] * (not ignores)


def test_an_exception_that_is_no_error_leaves_as_it_is_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = stages_of("msmes", 1, "restore")
    at = next(i for i, stage in enumerate(stages) if isinstance(stage, ProductStage))
    change_steps(monkeypatch, stages, failing(at, SystemExit(3)))
    a, b, c = operands()
    kept = a.copy(), b.copy()
    with pytest.raises(SystemExit) as caught:
        bilinear.matmul(a, b, c, algorithm="msmes", levels=1, inputs="restore")
    assert "A and B are restored" in caught.value.__notes__[0]
    assert np.array_equal(a, kept[0]) and np.array_equal(b, kept[1])


def test_an_interrupt_by_workspace_leaves_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, c = operands()
    change_steps(monkeypatch, stages_of("strassen", 1, "preserve"), interrupting(1))
    with pytest.raises(KeyboardInterrupt):
        bilinear.matmul(a, b, c, algorithm="strassen", levels=1)


def test_another_thread_multiplies_in_place_without_touching_signals() -> None:
    a, b, c = operands()
    kept, wanted = a.copy(), a @ b
    failed: list[BaseException] = []

    def work() -> None:
        try:
            bilinear.matmul(a, b, c, algorithm="msmes", levels=2, inputs="restore")
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failed
    assert np.array_equal(c, wanted) and np.array_equal(a, kept)


def test_an_error_in_one_worker_waits_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread writes the caller's arrays any more when the exception leaves."""

    running = threading.Event()
    ended: list[int] = []

    def work(item: int, share: int) -> None:
        if threading.current_thread() is threading.main_thread():
            assert running.wait(60)
            raise FloatingPointError("broken")
        running.set()
        time.sleep(0.05)
        ended.append(share)

    with pytest.raises(FloatingPointError):
        workers.share(lambda: range(100), work, 2)
    assert len(ended) == 1, "it ends what it is at, and begins nothing more"


def test_threads_that_die_before_they_begin_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread may die at once if memory is short; then the caller's thread does all the work."""
    monkeypatch.setattr(workers, "start_new_thread", lambda *_: None)
    done: list[int] = []
    workers.share(lambda: range(10), lambda item, share: done.append(item), 4)
    assert sorted(done) == list(range(10))


def test_linear_stages_of_msmes_exist_before_and_after_its_products() -> None:
    """The tests above rely on this."""
    kinds = [type(stage) for stage in stages_of("msmes", 1, "restore")]
    assert kinds[0] is LinearStage and kinds[-1] is LinearStage and ProductStage in kinds


LOSSY = """schedule lossy of naive2x2
  stage { C11 += A11 * B11 ; C12 += A12 * B22 }
  stage { C12 += A11 * B12 ; C11 += A12 * B21 }
  stage { A11 = A21 ; A12 = A22 }
  stage { C21 += A11 * B11 ; C22 += A12 * B22 }
  stage { C22 += A11 * B12 ; C21 += A12 * B21 }
"""


def test_an_interrupt_leaves_as_itself_where_the_inputs_cannot_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage that overwrites a block has no inverse. The interrupt gets a note that says so, and does not become another error."""
    path = tmp_path / "lossy.bl"
    path.write_text(LOSSY)
    loaded = load(path)
    a, b, c = operands()
    wanted = a @ b
    bilinear.matmul(a.copy(), b, c, algorithm=loaded, levels=1, inputs="consume")
    np.testing.assert_array_equal(c, wanted)
    stages = prepare(loaded.scheme, loaded.schedule, 1, "consume").schedule.stages
    change_steps(monkeypatch, stages, interrupting(next(i for i, s in enumerate(stages) if isinstance(s, LinearStage))))
    with pytest.raises(KeyboardInterrupt) as caught:
        bilinear.matmul(a, b, c, algorithm=loaded, levels=1, inputs="consume")
    (note,) = caught.value.__notes__
    assert "A and B could not be restored" in note
    assert "A11, A12" in note


@pytest.mark.parametrize("error", [RuntimeError, MemoryError])
def test_threads_that_run_have_ended_when_another_cannot_be_started(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """Python raises either where memory is short. The second thread fails to start while the first one works."""
    started: list[int] = []
    begun = threading.Event()
    done: list[int] = []

    def start(work: Callable[[], None], arguments: tuple[()]) -> int:
        if started:
            begun.wait()
            raise error("can't start new thread")
        started.append(_thread.start_new_thread(work, arguments))
        return started[0]

    def run(item: int, share: int) -> None:
        begun.set()
        time.sleep(0.02)
        done.append(item)

    monkeypatch.setattr(workers, "start_new_thread", start)
    workers.share(lambda: range(9), run, 3)
    assert sorted(done) == list(range(9))


CASES: list[tuple[str, Any]] = [("winograd_depth_first", "preserve"), ("winograd_in_place", "restore"), ("winograd_in_place", "consume")]
SHAPES = [(8, 8, 8), (9, 8, 11), (8, 9, 8), (9, 11, 13)]


def overwritten(shape: tuple[int, int, int]) -> tuple[Any, Any, Any]:
    m, k, n = shape
    generator = np.random.default_rng(m + k + n)
    return integers(generator, (m, k)), integers(generator, (k, n)), integers(generator, (m, n))


@each("beta", [0, 1, -2])
@each("shape", SHAPES)
@each(("name", "inputs"), CASES)
def test_every_shape_and_beta(name: str, inputs: Any, shape: tuple[int, int, int], beta: int) -> None:
    a, b, c = overwritten(shape)
    wanted, kept = 3 * (a @ b) + beta * c, (a.copy(), b.copy())
    if beta == 0:
        c[...] = np.nan
    bilinear.matmul(a, b, c, alpha=3, beta=beta, algorithm=name, levels=1, inputs=inputs)
    np.testing.assert_array_equal(c, wanted)
    if inputs != "consume":
        np.testing.assert_array_equal(a, kept[0])
        np.testing.assert_array_equal(b, kept[1])


def test_the_rest_of_the_sum_is_the_last_part() -> None:
    loaded = load("winograd_depth_first")
    schedule = prepare(loaded.scheme, loaded.schedule, 1, "preserve").schedule
    parts = parts_of(place_schedule(schedule, 9, 9, 9, 8))
    assert [isinstance(part, Strip) for part in parts] == [True, True, *[False] * len(schedule.stages), True]
    assert parts[-1] == Strip((0, 8), (8, 9), (0, 8))


@pytest.mark.parametrize("inputs", ["restore", "consume"])
def test_an_error_in_the_last_strip_leaves_the_operands(inputs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even consumed overwritten are restored, by the inverses of the stages that ran."""
    strip = executor._strip

    def broken(backend: Any, plan: Any, part: Strip, *rest: Any) -> Any:
        def fail() -> None:
            raise FloatingPointError("broken")

        return [fail] if part.inner[0] else strip(backend, plan, part, *rest)

    monkeypatch.setattr(executor, "_strip", broken)
    a, b, c = overwritten((9, 11, 13))
    kept = a.copy(), b.copy()
    with pytest.raises(StageError, match="a strip failed") as caught:
        bilinear.matmul(a, b, c, algorithm="winograd_in_place", levels=1, inputs=inputs)
    np.testing.assert_array_equal(a, kept[0])
    np.testing.assert_array_equal(b, kept[1])
    assert caught.value.undefined == ("C11", "C12", "C21", "C22")
