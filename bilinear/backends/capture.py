"""Capture: whether a stream is being captured in a CUDA graph, for which nothing can wait, and memory that belongs to the graph."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bilinear.errors import BilinearError, fail


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


def not_captured(why: str, hint: str) -> BilinearError:
    """The refusal (E536) of a call that a graph cannot hold."""
    return fail("E536", f"the stream is being captured: {why}", hint)
