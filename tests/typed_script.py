"""A script of a user's: mypy --strict infers the type of every array. It is checked, not run."""

from __future__ import annotations

from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import bilinear


class Tensor:
    """A stand-in for another library's array."""

    shape: tuple[int, ...] = (2, 2)
    dtype: str = "float32"


Square = np.ndarray[tuple[int, int], np.dtype[np.float64]]
a = np.ones((2, 2))
x: NDArray[np.float32] = np.ones((2, 2), np.float32)
t = Tensor()
kept = bilinear.prepare(a, rows=2)
strassen = bilinear.load("strassen")

assert_type(bilinear.matmul(a, a), Square)
assert_type(bilinear.matmul(a, a, algorithm=["winograd", "strassen"], workspace="2GiB", alpha=2), Square)
assert_type(bilinear.matmul(x, x, x, beta=1, workspace=np.empty(9)), NDArray[np.float32])
assert_type(bilinear.matmul(a, kept), Square)
assert_type(bilinear.matmul(a, a, dtype=np.float32), NDArray[np.float32])
assert_type(bilinear.matmul(a, a, dtype="float32"), NDArray[Any])
assert_type(bilinear.matmul([[1, 2]], [[3], [4]]), NDArray[Any])
assert_type(bilinear.matmul(t, t, algorithm="strassen:2"), Tensor)
assert_type(bilinear.matmul(t, t, dtype="float64"), Tensor)
assert_type(strassen.matmul(x, x, levels=2), NDArray[np.float32])
assert_type(strassen.matmul(t, t), Tensor)
assert_type(bilinear.einsum("ij,jk->ik", x, x), NDArray[np.float32])
assert_type(bilinear.einsum("ij,jk->ik", t, t), Tensor)
assert_type(bilinear.tensordot(t, t), Tensor)
assert_type(bilinear.gram(x), NDArray[np.float32])
assert_type(bilinear.gram(t), Tensor)
assert_type(bilinear.multi_dot([x, x, x]), NDArray[np.float32])
assert_type(bilinear.multi_dot([t, t]), Tensor)
assert_type(bilinear.matmul(a, x), NDArray[Any])
bilinear.tensordot(a, [[1.0], [2.0]], 1)
assert_type(bilinear.matmul_bits(t, t), Tensor)
assert_type(bilinear.matmul_parts((x, x), (x, x)), tuple[NDArray[np.float32], NDArray[np.float32]])

bilinear.matmul(a, a, workspace=1.5)  # type: ignore[call-overload]
bilinear.matmul(a, a, levels="2")  # type: ignore[call-overload]
bilinear.matmul(a, 3, casting="some")  # type: ignore[call-overload]
bilinear.gram(a, workspace=1.5)  # type: ignore[arg-type]
