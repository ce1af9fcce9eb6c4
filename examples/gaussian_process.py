"""A Gaussian process: kernel matrices by products, and a blocked Cholesky factorisation whose updates run in the matrix itself.

C. E. Rasmussen, C. K. I. Williams, Gaussian Processes for Machine Learning, MIT Press (2006), algorithm 2.1. Run with other extents:
gaussian_process.py POINTS BLOCK
"""

import sys

import numpy as np

import bilinear


def kernel(x: np.ndarray, y: np.ndarray, length: float = 1.0) -> np.ndarray:
    """exp(-|x - y|^2 / (2 length^2)) of all pairs of points."""
    squares = (x**2).sum(1)[:, None] + (y**2).sum(1)
    bilinear.matmul(x, y.T, squares, alpha=-2, beta=1)
    return np.asarray(np.exp(-squares.clip(0) / (2 * length**2)))


def truth(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.sin(x[:, 0]) * np.cos(x[:, 1]))


def cholesky(a: np.ndarray, block: int) -> None:
    """Turn the lower triangle of a positive definite matrix into its Cholesky factor, block by block.

    Most of the work is the update of what lies below and right of a block, C := C - L L^T: a product with alpha = -1 and beta = 1.
    """
    for begin in range(0, len(a), block):
        end = min(begin + block, len(a))
        diagonal, below, rest = a[begin:end, begin:end], a[end:, begin:end], a[end:, end:]
        diagonal[...] = np.linalg.cholesky(diagonal)
        below[...] = np.linalg.solve(diagonal, below.T).T
        bilinear.matmul(below, below.T, rest, alpha=-1, beta=1, algorithm="winograd", levels=1)


count, block = map(int, sys.argv[1:3]) if len(sys.argv) > 2 else (500, 96)
generator = np.random.default_rng(1)
x, new = generator.uniform(-3, 3, (count, 2)), generator.uniform(-2, 2, (50, 2))
noise = 0.05
y = truth(x) + noise * generator.standard_normal(count)

covariance = kernel(x, x) + noise**2 * np.eye(count)
factor = covariance.copy()
cholesky(factor, block)
factor = np.tril(factor)
across = kernel(x, new)
weights = np.linalg.solve(factor.T, np.linalg.solve(factor, y))
mean = bilinear.einsum("xn,x->n", across, weights)
variance = 1 - (np.linalg.solve(factor, across) ** 2).sum(0)

classical = np.exp(-((x[:, None] - new[None]) ** 2).sum(-1) / 2).T @ np.linalg.solve(covariance, y)
off = abs(mean - truth(new)) / np.sqrt(variance)
print(f"{count} points, noise {noise}: the mean at 50 new points is off by {abs(mean - truth(new)).max():.3f} at most")
print(f"which is {off.max():.1f} standard deviations at most, as the process says of itself")
print(f"agrees with numpy.linalg.solve: {abs(mean - classical).max() < 1e-7 and abs(factor @ factor.T - covariance).max() < 1e-12}")
