"""Streamed multiplies without a GPU: on devices that work late, in adverse orders, on threads, and by CuPy's part on a pretended `cupy`."""

from __future__ import annotations

import ctypes
import importlib
import json
import signal
import sys
import tracemalloc
from dataclasses import replace
from functools import partial
from itertools import pairwise, permutations
from time import sleep
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from each_case import each
from runtime import late_device

import bilinear
from bilinear.backends.stream_engine import StreamThreads, issue, run_streamed
from bilinear.errors import BilinearError
from bilinear.methods.registry import METHODS
from bilinear.planner.problem import Problem
from bilinear.planner.streamed import COMPUTE, STREAMS, StreamPlan, even_blocks, stream_plan
from bilinear.runtime.options import Options
from bilinear.runtime.streamed import _block as multiply_block
from bilinear.runtime.streamed import numbers_of, plan_streamed

LateDevice: Any = late_device.LateDevice  # it has the methods of StreamThreads that the engine calls

ORDERS: list[Any] = [*permutations(STREAMS), None]
EXTENTS = 7, 5, 9
BLOCKS = [(7, 5, 9), (3, 5, 9), (7, 5, 2), (3, 5, 4), (2, 2, 4), (3, 2, 9), (1, 3, 1)]


def plan_of(block: tuple[int, int, int], gpus: int = 1, **fields: Any) -> StreamPlan:
    return StreamPlan(EXTENTS, block, 8, gpus, 10**6, **fields)


def matrices(extents: tuple[int, int, int] = EXTENTS) -> tuple[Any, Any, Any]:
    """Different integers in every element, so that a wrong block is seen: B a transposed view, C with padded rows."""
    m, k, n = extents
    a = np.arange(1.0, m * k + 1).reshape(m, k)
    b = np.arange(3.0, n * k + 3).reshape(n, k).T
    c = np.arange(5.0, 5 + m * (n + 3)).reshape(m, n + 3)[:, :n]
    return a, b, c


def right(given: tuple[Any, Any, Any], factors: tuple[int, int]) -> Any:
    a, b, c = (x.astype(np.int64) for x in given)
    return factors[0] * (a @ b) + factors[1] * c


def snake_is_shared(plan: StreamPlan, gpu: int) -> bool:
    """Whether every two neighbours among the tasks of a GPU share a block, as the snake promises."""
    return all(any(x.block(o) == y.block(o) for o in "ABC") for x, y in pairwise(plan.tasks(gpu)))


@pytest.mark.sample(60)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("gpus", [1, 3])
@pytest.mark.parametrize("inputs", ["preserve", "consume"])
@pytest.mark.parametrize("factors", [(1, 0), (2, -3)])
@pytest.mark.parametrize("block", BLOCKS)
def test_products_are_exact_and_traffic_is_what_is_told(block: Any, factors: Any, inputs: str, gpus: int, order: Any) -> None:
    plan = plan_of(block, gpus, inputs=inputs, reads=factors[1] != 0)
    given = matrices()
    expected = right(given, factors)
    devices = [LateDevice(order, seed) for seed in range(gpus)]
    run_streamed(plan, devices, given, factors)
    assert np.array_equal(given[2], expected)
    for gpu, device in enumerate(devices):
        assert (device.loaded, device.stored) == (plan.traffic(gpu).loaded, plan.traffic(gpu).stored)
        assert device.allocated * plan.itemsize == plan.slot_bytes
    assert plan.total.stored == given[2].size


@pytest.mark.parametrize(
    ("block", "fields"),
    [((3, 5, 4), {}), ((2, 2, 4), {}), ((2, 2, 4), {"reads": True}), ((3, 5, 4), {"reads": True}), ((3, 3, 3), {"inputs": "consume"})],
)
def test_no_wait_can_be_left_out(block: Any, fields: Any) -> None:
    plan, factors = plan_of(block, **fields), (1, 1 if "reads" in fields else 0)
    steps = plan.steps(0)
    waits = [(number, one) for number, step in enumerate(steps) for one in step.waits]
    assert len(waits) > 10
    for number, one in waits:
        fewer = list(steps)
        fewer[number] = replace(steps[number], waits=tuple(x for x in steps[number].waits if x != one))
        assert any(_goes_wrong(plan, fewer, factors, order) for order in ORDERS), (steps[number], steps[one])


def _goes_wrong(plan: StreamPlan, steps: Any, factors: tuple[int, int], order: Any) -> bool:
    given = matrices()
    expected, device = right(given, factors), LateDevice(order)
    issue(plan, steps, device, given, factors)
    device.finish()
    return not np.array_equal(given[2], expected)


def test_traffic_by_hand() -> None:
    """Three rows of three blocks: A once, B once, and at each turn the one block of B that no slot holds."""
    whole = plan_of((3, 5, 3)).traffic(0)
    assert whole.loaded == 7 * 5 + 45 + 2 * 15
    assert plan_of((7, 5, 9)).traffic(0).loaded == 7 * 5 + 5 * 9
    assert plan_of((7, 5, 9), reads=True).traffic(0).loaded == 7 * 5 + 5 * 9 + 7 * 9
    for block in BLOCKS:
        for gpus in (1, 2, 3):
            assert all(snake_is_shared(plan_of(block, gpus), gpu) for gpu in range(gpus))


def test_gpus_share_blocks_of_c_evenly() -> None:
    plan = StreamPlan((64, 64, 64), (8, 64, 8), 4, 4, 10**6)
    assert [len(list(plan.tasks(gpu))) for gpu in range(4)] == [16] * 4
    assert len({t.block("C") for gpu in range(4) for t in plan.tasks(gpu)}) == 64


@pytest.mark.parametrize("memory", [2_000_000, 200_000, 40_000])
def test_chosen_blocks_fit_the_budget_and_multiply(memory: int) -> None:
    extents = 201, 97, 153
    plan = stream_plan(METHODS, Problem(*extents), 2, memory)
    assert plan.slot_bytes <= memory and plan.counts[0] * plan.counts[2] >= 2 * 4
    given = matrices(extents)
    expected = right(given, (1, 0))
    run_streamed(plan, [LateDevice(None, seed) for seed in range(2)], given, (1, 0))
    assert np.array_equal(given[2], expected)


def test_a_plan_by_a_description_tells_its_time() -> None:
    plan = plan_streamed((8192, 8192, 8192), "float32", memory=2**28, device="h200")
    told = json.loads(plan.json())
    assert told["seconds"] == plan.seconds is not None and told["traffic"] == [vars(plan.traffic(0))]
    assert plan.seconds >= max(plan.total.loaded * 4 / plan.bus, plan.compute or 0)
    assert "8192 x 8192 x 8192 on 1 GPU(s)" in str(plan)
    assert plan.slot_bytes <= 2**28
    slower = plan_streamed((8192, 8192, 8192), "float32", memory=2**26, device="h200")
    assert slower.total.loaded > plan.total.loaded


def test_too_little_memory_is_told() -> None:
    with pytest.raises(BilinearError, match=r"E774.*no blocks of 512 x 512 x 512 fit 100 bytes"):
        plan_streamed((512, 512, 512), memory=100, device="h200")


@pytest.mark.slow
def test_an_accuracy_is_that_of_one_product_of_all_k() -> None:
    cut, whole = (plan_streamed((256, 65536, 256), memory=2**24, device="h200", accuracy=x) for x in (None, "twice"))
    assert cut.counts[1] > 1 == whole.counts[1]
    with pytest.raises(BilinearError, match=r"(?s)E774.*without accuracy= and reproducible= k may be cut"):
        plan_streamed((256, 65536, 256), memory=2**19, device="h200", accuracy=1e-3)
    assert plan_streamed((256, 65536, 256), memory=2**19, device="h200").counts[1] > 1


def test_blocks_have_the_bits_of_one_product() -> None:
    extents, random = (61, 400, 73), np.random.default_rng(4)
    a, b = (random.standard_normal(x) * 10.0 ** random.uniform(-15, 15, x) for x in (extents[:2], extents[1:]))
    cut = plan_streamed(extents, "float64", gpus=2, memory=100_000)
    plan = plan_streamed(extents, "float64", gpus=2, memory=600_000, reproducible="bitwise")
    assert cut.counts[1] > 1 == plan.counts[1] and plan.counts[0] * plan.counts[2] > 4
    bitwise = partial(bilinear.matmul, reproducible="bitwise")
    given = a, b, np.full((61, 73), np.nan)
    run_streamed(plan, [LateDevice(None, seed, times=bitwise) for seed in range(2)], given, (1, 0))
    assert given[2].tobytes() == bitwise(a, b).tobytes()


class InBlocks(late_device.LateDevice):
    """Multiplies as a GPU's device does, and keeps the most bytes that a product took beside its slots."""

    def __init__(self, asked: Options) -> None:
        super().__init__(None)
        self.asked, self.most = asked, 0

    def multiply(self, a: Any, b: Any, c: Any, shape: tuple[int, int, int], factors: tuple[Any, Any], inputs: str) -> None:
        m, k, n = shape

        def product() -> None:
            left, right, target = a[: m * k].reshape(m, k), b[: k * n].reshape(k, n), c[: m * n].reshape(m, n)
            multiply_block(self.asked, left.copy(), right.copy(), target.copy(), factors, inputs)  # proves and places
            tracemalloc.start()
            multiply_block(self.asked, left, right, target, factors, inputs)
            self.most = max(self.most, tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()

        self._later(COMPUTE, product)


def test_a_schedule_runs_in_place_in_what_was_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workspace counted: none in place for blocks four times as large, but more blocks for a scheme; and no matrix is written."""
    monkeypatch.setattr("bilinear.backends.workers.worker_count", lambda: 1)  # each has a buffer of a fixed size
    grown, random = {}, np.random.default_rng(2)
    for name in ("msmes", "strassen"):
        peaks = []
        for n in (256, 512):
            plan = plan_streamed((n, n, n), "float64", memory=8 * 8 * n * n, algorithm=name, levels=1)
            a, b = (random.integers(-9, 10, (n, n)).astype(float) for _ in range(2))
            c, kept = np.full((n, n), np.nan), (a.copy(), b.copy())
            device: Any = InBlocks(Options(algorithm=name, levels=1, workspace=plan.workspace).as_named())
            run_streamed(plan, [device], (a, b, c), (1, 0))
            assert np.array_equal(c, a @ b) and np.array_equal(a, kept[0]) and np.array_equal(b, kept[1])
            peaks.append(device.most)
        grown[name] = peaks[1] - peaks[0]
        assert plan.inputs == ("preserve" if name == "strassen" else "consume")
    assert grown["msmes"] < 8 * 128**2 / 10 < 8 * 128**2 < grown["strassen"]
    assert plan_streamed((512, 512, 512), "complex128", memory=2**24, algorithm="msmes").inputs == "preserve", "by its scheme"


def test_extents_of_blocks() -> None:
    assert [even_blocks(1000, 2), even_blocks(1000, 3), even_blocks(7, 2), even_blocks(100, 1)] == [512, 384, 4, 100]


class HostThreads(StreamThreads):
    """The streams of threads, whose work is done at once on the host."""

    def __init__(self, fails_at: int = -1) -> None:
        super().__init__()
        self.products, self.fails_at, self.drained, self.waits_for = 0, fails_at, False, list[HostThreads]()

    def allocate(self, elements: int) -> Any:
        return np.full(elements, np.nan)

    def upload(self, host: Any, slot: Any) -> None:
        slot[: host.size] = host.reshape(-1)

    def download(self, slot: Any, host: Any) -> None:
        host[...] = slot[: host.size].reshape(host.shape)

    def product(self, a: Any, b: Any, c: Any, shape: Any, factors: Any, inputs: str) -> None:
        (m, k, n), (alpha, beta) = shape, factors
        self.products += 1
        while self.waits_for and sum(other.products for other in self.waits_for) <= 90:
            sleep(0.001)
        if self.products == self.fails_at:
            raise MemoryError("no workspace")
        target = c[: m * n].reshape(m, n)
        target[...] = alpha * (a[: m * k].reshape(m, k) @ b[: k * n].reshape(k, n)) + (beta * target if beta != 0 else 0)

    def mark(self, stream: str) -> Any:
        return stream

    def hold(self, stream: str, mark: Any) -> None:
        assert stream != mark

    def settle(self, mark: Any) -> None:
        assert mark == COMPUTE

    def drain(self) -> None:
        self.drained = True


def test_threads_multiply() -> None:
    plan, given = plan_of((2, 2, 4), 2, reads=True), matrices()
    expected, devices = right(given, (2, 3)), [HostThreads(), HostThreads()]
    run_streamed(plan, devices, given, (2, 3))
    assert np.array_equal(given[2], expected) and all(device.drained for device in devices)


@pytest.mark.parametrize("slowed", [0, 1, 2])
def test_blocks_move_from_a_slow_gpu_and_bits_do_not(slowed: int) -> None:
    """Blocks of C of several products, whose order counts for floating-point numbers. A queue's others end before the slow one."""
    a, b = (np.random.default_rng(seed).standard_normal((96, 96)) for seed in (1, 2))
    plan, found, computed = StreamPlan((96, 96, 96), (16, 32, 16), 8, 3, 10**6), [], []
    for by_queue in (False, True):
        devices = [HostThreads() for _ in range(3)]
        devices[slowed].waits_for = [device for device in devices if by_queue and device is not devices[slowed]]
        found.append(np.full((96, 96), np.nan))
        run_streamed(plan, devices, (a, b, found[-1]), (1, 0), by_queue=by_queue)
        computed.append([device.products for device in devices])
    assert computed[0] == [36, 36, 36]
    assert sum(computed[1]) == 108 and computed[1][slowed] < 18
    assert found[0].tobytes() == found[1].tobytes() and np.allclose(found[0], a @ b)


@each("order", ORDERS)
@each("inputs", ["preserve", "consume"])
def test_products_by_a_queue_are_exact(inputs: str, order: Any) -> None:
    for block in BLOCKS:
        plan, given = plan_of(block, 3, inputs=inputs, reads=True), matrices()
        expected, devices = right(given, (2, -3)), [LateDevice(order, seed) for seed in range(3)]
        run_streamed(plan, devices, given, (2, -3), by_queue=True)
        assert np.array_equal(given[2], expected) and sum(device.stored for device in devices) == given[2].size


@pytest.mark.parametrize("by_queue", [False, True])
def test_a_failure_ends_all_and_leaves_whole_results(by_queue: bool) -> None:
    plan, given = plan_of((2, 5, 4), 2), matrices()
    before, expected, devices = given[2].copy(), right(given, (1, 0)), [HostThreads(), HostThreads(fails_at=3)]
    with pytest.raises(MemoryError, match="no workspace") as caught:
        run_streamed(plan, devices, given, (1, 0), by_queue=by_queue)
    assert "each element of out holds its result" in caught.value.__notes__[0]
    assert all(device.drained for device in devices)
    assert ((given[2] == expected) | (given[2] == before)).all() and not np.array_equal(given[2], expected)


def test_an_interrupt_leaves_when_nothing_writes() -> None:
    class Interrupted(HostThreads):
        def finish(self) -> None:
            raise KeyboardInterrupt

        def drain(self) -> None:
            signal.raise_signal(signal.SIGINT)  # a second Ctrl-C while the first one waits for the device
            super().drain()

    device, given = Interrupted(), matrices()
    with pytest.raises(KeyboardInterrupt):
        run_streamed(plan_of((2, 2, 4)), [device], given, (1, 0))
    assert device.drained and all(job.done() for job in device._jobs)


def test_gpus_that_are_asked_for() -> None:
    assert numbers_of("all", 3) == [0, 1, 2] and numbers_of(2, 3) == [0, 1] and numbers_of([2, 0], 3) == [2, 0]
    for wrong in (0, 4, [3], [0, 0], [], "two", True, [True], 1.0):
        with pytest.raises(BilinearError, match=r"E773.*names no GPUs of the 3 here"):
            numbers_of(wrong, 3)


@each(
    ("change", "reason"),
    [
        ({"a": [[1.0]]}, "E772.*matrices of NumPy"),
        ({"a": np.ones((2, 3), np.int64)}, "E772.*of one type"),
        ({"a": np.ones((2, 2, 3))}, "E772.*of one type"),
        ({"a": np.ones((2, 4))}, "E772.*do not fit"),
        ({"out": np.ones((2, 5))}, "E772.*do not fit"),
        ({"beta": 1}, "E515"),
        ({"inputs": "consume"}, "E773.*plans each block"),
        ({"modulus": 7}, "E773.*combined with stream= or modulus="),
        ({"gpus": None, "memory": 100}, "E773.*no gpus= are named"),
        ({"memory": 1.5}, "E773.*is not a size"),
        ({"reproducible": "bitwise", "algorithm": "winograd"}, "E820"),
        ({"reproducible": "bitwise", "a": np.ones((2, 3), "c16"), "b": np.ones((3, 4), "c16"), "alpha": 2}, "E821.*scales complex"),
        ({"gpus": None, "balance": "queue"}, "E773.*no gpus= are named"),
        ({"balance": "fair"}, "E773.*is no way to share blocks"),
    ],
)
def test_what_is_refused(change: Any, reason: str) -> None:
    given = {"a": np.ones((2, 3)), "b": np.ones((3, 4)), "gpus": 1} | change
    with pytest.raises(BilinearError, match=reason):
        bilinear.matmul(**given)


def test_out_that_overlaps_is_refused() -> None:
    a = np.ones((3, 3))
    with pytest.raises(BilinearError, match=r"E772.*share memory"):
        bilinear.matmul(a, np.ones((3, 3)), a, gpus=1)


def test_nothing_to_multiply_needs_no_gpu() -> None:
    out = np.full((2, 4), 3.0)
    assert bilinear.matmul(np.ones((2, 0)), np.ones((0, 4)), out, beta=2, gpus=1) is out
    assert (out == 6).all()
    assert (bilinear.matmul(np.ones((2, 0)), np.ones((0, 4)), gpus="all") == 0).all()
    a, out = np.ones((2, 3)), np.array([[-0.0, np.nan]] * 2)
    bilinear.matmul(a, a.T, out, alpha=0, beta=2, gpus=1, reproducible="bitwise")
    assert out.tobytes() == np.array([[0.0, np.nan]] * 2).tobytes()


class Context:
    """A device or a stream."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.ptr = self.id = 0

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def record(self) -> Context:
        return Context()

    def wait_event(self, event: Context) -> None:
        assert isinstance(event, Context)


class Slot(np.ndarray[Any, Any]):
    """An array with the address where CuPy has it."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data)


class OnGpu(Slot):
    """A matrix on the first GPU."""

    device: Any = Context()


class Refused(RuntimeError):
    status = 704


def enable(other: int) -> None:
    raise Refused("peer access is already enabled")


def copy_rows(target: int, down: int, source: int, across: int, width: int, height: int, kind: int, stream: int) -> None:
    for row in range(height):
        ctypes.memmove(target + row * down, source + row * across, width)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    kind = 1 if request.param else 0
    runtime = SimpleNamespace(
        memcpyAsync=lambda target, source, size, kind, stream: ctypes.memmove(target, source, size),
        memcpy2DAsync=copy_rows,
        memcpyHostToDevice=1,
        memcpyDeviceToHost=2,
        memcpyDefault=4,
        CUDARuntimeError=Refused,
        deviceCanAccessPeer=lambda own, other: True,
        deviceEnablePeerAccess=enable,
        memoryTypeHost=1,
        pointerGetAttributes=lambda at: SimpleNamespace(type=kind),
        memGetInfo=lambda: (1000, 2000),
        getDeviceCount=lambda: 2,
    )
    cupy, cuda = ModuleType("cupy"), ModuleType("cupy.cuda")
    vars(cuda).update(runtime=runtime, Device=Context, Stream=Context, alloc_pinned_memory=bytearray)
    pool = SimpleNamespace(free_all_blocks=lambda: None)
    empty = lambda size, dtype: np.full(size, np.nan, dtype).view(Slot)  # noqa: E731
    vars(cupy).update(cuda=cuda, empty=empty, get_default_memory_pool=lambda: pool, ndarray=OnGpu)
    vars(cupy).update(ascontiguousarray=lambda x: np.ascontiguousarray(x).view(OnGpu))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)
    monkeypatch.delitem(sys.modules, "bilinear.backends.stream_cupy", raising=False)
    found = importlib.import_module("bilinear.backends.stream_cupy")
    yield found
    sys.modules.pop("bilinear.backends.stream_cupy", None)


def multiply(a: Any, b: Any, c: Any, factors: Any, inputs: str) -> None:
    c[...] = factors[0] * (a @ b) + (factors[1] * c if factors[1] != 0 else 0)


@pytest.mark.parametrize("module", [False, True], indirect=True, ids=["pageable", "pinned"])
@pytest.mark.parametrize("chunk", [8, 100, 10**4])
def test_chunks_of_any_size_carry_blocks_of_any_layout(module: Any, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", chunk)
    assert module.free_memory(0) == 900 and module.gpu_count() == 2
    a = np.arange(11.0 * 17).reshape(11, 17)[:, :13]
    b = np.arange(9.0 * 13).reshape(9, 13).T
    for c in (np.arange(99.0).reshape(11, 9), np.arange(99.0).reshape(9, 11).T, np.arange(99.0).reshape(11, 9)[::-1]):
        expected = 2 * (a @ b) - c
        plan = StreamPlan((11, 13, 9), (6, 5, 4), 8, 2, 10**6, reads=True)
        run_streamed(plan, [module.CupyDevice(gpu, c.dtype, multiply) for gpu in range(2)], (a, b, c), (2, -1))
        assert np.array_equal(c, expected)


@pytest.mark.parametrize("module", [False], indirect=True)
@pytest.mark.parametrize("lies", ["rows", "columns", "backwards"])
def test_matrices_of_a_gpu_are_copied_by_rows(module: Any, lies: str) -> None:
    """Those that lie otherwise are copied anew first, and such a C is written last."""
    turned: Any = {"rows": lambda x: x, "columns": np.asfortranarray, "backwards": lambda x: x[::-1].copy()[::-1]}[lies]
    a, b, c = (turned(x).view(OnGpu) for x in (np.arange(143.0).reshape(11, 13), np.arange(117.0).reshape(13, 9), np.ones((11, 9))))
    expected = 2 * (a @ b) - c
    given = module.reachable(a, b, c, True)
    assert all(x.strides == (8 * x.shape[1], 8) for x in given) and (given[2] is c) == (lies == "rows")
    plan = StreamPlan((11, 13, 9), (6, 5, 4), 8, 2, 10**6, reads=True)
    run_streamed(plan, [module.CupyDevice(gpu, c.dtype, multiply) for gpu in range(2)], given, (2, -1))
    assert np.array_equal(given[2], expected)
