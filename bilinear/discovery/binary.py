"""A walker over Z/2: a scheme as one bit mask a factor, and what finds equal factors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BUCKETS = 256
RANK, BEST, BEST_AT, STEPS, PATIENCE, PAIRS = range(6)
ROOM, PLUS, BACK = range(3)


class BinaryWalker(NamedTuple):
    factors: NDArray[np.uint64]
    best: NDArray[np.uint64]
    heads: NDArray[np.int16]
    chain: NDArray[np.int16]
    pairs: NDArray[np.int32]
    places: NDArray[np.int32]
    random: NDArray[np.uint64]
    tally: NDArray[np.int64]
    rules: NDArray[np.int64]


def binary_walker(factors, rank, room, patience, back, seed, number):
    most = rank + room + 1
    f = np.zeros((3, most), np.uint64)
    f[:, :rank] = factors[:, :rank]
    return BinaryWalker(f, f.copy(), np.zeros((3, BUCKETS), np.int16), np.zeros((3, 2, most), np.int16),
        np.zeros(3 * most * (most - 1) // 2, np.int32), np.zeros((3, most, most), np.int32), np.array([seed << 32 | number], np.uint64),
        np.array([rank, rank, 0, 0, patience, 0], np.int64), np.array([room, patience, back], np.int64))


def classical(m, k, n):
    f = np.zeros((3, m * k * n), np.uint64)
    for r, (i, p, j) in enumerate([(i, p, j) for i in range(m) for p in range(k) for j in range(n)]):
        f[:, r] = [1 << (i * k + p), 1 << (p * n + j), 1 << (i * n + j)]
    return f
