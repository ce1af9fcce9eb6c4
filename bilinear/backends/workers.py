"""Workers: threads that share a stage's work on the caller's arrays. All have ended when the stage ends, even by an exception."""

from __future__ import annotations

import os
import signal
import sys
import threading
from _thread import start_new_thread
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from itertools import islice
from types import FrameType, TracebackType
from typing import Generic, TypeVar

import numpy as np

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


Item = TypeVar("Item")

MOST_WORKERS = 8  # Threads that share the additions of a stage; they wait for memory, so more would not help.
ITERATOR_BUFFER = 256
"""Entries in a buffer of NumPy's iterator, 2 KiB at most, so that a buffer is found in memory that the process already has.
NumPy 2.4 ends the process where it finds none: it raises the error without holding the interpreter's lock. Fewer entries cost time where
the types of the operands differ; 256 cost a fifth there."""
POLL = 0.02  # Seconds between two checks for signals while other threads work.


def share(items: Callable[[], Iterable[Item]], run: Callable[[Item, int], None], shares: int) -> None:
    """Call run(item, share) for all items. A share is every `shares`-th item; the shares run at once, each in any thread.

    All threads have ended when this returns or raises, because they write the caller's arrays. Signals wait meanwhile. If the handler of
    one raises, every share ends at its next item. Of several errors the first is raised.
    """
    if shares == 1:
        with np.errstate(all="ignore"):
            for item in items():
                run(item, 0)
        return
    crew = _Crew(items, run, shares)
    with HeldSignals() as deliver:
        try:
            with suppress(RuntimeError, MemoryError):  # no more threads can be started: the others do all the work
                for _ in range(1, shares):
                    start_new_thread(crew.work, ())  # `Thread.start` would wait forever for a thread that runs out of memory at once
            crew.work(deliver)
        finally:
            crew.join(deliver)
    if crew.error is not None:
        error, crew.error = crew.error, None  # else error and traceback form a cycle
        raise error


class _Crew(Generic[Item]):
    """The threads that work on the shares of one call. Each share is taken once; a thread that finds none left does nothing."""

    def __init__(self, items: Callable[[], Iterable[Item]], run: Callable[[Item, int], None], shares: int) -> None:
        self._items, self._run, self._shares = items, run, shares
        self._next = self._working = 0
        self._changed = threading.Condition()
        self.error: BaseException | None = None  # no list of them: to append takes memory, which may be short

    def work(self, between: Deliver = nothing) -> None:
        """Take shares until none is left. `between` is called after each item; it raises to end the work."""
        while (share := self._take()) is not None:
            try:
                with np.errstate(all="ignore"):
                    np.setbufsize(ITERATOR_BUFFER)  # for this thread, until errstate puts back what it found
                    for item in islice(self._items(), share, None, self._shares):
                        if self.error is not None:
                            break
                        self._run(item, share)
                        between()
            except BaseException as error:
                self.error = self.error or error
            finally:
                with self._changed:
                    self._working -= 1
                    self._changed.notify_all()

    def join(self, between: Deliver) -> None:
        """Return when no thread works and no share can be taken any more. The first exception is kept."""
        while True:
            try:
                with self._changed:
                    self._next = self._shares
                    if self._changed.wait_for(lambda: self._working == 0, POLL):
                        return
                between()
            except BaseException as error:
                self.error = self.error or error

    def _take(self) -> int | None:
        with self._changed:
            if self.error is not None or self._next == self._shares:
                return None
            self._next += 1
            self._working += 1
            return self._next - 1


@cache
def worker_count() -> int:
    """The number of threads that share the work of a stage."""
    return min(MOST_WORKERS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
