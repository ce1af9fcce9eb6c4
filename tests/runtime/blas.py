"""`gemm` of BLAS on ordinary memory, by NumPy's classical product. Invalid arguments fail."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

NUMBERS = {"s": np.float32, "d": np.float64, "i": np.int64}


def gemm(
    kind: str, transa: int, transb: int, m: int, n: int, k: int, alpha: int, a: int, lda: int, b: int, ldb: int, beta: int, c: int, ldc: int
) -> None:
    """C = alpha * op(A) * op(B) + beta * C for column-major matrices, m x k by k x n. Scalars and matrices are addresses.

    `kind` is the type of the elements: `s`, `d`, or `i` for integers. C is not read if beta is 0.
    """
    left = _columns(kind, a, (k, m) if transa else (m, k), lda)
    right = _columns(kind, b, (n, k) if transb else (k, n), ldb)
    result = _columns(kind, c, (m, n), ldc)
    factor, own = (_columns(kind, address, (1, 1), 1)[0, 0] for address in (alpha, beta))
    product = factor * ((left.T if transa else left) @ (right.T if transb else right))
    result[...] = product if own == 0 else product + own * result


def _columns(kind: str, address: int, shape: tuple[int, int], leading: int) -> Any:
    """The matrix at an address."""
    assert min(shape) > 0 and leading >= max(1, shape[0]) and address % 4 == 0
    first = _Memory(address, np.dtype(NUMBERS[kind]).str)
    number = np.asarray(first)
    return as_strided(number, shape, (number.itemsize, leading * number.itemsize))


class _Memory:
    def __init__(self, address: int, typestr: str) -> None:
        self.__array_interface__ = {"version": 3, "shape": (1,), "typestr": typestr, "data": (address, False)}
