"""CuPy's part of streamed multiplies on a pretended `cupy` whose memory is the host's and whose copies happen at once."""

from __future__ import annotations

import ctypes
import importlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bilinear.backends.stream_engine import run_streamed
from bilinear.planner.streamed import StreamPlan


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
