"""A GPU for streamed multiplies, by CuPy: slots, streams, and copies from and to memory of the host, pinned or not, or of a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from math import ceil

import cupy
import numpy as np
from cupy.cuda import runtime

from bilinear.backends.stream_engine import StreamThreads
from bilinear.ir.matrix import Array, Dtype, Factor
from bilinear.planner.streamed import COMPUTE, IN, OUT, STREAMS

CHUNK = 64 * 2**20  # Bytes of each pinned buffer; a stream of copies has two.
COPIERS = 4  # Threads that fill and empty pinned buffers; NumPy copies without Python's lock.
ALREADY_ENABLED = 704  # `cudaErrorPeerAccessAlreadyEnabled`.
MARGIN = 0.1  # The part of free memory left alone: kernels, the library and fragments of pools need some.

Multiply = Callable[[Array, Array, Array, tuple[Factor, Factor], str], None]


def free_memory(number: int) -> int:
    """Bytes of a GPU that a streamed multiply takes without a budget. What CuPy's pool keeps unused is given back first, and counts."""
    with cupy.cuda.Device(number):
        cupy.get_default_memory_pool().free_all_blocks()
        return int(runtime.memGetInfo()[0] * (1 - MARGIN))


def gpu_count() -> int:
    """The number of GPUs that CuPy sees."""
    return int(runtime.getDeviceCount())


class CupyDevice(StreamThreads):
    """One GPU; `multiply` is called with its arrays, its device and its stream current."""

    def __init__(self, number: int, dtype: Dtype, multiply: Multiply) -> None:
        super().__init__()
        self.number, self.dtype, self._multiply = number, dtype, multiply
        self._copiers = ThreadPoolExecutor(COPIERS, "bilinear-copy")
        with cupy.cuda.Device(number):
            self._streams = {stream: cupy.cuda.Stream(non_blocking=True) for stream in STREAMS}
            self._staging = {stream: _PinnedBuffers(dtype) for stream in (IN, OUT)}

    def allocate(self, elements: int) -> Array:
        """Elements of the pool, when nothing that was begun before still uses them."""
        with cupy.cuda.Device(self.number) as device:
            slot = cupy.empty(elements, self.dtype)
            device.synchronize()
        return slot

    def upload(self, host: Array, slot: Array) -> None:
        """Rows that are pinned or on a GPU are copied as they lie; others by pinned buffers, one filled while the other travels."""
        stream = self._streams[IN]
        with cupy.cuda.Device(self.number):
            place = _reached(host)
            if place is not None:
                _copy_rows(slot.data.ptr, _width(host), place, host.strides[0], host, stream)
                return
            for rows, start in self._staging[IN].chunks(host):
                buffer = self._staging[IN].free(host[rows].size)
                self._copy(buffer.reshape(host[rows].shape), host[rows])
                target = slot.data.ptr + start * self.dtype.itemsize
                runtime.memcpyAsync(target, buffer.ctypes.data, buffer.nbytes, runtime.memcpyHostToDevice, stream.ptr)
                self._staging[IN].taken(stream.record())

    def download(self, slot: Array, host: Array) -> None:
        """The other way; one buffer is emptied while the other is filled."""
        stream, staging = self._streams[OUT], self._staging[OUT]
        arriving: tuple[Array, Array, Array] | None = None
        with cupy.cuda.Device(self.number):
            place = _reached(host)
            if place is not None:
                _copy_rows(place, host.strides[0], slot.data.ptr, _width(host), host, stream)
                return
            for rows, start in staging.chunks(host):
                buffer = staging.free(host[rows].size)
                source = slot.data.ptr + start * self.dtype.itemsize
                runtime.memcpyAsync(buffer.ctypes.data, source, buffer.nbytes, runtime.memcpyDeviceToHost, stream.ptr)
                event = stream.record()
                staging.taken(event)
                self._land(arriving)
                arriving = event, host[rows], buffer
            self._land(arriving)

    def product(self, a: Array, b: Array, c: Array, shape: tuple[int, int, int], factors: tuple[Factor, Factor], inputs: str) -> None:
        """See `StreamThreads`."""
        m, k, n = shape
        with cupy.cuda.Device(self.number), self._streams[COMPUTE]:
            self._multiply(a[: m * k].reshape(m, k), b[: k * n].reshape(k, n), c[: m * n].reshape(m, n), factors, inputs)

    def mark(self, stream: str) -> Array:
        """See `StreamThreads`."""
        with cupy.cuda.Device(self.number):
            return self._streams[stream].record()

    def hold(self, stream: str, mark: Array) -> None:
        """See `StreamThreads`."""
        with cupy.cuda.Device(self.number):
            self._streams[stream].wait_event(mark)

    def settle(self, mark: Array) -> None:
        """See `StreamThreads`."""
        mark.synchronize()

    def drain(self) -> None:
        """See `StreamThreads`."""
        self._copiers.shutdown(wait=True)
        with cupy.cuda.Device(self.number):
            for stream in self._streams.values():
                stream.synchronize()

    def _land(self, arriving: tuple[Array, Array, Array] | None) -> None:
        if arriving is not None:
            event, host, buffer = arriving
            event.synchronize()
            self._copy(host, buffer.reshape(host.shape))

    def _copy(self, target: Array, source: Array) -> None:
        """By all copiers, each some of the rows; of one long row, some of its columns."""
        axis = 0 if target.shape[0] >= COPIERS else 1
        step = ceil(target.shape[axis] / COPIERS)
        parts = [(slice(None),) * axis + (slice(at, at + step),) for at in range(0, target.shape[axis], step)]
        jobs = [self._copiers.submit(np.copyto, target[part], source[part]) for part in parts]
        errors = [job.exception() for job in jobs]
        for error in errors:
            if error is not None:
                raise error


class _PinnedBuffers:
    """Two pinned buffers, used in turn. A buffer is free again when the event of the copy that used it has come."""

    def __init__(self, dtype: Dtype) -> None:
        self._dtype = dtype
        self._buffers: list[Array] = [None, None]
        self._events: list[Array] = [None, None]
        self._turn = 0

    def chunks(self, host: Array) -> Iterator[tuple[slice, int]]:
        """Rows that go into one buffer, at least one, and the number of the first element."""
        height, width = host.shape
        step = max(1, CHUNK // (width * self._dtype.itemsize))
        return ((slice(row, min(row + step, height)), row * width) for row in range(0, height, step))

    def free(self, elements: int) -> Array:
        """The first elements of the next buffer, when its last copy is done."""
        if self._events[self._turn] is not None:
            self._events[self._turn].synchronize()
        held = self._buffers[self._turn]
        if held is None or held.size < elements:
            size = max(elements, CHUNK // self._dtype.itemsize)
            memory = cupy.cuda.alloc_pinned_memory(size * self._dtype.itemsize)
            held = self._buffers[self._turn] = np.frombuffer(memory, self._dtype, size)
        return held[:elements]

    def taken(self, event: Array) -> None:
        """The buffer is in use until the event comes; the other one is next."""
        self._events[self._turn] = event
        self._turn = 1 - self._turn


def _width(host: Array) -> int:
    return int(host.shape[1] * host.itemsize)


def _reached(matrix: Array) -> int | None:
    """The address of a matrix that a GPU can copy by itself: in pinned memory or on a GPU, rows without gaps in them. Else None."""
    if isinstance(matrix, cupy.ndarray):
        return int(matrix.data.ptr)
    if matrix.strides[1] != matrix.itemsize or matrix.strides[0] < _width(matrix):
        return None
    first = matrix.ctypes.data
    last = first + (matrix.shape[0] - 1) * matrix.strides[0] + _width(matrix) - 1
    is_pinned = all(runtime.pointerGetAttributes(at).type == runtime.memoryTypeHost for at in (first, last))
    return int(first) if is_pinned else None


def _copy_rows(target: int, target_pitch: int, source: int, source_pitch: int, like: Array, stream: Array) -> None:
    """The driver finds out where both ends are."""
    runtime.memcpy2DAsync(target, target_pitch, source, source_pitch, _width(like), like.shape[0], runtime.memcpyDefault, stream.ptr)


def reachable(a: Array, b: Array, c: Array, reads: bool) -> tuple[Array, Array, Array]:
    """Matrices of a GPU as other GPUs copy them: row by row, copied anew if they lie otherwise, when all work on them is done.

    Of C that lies otherwise a copy is returned, with its values if `reads`.
    """
    with a.device as device:
        left, right = (x if _lies_in_rows(x) else cupy.ascontiguousarray(x) for x in (a, b))
        target = c if _lies_in_rows(c) else cupy.ascontiguousarray(c) if reads else cupy.empty(c.shape, c.dtype)
        device.synchronize()
        for number in range(gpu_count()):
            _meet(int(device.id), number)
    return left, right, target


def _lies_in_rows(x: Array) -> bool:
    return bool(x.strides[1] == x.itemsize and x.strides[0] >= _width(x))


def _meet(first: int, second: int) -> None:
    """Let two GPUs copy from each other without the host, if they can."""
    for own, other in ((first, second), (second, first)):
        if own != other and runtime.deviceCanAccessPeer(own, other):
            with cupy.cuda.Device(own):
                try:
                    runtime.deviceEnablePeerAccess(other)
                except runtime.CUDARuntimeError as error:
                    if error.status != ALREADY_ENABLED:
                        raise
