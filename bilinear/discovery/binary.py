"""The memory of a walker over Z/2: one bit mask for a factor, and hash chains that find equal factors at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bilinear.discovery.walker import ROOM, WIDTH, tally_at

BUCKETS = 256
"""Hash chains of a mode."""
PATIENCE_FACTOR, LEAST_PAIRS = 20, 10
"""A plus transition follows after this factor times p^2 steps without a reduction; p is the number of pairs, at least the second."""
RESTART = 20_000_000
"""Steps without a lower rank after which a walk restarts."""
ISOLATED = 10_000
"""So many steps does a visit of a scheme without flips count for: most ways from there lead back."""
FROM_START = 4
"""One restart in so many is at the start, the others at the best scheme."""
PAIRS, LOW, LOW_AT = range(5, 8)
"""Places of `BinaryWalker.tally` beside those of `walker`: the pairs, the lowest rank since the last restart, the step that reached it."""
FIELD = 12
"""Bits of the number of a product in a packed pair."""


class BinaryWalker(NamedTuple):
    """The state of a walk over Z/2; its arrays are written in place.

    `factors[mode, p]` is the mask of the odd coefficients of product p: mode 0 over the blocks of A, 1 over those of B, 2 over those of C.
    Products whose factors have the same hash form a chain, doubly linked: `heads[mode, bucket]` is the first, `chain[mode, 0, p]` the next
    and `chain[mode, 1, p]` the one before, or -1. `pairs` lists the pairs of products with equal factors, packed as mode, p and q;
    `places[mode, p, q]` is where in the list a pair stands. `start` holds the factors of the start; `best`, `random` and `tally` are as in
    `walker.Walker`; `basis`, `sums` and `members` are room for an elimination.
    """

    factors: NDArray[np.uint64]
    best: NDArray[np.uint64]
    start: NDArray[np.uint64]
    heads: NDArray[np.int16]
    chain: NDArray[np.int16]
    pairs: NDArray[np.int32]
    places: NDArray[np.int32]
    random: NDArray[np.uint64]
    tally: NDArray[np.int64]
    basis: NDArray[np.uint64]
    sums: NDArray[np.uint64]
    members: NDArray[np.int64]


def binary_walker(masks: NDArray[np.uint64], seed: int, number: int) -> BinaryWalker:
    """A walker at a scheme, whose factors are given as `walker.masks_of` does; a coefficient -1 is odd as well."""
    rank = masks.shape[2]
    most = rank + ROOM + 1
    factors = np.zeros((3, most), np.uint64)
    factors[:, :rank] = masks[:, 0] | masks[:, 1]
    return BinaryWalker(
        factors,
        factors.copy(),
        factors.copy(),
        np.full((3, BUCKETS), -1, np.int16),
        np.full((3, 2, most), -1, np.int16),
        np.zeros(3 * most * (most - 1) // 2, np.int32),
        np.zeros((3, most, most), np.int32),
        np.array([seed << 32 | number], np.uint64),
        tally_at(rank, 0),
        np.zeros(WIDTH, np.uint64),
        np.zeros(WIDTH, np.uint64),
        np.zeros(WIDTH, np.int64),
    )
