"""A device for streamed multiplies that does its work late, in any order that streams and events allow."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np

from bilinear.planner.streamed import COMPUTE, IN, OUT, STREAMS


class LateDevice:
    """Nothing runs before `finish`. Then the first stream of `order` that can go on does, or without an order one that is drawn."""

    def __init__(
        self, order: Sequence[str] | None, seed: int = 0, dtype: Any = np.float64, times: Callable[[Any, Any], Any] = np.matmul
    ) -> None:
        self.order, self.random, self.dtype, self.times = order, Random(seed), dtype, times
        self.queues: dict[str, deque[tuple[Callable[[], bool], Callable[[], None]]]] = {stream: deque() for stream in STREAMS}
        self.loaded = self.stored = self.allocated = 0

    def allocate(self, elements: int) -> Any:
        self.allocated += elements
        return np.full(elements, np.nan, self.dtype)

    def copy_in(self, host: Any, slot: Any) -> None:
        def copy() -> None:
            self.loaded += host.size
            slot[: host.size] = host.reshape(-1)

        self._later(IN, copy)

    def copy_out(self, slot: Any, host: Any) -> None:
        def copy() -> None:
            self.stored += host.size
            host[...] = slot[: host.size].reshape(host.shape)

        self._later(OUT, copy)

    def multiply(self, a: Any, b: Any, c: Any, shape: tuple[int, int, int], factors: tuple[Any, Any], inputs: str) -> None:
        (m, k, n), (alpha, beta) = shape, factors

        def product() -> None:
            left, right, target = a[: m * k].reshape(m, k), b[: k * n].reshape(k, n), c[: m * n].reshape(m, n)
            target[...] = alpha * self.times(left, right) + (beta * target if beta != 0 else 0)
            if inputs == "consume":
                a[:], b[:] = np.nan, np.nan

        self._later(COMPUTE, product)

    def record(self, stream: str) -> list[bool]:
        event: list[bool] = []
        self._later(stream, lambda: event.append(True))
        return event

    def wait(self, stream: str, event: Any) -> None:
        self.queues[stream].append((lambda: bool(event), lambda: None))

    def reach(self, event: Any) -> None:
        self._work(lambda: bool(event))

    def finish(self) -> None:
        self._work(lambda: not any(self.queues.values()))

    def _work(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            ready = [stream for stream in self.order or STREAMS if self.queues[stream] and self.queues[stream][0][0]()]
            assert ready, "streams wait for each other"
            stream = ready[0] if self.order else self.random.choice(ready)
            self.queues[stream].popleft()[1]()

    def stop(self) -> None:
        for queue in self.queues.values():
            queue.clear()

    def _later(self, stream: str, work: Callable[[], None]) -> None:
        self.queues[stream].append((lambda: True, work))
