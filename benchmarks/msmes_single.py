"""MSMES on one GPU: from which size on each of its levels is ahead, and what operands in unified memory cost.

Beside chapters 3 and 4 of A. G. Krishnan, Fast and Memory Efficient Strassen's Matrix Multiplication on GPU Cluster, Concordia, 2021.
Unified memory is that of `cudaMallocManaged`; a call is timed by the host's clock where pages move. Each result is checked on integers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from time import monotonic, perf_counter
from typing import Any

import numpy as np
from common import Call, classical, cupy, exact_calls, interleaved, need_gpu, parser_of, save

import bilinear
from bilinear.planner.plan import Plan

SIZES = (512, 640, 768, 896, 1024, 1152, 1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192, 12288)
LEVELS = (1, 2, 3)
ROUNDS, REPEATS = 5, 2
MOVED = 8192  # The size for which pages move.
LARGE, SHARE = 12288, 0.6
"""The size that does not fit, and the part of its operands for which memory is left."""
PATIENCE = 10.0  # Seconds after which no further multiply is tried with too little memory.
Row = dict[str, Any]


def msmes_plan(n: int, dtype: str, levels: int) -> Plan:
    """MSMES with A and B restored, in the tile that is predicted to be the fastest."""
    return bilinear.plan(n, n, n, dtype, device="h200", inputs="restore", levels=("msmes",) * levels)


def fill(x: Any, seed: int) -> None:
    """Small integers, made on the device."""
    x[...] = cupy.random.default_rng(seed).integers(-2, 3, x.shape)


def crossover(n: int, dtype: str) -> Row:
    """Milliseconds of the libraries and of one, two and three levels."""
    a, b, c = (cupy.empty((n, n), dtype) for _ in range(3))
    fill(a, 1)
    fill(b, 2)
    calls = classical(a, b, c)
    for levels in LEVELS:
        calls[f"msmes {levels}"] = partial(bilinear.matmul, a, b, c, plan=msmes_plan(n, dtype, levels))
    exact = exact_calls(calls, a, b, c)
    ms = {name: round(median(times), 4) for name, times in interleaved(calls, ROUNDS).items()}
    return {"part": "levels", "n": n, "dtype": dtype, "ms": ms, "exact": exact}


@contextmanager
def memory_of(managed: bool) -> Iterator[None]:
    """New arrays lie in unified memory, or on the device."""
    if not managed:
        yield
        return
    pool = cupy.cuda.MemoryPool(cupy.cuda.malloc_managed)
    with cupy.cuda.using_allocator(pool.malloc):
        yield


def on_host(x: Any) -> Any:
    """A managed array as NumPy's; who writes it has its pages move to the host."""
    kind = ctypes.c_double if x.dtype == np.float64 else ctypes.c_float
    return np.ctypeslib.as_array((kind * x.size).from_address(x.data.ptr)).reshape(x.shape)


def seconds(call: Call) -> float:
    """The time of one call by the host's clock."""
    cupy.cuda.Device().synchronize()
    begun = perf_counter()
    call()
    cupy.cuda.Device().synchronize()
    return perf_counter() - begun


def multiplies(n: int, dtype: str, a: Any, b: Any, c: Any) -> dict[str, Call]:
    """CuPy's multiply, and one and two levels of MSMES."""
    own = {f"msmes {levels}": partial(bilinear.matmul, a, b, c, plan=msmes_plan(n, dtype, levels)) for levels in (1, 2)}
    return {"cupy": partial(cupy.matmul, a, b, out=c), **own}


def placed(n: int, dtype: str) -> Iterator[Row]:
    """Each multiply on the device's memory, and on unified memory: pages resident, or on the host before."""
    for where in ("device", "resident", "on the host"):
        with memory_of(where != "device"):
            a, b, c = (cupy.empty((n, n), dtype) for _ in range(3))
        fill(a, 1)
        fill(b, 2)
        kept = [x.get() for x in (a, b)]
        wanted = cupy.asarray(kept[0]) @ cupy.asarray(kept[1])
        for name, call in multiplies(n, dtype, a, b, c).items():
            times = []
            for _ in range(REPEATS):
                if where == "on the host":
                    for x, values in ((a, kept[0]), (b, kept[1]), (c, np.nan)):
                        on_host(x)[...] = values
                else:
                    c[...] = cupy.nan
                times.append(seconds(call))
            exact = bool((c == wanted).all()) and all(bool((x == cupy.asarray(y)).all()) for x, y in zip((a, b), kept, strict=True))
            ms = [round(1e3 * time, 2) for time in times]
            yield {"part": "memory", "n": n, "dtype": dtype, "where": where, "what": name, "ms": ms, "exact": exact}


def crowded(n: int, dtype: str) -> Iterator[Row]:
    """Each multiply on operands in unified memory of which a share only fits on the device, for the rest of it is taken."""
    total = 3 * n * n * np.dtype(dtype).itemsize
    with memory_of(True):
        a, b, c = (cupy.empty((n, n), dtype) for _ in range(3))
    host = np.random.default_rng(1).integers(-2, 3, (n, n)).astype(dtype)
    calls = multiplies(n, dtype, a, b, c)
    with memory_of(True):
        small = [cupy.zeros((1024, 1024), dtype) for _ in range(3)]
    for call in multiplies(1024, dtype, *small).values():  # kernels are loaded while there is memory
        call()
    cupy.get_default_memory_pool().free_all_blocks()
    taken = cupy.cuda.alloc(max(0, cupy.cuda.runtime.memGetInfo()[0] - int(SHARE * total)))
    for name, call in calls.items():
        for x, values in ((a, host), (b, host), (c, np.nan)):
            on_host(x)[...] = values
        took = seconds(call)
        ms, exact = [round(1e3 * took, 1)], sampled(c, host)
        yield {"part": "crowded", "n": n, "dtype": dtype, "what": name, "ms": ms, "left": SHARE, "exact": exact}
        if took > PATIENCE:
            break
    del taken


def sampled(c: Any, host: Any) -> bool:
    """Whether some rows of C are those of the square of a matrix."""
    rows = range(0, len(host), len(host) // 8)
    return bool((on_host(c)[rows] == host[rows] @ host).all())


def managed_memory() -> dict[str, int]:
    """What the device says of unified memory."""
    attributes = cupy.cuda.Device().attributes
    names = ("ManagedMemory", "ConcurrentManagedAccess", "PageableMemoryAccess", "DirectManagedMemAccessFromHost")
    return {name: int(attributes[name]) for name in names if name in attributes}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--parts", default="levels,memory,crowded", help="what to measure, by default all three")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin with no further measurement after so long")
    options = parser.parse_args()
    need_gpu()
    begun, rows = monotonic(), list[Row]([{"part": "device", **managed_memory()}])
    print(rows[0], flush=True)

    def keep(found: Callable[[], Iterator[Row]]) -> None:
        try:
            for row in found():
                rows.append(row)
                print(row, flush=True)
                if monotonic() - begun > options.seconds:
                    print("stopped", flush=True)
                    return
        except Exception as error:  # of any layer: it is what is to be told
            rows.append({"part": "failed", "why": f"{type(error).__name__}: {error}"})
            print(rows[-1], flush=True)
        finally:
            cupy.get_default_memory_pool().free_all_blocks()

    parts = options.parts.split(",")
    if "levels" in parts:
        keep(lambda: (crossover(n, dtype) for dtype in ("float64", "float32") for n in SIZES))
    if "memory" in parts:
        keep(partial(placed, MOVED, "float64"))
        keep(partial(placed, MOVED, "float32"))
    save("msmes_single", rows, options.json)  # what follows may not end
    if "crowded" in parts:
        keep(partial(crowded, LARGE, "float64"))
    save("msmes_single", rows, options.json)


if __name__ == "__main__":
    main()
