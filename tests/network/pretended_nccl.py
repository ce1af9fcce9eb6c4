"""A program for mpirun: products whose messages go by `NcclRounds`, on a pretended CuPy without a GPU.

A pretended stream does nothing until somebody waits for it. Its groups of sends and receives go by MPI, in their order and without tags, as
NCCL matches them. So a product is wrong if a rank reads what it did not wait for, and hangs if rounds have no common order.

`pretended_nccl.py exact`; or `raised`, `stopped`: rank 1 fails or is stopped in its second product, while others wait for the GPU.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from threading import current_thread, main_thread
from time import sleep
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from mpi4py import MPI

from bilinear.errors import BilinearError

COMM = MPI.COMM_WORLD
TIMEOUT, SHORT = 60.0, 8.0
UNIQUE: bytes | tuple[int, ...] = bytes(range(64, 192)) if COMM.size % 2 else tuple(range(-64, 64))
"""As CuPy has it from version 14 on, and before."""
ALONE = COMM.Dup()


class OnGpu(np.ndarray[Any, Any]):
    """An array with an address where CuPy has it."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self)


class Event:
    def __init__(self, **_: Any) -> None:
        self.stream: Stream | None = None

    def record(self, stream: Stream) -> None:
        self.stream, self.place = stream, stream.begun

    @property
    def done(self) -> bool:
        if self.stream is not None:
            self.stream.run(self.place)
        return True


class Stream:
    """Work that is begun when somebody waits for it. The current stream, of products, does its work at once."""

    def __init__(self, **_: Any) -> None:
        self.work: list[Callable[[], None]] = []
        self.begun = self.ended = 0

    def put(self, work: Callable[[], None]) -> None:
        self.work.append(work)
        self.begun += 1

    def run(self, until: int) -> None:
        while self.ended < until:
            self.work[self.ended]()
            self.ended += 1

    def wait_event(self, event: Event) -> None:
        if event.stream is not self and event.done:
            return

    @property
    def ptr(self) -> Stream:
        return self


class Communicator:
    """NCCL's communicator. Its thread makes it; `abort` ends what waits."""

    def __init__(self, ranks: int, unique: bytes | tuple[int, ...], rank: int) -> None:
        if type(unique) is not type(UNIQUE):
            raise TypeError(f"Argument 'commId' has incorrect type (expected {type(UNIQUE).__name__}")
        assert (ranks, rank, unique) == (COMM.size, COMM.rank, UNIQUE) and current_thread() is not main_thread()
        self.aborted = False
        made.append(self)

    def recv(self, place: Any, size: int, kind: int, source: int, stream: Stream) -> None:
        assert size == place.nbytes
        groups[-1].append((stream, lambda: ALONE.Irecv([place.view(np.ndarray).reshape(-1).view(np.uint8), MPI.BYTE], source), self))

    def send(self, place: Any, size: int, kind: int, target: int, stream: Stream) -> None:
        assert size == place.nbytes and not self.aborted
        groups[-1].append((stream, lambda: ALONE.Isend([place.view(np.ndarray).reshape(-1).view(np.uint8), MPI.BYTE], target), self))

    def check_async_error(self) -> None:
        pass

    def abort(self) -> None:
        self.aborted = True

    def destroy(self) -> None:
        print(f"rank {COMM.rank} closed", flush=True)


def stop_or_wait() -> None:
    """Rank 1 is stopped, and rank 0 waits for its GPU inside of CuPy, which waits for a message of rank 1: only an abort ends that."""
    if COMM.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    while COMM.rank == 0 and not any(communicator.aborted for communicator in made):
        sleep(1e-2)


made: list[Communicator] = []
groups: list[list[tuple[Stream, Callable[[], MPI.Request], Communicator]]] = []


def group_end() -> None:
    group = groups.pop()
    assert group and len({id(stream) for stream, _, _ in group}) == 1
    communicator = group[0][2]

    def work() -> None:
        requests = [begin() for _, begin, _ in group]
        while not communicator.aborted and not MPI.Request.Testall(requests):
            sleep(1e-3)

    group[0][0].put(work)


def pretend() -> None:
    """Put the pretended modules in the place of CuPy's."""
    current, device = Stream(), SimpleNamespace(id=0)
    cupy, cuda, nccl = ModuleType("cupy"), ModuleType("cupy.cuda"), ModuleType("cupy.cuda.nccl")
    uuid = COMM.rank.to_bytes(16, "little")
    runtime = SimpleNamespace(getDeviceProperties=lambda number: {"uuid": uuid})
    context = type("Device", (), {"id": 0, "__init__": lambda *_: None, "__enter__": lambda _: device, "__exit__": lambda *_: None})
    vars(nccl).update(
        available=True,
        get_version=lambda: 22809,
        get_unique_id=lambda: UNIQUE,
        NcclCommunicator=Communicator,
        NCCL_UINT8=1,
        groupStart=lambda: groups.append([]),
        groupEnd=group_end,
    )
    vars(cuda).update(nccl=nccl, runtime=runtime, Device=context, Stream=Stream, Event=Event, get_current_stream=lambda: current)
    vars(cupy).update(cuda=cuda)
    sys.modules.update({"cupy": cupy, "cupy.cuda": cuda, "cupy.cuda.nccl": nccl})


def main(way: str) -> None:
    pretend()
    from network.lockstep import times
    from network.test_plan import distributions

    from bilinear.backends.nccl_rounds import version
    from bilinear.distributed import connection as silence
    from bilinear.distributed.connection import connected
    from bilinear.distributed.distributions import Rect
    from bilinear.distributed.rank import steps_of
    from bilinear.distributed.rank_plan import decompose
    from bilinear.frontend import load

    def piece(matrix: Any, part: Rect) -> Any:
        rows, columns = ([at for run in runs for at in range(*run)] for runs in (part.rows, part.columns))
        return matrix[np.ix_(rows, columns)].view(OnGpu)

    assert version() == "2.28.9"
    if way == "stopped":
        silence.SILENCE = SHORT
    connection, calls = connected(COMM, TIMEOUT), 0

    def failing(*given: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if way == "raised" and COMM.rank == 1 and calls == 2:
            raise MemoryError("no room for a product")
        if way == "stopped" and calls == 2:
            stop_or_wait()
        return times(*given, **options)

    known = distributions(COMM.size)
    for extents in ((24, 24, 24), (45, 37, 52), (3, 50, 1)):
        m, k, n = extents
        generator = np.random.default_rng(7)
        a, b = generator.integers(-9, 10, (m, k)), generator.integers(-9, 10, (k, n))
        for at, name in enumerate(("2d", "strassen", "winograd", "laderman")):
            given = known[at % len(known)], known[(at + 1) % len(known)], known[(at + 2) % len(known)]
            for levels in (None, 2) if name in ("strassen", "winograd") else (None,):
                plan = decompose(extents, COMM.size, given, None if name == "2d" else load(name).scheme, levels)
                left, right = (piece(x, spread[COMM.rank]) for x, spread in zip((a, b), plan.given, strict=False))
                found = connection.run(steps_of(plan, COMM.rank, left, right, failing), on_gpu=True)
                assert COMM.size == 1 or connection.carrier.name == "NCCL"
                assert np.array_equal(found, piece(a @ b, plan.given[2][COMM.rank])), (extents, name, levels)
    print(f"rank {COMM.rank}: exact", flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(__import__("pathlib").Path(__file__).parents[1]))
    try:
        main(sys.argv[1])
    except BilinearError as error:
        print(error, flush=True)
        sys.exit(1)
