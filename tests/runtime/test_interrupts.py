"""Signals and threads: once `matmul` has raised, nothing writes the caller's arrays; several callers at once, forks, and the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from runtime.operands import ALGORITHMS, integers

import bilinear
from bilinear.backends import workers
from bilinear.backends.numpy_executor import NumpyExecutor
from bilinear.backends.workers import HeldSignals


class Stopped(Exception):
    """The exception that a handler raises."""


def stop(number: int, frame: Any) -> None:
    raise Stopped(signal.Signals(number).name)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Python's own handler for Ctrl-C, and one that raises for the other signal. Both must be back after every call."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, stop)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is stop
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("presses", [1, 2, 5])
def test_workers_have_ended_when_an_interrupt_leaves(presses: int) -> None:
    """Ctrl-C comes while the caller waits for the other thread."""
    running, last = threading.Event(), [0.0]

    def run(item: int, share: int) -> None:
        if threading.current_thread() is threading.main_thread():
            assert running.wait(60)
            return
        running.set()
        for _ in range(presses):
            time.sleep(0.03)
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
        last[0] = time.monotonic()

    with pytest.raises(KeyboardInterrupt):
        workers.share(lambda: range(1000), run, 2)
    left = time.monotonic()
    time.sleep(0.2)
    assert 0 < last[0] < left, "the item was ended, and no other begun"


def test_a_handler_that_does_not_raise_loses_no_item() -> None:
    seen: list[int] = []
    done: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))

    def run(item: int, share: int) -> None:
        done.append(item)
        if item == 3:
            os.kill(os.getpid(), signal.SIGINT)

    workers.share(lambda: range(50), run, 3)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    assert sorted(done) == list(range(50)) and seen == [signal.SIGINT]


def test_threads_that_cannot_be_started_leave_the_work_to_those_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that begins after the call has ended must find no work."""
    late: list[Any] = []

    def refuse(work: Any, arguments: tuple[Any, ...]) -> None:
        late.append(work)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(workers, "start_new_thread", refuse)
    done: list[int] = []
    workers.share(lambda: range(20), lambda item, share: done.append(item), 4)
    late[0]()
    assert sorted(done) == list(range(20))


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_of_the_kind_changes_nothing(first: signal.Signals) -> None:
    def run() -> None:
        with HeldSignals() as deliver:
            signal.raise_signal(first)
            try:
                deliver()
            except BaseException as error:
                error.add_note("what became of A and B")
                signal.raise_signal(first)
                raise

    with pytest.raises((KeyboardInterrupt, Stopped)) as caught:
        run()
    assert caught.value.__notes__ == ["what became of A and B"]


def test_a_signal_of_another_kind_leaves_after_the_first() -> None:
    def run() -> None:
        with HeldSignals() as deliver:
            signal.raise_signal(signal.SIGINT)
            try:
                deliver()
            finally:
                signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Stopped) as caught:
        run()
    assert isinstance(caught.value.__context__, KeyboardInterrupt)


def test_other_threads_hold_nothing_back() -> None:
    found: list[Any] = []

    def look() -> None:
        with HeldSignals():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]


@pytest.mark.parametrize("at", range(5))
def test_any_signal_waits_for_the_end_of_a_stage_that_may_write_the_inputs(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real = NumpyExecutor.steps

    def changed(self: NumpyExecutor, *arguments: Any) -> Any:
        steps = real(self, *arguments)
        if len(steps) > at:
            step = steps[at]

            def stopped() -> None:
                signal.raise_signal(signal.SIGTERM)
                step()

            steps[at] = stopped
        return steps

    generator = np.random.default_rng(3)
    a, b = (generator.integers(-9, 10, (16, 16)).astype(float) for _ in range(2))
    kept = a.copy(), b.copy()
    monkeypatch.setattr(NumpyExecutor, "steps", changed)
    with pytest.raises(Stopped):
        bilinear.matmul(a, b, np.empty((16, 16)), algorithm="msmes", levels=1, inputs="restore")
    assert np.array_equal(a, kept[0]) and np.array_equal(b, kept[1])


PROGRAM = """
import os, signal, sys, threading, time
import numpy as np
import bilinear
from bilinear.backends import array_sums
from bilinear.backends import workers
workers.worker_count = lambda: 2
name, inputs = sys.argv[1:]
n = 2000
generator = np.random.default_rng(0)
a, b, out = (generator.integers(-9, 10, (n, n)).astype(float) for _ in range(3))
kept = a.copy(), b.copy()
run = lambda: bilinear.matmul(a, b, out, algorithm=name, levels=1, inputs=inputs)
run()
add, last = array_sums.add, [0.0]
def slow(*arguments):
    if threading.current_thread() is not threading.main_thread():
        time.sleep(0.02)
    add(*arguments)
    last[0] = time.monotonic()
array_sums.add = slow
def press():
    for _ in range(2):
        time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
late = changed = lost = 0
for trial in range(6):
    timer = threading.Timer(0.15 + 0.13 * trial, press)
    timer.start()
    caught = first = None
    while caught is None or time.monotonic() < caught + 0.5:
        try:
            while caught is None:
                run()
            first = out.copy() if first is None else first
            time.sleep(0.05)
        except KeyboardInterrupt:
            caught = caught or time.monotonic()
    timer.join()
    late += last[0] > caught
    changed += not np.array_equal(first, out)
    lost += not (np.array_equal(a, kept[0]) and np.array_equal(b, kept[1]))
print(late, changed, lost)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="sends signals")
@pytest.mark.parametrize(("name", "inputs"), [("winograd_depth_first", "preserve"), ("msmes", "restore")])
def test_two_signals_in_a_row(name: str, inputs: str) -> None:
    """In a process of its own: after the exception nothing writes `out`, A and B are restored, and nothing hangs."""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, name, inputs]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0", "0", "0"]


def multiply(seed: int) -> bool:
    generator = np.random.default_rng(seed)
    name = ALGORITHMS[seed % len(ALGORITHMS)]
    a, b = integers(generator, (181, 157)), integers(generator, (157, 183))
    inputs: Any = "restore" if name == "msmes" else "preserve"
    return bool(np.array_equal(bilinear.matmul(a, b, algorithm=name, levels=1 + seed % 2 if name == "msmes" else 1, inputs=inputs), a @ b))


def test_callers_in_threads_of_a_pool() -> None:
    """More callers than cores: no caller waits for a thread that waits for it."""
    with ThreadPoolExecutor(12) as pool:
        assert all(pool.map(multiply, range(24), timeout=300))


def run(program: str) -> str:
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


START = """
import os, threading, time
import numpy as np
import bilinear
from bilinear.backends import workers
workers.worker_count = lambda: 4
a = np.arange(700.0 * 700).reshape(700, 700) % 7
def right(**options):
    return bool((bilinear.matmul(a, a, algorithm="strassen", levels=1, **options) == a @ a).all())
"""


@pytest.mark.slow
def test_the_first_call_from_several_threads() -> None:
    program = """
answers = []
threads = [threading.Thread(target=lambda: answers.append(right())) for _ in range(6)]
[t.start() for t in threads]
[t.join() for t in threads]
print(answers)
"""
    assert run(START + program).strip() == str([True] * 6)


@pytest.mark.skipif(not hasattr(sys, "getdlopenflags"), reason="needs fork")
def test_a_forked_child_makes_threads_of_its_own() -> None:
    program = """
workers.worker_count = lambda: 2
assert right()
child = os.fork()
if child == 0:
    os._exit(0 if right() else 1)
for _ in range(600):
    done, status = os.waitpid(child, os.WNOHANG)
    if done:
        break
    time.sleep(0.05)
else:
    os.kill(child, 9)
    raise SystemExit("the child hangs")
print(os.waitstatus_to_exitcode(status))
"""
    assert run(START + program).strip() == "0"


@pytest.mark.slow
def test_a_thread_that_outlives_the_main_one_still_multiplies() -> None:
    """Python starts no threads after the main thread has ended, so the caller does all the work."""
    program = """
def late():
    time.sleep(0.3)
    print(right())
threading.Thread(target=late).start()
"""
    assert run(START + program).strip() == "True"
