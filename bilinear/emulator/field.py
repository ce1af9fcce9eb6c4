"""Matrices over the prime field of `prime_field.h` in NumPy, for inputs and for the classical reference product."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]

PRIME = 2**61 - 1
HEADER = Path(__file__).with_name("prime_field.h")
ELEMENT = "cuda_on_cpu::Field"
UNDEFINED = 2**64 - 1  # The bits of an element that was never written: all set.

_BITS = 61
_LIMB = 21
_LIMBS = 3
MOST_INNER = 2**11  # The longest sum of limb products that a double holds exactly: 2 * 21 + 11 bits.


def random_words(generator: np.random.Generator, shape: tuple[int, ...]) -> Words:
    """Uniform nonzero residues, each of formal degree 1."""
    return generator.integers(1, PRIME, shape, dtype=np.uint64) | np.uint64(1 << _BITS)


def values(words: Words) -> Words:
    """The residues of words."""
    return words & np.uint64(PRIME)


def degrees(words: Words) -> Words:
    """The formal degrees of words; 7 means undefined."""
    return words >> np.uint64(_BITS)


def add(x: Words, y: Words) -> Words:
    """The sum of residues."""
    return _reduced(x + y)


def multiply(x: npt.ArrayLike, y: npt.ArrayLike) -> Words:
    """The product of residues, element by element."""
    total = np.zeros(np.broadcast_shapes(np.shape(x), np.shape(y)), np.uint64)
    for i, left in enumerate(_limbs(np.asarray(x, np.uint64))):
        for j, right in enumerate(_limbs(np.asarray(y, np.uint64))):
            total = add(total, _rotated(left * right, _LIMB * (i + j)))
    return total


def matmul(x: Words, y: Words) -> Words:
    """The classical product of two residue matrices, through exact limb products in doubles."""
    total = np.zeros((x.shape[0], y.shape[1]), np.uint64)
    for start in range(0, x.shape[1], MOST_INNER):
        inner = slice(start, start + MOST_INNER)
        lefts, rights = ([limb.astype(np.float64) for limb in _limbs(z)] for z in (x[:, inner], y[inner]))
        for i, left in enumerate(lefts):
            for j, right in enumerate(rights):
                total = add(total, _rotated((left @ right).astype(np.uint64), _LIMB * (i + j)))
    return total


def _limbs(x: Words) -> list[Words]:
    return [x >> np.uint64(_LIMB * i) & np.uint64(2**_LIMB - 1) for i in range(_LIMBS)]


def _reduced(x: Words) -> Words:
    x = (x & np.uint64(PRIME)) + (x >> np.uint64(_BITS))
    return np.where(x >= PRIME, x - np.uint64(PRIME), x)


def _rotated(x: Words, shift: int) -> Words:
    """x * 2^shift modulo p: a rotation of 61 bits."""
    x, shift = _reduced(x), shift % _BITS
    low = x & np.uint64((1 << (_BITS - shift)) - 1)
    return _reduced((low << np.uint64(shift)) | (x >> np.uint64(_BITS - shift)))
