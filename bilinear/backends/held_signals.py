"""Held: signals that wait for a moment at which nothing of the caller's is half-written, and the one who may be told then."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

if sys.version_info >= (3, 13):
    from signal import getsignal
    from signal import signal as set_handler
else:  # where `signal` looks for every handler in an enumeration, which takes longer than several launches
    from _signal import getsignal  # type: ignore[import-not-found]
    from _signal import signal as set_handler

Deliver = Callable[[], None]

_NAMES = ("SIGHUP", "SIGQUIT", "SIGTERM", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGUSR1", "SIGUSR2", "SIGXCPU", "SIGCHLD", "SIGINT")
_NUMBERS = tuple(int(getattr(signal, name)) for name in _NAMES if hasattr(signal, name))
"""The signals that programs handle, Ctrl-C last: those that are given back before it are safe from what its handler raises.

To ask for the handlers of all 64 would take longer than a launch.
"""


def nothing() -> None:
    """What delivers nothing, and does nothing."""


class HeldSignals:
    """Hold back, inside the block, the signals of `_NUMBERS` that Python handles.

    The value calls the handlers of those that came, which may raise. What came last is delivered at the end. Where the block is left by
    an exception, another one of its type changes nothing. Only the main thread handles signals: in others nothing is held back.
    """

    def __enter__(self) -> Deliver:
        self._came: dict[int, FrameType | None] = {}
        self._before: dict[int, Callable[[int, FrameType | None], object]] = {}
        if threading.current_thread() is not threading.main_thread():
            return nothing
        try:
            for number in _NUMBERS:
                handler = getsignal(number)
                if callable(handler):
                    self._before[number] = handler
                    set_handler(number, self._note)
        except BaseException:
            self._give_back()
            raise
        return self._deliver

    def __exit__(self, kind: type[BaseException] | None, leaving: BaseException | None, trace: TracebackType | None) -> None:
        self._give_back()
        try:
            self._deliver()
        except BaseException as error:
            if type(error) is not kind:
                raise

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came[number] = frame

    def _deliver(self) -> None:
        while self._came:
            number, frame = self._came.popitem()
            self._before[number](number, frame)

    def _give_back(self) -> None:
        """Give back every handler, also where one that is back already raises."""
        try:
            for number, handler in self._before.items():
                set_handler(number, handler)
        except BaseException:
            self._give_back()
            raise
