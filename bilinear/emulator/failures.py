"""The errors of a launch that was aborted."""

from __future__ import annotations


class LaunchError(Exception):
    """A launch that was aborted; `kernel`, `block` and `line` (0 if unknown) say where."""

    def __init__(self, message: str, kernel: str, block: tuple[int, int, int], thread: tuple[int, int, int], line: int) -> None:
        super().__init__(message)
        self.kernel, self.block, self.thread, self.line = kernel, block, thread, line


class BarrierError(LaunchError):
    """The threads of a block do not all reach the same barrier."""


class AccessError(LaunchError):
    """An access outside an array, or through a null pointer."""


class AlignmentError(AccessError):
    """An access through a pointer that is not aligned for its type."""


class UndefinedError(LaunchError):
    """Integer arithmetic with an undefined result."""


class TrapError(LaunchError):
    """The kernel called `__trap()`."""


class HangError(LaunchError):
    """The launch exceeded its time limit."""


class AsyncError(LaunchError):
    """A transaction barrier, an asynchronous copy or a warpgroup's multiplication is misused."""


FAILURES: dict[int, type[LaunchError]] = {
    1: BarrierError,
    2: AccessError,
    3: AlignmentError,
    4: UndefinedError,
    5: TrapError,
    6: HangError,
    7: AsyncError,
}
