"""A*A^T by `gram` beside what the library does: checked and timed in one process.

On processors the baseline is NumPy's `a @ a.T`, which calls BLAS's `syrk`; with `--gpu` the baselines are cuBLAS's `syrk`, which has no
float16, and the fastest library multiply of A by A^T. For every size: integer-valued input must come out bit for bit as the classical
product, whose sums are exact in this range; and normal data within `--most` of a row-wise product in a wider type, of which some rows are
computed. Then all ways run one after the other in each round. Times are medians; the ratio is the fastest baseline's time over ours
(above 1 we are faster).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from common import Call, by_clock, interleaved, median, need_gpu, parser_of, save

import bilinear
from bilinear.planner.problem import CLASSES

ROWS = 64  # Rows of the result that are compared with a product in a wider type.


def ways(a: Any, c: Any, names: list[str]) -> dict[str, Call]:
    """The ways by name: `auto`, `winograd`, `rxtx` (with the library's products), `rxtx+winograd`; `twice` is `auto` with that accuracy."""
    found: dict[str, Call] = {}
    for name in names:
        algorithm, _, products = name.partition("+")
        options: dict[str, Any] = (
            {"accuracy": name} if name in CLASSES else {"algorithm": algorithm} | ({"products": products} if products else {})
        )
        found[name] = partial(bilinear.gram, a, c, **options)
    return found


def syrk(a: Any, c: Any) -> Call:
    """cuBLAS's `syrk` of one triangle of a row-major A, in place."""
    import cupy
    from cupy_backends.cuda.libs import cublas

    n, k = a.shape
    call = {"float32": cublas.ssyrk, "float64": cublas.dsyrk}[str(a.dtype)]
    one, zero = np.ones(1, a.dtype), np.zeros(1, a.dtype)
    handle = cupy.cuda.Device().cublas_handle
    lower, transposed = 0, 1  # CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_T: A lies by rows, so cuBLAS sees its transpose
    return lambda: call(handle, lower, transposed, n, k, one.ctypes.data, a.data.ptr, k, zero.ctypes.data, c.data.ptr, n)


def baselines(a: Any, c: Any, on_gpu: bool) -> dict[str, Call]:
    """What the library does."""
    if not on_gpu:
        return {"numpy": partial(np.matmul, a, a.T, out=c)}
    import cupy
    from common import classical

    library = classical(a, a.T, c)
    return library if a.dtype == np.float16 else {"syrk": syrk(a, cupy.empty_like(c)), **library}


def error(a: Any, c: Any) -> float:
    """max|C - A*A^T| / max|A|^2 of some rows, by sums in a wider type; on a GPU of some columns of them, too."""
    rows = np.linspace(0, len(a) - 1, min(ROWS, len(a))).astype(int)
    if hasattr(a, "get"):
        from residues import exact_sums

        sampled = a[rows].astype("float64")
        high, low = exact_sums(sampled, sampled.T)
        return float((abs((c[rows][:, rows] - high) - low).max() / abs(a).max() ** 2).get())
    wide = np.longdouble if a.dtype == np.float64 else np.float64
    wanted = a[rows].astype(wide) @ a.astype(wide).T
    return float(np.abs(c[rows] - wanted).max() / np.abs(a).max() ** 2)


def measure(n: int, k: int, dtype: str, names: list[str], repeats: int, on_gpu: bool, clock: Callable[[], float]) -> list[dict[str, Any]]:
    """One row a way."""
    xp: Any = import_module("cupy") if on_gpu else np
    generator = xp.random.default_rng(7)
    whole = generator.integers(-4, 5, (n, k)).astype(dtype)
    wanted, c = xp.matmul(whole, whole.T), xp.empty((n, n), dtype)
    exact, errors = {}, {}
    for name, call in ways(whole, c, names).items():
        c[...] = xp.nan
        call()
        exact[name] = bool((c == wanted).all())
    del wanted
    a = generator.standard_normal((n, k), dtype="float32").astype(dtype) if dtype == "float16" else generator.standard_normal((n, k), dtype)
    calls = ways(a, c, names)
    for name, call in calls.items():
        call()
        errors[name] = error(a, c), bool((c == c.T).all())
    library = baselines(a, c, on_gpu)
    if on_gpu:
        times = {name: [ms * 1e-3 for ms in found] for name, found in interleaved({**library, **calls}, repeats).items()}
    else:
        times = by_clock({**library, **calls}, repeats, clock)
    seconds = {name: median(found) for name, found in times.items()}
    best = min(library, key=lambda name: seconds[name])
    shared = {"n": n, "k": k, "dtype": dtype, "library": best, "library_seconds": {name: seconds[name] for name in library}}
    return [
        shared
        | {"way": name, "exact": exact[name], "error": errors[name][0], "symmetric": errors[name][1]}
        | {"seconds": seconds[name], "ratio": seconds[best] / seconds[name]}
        for name in calls
    ]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--sizes", default="2048,4096", help="comma-separated N, or NxK")
    parser.add_argument("--dtypes", default="float64,float32")
    parser.add_argument("--ways", default="auto,winograd,rxtx,rxtx+winograd")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument(
        "--clock", choices=("wall", "processor"), default="wall", help="processor: of all threads; on a busy machine, with one thread"
    )
    options = parser.parse_args()
    if options.gpu:
        need_gpu()
    clock = time.process_time if options.clock == "processor" else time.perf_counter
    rows: list[dict[str, Any]] = []
    print(f"{'N':>6} {'K':>6} {'type':>8} {'way':>14} {'seconds':>9} {'library':>9} {'ratio':>6} {'error':>8}  exact")
    for dtype in options.dtypes.split(","):
        for size in options.sizes.split(","):
            n, _, k = size.partition("x")
            for row in measure(int(n), int(k or n), dtype, options.ways.split(","), options.repeats, options.gpu, clock):
                rows.append(row | {"clock": options.clock})
                figures = f"{row['seconds']:9.4f} {row['library_seconds'][row['library']]:9.4f} {row['ratio']:6.3f} {row['error']:8.2g}"
                good = row["exact"] and row["symmetric"]
                print(f"{row['n']:>6} {row['k']:>6} {dtype:>8} {row['way']:>14} {figures}  {good}", flush=True)
    if not all(row["exact"] and row["symmetric"] for row in rows):
        raise SystemExit("a result is wrong")
    if options.json is not None:
        save("gram", rows, options.json)


if __name__ == "__main__":
    main()
