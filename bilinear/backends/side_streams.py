"""Side streams: launches of one stage run at once, forked from the caller's stream and joined to it again by events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

MOST_STREAMS = 16
"""Streams that the launches of a stage are dealt to in turn; each needs an event and two waits of every stage."""


class SideStreams:
    """Streams and events of the current device, for one call at a time: every call records the events anew.

    If the caller's stream is being captured, what is forked from it becomes branches of the graph.
    """

    def __init__(self, count: int) -> None:
        import cupy

        self._streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(count)]
        self._ends = [cupy.cuda.Event(disable_timing=True) for _ in range(count)]
        self._begin = cupy.cuda.Event(disable_timing=True)

    def step(self, launches: Sequence[Callable[[int], None]], stream: int) -> Callable[[], None]:
        """A call that runs these launches, each given the handle of its stream, after what `stream` holds and before what follows there."""
        return partial(self._run, launches, stream)

    def _run(self, launches: Sequence[Callable[[int], None]], stream: int) -> None:
        from cupy.cuda import runtime

        used = list(zip(self._streams, self._ends, strict=True))[: len(launches)]
        runtime.eventRecord(self._begin.ptr, stream)
        for side, _ in used:
            runtime.streamWaitEvent(side.ptr, self._begin.ptr)
        try:
            for number, launch in enumerate(launches):
                launch(used[number % len(used)][0].ptr)
        finally:  # also after an error: a captured stream that is not joined spoils the graph
            for side, end in used:
                runtime.eventRecord(end.ptr, side.ptr)
                runtime.streamWaitEvent(stream, end.ptr)
