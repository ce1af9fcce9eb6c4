"""Workers: threads that share a stage's work on the caller's arrays. All have ended when the stage ends, even by an exception."""

from __future__ import annotations

import os
import threading
from _thread import start_new_thread
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from itertools import islice
from typing import Generic, TypeVar

import numpy as np

from bilinear.backends.held_signals import Deliver, HeldSignals, nothing

Item = TypeVar("Item")

MOST_WORKERS = 8
"""Threads that share the additions of a stage; they wait for memory, so more would not help."""
ITERATOR_BUFFER = 256
"""Entries in a buffer of NumPy's iterator, 2 KiB at most, so that a buffer is found in memory that the process already has.
NumPy 2.4 ends the process where it finds none: it raises the error without holding the interpreter's lock. Fewer entries cost time where
the types of the operands differ; 256 cost a fifth there."""
POLL = 0.02
"""Seconds between two checks for signals while other threads work."""


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
                self._end()

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

    def _end(self) -> None:
        with self._changed:
            self._working -= 1
            self._changed.notify_all()


@cache
def worker_count() -> int:
    """The number of threads that share the work of a stage."""
    return min(MOST_WORKERS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
