"""The many-core paper's variants beside `numpy.matmul`: one to five levels, one thread and more, as in its figures 5 to 12.

Every number of threads gets a process of its own, which may run on that many cores; its BLAS takes as many threads. Calls run in turn, each
exact on integers, with a workspace that is touched once and kept between calls. `load` is the machine's load average before and after:
above the number of cores, other programs took part of the time. Then `--clock processor` compares the processors' seconds of all threads
of the process, which others disturb less; waiting threads of a BLAS may count in them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

LEVELS = 3  # Of the counts.
BLOCKS = 2**LEVELS
NAMES = {"s_mm": "S-MM", "r_s_mm": "R-S-MM", "w_mm": "W-MM"}


def on_threads(threads: int, options: list[str]) -> list[dict[str, Any]]:
    """The rows of a process on this many cores."""
    named = {name: str(threads) for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")}
    command = [sys.executable, __file__, "--here", str(threads), *options]
    done = subprocess.run(command, env=os.environ | named, stdout=subprocess.PIPE, text=True, check=True)
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}


def here(
    threads: int, sizes: list[int], dtypes: list[str], algorithms: list[tuple[str, int]], repeats: int, clock: str
) -> list[dict[str, Any]]:
    """The rows of this process, which NumPy joins only now: it counts the cores that are left to it."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:threads]))
    variants = [(name, level) for name, most in algorithms for level in range(1, most + 1)]
    rows = []
    for dtype in dtypes:
        for size in sizes:
            before = os.getloadavg()[0]
            found = measured(size, dtype, variants, repeats, CLOCKS[clock])
            load = [round(x, 2) for x in (before, os.getloadavg()[0])]
            rows += [row | {"threads": threads, "clock": clock, "load": load} for row in found]
            print(threads, dtype, size, load, file=sys.stderr, flush=True)
    return rows


def measured(size: int, dtype: str, variants: list[tuple[str, int]], repeats: int, clock: Callable[[], float]) -> list[dict[str, Any]]:
    """A row a variant and number of levels: its median beside the library's, the ratio of both, and that of their fastest runs."""
    import numpy as np
    from common import by_clock

    import bilinear
    from bilinear.frontend import load
    from bilinear.lowering.place import place_schedule
    from bilinear.lowering.prepare import prepare

    generator, itemsize = np.random.default_rng(7), np.dtype(dtype).itemsize
    a, b = (generator.integers(-4, 5, (size, size)).astype(dtype) for _ in range(2))
    wanted, c, workspaces = a @ b, np.empty((size, size), dtype), {}
    for name, levels in variants:
        loaded = load(name)
        schedule = prepare(loaded.scheme, loaded.schedule, levels, "preserve").schedule
        workspaces[name, levels] = place_schedule(schedule, size, size, size, itemsize).workspace_elements * itemsize
    buffer = np.full(max(workspaces.values()), 255, np.uint8)  # touched once, as a program that multiplies often would have it
    calls: dict[str, Callable[[], object]] = {"numpy": partial(np.matmul, a, b, out=c)}
    for name, levels in variants:
        calls[f"{name} {levels}"] = partial(bilinear.matmul, a, b, c, algorithm=name, levels=levels, workspace=buffer)
    exact = {}
    for way, call in calls.items():
        c[...] = np.nan
        call()
        exact[way] = bool(np.array_equal(c, wanted))
    times = by_clock(calls, repeats, clock)
    library, best = median(times["numpy"]), min(times["numpy"])
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    rows = []
    for (name, levels), workspace in workspaces.items():
        way = f"{name} {levels}"
        seconds = median(times[way])
        told = {"seconds": seconds, "library_seconds": library, "ratio": library / seconds, "best_ratio": best / min(times[way])}
        row = {"size": size, "dtype": dtype, "algorithm": name, "levels": levels, "exact": exact[way]}
        row |= {key: float(f"{value:.4g}") for key, value in told.items()}
        rows.append(row | {"workspace_bytes": workspace, "processors": processors})
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Ratios to the library, a line for each variant, type, number of threads and size; and what a second level costs, as in figure 5."""
    levels = range(1, max(row["levels"] for row in rows) + 1)
    lines = [
        "| variant | type | threads | N | library, ms | " + " | ".join(f"{n} level{'s' * (n > 1)}" for n in levels) + " | second level |",
        "|---|---|--:|--:|--:|" + "--:|" * (len(levels) + 1),
    ]
    found: dict[tuple[Any, ...], dict[int, dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["algorithm"], row["dtype"], row["threads"], row["size"]), {})[row["levels"]] = row
    for (name, dtype, threads, size), each in found.items():
        ratios = " | ".join(f"{each[n]['ratio']:.2f}" if n in each else "" for n in levels)
        more = f"{each[2]['seconds'] / each[1]['seconds'] - 1:+.0%}" if 2 in each else ""
        ms = 1e3 * each[1]["library_seconds"]
        lines.append(f"| {NAMES.get(name, name)} | {dtype} | {threads} | {size} | {ms:.1f} | {ratios} | {more} |")
    return "\n".join(lines)


def counts(sizes: list[int], most_levels: int) -> str:
    """Table 3 by its own rule, and what really runs: operations, calls, and kilobytes of temporaries in float32."""
    from recursion_counts import published_counts, recursion_counts

    from bilinear.frontend import load

    lines = ["| N | levels | variant | operations | calls | KB | all operations | all calls |", "|--:|--:|---|--:|--:|--:|--:|--:|"]
    for size in sizes:
        for level in range(1, most_levels + 1):
            for file, name in NAMES.items():
                schedule, on_entry = load(file).schedule, name == "R-S-MM"
                assert schedule is not None
                told, every = (count(schedule, size, level, on_entry) for count in (published_counts, recursion_counts))
                own = f"{told.operations:,} | {told.calls} | {told.storage * 4 // 1024:,}"
                lines.append(f"| {size} | {level} | {name} | {own} | {every.operations:,} | {every.calls} |")
    return "\n".join(lines)


def extents(text: str) -> list[int]:
    """Positive integers separated by commas."""
    words = text.split(",")
    if not all(word.strip().isdecimal() and int(word) for word in words):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of positive integers, such as 512,1024")
    return [*map(int, words)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=extents, default="512,1024,1984", help="comma-separated N of square multiplies")
    parser.add_argument("--dtypes", default="float64,float32")
    parser.add_argument("--algorithms", default="s_mm:2,w_mm:2,r_s_mm:5", help="variants, each with its most levels")
    parser.add_argument("--threads", type=extents, default="1,2")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--json", type=Path, help="where the results go as JSON")
    parser.add_argument("--counts", action="store_true", help="print operations, calls and storage at these sizes instead")
    parser.add_argument("--here", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.counts and any(size % BLOCKS for size in options.sizes):
        parser.error(f"argument --sizes: --counts needs multiples of {BLOCKS}: {LEVELS} levels of 2 x 2 blocks divide them")
    if options.here is not None:
        algorithms = [(name, int(most)) for name, _, most in (word.partition(":") for word in options.algorithms.split(","))]
        rows = here(options.here, options.sizes, options.dtypes.split(","), algorithms, options.repeats, options.clock)
        print(json.dumps(rows))
        return
    if options.counts:
        print(counts(options.sizes, LEVELS))
        return
    own = [f"--{name}={getattr(options, name)}" for name in ("dtypes", "algorithms", "repeats", "clock")]
    own.append(f"--sizes={','.join(map(str, options.sizes))}")
    rows = [row for threads in options.threads for row in on_threads(threads, own)]
    print(table(rows))
    if not all(row["exact"] for row in rows):
        sys.exit("a variant was not exact")
    if options.json is not None:
        from common import save

        save("many_core", rows, options.json)


if __name__ == "__main__":
    main()
