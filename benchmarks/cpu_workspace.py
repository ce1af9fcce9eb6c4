"""The workspace strategy on NumPy beside `numpy.matmul`: exact on integer-valued data, and its time in the same process.

For every size, scheme and number of levels: integer-valued input must come out bit for bit as the classical multiply, whose sums are exact
in this range. Then the library and every configuration run one after the other in each round, so that all see the same machine. Times are
medians, and the ratio is the library's time over ours (above 1 we are faster); `best` is the ratio of the fastest runs, which other
programs on the machine disturb least.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import Any

import numpy as np
from common import Call, Clock, by_clock, median, parser_of, save

import bilinear
from bilinear.frontend import load
from bilinear.lowering.place import place_schedule
from bilinear.lowering.prepare import prepare

Configuration = tuple[str, int]


def workspace(size: int, dtype: str, configuration: Configuration) -> int:
    """Bytes that the call allocates beyond A, B and C."""
    name, levels = configuration
    loaded = load(name)
    itemsize = np.dtype(dtype).itemsize
    plan = place_schedule(prepare(loaded.scheme, loaded.schedule, levels, "preserve").schedule, size, size, size, itemsize)
    return plan.workspace_elements * itemsize


def measure(
    size: int, dtype: str, configurations: list[Configuration], repeats: int, fresh: bool, clock: Clock = time.perf_counter
) -> list[dict[str, Any]]:
    """One row a configuration: exactness, times, ratio."""
    generator = np.random.default_rng(7)
    a, b = (generator.integers(-4, 5, (size, size)).astype(dtype) for _ in range(2))
    wanted, c = a @ b, np.full((size, size), np.nan, dtype)
    needed = max(workspace(size, dtype, configuration) for configuration in configurations)
    buffer = None if fresh else np.full(needed, 255, np.uint8)  # touched once, as a program that multiplies often would have it
    exact = {}
    for name, levels in configurations:
        c[...] = np.nan
        bilinear.matmul(a, b, c, algorithm=name, levels=levels, workspace=buffer)
        exact[name, levels] = bool(np.array_equal(c, wanted))
    del wanted
    calls: dict[str, Call] = {"numpy": partial(np.matmul, a, b, out=c)}
    for name, levels in configurations:
        calls[f"{name} {levels}"] = partial(bilinear.matmul, a, b, c, algorithm=name, levels=levels, workspace=buffer)
    times = by_clock(calls, repeats, clock)
    library = median(times["numpy"])
    return [
        {
            "size": size,
            "dtype": dtype,
            "algorithm": name,
            "levels": levels,
            "workspace": "fresh" if fresh else "reused",
            "exact": exact[name, levels],
            "seconds": median(times[f"{name} {levels}"]),
            "library_seconds": library,
            "ratio": library / median(times[f"{name} {levels}"]),
            "best_ratio": min(times["numpy"]) / min(times[f"{name} {levels}"]),
            "workspace_bytes": workspace(size, dtype, (name, levels)),
            "all_seconds": times[f"{name} {levels}"],
            "all_library_seconds": times["numpy"],
            "processors": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        }
        for name, levels in configurations
    ]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--sizes", default="8192", help="comma-separated N of square multiplies")
    parser.add_argument("--dtypes", default="float64")
    parser.add_argument("--algorithms", default="strassen,winograd")
    parser.add_argument("--levels", default="1,2")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--fresh", action="store_true", help="allocate the workspace in every call instead of reusing one buffer")
    options = parser.parse_args()
    levels = [int(level) for level in options.levels.split(",")]
    configurations = [(name, level) for name in options.algorithms.split(",") for level in levels]
    rows: list[dict[str, Any]] = []
    print(f"{'N':>6} {'dtype':>8} {'algorithm':>10} {'levels':>6} {'seconds':>9} {'numpy':>9} {'ratio':>6} {'best':>6}  exact  workspace")
    for dtype in options.dtypes.split(","):
        for size in options.sizes.split(","):
            for row in measure(int(size), dtype, configurations, options.repeats, options.fresh):
                rows.append(row)
                times = f"{row['seconds']:9.3f} {row['library_seconds']:9.3f} {row['ratio']:6.3f} {row['best_ratio']:6.3f}"
                what = f"{row['size']:>6} {dtype:>8} {row['algorithm']:>10} {row['levels']:>6}"
                print(f"{what} {times}  {row['exact']!s:>5}  {row['workspace_bytes'] / 2**20:.0f} MiB", flush=True)
    if options.json is not None:
        save("cpu_workspace", rows, options.json)


if __name__ == "__main__":
    main()
