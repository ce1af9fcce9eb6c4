"""Sums in place on one operand: a short walk of block additions through the states that its stages need, and back.

A state is an invertible matrix: which form each block holds. The walk is searched backwards, as it were: the forms still wanted are kept
as coordinates over what the blocks hold now, so that `block += c * source` is one column operation, a form stands in a block when its
row has one entry, and the walk to the next stage is an elimination. A beam of states is carried along; a state is worth the additions
so far plus the entries that the next forms still have beyond one each, later stages counting less. Residues stand for rationals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bilinear.planner.in_place_stages import PRIME, Row, Side

Matrix = Any
"""An integer array of residues: wanted forms by blocks."""
UNIT = 1000
"""What one addition counts; weights are integers, so that every machine finds the same walk."""


@dataclass(frozen=True)
class Move:
    """One block addition: block += factor * source (the factor is a residue)."""

    block: int
    source: int
    factor: int


@dataclass(frozen=True)
class Walk:
    """What one operand does: before each stage moves, then the block that holds each of the stage's forms, in their order.

    A place beyond the operand's blocks is a temporary, and `spilled` has what it holds at each stage: residues over the blocks of then.
    With `restores` there is one more list of moves, and `places` has the block in which each original block ends, times a factor.
    """

    moves: tuple[tuple[Move, ...], ...]
    places: tuple[tuple[int, ...], ...]
    spilled: tuple[tuple[Row, ...], ...]
    additions: int
    traffic: int
    restores: bool


@dataclass(frozen=True)
class _State:
    """A point of the walk; `wanted` has the rows of the current stage first, and the masks are the blocks of the current transition."""

    wanted: Matrix
    additions: int
    traffic: int = 0
    read: int = 0
    written: int = 0
    moves: tuple[tuple[Move, ...], ...] = ((),)
    places: tuple[tuple[int, ...], ...] = ()
    spilled: tuple[tuple[Row, ...], ...] = ()

    def after(self, move: Move) -> _State:
        wanted = self.wanted.copy()
        wanted[:, move.source] = (wanted[:, move.source] - move.factor * wanted[:, move.block]) % PRIME
        moves = (*self.moves[:-1], (*self.moves[-1], move))
        read, written = self.read | 1 << move.source | 1 << move.block, self.written | 1 << move.block
        return replace(self, wanted=wanted, additions=self.additions + 1, read=read, written=written, moves=moves)


class SumSearch:
    """The beam search on one operand: `width` states are kept, forms of the stage d later count `discount`**d as much.

    `stages` has the forms of each stage; of an operand that is kept no block is written.
    """

    def __init__(self, side: Side, stages: Sequence[Sequence[Row]], restores: bool, width: int = 1, discount: float = 0.15) -> None:
        self.blocks, self.restores, self.width, self.discount = side.blocks, restores and not side.kept, width, discount
        self.spare, self.kept = side.spare, side.kept
        identity = [tuple(int(i == j) for j in range(self.blocks)) for i in range(self.blocks)]
        groups = [*stages, *([identity] if self.restores else [])]
        self.sizes = [len(group) for group in groups]
        self.start: Matrix = np.array([row for group in groups for row in group], dtype=np.int64).reshape(-1, self.blocks)
        self.inverses: dict[int, int] = {}

    def run(self) -> Walk:
        """The cheapest walk that is found: fewest additions, then least traffic."""
        beam = [_State(self.start, 0)]
        for stage, size in enumerate(self.sizes):
            weights = np.concatenate([np.full(n, round(UNIT * self.discount**d)) for d, n in enumerate(self.sizes[stage:])])
            ends = self.restores and stage == len(self.sizes) - 1
            spare = self.blocks if self.kept else 0 if ends else self.spare
            done = beam if self.kept else self._transition(beam, size, weights, spare)
            arrived = [self._arrive(state, size, ends) for state in done]
            beam = sorted(arrived, key=lambda s: (UNIT * s.additions + _left(s.wanted, weights[size:]), s.traffic))[: self.width]
        best = min(beam, key=lambda state: (state.additions, state.traffic))
        return Walk(best.moves[: len(self.sizes)], best.places, best.spilled, best.additions, best.traffic, self.restores)

    def _transition(self, beam: list[_State], size: int, weights: Matrix, spare: int) -> list[_State]:
        """States in which all but `spare` of the first `size` rows stand in blocks, from those of the beam."""
        done: list[_State] = []
        seen: set[bytes] = set()
        frontier = last = beam
        patience = 3
        limit = 2 * int((frontier[0].wanted[:size] != 0).sum()) + 8
        for _ in range(limit):
            done += [state for state in frontier if len(_open(state, size)) <= spare]
            frontier = [state for state in frontier if len(_open(state, size)) > (0 if self.width > 1 else spare)]
            patience -= bool(done)
            if not frontier or not patience or (done and self.width == 1):
                break
            last = frontier
            frontier = self._step(frontier, size, weights, seen)
        return done or [self._forced(state, size, spare) for state in last]

    def _step(self, frontier: list[_State], size: int, weights: Matrix, seen: set[bytes]) -> list[_State]:
        """The best states one addition further."""
        options: list[tuple[int, int, int, Move]] = []
        for number, state in enumerate(frontier):
            moves, gains = self._moves(state, size, weights)
            base = UNIT * (state.additions + 1) + _left(state.wanted, weights)
            keep = min(len(moves), self.width + 2)
            chosen = np.argsort(gains, kind="stable")[:keep]
            for i in chosen:
                block, source, factor = map(int, moves[i])
                touched = state.read | 1 << source | 1 << block
                options.append((base + int(gains[i]), touched.bit_count() + state.traffic, number, Move(block, source, factor)))
        options.sort(key=lambda option: option[:2])
        following: list[_State] = []
        for _, _, number, move in options:
            state = frontier[number].after(move)
            key = state.wanted.tobytes()
            if key not in seen:
                seen.add(key)
                following.append(state)
                if len(following) == self.width:
                    break
        return following

    def _moves(self, state: _State, size: int, weights: Matrix) -> tuple[Matrix, Matrix]:
        """The moves that take an entry out of a row of the stage, as (block, source, factor), and what each adds to what is left."""
        wanted = state.wanted
        current = wanted[:size]
        open_rows = current[(current != 0).sum(axis=1) > 1]
        row, block, source = np.nonzero((open_rows[:, :, None] != 0) & (open_rows[:, None, :] != 0) & ~np.eye(self.blocks, dtype=bool))
        factor = open_rows[row, source] * self._inverse(open_rows[row, block]) % PRIME
        pair, factor = np.divmod(np.unique((block * self.blocks + source) * PRIME + factor), PRIME)
        block, source = np.divmod(pair, self.blocks)
        old = wanted[:, source]
        new = (old - factor * wanted[:, block]) % PRIME
        return np.stack([block, source, factor], axis=1), weights @ ((new != 0).astype(np.int8) - (old != 0).astype(np.int8))

    def _inverse(self, residues: Matrix) -> Matrix:
        values = residues.tolist()
        for residue in set(values) - self.inverses.keys():
            self.inverses[residue] = pow(residue, -1, PRIME)
        return np.array([self.inverses[residue] for residue in values], dtype=np.int64)

    def _forced(self, state: _State, size: int, spare: int) -> _State:
        """The rows of the stage finished one by one: an open row has an entry in a block that no finished row stands in."""
        while len(_open(state, size)) > spare:
            entries = state.wanted[:size] != 0
            counts = entries.sum(axis=1)
            taken = entries[counts == 1].any(axis=0)
            fit = (counts > 1) & (entries & ~taken).any(axis=1)
            row = int(np.argmin(np.where(fit, counts, self.blocks + 1)))
            block = int(np.flatnonzero(entries[row] & ~taken)[0])
            inverse = pow(int(state.wanted[row, block]), -1, PRIME)
            for source in np.flatnonzero(entries[row]):
                if source != block:
                    state = state.after(Move(block, int(source), int(state.wanted[row, source]) * inverse % PRIME))
        return state

    def _arrive(self, state: _State, size: int, ends: bool) -> _State:
        """The state with its stage behind it: the places noted, temporaries filled, the traffic of the transition counted."""
        read, written = state.read, state.written
        places = [int(i) for i in np.argmax(state.wanted[:size] != 0, axis=1)]
        temporaries: list[Row] = []
        additions = 0
        for row in self._spilled(state, size):
            content = tuple(map(int, state.wanted[row]))
            if not self.kept or content not in temporaries:
                additions += sum(map(bool, content)) - 1
                read |= sum(1 << i for i, x in enumerate(content) if x)
                temporaries.append(content)
            places[row] = self.blocks + (temporaries.index(content) if self.kept else len(temporaries) - 1)
        if ends:
            for block, place in enumerate(places):
                if place != block or state.wanted[block, place] != 1:
                    read, written = read | 1 << place, written | 1 << block
        traffic = state.traffic + (read | written).bit_count() + written.bit_count() + len(temporaries)
        return _State(
            state.wanted[size:],
            state.additions + additions,
            traffic,
            moves=(*state.moves, ()),
            places=(*state.places, tuple(places)),
            spilled=(*state.spilled, tuple(temporaries)),
        )

    def _spilled(self, state: _State, size: int) -> list[int]:
        """The rows that stand in temporaries: where the operand is kept two products may use one block."""
        if self.kept:
            return [i for i in range(size) if (state.wanted[i] != 0).sum() > 1]
        return _open(state, size)


def _open(state: _State, size: int) -> list[int]:
    """The rows of the stage that stand in no block of their own."""
    entries = state.wanted[:size] != 0
    counts = entries.sum(axis=1)
    if counts.max() == 1 and entries.any(axis=0).sum() == size:
        return []
    taken: set[int] = set()
    found = []
    for row, (count, place) in enumerate(zip(counts.tolist(), np.argmax(entries, axis=1).tolist(), strict=True)):
        if count > 1 or place in taken:
            found.append(row)
        else:
            taken.add(place)
    return found


def _left(wanted: Matrix, weights: Matrix) -> int:
    """The entries that the rows have beyond one each, weighted."""
    return int(weights @ ((wanted != 0).sum(axis=1) - 1))
