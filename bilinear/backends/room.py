"""Room: how much memory of the current GPU a call can still get, and whether that is enough for it."""

from __future__ import annotations

import sys

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
