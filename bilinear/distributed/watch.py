"""Whether the other ranks are alive: a thread that sends a sign of life once a second, and hears when a rank fails or ends."""

from __future__ import annotations

import os
import pickle
import sys
from atexit import register
from collections.abc import Callable
from threading import Event, Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING

from bilinear.errors import BilinearError, Diagnostic, fail

if TYPE_CHECKING:
    from mpi4py import MPI

LIFE, FAILURE, END = 1, 2, 3
EVERY = 1.0
"""Seconds between signs of life."""
POLL = 0.01
"""Seconds between looks at the network; they also make MPI move messages while the main thread multiplies."""
LINGER = 3.0
"""Seconds that a process with a broken communicator stays before it ends, so that all others hear why."""
MOST_TEXT = 4000
"""The most characters of an error that is passed on."""


class Watch(Thread):
    """Signs of life go round a ring: each rank sends to the next one, and watches the one before it, while messages are under way.

    The first to notice a failure tells all ranks. Afterwards the communicator is broken for good. MPI cannot be finalized then, for it
    would wait for messages that never come; so the process ends without that, with exit code 1.
    """

    def __init__(self, comm: MPI.Intracomm, silence: float) -> None:
        super().__init__(name="bilinear-watch", daemon=True)
        self.comm, self.silence = comm, silence
        self.failure: Diagnostic | None = None
        self.done = 0  # calls that this rank has completed
        self.since: float | None = None  # from when on the main thread may wait for another rank
        self.abandon: Callable[[], None] | None = None  # ends what the GPU waits for in vain, once a rank has failed
        self._heard, self._their_end = monotonic(), -1
        self._stop_asked, self._notices, self._requests = Event(), list[Diagnostic](), list["MPI.Request"]()
        register(self.close)

    def run(self) -> None:
        """Until the process ends, or MPI fails."""
        try:
            self._beat()
        except Exception as error:  # of MPI, which has lost a rank
            self.failure = self.failure or lost(self._before, f"or another one is lost: {error}")
            self._give_up()

    def _beat(self) -> None:
        told = 0.0
        while not self._stop_asked.is_set():
            self._listen()
            self._look()
            if monotonic() - told > EVERY:
                told = monotonic()
                self._send((self.comm.rank + 1) % self.comm.size, LIFE, b"")
            while self._notices:
                self._tell_all(self._notices.pop())
            self._give_up()
            sleep(POLL)

    def _give_up(self) -> None:
        """After a failure, let the main thread return from a wait for the GPU."""
        if self.failure is not None and self.abandon is not None:
            abandon, self.abandon = self.abandon, None
            abandon()

    def report(self, failure: Diagnostic) -> None:
        """This rank cannot go on: tell the others, once."""
        if self.failure is None:
            self.failure = failure
            self._notices.append(failure)

    def require_sound(self) -> None:
        """Raise the failure of any rank (E764)."""
        if self.failure is not None:
            raise BilinearError(self.failure)

    def close(self) -> None:
        """As the process ends: tell the next rank, or, if the communicator is broken, see that the process does end."""
        if self.failure is not None:
            end_at_once(LINGER)
        self._stop_asked.set()
        self.join()
        self._send((self.comm.rank + 1) % self.comm.size, END, pickle.dumps(self.done))

    def _listen(self) -> None:
        from mpi4py import MPI

        status = MPI.Status()
        while self.comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG, status):
            buffer = bytearray(status.Get_count(MPI.BYTE))
            self.comm.Recv([buffer, MPI.BYTE], status.source, status.tag)
            self._heard = monotonic() if status.source == self._before else self._heard
            if status.tag == FAILURE and self.failure is None:
                self.failure = pickle.loads(buffer)
            elif status.tag == END:
                self._their_end = pickle.loads(buffer)

    def _look(self) -> None:
        """Whether the rank before this one is still there, if this one waits."""
        since = self.since
        if since is None or self.failure is not None or self.comm.size == 1:
            return
        if 0 <= self._their_end <= self.done:
            self.report(lost(self._before, "has ended"))
        elif monotonic() - max(self._heard, since) > self.silence:
            self.report(lost(self._before, f"has given no sign of life for {self.silence:.0f} s"))

    @property
    def _before(self) -> int:
        return int((self.comm.rank - 1) % self.comm.size)

    def _tell_all(self, failure: Diagnostic) -> None:
        for rank in range(self.comm.size):
            if rank != self.comm.rank:
                self._send(rank, FAILURE, pickle.dumps(failure))

    def _send(self, rank: int, tag: int, data: bytes) -> None:
        if rank == self.comm.rank:
            return
        self._requests = [request for request in self._requests if not request.Test()]
        self._requests.append(self.comm.Isend(data, rank, tag))


def end_at_once(linger: float = 0.0) -> None:
    """End the process without finalizing MPI."""
    sleep(linger)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def lost(rank: int, what: str) -> Diagnostic:
    """The diagnostic of a rank that is no longer there."""
    return fail("E764", f"rank {rank} {what}", "its own output says why; restart the program").diagnostics[0]


def failed(rank: int, error: BaseException) -> Diagnostic:
    """The diagnostic of an error on one rank, for all others."""
    text = str(error) or "no message"
    return fail("E764", f"rank {rank} failed: {type(error).__name__}: {text[:MOST_TEXT]}", "its own output says more").diagnostics[0]
