"""Sums in place on one operand: a short walk of block additions through the states that its stages need, and back.

A state is an invertible matrix: the form that each block holds. The search keeps the wanted forms as coordinates over the current contents.
Then `block += c * source` is one column operation, a form stands in a block when its row has one entry, and the walk to the next stage is
an elimination. A beam of states is kept. A state's score is its additions so far plus the entries of the next forms beyond one each, with
later stages weighted less. Residues stand for rationals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bilinear.ir.number import rank_modulo

PRIME = 2**31 - 1  # The prime of the search: products of two residues fit into 64 bits.
Row = tuple[int, ...]


@dataclass(frozen=True)
class OperandSide:
    """The forms of one operand: for each product its residues over the operand's blocks.

    A group of forms fits if all but `spare` of them, which stand in temporaries, are independent. The blocks of a `kept` operand never
    change: a form with several terms needs a temporary, and products may share operands.
    """

    forms: tuple[Row, ...]
    blocks: int
    spare: int = 0
    kept: bool = False

    def needs(self, group: Sequence[int]) -> int:
        """The temporaries that the forms of these products need in order to stand at once."""
        rows = [self.forms[p] for p in group]
        return len({monic(row) for row in rows if is_sum(row)}) if self.kept else len(rows) - rank_modulo(rows, PRIME)

    @property
    def fewest_stages(self) -> int:
        """A lower bound on the number of groups, from the number of blocks and from forms that are equal up to a factor."""
        lines = Counter(map(monic, self.forms))
        if self.kept:
            return max(1, -(-sum(map(is_sum, lines)) // max(1, self.spare)))
        return max(-(-len(self.forms) // (self.blocks + self.spare)), -(-max(lines.values()) // (1 + self.spare)))

    def fewest_with(self, lent: int) -> int:
        """The bound if all stages but the last have `lent` more temporaries."""
        more = replace(self, spare=self.spare + lent)
        groups = more.fewest_stages
        while not more._have_room(groups, lent):
            groups += 1
        return groups

    def _have_room(self, groups: int, lent: int) -> bool:
        """True if, by counting, this many groups can suffice when the last one has `lent` fewer temporaries."""
        lines = Counter(map(monic, self.forms))
        if self.kept:
            return sum(map(is_sum, lines)) <= self.spare * groups - lent
        return len(self.forms) <= (self.blocks + self.spare) * groups - lent and max(lines.values()) <= (1 + self.spare) * groups - lent


def is_sum(row: Row) -> bool:
    """True if a form has more than one term."""
    return sum(map(bool, row)) > 1


def monic(row: Row) -> Row:
    """The multiple of a form whose first coefficient is 1."""
    first = next((x for x in row if x), 1)
    inverse = pow(first, -1, PRIME)
    return tuple(x * inverse % PRIME for x in row)


Matrix = NDArray[np.int64]  # An integer array of residues: wanted forms by blocks.
Spill = tuple[int, Row]  # The number of a temporary, from 0, and the form that it is filled with.
UNIT = 1000  # The weight of one addition; weights are integers, so every machine finds the same walk.


@dataclass(frozen=True)
class BlockAddition:
    """One block addition: block += factor * source (the factor is a residue)."""

    block: int
    source: int
    factor: int


@dataclass(frozen=True)
class OperandWalk:
    """The walk of one operand: the moves before each stage, then the block that holds each of the stage's forms, in order.

    A place beyond the operand's blocks is a temporary. `spilled` lists for each stage the temporaries that are filled and their forms over
    the blocks followed by the temporaries' old values. With `restores` there is one more list of moves, and `places` gives the block and
    the factor in which each original block ends.
    """

    moves: tuple[tuple[BlockAddition, ...], ...]
    places: tuple[tuple[int, ...], ...]
    spilled: tuple[tuple[Spill, ...], ...]
    additions: int
    traffic: int
    restores: bool


@dataclass(frozen=True)
class _State:
    """A point of the walk. `wanted` has the rows of the current stage first; the masks mark the blocks of the current transition."""

    wanted: Matrix
    additions: int
    traffic: int = 0
    read: int = 0
    written: int = 0
    moves: tuple[tuple[BlockAddition, ...], ...] = ((),)
    places: tuple[tuple[int, ...], ...] = ()
    spilled: tuple[tuple[Spill, ...], ...] = ()
    held: tuple[Row | None, ...] = ()

    def after(self, move: BlockAddition) -> _State:
        wanted = self.wanted.copy()
        wanted[:, move.source] = (wanted[:, move.source] - move.factor * wanted[:, move.block]) % PRIME
        moves = (*self.moves[:-1], (*self.moves[-1], move))
        read, written = self.read | 1 << move.source | 1 << move.block, self.written | 1 << move.block
        return replace(self, wanted=wanted, additions=self.additions + 1, read=read, written=written, moves=moves)


class SumSearch:
    """The beam search on one operand: `width` states are kept; forms of the stage d later are weighted by `discount`**d.

    `stages` has the forms of each stage; a kept operand is never written. `lent` gives the extra temporaries of each stage, which never
    grow from one stage to the next.
    """

    def __init__(
        self,
        side: OperandSide,
        stages: Sequence[Sequence[Row]],
        restores: bool,
        width: int = 1,
        discount: float = 0.15,
        lent: Sequence[int] = (),
    ) -> None:
        self.blocks, self.restores, self.width, self.discount = side.blocks, restores and not side.kept, width, discount
        self.spare, self.kept = [side.spare + more for more in lent or (0,) * len(stages)], side.kept
        identity = [tuple(int(i == j) for j in range(self.blocks)) for i in range(self.blocks)]
        groups = [*stages, *([identity] if self.restores else [])]
        self.sizes = [len(group) for group in groups]
        self.start: Matrix = np.array([row for group in groups for row in group], dtype=np.int64).reshape(-1, self.blocks)
        self.inverses: dict[int, int] = {}

    def run(self) -> OperandWalk:
        """The cheapest walk found: fewest additions, then least traffic."""
        beam = [_State(self.start, 0)]
        for stage, size in enumerate(self.sizes):
            weights = np.concatenate([np.full(n, round(UNIT * self.discount**d)) for d, n in enumerate(self.sizes[stage:])])
            ends = self.restores and stage == len(self.sizes) - 1
            spare = 0 if ends else self.spare[stage]
            done = beam if self.kept else self._transition(beam, size, weights, spare)
            arrived = [self._arrive(state, size, ends, spare) for state in done]
            beam = sorted(arrived, key=lambda s: (UNIT * s.additions + _left(s.wanted, weights[size:]), s.traffic))[: self.width]
        best = min(beam, key=lambda state: (state.additions, state.traffic))
        return OperandWalk(best.moves[: len(self.sizes)], best.places, best.spilled, best.additions, best.traffic, self.restores)

    def _transition(self, beam: list[_State], size: int, weights: Matrix, spare: int) -> list[_State]:
        """States reached from the beam in which all but `spare` of the first `size` rows stand in blocks."""
        done: list[_State] = []
        seen: set[bytes] = set()
        frontier = last = beam
        patience = 3
        limit = 2 * int((frontier[0].wanted[:size] != 0).sum()) + 8
        for _ in range(limit):
            still_open = [len(_open(state, size)) for state in frontier]
            done += [state for state, number in zip(frontier, still_open, strict=True) if number <= spare]
            frontier = [state for state, number in zip(frontier, still_open, strict=True) if number > (0 if self.width > 1 else spare)]
            patience -= bool(done)
            if not frontier or not patience or (done and self.width == 1):
                break
            last = frontier
            frontier = self._step(frontier, size, weights, seen)
        return done or [self._forced(state, size, spare) for state in last]

    def _step(self, frontier: list[_State], size: int, weights: Matrix, seen: set[bytes]) -> list[_State]:
        options: list[tuple[int, int, int, BlockAddition]] = []
        for number, state in enumerate(frontier):
            moves, gains = self._moves(state, size, weights)
            base = UNIT * (state.additions + 1) + _left(state.wanted, weights)
            keep = min(len(moves), self.width + 2)
            chosen = np.argsort(gains, kind="stable")[:keep]
            for i in chosen:
                block, source, factor = map(int, moves[i])
                touched = state.read | 1 << source | 1 << block
                options.append((base + int(gains[i]), touched.bit_count() + state.traffic, number, BlockAddition(block, source, factor)))
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
        """The moves that remove an entry from a row of the stage, as (block, source, factor), and how each changes the weighted rest."""
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
        inverses = residues.copy()
        for i in np.flatnonzero((residues != 1) & (residues != PRIME - 1)).tolist():
            residue = int(residues[i])
            if residue not in self.inverses:
                self.inverses[residue] = pow(residue, -1, PRIME)
            inverses[i] = self.inverses[residue]
        return inverses

    def _forced(self, state: _State, size: int, spare: int) -> _State:
        """Finish the rows of the stage one by one: an open row has an entry in a block that no finished row stands in."""
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
                    state = state.after(BlockAddition(block, int(source), int(state.wanted[row, source]) * inverse % PRIME))
        return state

    def _arrive(self, state: _State, size: int, ends: bool, spare: int) -> _State:
        """The state after its stage: places noted, temporaries filled, the traffic of the transition counted."""
        read, written = state.read, state.written
        places = [int(i) for i in np.argmax(state.wanted[:size] != 0, axis=1)]
        spills, held = self._spills(state, size, places, spare)
        temporaries = set()
        for _, form in spills:
            sources = [i for i, x in enumerate(form) if x]
            read |= sum(1 << i for i in sources if i < self.blocks)
            temporaries |= {i for i in sources if i >= self.blocks}
        if ends:
            for block, place in enumerate(places):
                if place != block or state.wanted[block, place] != 1:
                    read, written = read | 1 << place, written | 1 << block
        traffic = state.traffic + (read | written).bit_count() + written.bit_count() + len(spills) + len(temporaries)
        return _State(
            state.wanted[size:],
            state.additions + sum(sum(map(bool, form)) - 1 for _, form in spills),
            traffic,
            moves=(*state.moves, ()),
            places=(*state.places, tuple(places)),
            spilled=(*state.spilled, tuple(spills)),
            held=held,
        )

    def _spills(self, state: _State, size: int, places: list[int], spare: int) -> tuple[list[Spill], tuple[Row | None, ...]]:
        """The temporaries that a stage fills, and the contents of all of them afterwards; `places` gets the places of the rows."""
        if not self.kept:
            rows = _open(state, size)
            for number, row in enumerate(rows):
                places[row] = self.blocks + number
            return [(number, _content(state.wanted[row])) for number, row in enumerate(rows)], ()
        sums = {row: content for row in range(size) if is_sum(content := _content(state.wanted[row]))}
        later = {monic(_content(row)) for row in state.wanted[size:]}
        spills, held = self._refill(state.held or (None,) * spare, list(sums.values()), later, spare)
        lines = [monic(form) if form is not None else None for form in held]
        for row, content in sums.items():
            places[row] = self.blocks + lines.index(monic(content))
        return spills, held

    def _refill(
        self, old: tuple[Row | None, ...], sums: list[Row], later: set[Row], spare: int
    ) -> tuple[list[Spill], tuple[Row | None, ...]]:
        """Temporaries of a kept operand: a form that the stage wants stays; one that no later stage wants is replaced first.

        The stage has only the first `spare` of them; it may read the others one last time.
        """
        wanted: dict[Row, Row] = {}
        for content in sums:
            wanted.setdefault(monic(content), content)
        lines = [monic(form) if form is not None else None for form in old[:spare]]
        free = [i for i, line in enumerate(lines) if line not in wanted]
        free.sort(key=lambda i: (lines[i] in later, lines[i] is not None))
        held, spills = list(old[:spare]), []
        for line, content in sorted(wanted.items(), key=lambda item: item[0] not in later):
            if line not in lines:
                temporary = free.pop(0)
                held[temporary] = content
                spills.append((temporary, self._shortest(content, old)))
        return spills, tuple(held)

    def _shortest(self, content: Row, old: tuple[Row | None, ...]) -> Row:
        """The form with the fewest terms over the blocks and at most one temporary."""
        best = content + (0,) * len(old)
        for number, form in enumerate(old):
            for x, y in zip(content, form or (), strict=False):
                if x and y:
                    factor = x * pow(y, -1, PRIME) % PRIME
                    rest = tuple((a - factor * b) % PRIME for a, b in zip(content, form or (), strict=True))
                    best = min(best, rest + tuple(factor * (i == number) for i in range(len(old))), key=lambda row: sum(map(bool, row)))
        return best


def _content(row: Matrix) -> Row:
    return tuple(map(int, row))


def _open(state: _State, size: int) -> list[int]:
    """The rows of the stage that do not stand in a block of their own yet."""
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
    """The weighted number of entries in the rows beyond one each."""
    return int(weights @ ((wanted != 0).sum(axis=1) - 1))
