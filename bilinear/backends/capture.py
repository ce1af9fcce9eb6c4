"""Capture: whether a stream is being captured in a CUDA graph, for which nothing can wait, and memory that belongs to the graph."""

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
def memory_of_graph() -> Iterator[None]:
    """While CuPy's current stream is captured, make CuPy allocate by it: nodes of the graph allocate an array and free it.

    The array must be dropped before the capture ends. Memory from a pool would be given to others while the graph goes on writing to it.
    """
    cupy = sys.modules.get("cupy")
    if cupy is None or not is_captured():
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
    """The CUDA driver's library; None if it is not found."""
    for name in DRIVERS:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def not_captured(why: str, hint: str) -> BilinearError:
    """The refusal (E536) of a call that a graph cannot hold."""
    return fail("E536", f"the stream is being captured: {why}", hint)
