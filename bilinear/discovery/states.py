"""A search between two rounds, as a file: JSON with the factors of every walker as masks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bilinear.discovery.tasks import SearchTask
from bilinear.discovery.walker import BEST, BEST_AT, LOW, LOW_AT, RANK, STEPS, BinaryWalker, Walker, to_scheme
from bilinear.errors import BilinearError, fail
from bilinear.reading import read_bounded
from bilinear.verify.scheme import multiplies
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
    """Set walkers to a kept state, and return the best so far. Every scheme in it is checked.

    Raises `BilinearError` (E742) if the file cannot be read, is not a state, or is one of another search.
    """
    try:
        content = _content(read_bounded(path, MOST_BYTES))
        if not isinstance(content, dict) or content.get("version") != VERSION:
            raise _StateError(f"it does not say that it is one: version {VERSION!r}")
        _require_search(content.get("search"), _search(task))
        kept = content["walkers"]
        if not isinstance(kept, list) or len(kept) != len(walkers):
            raise _StateError(f"it does not hold {len(walkers)} walkers")
        for walker, entry in zip(walkers, kept, strict=True):
            _set(task, walker, entry)
        return _best(task, content["best"], walkers[0].best)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = (
            error.strerror
            if isinstance(error, OSError)
            else str(error)
            if isinstance(error, _StateError)
            else "a field is missing or wrong"
        )
        raise refused(path, reason or "it cannot be read") from None


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


def _require_search(kept: object, asked: dict[str, object]) -> None:
    if not isinstance(kept, dict):
        raise _StateError("it does not say of which search")
    for field, value in asked.items():
        if kept.get(field) != value:
            raise _StateError(f"its {field} is {str(kept.get(field))[:40]}, not {value}")


def _masks(factors: NDArray[np.uint64], rank: int) -> list[list[int]]:
    """The masks of a mode, and of a sign, as a list each."""
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
    if not 1 <= tally[BEST] <= min(tally[RANK], tally[LOW]) <= max(tally[RANK], tally[LOW]) <= walker.factors.shape[-1]:
        raise _StateError("the tally of a walker is wrong")
    if not 0 <= tally[BEST_AT] <= tally[STEPS] or tally[LOW_AT] > tally[STEPS]:
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
    """Set factors to kept ones, which must multiply."""
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
