"""`gemm` of BLAS on ordinary memory, by NumPy's classical product. Invalid arguments fail."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

NUMBERS = {"s": np.float32, "d": np.float64, "i": np.int64, "h": np.uint16}


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


def gemm_ex(
    transa: int, transb: int, m: int, n: int, k: int, alpha: int, a: int, a_type: int, lda: int, b: int, b_type: int, ldb: int, beta: int,
    c: int, c_type: int, ldc: int, compute: int, algorithm: int
) -> None:  # fmt: skip
    """The same for matrices of float16 (type 2), bfloat16 (14) or float32 (0), computed in float32.

    C of 16 bits is rounded once where it is stored. As TF32 (compute 77) numbers of float32 have 11 bits; those behind are cut off.
    """
    assert (
        a_type == b_type
        and (a_type, c_type, compute) in ((2, 2, 68), (2, 0, 68), (14, 14, 68), (14, 0, 68), (0, 0, 77))
        and algorithm == -1
    )
    kind, stored = ("s" if of == 0 else "h" for of in (a_type, c_type))
    left = _columns(kind, a, (k, m) if transa else (m, k), lda)
    right = _columns(kind, b, (n, k) if transb else (k, n), ldb)
    result = _columns(stored, c, (m, n), ldc)
    x, y = (as_tf32(s) if a_type == 0 else widened(s, a_type == 14) for s in (left.T if transa else left, right.T if transb else right))
    factor, own = (_columns("s", address, (1, 1), 1)[0, 0] for address in (alpha, beta))
    product = factor * (x @ y)
    if c_type == 0:
        result[...] = product if own == 0 else product + own * result
    else:
        result[...] = narrowed(product if own == 0 else product + own * widened(result, c_type == 14), c_type == 14)


def as_tf32(x: Any) -> Any:
    """The first 11 bits of floats."""
    return (np.ascontiguousarray(x).view(np.uint32) & 0xFFFFE000).view(np.float32)


def widened(bits: Any, is_bfloat: bool) -> Any:
    """The floats of 16 bits."""
    return (bits.astype(np.uint32) << 16).view(np.float32) if is_bfloat else np.ascontiguousarray(bits).view(np.float16).astype(np.float32)


def narrowed(x: Any, is_bfloat: bool) -> Any:
    """The 16 bits nearest to finite floats, ties to even."""
    if not is_bfloat:
        return x.astype(np.float16).view(np.uint16)
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def _columns(kind: str, address: int, shape: tuple[int, int], leading: int) -> Any:
    """The matrix at an address."""
    assert min(shape) > 0 and leading >= max(1, shape[0]) and address % min(4, np.dtype(NUMBERS[kind]).itemsize) == 0
    first = _Memory(address, np.dtype(NUMBERS[kind]).str)
    number = np.asarray(first)
    return as_strided(number, shape, (number.itemsize, leading * number.itemsize))


class _Memory:
    def __init__(self, address: int, typestr: str) -> None:
        self.__array_interface__ = {"version": 3, "shape": (1,), "typestr": typestr, "data": (address, False)}
