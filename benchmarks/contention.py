"""Products of a stage that add to one block of C: in groups one after the other (colours), or all at once by atomic additions.

MSMES and Winograd's scheme in place, with A and B restored, beside CuPy's multiply, in shuffled rounds. Each call is exact on integers. On
normal data three calls tell whether the bits of C are the same each time.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from common import cupy, exact_calls, interleaved, median, need_gpu, parser_of, save

import bilinear
from bilinear.ir.placement import CONTENTION
from bilinear.planner.plan import Plan
from bilinear.runtime.ahead import fill_cache

ALGORITHMS, LEVELS, SIZES, ROUNDS = ("msmes", "winograd_in_place"), (1, 2), (2048, 4096, 8192, 16384), 5


def measure(n: int, dtype: str) -> dict[str, Any]:
    """Milliseconds by call, and which calls are exact and give the same bits each time."""
    generator = cupy.random.default_rng(1)
    a, b = (generator.integers(-2, 3, (n, n)).astype(dtype) for _ in range(2))
    c = cupy.empty((n, n), dtype)
    calls = {"cupy": partial(cupy.matmul, a, b, out=c)}
    plans = list[Plan]()
    for name in ALGORITHMS:
        for levels in LEVELS:
            for contention in CONTENTION:
                how: dict[str, Any] = {"inputs": "restore", "contention": contention}
                plans.append(bilinear.plan(n, n, n, dtype, levels=(name,) * levels, **how))
                calls[f"{name} {levels} {contention}"] = partial(bilinear.matmul, a, b, c, algorithm=name, levels=levels, **how)
    fill_cache(plans)  # several kernels at once
    exact, same = exact_calls(calls, a, b, c), {}
    kept = a.copy(), b.copy()
    for name, call in calls.items():
        found = []
        for _ in range(3):
            a[...], b[...] = kept
            call()
            found.append(c.copy())
        same[name] = all(bool((x == found[0]).all()) for x in found[1:])
    ms = {name: round(median(times), 4) for name, times in interleaved(calls, ROUNDS).items()}
    return {"n": n, "dtype": dtype, "ms": ms, "exact": exact, "same bits": same}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="the extents")
    parser.add_argument("--dtypes", default="float64,float32", help="the element types")
    options = parser.parse_args()
    need_gpu()
    rows = []
    for dtype in options.dtypes.split(","):
        for n in map(int, options.sizes.split(",")):
            rows.append(measure(n, dtype))
            print(rows[-1], flush=True)
            save("contention", rows, options.json)
            cupy.get_default_memory_pool().free_all_blocks()


if __name__ == "__main__":
    main()
