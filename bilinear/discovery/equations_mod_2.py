"""Linear equations modulo 2, eliminated once and solved for many right-hand sides; rows of bits are packed into words."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.uint64]
WORD = 64


def packed(bits: NDArray[np.bool_]) -> Bits:
    """The last axis of an array of bits as 64-bit words, filled up with zeros."""
    free = -bits.shape[-1] % WORD
    padded = np.pad(bits, [(0, 0)] * (bits.ndim - 1) + [(0, free)])
    return np.packbits(padded, axis=-1, bitorder="little").view(np.uint64)


def unpacked(words: Bits, count: int) -> NDArray[np.bool_]:
    """The inverse of `packed`: the first `count` bits."""
    return np.unpackbits(words.view(np.uint8), axis=-1, count=count, bitorder="little").astype(bool)


class EquationsMod2:
    """J x = e modulo 2 for a fixed J, given by its columns: one row of packed bits for each unknown, a bit for each equation.

    Unknowns that come first are used first: an unknown whose column depends on earlier ones stays 0 in every solution.
    """

    def __init__(self, columns: Bits, equations: int) -> None:
        """Eliminate; takes about unknowns * rank * (equations + unknowns) / 128 operations on words."""
        unknowns = len(columns)
        self.equations, self.unknowns, self._width = equations, unknowns, columns.shape[1]
        rows = np.hstack([columns, packed(np.eye(unknowns, dtype=bool))])
        pivots = []
        for i in range(unknowns):
            words = np.flatnonzero(rows[i, : self._width])
            if not len(words):
                continue
            word = int(words[0])
            lowest = rows[i, word] & (~rows[i, word] + np.uint64(1))
            others = np.flatnonzero(rows[:, word] & lowest)
            rows[others[others != i]] ^= rows[i]
            pivots.append((word * WORD + int(lowest).bit_length() - 1, i))
        self._places = np.array([place for place, _ in pivots], np.int64)
        self._basis = rows[[i for _, i in pivots]]

    @property
    def rank(self) -> int:
        """The number of independent equations."""
        return len(self._places)

    def solve(self, right: NDArray[np.bool_]) -> NDArray[np.bool_] | tuple[int, ...]:
        """The solution in which unknowns that are not needed are 0; if there is none, equations whose sum is 0 = 1."""
        total = np.bitwise_xor.reduce(self._basis[right[self._places]], axis=0, initial=np.uint64(0))
        wrong = np.flatnonzero(unpacked(total[: self._width].copy(), self.equations) != right)
        if len(wrong):
            first = int(wrong[0])
            bits = self._basis[:, first // WORD] >> np.uint64(first % WORD) & np.uint64(1)
            return (first, *map(int, self._places[bits.astype(bool)]))
        return unpacked(total[self._width :].copy(), self.unknowns)
