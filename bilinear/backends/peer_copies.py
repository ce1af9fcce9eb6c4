"""Rounds of messages between the GPUs of one process, a thread for each: copies from GPU to GPU, on streams beside the products."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Condition

import cupy
from cupy.cuda import runtime

from bilinear.ir.matrix import Array

Message = tuple[int, int, Array]  # The number of the other GPU's thread, a tag, and an array without gaps.


class StoppedError(Exception):
    """Another thread failed."""


@dataclass
class _ThreadRound:
    """One thread's part of a round: what is not matched yet, when its arrays are ready, and when its copies are done."""

    sends: deque[Message]
    receives: deque[Message]
    ready: Array
    held: list[Array]
    done: list[Array] = field(default_factory=list)


class PeerCopies:
    """What the threads share: each has a GPU, a stream for products, which is current there, and one for what it receives.

    All post the same rounds in the same order. A copy begins when both ends have posted it and the streams of products have come there.
    """

    def __init__(self, gpus: Sequence[int]) -> None:
        self.gpus = tuple(gpus)
        self._changed = Condition()
        self._failed = False
        self._rounds: list[list[_ThreadRound]] = [[] for _ in gpus]
        self._into = [self._stream(gpu) for gpu in gpus]

    def run(self, work: Callable[[int, PeerCarrier], Array]) -> list[Array]:
        """The results of `work`, called with a number and a carrier on the thread of each GPU. Raises the first error."""
        with ThreadPoolExecutor(len(self.gpus), "bilinear-gpu") as threads:
            jobs = [threads.submit(self._on_gpu, number, work) for number in range(len(self.gpus))]
            try:
                errors = [job.exception() for job in jobs]
            except BaseException:  # of a signal
                self._stop()
                raise
        for error in sorted((e for e in errors if e is not None), key=lambda e: isinstance(e, StoppedError)):
            raise error
        return [job.result() for job in jobs]

    def post(self, number: int, sends: Sequence[Message], receives: Sequence[Message]) -> _ThreadRound:
        """Begin a thread's part of a round; copies are begun by the thread that comes last."""
        own = _ThreadRound(deque(sends), deque(receives), cupy.cuda.get_current_stream().record(), [x for _, _, x in (*sends, *receives)])
        with self._changed:
            at = len(self._rounds[number])
            self._rounds[number].append(own)
            for other, rounds in enumerate(self._rounds):
                if other != number and at < len(rounds):
                    self._match(number, own, other, rounds[at])
                    self._match(other, rounds[at], number, own)
            self._changed.notify_all()
        return own

    def wait(self, own: _ThreadRound) -> None:
        """Let the current stream wait for a round."""
        with self._changed:
            self._changed.wait_for(lambda: self._failed or not (own.sends or own.receives))
            if self._failed:
                raise StoppedError
        for done in own.done:
            cupy.cuda.get_current_stream().wait_event(done)
        own.held.clear()

    def _match(self, source: int, sender: _ThreadRound, target: int, receiver: _ThreadRound) -> None:
        places: dict[int, deque[Array]] = defaultdict(deque)
        for other, _, place in receiver.receives:
            places[other].append(place)
        for other, _, array in list(sender.sends):
            if other == target:
                place, stream = places[source].popleft(), self._into[target]
                with cupy.cuda.Device(self.gpus[target]):
                    stream.wait_event(sender.ready)
                    stream.wait_event(receiver.ready)
                    runtime.memcpyPeerAsync(place.data.ptr, self.gpus[target], array.data.ptr, self.gpus[source], array.nbytes, stream.ptr)
                    done = stream.record()
                sender.done.append(done)
                receiver.done.append(done)
        sender.sends = deque(each for each in sender.sends if each[0] != target)
        receiver.receives = deque(each for each in receiver.receives if each[0] != source)

    def _on_gpu(self, number: int, work: Callable[[int, PeerCarrier], Array]) -> Array:
        try:
            with cupy.cuda.Device(self.gpus[number]), self._stream(self.gpus[number]) as stream:
                result = work(number, PeerCarrier(self, number))
                stream.synchronize()
                return result
        except BaseException:
            self._stop()
            raise

    def _stop(self) -> None:
        with self._changed:
            self._failed = True
            self._changed.notify_all()

    @staticmethod
    def _stream(gpu: int) -> Array:
        with cupy.cuda.Device(gpu):
            return cupy.cuda.Stream(non_blocking=True)


class PeerCarrier:
    """Carries one thread's rounds."""

    name = "copies between GPUs"

    def __init__(self, copies: PeerCopies, number: int) -> None:
        self._copies, self._number = copies, number

    def post(self, sends: Sequence[Message], receives: Sequence[Message]) -> _ThreadRound:
        """Begin a round."""
        return self._copies.post(self._number, sends, receives)

    def wait(self, round_: _ThreadRound) -> None:
        """Let the current stream wait for a round."""
        self._copies.wait(round_)

    def drain(self) -> None:
        """`PeerCopies.run` waits for all."""
