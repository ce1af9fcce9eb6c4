"""Memory of the GPU, and streams that are captured in a CUDA graph: how much a call can still get, and what belongs to a graph."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from bilinear.errors import BilinearError, fail

RELAXED = 2
"""`CU_STREAM_CAPTURE_MODE_RELAXED` of the CUDA driver."""
DRIVERS = "libcuda.so.1", "nvcuda.dll"
"""The names of the CUDA driver's library."""


def is_captured(stream: int | None = None) -> bool:
    """Whether a stream, by default CuPy's current one, is being captured."""
    import cupy

    cuda = cupy.cuda
    return bool(cuda.runtime.streamIsCapturing(cuda.get_current_stream().ptr if stream is None else stream))


@contextmanager
def memory_of_graph(on_gpu: bool = True) -> Iterator[None]:
    """While CuPy's current stream is captured, make CuPy allocate by it: nodes of the graph allocate an array and free it.

    Without arrays `on_gpu` nothing is asked of CuPy, which may lack a driver. The array must be dropped before the capture ends.
    Memory from a pool would be given to others while the graph goes on writing to it.
    """
    cupy = sys.modules.get("cupy")
    if not on_gpu or cupy is None or not is_captured():
        yield
        return
    with cupy.cuda.using_allocator(cupy.cuda.malloc_async):
        yield


@contextmanager
def capturing_relaxed() -> Iterator[None]:
    """Let this thread load kernels while a stream is captured, which the capture modes "global" (PyTorch's) and "thread_local" forbid.

    Loading adds nothing to the graph and waits for no stream that is captured. CuPy does not bind the driver's function.
    """
    driver = _driver()
    if driver is None:
        yield
        return
    mode = ctypes.c_int(RELAXED)
    driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    try:
        yield
    finally:
        driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))  # `mode` holds what the thread had


@cache
def _driver() -> ctypes.CDLL | None:
    for name in DRIVERS:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def not_captured(why: str, hint: str) -> BilinearError:
    """The refusal (E536) of a call that a graph cannot hold."""
    return fail("E536", f"the stream is being captured: {why}", hint)


LARGE = 2**28
"""Bytes of workspace from which on a call asks for room first: 20 us are little beside such a product."""
SHARE = 0.95
"""How much of the room a call may take: pools round up, and other processes ask, too."""


def free_bytes(of_torch: bool) -> int:
    """The bytes that CuPy's allocator or PyTorch's can still give: those free on the GPU, and those that it holds and nobody uses."""
    import cupy

    free = int(cupy.cuda.runtime.memGetInfo()[0])
    if not of_torch:
        return free + int(cupy.get_default_memory_pool().free_bytes())
    cuda = sys.modules["torch"].cuda
    return free + int(cuda.memory_reserved() - cuda.memory_allocated())


def is_torchs() -> bool:
    """Whether arrays of CuPy are allocated by PyTorch, as while tensors are multiplied."""
    import cupy

    return "torch" in sys.modules and getattr(cupy.cuda.get_allocator(), "__self__", None) is not cupy.get_default_memory_pool()


def fitting(workspace: int, result: int, of_torch: bool | None = None) -> int | None:
    """None if there is room for so many bytes of workspace beside a new result; otherwise the most bytes that a plan should take.

    They are rounded down to one of a few numbers, so that few plans are made while memory comes and goes.
    """
    if workspace < LARGE or "cupy" not in sys.modules:
        return None
    room = max(0, int(free_bytes(is_torchs() if of_torch is None else of_torch) * SHARE) - result)
    step = 1 << max(0, room.bit_length() - 4)
    return None if workspace <= room else room // step * step


def free() -> int:
    """Give back the GPU memory that calls keep for the next ones, on all GPUs that this process uses.

    That is what nobody uses of the pools from which workspace and results come: CuPy's, of GPUs and of pinned memory, PyTorch's if it is in
    use, and the driver's of CUDA graphs. Arrays and graphs keep theirs. It waits for the GPUs. On processors nothing is kept.

    Returns
    -------
    int
        The bytes that CuPy's and PyTorch's pools of GPU memory gave back.

    Raises
    ------
    BilinearError
        E536, if the current stream is captured.

    Examples
    --------
    >>> import bilinear
    >>> bilinear.free()  # no GPU was used
    0
    """
    cupy, torch = sys.modules.get("cupy"), sys.modules.get("torch")
    cupy = cupy if cupy is not None and cupy.cuda.is_available() else None
    torch = torch if torch is not None and torch.cuda.is_initialized() else None
    if (cupy and is_captured()) or (torch and torch.cuda.is_current_stream_capturing()):
        raise not_captured("memory cannot be given back meanwhile", "call it before or afterwards")
    found = 0
    if torch:
        devices = range(torch.cuda.device_count())
        found += sum(map(torch.cuda.memory_reserved, devices))
        torch.cuda.empty_cache()
        found -= sum(map(torch.cuda.memory_reserved, devices))
    driver = _driver()
    if not cupy or driver is None:
        return found
    pool = cupy.get_default_memory_pool()
    for device in range(cupy.cuda.runtime.getDeviceCount()):
        flags, is_used = ctypes.c_uint(), ctypes.c_int()
        driver.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(is_used))
        if is_used:  # on another GPU, CuPy would take memory to ask
            with cupy.cuda.Device(device):
                found += pool.total_bytes()
                pool.free_all_blocks()
                found -= pool.total_bytes()
            driver.cuDeviceGraphMemTrim(device)
    cupy.get_default_pinned_memory_pool().free_all_blocks()
    return int(found)
