"""The connection of a communicator: rounds of messages by MPI or NCCL, and a watch that ends them if another rank is lost."""

from __future__ import annotations

import os
import pickle
import sys
import warnings
from array import array
from atexit import register
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Event, Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from bilinear.distributed.rank import Message, Post, Steps, Ticket
from bilinear.errors import BilinearError, Diagnostic, fail, install
from bilinear.ir.matrix import Array

if TYPE_CHECKING:
    from mpi4py import MPI

    from bilinear.backends.nccl_rounds import NcclRounds


Round = TypeVar("Round")  # A round under way, in a carrier's own words.


class Carrier(Protocol[Round]):
    """What moves arrays between ranks, round by round."""

    def post(self, sends: Sequence[Message], receives: Sequence[Message]) -> Round:
        """Begin a round of messages."""

    def wait(self, round_: Round) -> None:
        """Let what follows wait for a round."""


def run_steps(steps: Steps, carrier: Carrier[Round]) -> Array:
    """The result of a rank's steps."""
    rounds: list[Round] = []
    try:
        asked = next(steps)
        while True:
            if isinstance(asked, Post):
                rounds.append(carrier.post(asked.sends, asked.receives))
                asked = steps.send(Ticket(len(rounds) - 1))
            else:
                carrier.wait(rounds[asked.ticket])
                asked = steps.send(asked.ticket)
    except StopIteration as done:
        return done.value


Bytes = NDArray[np.uint8]


class Staging:
    """A round of messages under way, with copies of arrays on a GPU. What has arrived is copied back by `land`."""

    def __init__(self) -> None:
        self.requests = list["MPI.Request"]()
        self.arrivals = list[tuple[Array, NDArray[np.generic]]]()
        self.held = list[Bytes]()  # what is sent must not be freed before

    def leaving(self, array: Array) -> Bytes:
        """The bytes to send."""
        self.held.append(_bytes_of(array if isinstance(array, np.ndarray) else array.get()))
        return self.held[-1]

    def arriving(self, array: Array) -> Bytes:
        """The bytes to receive into."""
        if isinstance(array, np.ndarray):
            return _bytes_of(array)
        host = np.empty(array.shape, array.dtype)
        self.arrivals.append((array, host))
        return _bytes_of(host)

    def land(self) -> None:
        """Copy to the GPU what has arrived."""
        for held, host in self.arrivals:
            held.set(host)
        for each in (self.requests, self.arrivals, self.held):
            each.clear()


def _bytes_of(array: NDArray[np.generic]) -> Bytes:
    return array.reshape(-1).view(np.uint8)


FIRST_PAUSE, LONGEST_PAUSE = 2e-5, 2e-3  # Seconds between looks at what is under way.


class ByMpi:
    """Carries rounds of messages over a communicator, as long as no rank is lost."""

    name = "MPI"

    def __init__(self, comm: MPI.Intracomm, watch: RankWatch) -> None:
        self.comm, self.watch = comm, watch

    def post(self, sends: Sequence[Message], receives: Sequence[Message]) -> Staging:
        """Begin a round."""
        from mpi4py import MPI

        round_ = Staging()
        for source, tag, x in receives:
            round_.requests.append(self.comm.Irecv([round_.arriving(x), MPI.BYTE], source, tag))
        for target, tag, x in sends:
            round_.requests.append(self.comm.Isend([round_.leaving(x), MPI.BYTE], target, tag))
        return round_

    def wait(self, round_: Staging) -> None:
        """Wait for a round."""
        finish(round_.requests, self.watch)
        round_.land()

    def drain(self) -> None:
        """Nothing is under way that was waited for."""


def finish(requests: list[MPI.Request], watch: RankWatch) -> None:
    """Wait for requests, as long as no rank is lost."""
    from mpi4py import MPI

    pause, before = FIRST_PAUSE, watch.since
    watch.since = before or monotonic()
    while not MPI.Request.Testall(requests):
        watch.require_sound()
        sleep(pause)
        pause = min(1.1 * pause, LONGEST_PAUSE)
    watch.since = before


TOLD, VERDICT = 100, 101  # Tags; those of arrays are smaller.
PAUSE = 1e-4
MARGIN = 5.0  # Seconds by which rank 0's verdict may be late: it waits like all, then says who is missing.


@dataclass(frozen=True)
class Told:
    """What one rank says: the facts by name, or why it cannot take part."""

    facts: Mapping[str, str]
    refused: Diagnostic | None = None


def _ask(comm: MPI.Intracomm, watch: RankWatch, told: Told, timeout: float) -> Diagnostic | None:
    request = comm.isend(told, 0, TOLD)
    end = monotonic() + timeout + MARGIN
    while not comm.iprobe(0, VERDICT):
        watch.require_sound()
        if monotonic() > end:
            raise _missing(watch, [0], timeout)
        sleep(PAUSE)
    request.wait()
    found: Diagnostic | None = comm.recv(source=0, tag=VERDICT)
    return found


def _judge(comm: MPI.Intracomm, watch: RankWatch, own: Told, timeout: float) -> Diagnostic | None:
    heard, end = {0: own}, monotonic() + timeout
    while len(heard) < comm.size:
        watch.require_sound()
        missing = [rank for rank in range(comm.size) if rank not in heard]
        for rank in missing:
            if comm.iprobe(rank, TOLD):
                heard[rank] = comm.recv(source=rank, tag=TOLD)
        if monotonic() > end:
            raise _missing(watch, missing, timeout)
        sleep(PAUSE)
    verdict = disagreement([heard[rank] for rank in range(comm.size)])
    requests = [comm.isend(verdict, rank, VERDICT) for rank in range(1, comm.size)]
    for request in requests:
        request.wait()
    return verdict


def _missing(watch: RankWatch, ranks: list[int], timeout: float) -> BilinearError:
    """Give up on ranks that have not called: if they do so later, they are told."""
    error = fail("E765", f"{_ranks(ranks)} did not call within {timeout:g} s", "every rank must call; timeout= waits longer")
    watch.report(error.diagnostics[0])
    return error


def disagreement(told: list[Told]) -> Diagnostic | None:
    """Why the ranks cannot go on together; None if they can."""
    refused = {rank: each.refused for rank, each in enumerate(told) if each.refused is not None}
    if len(refused) == len(told) and len(set(map(str, refused.values()))) == 1:
        return refused[0]
    if refused:
        rank, why = min(refused.items())
        others = sorted(set(refused) - {rank})
        notes = [*why.notes, *(f"{_ranks([each])} cannot take part either" for each in others)]
        return Diagnostic("E767", f"rank {rank} cannot take part: {why.message} ({why.code})", None, "", tuple(notes), why.hints)
    for name in told[0].facts:
        values: dict[str, list[int]] = {}
        for rank, each in enumerate(told):
            values.setdefault(each.facts.get(name, "none"), []).append(rank)
        if len(values) > 1:
            said = tuple(f"{_ranks(ranks)}: {value}" for value, ranks in values.items())
            return Diagnostic("E763", f"the ranks differ in {name}", None, "", said, ("give all ranks the same",))
    return None


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


LIFE, FAILURE, END = 1, 2, 3
EVERY = 1.0  # Seconds between signs of life.
POLL = 0.01  # Seconds between looks at the network, by which MPI moves messages during a product.
LINGER = 3.0  # Seconds that a process with a broken communicator stays, so that others hear why.
MOST_TEXT = 4000  # The most characters of an error that is passed on.


class RankWatch(Thread):
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
                notice = pickle.dumps(self._notices.pop())
                for rank in range(self.comm.size):
                    self._send(rank, FAILURE, notice)  # not to itself
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


SILENCE = 20.0  # Seconds without a sign of life after which a rank is lost.
UNIQUE = 128  # Bytes of the number under which ranks make a communicator of NCCL.


class Connection:
    """A private duplicate of a communicator, and a watch on its ranks.

    Arrays of the host travel by MPI, those of GPUs by NCCL if every rank has a GPU of its own. `sent` and `received` are the bytes of
    arrays that this rank exchanged with others since the connection was made.
    """

    def __init__(self, comm: MPI.Intracomm, timeout: float) -> None:
        self.comm, watched = (_duplicate(comm, timeout) for _ in range(2))
        self.watch = RankWatch(watched, SILENCE)
        self.watch.start()
        self.sent = self.received = 0
        self.carrier: ByMpi | NcclRounds = ByMpi(self.comm, self.watch)
        self._gpus: tuple[bytes, ...] = ()
        self._by_nccl: NcclRounds | None = None
        register(self.close)

    def agree(self, told: Told, timeout: float) -> None:
        """Return if all ranks say the same; else raise the same `BilinearError` on all: E763, E765, E767, or why all were refused."""
        self.watch.require_sound()
        self.watch.since = monotonic()
        verdict = (_judge if self.comm.rank == 0 else _ask)(self.comm, self.watch, told, timeout)
        if verdict is not None:
            raise BilinearError(verdict)
        self.watch.since = None

    def run(self, steps: Steps, on_gpu: bool = False) -> Array:
        """Run what a rank does. An error here ends the run on all ranks, and the communicator is not used again."""
        try:
            self.carrier = self._between_gpus() if on_gpu and self.comm.size > 1 else ByMpi(self.comm, self.watch)
            result = run_steps(steps, self)
            self.carrier.drain()
        except BaseException as error:
            if self.watch.failure is not None and isinstance(error, Exception):
                self.watch.require_sound()  # what another rank has told is the cause
            self.watch.report(failed(self.comm.rank, error))
            raise
        finally:
            self.watch.since = None
        self.watch.done += 1
        return result

    def largest(self, value: float) -> float:
        """The largest of what the ranks give; all of them must call."""
        from mpi4py import MPI

        own, found = array("d", [value]), array("d", [0.0])
        finish([self.comm.Iallreduce([own, MPI.DOUBLE], [found, MPI.DOUBLE], MPI.MAX)], self.watch)
        return found[0]

    def post(self, sends: Sequence[Message], receives: Sequence[Message]) -> Any:
        """Begin a round of messages, counted."""
        self.watch.since = self.watch.since or monotonic()  # from now on the rank may wait for others at any place, such as in CuPy
        self.received += sum(x.nbytes for _, _, x in receives)
        self.sent += sum(x.nbytes for _, _, x in sends)
        return self.carrier.post(sends, receives)

    def wait(self, round_: Any) -> None:
        """Let what follows wait for a round."""
        self.carrier.wait(round_)

    def _between_gpus(self) -> ByMpi | NcclRounds:
        """NCCL among the current GPUs; MPI, with a warning, if two ranks share one."""
        from mpi4py import MPI

        from bilinear.backends.nccl_rounds import NcclRounds, gpu_identity, unique_id

        own = gpu_identity()
        found = bytearray(len(own) * self.comm.size)
        finish([self.comm.Iallgather([own, MPI.BYTE], [found, MPI.BYTE])], self.watch)
        gpus = tuple(bytes(found[at : at + len(own)]) for at in range(0, len(found), len(own)))
        if len(set(gpus)) < len(gpus):
            if self.comm.rank == 0 and self._gpus != gpus:
                warnings.warn("ranks share a GPU, which NCCL refuses: arrays pass through memory of the host", stacklevel=2)
            self._gpus = gpus
            return ByMpi(self.comm, self.watch)
        if self._by_nccl is None or self._gpus != gpus:
            self.close()
            unique = bytearray(unique_id() if self.comm.rank == 0 else UNIQUE)
            finish([self.comm.Ibcast([unique, MPI.BYTE], 0)], self.watch)
            self.watch.since = monotonic()
            self._by_nccl = NcclRounds(self.comm.size, self.comm.rank, bytes(unique), self.watch.require_sound)
            self.watch.since, self.watch.abandon, self._gpus = None, self._by_nccl.abort, gpus
        return self._by_nccl

    def close(self) -> None:
        """Give NCCL's communicator back, if all ranks are sound."""
        if self._by_nccl is not None and self.watch.failure is None:
            self.watch.abandon = None
            self._by_nccl.close()
            self._by_nccl = None


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


_keys: list[int] = []  # The key of the attribute of a communicator that holds its connection.
