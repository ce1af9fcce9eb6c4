"""Numbers modulo a prime, in place of blocks and coefficients: a map run forwards and backwards at many points at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from bilinear.ir.linear import LinearMap
from bilinear.ir.number import Coefficient, Symbolic, residue

PRIME = 2**24 - 3
"""Small enough that `EXACT` products of two residues sum exactly in float64. The proof refuses the few wrong combinations that pass."""

Array = NDArray[np.int64]


def has_residue(value: Coefficient) -> bool:
    """True if a coefficient is a number modulo the prime."""
    return not isinstance(value, Symbolic) and value.denominator % PRIME != 0


Changes = Iterable[tuple[Array, Array, Array]]
"""Edits of a row: the points that they apply to, the index, and the amount."""


def forward(linear: LinearMap, inputs: Array, modulus: int, changes: Callable[[int], Changes] = lambda row: ()) -> Array:
    """The values of a map's inputs, steps and outputs: (points, values)."""
    rows = (*linear.steps, *linear.outputs)
    values = np.empty((len(inputs), linear.inputs + len(rows)), dtype=np.int64, order="F")
    values[:, : linear.inputs] = inputs
    for row, f in enumerate(rows):
        total = np.zeros(len(inputs), dtype=np.int64)
        for index, coefficient in f:
            total = (total + residue(coefficient, modulus) * values[:, index]) % modulus
        for which, places, delta in changes(row):
            total[which] = (total[which] + delta * values[which, places]) % modulus
        values[:, linear.inputs + row] = total
    return values


def backward(linear: LinearMap, weights: Array, modulus: int, changes: Callable[[int], Changes] = lambda row: ()) -> Array:
    """The derivative of a weighted sum of the outputs by each input, step and output: (points, values)."""
    rows = (*linear.steps, *linear.outputs)
    gains = np.zeros((len(weights), linear.inputs + len(rows)), dtype=np.int64, order="F")
    gains[:, linear.inputs + len(linear.steps) :] = weights
    for row in reversed(range(len(rows))):
        own = gains[:, linear.inputs + row]
        for which, places, delta in changes(row):
            gains[which, places] = (gains[which, places] + delta * own[which]) % modulus
        for index, coefficient in rows[row]:
            gains[:, index] = (gains[:, index] + residue(coefficient, modulus) * own) % modulus
    return gains
