"""Several callers at once, pools inside pools, forks, and the end of the interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from runtime.operands import ALGORITHMS, integers

import bilinear


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


def test_a_thread_that_outlives_the_main_one_still_multiplies() -> None:
    """Python starts no threads after the main thread has ended, so the caller does all the work."""
    program = """
def late():
    time.sleep(0.3)
    print(right())
threading.Thread(target=late).start()
"""
    assert run(START + program).strip() == "True"
