"""The search: walkers start at the classical scheme, or at another, and walk in rounds, until one reaches the rank or the time is over."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Lock, Thread
from types import ModuleType

import numpy as np

from bilinear.discovery.lift import lift
from bilinear.discovery.states import AnyWalker, LowestRank, WalkState, read_state, write_state
from bilinear.discovery.tasks import SearchTask
from bilinear.discovery.walker import BEST, BEST_AT, RANK, STEPS, binary_walker, classical_masks, ternary_walker, to_scheme
from bilinear.errors import BilinearError, fail, install
from bilinear.ir.scheme import Scheme
from bilinear.verify.scheme import prove_scheme

Walk = Callable[..., None]


def compiled_walk(ring: str) -> Walk:
    """The walk over Z or Z/2 in machine code, compiled once a process, in some seconds; raises as `kernels`.

    A thread compiles, and a Ctrl-C does not wait for it: numba would answer only after the compilation, or lose it. No machine code is
    kept in a file: numba would load it as a pickle, and a pickle runs whatever the file says (docs/proofs.md).
    """
    found = Future[Walk]()

    def compile() -> None:
        try:
            found.set_result(_called(ring))
        except BaseException as error:
            found.set_exception(error)

    Thread(target=compile, daemon=True).start()
    return found.result()


def _called(ring: str) -> Walk:
    """The walk after a first call, of no steps, which compiles it."""
    walk: Walk = kernels("binary_kernels" if ring == "Z/2" else "kernels").walk
    walk((binary_walker if ring == "Z/2" else ternary_walker)(classical_masks(2, 2, 2), 0, 0), 0, 0, 0, np.zeros(1, np.int64))
    return walk


def kernels(module: str = "kernels") -> ModuleType:
    """`kernels` or `binary_kernels`, whose moves are compiled when they are called. Raises `BilinearError` (E662) without numba."""
    try:
        import numba  # noqa: F401
    except ImportError as error:
        raise fail("E662", f"the walk is compiled by numba, which cannot be imported: {error}", install("discover")) from None
    return import_module(f"bilinear.discovery.{module}")


ROUND = 2**19
"""Steps of a walker in a round: about a tenth of a second."""
KEPT_EVERY = 1.0
"""Seconds between two writings of the state file, where the rank stays the same."""
LEAST_SHARE = 20
"""From one writing to the next the walk takes at least so many times as long as the writing."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Found:
    """The proved scheme of the lowest rank in the completed rounds; None if no walker got below the rank of the start.

    `walker` reached it after `steps` of its own steps; all walkers took `total` steps, and those of this call `seconds`. If neither
    `reached` nor `interrupted` (by Ctrl-C) is true, the time ran out.
    """

    task: SearchTask
    scheme: Scheme | None
    rank: int
    walker: int
    steps: int
    total: int
    seconds: float
    interrupted: bool = False

    @property
    def reached(self) -> bool:
        """True if the rank is at most the requested one, and the scheme lifted if that was requested."""
        return self.rank <= self.task.rank and not (self.task.lifted and (self.scheme is None or self.scheme.ring.name == "Z/2"))


def discover(task: SearchTask, seconds: float, *, state: Path | None = None, progress: Progress = lambda *_: None) -> Found:
    """Walk until a scheme of the task's rank is found or the time is over; Ctrl-C also ends the walk and keeps its result.

    Compilation does not count as time. If the file `state` exists, the walk continues from there; it is
    written whenever the rank has fallen, every second, and at the end. Raises `BilinearError`: E660 if the rank is not a sensible goal,
    E661 if the format is too large, E662 without numba, E740 and E741 if no walk goes over the ring or begins at the start, E742 if `state`
    is not a state of this search.
    """
    task.require()
    begin = binary_walker if task.ring == "Z/2" else ternary_walker
    walkers: list[AnyWalker] = [begin(task.masks, task.seed, number) for number in range(task.walkers)]
    best = read_state(state, task, walkers) if state is not None and state.exists() else None
    progress("compiling the walk", 0, 1)
    search = _WalkerSearch(task, walkers, compiled_walk(task.ring), progress, best)
    keep = None if state is None else lambda: write_state(state, task, search.kept)
    return search.run(seconds, keep or (lambda: None))


class _WalkerSearch:
    """Walkers and their shared state."""

    def __init__(self, task: SearchTask, walkers: list[AnyWalker], walk: Walk, progress: Progress, best: LowestRank | None = None) -> None:
        self.task, self.walkers, self.walk, self.progress = task, walkers, walk, progress
        self.halt = np.array([task.walkers], np.int64)  # walkers with higher numbers halt: the winner's number, or -1 for all
        self.lock = Lock()
        self.best = best or LowestRank(task.begin, 0, 0, walkers[0].best.copy())
        self.kept = WalkState.of(walkers, self.best)
        self.scheme: Scheme | None = None  # the one that was lifted

    def run(self, seconds: float, keep: Callable[[], None] = lambda: None) -> Found:
        """Walk, and call `keep` now and then and at the end."""
        begin = last = time.monotonic()
        rank, writing, interrupted = self.best.rank, 0.0, False
        with ThreadPoolExecutor(min(len(self.walkers), _cores())) as pool:
            try:
                while not self._is_over and self._round(pool, begin, seconds):
                    if not self._is_over:
                        self.kept = WalkState.of(self.walkers, self.best)
                    now, wait_for = time.monotonic(), 0.0 if self.best.rank < rank else KEPT_EVERY
                    if now - last >= max(wait_for, LEAST_SHARE * writing):
                        keep()
                        last, rank = time.monotonic(), self.best.rank
                        writing = last - now
            except KeyboardInterrupt:
                interrupted = True
                self.halt[0] = -1
        keep()
        total = sum(int(walker.tally[STEPS]) for walker in self.walkers)
        scheme = self.scheme or (_proved(self.task, self.best) if self.best.rank < self.task.begin else None)
        elapsed = time.monotonic() - begin
        return Found(self.task, scheme, self.best.rank, self.best.walker, self.best.steps, total, elapsed, interrupted)

    @property
    def _is_over(self) -> bool:
        return self.scheme is not None if self.task.lifted else self.best.rank <= self.task.rank

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
            self.best = LowestRank(int(walker.tally[BEST]), number, int(walker.tally[BEST_AT]), walker.best.copy())
        if self.task.lifted:
            self._lift()
        return True

    def _lift(self) -> None:
        """Lift the scheme where a walker stands, if it has the rank; the lowest number of which that is lifted decides."""
        for number, walker in enumerate(self.walkers):
            if (rank := int(walker.tally[RANK])) <= self.task.rank:
                here = LowestRank(rank, number, int(walker.tally[STEPS]), walker.factors.copy())
                try:
                    self.scheme = lift(_proved(self.task, here)).scheme
                except BilinearError:
                    continue  # the walk goes on to another scheme
                self.best = here
                return

    def _walk(self, number: int) -> None:
        walker = self.walkers[number]
        goes_on = self.task.lifted and walker.tally[BEST] <= self.task.rank  # it has tried to lift the first scheme that it found
        self.walk(walker, ROUND, 0 if goes_on else self.task.rank, number, self.halt)
        if walker.tally[BEST] <= self.task.rank and not self.task.lifted:
            with self.lock:
                self.halt[0] = min(self.halt[0], number)

    def _told(self) -> str:
        m, k, n = self.task.format
        return f"<{m},{k},{n}>: rank {self.best.rank}, looking for {self.task.rank}"


def _proved(task: SearchTask, best: LowestRank) -> Scheme:
    """The scheme, proved, with the command that finds it again as its source."""
    m, k, n = task.format
    command = f"bilinear discover {m},{k},{n} --rank {best.rank}{task.options}"
    citation = f"Found by `{command}`, a walk in the flip graph: walker {best.walker}, {best.steps} steps."
    scheme = to_scheme(m, k, n, best.factors, best.rank, f"walk_{m}x{k}x{n}_{best.rank}_seed{task.seed}", citation)
    prove_scheme(scheme).require()
    return scheme


def _cores() -> int:
    """The number of cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
