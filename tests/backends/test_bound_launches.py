"""Repeated multiplies on a pretended GPU: prepared launches get new addresses and factors, and those that run at once wait by events."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from each_case import each
from runtime.pretended_gpu import Array, Gpu, pretend

import bilinear
from bilinear.backends import bound_launches, capture, cuda_executor
from bilinear.backends.cuda_executor import CudaExecutor
from bilinear.backends.executor import allocate_workspace, execute, lay_out
from bilinear.codegen.lower import schedule_to_launches
from bilinear.emulator import skip_reason
from bilinear.errors import BilinearError, StageError
from bilinear.frontend import load
from bilinear.ir.element import FLOAT32
from bilinear.ir.launch import Launch
from bilinear.ir.matrix import call_of
from bilinear.ir.placement import ALIKE, KERNELS, Placement
from bilinear.lowering.place import place_schedule
from bilinear.lowering.prepare import prepare
from bilinear.methods.planning import make_plan
from bilinear.planner import choose
from bilinear.planner.device import Policy
from bilinear.planner.device_files import load_device
from bilinear.planner.problem import Problem
from bilinear.planner.ways import Way
from bilinear.runtime import auto, decide, devices_here, repeat
from bilinear.runtime import multiply as multiplying

pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=str(skip_reason()))

CASES: list[tuple[str, Any, int]] = [("winograd", "preserve", 1), ("msmes", "restore", 1), ("msmes", "consume", 1)]
ODD, EVEN = (21, 15, 19), (16, 24, 20)


def laid_out(x: Any, order: str) -> Array:
    """In row order, in column order, or with gaps between rows and columns."""
    if order != "S":
        return Array(np.array(x, order="F" if order == "F" else "C"))
    wide = np.full((x.shape[0] * 2, x.shape[1] * 3), -77, x.dtype)
    wide[::2, ::3] = x
    return Array(wide[::2, ::3])


def operands(seed: int, shape: tuple[int, int, int], dtype: str = "float64", orders: str = "CCC") -> tuple[list[Any], list[Array]]:
    m, k, n = shape
    generator = np.random.default_rng(seed)
    whole = [generator.integers(-4, 5, s).astype(dtype) for s in ((m, k), (k, n), (m, n))]
    return whole, [laid_out(x, order) for x, order in zip(whole, orders, strict=True)]


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("orders", ["CCC", "SFC"])
@pytest.mark.parametrize("shape", [ODD, EVEN])
@pytest.mark.parametrize(("name", "inputs", "levels"), CASES)
def test_repeats_with_other_arrays_and_factors(
    name: str, inputs: Any, levels: int, shape: tuple[int, int, int], orders: str, dtype: str, gpu: Gpu
) -> None:
    for seed, (alpha, beta) in enumerate([(1, 0), (2, -1), (-3, 0), (1, 1)]):
        (x, y, z), (a, b, c) = operands(seed, shape, dtype, orders)
        if beta == 0:
            c.host[...] = np.nan
        bilinear.matmul(a, b, c, alpha=alpha, beta=beta, algorithm=name, levels=levels, inputs=inputs)
        np.testing.assert_array_equal(c.host, alpha * (x @ y) + (beta * z if beta else 0))
        if inputs != "consume":
            np.testing.assert_array_equal(a.host, x)
            np.testing.assert_array_equal(b.host, y)
    assert gpu.launches and {stream for _, stream in gpu.launches} == {gpu.stream}
    assert not gpu.library


@pytest.mark.sample(1)
@pytest.mark.parametrize(("name", "dtype", "orders"), [("winograd", "complex64", "CFS"), ("classical", "complex128", "FCC")])
def test_complex_matrices_are_launched_on_their_parts(name: str, dtype: str, orders: str, gpu: Gpu) -> None:
    for seed, (alpha, beta) in enumerate([(1, 0), (2, -1), (1j, 0), (2, 1 - 1j), (1 + 2j, 1j)]):
        (x, y, z), (a, b, c) = operands(seed, ODD, dtype, orders)
        (u, v, w), _ = operands(seed + 50, ODD, dtype)
        for array, re, im in ((a, x, u), (b, y, v), (c, z, w)):
            array.host[...] = re + 1j * im
        x, y, z = (array.host.copy() for array in (a, b, c))
        buffer = Array(np.full(8000, np.nan, np.dtype(dtype).type(0).real.dtype)) if seed else None
        bilinear.matmul(a, b, c, alpha=alpha, beta=beta, algorithm=name, levels=1, workspace=buffer)
        np.testing.assert_array_equal(c.host, alpha * (x @ y) + (beta * z if beta else 0))
    assert gpu.launches and not gpu.library


def test_the_rest_of_the_sum_follows_a_core_that_overwrites(gpu: Gpu) -> None:
    for seed, beta in enumerate([0, 2]):
        (x, y, z), (a, b, c) = operands(seed, ODD)
        bilinear.matmul(a, b, c, alpha=3, beta=beta, algorithm="winograd_depth_first", levels=1)
        np.testing.assert_array_equal(c.host, 3 * (x @ y) + beta * z)


def test_a_repeat_makes_nothing_ready_anew(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def watch(place: Any, name: str) -> None:
        real = getattr(place, name)

        def watched(*arguments: Any) -> Any:
            made.append(name)
            return real(*arguments)

        monkeypatch.setattr(place, name, watched)

    watch(cuda_executor, "_all_launches")
    watch(decide, "_decide")
    for seed in range(4):
        (x, y, _), (a, b, _) = operands(seed, ODD)
        np.testing.assert_array_equal(bilinear.matmul(a, b, algorithm="winograd", levels=1).host, x @ y)
    assert sorted(made) == ["_all_launches", "_decide"]


def test_arrays_of_another_layout_are_no_repeat(gpu: Gpu) -> None:
    for orders in ("CCC", "SCC", "CSS", "FCF", "CCC"):
        (x, y, _), (a, b, c) = operands(2, ODD, orders=orders)
        bilinear.matmul(a, b, c, algorithm="winograd", levels=1)
        np.testing.assert_array_equal(c.host, x @ y)


def test_an_array_that_overlaps_is_no_repeat_of_one_that_does_not(gpu: Gpu) -> None:
    (x, _, _), (a, b, c) = operands(1, (17, 17, 17))  # odd: strips write before the core reads
    bilinear.matmul(a, b, c, algorithm="winograd", levels=1)
    wanted = x @ b.host
    bilinear.matmul(a, b, a, algorithm="winograd", levels=1)
    np.testing.assert_array_equal(a.host, wanted)
    inner = b.host.copy()
    bilinear.matmul(c, b, Array(b.host.T), algorithm="winograd", levels=1)
    np.testing.assert_array_equal(b.host.T, c.host @ inner)


def test_the_current_stream_is_asked_at_every_call(gpu: Gpu) -> None:
    _, (a, b, c) = operands(1, EVEN)
    for gpu.stream in (5, 6):
        gpu.launches.clear()
        bilinear.matmul(a, b, c, algorithm="winograd", levels=1)
        assert {stream for _, stream in gpu.launches} == {gpu.stream}


def test_a_thread_gets_a_context_before_it_launches(gpu: Gpu) -> None:
    seen: list[tuple[int, int]] = []
    gpu.before_launch = lambda number: seen.append((threading.get_ident(), gpu.contexts))
    _, (a, b, c) = operands(1, EVEN)
    for contexts in (1, 2):
        for _ in range(2):
            thread = threading.Thread(target=lambda: bilinear.matmul(a, b, c, algorithm="winograd", levels=1))
            if contexts == 1:
                thread.run()
            else:
                thread.start()
                thread.join()
        assert seen[-1][1] == (1 if contexts == 1 else 3)


def test_first_calls_in_many_threads_at_once(gpu: Gpu) -> None:
    """All threads bind one plan at the same time, each with its own arrays and factors."""
    wrong: list[Any] = []
    start = threading.Barrier(6)

    def work(seed: int) -> None:
        start.wait()
        for turn in range(4):
            (x, y, z), (a, b, c) = operands(10 * seed + turn, EVEN)
            bilinear.matmul(a, b, c, alpha=seed, beta=turn, algorithm="winograd", levels=1)
            if not np.array_equal(c.host, seed * (x @ y) + turn * z):
                wrong.append((seed, turn))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(cuda_executor._bounds) == 1


def test_a_multiply_inside_a_multiply_has_arguments_of_its_own(gpu: Gpu) -> None:
    """A signal handler may start one between two launches."""
    (x, y, _), (a, b, c) = operands(1, EVEN)
    (u, v, _), (d, e, f) = operands(2, EVEN)
    bilinear.matmul(a, b, c, algorithm="winograd", levels=1)
    first = len(gpu.launches)

    def nested(number: int) -> None:
        if number == first + 1:
            gpu.before_launch = lambda number: None
            bilinear.matmul(d, e, f, alpha=5, algorithm="winograd", levels=1)

    gpu.before_launch = nested
    bilinear.matmul(a, b, c, alpha=3, algorithm="winograd", levels=1)
    np.testing.assert_array_equal(c.host, 3 * (x @ y))
    np.testing.assert_array_equal(f.host, 5 * (u @ v))


def test_what_is_kept_is_bounded(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_executor, "MOST_BOUND", 2)
    monkeypatch.setattr(decide, "MOST_DECISIONS", 3)
    for _ in range(2):
        for extent in (8, 10, 12, 14):
            (x, y, _), (a, b, _) = operands(extent, (extent, extent, extent))
            np.testing.assert_array_equal(bilinear.matmul(a, b, algorithm="winograd", levels=1).host, x @ y)
            assert len(cuda_executor._bounds) <= 2 and len(decide._decisions) <= 3


@each("at", range(7))
def test_a_launch_that_fails_leaves_the_operands_whole(at: int, gpu: Gpu) -> None:
    """A strip or a product stage may fail. If a linear stage fails, the error names the blocks that it was writing."""
    (x, y, _), (a, b, c) = operands(3, ODD)
    bilinear.matmul(a, b, c, algorithm="msmes", levels=1, inputs="restore")
    first = len(gpu.launches)

    def broken(number: int) -> None:
        if number == first + at:
            gpu.before_launch = lambda number: None
            raise RuntimeError("broken")

    gpu.before_launch = broken
    with pytest.raises(StageError, match="broken") as caught:
        bilinear.matmul(a, b, c, algorithm="msmes", levels=1, inputs="restore")
    if not any(name[0] in "AB" for name in (*caught.value.changed, *caught.value.undefined)):
        np.testing.assert_array_equal(a.host, x)
        np.testing.assert_array_equal(b.host, y)
    else:
        assert "a linear stage failed" in str(caught.value)
    a, b = Array(x.copy()), Array(y.copy())
    bilinear.matmul(a, b, c, algorithm="msmes", levels=1, inputs="restore")
    np.testing.assert_array_equal(c.host, x @ y)


@pytest.mark.parametrize("bad", ["a", "b", "ab"])
def test_values_that_are_not_finite_are_named(bad: str, gpu: Gpu) -> None:
    _, (a, b, c) = operands(1, EVEN)
    for name, array in (("a", a), ("b", b)):
        if name in bad:
            array.host[3, 5] = np.nan
    with pytest.raises(BilinearError) as caught:
        bilinear.matmul(a, b, c, algorithm="msmes", levels=1, inputs="restore")
    assert [(d.code, d.message[0]) for d in caught.value.diagnostics] == [("E524", name) for name in bad]
    assert not gpu.launches


def test_batches_run_matrix_by_matrix(gpu: Gpu) -> None:
    generator = np.random.default_rng(4)
    x, y = generator.integers(-4, 5, (3, 12, 10)).astype(float), generator.integers(-4, 5, (10, 14)).astype(float)
    for _ in range(2):
        np.testing.assert_array_equal(bilinear.matmul(Array(x), Array(y), algorithm="winograd", levels=1).host, x @ y)
    assert len(cuda_executor._bounds) == 1


def test_a_buffer_is_used_where_it_lies(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_executor.CudaExecutor, "allocate", lambda *_: pytest.fail("allocated"))
    (x, y, _), (a, b, c) = operands(5, ODD)
    for buffer in (np.full(4000, np.nan), np.full(32000, 255, np.uint8)):
        c.host[...] = np.nan
        bilinear.matmul(a, b, c, algorithm="winograd", levels=1, workspace=Array(buffer))
        np.testing.assert_array_equal(c.host, x @ y)


@pytest.mark.parametrize("is_repeated", [False, True])
def test_a_captured_stream_gets_memory_of_its_graph_and_is_not_waited_for(is_repeated: bool, gpu: Gpu) -> None:
    """Memory of the pool would be given to others, and `pretended_gpu` refuses it."""
    (x, y, _), (a, b, c) = operands(7, EVEN)
    buffer = Array(np.full(4000, np.nan))
    needy: dict[str, Any] = {"algorithm": "winograd", "levels": 1}
    scanning: dict[str, Any] = {"algorithm": "msmes", "levels": 1, "inputs": "restore"}
    able: list[dict[str, Any]] = [
        needy,
        {**needy, "workspace": buffer},
        {"algorithm": "classical", "levels": 1},
        {**scanning, "inputs": "consume"},
    ]
    if is_repeated:
        for options in (needy, scanning, *able[:2]):
            bilinear.matmul(a, b, c, **options)
    gpu.launches.clear()
    gpu.scans.clear()
    with gpu.using(is_capturing=True):
        with pytest.raises(BilinearError, match=r"E536.*A and B cannot be scanned"):
            bilinear.matmul(a, b, c, **scanning)
        assert not gpu.launches and not gpu.scans
        for options in able:
            c.host[...] = np.nan
            bilinear.matmul(a, b, c, **options)
            np.testing.assert_array_equal(c.host, x @ y)


@pytest.mark.parametrize("algorithm", ["classical", "winograd", "auto"])
def test_what_is_converted_or_made_aside_is_captured_by_a_schedule(algorithm: str, gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory of the graph. CuPy's own multiply is refused, and so is a new result. With alpha = 0 no memory is needed."""
    square, short, wide = (
        np.arange(256.0).reshape(16, 16) % 5,
        np.arange(256).reshape(16, 16).astype("float32") % 7,
        np.full((16, 16), 3.0),
    )
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((square, wide, square), {}),
        ((short, short, wide), {}),
        ((short, square, wide), {}),
        ((square, square, wide), {"alpha": 2, "beta": 0.5, "algorithm": "winograd_depth_first"}),
    ]
    gpu.launches.clear()
    with gpu.using(is_capturing=True):
        for hosts, options in calls:
            taken = {id(x): Array(x.copy()) for x in hosts}
            a, b, c = (taken[id(x)] for x in hosts)
            asked = {"algorithm": algorithm, "levels": "auto" if algorithm == "auto" else 1} | options
            if asked["algorithm"] == "auto":
                with pytest.raises(BilinearError, match=r"E536.*CuPy multiplies these operands"):
                    bilinear.matmul(a, b, c, **asked)
                continue
            bilinear.matmul(a, b, c, **asked)
            np.testing.assert_array_equal(c.host, options.get("alpha", 1) * hosts[0] @ hosts[1] + options.get("beta", 0) * hosts[2])
        a, c = Array(square), Array(wide)
        with pytest.raises(BilinearError, match=r"E536.*a new result"):
            bilinear.matmul(a, c, algorithm=algorithm, levels="auto" if algorithm == "auto" else 1)
        monkeypatch.setattr(sys.modules["cupy"], "empty", lambda *_: pytest.fail("memory of the pool"))
        bilinear.matmul(a, a, c, alpha=0, beta=2)
        np.testing.assert_array_equal(c.host, 6.0)


@each("is_repeated", [False, True])
@each("options", [{"algorithm": "classical", "levels": 1}, {"levels": 0}, {"algorithm": "msmes", "inputs": "consume"}])
def test_a_fresh_result_is_not_captured_first_or_repeated(options: dict[str, Any], is_repeated: bool, gpu: Gpu) -> None:
    (x, y, _), (a, b, _) = operands(9, EVEN)
    if is_repeated:
        for _ in range(2):
            bilinear.matmul(Array(x.copy()), Array(y.copy()), **options)
    gpu.launches.clear()
    gpu.library = 0
    with gpu.using(is_capturing=True), pytest.raises(BilinearError, match=r"E536.*a new result"):
        bilinear.matmul(a, b, **options)
    assert not gpu.launches and not gpu.library


def test_what_is_malformed_is_told_as_ever_while_a_stream_is_captured(gpu: Gpu) -> None:
    with gpu.using(is_capturing=True), pytest.raises(ValueError, match="5"):
        bilinear.matmul(Array(np.ones((6, 4))), Array(np.ones((5, 5))))


def test_nothing_is_looked_at_for_an_empty_result_either(gpu: Gpu) -> None:
    gpu.scans.clear()
    options: dict[str, Any] = {"algorithm": "msmes", "levels": 1, "inputs": "restore"}
    with gpu.using(is_capturing=True), pytest.raises(BilinearError, match="E536"):
        bilinear.matmul(Array(np.ones((0, 4))), Array(np.ones((4, 6))), Array(np.ones((0, 6))), **options)
    assert not gpu.scans and not gpu.launches


def test_vectors_and_empty_results_are_captured(gpu: Gpu) -> None:
    a, x, y = Array(np.arange(12.0).reshape(3, 4)), Array(np.arange(4.0)), Array(np.full(3, np.nan))
    with gpu.using(is_capturing=True):
        bilinear.matmul(a, x, y, algorithm="classical", levels=1)
        bilinear.matmul(Array(np.ones((0, 4))), Array(np.ones((4, 5))), Array(np.ones((0, 5))), algorithm="classical", levels=1)
    np.testing.assert_array_equal(y.host, a.host @ x.host)


@pytest.fixture
def by_winograd(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`auto` knows a slow library, and nothing else than a level of Winograd."""
    h200, slow = replace(load_device("h200"), thin=(), policy=Policy(least_block=4)), ((1.0, 1e-9),)
    monkeypatch.setattr(choose, "ways", lambda problem: (Way(("winograd",)),))
    monkeypatch.setattr(
        devices_here, "_described", lambda named, index: h200.with_rates("float64", replace(h200.rates("float64"), library=slow))
    )
    for cached in (choose.make_plan, auto._chosen, auto._logged):
        cached.cache_clear()
    yield
    for cached in (choose.make_plan, auto._chosen, auto._logged):
        cached.cache_clear()


def test_a_plan_takes_no_more_memory_than_is_free(gpu: Gpu, by_winograd: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """First and repeated calls: with less memory another plan runs, here the library; the caller's own limit is not touched."""
    monkeypatch.setattr(capture, "LARGE", 1)
    monkeypatch.setattr(repeat, "LARGE", 1)
    (x, y, _), (a, b, c) = operands(8, EVEN)
    for free, runs in ((2**40, True), (2**40, True), (3000, False), (3000, False), (2**40, True)):
        gpu.launches.clear()
        gpu.library, c.host[...] = 0, np.nan
        with gpu.using(free=free):
            bilinear.matmul(a, b, c)
        np.testing.assert_array_equal(c.host, x @ y)
        assert (bool(gpu.launches), bool(gpu.library)) == (runs, not runs)
    gpu.launches.clear()
    with gpu.using(free=3000):
        bilinear.matmul(a, b, c, workspace=2**20)
    assert gpu.launches


def test_where_memory_is_free_in_pieces_a_plan_with_less_runs(gpu: Gpu, by_winograd: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiplying, "LARGE", 2000)
    monkeypatch.setattr(choose, "ways", lambda problem: (Way(("winograd",)), Way(("winograd_depth_first",))))
    (x, y, _), (a, b, _) = operands(8, EVEN)

    def in_pieces(count: int) -> None:
        if count > 5000:
            raise MemoryError(f"{count} bytes")

    with gpu.using(allocate=in_pieces):
        found = bilinear.matmul(a, b)
    np.testing.assert_array_equal(found.host, x @ y)
    assert {name.partition("_l1")[0] for name, _ in gpu.launches} == {"winograd_depth_first"} and gpu.library == 0


def test_auto_runs_in_a_graph_what_it_runs_outside(gpu: Gpu, by_winograd: None) -> None:
    (x, y, _), (a, b, c) = operands(8, EVEN)
    for is_capturing in (False, True, False):
        gpu.launches.clear()
        c.host[...] = np.nan
        with gpu.using(is_capturing=is_capturing):
            bilinear.matmul(a, b, c)
        np.testing.assert_array_equal(c.host, x @ y)
        assert gpu.launches and not gpu.library


def test_plans_and_the_model_decide_as_before(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same call is decided anew for another device, or with another plan."""
    h200, slow = replace(load_device("h200"), thin=(), policy=Policy(least_block=4)), ((1.0, 1e-9),)
    slow_library = h200.with_rates("float64", replace(h200.rates("float64"), library=slow))
    choose.make_plan.cache_clear()
    try:
        (x, y, _), (a, b, c) = operands(6, EVEN)
        plan = make_plan(Problem(*EVEN), slow_library)
        assert not plan.is_library
        known = {"": None, "h200": h200, "slow": slow_library}
        monkeypatch.setattr(devices_here, "_described", lambda named, index: known[named])
        for name, given, runs in (("", None, 0), ("h200", None, 0), ("slow", None, 1), ("", plan, 1), ("", None, 0)):
            monkeypatch.setenv("BILINEAR_DEVICE", name)
            for _ in range(2):
                gpu.launches.clear()
                gpu.library = 0
                c.host[...] = np.nan
                bilinear.matmul(a, b, c, plan=given)
                np.testing.assert_array_equal(c.host, x @ y)
                assert (bool(gpu.launches), gpu.library) == (bool(runs), 1 - runs)
    finally:
        choose.make_plan.cache_clear()


@pytest.mark.slow
def test_steps_of_their_own_keep_what_they_read(gpu: Gpu) -> None:
    """The launches that undo a multiply are bound for it alone, and a garbage collection may come before they run."""
    (x, y, _), (a, b, c) = operands(5, EVEN)
    schedule = prepare(load("strassen").scheme, None, 1, "preserve").schedule
    placement = place_schedule(schedule, *EVEN, 8)
    executor, call = cuda_executor.CudaExecutor(), call_of(a, b, c)
    call = call._replace(workspace=allocate_workspace(executor, placement, c.dtype))
    before = arguments()
    steps = executor.steps(placement, schedule.stages, lay_out(placement, call), 1, 0)
    assert arguments() == before + 1
    for step in steps:
        step()
    np.testing.assert_array_equal(c.host, x @ y)
    del steps, step
    assert arguments() == before


def arguments() -> int:
    """How many sets of arguments are alive after a garbage collection."""
    gc.collect()
    return sum(isinstance(found, bound_launches._Arguments) for found in gc.get_objects())


class Streams:
    """Streams and events: which launches have ended, for certain, when the next work of a stream begins."""

    def __init__(self, gpu: Gpu) -> None:
        self.ended: dict[int, set[int]] = {}
        self.at: dict[int, set[int]] = {}
        self.before: list[set[int]] = []
        self.gpu, numbers = gpu, count(1000)
        cuda: Any = sys.modules["cupy.cuda"]
        cuda.Stream = lambda non_blocking: SimpleNamespace(ptr=next(numbers))
        cuda.Event = lambda disable_timing: SimpleNamespace(ptr=next(numbers))
        cuda.runtime.eventRecord, cuda.runtime.streamWaitEvent = self.record, self.wait
        cuda.driver.launchKernel = self.launch

    def of(self, stream: int) -> set[int]:
        return self.ended.setdefault(stream, set())

    def record(self, event: int, stream: int) -> None:
        self.at[event] = set(self.of(stream))

    def wait(self, stream: int, event: int) -> None:
        self.of(stream).update(self.at[event])

    def launch(self, *arguments: int) -> None:
        self.before.append(set(self.of(arguments[8])))
        self.of(arguments[8]).add(len(self.before) - 1)
        self.gpu.launch(*arguments)


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    return Streams(pretend(monkeypatch))


def run(mode: str, shape: tuple[int, int, int] = (26, 18, 22), times: int = 1, levels: int = 2) -> tuple[Launch, ...]:
    """Strassen's scheme, compared with the classical product; the launches of its core."""
    generator, (m, k, n) = np.random.default_rng(3), shape
    schedule = prepare(load("strassen").scheme, None, levels, "preserve", mode).schedule
    plan: Placement = place_schedule(schedule, m, k, n, 4, mode=mode)
    for _ in range(times):
        whole = [generator.integers(-4, 5, extents).astype("float32") for extents in ((m, k), (k, n), (m, n))]
        a, b, c = (Array(x.copy()) for x in whole)
        execute(CudaExecutor(), plan, call_of(a, b, c, 2, 3))
        np.testing.assert_array_equal(c.host, 2 * (whole[0] @ whole[1]) + 3 * whole[2])
    return schedule_to_launches(schedule, FLOAT32, mode=mode)


@pytest.mark.parametrize("levels", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_launch_waits_for_all_earlier_stages_and_for_none_of_its_own(streams: Streams, levels: int) -> None:
    launches = run(KERNELS, (24, 16, 20), levels=levels)
    stages = [launch.stage or 0 for launch in launches]
    assert len(streams.before) == len(stages)
    for stage, before in zip(stages, streams.before, strict=True):
        assert before >= {number for number, other in enumerate(stages) if other < stage}
    alone = [stage for stage in set(stages) if stages.count(stage) <= 16]
    assert alone
    for number, before in enumerate(streams.before):
        assert stages[number] not in alone or not {other for other in before if stages[other] == stages[number]}
    assert streams.of(streams.gpu.stream) == set(range(len(stages))), "what the caller launches next runs after all of them"


@pytest.mark.slow
def test_strips_stay_on_the_stream_of_the_caller(streams: Streams) -> None:
    launches = run(KERNELS)
    own = [stream for _, stream in streams.gpu.launches]
    assert len(own) == len(launches) + 3
    assert own[:3] == [streams.gpu.stream] * 3 and streams.gpu.stream not in own[3:]


@pytest.mark.slow
def test_repeats_use_the_same_streams(streams: Streams) -> None:
    run(KERNELS, times=3)
    assert len({stream for _, stream in streams.gpu.launches}) == 1 + 16


def test_other_modes_run_one_kernel_at_a_time(streams: Streams) -> None:
    run(ALIKE, levels=1)
    assert {stream for _, stream in streams.gpu.launches} == {streams.gpu.stream}
