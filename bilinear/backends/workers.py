"""Workers: threads that share what a stage does to the caller's arrays, and have all ended when the stage is left, however that is."""

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
POLL = 0.02
"""Seconds between two looks for a signal, while others work."""


def share(items: Callable[[], Iterable[Item]], run: Callable[[Item, int], None], shares: int) -> None:
    """run(item, share) for all items, every `shares`-th of them in one share, the shares at once; which thread takes a share is left open.

    All have ended when this returns or raises, for they write the caller's arrays: signals wait meanwhile, and one whose handler raises
    ends the shares at their next item. Of several errors the first is raised.
    """
    if shares == 1:
        with np.errstate(all="ignore"):
            for item in items():
                run(item, 0)
        return
    crew = _Crew(items, run, shares)
    with HeldSignals() as deliver:
        with suppress(RuntimeError):  # no thread can be started: those that there are do all
            for _ in range(1, shares):
                start_new_thread(crew.work, ())  # a `Thread` is waited for, also where it dies for want of memory before it begins
        crew.work(deliver)
        crew.join(deliver)
    if crew.errors:
        error = crew.errors[0]
        crew.errors.clear()  # which its traceback leads to
        raise error


class _Crew(Generic[Item]):
    """Threads at the shares of one call. Each share is taken once; who comes when none is left does nothing."""

    def __init__(self, items: Callable[[], Iterable[Item]], run: Callable[[Item, int], None], shares: int) -> None:
        self._items, self._run, self._shares = items, run, shares
        self._next = self._working = 0
        self._changed = threading.Condition()
        self.errors: list[BaseException] = []

    def work(self, between: Deliver = nothing) -> None:
        """Take shares until none is left; `between` two items it is asked whether to go on, and raises where not."""
        while (share := self._take()) is not None:
            try:
                with np.errstate(all="ignore"):
                    for item in islice(self._items(), share, None, self._shares):
                        if self.errors:
                            break
                        self._run(item, share)
                        between()
            except BaseException as error:
                self.errors.append(error)
            finally:
                self._end()

    def join(self, between: Deliver) -> None:
        """Return when nobody works, nor ever will; what is raised meanwhile waits."""
        while True:
            try:
                with self._changed:
                    self._next = self._shares
                    if self._changed.wait_for(lambda: self._working == 0, POLL):
                        return
                between()
            except BaseException as error:
                self.errors.append(error)

    def _take(self) -> int | None:
        with self._changed:
            if self.errors or self._next == self._shares:
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
    """How many threads share the work of a stage."""
    return min(MOST_WORKERS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
