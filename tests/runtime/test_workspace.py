"""Memory: in place, or with temporaries in later parts of C, nothing is allocated; otherwise one buffer, the plan's or the caller's."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from artifact.built_folders import needs_emulator
from choices import running
from each_case import each
from runtime.operands import integers, laid_out
from runtime.pretended_gpu import Array, undescribed

import bilinear
from bilinear.backends import capture, numpy_executor, workers
from bilinear.backends.numpy_executor import MOST_HELD, NumpyExecutor
from bilinear.errors import BilinearError, StageError
from bilinear.frontend import load
from bilinear.ir.matrix import matrix_of
from bilinear.ir.schedule import LinearStage
from bilinear.ir.tile import LARGE, USUAL
from bilinear.lowering.place import place_schedule
from bilinear.lowering.prepare import prepare
from bilinear.methods.planning import load_plan
from bilinear.planner.kept_plans import plan_json, save_plan
from bilinear.planner.plan import Panel, Plan
from bilinear.planner.scheduled import Scheduled
from bilinear.planner.ways import hashes
from bilinear.runtime import repeat
from bilinear.runtime.operands import accumulate
from bilinear.verify.elimination import invert_stage


def operands(dtype: str = "float64") -> tuple[Any, Any]:
    generator = np.random.default_rng(3)
    return integers(generator, (70, 60)).astype(dtype), integers(generator, (60, 50)).astype(dtype)


def refused(workspace: Any) -> str:
    a, b = operands()
    with pytest.raises(BilinearError) as caught:
        bilinear.matmul(a, b, algorithm="strassen", levels=1, workspace=workspace)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "E529"
    return str(diagnostic)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["uint8", "float64"])
def test_the_callers_buffer_is_used_and_the_product_is_exact(dtype: str, kind: str) -> None:
    a, b = operands(dtype)
    buffer = np.zeros(1 << 20, kind)
    for _ in range(2):
        c = bilinear.matmul(a, b, algorithm="strassen", levels=2, workspace=buffer)
        np.testing.assert_array_equal(c, a.astype(np.int64) @ b.astype(np.int64))
    assert buffer.any()


def test_a_buffer_of_exactly_the_bytes_that_are_asked_for_serves() -> None:
    needed = int(re.findall(r"must have (\d+)", refused(np.zeros(8)))[0])
    a, b = operands()
    buffer = np.empty(needed, np.uint8)
    np.testing.assert_array_equal(bilinear.matmul(a, b, algorithm="strassen", levels=1, workspace=buffer), a @ b)
    refused(np.empty(needed - 1, np.uint8))


def test_what_cannot_serve_is_refused() -> None:
    refused([0.0] * 100_000)
    refused(np.zeros((300, 300)))
    refused(np.zeros(1 << 20)[::2])
    fixed = np.zeros(1 << 20)
    fixed.flags.writeable = False
    refused(fixed)


@pytest.mark.parametrize("options", [{}, {"levels": 0}, {"alpha": 2}, {"algorithm": "strassen", "levels": 0}])
def test_what_cannot_serve_is_refused_although_the_librarys_multiply_needs_none(options: dict[str, Any]) -> None:
    a, b = operands()
    out, fixed, memory = np.full((70, 50), 7.0), np.zeros(9), np.ones(70 * 60)
    fixed.flags.writeable = False
    buffers: list[Any] = [[0.0] * 9, np.zeros((3, 3)), np.zeros(9)[::2], fixed, b"x", out.reshape(-1)[:9], memory]
    for workspace in buffers:
        with pytest.raises(BilinearError, match="E529"):
            bilinear.matmul(memory.reshape(70, 60), b, out, workspace=workspace, **options)
    assert (out == 7).all()
    np.testing.assert_array_equal(bilinear.matmul(a, b, out, workspace=np.zeros(9), **options), options.get("alpha", 1) * (a @ b))


@pytest.mark.parametrize("workspace", [[0.0] * 9, np.zeros((3, 3)), np.zeros(9)[::2]])
def test_a_product_by_the_transpose_refuses_it_too(workspace: Any) -> None:
    with pytest.raises(BilinearError, match="E529"):
        bilinear.gram(operands()[0], workspace=workspace)


def test_a_buffer_that_holds_an_operand_is_refused() -> None:
    buffer = np.ones(1 << 20)
    a, b = buffer[: 70 * 60].reshape(70, 60), np.ones((60, 50))
    with pytest.raises(BilinearError, match="workspace shares memory with an operand or out"):
        bilinear.matmul(a, b, algorithm="strassen", levels=1, workspace=buffer)
    assert (buffer == 1).all()


@pytest.mark.slow
def test_objects_lie_in_a_buffer_of_objects_and_numbers_in_no_other() -> None:
    a, b = (x.astype(int).astype(object) * Fraction(1, 3) for x in operands())
    for buffer in (np.empty(1 << 16), np.empty(1 << 19, np.uint8)):
        with pytest.raises(BilinearError, match=r"E529.*holds (float64|uint8), but must hold object"):
            bilinear.matmul(a, b, algorithm="strassen", levels=1, workspace=buffer)
    buffer = np.empty(1 << 16, object)
    np.testing.assert_array_equal(bilinear.matmul(a, b, algorithm="strassen", levels=1, workspace=buffer), a @ b)
    assert "holds object, but must hold float64" in refused(buffer)


def needed_beside_out(a: Any, b: Any, out: Any, allowed: int | str, **options: Any) -> int:
    """The bytes that a refusal (E535) asks for; nothing is written."""
    kept = out.copy()
    with pytest.raises(BilinearError, match="E535") as caught:
        bilinear.matmul(a, b, out, workspace=allowed, levels=1, **options)
    np.testing.assert_array_equal(out, kept)
    return int(re.findall(r"needs (\d+) bytes", str(caught.value))[0])


DEPTH_FIRST = 30 * 36 + 36 * 25
"""Elements of the temporaries of winograd_depth_first at 60 x 72 by 72 x 50: X holds a block of A or of C, Y one of B."""


def test_a_result_aside_from_out_counts_as_workspace() -> None:
    """If beta is not 0 and the schedule overwrites C, exactly the temporaries and a result as large as `out` are needed."""
    generator = np.random.default_rng(3)
    a, b, c = integers(generator, (60, 72)), integers(generator, (72, 50)), integers(generator, (60, 50))
    wanted, aside = a @ b + 2 * c, 60 * 50 * 8
    options: dict[str, Any] = {"algorithm": "winograd_depth_first", "beta": 2}
    own = needed_beside_out(a, b, c, 0, algorithm="winograd_depth_first")
    assert own >= DEPTH_FIRST * 8
    assert needed_beside_out(a, b, c, "none", **options) == own + aside
    assert needed_beside_out(a, b, c, own + aside - 1, **options) == own + aside
    bilinear.matmul(a, b, c.copy(), algorithm="winograd_depth_first", levels=1, workspace=own)
    bilinear.matmul(a, b, c, levels=1, workspace=own + aside, **options)
    np.testing.assert_array_equal(c, wanted)


def test_a_result_of_another_dtype_or_on_an_operand_counts_too() -> None:
    generator = np.random.default_rng(3)
    a, b = integers(generator, (2, 60, 60)), integers(generator, (2, 60, 60))
    wanted = a @ b
    own = needed_beside_out(a, b, np.zeros((2, 60, 60)), 0, algorithm="strassen")
    for out in (np.zeros((2, 60, 60), object), a):
        assert needed_beside_out(a, b, out, own, algorithm="strassen") == own + 2 * 60 * 60 * 8
        bilinear.matmul(a, b, out, algorithm="strassen", levels=1, workspace=own + 2 * 60 * 60 * 8)
        np.testing.assert_array_equal(out, wanted)


class Short(np.ndarray):
    """A product that cannot be converted, because memory is short."""

    def astype(self, *_: Any, **__: Any) -> Any:
        raise MemoryError


def test_memory_that_is_short_for_a_conversion_leaves_out() -> None:
    """If the library ran instead, it would scale `out` a second time."""
    out = np.full((3, 3), 2.0)
    with pytest.raises(MemoryError):
        accumulate(out, np.ones((3, 3), np.float32).view(Short), 3.0)
    assert (out == 2).all()


def test_in_place_needs_none() -> None:
    a, b = operands()
    c = bilinear.matmul(a.copy(), b.copy(), algorithm="msmes", levels=1, inputs="restore", workspace=np.zeros(1))
    np.testing.assert_array_equal(c, a @ b)


def test_a_workspace_within_out_is_refused_though_the_result_is_computed_aside() -> None:
    """`out` has another type, and its old values are needed after the workspace was written."""
    memory = np.zeros(100_000, np.float32)
    out = memory[: 2 * 70 * 50].view(np.float64).reshape(70, 50)
    a, b = operands("float32")
    with pytest.raises(BilinearError, match="E529"):
        bilinear.matmul(a, b, out, beta=1, algorithm="winograd", levels=1, workspace=memory)


SMALL_CHANGE = 400_000  # Bytes for Python's own objects: views, slices, closures.


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


@pytest.mark.sample(1)
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


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ru_maxrss is in kilobytes on Linux")
def test_strides_that_blas_cannot_read_are_not_copied_behind_our_back() -> None:
    """NumPy multiplies such operands through copies that tracemalloc does not see: blocks of 18 MB."""
    done = subprocess.run([sys.executable, "-c", UNTRACED], capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 6_000_000


@pytest.mark.sample(1)
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


BORROWING = ("winograd_depth_first",)
CHAINS: dict[str, tuple[int, tuple[Panel, ...]]] = {
    "one level": (1, (Panel(30, Scheduled(("classical",), "preserve", tile=USUAL)),)),
    "two levels, then one": (
        2,
        (Panel(11, Scheduled(BORROWING, "preserve", tile=USUAL)), Panel(23, Scheduled(("classical",), "preserve", tile=LARGE))),
    ),
    "the last one in place": (1, (Panel(30, Scheduled(("msmes",), "restore", tile=USUAL)),)),
}
SQUARE = (64, 64, 64)
SHAPES = [SQUARE, (67, 62, 66), (66, 63, 67), (68, 24, 65)]


def chain(shape: tuple[int, int, int], name: str, **limits: Any) -> Plan:
    """A plan with the parts of this name. The planner would not choose it for so small a problem."""
    levels, rest = CHAINS[name]
    inputs = rest[-1].choice.inputs
    known = bilinear.plan(*shape, "float64", device="h200", levels=BORROWING * levels)
    first = running(known.chosen, 0, rest=rest, strategy="borrow")
    sha256 = tuple(one for part in first.parts for one in pinned(part.levels, part.inputs, shape).sha256)
    return replace(known, problem=replace(known.problem, inputs=inputs, **limits), candidates=(first,), sha256=sha256)


def pinned(levels: tuple[str, ...], inputs: str, shape: tuple[int, int, int]) -> Plan:
    return bilinear.plan(*shape, "float64", device="h200", levels=levels, inputs=inputs)


def lending(shape: tuple[int, int, int], orders: str) -> tuple[Any, Any, Any]:
    m, k, n = shape
    generator = np.random.default_rng(m + k + n)
    whole: Any = integers(generator, (m, k)), integers(generator, (k, n)), np.full((m, n), np.nan)
    a, b, c = (np.asarray(x, order=order) for x, order in zip(whole, orders, strict=True))  # type: ignore[call-overload]
    return a, b, c


@pytest.mark.sample(6)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", CHAINS)
def test_every_chain_is_exact_and_allocates_nothing(name: str, shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numpy_executor.NumpyExecutor, "allocate", None)  # a call that allocates a workspace fails
    for orders in map("".join, product("CF", repeat=3)):
        a, b, c = lending(shape, orders)
        wanted, kept = 3 * (a @ b), (a.copy(), b.copy())
        plan = chain(shape, name, column_major=("C",) if orders[2] == "F" else ())
        bilinear.matmul(a, b, c, alpha=3, plan=plan, workspace="none")
        np.testing.assert_array_equal(c, wanted)
        np.testing.assert_array_equal(a, kept[0])
        np.testing.assert_array_equal(b, kept[1])
        np.testing.assert_array_equal(bilinear.matmul(a, b, plan=chain(shape, name)), a @ b)


@needs_emulator
@pytest.mark.parametrize("name", ["one level", "the last one in place", pytest.param("two levels, then one", marks=pytest.mark.slow)])
def test_it_is_found_again_on_a_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with undescribed(monkeypatch):
        for orders in ("CCC", "FCF"):
            plan = chain(SQUARE, name, column_major=("C",) if orders[2] == "F" else ())
            for _ in range(2):
                a, b, c = lending(SQUARE, orders)
                wanted = 3 * (a @ b)
                left, right = Array(a.copy(order="K")), Array(b.copy(order="K"))
                bilinear.matmul(left, right, Array(c), alpha=3, plan=plan, workspace="none")
                np.testing.assert_array_equal(c, wanted)
                np.testing.assert_array_equal(left.host, a)
                np.testing.assert_array_equal(right.host, b)
        assert len(repeat._repeats) == 2


def test_a_batch_is_computed_matrix_by_matrix() -> None:
    shape, generator = (64, 40, 66), np.random.default_rng(1)
    a, b = integers(generator, (3, 64, 40)), integers(generator, (40, 66))
    np.testing.assert_array_equal(bilinear.matmul(a, b, plan=chain(shape, "two levels, then one")), a @ b)
    with pytest.raises(BilinearError, match="E533"):
        bilinear.matmul(a / 3, b, plan=chain(shape, "the last one in place"), tolerance=0)


@pytest.mark.parametrize("shape", [(256, 64, 32), (40, 64, 300), (64, 64, 64), (48, 64, 80)])
@pytest.mark.parametrize("on_gpu", [False, pytest.param(True, marks=needs_emulator)])
def test_a_result_in_the_other_order_is_computed_aside(on_gpu: bool, shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a plan are never taken for columns: for any extents, nothing outside the result is written."""
    surroundings = undescribed(monkeypatch) if on_gpu else nullcontext()
    m, _, n = shape
    known = bilinear.plan(*shape, "float64", device="h200", levels=BORROWING)
    by_rows, by_columns = (
        replace(
            known,
            problem=replace(known.problem, column_major=order),
            candidates=(running(known.chosen, 0, rest=(Panel(left, Scheduled(("classical",))),)),),
            sha256=(*known.sha256, *hashes(("classical",))),
        )
        for order, left in (((), m - 2), (("C",), n - 2))
    )
    a, b, _ = lending(shape, "CCC")
    with surroundings:
        for plan, order in ((by_rows, "F"), (by_columns, "C")):
            memory = np.full(3 * m * n, 7.0)
            c = memory[m * n : 2 * m * n].reshape((m, n), order=order)  # type: ignore[call-overload]
            given = tuple(map(Array, (a.copy(), b.copy(), c))) if on_gpu else (a, b, c)
            with pytest.raises(BilinearError, match="E535"):
                bilinear.matmul(*given, plan=plan, workspace="none")
            for _ in range(2):
                c[...] = np.nan
                bilinear.matmul(*given, plan=plan)
                np.testing.assert_array_equal(c, a @ b)
            assert (memory[: m * n] == 7).all() and (memory[2 * m * n :] == 7).all()


@pytest.mark.parametrize("beta", [0, 2])
def test_what_cannot_lend_is_computed_aside(beta: int) -> None:
    """Gaps between the rows of a result must not be written, and a result with beta holds values that are still needed."""
    shape = SQUARE
    a, b, _ = lending(shape, "CCC")
    wide = np.full((64, 70), 7.0)
    c, plan = (wide[:, :64] if beta == 0 else np.full((64, 64), 7.0)), chain(shape, "one level")
    wanted = a @ b + beta * 7
    with pytest.raises(BilinearError, match="E535"):
        bilinear.matmul(a, b, c, beta=beta, plan=plan, workspace="none")
    assert (wide == 7).all()
    assert (c == 7).all()
    bilinear.matmul(a, b, c, beta=beta, plan=plan)
    np.testing.assert_array_equal(c, wanted)
    assert (wide[:, 64:] == 7).all()


def test_what_is_lent_is_told_to_be_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = SQUARE
    a, b, c = lending(shape, "CCC")

    def broken(*_: Any, **__: Any) -> None:
        raise FloatingPointError("broken")

    monkeypatch.setattr(np, "matmul", broken)
    with pytest.raises(StageError) as caught:
        bilinear.matmul(a, b, c, plan=chain(shape, "one level"))
    assert (caught.value.changed, caught.value.undefined) == ((), ("C[0:64, :]",))


@pytest.mark.sample(3)
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("name", CHAINS)
def test_what_an_error_lists_is_what_has_changed(name: str, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an error at any step of any part, everything that the error does not list is unchanged: rows of C, A, and B."""
    plan = chain(SQUARE, name, column_major=("C",) if order == "F" else ())
    steps, left = numpy_executor.NumpyExecutor.steps, [0]

    def failing(self: Any, *arguments: Any) -> Any:
        return [partial(run, step) for step in steps(self, *arguments)]

    def run(step: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise FloatingPointError("broken")
        step()

    monkeypatch.setattr(numpy_executor.NumpyExecutor, "steps", failing)
    told = set()
    for number in range(1, 200):
        a, b, c = lending(SQUARE, f"CC{order}")
        c[...] = 5
        kept, left[0] = (a.copy(), b.copy()), number
        try:
            bilinear.matmul(a, b, c, plan=plan)
        except StageError as error:
            names = (*error.changed, *error.undefined)
        else:
            break
        told.add(names)
        spared = np.ones(64, bool)
        for span in (one for one in names if one[0] == "C"):
            low, high = re.findall(r"\d+", span)
            spared[int(low) : int(high)] = False
        assert ((c if order == "C" else c.T)[spared] == 5).all(), names
        for matrix, before, letter in ((a, kept[0], "A"), (b, kept[1], "B")):
            if not any(one[0] == letter for one in names):
                np.testing.assert_array_equal(matrix, before)
    assert len(told) > 1 and number > 10, "all steps are tried"


def test_a_chain_is_kept_in_a_file(tmp_path: Path) -> None:
    plan = chain(SQUARE, "two levels, then one")
    save_plan(plan, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == plan


@each(
    ("change", "code"),
    [
        ({"extent": 0}, "E545"),
        ({"extent": 64}, "E545"),
        ({"extent": True}, "E545"),
        ({"extent": 2**70}, "E545"),
        ({"tile": "doubles-usual"}, "E545"),  # a tile of float32
        ({"tile": 0}, "E545"),
        ({"levels": []}, "E545"),
        ({"inputs": "consume"}, "E545"),
        ({"levels": ["strassen"]}, "E546"),
        ({"extent": 2}, "E543"),  # too few rows to hold the temporaries
    ],
)
def test_a_file_that_makes_no_sense_is_refused(change: dict[str, Any], code: str, tmp_path: Path) -> None:
    value = json.loads(plan_json(chain(SQUARE, "one level")))
    part = value["candidates"][0]["choice"]["rest"][0]
    (part if "extent" in change else part["choice"]).update(change)
    (tmp_path / "plan.json").write_text(json.dumps(value), encoding="utf-8")
    a, b, c = lending(SQUARE, "CCC")
    with pytest.raises(BilinearError, match=code):
        bilinear.matmul(a, b, c, plan=load_plan(tmp_path / "plan.json"))
    assert np.isnan(c).all()


def test_only_the_last_part_of_a_file_writes_the_inputs(tmp_path: Path) -> None:
    """If an earlier part consumed the inputs, later parts would miss them."""
    plan = chain(SQUARE, "the last one in place")
    save_plan(replace(plan, candidates=(running(plan.chosen, inputs="restore"),)), tmp_path / "plan.json")
    with pytest.raises(BilinearError, match="a part that is not the last one writes the inputs"):
        load_plan(tmp_path / "plan.json")


class Pool:
    """A pool of two GPUs."""

    def __init__(self) -> None:
        self.device, self.held, self.is_pinned_held = 0, [300, 50], True

    def within(self, device: int) -> Any:
        self.device = device
        return nullcontext()

    def total_bytes(self) -> int:
        return self.held[self.device]

    def free_all_blocks(self) -> None:
        self.held[self.device] = 20  # which an array has

    def free_pinned(self) -> None:
        self.is_pinned_held = False


def test_what_calls_keep_is_given_back_on_each_gpu_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bilinear.free() == 0, "processors keep nothing"
    pool, trimmed, captured = Pool(), list[int](), [False]
    pinned, runtime = SimpleNamespace(free_all_blocks=pool.free_pinned), SimpleNamespace(getDeviceCount=lambda: 3)
    cupy = SimpleNamespace(
        cuda=SimpleNamespace(Device=pool.within, runtime=runtime, is_available=lambda: True),
        get_default_memory_pool=lambda: pool,
        get_default_pinned_memory_pool=lambda: pinned,
    )

    def is_used(device: int, flags: Any, used: Any) -> None:
        used._obj.value = device < 2

    reserved = [1000, 500, 0]
    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        is_current_stream_capturing=lambda: False,
        device_count=lambda: 3,
        memory_reserved=lambda device: reserved[device],
        empty_cache=lambda: reserved.__setitem__(0, 100),
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(capture, "is_captured", lambda: captured[0])
    driver = SimpleNamespace(cuDevicePrimaryCtxGetState=is_used, cuDeviceGraphMemTrim=trimmed.append)
    monkeypatch.setattr(capture, "cuda_driver", lambda: driver)
    assert bilinear.free() == 280 + 30 + 900
    assert (pool.held, pool.is_pinned_held, trimmed) == ([20, 20], False, [0, 1])
    captured[0] = True
    with pytest.raises(BilinearError, match="E536"):
        bilinear.free()
