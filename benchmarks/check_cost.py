"""What `bilinear.check` costs on a GPU beside the multiply that it checks. A planted error must be found.

Times are medians of shuffled rounds between events, host time included; the share is the check's time over the multiply's.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from common import cupy, interleaved, median, need_gpu, save

import bilinear

ROUNDS = 7
WAYS: tuple[tuple[str, dict[str, Any]], ...] = (("auto", {}), ("library", {"algorithm": "classical"}))
Row = dict[str, Any]


def measure(n: int, dtype: str) -> Row:
    """One size and type."""
    draw = cupy.random.default_rng(n)
    a, b = (draw.standard_normal((n, n), dtype=dtype) for _ in "ab")
    c = bilinear.matmul(a, b)
    found = bilinear.check(a, b, c)
    kept = c[n // 2, n // 3].copy()
    c[n // 2, n // 3] += 8 * found.bound
    is_found = bilinear.check(a, b, c).estimate > 2 * found.estimate
    c[n // 2, n // 3] = kept
    calls = {name: partial(bilinear.matmul, a, b, c, **options) for name, options in WAYS}
    ms = {name: median(times) for name, times in interleaved({**calls, "check": partial(bilinear.check, a, b, c)}, ROUNDS).items()}
    share = {name: round(ms["check"] / ms[name], 4) for name in calls}
    return {"n": n, "dtype": dtype, "ms": ms, "share": share, "relative": found.relative, "planted": is_found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[8192, 16384])
    parser.add_argument("--dtypes", nargs="+", default=["float64", "float32"])
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    need_gpu()
    rows = []
    for dtype in asked.dtypes:
        for n in asked.sizes:
            rows.append(measure(n, dtype))
            print(*(f"{key} {value}" for key, value in rows[-1].items()), sep="  ", flush=True)
            cupy.get_default_memory_pool().free_all_blocks()
    save("check_cost", rows, asked.json)
    if not all(row["planted"] for row in rows):
        raise SystemExit("a planted error was not found")


if __name__ == "__main__":
    main()
