"""Combinations of edits of three tables as numbers at a point modulo a prime, and those of them whose products sum to a target.

Edits of one table change one factor of every product. A combination is therefore one value a product on each of three sides, and its result
is the sum over the products of the three factors.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
from numpy.typing import NDArray

from bilinear.explain.repair.edits import PRIME, Array, Edit, Slot, backward, forward
from bilinear.ir.linear import LinearMap
from bilinear.ir.number import residue
from bilinear.ir.scheme import Scheme

EXACT = 127
"""Products of two residues of at most 2^23 in absolute value whose sum, and one residue more, has at most 53 bits."""
BLOCK = 2**18
"""The combinations that are multiplied out at a time."""


@dataclass(frozen=True)
class Side:
    """Combinations of edits of a table. For each combination, and for the table as written: one value a product."""

    table: str
    sets: Array
    values: Array
    written: Array

    @property
    def touched(self) -> NDArray[np.bool_]:
        """Which combinations change which product: a boolean array of (sets, products)."""
        return np.not_equal(self.values, self.written)


class Join:
    """Finds combinations of three sides, the shortest first, whose sum over the products is the target.

    For a fixed combination of the first side, combinations of the other two that change different products add their changes, so sorting
    finds the partners. Combinations that change a common product are multiplied out.
    """

    def __init__(self, sides: Sequence[Side], target: int) -> None:
        self.first, self.second, self.third = sides
        self.target = target
        self.groups = self._groups()

    def _groups(self) -> list[tuple[Array, Array]]:
        """The pairs of combinations of the second and third side that change a common product, or all pairs if most do."""
        x, y = self.second.touched, self.third.touched
        meeting = [(np.flatnonzero(x[:, p]), np.flatnonzero(y[:, p])) for p in range(x.shape[1])]
        if sum(len(a) * len(b) for a, b in meeting) * 2 > len(x) * len(y):
            return [(np.arange(len(x)), np.arange(len(y)))]
        return [(a, b) for a, b in meeting if len(a) and len(b)]

    @property
    def work(self) -> int:
        """The number of combinations examined."""
        return len(self.first.sets) * (len(self.second.sets) + len(self.third.sets) + sum(len(a) * len(b) for a, b in self.groups))

    def hits(self) -> Iterator[tuple[int, int, int]]:
        """The combinations that reach the target, each once."""
        for i, row in enumerate(self.first.values):
            found = {*self._apart(row), *self._meeting(row)}
            yield from ((i, j, k) for j, k in sorted(found))

    def _apart(self, row: Array) -> Iterator[tuple[int, int]]:
        x, y = self.second, self.third
        scaled = x.written * row % PRIME
        base = int((scaled * y.written % PRIME).sum()) % PRIME
        left, right = (x.values * (row * y.written % PRIME) % PRIME).sum(1) % PRIME, (y.values * scaled % PRIME).sum(1) % PRIME
        order = np.argsort(right, kind="stable")
        wanted = (self.target + base - left) % PRIME
        low, high = np.searchsorted(right[order], wanted, "left"), np.searchsorted(right[order], wanted, "right")
        for j in np.flatnonzero(high > low):
            for k in order[low[j] : high[j]]:
                if int((x.values[j] * row % PRIME * y.values[k] % PRIME).sum()) % PRIME == self.target:
                    yield int(j), int(k)

    def _meeting(self, row: Array) -> Iterator[tuple[int, int]]:
        third = _centered(self.third.values)
        for left, right in self.groups:
            scaled = _centered(self.second.values[left] * row % PRIME)
            block = max(1, BLOCK // len(left))
            for start in range(0, len(right), block):
                quotients = (_product(scaled, third[right[start : start + block]]) - self.target) / PRIME
                for j, k in np.argwhere(quotients == np.rint(quotients)):
                    pair = int(left[j]), int(right[start + k])
                    values = self.second.values[pair[0]] * row % PRIME * self.third.values[pair[1]] % PRIME
                    if int(values.sum()) % PRIME == self.target:  # which the rounding of a quotient may only seem to be
                        yield pair


def _centered(values: Array) -> NDArray[np.float64]:
    return np.where(values > PRIME // 2, values - PRIME, values).astype(np.float64, order="C")


def _product(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """left @ right.T modulo the prime, of residues of least absolute value: an exact sum of at most 53 bits."""
    total = np.zeros((len(left), len(right)))
    for start in range(0, left.shape[1], EXACT):
        total -= np.rint(total / PRIME) * PRIME
        total += left[:, start : start + EXACT] @ right[:, start : start + EXACT].T
    return total


class RandomPoint:
    """Random values of the blocks of A and B, random weights of those of C, and the number that a correct scheme gives there."""

    def __init__(self, scheme: Scheme, modulus: int, seed: int = 0) -> None:
        generator = random.Random(seed)
        self.modulus = modulus
        m, k, n = scheme.m, scheme.k, scheme.n
        self.u, self.v, self.w = ([generator.randrange(modulus) for _ in range(count)] for count in (m * k, k * n, m * n))
        cells = product(range(m), range(k), range(n))
        self.target = sum(self.u[i * k + p] * self.v[p * n + j] * self.w[i * n + j] for i, p, j in cells) % modulus


class Pool:
    """The edits of one table as arrays: rows, indices and amounts of at most `width` changes each, and the numbers of their slots."""

    def __init__(self, linear: LinearMap, chosen: Sequence[Edit], modulus: int) -> None:
        self.linear = linear
        self.modulus = modulus
        self.edits = tuple(chosen)
        width = max((len(e.changes) for e in chosen), default=1)
        slots: dict[Slot, int] = {}
        for slot in (slot for e in chosen for slot in sorted(e.slots)):
            slots.setdefault(slot, len(slots))
        taken = max((len(e.slots) for e in chosen), default=1)
        self.rows, self.indices, self.deltas = (np.zeros((len(chosen), width), dtype=np.int64) for _ in range(3))
        self.rows -= 1
        self.slots = np.full((len(chosen), taken), -1, dtype=np.int64)
        for number, e in enumerate(chosen):
            self.slots[number, : len(e.slots)] = [slots[slot] for slot in e.slots]
            for place, change in enumerate(e.changes):
                self.rows[number, place], self.indices[number, place] = change.row, change.index
                self.deltas[number, place] = residue(change.delta, modulus)

    def sets(self, size: int) -> Array:
        """The combinations of `size` edits that rewrite different terms: an array of (sets, size)."""
        count = len(self.edits)
        if size < 2:
            return np.arange(count).reshape(-1, 1) if size else np.zeros((1, 0), dtype=np.int64)
        first, second = np.triu_indices(count, 1)
        pairs = np.stack([first, second], axis=1)[~self._clash(first, second)]
        if size == 2:
            return pairs
        triples = [np.column_stack([pairs[pairs[:, 1] < last], np.full((pairs[:, 1] < last).sum(), last)]) for last in range(count)]
        every = np.concatenate([np.zeros((0, 3), dtype=np.int64), *triples])
        return every[~(self._clash(every[:, 0], every[:, 2]) | self._clash(every[:, 1], every[:, 2]))]

    def _clash(self, left: Array, right: Array) -> NDArray[np.bool_]:
        x, y = self.slots[left][:, :, None], self.slots[right][:, None, :]
        clashing: NDArray[np.bool_] = ((x == y) & (x >= 0)).any(axis=(1, 2))
        return clashing

    def changes(self, sets: Array, row: int) -> Iterator[tuple[Array, Array, Array]]:
        """The changes of a row: the sets that make them, the index, and the amount."""
        for member in range(sets.shape[1]):
            for place in range(self.rows.shape[1]):
                which = np.flatnonzero(self.rows[sets[:, member], place] == row)
                if len(which):
                    edit = sets[which, member]
                    yield which, self.indices[edit, place], self.deltas[edit, place]


def values_of(table: str, pool: Pool, point: RandomPoint, sets: Array) -> Array:
    """One factor of each product, for each of the combinations of edits of a table: (sets, products)."""
    linear, changes, given = pool.linear, partial(pool.changes, sets), getattr(point, table)
    given = np.broadcast_to(np.array(given, dtype=np.int64), (len(sets), len(given)))
    if table == "w":
        return backward(linear, given, point.modulus, changes)[:, : linear.inputs]
    return forward(linear, given, point.modulus, changes)[:, linear.inputs + len(linear.steps) :]
