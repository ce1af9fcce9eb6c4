"""A program that calls cuBLAS by ctypes on integers. Prints each case, how often cuBLAS multiplied, and whether C is exact."""

import ctypes
import itertools
import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

LIBRARY = ctypes.CDLL(sys.argv[1])
TYPES = {"S": (0, "float32"), "D": (1, "float64"), "C": (4, "complex64"), "Z": (5, "complex128")}
RNG = np.random.default_rng(5)
HANDLE = ctypes.c_void_p()
LIBRARY.cublasCreate_v2(ctypes.byref(HANDLE))


def numbers(dtype: str, *shape: int) -> np.ndarray:
    """Small integers; for complex types in both parts."""
    real = RNG.integers(-3, 4, shape).astype(dtype)
    return real + 1j * RNG.integers(-3, 4, shape).astype(dtype) if np.dtype(dtype).kind == "c" else real


def at(x: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(x.ctypes.data)


def case(letter: str, ta: int, tb: int, m: int, n: int, k: int, alpha: complex, beta: complex, way: str, pad: int) -> tuple[int, bool]:
    """Call one function; how often cuBLAS multiplied, and whether C, and what lies between its columns, is as it should be."""
    number, dtype = TYPES[letter]
    batch = 3 if way == "batched" else 1
    a, b = (numbers(dtype, batch, *shape) for shape in (((k, m + pad), (m, k + pad))[ta > 0], ((n, k + pad), (k, n + pad))[tb > 0]))
    c = numbers(dtype, batch, n, m + pad)
    if beta == 0:
        c[:, :, :m] = np.nan  # is never read
    x, y = a[:, :, : k if ta else m], b[:, :, : n if tb else k]  # in rows what cuBLAS has in columns
    x, y = (z.transpose(0, 2, 1) if op else z for z, op in ((x, ta), (y, tb)))
    x, y = (z.conj() if op == 2 else z for z, op in ((x, ta), (y, tb)))
    wide = "complex128" if letter in "CZ" else "float64"
    exact, was = np.einsum("bnk,bkm->bnm", y.astype(wide), x.astype(wide)), c.copy()  # of integers far below 2^53
    was[:, :, :m] = alpha * exact + (beta * was[:, :, :m] if beta else 0)
    scalars = [np.array(value, dtype) for value in (alpha, beta)]
    before = ctypes.c_int.in_dll(LIBRARY, "fake_products").value
    lda, ldb, ldc = (z.shape[2] for z in (a, b, c))
    head, keep = (HANDLE, ta, tb, m, n, k, at(scalars[0])), at(scalars[1])
    first: Any
    second: Any
    third: Any
    compute = (70 if letter in "DZ" else 68) + (way == "pedantic")
    if way == "plain":
        status = getattr(LIBRARY, f"cublas{letter}gemm_v2")(*head, at(a), lda, at(b), ldb, keep, at(c), ldc)
    elif way == "batched":
        function, long = getattr(LIBRARY, f"cublas{letter}gemmStridedBatched_64"), ctypes.c_int64
        first, second, third = ((at(z), long(z.shape[2]), long(z[0].size)) for z in (a, b, c))
        status = function(HANDLE, ta, tb, long(m), long(n), long(k), at(scalars[0]), *first, *second, keep, *third, long(batch))
    elif way in ("typed", "pedantic"):
        first, second, third = ((at(z), number, z.shape[2]) for z in (a, b, c))
        status = LIBRARY.cublasGemmEx(*head, *first, *second, keep, *third, compute, -1)
    else:
        how = np.array([compute, number, 0, ta, tb, 0, 0, 4 if way == "bias" else 1], "int64")
        each = (a, m if not ta else k), (b, k if not tb else n), (c, m)  # type, order, rows, columns, leading dimension, batch, step, none
        layouts = [np.array([number, 0, rows, z.shape[1], z.shape[2], 1, 0, 0], "int64") for z, rows in each]
        first, second, third = ((at(z), at(layout)) for (z, _), layout in zip(each, layouts, strict=True))
        status = LIBRARY.cublasLtMatmul(
            None, at(how), at(scalars[0]), *first, *second, keep, *third, *third, None, None, ctypes.c_size_t(0), None
        )
    assert status == 0, status
    return ctypes.c_int.in_dll(LIBRARY, "fake_products").value - before, bool(np.array_equal(c, was))


def syrk(letter: str, triangle: int, transposed: int, n: int, k: int, alpha: float, beta: float, suffix: str) -> tuple[int, bool]:
    """The same for a matrix times its transpose: one triangle of C is written, and what beta = 0 does not read is NaN."""
    dtype = TYPES[letter][1]
    a, c = numbers(dtype, *((n, k + 2) if transposed else (k, n + 2))), numbers(dtype, n, n + 5)
    rows, columns = np.triu_indices(n) if triangle == 0 else np.tril_indices(n)  # in rows what cuBLAS has in columns
    if beta == 0:
        c[rows, columns] = np.nan
    x, was = (a[:, :k] if transposed else a[:, :n].T).astype("float64"), c.copy()
    was[rows, columns] = alpha * (x @ x.T)[rows, columns] + (beta * was[rows, columns] if beta else 0)
    scalars = [np.array(value, dtype) for value in (alpha, beta)]
    before = ctypes.c_int.in_dll(LIBRARY, "fake_products").value
    function, extent = getattr(LIBRARY, f"cublas{letter}syrk_v2{suffix}"), ctypes.c_int64 if suffix else ctypes.c_int
    words = HANDLE, triangle, transposed, extent(n), extent(k), at(scalars[0]), at(a), extent(a.shape[1])
    assert function(*words, at(scalars[1]), at(c), extent(c.shape[1])) == 0
    return ctypes.c_int.in_dll(LIBRARY, "fake_products").value - before, bool(np.array_equal(c, was))


def half(compute: int) -> bool:
    """Whether cuBLAS gets a product of float16 numbers, which nothing here multiplies otherwise."""
    a, one, before = np.ones((9, 9), "float16"), np.ones(1, "float32"), ctypes.c_int.in_dll(LIBRARY, "fake_products").value
    words = at(a), 2, 9, at(a), 2, 9, at(one), at(a), 2, 9
    assert LIBRARY.cublasGemmEx(HANDLE, 0, 0, 9, 9, 9, at(one), *words, compute, -1) == 0
    return ctypes.c_int.in_dll(LIBRARY, "fake_products").value == before + 1


def cases() -> Iterator[tuple[Any, ...]]:
    for letter, way in itertools.product("SDCZ", ("plain", "batched", "typed", "lt")):
        operations = itertools.product(range(3 if letter in "CZ" else 2), repeat=2)
        for number, (ta, tb) in enumerate(operations):
            alpha = 2 - 1j if letter in "CZ" else -2
            yield letter, ta, tb, 9 + number, 12 - number, 8 + 2 * number, alpha, (0, 1, 3)[number % 3], way, (0, 5)[number % 2]
    yield "D", 0, 0, 2, 2, 2, 1, 0, "plain", 0  # too small
    yield "S", 0, 0, 77, 7, 7, 1, 0, "lt", 0
    yield "D", 0, 0, 9, 9, 9, 1, 1, "pedantic", 0
    yield "S", 0, 0, 9, 9, 9, 1, 1, "bias", 0


found = [[*map(str, one), *case(*one)] for one in cases()]
for number, one in enumerate(itertools.product("SD", (0, 1), (0, 1), ("", "_64"))):
    words = *one[:3], 33 + number, 20 + number, -2.0, (0.0, 1.0, 3.0)[number % 3], one[3]
    found.append(["syrk", *map(str, words), *syrk(*words)])
found += [["half", str(compute), 1, half(compute)] for compute in (68, 64)]
LIBRARY.cublasSetMathMode(HANDLE, 3)
found.append(["TF32", *case("S", 0, 0, 9, 9, 9, 1, 0, "plain", 0)])
LIBRARY.cublasSetMathMode(HANDLE, 16)
LIBRARY.cublasSetPointerMode_v2(HANDLE, 1)
found.append(["pointers", *case("S", 0, 0, 9, 9, 9, 1, 0, "plain", 0)])
LIBRARY.cublasSetPointerMode_v2(HANDLE, 0)
found.append(["S", "again", *case("S", 0, 0, 9, 9, 9, 1, 0, "plain", 0)])
LIBRARY = ctypes.CDLL(sys.argv[2])  # another copy, whose functions stay its own
found.append(["second", *case("S", 0, 0, 9, 9, 9, 1, 0, "plain", 0)])
print(json.dumps(found))
