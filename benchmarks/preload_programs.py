"""Programs that call cuBLAS and know nothing of bilinear, run with the stand-in and without it: `python benchmarks/preload_programs.py`.

Each is a process of its own, `preload_programs.py lu float64 32768`, and prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PROGRAMS = (
    ("lu", "float64", "32768"),
    ("lu", "float32", "32768"),
    ("small", "float32", "64"),
    ("gemm", "float32", "16384"),
    ("gemm", "float64", "16384"),
    ("svd", "float32", "2048"),
    ("torch", "float32", "16384"),
    ("gemm", "complex64", "8192"),
)
RANDOM: tuple[tuple[Any, ...], ...] = (
    ("random", "small", "2000", {"BILINEAR_LEAST": "1"}),
    ("random", "large", "400", {}),
)
SECONDS = 25.0  # What a run of random calls may take; it tells how many there were.
BLOCK = 1024  # The columns that an LU leaves to cuSOLVER and to trsm.


def lu(dtype: str, size: int) -> dict[str, object]:
    """Solve A x = b by an LU with row exchanges, blocked by halves, as HPL does: seconds, and HPL's residual, which is to be below 16."""
    import cupy as cp
    import numpy as np
    from cupyx.scipy.linalg import lu_factor  # type: ignore[import-not-found]

    gemm, handle, one = gemm_of(dtype), cp.cuda.device.get_cublas_handle(), np.ones(1, dtype)
    trsm = cp.cuda.cublas.strsm if dtype == "float32" else cp.cuda.cublas.dtrsm

    def subtract(rows: slice, columns: slice, inner: slice) -> None:
        """A[rows, columns] -= A[rows, inner] A[inner, columns], which are column-major matrices to cuBLAS, transposed."""
        m, n, k = columns.stop - columns.start, rows.stop - rows.start, inner.stop - inner.start
        left, right, target = at(inner.start, columns.start), at(rows.start, inner.start), at(rows.start, columns.start)
        gemm(0, 0, m, n, k, -1, left, size, right, size, 1, target, size)

    def at(row: int, column: int) -> int:
        return int(a.data.ptr + row * a.strides[0] + column * a.strides[1])

    def solve(i: int, j: int, columns: slice) -> None:
        """A[i:j, columns] = L^-1 A[i:j, columns]."""
        if j - i <= BLOCK:
            factor = one.ctypes.data, at(i, i), size, at(i, columns.start), size
            trsm(handle, 1, 1, 0, 1, columns.stop - columns.start, j - i, *factor)
            return
        middle = (i + j) // 2
        solve(i, middle, columns)
        subtract(slice(middle, j), columns, slice(i, middle))
        solve(middle, j, columns)

    def factor(i: int, j: int) -> None:
        """The LU of A[i:, i:j], with its exchanges in all columns."""
        if j - i > BLOCK:
            middle = (i + j) // 2
            factor(i, middle)
            solve(i, middle, slice(middle, j))
            subtract(slice(middle, size), slice(middle, j), slice(i, middle))
            factor(middle, j)
            return
        panel, pivots = lu_factor(a[i:, i:j], check_finite=False)
        order = exchanged(size - i, pivots.tolist())
        moved = np.flatnonzero(order != np.arange(size - i))
        a[i + cp.asarray(moved)] = a[i + cp.asarray(order[moved])]
        a[i:, i:j] = panel
        rows[i:] = rows[i:][order]

    times = []
    for _ in range(3):
        a = cp.random.RandomState(7).rand(size, size, dtype=dtype) - cp.asarray(0.5, dtype)
        rows = np.arange(size)
        cp.cuda.Device().synchronize()
        began = time.perf_counter()
        factor(0, size)
        cp.cuda.Device().synchronize()
        times.append(time.perf_counter() - began)
    given = cp.random.RandomState(7).rand(size, size, dtype=dtype) - cp.asarray(0.5, dtype)
    b = cp.random.RandomState(8).rand(size, dtype=dtype)
    x = b[cp.asarray(rows)]
    trsm(handle, 1, 1, 0, 1, 1, size, one.ctypes.data, at(0, 0), size, x.data.ptr, 1)
    trsm(handle, 1, 0, 0, 0, 1, size, one.ctypes.data, at(0, 0), size, x.data.ptr, 1)
    residual = residual_of(given, x, b)
    return {"first": times[0], "seconds": min(times[1:]), "residual": residual, "right": residual < 16}


def exchanged(count: int, pivots: list[int]) -> Any:
    """The order of rows after each was exchanged with its pivot in turn."""
    import numpy as np

    places = list(range(count))
    for row, other in enumerate(pivots):
        places[row], places[other] = places[other], places[row]
    return np.array(places)


def residual_of(a: Any, x: Any, b: Any) -> float:
    """max|A x - b| / (roundoff * (norm of A * max|x| + max|b|) * N), as HPL takes it; A x in float64."""
    import cupy as cp

    parts = [slice(i, i + BLOCK) for i in range(0, len(b), BLOCK)]
    far = max(float(cp.abs(a[part].astype("float64") @ x.astype("float64") - b[part]).max()) for part in parts)
    norm = max(float(cp.abs(a[part]).sum(axis=1).max()) for part in parts)
    return far / (float(cp.finfo(a.dtype).eps) * (norm * float(cp.abs(x).max()) + float(cp.abs(b).max())) * len(b))


def gemm_of(dtype: str) -> Any:
    """cuBLAS's gemm of a type on CuPy's handle, with factors in the host's memory."""
    import cupy as cp
    import numpy as np

    letter = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}[dtype]
    function, handle = getattr(cp.cuda.cublas, f"{letter}gemm"), cp.cuda.device.get_cublas_handle()

    def gemm(
        ta: int, tb: int, m: int, n: int, k: int, alpha: complex, a: int, lda: int, b: int, ldb: int, beta: complex, c: int, ldc: int
    ) -> None:
        factors = np.array([alpha, beta], dtype)
        function(handle, ta, tb, m, n, k, factors.ctypes.data, a, lda, b, ldb, factors[1:].ctypes.data, c, ldc)

    return gemm


def gemm(dtype: str, size: int) -> dict[str, object]:
    """`a @ b` of CuPy on integers: the median seconds, and whether rows of the result are exact."""
    import cupy as cp

    rng = cp.random.RandomState(3)
    a, b = (rng.randint(-3, 4, (size, size)).astype(dtype) for _ in range(2))
    times, c = timed(lambda: a @ b, cp.cuda.Device().synchronize)
    exact = cp.asarray(a[:64].real, "float64") @ cp.asarray(b.real, "float64")
    return {"first": times[0], "seconds": sorted(times[1:])[1], "right": bool((c[:64] == exact).all())}


def torch(dtype: str, size: int) -> dict[str, object]:
    """The same by `torch.mm`."""
    import torch as t

    a, b = (t.randint(-3, 4, (size, size), device="cuda").to(getattr(t, dtype)) for _ in range(2))
    times, c = timed(lambda: t.mm(a, b), t.cuda.synchronize)
    return {"first": times[0], "seconds": sorted(times[1:])[1], "right": bool((c[:64].double() == a[:64].double() @ b.double()).all())}


def svd(dtype: str, size: int) -> dict[str, object]:
    """`cupy.linalg.svd`: seconds, and how far U S V is from A in units of its norm and of the roundoff."""
    import cupy as cp

    a = cp.random.RandomState(3).standard_normal((size, size)).astype(dtype)
    times, (u, s, v) = timed(lambda: cp.linalg.svd(a), cp.cuda.Device().synchronize, 2)
    far = float(cp.linalg.norm((u * s).astype("float64") @ v.astype("float64") - a) / cp.linalg.norm(a) / cp.finfo(dtype).eps)
    return {"first": times[0], "seconds": times[-1], "residual": far, "right": far < 100}


def small(dtype: str, size: int) -> dict[str, object]:
    """A thousand products too small for another way: the least seconds of several rounds."""
    import cupy as cp

    a, b, c = (cp.ones((size, size), dtype) for _ in range(3))
    multiply = gemm_of(dtype)

    def thousand() -> None:
        for _ in range(1000):
            multiply(0, 0, size, size, size, 1, a.data.ptr, size, b.data.ptr, size, 0, c.data.ptr, size)

    times, _ = timed(thousand, cp.cuda.Device().synchronize, 30)
    return {"first": times[0], "seconds": min(times), "right": bool((c == size).all())}


def timed(function: Any, wait: Any, count: int = 4) -> tuple[list[float], Any]:
    times, result = [], None
    for _ in range(count):
        result = None
        wait()
        began = time.perf_counter()
        result = function()
        wait()
        times.append(time.perf_counter() - began)
    return times, result


def random(way: str, count: int) -> dict[str, object]:
    """Random calls on integers against cublasGemmEx in pedantic mode, which is cuBLAS's own: how many there were, and wrong."""
    import cupy as cp
    import numpy as np

    rng, pool = np.random.default_rng(int(os.environ.get("SEED", "1"))), cp.random.RandomState(1)
    cublas, handle = cp.cuda.cublas, cp.cuda.device.get_cublas_handle()
    codes = {"float32": (0, 69), "float64": (1, 71), "complex64": (4, 69), "complex128": (5, 71)}
    least, largest = (1, 1500) if way == "small" else (1000, 3000)
    extents = [int(e) for e in rng.integers(least, largest, 6)]
    memory = pool.randint(-3, 4, 4 * (largest + 40) ** 2)
    began, done, wrong, refused = time.perf_counter(), 0, [], 0
    streams = [cp.cuda.Stream.null, cp.cuda.Stream(non_blocking=True)]
    while done < count and time.perf_counter() - began < SECONDS:
        dtype = str(rng.choice(list(codes)))
        is_complex = dtype.startswith("complex")
        ta, tb = (int(op) for op in rng.integers(0, 3 if is_complex else 2, 2))
        m, n, k = (int(e) for e in rng.choice(extents, 3))
        lda, ldb, ldc = (int(rows + rng.choice([0, 1, 8, 33])) for rows in ((m, k)[ta > 0], (k, n)[tb > 0], m))
        sizes = lda * (k, m)[ta > 0], ldb * (n, k)[tb > 0], ldc * n
        a, b, c = (memory[int(rng.integers(0, 9)) :][:size].astype(dtype) for size in sizes)
        if is_complex:
            a, b, c = (x + 1j * x[::-1] for x in (a, b, c))
        alpha, beta = (rng.choice([1, 2, -1]), rng.choice([0, 0, 1, -2]))
        if beta == 0:
            c.reshape(n, ldc)[:, :m] = np.nan
        factors, expected = np.array([alpha, beta], dtype), c.copy()
        on_device = rng.random() < 0.1
        stream = streams[int(rng.integers(0, 2))]
        cp.cuda.Device().synchronize()
        with stream:
            cublas.setStream(handle, stream.ptr)
            given = cp.asarray(factors)
            stream.synchronize()
            first = given.data.ptr if on_device else factors.ctypes.data
            pointers = first, first + factors.itemsize
            cublas.setPointerMode(handle, int(on_device))
            function = getattr(cublas, f"{dict(zip(codes, 'sdcz', strict=True))[dtype]}gemm")
            function(handle, ta, tb, m, n, k, pointers[0], a.data.ptr, lda, b.data.ptr, ldb, pointers[1], c.data.ptr, ldc)
            code, compute = codes[dtype]
            operands = a.data.ptr, code, lda, b.data.ptr, code, ldb, pointers[1], expected.data.ptr, code, ldc
            cublas.gemmEx(handle, ta, tb, m, n, k, pointers[0], *operands, compute, -1)
            cublas.setPointerMode(handle, 0)
            stream.synchronize()
        done, refused = done + 1, refused + on_device
        if not bool((c == expected).all()):
            wrong.append([dtype, ta, tb, m, n, k, lda, ldb, ldc, int(alpha), int(beta), on_device])
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "calls": done, "wrong": len(wrong), "examples": wrong[:3], "on_device": refused, "right": not wrong}


def run(words: tuple[str, ...], with_it: bool, variables: dict[str, str], log: str) -> dict[str, Any]:
    """A program as a process of its own."""
    before = [sys.executable, "-m", "bilinear", "run-with", *(("--log", log) if log else ()), "--"] if with_it else []
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    environment = {**os.environ, "PYTHONPATH": paths, **(variables if with_it else {})}
    command = [*before, sys.executable, __file__, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        return {"failed": done.returncode, "why": done.stderr[-600:]}
    return {**json.loads(done.stdout.splitlines()[-1]), "said": done.stderr[-300:]}


def compared(log: Path) -> list[dict[str, Any]]:
    """All programs in both ways."""
    rows: list[dict[str, Any]] = []
    for *way, variables in RANDOM:
        told = log.with_suffix(f".{way[1]}")
        found = run(tuple(way), True, variables, str(told))
        found["taken"] = sum(json.loads(line)["plan"] != "library" for line in told.read_text().splitlines())
        rows.append({"program": " ".join(way), "bilinear": found})
        print(json.dumps(rows[-1]), flush=True)
    for words in PROGRAMS:
        times = 3 if words[0] in ("small", "svd") else 1  # of short programs, in turn, the fastest
        pairs = [[run(words, with_it, {}, "" if words[0] == "small" else str(log)) for with_it in (False, True)] for _ in range(times)]
        without, beside = (min(found, key=lambda one: one.get("seconds", 0.0)) for found in zip(*pairs, strict=True))
        ratio = without["seconds"] / beside["seconds"] if "seconds" in without and "seconds" in beside else None
        rows.append({"program": " ".join(words), "ratio": ratio, "cuBLAS": without, "bilinear": beside})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    if len(sys.argv) == 4:  # a program, which imports nothing of bilinear
        name, kind, count = sys.argv[1:]
        print(json.dumps({"lu": lu, "gemm": gemm, "torch": torch, "svd": svd, "small": small, "random": random}[name](kind, int(count))))
        return
    from common import need_gpu, parser_of, save

    parser = parser_of(__doc__)
    parser.add_argument("--log", type=Path, default=Path("preload.jsonl"), help="where the stand-in says what it took")
    asked = parser.parse_args()
    need_gpu()
    save("preload", compared(asked.log), asked.json)


if __name__ == "__main__":
    main()
