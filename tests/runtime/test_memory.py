"""Memory: in place, nothing grows with the problem; otherwise one buffer of the size that the plan says."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from runtime.operands import laid_out

import bilinear
from bilinear.backends import workers
from bilinear.backends.numpy_executor import MOST_HELD, NumpyExecutor
from bilinear.frontend import load
from bilinear.ir.matrix import matrix_of
from bilinear.ir.schedule import LinearStage
from bilinear.lowering.place import place_schedule
from bilinear.lowering.prepare import prepare
from bilinear.verify.elimination import invert_stage

SMALL_CHANGE = 400_000
"""Bytes for Python's own objects: views, slices, closures."""


def peak(call: Callable[[], object]) -> int:
    """The most bytes that a call held at once; NumPy reports its buffers to tracemalloc."""
    call()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("levels", "inputs", "layout"),
    [(1, "restore", layout) for layout in ("C", "F", "strided", "reversed", "unaligned")] + [(2, "restore", "C"), (2, "consume", "C")],
)
def test_in_place_nothing_grows(levels: int, inputs: Any, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "worker_count", lambda: 1)
    peaks = []
    for size in (515, 1031):
        a, b, c = (laid_out(np.ones((size, size)), layout) for _ in range(3))
        peaks.append(peak(lambda a=a, b=b, c=c: bilinear.matmul(a, b, c, algorithm="msmes", levels=levels, inputs=inputs)))  # type: ignore[misc]
    assert abs(peaks[1] - peaks[0]) <= SMALL_CHANGE
    assert max(peaks) <= MOST_HELD + SMALL_CHANGE


UNTRACED = """
import resource, sys
import numpy as np
import bilinear
from bilinear.backends import numpy_executor

numpy_executor.PRODUCT_BUFFER, numpy_executor.LINEAR_BUFFER = 1 << 20, 1 << 18
def operand(rows, columns):
    return np.ones((rows, 2 * columns))[:, ::2]
a, b, c = operand(128, 3000), operand(3000, 3000), operand(128, 3000)
small = np.ones((64, 128))[:, ::2]
bilinear.matmul(small.copy(), small.copy(), small.copy(), algorithm="msmes", levels=1, inputs="restore")
np.matmul(np.ones((600, 600)), np.ones((600, 600)))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
bilinear.matmul(a, b, c, algorithm="msmes", levels=1, inputs="restore")
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ru_maxrss is in kilobytes on Linux")
def test_strides_that_blas_cannot_read_are_not_copied_behind_our_back() -> None:
    """NumPy multiplies such operands through copies that tracemalloc does not see: blocks of 18 MB."""
    done = subprocess.run([sys.executable, "-c", UNTRACED], capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 6_000_000


@pytest.mark.sample(2)
@pytest.mark.parametrize(("name", "levels"), [("strassen", 1), ("winograd", 2), ("laderman", 1), ("hopcroft_kerr", 1), ("msmes", 2)])
def test_the_workspace_is_one_buffer_of_the_planned_size_and_said_beforehand(
    name: str, levels: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    m, k, n = 741, 653, 811
    loaded = load(name)
    schedule = prepare(loaded.scheme, loaded.schedule, levels, "preserve").schedule
    planned = place_schedule(schedule, m, k, n, 8).workspace_elements
    a, b, c = np.ones((m, k)), np.ones((k, n)), np.ones((m, n))
    held = peak(lambda: bilinear.matmul(a, b, c, algorithm=name, levels=levels))
    assert planned * 8 <= held <= planned * 8 + MOST_HELD + SMALL_CHANGE

    asked: list[int] = []
    allocate = NumpyExecutor.allocate

    def record(self: NumpyExecutor, elements: int, like: Any) -> Any:
        (said,) = re.findall(r"workspace of (\d+) bytes", caplog.text)
        assert int(said) == elements * like.itemsize
        asked.append(elements)
        return allocate(self, elements, like)

    monkeypatch.setattr(NumpyExecutor, "allocate", record)
    with caplog.at_level(logging.DEBUG, "bilinear"):
        bilinear.matmul(np.stack([a, a]), b, algorithm=name, levels=levels)
    assert asked == [planned], "once, for a whole batch too"


def test_a_workspace_that_cannot_be_had_is_an_error_that_says_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: NumpyExecutor, elements: int, like: Any) -> Any:
        raise MemoryError("no")

    monkeypatch.setattr(NumpyExecutor, "allocate", refuse)
    a, b, c = np.ones((8, 8)), np.ones((8, 8)), np.full((8, 8), 7.0)
    with pytest.raises(MemoryError, match=r"strassen-expand needs a workspace of \d+ bytes"):
        bilinear.matmul(a, b, c, algorithm="strassen", levels=1)
    np.testing.assert_array_equal(c, 7)


@pytest.mark.parametrize("inputs", ["preserve", "restore"])
def test_an_error_while_buffers_are_allocated_leaves_everything_untouched(inputs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> Any:
        raise MemoryError("no")

    monkeypatch.setattr(NumpyExecutor, "_held", refuse)
    a, b, c = (np.arange(81.0).reshape(9, 9) + i for i in range(3))
    kept = a.copy(), b.copy(), c.copy()
    with pytest.raises(MemoryError):
        bilinear.matmul(a, b, c, algorithm="msmes", levels=1, inputs=inputs)
    assert all(np.array_equal(x, y) for x, y in zip((a, b, c), kept, strict=True))


def test_bringing_operands_back_needs_no_buffer_of_its_own() -> None:
    """All buffers are allocated before the first write, so that restoring cannot run out of memory."""
    loaded = load("msmes")
    schedule = prepare(loaded.scheme, loaded.schedule, 1, "restore").schedule
    plan = place_schedule(schedule, 600, 600, 600, 8)
    executor = NumpyExecutor()
    a, b, c = (np.arange(360_000.0).reshape(600, 600) for _ in range(3))
    kept = a.copy(), b.copy()
    spaces = {name: matrix_of(x) for name, x in zip("ABC", (a, b, c), strict=True)}
    steps = executor.steps(plan, schedule.stages, spaces, 1, 0)
    names = set(executor._buffers)
    steps[0]()
    assert not np.array_equal(a, kept[0])
    first = schedule.stages[0]
    assert isinstance(first, LinearStage)
    inverse = (invert_stage(first),)

    def back() -> None:
        for step in executor.steps(plan, inverse, spaces, 1, 0):
            step()

    held = tracemalloc_of(back)
    assert np.array_equal(a, kept[0]) and np.array_equal(b, kept[1])
    assert set(executor._buffers) == names
    assert held < 300 * 300 * 8, "less than one block"


def tracemalloc_of(call: Callable[[], object]) -> int:
    """The most bytes that the first run of a call held."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
