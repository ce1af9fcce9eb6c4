"""Singular values of a large matrix from a small sample of its range: randomised SVD, whose work is tall products.

N. Halko, P. G. Martinsson, J. A. Tropp, SIAM Review 53 (2011) 217-288, algorithms 4.4 and 5.1.
Run with other extents: randomised_svd.py M N
"""

import sys
from functools import partial

import numpy as np

import bilinear

multiply = partial(bilinear.matmul, algorithm="winograd", levels=1)  # leave out the options to let the planner choose


def randomised_svd(a: np.ndarray, rank: int, generator: np.random.Generator, spare: int = 10, powers: int = 2) -> tuple[np.ndarray, ...]:
    """U (m x rank), the singular values and V^T (rank x n) of a matrix of about that rank."""
    basis = np.linalg.qr(multiply(a, generator.standard_normal((a.shape[1], rank + spare))))[0]
    for _ in range(powers):  # each one sharpens what lies below the wanted singular values
        basis = np.linalg.qr(multiply(a.T, basis))[0]
        basis = np.linalg.qr(multiply(a, basis))[0]
    u, values, vt = np.linalg.svd(multiply(basis.T, a), full_matrices=False)
    return multiply(basis, u)[:, :rank], values[:rank], vt[:rank]


m, n = map(int, sys.argv[1:3]) if len(sys.argv) > 2 else (600, 400)
rank = 20
generator = np.random.default_rng(1)

# A matrix with known singular values: 1, 1/2, 1/4, ...
left, right = (np.linalg.qr(generator.standard_normal((extent, 40)))[0] for extent in (m, n))
a = left * 0.5 ** np.arange(40) @ right.T

u, values, vt = randomised_svd(a, rank, generator)
exact = np.linalg.svd(a, compute_uv=False)
best = exact[rank]  # no matrix of this rank comes nearer to A, in the spectral norm (Eckart and Young)
error = np.linalg.norm(a - u * values @ vt, 2)
print(f"{m} x {n}, rank {rank}: singular values within {abs(values - exact[:rank]).max():.0e} of numpy.linalg.svd's")
print(f"distance from A {error:.2e}, the least possible {best:.2e}")
print(f"agrees with the classical SVD: {abs(values - exact[:rank]).max() < 1e-10 and error < 1.01 * best}")
