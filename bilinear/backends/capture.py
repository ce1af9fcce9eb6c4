"""Capture: whether a stream is being captured in a CUDA graph. A graph cannot hold memory from a pool, and nothing can wait for it."""

from __future__ import annotations

from bilinear.errors import BilinearError, fail


def is_captured(stream: int | None = None) -> bool:
    """Whether a stream, by default CuPy's current one, is being captured."""
    import cupy

    cuda = cupy.cuda
    return bool(cuda.runtime.streamIsCapturing(cuda.get_current_stream().ptr if stream is None else stream))


def not_captured(why: str, hint: str) -> BilinearError:
    """The refusal (E536) of a call that a graph cannot hold."""
    return fail("E536", f"the stream is being captured: {why}", hint)
