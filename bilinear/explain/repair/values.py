"""Values of edited tables at a point: one value a product, for many combinations of edits at once, modulo a prime."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from bilinear.explain.repair.edits import Edit, Slot
from bilinear.explain.repair.join import Array, residue
from bilinear.ir.linear import LinearMap
from bilinear.ir.scheme import Scheme


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
    return (weights_of if table == "w" else outputs_of)(pool, getattr(point, table), sets)


def outputs_of(pool: Pool, inputs: Sequence[int], sets: Array) -> Array:
    """The outputs of a map, edited by each of the sets: an array of (sets, outputs)."""
    linear, modulus, count = pool.linear, pool.modulus, len(pool.linear.steps)
    values = np.empty((len(sets), linear.inputs + count + len(linear.outputs)), dtype=np.int64, order="F")
    values[:, : linear.inputs] = inputs
    for row, f in enumerate((*linear.steps, *linear.outputs)):
        total = np.zeros(len(sets), dtype=np.int64)
        for index, coefficient in f:
            total = (total + residue(coefficient, modulus) * values[:, index]) % modulus
        for which, places, delta in pool.changes(sets, row):
            total[which] = (total[which] + delta * values[which, places]) % modulus
        values[:, linear.inputs + row] = total
    return values[:, linear.inputs + count :]


def weights_of(pool: Pool, weights: Sequence[int], sets: Array) -> Array:
    """The weight of each input in a weighted sum of the outputs of a map, edited by each of the sets: (sets, inputs)."""
    linear, modulus, count = pool.linear, pool.modulus, len(pool.linear.steps)
    values = np.zeros((len(sets), linear.inputs + count + len(linear.outputs)), dtype=np.int64, order="F")
    values[:, linear.inputs + count :] = weights
    rows = [*linear.steps, *linear.outputs]
    for row in range(len(rows) - 1, -1, -1):
        own = values[:, linear.inputs + row]
        for which, places, delta in pool.changes(sets, row):
            values[which, places] = (values[which, places] + delta * own[which]) % modulus
        for index, coefficient in rows[row]:
            values[:, index] = (values[:, index] + residue(coefficient, modulus) * own) % modulus
    return values[:, : linear.inputs]
