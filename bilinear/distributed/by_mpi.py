"""Messages by MPI, sent and received without blocking; arrays of a GPU pass through memory of the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bilinear.distributed.rank import Message
from bilinear.distributed.watch import Watch
from bilinear.ir.matrix import Array

if TYPE_CHECKING:
    from mpi4py import MPI

Bytes = NDArray[np.uint8]


@dataclass
class Staging:
    """Copies of arrays on a GPU, for messages. What has arrived is copied back by `land`."""

    arrivals: list[tuple[Array, NDArray[np.generic]]] = field(default_factory=list)

    def leaving(self, array: Array) -> Bytes:
        """The bytes to send."""
        host = array if isinstance(array, np.ndarray) else array.get()
        return _bytes_of(host)

    def arriving(self, array: Array) -> Bytes:
        """The bytes to receive into."""
        if isinstance(array, np.ndarray):
            return _bytes_of(array)
        host = np.empty(array.shape, array.dtype)
        self.arrivals.append((array, host))
        return _bytes_of(host)

    def land(self) -> None:
        """Copy to the GPU what has arrived."""
        for array, host in self.arrivals:
            array.set(host)
        self.arrivals.clear()


def _bytes_of(array: NDArray[np.generic]) -> Bytes:
    return array.reshape(-1).view(np.uint8)


FIRST_PAUSE, LONGEST_PAUSE = 2e-5, 2e-3
"""Seconds between looks at what is under way."""


@dataclass
class _UnderWay:
    requests: list[MPI.Request] = field(default_factory=list)
    staging: Staging = field(default_factory=Staging)
    held: list[Bytes] = field(default_factory=list)


class ByMpi:
    """Carries rounds of messages over a communicator, as long as no rank is lost."""

    name = "MPI"

    def __init__(self, comm: MPI.Intracomm, watch: Watch) -> None:
        self.comm, self.watch = comm, watch

    def post(self, sends: Sequence[Message], receives: Sequence[Message]) -> _UnderWay:
        """Begin a round."""
        from mpi4py import MPI

        round_ = _UnderWay()
        for source, tag, x in receives:
            round_.requests.append(self.comm.Irecv([round_.staging.arriving(x), MPI.BYTE], source, tag))
        for target, tag, x in sends:
            buffer = round_.staging.leaving(x)
            round_.requests.append(self.comm.Isend([buffer, MPI.BYTE], target, tag))
            round_.held.append(buffer)
        return round_

    def wait(self, round_: _UnderWay) -> None:
        """Wait for a round."""
        finish(round_.requests, self.watch)
        round_.staging.land()
        round_.held.clear()
        round_.requests.clear()

    def drain(self) -> None:
        """Nothing is under way that was waited for."""


def finish(requests: list[MPI.Request], watch: Watch) -> None:
    """Wait for requests, as long as no rank is lost."""
    from mpi4py import MPI

    pause, before = FIRST_PAUSE, watch.since
    watch.since = before or monotonic()
    while not MPI.Request.Testall(requests):
        watch.require_sound()
        sleep(pause)
        pause = min(1.1 * pause, LONGEST_PAUSE)
    watch.since = before
