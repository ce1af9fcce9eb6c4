"""The connection of a communicator: rounds of messages by MPI or NCCL, and a watch that ends them if another rank is lost."""

from __future__ import annotations

import warnings
from array import array
from atexit import register
from collections.abc import Sequence
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from bilinear.distributed.agreement import Told, agree
from bilinear.distributed.by_mpi import LONGEST_PAUSE, ByMpi, finish
from bilinear.distributed.carrier import run_steps
from bilinear.distributed.rank import Message, Steps
from bilinear.distributed.watch import LINGER, Watch, end_at_once, failed
from bilinear.errors import fail, install
from bilinear.ir.matrix import Array

if TYPE_CHECKING:
    from mpi4py import MPI

    from bilinear.backends.nccl_rounds import NcclRounds

SILENCE = 20.0
"""Seconds without a sign of life after which a rank is lost."""
UNIQUE = 128
"""Bytes of the number under which ranks make a communicator of NCCL."""


class Connection:
    """A private duplicate of a communicator, and a watch on its ranks.

    Arrays of the host travel by MPI, those of GPUs by NCCL if every rank has a GPU of its own. `sent` and `received` are the bytes of
    arrays that this rank exchanged with others since the connection was made.
    """

    def __init__(self, comm: MPI.Intracomm, timeout: float) -> None:
        self.comm, watched = (_duplicate(comm, timeout) for _ in range(2))
        self.watch = Watch(watched, SILENCE)
        self.watch.start()
        self.sent = self.received = 0
        self.carrier: ByMpi | NcclRounds = ByMpi(self.comm, self.watch)
        self._gpus: tuple[bytes, ...] = ()
        self._by_nccl: NcclRounds | None = None
        register(self.close)

    def agree(self, told: Told, timeout: float) -> None:
        """Return if all ranks are about to do the same, else raise the same error on all of them."""
        self.watch.require_sound()
        self.watch.since = monotonic()
        agree(self.comm, self.watch, told, timeout)
        self.watch.since = None

    def run(self, steps: Steps, on_gpu: bool = False) -> Array:
        """Run what a rank does. An error here ends the run on all ranks, and the communicator is not used again."""
        try:
            self.carrier = self._between_gpus() if on_gpu and self.comm.size > 1 else ByMpi(self.comm, self.watch)
            result = run_steps(steps, self)
            self.drain()
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

    @property
    def name(self) -> str:
        """What carried the arrays of the last run."""
        return self.carrier.name

    def post(self, sends: Sequence[Message], receives: Sequence[Message]) -> Any:
        """Begin a round of messages, counted."""
        self.watch.since = self.watch.since or monotonic()  # from now on the rank may wait for others at any place, such as in CuPy
        self.received += sum(x.nbytes for _, _, x in receives)
        self.sent += sum(x.nbytes for _, _, x in sends)
        return self.carrier.post(sends, receives)

    def wait(self, round_: Any) -> None:
        """Let what follows wait for a round."""
        self.carrier.wait(round_)

    def drain(self) -> None:
        """Wait for all rounds."""
        self.carrier.drain()

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


_keys: list[int] = []
"""The key of the attribute of a communicator that holds its connection."""
