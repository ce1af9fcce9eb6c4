"""A step of Muon: the momentum of a weight matrix, made nearly orthogonal by a Newton-Schulz iteration, which is nothing but products.

Two of three are symmetric, X X^T and its square, so `gram` multiplies one triangle.
benchmarks/muon.py times them on tensors in bfloat16.

K. Jordan and others, Muon: an optimizer for hidden layers in neural networks (2024), whose coefficients of the quintic these are. The
iteration acts on the singular values alone, by p(s) = a s + b s^3 + c s^5, so that a classical SVD tells what it must give.
Run with other extents: muon_step.py ROWS COLUMNS
"""

import sys
from functools import partial

import numpy as np

import bilinear

A, B, C = 3.4445, -4.7750, 2.0315
STEPS = 5
multiply = partial(bilinear.matmul, algorithm="winograd", levels=1)
gram = partial(bilinear.gram, algorithm="winograd", levels=1)


def orthogonalised(g: np.ndarray) -> np.ndarray:
    """Nearly U V^T of the matrix U S V^T: its singular values go to about 1, from 0.7 to 1.2."""
    is_tall = g.shape[0] > g.shape[1]
    wide: np.ndarray = (g.T if is_tall else g) / np.linalg.norm(g)  # whose square is the smaller one
    for _ in range(STEPS):
        square = gram(wide)
        polynomial = gram(square, square.copy(), alpha=C, beta=B)  # b A + c A^2
        following = A * wide
        multiply(polynomial, wide, following, beta=1)
        wide = following
    return wide.T if is_tall else wide


rows, columns = map(int, sys.argv[1:3]) if len(sys.argv) > 2 else (320, 200)
generator = np.random.default_rng(1)
weights, momentum, gradient = (generator.standard_normal((rows, columns)) for _ in range(3))
momentum = 0.95 * momentum + gradient
update = orthogonalised(gradient + 0.95 * momentum)  # Nesterov's
weights -= 0.02 * max(1, rows / columns) ** 0.5 * update

u, values, vt = np.linalg.svd(gradient + 0.95 * momentum, full_matrices=False)
expected = values / np.linalg.norm(values)
for _ in range(STEPS):
    expected = A * expected + B * expected**3 + C * expected**5
print(f"{rows} x {columns}: singular values from {values.min() / values.max():.3f} : 1 to {expected.min():.2f} ... {expected.max():.2f}")
print(f"agrees with the polynomial of the classical SVD: {abs(update - u * expected @ vt).max() < 1e-12}")
