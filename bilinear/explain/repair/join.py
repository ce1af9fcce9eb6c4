"""Combinations of edits of three tables whose products sum to a target, modulo a prime.

Edits of one table change one factor of every product. A combination is therefore one value a product on each of three sides, and its result
is the sum over the products of the three factors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bilinear.ir.number import Coefficient, Symbolic

PRIME = 2**24 - 3
"""Small enough that `EXACT` products of two residues sum exactly in float64. The proof refuses the few wrong combinations that pass."""
EXACT = 127
"""Products of two residues of at most 2^23 in absolute value whose sum, and one residue more, has at most 53 bits."""
BLOCK = 2**18
"""The combinations that are multiplied out at a time."""

Array = NDArray[np.int64]


def residue(value: Coefficient, modulus: int = PRIME) -> int:
    """A rational modulo a prime."""
    assert not isinstance(value, Symbolic)
    return value.numerator * pow(value.denominator, -1, modulus) % modulus


def has_residue(value: Coefficient) -> bool:
    """True if a coefficient is a number modulo the prime."""
    return not isinstance(value, Symbolic) and value.denominator % PRIME != 0


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
    """Residues of least absolute value."""
    return np.where(values > PRIME // 2, values - PRIME, values).astype(np.float64, order="C")


def _product(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """left @ right.T modulo the prime, of residues of least absolute value: an exact sum of at most 53 bits."""
    total = np.zeros((len(left), len(right)))
    for start in range(0, left.shape[1], EXACT):
        total -= np.rint(total / PRIME) * PRIME
        total += left[:, start : start + EXACT] @ right[:, start : start + EXACT].T
    return total
