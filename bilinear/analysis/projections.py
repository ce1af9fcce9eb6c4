"""Bounds of a norm from the norms of a few random projections (docs/checking.md)."""

from __future__ import annotations

from math import ceil, e, log, log2, pi, sqrt

BITS = 8
"""A random entry is one of the 2^BITS odd integers between -2^BITS and 2^BITS, all equally likely."""
GRAIN = 4.0**-BITS
"""The loss because entries lie on a grid: the variance of a cell as a fraction of that of a continuous entry."""
DENSITY = pi * e / 3
"""2 pi e times the squared density that no normed sum of independent uniform variables of variance 1 exceeds, which is 1/6."""


def shrinking(risk: float, vectors: int) -> float:
    """The factor f with |D X|_F >= f |D|_F, except with a probability of at most `risk`, for any real D and `vectors` random columns X.

    The entries of X are those of `BITS`. 0 if there are too few vectors. Source: docs/checking.md, with K. Ball's bound (1986).
    """
    share = risk ** (2 / vectors) / DENSITY - GRAIN
    return float(2**BITS) * sqrt(vectors * max(0.0, share) / 3)


def expected(vectors: int) -> float:
    """The root of the mean of |D X|_F^2 / |D|_F^2."""
    return float(2**BITS) * sqrt(vectors * (1 - GRAIN) / 3)


def least_vectors(risk: float) -> int:
    """The fewest vectors from which the grid costs less than half of the factor's square."""
    return max(1, ceil(2 * log(risk) / log(2 * GRAIN * DENSITY)))


def least_exact_vectors(risk: float) -> int:
    """The fewest uniform vectors over the integers modulo 2^w that a matrix other than 0 maps to 0 with a probability of at most `risk`.

    One vector is mapped to 0 with a probability of at most 1/2 (R. Freivalds, 1979).
    """
    return max(1, ceil(-log2(risk)))
