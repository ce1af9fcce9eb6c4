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
    ("syrk", "float64", "16384"),
    ("syrk", "float32", "16384"),
    ("jax", "float32", "16384"),
    ("jax", "float64", "16384"),
)


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


def jax(dtype: str, size: int) -> dict[str, object]:
    """The same by `jnp.matmul` at the precision of the type, which XLA is not to put into CUDA graphs."""
    os.environ |= {"XLA_FLAGS": "--xla_gpu_enable_command_buffer=", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    import jax as j

    j.config.update("jax_enable_x64", True)
    a, b = (j.random.randint(j.random.key(i), (size, size), -3, 4).astype(dtype) for i in range(2))
    multiply = j.jit(lambda a, b: j.numpy.matmul(a, b, precision="highest"))
    times, c = timed(lambda: multiply(a, b).block_until_ready(), lambda: None)
    exact = a[:64].astype("float64") @ b.astype("float64")
    return {"first": times[0], "seconds": sorted(times[1:])[1], "right": bool((c[:64] == exact).all())}


def syrk(dtype: str, size: int) -> dict[str, object]:
    """The lower triangle of A A^T on integers by cuBLAS's syrk: the median seconds, and whether rows are exact and the others untouched."""
    import cupy as cp
    import numpy as np

    a, c, one = (
        cp.random.RandomState(3).randint(-3, 4, (size, size)).astype(dtype),
        cp.full((size, size), 7, dtype),
        np.array([1, 0], dtype),
    )
    function, handle = getattr(cp.cuda.cublas, f"{'s' if dtype == 'float32' else 'd'}syrk"), cp.cuda.device.get_cublas_handle()
    first, second = one.ctypes.data, one[1:].ctypes.data
    words = handle, 0, 1, size, size, first, a.data.ptr, size, second, c.data.ptr, size  # by columns A^T is transposed
    times, _ = timed(lambda: function(*words), cp.cuda.Device().synchronize)
    exact = cp.triu(a[:64].astype("float64") @ a.astype("float64").T)  # in rows what cuBLAS has in columns
    right = bool((cp.triu(c[:64]) == exact).all()) and bool((cp.tril(c, -1) == cp.tril(cp.full_like(c, 7), -1)).all())
    return {"first": times[0], "seconds": sorted(times[1:])[1], "right": right}


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
        from preload_lu import lu

        name, kind, count = sys.argv[1:]
        print(
            json.dumps(
                {"lu": lu, "gemm": gemm, "torch": torch, "svd": svd, "small": small, "syrk": syrk, "jax": jax}[name](kind, int(count))
            )
        )
        return
    from common import need_gpu, parser_of, save

    parser = parser_of(__doc__)
    parser.add_argument("--log", type=Path, default=Path("preload.jsonl"), help="where the stand-in says what it took")
    asked = parser.parse_args()
    need_gpu()
    save("preload", compared(asked.log), asked.json)


if __name__ == "__main__":
    main()
