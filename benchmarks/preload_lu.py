"""An LU with row exchanges as HPL does it: by halves, so that products are large, with narrow panels in registers beside updates.

The program calls cuBLAS for gemm and trsm, and nothing in it knows of bilinear.
"""

from __future__ import annotations

import ctypes
import time
from pathlib import Path
from typing import Any

BLOCK, WIDTH = 1024, 32
"""The columns whose exchanges run together in all others; the columns of a panel in registers, as preload_lu.cu has it."""
SOLVED = 256  # The rows that trsm solves at once; more are halved.
THREADS = 512  # As preload_lu.cu has it.


class Factors:
    """The LU of a matrix in place, by rows, and where its rows were. To cuBLAS the matrix is its transpose, by columns."""

    def __init__(self, dtype: str, size: int, looks_ahead: bool = True) -> None:
        import cupy as cp
        import numpy as np

        self.size, self.looks_ahead = size, looks_ahead
        letter, real = ("S", "float") if dtype == "float32" else ("D", "double")
        text = Path(__file__).with_suffix(".cu").read_text(encoding="utf-8")
        kernels = cp.RawModule(code=f"#define REAL {real}\n{text}")
        self._narrow, self._few, self._list, self._many = map(
            kernels.get_function, ("narrow", "exchange_few", "list_moved", "exchange_many")
        )
        self._bytes = 2 * BLOCK * 64
        self._many.max_dynamic_shared_size_bytes = self._bytes
        blas, place, number = cublas(), ctypes.c_void_p, ctypes.c_int
        self._gemm, self._trsm = (getattr(blas, f"cublas{letter}{name}_v2") for name in ("gemm", "trsm"))
        self._gemm.argtypes = (place, *[number] * 5, place, place, number, place, number, place, place, number)
        self._trsm.argtypes = (place, *[number] * 6, place, place, number, place, number)
        self._gemm.restype = self._trsm.restype = _succeeded
        self._sides = [(cp.cuda.Stream(non_blocking=True, priority=p), place()) for p in (0, -5)]
        for stream, handle in self._sides:
            blas.cublasCreate_v2(ctypes.byref(handle))
            blas.cublasSetStream_v2(handle, place(stream.ptr))
        self._handle = self._sides[0][1]
        self._epoch, self._factors = 0, np.array([1, -1], dtype)
        self._graphs: dict[tuple[int, int], Any] = {}
        blocks = -(-size // THREADS)
        self._offered = cp.zeros(8 * blocks * (WIDTH + 1), np.uint32)
        self._where, self._moved = cp.zeros((2, WIDTH), np.int32), cp.zeros(1 + 4 * BLOCK, np.int32)
        self._same = cp.arange(size, dtype=np.int32)
        self.rows, self._origin = self._same.copy(), self._same.copy()

    def run(self, a: Any) -> None:
        """Factor a matrix. The host does not wait."""
        import cupy as cp

        self.a, self._ahead = a, -1
        self.rows[...] = self._same
        stream, _ = self._sides[0]
        stream.wait_event(cp.cuda.Stream.null.record())
        with stream:
            self._factor(0, self.size)
        cp.cuda.Stream.null.wait_event(stream.record())

    def _at(self, row: int, column: int) -> int:
        return int(self.a.data.ptr + row * self.a.strides[0] + column * self.a.strides[1])

    def _factor_at(self, value: int) -> int:
        """Where 1 or -1 is."""
        return int(self._factors[value != 1 :].ctypes.data)

    def _subtract(self, rows: slice, columns: slice, inner: slice) -> None:
        """A[rows, columns] -= A[rows, inner] A[inner, columns]."""
        m, n, k = columns.stop - columns.start, rows.stop - rows.start, inner.stop - inner.start
        left, right = self._at(inner.start, columns.start), self._at(rows.start, inner.start)
        target = self._factor_at(1), self._at(rows.start, columns.start), self.size
        self._gemm(self._handle, 0, 0, m, n, k, self._factor_at(-1), left, self.size, right, self.size, *target)

    def _solve(self, i: int, j: int, columns: slice) -> None:
        """A[i:j, columns] = L^-1 A[i:j, columns]."""
        if j - i > SOLVED:
            middle = (i + j) // 2
            self._solve(i, middle, columns)
            self._subtract(slice(middle, j), columns, slice(i, middle))
            self._solve(middle, j, columns)
            return
        factor = self._factor_at(1), self._at(i, i), self.size, self._at(i, columns.start), self.size
        self._trsm(self._handle, 1, 1, 0, 1, columns.stop - columns.start, j - i, *factor)

    def _factor(self, i: int, j: int) -> None:
        """The LU of A[i:, i:j], with its exchanges in all columns. The right half's first block runs beside the update of the others."""
        if j - i == BLOCK:
            if self._ahead != i:
                self._block(i, self._sides[0][0])
            self._exchange(i)
            return
        middle = (i + j) // 2
        inner, below, near = slice(i, middle), slice(middle, self.size), slice(middle, middle + BLOCK)
        self._factor(i, middle)
        self._solve(i, middle, near)
        self._subtract(below, near, inner)
        if near.stop < j:
            far, done = slice(near.stop, j), None
            if self.looks_ahead:
                main, stream = (side for side, _ in self._sides)
                stream.wait_event(main.record())
                self._block(middle, stream)
                done, self._ahead = stream.record(), middle
            self._solve(i, middle, far)
            self._subtract(below, far, inner)
            if done is not None:
                main.wait_event(done)
        self._factor(middle, j)

    def _block(self, first: int, stream: Any) -> None:
        """The LU of BLOCK columns, with its exchanges in them, and in the numbers of the rows: one graph of many short launches."""
        key, (side, handle), (_, own) = (self.a.data.ptr, first), self._sides[1], self._sides[0]
        if key not in self._graphs:
            with side:
                side.begin_capture()
                self._handle, self._epoch = handle, 0
                self._origin[...] = self._same
                self._offered.fill(0)
                self._panel(first, first + BLOCK, first)
                self._handle = own
                self._graphs[key] = side.end_capture()
        self._graphs[key].launch(stream)

    def _panel(self, i: int, j: int, first: int) -> None:
        import numpy as np

        if j - i > WIDTH:
            middle = (i + j) // 2
            self._panel(i, middle, first)
            self._solve(i, middle, slice(middle, j))
            self._subtract(slice(middle, self.size), slice(middle, j), slice(i, middle))
            self._panel(middle, j, first)
            return
        rows, lead, (source, target) = self.size - i, np.int64(self.size), self._where
        marks = self._offered, np.int32(self._epoch), source, target
        self._narrow((-(-rows // THREADS),), (THREADS,), (self.a, lead, np.int32(i), np.int32(rows), *marks))
        columns = np.int32(first), np.int32(first + BLOCK)
        self._few((BLOCK // 64 + 1,), (64,), (self.a, lead, np.int32(i), *columns, self._origin, source, target))
        self._epoch += 1

    def _exchange(self, first: int) -> None:
        """The exchanges of a block in all other columns."""
        import numpy as np

        self._moved[:1] = 0
        self._list((-(-(self.size - first) // 256),), (256,), (self._origin, np.int32(first), np.int32(self.size), self._moved))
        columns = self.size * self.a.itemsize // 64
        given = self.a, np.int64(self.size), np.int32(first), np.int32(first + BLOCK), self._moved
        self._many((columns,), (512,), given, shared_mem=self._bytes)
        self.rows[...] = self.rows[self._origin]

    def solution(self, b: Any) -> Any:
        """x of A x = b."""
        import cupy as cp

        x = b[self.rows]
        cp.cuda.Device().synchronize()
        for lower, unit in ((1, 1), (0, 0)):
            self._trsm(self._handle, 1, lower, 0, unit, 1, self.size, self._factor_at(1), self._at(0, 0), self.size, x.data.ptr, 1)
        cp.cuda.Device().synchronize()
        return x


def _succeeded(status: int) -> None:
    if status:
        raise RuntimeError(f"cuBLAS answers {status}")


def cublas() -> Any:
    """The cuBLAS that CuPy has loaded, for calls that may be captured and take little time on the host."""
    import cupy as cp

    cp.ones((2, 2)) @ cp.ones((2, 2))
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return ctypes.CDLL(next(line.split()[-1] for line in lines if "/libcublas.so" in line))


def lu(dtype: str, size: int) -> dict[str, object]:
    """Solve A x = b: seconds, and HPL's residual, which is to be below 16."""
    import cupy as cp

    def given() -> Any:
        return cp.random.RandomState(7).rand(size, size, dtype=dtype) - cp.asarray(0.5, dtype)

    times, found, a = [], Factors(dtype, size), given()
    for _ in range(3):
        a[...] = given()
        cp.cuda.Device().synchronize()
        began = time.perf_counter()
        found.run(a)
        cp.cuda.Device().synchronize()
        times.append(time.perf_counter() - began)
    b = cp.random.RandomState(8).rand(size, dtype=dtype)
    x = found.solution(b)
    residual = residual_of(given(), x, b)
    return {"first": times[0], "seconds": min(times[1:]), "residual": residual, "right": residual < 16}


def residual_of(a: Any, x: Any, b: Any) -> float:
    """max|A x - b| / (roundoff * (norm of A * max|x| + max|b|) * N), as HPL takes it; A x in float64."""
    import cupy as cp

    parts = [slice(i, i + BLOCK) for i in range(0, len(b), BLOCK)]
    far = max(float(cp.abs(a[part].astype("float64") @ x.astype("float64") - b[part]).max()) for part in parts)
    norm = max(float(cp.abs(a[part]).sum(axis=1).max()) for part in parts)
    return far / (float(cp.finfo(a.dtype).eps) * (norm * float(cp.abs(x).max()) + float(cp.abs(b).max())) * len(b))
