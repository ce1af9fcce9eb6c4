"""The search: walkers start at the classical scheme and walk in rounds, until one reaches the rank or the time is over.

Every walker has its own random numbers and takes the same number of steps in every round. The first round in which a walker reaches the
rank decides; among several such walkers the lowest number wins. So the result depends only on format, rank, seed and number of walkers.
Threads affect only how long it takes; a time limit can only stop it before a result.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bilinear.discovery.engine import kernels
from bilinear.discovery.walker import BEST, BEST_AT, STEPS, WIDTH, Walker, classical_walker, to_scheme
from bilinear.errors import fail
from bilinear.ir.scheme import Scheme
from bilinear.verify.scheme import prove_scheme

ROUND = 2**19
"""Steps of a walker in a round: about a tenth of a second."""
MOST = 2**32
"""Seeds and numbers of walkers must be smaller."""

Progress = Callable[[str, int, int], None]
Format = tuple[int, int, int]


@dataclass(frozen=True)
class Task:
    """The search task: a scheme of the format <m,k,n> with at most `rank` products, the number of walkers, and the seed."""

    format: Format
    rank: int
    seed: int = 0
    walkers: int = 8

    @property
    def classical(self) -> int:
        """The rank of the classical scheme, where walkers start."""
        m, k, n = self.format
        return m * k * n


@dataclass(frozen=True)
class Found:
    """The proved scheme of the lowest rank in the completed rounds; None if no walker got below the classical rank.

    `walker` reached it after `steps` of its own steps; all walkers took `total` steps in `seconds`. If neither `reached` nor `interrupted`
    (by Ctrl-C) is true, the time ran out.
    """

    task: Task
    scheme: Scheme | None
    rank: int
    walker: int
    steps: int
    total: int
    seconds: float
    interrupted: bool = False

    @property
    def reached(self) -> bool:
        """True if the rank is at most the requested one."""
        return self.rank <= self.task.rank


def discover(task: Task, seconds: float, *, folder: Path | None = None, progress: Progress = lambda *_: None) -> Found:
    """Walk until a scheme of the task's rank is found or the time is over; Ctrl-C also ends the walk and keeps its result.

    `folder` keeps the compiled walk; the seconds of compilation are not counted. Raises `BilinearError`: E660 if the rank is no sensible
    goal, E661 if the format is too large, E662 without numba.
    """
    _check(task)
    progress("compiling the walk (once)", 0, 1)
    walkers = [classical_walker(*task.format, task.seed, number) for number in range(task.walkers)]
    with ThreadPoolExecutor(1) as pool:  # a Ctrl-C while numba calls back would be lost there, and comes to the main thread alone
        walk = pool.submit(_compiled, folder, walkers[0]).result()
    return _Search(task, walkers, walk, progress).run(seconds)


def _compiled(folder: Path | None, walker: Walker) -> Callable[..., None]:
    """The walk in machine code."""
    walk: Callable[..., None] = kernels(folder).walk
    walk(walker, 0, 0, 0, np.zeros(1, np.int64))
    return walk


def _check(task: Task) -> None:
    m, k, n = task.format
    largest = max(m * k, k * n, m * n)
    if largest > WIDTH:
        raise fail("E661", f"<{m},{k},{n}> has {largest} blocks in a matrix, and the walk has masks of {WIDTH} bits", "split the format")
    if not 1 <= task.rank < task.classical:
        reason = "it has no product" if task.rank < 1 else f"the classical scheme has rank {task.classical}"
        hint = f"give one from 1 to {task.classical - 1}" if task.classical > 1 else "give a larger format"
        raise fail("E660", f"rank {task.rank} is nothing to look for in <{m},{k},{n}>: {reason}", hint)


class _Best(NamedTuple):
    """The lowest rank of a completed round, the first walker to reach it, its number of steps, and its factors."""

    rank: int
    walker: int
    steps: int
    factors: NDArray[np.uint64]


class _Search:
    """Walkers and their shared state."""

    def __init__(self, task: Task, walkers: list[Walker], walk: Callable[..., None], progress: Progress) -> None:
        self.task, self.walkers, self.walk, self.progress = task, walkers, walk, progress
        self.halt = np.array([task.walkers], np.int64)  # walkers with higher numbers halt: the winner's number, or -1 for all
        self.lock = Lock()
        self.best = _Best(task.classical, 0, 0, walkers[0].best)

    def run(self, seconds: float) -> Found:
        begin = time.monotonic()
        interrupted = False
        with ThreadPoolExecutor(min(len(self.walkers), _cores())) as pool:
            try:
                while self.best.rank > self.task.rank and self._round(pool, begin, seconds):
                    pass
            except KeyboardInterrupt:
                interrupted = True
                self.halt[0] = -1
        total = sum(int(walker.tally[STEPS]) for walker in self.walkers)
        scheme = _proved(self.task, self.best) if self.best.rank < self.task.classical else None
        elapsed = time.monotonic() - begin
        return Found(self.task, scheme, self.best.rank, self.best.walker, self.best.steps, total, elapsed, interrupted)

    def _round(self, pool: ThreadPoolExecutor, begin: float, seconds: float) -> bool:
        """Run one round and record its result. Returns False, without a result, if the time ran out first."""
        futures = [pool.submit(self._walk, number) for number in range(len(self.walkers))]
        while (elapsed := time.monotonic() - begin) < seconds:
            self.progress(self._told(), round(elapsed * 1000), round(seconds * 1000))
            if not wait(futures, timeout=min(seconds - elapsed, 0.1)).not_done:
                break
        with self.lock:
            if not all(future.done() for future in futures) and self.halt[0] == len(self.walkers):
                self.halt[0] = -1  # a round that already has a winner may end
        for future in futures:
            future.result()
        if self.halt[0] < 0:
            return False
        number, walker = min(enumerate(self.walkers), key=lambda at: max(int(at[1].tally[BEST]), self.task.rank))
        if walker.tally[BEST] < self.best.rank:
            self.best = _Best(int(walker.tally[BEST]), number, int(walker.tally[BEST_AT]), walker.best.copy())
        return True

    def _walk(self, number: int) -> None:
        walker = self.walkers[number]
        self.walk(walker, ROUND, self.task.rank, number, self.halt)
        if walker.tally[BEST] <= self.task.rank:
            with self.lock:
                self.halt[0] = min(self.halt[0], number)

    def _told(self) -> str:
        m, k, n = self.task.format
        return f"<{m},{k},{n}>: rank {self.best.rank}, looking for {self.task.rank}"


def _proved(task: Task, best: _Best) -> Scheme:
    """The scheme, proved, with the command that finds it again as its source."""
    m, k, n = task.format
    walkers = f" --walkers {task.walkers}" if task.walkers != Task.walkers else ""
    command = f"bilinear discover {m},{k},{n} --rank {best.rank} --seed {task.seed}{walkers}"
    citation = f"Found by `{command}`, a walk in the flip graph: walker {best.walker}, {best.steps} steps."
    scheme = to_scheme(m, k, n, best.factors, best.rank, f"walk_{m}x{k}x{n}_{best.rank}_seed{task.seed}", citation)
    prove_scheme(scheme).require()
    return scheme


def _cores() -> int:
    """The number of cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
