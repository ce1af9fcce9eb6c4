"""The probability that random projections hide a matrix, counted over all vectors of the grid."""

from __future__ import annotations

import numpy as np
import pytest

from bilinear.analysis.accuracy import BITS, expected, least_exact_vectors, least_vectors, shrinking

GRID = np.arange(1 - 2**BITS, 2**BITS, 2).astype(float)
DIRECTIONS = [(1, 0), (1, 1), (1, -1), (1, 2), (3, 1), (1, 1e-3)]


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_no_more_vectors_shrink_a_row_than_stated(direction: tuple[float, float]) -> None:
    row = np.array(direction) / np.linalg.norm(direction)
    projected = np.sort(abs(row[0] * GRID[:, None] + row[1] * GRID).ravel())
    for risk in (0.9, 0.5, 0.2, 0.1, 0.05, 0.03):
        hidden = np.searchsorted(projected, shrinking(risk, 1)) / projected.size
        assert hidden <= risk
    assert np.searchsorted(projected, shrinking(0.5, 1)) / projected.size > 0.15  # it is not far from the truth


def test_two_vectors_and_two_rows() -> None:
    coarse = np.random.default_rng(0).choice(GRID, (200_000, 2, 2))
    for matrix in (np.eye(2), np.array([[1, 0], [0, 0.1]]), np.array([[1, 1], [1, 1.0]])):
        lengths = np.linalg.norm(matrix @ coarse, axis=(1, 2)) / np.linalg.norm(matrix)
        assert (lengths**2).mean() == pytest.approx(expected(2) ** 2, rel=0.01)
        for risk in (0.5, 0.1, 0.01):
            assert (lengths < shrinking(risk, 2)).mean() <= risk


def test_the_fewest_vectors_still_bound() -> None:
    for risk in (0.3, 1e-3, 1e-6, 1e-12):
        least = least_vectors(risk)
        assert shrinking(risk, least) > 0
        assert shrinking(risk, 4 * least) > 2 * shrinking(risk, least)
    assert shrinking(1e-12, 1) == 0
    assert [least_exact_vectors(risk) for risk in (0.5, 0.25, 1e-6)] == [1, 2, 20]


@pytest.mark.parametrize("modulus", [4, 8, 16])
def test_a_difference_of_residues_is_hidden_by_half_of_the_vectors_at_most(modulus: int) -> None:
    for left in range(modulus):
        for right in range(modulus):
            hidden = sum((left * x + right * y) % modulus == 0 for x in range(modulus) for y in range(modulus))
            assert left == right == 0 or hidden <= modulus**2 / 2
