"""Find where a single misprint can be in a scheme that is too large to try every edit.

Rewriting one row of a map changes the result by (the change of the row) x (the dependence of the result on the row); rewriting one column
changes it by (the value of the column) x (the change of the dependence on it). At points that differ only in the inputs of one factor, the
other factor is constant. So the misprint is not in a row or column whose factor is not proportional to the error over these points.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bilinear.explain.repair.edits import TABLES
from bilinear.explain.repair.join import PRIME, Array, has_residue, residue
from bilinear.ir.linear import LinearMap
from bilinear.ir.scheme import Scheme

MOST_TERMS = 200_000
"""Schemes with more terms in their forms are not examined."""
GROUPS, MOST_GROUPS = 4, 24
"""The number of points for one factor; in a small ring some of its values are 0 and give no information."""
SMALL, FEW, MANY = 2**20, 4, 96
"""Below this modulus a value takes many points; over Z/2 a polynomial of degree three may be 0 at 7/8 of them."""


@dataclass(frozen=True)
class Focus:
    """The rows of each map, numbered from its named sums on, and the columns of W (products, then named sums) where one edit can repair."""

    rows: dict[str, frozenset[int]]
    columns: frozenset[int]

    @property
    def in_doubt(self) -> int:
        """The number of rows and columns where an edit may stand."""
        return len(self.columns) + sum(map(len, self.rows.values()))

    def allows(self, table: str, row: int, index: int) -> bool:
        """True if a coefficient of a map may be wrong."""
        return row in self.rows[table] or (table == "w" and index in self.columns)


def find_focus(scheme: Scheme) -> Focus | None:
    """Where a single edit can be; None for schemes with basis changes, roots or i, and very large ones."""
    modulus = scheme.ring.modulus or PRIME
    maps: tuple[LinearMap, ...] = (scheme.u, scheme.v, scheme.w)
    terms = [c for linear in maps for f in (*linear.steps, *linear.outputs) for _, c in f]
    if scheme.bases is not None or modulus >= 2**31 or len(terms) > MOST_TERMS or not all(map(has_residue, terms)):
        return None
    left = {t: _doubtful(scheme, modulus, t, held) for t, held in (("u", "u"), ("v", "v"), ("w", "uv"), ("", "w"))}
    rows, columns = {t: left[t] for t in TABLES}, left[""]
    return Focus({t: frozenset(np.flatnonzero(found).tolist()) for t, found in rows.items()}, frozenset(np.flatnonzero(columns).tolist()))


def _doubtful(scheme: Scheme, modulus: int, table: str, held: str) -> NDArray[np.bool_]:
    """Which rows of a map, or columns of W, can account for the error wherever the blocks of the `held` tables stay the same."""
    left, generator, told = np.ones(1, bool), np.random.default_rng(0), 0
    for _ in range(MOST_GROUPS):
        values, slopes, error = _evaluated(scheme, modulus, held, generator)
        factors = slopes[table][getattr(scheme, table).inputs :] if table else values
        left = left & _multiples(error, factors, modulus)
        told += bool(error.any())
        if told == GROUPS:
            break
    return left


def _evaluated(scheme: Scheme, modulus: int, held: str, generator: np.random.Generator) -> tuple[Array, dict[str, Array], Array]:
    """At some points: the values of the columns of W, the dependence of the result on each row of each map, and its error.

    The points differ in everything but the blocks, or the weights of the blocks of C, of the `held` tables.
    """
    m, k, n = scheme.m, scheme.k, scheme.n
    count = MANY if modulus < SMALL else FEW
    inputs = {}
    for table, size in zip(TABLES, (m * k, k * n, m * n), strict=True):
        inputs[table] = np.broadcast_to(generator.integers(0, modulus, (size, 1 if table in held else count)), (size, count))
    left, right = (_forward(getattr(scheme, table), inputs[table], modulus) for table in "uv")
    left, right = left[len(left) - scheme.rank :], right[len(right) - scheme.rank :]
    values = _forward(scheme.w, left * right % modulus, modulus)
    slopes = {"w": _backward(scheme.w, inputs["w"], modulus)}
    weights = slopes["w"][: scheme.rank]
    slopes["u"] = _backward(scheme.u, right * weights % modulus, modulus)
    slopes["v"] = _backward(scheme.v, left * weights % modulus, modulus)
    found = (left * right % modulus * weights % modulus).sum(axis=0)
    a, b, c = (inputs[t].reshape(*shape, count) for t, shape in zip(TABLES, ((m, k), (k, n), (m, n)), strict=True))
    wanted = sum((a[:, p, None] * b[p] % modulus * c % modulus).sum(axis=(0, 1)) for p in range(k))
    return values[: scheme.w.inputs + len(scheme.w.steps)], slopes, (wanted - found) % modulus


def _forward(linear: LinearMap, inputs: Array, modulus: int) -> Array:
    """The values of a map's inputs, steps and outputs at some points."""
    rows = (*linear.steps, *linear.outputs)
    values = np.zeros((linear.inputs + len(rows), inputs.shape[1]), dtype=np.int64)
    values[: linear.inputs] = inputs
    for number, form in enumerate(rows, linear.inputs):
        for index, coefficient in form:
            values[number] = (values[number] + residue(coefficient, modulus) * values[index]) % modulus
    return values


def _backward(linear: LinearMap, weights: Array, modulus: int) -> Array:
    """The derivative of a weighted sum of the outputs by each input, step and output."""
    rows = (*linear.steps, *linear.outputs)
    gains = np.zeros((linear.inputs + len(rows), weights.shape[1]), dtype=np.int64)
    gains[len(gains) - len(linear.outputs) :] = weights
    for number in range(len(gains) - 1, linear.inputs - 1, -1):
        for index, coefficient in rows[number - linear.inputs]:
            gains[index] = (gains[index] + residue(coefficient, modulus) * gains[number]) % modulus
    return gains


def _multiples(error: Array, factors: Array, modulus: int) -> NDArray[np.bool_]:
    """Which rows of `factors` (rows, points) give the error if multiplied by one number each."""
    at = int(np.argmax(error != 0))
    proportional = (factors * error[at] % modulus == factors[:, at, None] * error % modulus).all(axis=1)
    found: NDArray[np.bool_] = proportional & ((factors[:, at] != 0) | (error[at] == 0))
    return found
