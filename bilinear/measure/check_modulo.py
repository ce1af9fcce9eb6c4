"""Run a multiply modulo p and compare it with the definition, by random vectors in Python's integers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import ceil, log2
from typing import Any

import numpy as np

from bilinear.frontend import Loaded
from bilinear.ir.matrix import Array
from bilinear.measure.check_multiply import Device, module_of, on_host, require_memory, timed
from bilinear.runtime.matmul import matmul

DOUBT = 64
"""A wrong result passes with a probability of at most 2^-DOUBT, modulo a prime."""
ALPHA, BETA = 2, 3


@dataclass(frozen=True)
class ModularCheck:
    """One checked multiply modulo p: whether C is exact, and A and B are as promised; times are single calls in seconds."""

    device: Device
    shape: tuple[int, int, int]
    modulus: int
    levels: int
    inputs: str
    exact: bool
    restored: bool
    seconds: float
    classical_seconds: float

    @property
    def passed(self) -> bool:
        """True if nothing is wrong."""
        return self.exact and self.restored

    def to_json(self) -> dict[str, object]:
        """The fields, and whether the check passed."""
        return {**asdict(self), "passed": self.passed}


def check_modulo(
    loaded: Loaded, shape: tuple[int, int, int], modulus: int, levels: int, inputs: str, device: Device = "cpu"
) -> ModularCheck:
    """Multiply random m x k by k x n modulo p, with alpha = 2 and beta = 3, and classically with 1 and 0.

    C X is compared with alpha*A (B X) + beta*C0 X, for random vectors X and in Python's integers. A row of C that is wrong passes one
    vector with a probability of at most 1/q, q the least prime factor of p (R. Freivalds, IFIP Congress 1977).
    """
    require_memory(shape)
    m, k, n = shape
    generator = np.random.default_rng(20_260)
    a, b, c = (generator.integers(0, modulus, size) for size in ((m, k), (k, n), (m, n)))
    xp = module_of(device)
    left, right, out = (xp.array(each) for each in (a, b, c))
    options: dict[str, Any] = {"algorithm": loaded, "levels": levels, "inputs": inputs, "modulus": modulus}
    seconds = timed(device, lambda: matmul(left, right, out, alpha=ALPHA, beta=BETA, **options))
    left, right, out = map(on_host, (left, right, out))
    x = generator.integers(0, modulus, (n, ceil(DOUBT / log2(modulus))))
    wanted = (ALPHA * _times(a, _times(b, x, modulus), modulus) + BETA * _times(c, x, modulus)) % modulus
    exact = bool((_times(out, x, modulus) == wanted).all() and (out >= 0).all() and (out < modulus).all())
    restored = inputs == "consume" or bool((left == a).all() and (right == b).all())
    x, y = xp.array(a), xp.array(b)
    classical = timed(device, lambda: matmul(x, y, modulus=modulus))
    return ModularCheck(device, shape, modulus, levels, inputs, exact, restored, seconds, classical)


def is_product_modulo(a: Array, b: Array, c: Array, modulus: int) -> bool:
    """Whether c is a @ b modulo p, from 0 to p - 1: compared on random vectors as in `check_modulo`, by products on the processors."""
    x = np.random.default_rng(5).integers(0, modulus, (b.shape[1], ceil(DOUBT / log2(modulus))))
    same = matmul(c, x, modulus=modulus) == matmul(a, matmul(b, x, modulus=modulus), modulus=modulus)
    return bool(same.all() and (c >= 0).all() and (c < modulus).all())


def _times(matrix: Array, vectors: Array, modulus: int) -> Array:
    """A product of few columns modulo p: in int64 if it can hold the sums, else in Python's integers."""
    fits = matrix.shape[1] * (modulus - 1) ** 2 < 2**63
    return (matrix @ vectors if fits else matrix.astype(object) @ vectors.astype(object)) % modulus
