"""Messages between GPUs by NCCL, through CuPy: on a stream of their own, beside the products."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread
from time import sleep

import cupy
from cupy.cuda import nccl

from bilinear.errors import BilinearError, fail
from bilinear.ir.matrix import Array

Message = tuple[int, int, Array]  # The other rank, a tag, which NCCL does not have, an array without gaps.
PAUSE = 1e-4  # Seconds between looks at a communicator that is being made, and at the last messages.
FAREWELL = 5.0  # Seconds that a process which ends gives NCCL to close its communicator.
HIGH = -1  # The priority of the stream of messages: their few blocks run before a product's waiting ones.


def version() -> str:
    """The version of NCCL that CuPy uses. Raises `BilinearError` (E768) without one."""
    if not nccl.available:
        hint = "install the NCCL that CuPy's installation guide names (for CUDA 13: pip install nvidia-nccl-cu13)"
        raise fail("E768", "pieces on GPUs are exchanged by NCCL, which CuPy does not find", hint)
    major, rest = divmod(nccl.get_version(), 10_000)
    return f"{major}.{rest // 100}.{rest % 100}"


def unique_id() -> bytes:
    """The 128 bytes under which ranks make a communicator together. CuPy before 14 has them as a tuple of signed numbers."""
    with _as_diagnostics():
        return bytes(number % 256 for number in nccl.get_unique_id())


def _communicator(ranks: int, unique: bytes, rank: int) -> Array:
    try:
        return nccl.NcclCommunicator(ranks, unique, rank)
    except TypeError:
        return nccl.NcclCommunicator(ranks, tuple(number - 256 * (number > 127) for number in unique), rank)


def gpu_identity() -> bytes:
    """The 16 bytes that identify the current GPU among all."""
    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    return bytes(properties["uuid"])[:16].ljust(16, b"\0")


@dataclass
class _NcclRequests:
    done: Array
    held: list[Array]


class NcclRounds:
    """Carries rounds of messages among the current GPUs of the ranks.

    A round is a group of NCCL's sends and receives on a stream of its own. It begins when the current stream has done what it was given
    before, and `wait` makes the current stream wait for it, not the host. Arrays are held until then, so that CuPy's pool gives their
    memory to nothing else. All ranks put the same rounds on this one stream in the same order, so none waits for a later one.
    `require_sound` raises when a rank is lost.
    """

    name = "NCCL"

    def __init__(self, ranks: int, rank: int, unique: bytes, require_sound: Callable[[], None]) -> None:
        """All ranks must call. Raises `BilinearError` (E768), and what `require_sound` raises."""
        self.device, self._require_sound = int(cupy.cuda.Device().id), require_sound
        self.stream = cupy.cuda.Stream(non_blocking=True, priority=HIGH)
        self._last: Array = None
        self._comm = self._made(lambda: _communicator(ranks, unique, rank))

    def post(self, sends: Sequence[Message], receives: Sequence[Message]) -> _NcclRequests:
        """Begin a round."""
        self.stream.wait_event(_event(cupy.cuda.get_current_stream()))
        if sends or receives:
            with _as_diagnostics():
                nccl.groupStart()
                try:
                    for source, _, array in receives:
                        self._comm.recv(array.data.ptr, array.nbytes, nccl.NCCL_UINT8, source, self.stream.ptr)
                    for target, _, array in sends:
                        self._comm.send(array.data.ptr, array.nbytes, nccl.NCCL_UINT8, target, self.stream.ptr)
                finally:
                    nccl.groupEnd()
        self._last = _event(self.stream)
        return _NcclRequests(self._last, [x for _, _, x in (*sends, *receives)])

    def wait(self, round_: _NcclRequests) -> None:
        """Let the current stream wait for a round."""
        cupy.cuda.get_current_stream().wait_event(round_.done)
        round_.held.clear()

    def drain(self) -> None:
        """Wait for all rounds, as long as no rank is lost and NCCL is sound."""
        while self._last is not None and not self._last.done:
            self._require_sound()
            with _as_diagnostics():
                self._comm.check_async_error()
            sleep(PAUSE)
        self._require_sound()  # after a failure rounds end, too, without their messages
        self._last = None

    def abort(self) -> None:
        """End all rounds, complete or not, so that nothing waits for the GPU forever. Any thread may call this."""
        self._comm.abort()

    def close(self) -> None:
        """Give the communicator back, but do not wait for that longer than `FAREWELL`."""
        closing = Thread(target=self._comm.destroy, daemon=True)
        closing.start()
        closing.join(FAREWELL)

    def _made(self, make: Callable[[], Array]) -> Array:
        """Make the communicator in a thread: NCCL waits for the other ranks, and this one looks meanwhile whether they are alive."""
        found: Future[Array] = Future()

        def run() -> None:
            try:
                with cupy.cuda.Device(self.device):
                    found.set_result(make())
            except BaseException as error:
                found.set_exception(error)

        Thread(target=run, name="bilinear-nccl", daemon=True).start()
        while not found.done():
            self._require_sound()
            sleep(PAUSE)
        with _as_diagnostics():
            return found.result()


def _event(stream: Array) -> Array:
    event = cupy.cuda.Event(disable_timing=True)
    event.record(stream)
    return event


@contextmanager
def _as_diagnostics() -> Iterator[None]:
    """Errors of NCCL as `BilinearError` (E768). For an error number that CuPy does not know it raises `KeyError`."""
    try:
        yield
    except BilinearError:
        raise
    except Exception as error:
        hint = "NCCL_DEBUG=INFO in the environment of the ranks shows what NCCL does"
        raise fail("E768", f"NCCL failed: {type(error).__name__}: {error}", hint) from error
