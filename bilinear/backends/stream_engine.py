"""Run the steps of a streamed multiply on devices, through an interface that is small enough to be pretended in tests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby
from threading import Event as Flag
from threading import Lock

from bilinear.backends.workers import HeldSignals
from bilinear.ir.matrix import Array, Factor
from bilinear.planner.streamed import COMPUTE, IN, OUT, STREAMS, StreamPlan, StreamStep, StreamTask


def run_streamed(
    plan: StreamPlan,
    devices: Sequence[StreamThreads],
    matrices: tuple[Array, Array, Array],
    factors: tuple[Factor, Factor],
    *,
    by_queue: bool = False,
) -> None:
    """C = alpha * A * B + beta * C with host matrices A, B and C. Each device computes its part of C or, `by_queue`, what it comes to.

    If a device fails or a signal's handler raises, the exception leaves when nothing writes C any more. Each element of C is then what
    it was, or its result, and the exception has a note that says so.
    """
    try:
        if by_queue:
            _share_blocks(plan, devices, matrices, factors)
        for gpu, device in enumerate(() if by_queue else devices):
            issue(plan, plan.steps(gpu), device, matrices, factors)
        for device in devices:
            device.finish()
    except BaseException as error:
        with HeldSignals():
            for device in devices:
                try:
                    device.stop()
                except Exception as failed:  # the others must end, too
                    error.add_note(f"a GPU did not end in order: {failed}")
        error.add_note("each element of out holds its result, or what it held before; nothing writes it any more")
        raise


def _share_blocks(
    plan: StreamPlan, devices: Sequence[StreamThreads], matrices: tuple[Array, Array, Array], factors: tuple[Factor, Factor]
) -> None:
    """Each device, on a thread, takes one block of C after another of its part, and then the last one of whoever has most left."""
    parts = [deque(tuple(block) for _, block in groupby(plan.tasks(gpu), lambda task: task.block("C"))) for gpu in range(plan.gpus)]
    lock = Lock()

    def taken(own: deque[tuple[StreamTask, ...]]) -> Iterator[StreamTask]:
        while True:
            with lock:
                most = max(parts, key=len)
                if not most:
                    return
                block = own.popleft() if own else most.pop()
            yield from block

    def drive(gpu: int) -> None:
        try:
            issue(plan, plan.steps_of(taken(parts[gpu])), devices[gpu], matrices, factors, is_paced=True)
        except BaseException:
            end()
            raise

    def end() -> None:
        with lock:
            for part in parts:
                part.clear()

    with ThreadPoolExecutor(len(devices), "bilinear-queue") as threads:
        try:
            for job in [threads.submit(drive, gpu) for gpu in range(len(devices))]:
                job.result()
        except BaseException:
            end()
            raise


def issue(
    plan: StreamPlan,
    steps: Iterable[StreamStep],
    device: StreamThreads,
    matrices: tuple[Array, Array, Array],
    factors: tuple[Factor, Factor],
    *,
    is_paced: bool = False,
) -> None:
    """Put the steps of one GPU on its streams; if `is_paced`, those of a block of C only when the block before the last is multiplied."""
    host = dict(zip("ABC", matrices, strict=True))
    slots = {x: [device.allocate(plan.most_elements(x)) for _ in range(plan.slots(x))] for x in "ABC"}
    events, multiplied = list[Future[Array]](), list[Future[Array]]()
    for step in steps:
        for before in step.waits:
            device.wait(step.stream, events[before])
        if step.stream in (IN, OUT):
            piece = host[step.operand][plan.part(step.operand, step.task.block(step.operand))]
            slot = slots[step.operand][step.slots[0]]
            if step.stream == IN:
                device.copy_in(piece, slot)
            else:
                device.copy_out(slot, piece)
        else:
            task, (alpha, beta) = step.task, factors
            a, b, c = (slots[operand][slot] for operand, slot in zip("ABC", step.slots, strict=True))
            (m, k), n = plan.shape("A", task.block("A")), plan.shape("B", task.block("B"))[1]
            device.multiply(a, b, c, (m, k, n), (alpha, beta if task.first else 1), plan.inputs)
        events.append(device.record(step.stream))
        if is_paced and step.stream == COMPUTE and step.task.last:
            multiplied.append(events[-1])
            if len(multiplied) > 1:
                device.reach(multiplied.pop(0))


class _StreamStoppedError(Exception):
    """Another stream failed, or the call was interrupted."""


class StreamThreads(ABC):
    """One GPU with its streams. Subclasses do the work, each method on the thread of its stream.

    The methods down to `wait` only put work on a stream, and may return before it is done.
    A wait holds the thread until the event is recorded: a GPU takes a wait for an event that is not recorded yet for none. Steps stand
    after those that they wait for, so no two threads wait for each other. After a failure every later job ends at once.
    """

    def __init__(self) -> None:
        self._threads = {stream: ThreadPoolExecutor(1, f"bilinear-{stream}") for stream in STREAMS}
        self._jobs: list[Future[Array]] = []
        self._stopped, self._errors = Flag(), list[BaseException]()

    def copy_in(self, host: Array, slot: Array) -> None:
        """Copy a matrix of the host to the first elements of a slot, row after row."""
        self._put(IN, lambda: self.upload(host, slot))

    def copy_out(self, slot: Array, host: Array) -> None:
        """Copy the first elements of a slot to a matrix of the host."""
        self._put(OUT, lambda: self.download(slot, host))

    def multiply(self, a: Array, b: Array, c: Array, shape: tuple[int, int, int], factors: tuple[Factor, Factor], inputs: str) -> None:
        """C = alpha * A * B + beta * C in slots, with `shape` (m, k, n)."""
        self._put(COMPUTE, lambda: self.product(a, b, c, shape, factors, inputs))

    def record(self, stream: str) -> Future[Array]:
        """An event after the work of a stream."""
        return self._put(stream, lambda: self.mark(stream))

    def wait(self, stream: str, event: Future[Array]) -> None:
        """Further work of a stream begins after the event."""
        self._put(stream, lambda: self.hold(stream, event.result()))

    def reach(self, event: Future[Array]) -> None:
        """Wait for an event; raise what failed on a stream."""
        failed = event.exception()
        if failed is not None:
            raise (self._errors or [failed])[0]
        self.settle(event.result())

    def finish(self) -> None:
        """Wait for all streams; raise what failed on one."""
        for job in self._jobs:
            job.exception()
        if self._errors:
            raise self._errors[0]
        self.stop()

    def stop(self) -> None:
        """Begin nothing more, and wait for what has begun."""
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
        """A slot on the device."""

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
    def settle(self, mark: Array) -> None:
        """Wait for an event of the GPU."""

    @abstractmethod
    def drain(self) -> None:
        """Wait until the GPU has done all that was begun."""
