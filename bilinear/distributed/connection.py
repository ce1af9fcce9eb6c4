"""Messages by MPI: arrays are sent and received without blocking, and a wait ends if another rank is lost."""

from __future__ import annotations

from array import array
from atexit import register
from time import monotonic, sleep
from typing import TYPE_CHECKING

from bilinear.distributed.agreement import Told, agree
from bilinear.distributed.rank import Post, Steps, Ticket
from bilinear.distributed.staging import Bytes, Staging
from bilinear.distributed.watch import LINGER, Watch, end_at_once, failed
from bilinear.errors import fail, install
from bilinear.ir.matrix import Array

if TYPE_CHECKING:
    from mpi4py import MPI

FIRST_PAUSE, LONGEST_PAUSE = 2e-5, 2e-3
"""Seconds between looks at what is under way."""
SILENCE = 20.0
"""Seconds without a sign of life after which a rank is lost."""


class Connection:
    """A private duplicate of a communicator, and a watch on its ranks.

    `sent` and `received` are the bytes of arrays that this rank exchanged with others since the connection was made.
    """

    def __init__(self, comm: MPI.Intracomm, timeout: float) -> None:
        self.comm, watched = (_duplicate(comm, timeout) for _ in range(2))
        self.watch = Watch(watched, SILENCE)
        self.watch.start()
        self.sent = self.received = 0
        self._under_way: list[tuple[list[MPI.Request], Staging, list[Bytes]]] = []

    def agree(self, told: Told, timeout: float) -> None:
        """Return if all ranks are about to do the same, else raise the same error on all of them."""
        self.watch.require_sound()
        self.watch.since = monotonic()
        agree(self.comm, self.watch, told, timeout)
        self.watch.since = None

    def run(self, steps: Steps) -> Array:
        """Run what a rank does. An error here ends the run on all ranks, and the communicator is not used again."""
        try:
            result = self._run(steps)
        except BaseException as error:
            self.watch.report(failed(self.comm.rank, error))
            raise
        finally:
            self.watch.since = None
            self._under_way.clear()
        self.watch.done += 1
        return result

    def _run(self, steps: Steps) -> Array:
        try:
            asked = next(steps)
            while True:
                asked = steps.send(self._post(asked) if isinstance(asked, Post) else self._wait(asked.ticket))
        except StopIteration as done:
            return done.value

    def _post(self, post: Post) -> Ticket:
        from mpi4py import MPI

        staging, held = Staging(), list[Bytes]()
        requests: list[MPI.Request] = []
        for source, tag, x in post.receives:
            buffer = staging.arriving(x)
            requests.append(self.comm.Irecv([buffer, MPI.BYTE], source, tag))
            self.received += buffer.nbytes
        for target, tag, x in post.sends:
            buffer = staging.leaving(x)
            requests.append(self.comm.Isend([buffer, MPI.BYTE], target, tag))
            self.sent += buffer.nbytes
            held.append(buffer)
        self._under_way.append((requests, staging, held))
        return Ticket(len(self._under_way) - 1)

    def largest(self, value: float) -> float:
        """The largest of what the ranks give; all of them must call."""
        from mpi4py import MPI

        own, found = array("d", [value]), array("d", [0.0])
        self._finish([self.comm.Iallreduce([own, MPI.DOUBLE], [found, MPI.DOUBLE], MPI.MAX)])
        return found[0]

    def _wait(self, ticket: Ticket) -> Ticket:
        requests, staging, held = self._under_way[ticket]
        self._finish(requests)
        staging.land()
        held.clear()
        requests.clear()
        return ticket

    def _finish(self, requests: list[MPI.Request]) -> None:
        """Wait for requests, as long as no rank is lost."""
        from mpi4py import MPI

        pause, self.watch.since = FIRST_PAUSE, monotonic()
        while not MPI.Request.Testall(requests):
            self.watch.require_sound()
            sleep(pause)
            pause = min(1.1 * pause, LONGEST_PAUSE)
        self.watch.since = None


def _duplicate(comm: MPI.Intracomm, timeout: float) -> MPI.Intracomm:
    """A duplicate, which all ranks must ask for within the timeout (E765)."""
    duplicate, request = comm.Idup()
    end = monotonic() + timeout
    while not request.Test():
        if monotonic() > end:
            register(end_at_once, LINGER)
            raise fail("E765", f"not all {comm.size} ranks called within {timeout:g} s", "every rank must call; timeout= waits longer")
        sleep(LONGEST_PAUSE)
    return duplicate


def connected(comm: MPI.Intracomm | None, timeout: float) -> Connection:
    """The connection of a communicator (None: that of all processes), made with its first use. Raises `BilinearError` (E765, E766)."""
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise fail("E766", f"mpi4py is not usable: {error}", install("mpi")) from None
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise fail("E766", "this MPI lets one thread at a time call it", "take one with MPI_THREAD_MULTIPLE, which mpi4py asks for")
    comm = MPI.COMM_WORLD if comm is None else comm
    key = _keys[0] if _keys else MPI.Comm.Create_keyval()
    _keys[:] = [key]
    found = comm.Get_attr(key)
    if found is None:
        found = Connection(comm, timeout)
        comm.Set_attr(key, found)
    assert isinstance(found, Connection)
    return found


_keys: list[int] = []
"""The key of the attribute of a communicator that holds its connection."""
