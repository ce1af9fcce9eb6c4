"""A walker's memory: a scheme over {-1, 0, 1} as pairs of bit masks, one over Z/2 as single masks, its start, and its way back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bilinear.algebra.change_basis import normalise_signs
from bilinear.algebra.composition import numbered
from bilinear.algebra.maps import transposed
from bilinear.ir.linear import Form, LinearMap
from bilinear.ir.number import Coefficient
from bilinear.ir.ring import RATIONALS, Ring
from bilinear.ir.scheme import Scheme

WIDTH = 64
"""The most blocks of A, of B, or of C: a mask has a bit for each."""
ROOM = 3
"""How far above the best rank plus transitions may lead a walk."""
LEAST_PATIENCE, MOST_PATIENCE = 5_000, 50_000
"""Steps without a reduction before a plus transition."""

RETURN = 10_000_000
"""Steps without a new best after which a walk restarts at the best."""

RANK, BEST, BEST_AT, STEPS, PATIENCE = range(5)
"""The places of `Walker.tally`: the rank now, the best rank, the step that reached it, all steps, and steps until a plus transition."""


class Walker(NamedTuple):
    """The state of a walk; its arrays are written in place.

    `factors[mode, sign, p]` is the mask of the +1 (sign 0) or the -1 (sign 1) coefficients of product p: mode 0 over the blocks of A, 1
    over those of B, 2 over those of C, numbered row-major. `pairs[mode, :counts[mode]]` are the pairs of products whose factors of that
    mode are equal up to sign. `best` holds the factors at the first step of the best rank, `random` the state of the generator.
    """

    factors: NDArray[np.uint64]
    best: NDArray[np.uint64]
    pairs: NDArray[np.int32]
    counts: NDArray[np.int64]
    random: NDArray[np.uint64]
    tally: NDArray[np.int64]


def ternary_walker(masks: NDArray[np.uint64], seed: int, number: int) -> Walker:
    """A walker at a scheme, given by its masks; seeds and numbers below 2^32 give different random streams."""
    rank = masks.shape[2]
    most = rank + ROOM + 1
    factors = np.zeros((3, 2, most), np.uint64)
    factors[:, :, :rank] = masks
    pairs = np.zeros((3, most * (most - 1) // 2, 2), np.int32)
    random = np.array([seed << 32 | number], np.uint64)
    return Walker(factors, factors.copy(), pairs, np.zeros(3, np.int64), random, tally_at(rank, LEAST_PATIENCE))


def tally_at(rank: int, patience: int) -> NDArray[np.int64]:
    """The tally of a walker that begins at a scheme of this rank; only walks over Z/2 use the last three places."""
    return np.array([rank, rank, 0, 0, patience, 0, rank, 0], np.int64)


def classical_masks(m: int, k: int, n: int) -> NDArray[np.uint64]:
    """The factors of the classical scheme, as `masks_of` gives those of any."""
    products = [(1 << (i * k + p), 1 << (p * n + j), 1 << (i * n + j)) for i in range(m) for p in range(k) for j in range(n)]
    masks = np.zeros((3, 2, len(products)), np.uint64)
    masks[:, 0] = np.array(products, np.uint64).T
    return masks


def masks_of(tables: Iterable[Iterable[Sequence[Coefficient]]]) -> NDArray[np.uint64]:
    """Masks of shape (3, 2, rank) of factors with coefficients -1, 0 and 1: masks[mode, 0] of the 1s, masks[mode, 1] of the -1s."""
    return np.array([[[_mask(row, sign) for row in rows] for sign in (1, -1)] for rows in map(list, tables)], np.uint64)


def _mask(row: Sequence[Coefficient], value: int) -> int:
    return sum(1 << i for i, x in enumerate(row) if x == value)


def to_scheme(m: int, k: int, n: int, factors: NDArray[np.integer], rank: int, name: str, citation: str) -> Scheme:
    """The scheme of the first `rank` products, with the first coefficient of each factor over A and B made positive.

    Factors without masks of signs, of shape (3, products) in place of (3, 2, products), make a scheme over Z/2.
    """
    masks = factors[:, None] if factors.ndim == 2 else factors
    rows = [tuple(_form(*map(int, masks[mode, :, p])) for p in range(rank)) for mode in range(3)]
    u, v, of_c = (LinearMap(size, forms) for size, forms in zip((m * k, k * n, m * n), rows, strict=True))
    ring = Ring("Z/2") if factors.ndim == 2 else RATIONALS
    return normalise_signs(Scheme(name, m, k, n, u, v, transposed(of_c), numbered(rank), ring, citation=citation))


def _form(plus: int, minus: int = 0) -> Form:
    return tuple((i, 1 if plus >> i & 1 else -1) for i in range(WIDTH) if (plus | minus) >> i & 1)


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
