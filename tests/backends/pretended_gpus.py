"""A pretended CuPy of several GPUs, on which each stream's work is done late: when somebody waits for it, in its order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

LOCK = threading.RLock()
HERE = threading.local()


class OnGpu(np.ndarray[Any, Any]):
    """An array with an address where CuPy has it."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self)

    def __array_function__(self, function: Any, types: Any, given: Any, options: Any) -> Any:
        """Memory that nobody has written holds NaN: what a test reads there is the same each time."""
        found = super().__array_function__(function, types, given, options)
        if function is np.empty_like and found.dtype.kind in "fc":
            found.fill(np.nan)
        return found


class Event:
    def __init__(self, stream: Stream, place: int) -> None:
        self.stream, self.place = stream, place


class Stream:
    """The work of a stream of copies waits; that of the current streams is done at once, by the library that is pretended."""

    def __init__(self, **_: Any) -> None:
        self.work: deque[Callable[[], None]] = deque()
        self.begun = self.ended = 0

    def __enter__(self) -> Stream:
        HERE.stream = self
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def put(self, work: Callable[[], None]) -> None:
        with LOCK:
            self.work.append(work)
            self.begun += 1

    def run(self, until: int) -> None:
        with LOCK:
            while self.ended < until:
                self.work.popleft()()
                self.ended += 1

    def wait_event(self, event: Event) -> None:
        self.put(lambda: event.stream.run(event.place))
        if getattr(HERE, "stream", None) is self:  # the thread goes on when its stream has come there
            self.run(self.begun)

    def record(self) -> Event:
        return Event(self, self.begun)

    def synchronize(self) -> None:
        self.run(self.begun)

    @property
    def ptr(self) -> Stream:
        return self


class Device:
    def __init__(self, number: int = 0) -> None:
        self.id = number

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def synchronize(self) -> None:
        pass


def copy(place: OnGpu, target: int, array: OnGpu, source: int, size: int, stream: Stream) -> None:
    assert size == place.nbytes == array.nbytes and target != source

    def work() -> None:
        np.copyto(place.reshape(-1), array.reshape(-1))

    stream.put(work)


def pretended() -> dict[str, ModuleType]:
    """The modules, by name."""
    cupy, cuda = ModuleType("cupy"), ModuleType("cupy.cuda")
    runtime = SimpleNamespace(memcpyPeerAsync=copy, memGetInfo=lambda: (10**9, 10**9))
    vars(cuda).update(runtime=runtime, Device=Device, Stream=Stream, get_current_stream=lambda: HERE.stream)
    pool = SimpleNamespace(free_bytes=lambda: 0)
    vars(cupy).update(cuda=cuda, get_default_memory_pool=lambda: pool, ndarray=OnGpu)
    vars(cupy).update(zeros=lambda *given: np.zeros(*given).view(OnGpu), broadcast_to=np.broadcast_to)
    return {"cupy": cupy, "cupy.cuda": cuda}
