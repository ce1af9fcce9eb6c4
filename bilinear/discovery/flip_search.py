"""The search: walkers start at the classical scheme, or at another, and walk in rounds, until one reaches the rank or the time is over.

Between two rounds a search is kept as a file of JSON, with the factors of every walker as masks.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from threading import Lock, Thread
from types import ModuleType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bilinear.discovery.lift import lift
from bilinear.discovery.walker import (
    BEST,
    BEST_AT,
    LOW,
    LOW_AT,
    RANK,
    STEPS,
    BinaryWalker,
    SearchTask,
    Walker,
    binary_walker,
    classical_masks,
    ternary_walker,
    to_scheme,
)
from bilinear.errors import BilinearError, fail, install
from bilinear.ir.scheme import Scheme
from bilinear.reading import read_bounded
from bilinear.verify.scheme import multiplies, prove_scheme
from bilinear.writing import write_file

VERSION = "bilinear walk 1"
MOST_BYTES = 256 * 2**20

AnyWalker = Walker | BinaryWalker


class LowestRank(NamedTuple):
    """The lowest rank of a completed round, the first walker to reach it, its number of steps, and its factors."""

    rank: int
    walker: int
    steps: int
    factors: NDArray[np.uint64]


class WalkState(NamedTuple):
    """A copy of what a round begins with: factors, best factors, random numbers and tally of each walker, and the best of all."""

    walkers: tuple[tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int64]], ...]
    best: LowestRank

    @classmethod
    def of(cls, walkers: Sequence[AnyWalker], best: LowestRank) -> WalkState:
        """Copy it."""
        return cls(tuple((w.factors.copy(), w.best.copy(), w.random.copy(), w.tally.copy()) for w in walkers), best)


def write_state(path: Path, task: SearchTask, state: WalkState) -> None:
    """Write a state, whole or not at all (E612)."""
    walkers = [
        {
            "factors": _masks(factors, int(tally[RANK])),
            "best": _masks(best, int(tally[BEST])),
            "random": int(random[0]),
            "tally": tally.tolist(),
        }
        for factors, best, random, tally in state.walkers
    ]
    best = {"rank": state.best.rank, "walker": state.best.walker, "steps": state.best.steps}
    found = {**best, "factors": _masks(state.best.factors, state.best.rank)}
    write_file(path, json.dumps({"version": VERSION, "search": _search(task), "best": found, "walkers": walkers}) + "\n")


def read_state(path: Path, task: SearchTask, walkers: Sequence[AnyWalker]) -> LowestRank:
    """Set walkers to a kept state, checked, and return the best so far. Raises `BilinearError` (E742) for files of anything else."""
    try:
        content = _content(read_bounded(path, MOST_BYTES))
        if not isinstance(content, dict) or content.get("version") != VERSION:
            raise _StateError(f"it does not say that it is one: version {VERSION!r}")
        kept = content.get("search")
        if not isinstance(kept, dict):
            raise _StateError("it does not say of which search")
        for field, value in _search(task).items():
            if kept.get(field) != value:
                raise _StateError(f"its {field} is {str(kept.get(field))[:40]}, not {value}")
        kept = content["walkers"]
        if not isinstance(kept, list) or len(kept) != len(walkers):
            raise _StateError(f"it does not hold {len(walkers)} walkers")
        for walker, entry in zip(walkers, kept, strict=True):
            _set(task, walker, entry)
        return _best(task, content["best"], walkers[0].best)
    except OSError as error:
        raise refused(path, error.strerror or "it cannot be read") from None
    except _StateError as error:
        raise refused(path, str(error)) from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise refused(path, "a field is missing or wrong") from None


def _content(data: bytes) -> object:
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        raise _StateError(f"it is damaged or cut off at character {error.pos}") from None
    except UnicodeDecodeError as error:
        raise _StateError(f"it is damaged at byte {error.start}") from None


def refused(path: Path, reason: str) -> BilinearError:
    """The error for a file that is not a state of the search."""
    hint = "give the options that it was begun with, or another --state FILE; without the file a walk begins anew"
    return fail("E742", f"{path} is not a state of this search: {reason}", hint)


class _StateError(ValueError):
    """Why a file is refused."""


def _search(task: SearchTask) -> dict[str, object]:
    """What a walk depends on; the rank that ends it is not among that."""
    return {
        "format": list(task.format),
        "ring": task.ring,
        "seed": task.seed,
        "walkers": task.walkers,
        "start": sha256(task.masks.tobytes()).hexdigest()[:16],
    }


def _masks(factors: NDArray[np.uint64], rank: int) -> list[list[int]]:
    return [[int(mask) for mask in row[:rank]] for row in factors.reshape(-1, factors.shape[-1])]


def _set(task: SearchTask, walker: AnyWalker, entry: dict[str, object]) -> None:
    tally = entry["tally"]
    if not isinstance(tally, list) or len(tally) != len(walker.tally) or not all(map(_is_count, tally)):
        raise _StateError("the tally of a walker is wrong")
    random = entry["random"]
    if type(random) is not int or not 0 <= random < 2**64:
        raise _StateError("the random numbers of a walker are wrong")
    walker.tally[:] = tally
    walker.random[0] = random
    ranks = 1 <= tally[BEST] <= min(tally[RANK], tally[LOW]) <= max(tally[RANK], tally[LOW]) <= walker.factors.shape[-1]
    if not ranks or not 0 <= tally[BEST_AT] <= tally[STEPS] or tally[LOW_AT] > tally[STEPS]:
        raise _StateError("the tally of a walker is wrong")
    _fill(task, walker.factors, tally[RANK], entry["factors"])
    _fill(task, walker.best, tally[BEST], entry["best"])


def _best(task: SearchTask, entry: dict[str, object], like: NDArray[np.uint64]) -> LowestRank:
    rank, walker, steps = (_whole(entry[name]) for name in ("rank", "walker", "steps"))
    if not (1 <= rank <= like.shape[-1] and 0 <= walker < task.walkers and steps >= 0):
        raise _StateError("its best scheme is wrong")
    factors = np.zeros_like(like)
    _fill(task, factors, rank, entry["factors"])
    return LowestRank(rank, walker, steps, factors)


def _is_count(number: object) -> bool:
    return type(number) is int and -(2**62) < number < 2**62


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


def _fill(task: SearchTask, factors: NDArray[np.uint64], rank: int, masks: object) -> None:
    factors[...] = 0
    factors.reshape(-1, factors.shape[-1])[:, :rank] = np.array(list(_rows(masks, rank)), np.uint64)
    m, k, n = task.format
    widths = np.array([m * k, k * n, m * n])
    signs = factors.reshape(3, -1, factors.shape[-1])
    if any(int(mask) >> int(width) for width, mode in zip(widths, signs, strict=True) for mask in mode.flat):
        raise _StateError("a factor has more blocks than the format")
    if (factors.ndim == 3 and (signs[:, 0] & signs[:, 1]).any()) or not multiplies(to_scheme(m, k, n, factors, rank, "kept", "")):
        raise _StateError("the products of a walker do not multiply matrices")


def _rows(masks: object, rank: int) -> Iterator[list[int]]:
    for row in masks if isinstance(masks, list) else []:
        if not isinstance(row, list) or len(row) != rank or not all(type(mask) is int and 0 <= mask < 2**64 for mask in row):
            raise _StateError("the factors of a walker are wrong")
        yield row


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


ROUND = 2**19  # Steps of a walker in a round: about a tenth of a second.
KEPT_EVERY = 1.0  # Seconds between two writings of the state file, where the rank stays the same.
LEAST_SHARE = 20  # From one writing to the next the walk takes at least so many times as long as the writing.

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
        m, k, n = self.task.format
        while (elapsed := time.monotonic() - begin) < seconds:
            told = f"<{m},{k},{n}>: rank {self.best.rank}, looking for {self.task.rank}"
            self.progress(told, round(elapsed * 1000), round(seconds * 1000))
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


def _proved(task: SearchTask, best: LowestRank) -> Scheme:
    """The scheme, proved, with the command that finds it again as its source."""
    m, k, n = task.format
    command = f"bilinear discover {m},{k},{n} --rank {best.rank}{task.options}"
    citation = f"Found by `{command}`, a walk in the flip graph: walker {best.walker}, {best.steps} steps."
    scheme = to_scheme(m, k, n, best.factors, best.rank, f"walk_{m}x{k}x{n}_{best.rank}_seed{task.seed}", citation)
    prove_scheme(scheme).require()
    return scheme


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
