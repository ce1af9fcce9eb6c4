"""Hold signals back until no array of the caller's is half-written."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

if sys.version_info >= (3, 13):
    from signal import getsignal
    from signal import signal as set_handler
else:  # here `signal` looks up every handler in an enumeration, which takes longer than several launches
    from _signal import getsignal  # type: ignore[import-not-found]
    from _signal import signal as set_handler

Deliver = Callable[[], None]

_NAMES = ("SIGHUP", "SIGQUIT", "SIGTERM", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGUSR1", "SIGUSR2", "SIGXCPU", "SIGCHLD", "SIGINT")
_NUMBERS = tuple(int(getattr(signal, name)) for name in _NAMES if hasattr(signal, name))
"""The signals that programs usually handle; reading the handlers of all 64 would take longer than a launch.

Ctrl-C is last: its handler may raise, and then the other handlers are already given back.
"""


def nothing() -> None:
    """Deliver nothing."""


class HeldSignals:
    """Hold back the signals of `_NUMBERS` that have a Python handler, inside the block.

    The block gets a function that calls the handlers of the signals that `came`; they may raise. The end of the block calls the remaining
    ones. If an exception ends the block, an exception of the same type from a handler is dropped. In other threads than the main thread
    nothing is held back, because only the main thread handles signals.
    """

    def __init__(self) -> None:
        self.came: dict[int, FrameType | None] = {}

    def __enter__(self) -> Deliver:
        self._before: dict[int, Callable[[int, FrameType | None], object]] = {}
        if threading.current_thread() is not threading.main_thread():
            return nothing
        try:
            for number, handler in zip(_NUMBERS, map(getsignal, _NUMBERS), strict=True):
                if callable(handler):
                    self._before[number] = handler
                    set_handler(number, self._note)
        except BaseException:
            self._give_back()
            raise
        return self._deliver

    def __exit__(self, kind: type[BaseException] | None, leaving: BaseException | None, trace: TracebackType | None) -> None:
        self._give_back()
        if not self.came:
            return
        try:
            self._deliver()
        except BaseException as error:
            if type(error) is not kind:
                raise

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.came[number] = frame

    def _deliver(self) -> None:
        while self.came:
            number, frame = self.came.popitem()
            self._before[number](number, frame)

    def _give_back(self) -> None:
        """Give back every handler, even if one that is back already raises meanwhile."""
        try:
            for number, handler in self._before.items():
                set_handler(number, handler)
        except BaseException:
            self._give_back()
            raise
