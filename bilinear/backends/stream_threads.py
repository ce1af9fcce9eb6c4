"""Streams that are fed by threads: each stream has one, so that staging on the host holds up no other stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event as Flag

from bilinear.ir.matrix import Array, Factor
from bilinear.planner.streamed import COMPUTE, IN, OUT, STREAMS


class _StreamStoppedError(Exception):
    """Another stream failed, or the call was interrupted."""


class StreamThreads(ABC):
    """A device of the engine. Subclasses do the work, each method on the thread of its stream.

    A wait holds the thread until the event is recorded: a GPU takes a wait for an event that is not recorded yet for none. Steps stand
    after those that they wait for, so no two threads wait for each other. After a failure every later job ends at once.
    """

    def __init__(self) -> None:
        self._threads = {stream: ThreadPoolExecutor(1, f"bilinear-{stream}") for stream in STREAMS}
        self._jobs: list[Future[Array]] = []
        self._stopped, self._errors = Flag(), list[BaseException]()

    def copy_in(self, host: Array, slot: Array) -> None:
        """See `StreamDevice`."""
        self._put(IN, lambda: self.upload(host, slot))

    def copy_out(self, slot: Array, host: Array) -> None:
        """See `StreamDevice`."""
        self._put(OUT, lambda: self.download(slot, host))

    def multiply(self, a: Array, b: Array, c: Array, shape: tuple[int, int, int], factors: tuple[Factor, Factor], inputs: str) -> None:
        """See `StreamDevice`."""
        self._put(COMPUTE, lambda: self.product(a, b, c, shape, factors, inputs))

    def record(self, stream: str) -> Future[Array]:
        """See `StreamDevice`."""
        return self._put(stream, lambda: self.mark(stream))

    def wait(self, stream: str, event: object) -> None:
        """See `StreamDevice`."""
        assert isinstance(event, Future)
        self._put(stream, lambda: self.hold(stream, event.result()))

    def finish(self) -> None:
        """See `StreamDevice`."""
        for job in self._jobs:
            job.exception()
        if self._errors:
            raise self._errors[0]
        self.stop()

    def stop(self) -> None:
        """See `StreamDevice`."""
        self._stopped.set()
        for thread in self._threads.values():
            thread.shutdown(wait=True)
        self.drain()

    def _put(self, stream: str, work: Callable[[], Array]) -> Future[Array]:
        job = self._threads[stream].submit(self._guarded, work)
        self._jobs.append(job)
        return job

    def _guarded(self, work: Callable[[], Array]) -> Array:
        if self._stopped.is_set():
            raise _StreamStoppedError
        try:
            return work()
        except BaseException as error:
            if not isinstance(error, _StreamStoppedError):
                self._errors.append(error)
            self._stopped.set()
            raise

    @abstractmethod
    def allocate(self, elements: int) -> Array:
        """See `StreamDevice`."""

    @abstractmethod
    def upload(self, host: Array, slot: Array) -> None:
        """Begin a copy in."""

    @abstractmethod
    def download(self, slot: Array, host: Array) -> None:
        """Copy out, and return when the host has it or, with pinned memory, when the copy has begun."""

    @abstractmethod
    def product(self, a: Array, b: Array, c: Array, shape: tuple[int, int, int], factors: tuple[Factor, Factor], inputs: str) -> None:
        """Begin a product."""

    @abstractmethod
    def mark(self, stream: str) -> Array:
        """An event of the GPU after the work of a stream."""

    @abstractmethod
    def hold(self, stream: str, mark: Array) -> None:
        """Let the stream wait for an event of the GPU."""

    @abstractmethod
    def drain(self) -> None:
        """Wait until the GPU has done all that was begun."""
