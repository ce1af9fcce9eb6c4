"""k-means: the distances of all points to all centres are one product, |x - c|^2 = |x|^2 - 2 x.c + |c|^2.

S. P. Lloyd, IEEE Trans. Inf. Theory 28 (1982) 129-137. Run with other extents: k_means.py POINTS CENTRES DIMENSIONS
"""

import sys
from collections.abc import Callable

import numpy as np

import bilinear

Nearest = Callable[[np.ndarray, np.ndarray], np.ndarray]


def nearest(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """The centre nearest to each point. |x|^2 is the same for all centres of a point."""
    distances = (centres**2).sum(1)[None, :].repeat(len(points), 0)
    bilinear.matmul(points, centres.T, distances, alpha=-2, beta=1, algorithm="winograd", levels=1)
    return np.asarray(distances.argmin(1))


def nearest_by_definition(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    return np.array([((point - centres) ** 2).sum(1).argmin() for point in points])


def k_means(points: np.ndarray, centres: np.ndarray, nearest: Nearest) -> tuple[np.ndarray, np.ndarray, int]:
    """Centres, the centre of each point, and the number of rounds until no point changes its centre, at most 100."""
    owners, before, rounds = nearest(points, centres), np.full(len(points), -1), 0
    while rounds < 100 and not np.array_equal(owners, before):
        rounds += 1
        one_hot = np.eye(len(centres))[owners]
        sums = bilinear.matmul(one_hot.T, points, algorithm="winograd", levels=1)
        centres = np.rint(sums / one_hot.sum(0)[:, None].clip(1))  # on a grid, where all sums are exact
        owners, before = nearest(points, centres), owners
    return centres, owners, rounds


count, k, dimensions = map(int, sys.argv[1:4]) if len(sys.argv) > 3 else (2000, 12, 16)
generator = np.random.default_rng(1)
true = generator.integers(-100, 101, (k, dimensions))
points = (true[generator.integers(0, k, count)] + generator.integers(-20, 21, (count, dimensions))).astype(float)
start = points[generator.choice(count, k, replace=False)]

centres, owners, rounds = k_means(points, start, nearest)
classical = k_means(points, start, nearest_by_definition)
spread = ((points - centres[owners]) ** 2).sum() / ((points - points.mean(0)) ** 2).sum()
print(f"{count} points, {k} centres, {dimensions} dimensions: {rounds} rounds, {spread:.1%} of the variance is left")
print(f"the same centres and owners as by the definition: {np.array_equal(centres, classical[0]) and np.array_equal(owners, classical[1])}")
