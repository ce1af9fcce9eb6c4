"""Products of floats whose rows do not begin at multiples of 16 bytes, in the tiles on the units for doubles, on the device alone.

The kernel alone, and below one or two levels of Winograd's scheme or one of Hopcroft and Kerr's, beside the libraries.

Integers must come out exact, into NaN. Calls are queued (`bench_timing.queued`), so that no time of the host counts.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import cupy
from common import classical, median, save

import bilinear
from bilinear.ir.measurement import Shape
from bilinear.ir.plan import IN_DOUBLES, LARGE, SMALL, USUAL
from bilinear.runtime.bench_timing import queued

EVEN = ((4096, 4096, 4096), (4097, 4096, 4096))
UNEVEN = (
    *((4096, 4097, 4096), (4096, 4096, 4097)),
    *((n, n, n) for n in (1001, 1777, 2667, 3109, 4097)),
    *((8887, 2731, 9491), (2887, 3677, 15643), (741, 5099, 3089), (7311, 529, 1643)),
    *((175, 1601, 9117), (276, 965, 11202), (3301, 769, 7), (8075, 13585, 135)),
)
WAYS = {("classical",): 0, ("winograd",): 1700, ("winograd", "winograd"): 1700, ("hopcroft_kerr",): 2600}
"""Levels that are timed, and from which shortest side on."""
IN_A_ROW, ROUNDS = 8, 5


def ways(shape: Shape) -> dict[str, Any]:
    """The plans by name and tile."""
    found = {}
    for levels, least in WAYS.items():
        if min(shape) >= least:
            choice = bilinear.plan(*shape, "float32", device="h200", levels=levels)
            for size in (USUAL, LARGE) if least else (USUAL, LARGE, SMALL):
                tile = IN_DOUBLES + size
                pinned = replace(choice, candidates=(replace(choice.chosen, tile=tile), *choice.candidates[1:]))
                found[f"{choice.chosen.name}, tile {tile}"] = pinned
    return found


def measure(shape: Shape) -> dict[str, Any]:
    """Microseconds by call, and whether all came out exact."""
    m, k, n = shape
    generator = cupy.random.default_rng(1)
    a, b = generator.integers(-2, 3, (m, k)).astype("float32"), generator.integers(-2, 3, (k, n)).astype("float32")
    c, wanted = cupy.empty((m, n), "float32"), cupy.matmul(a.astype("float64"), b.astype("float64"))
    calls: dict[str, Any] = {**classical(a, b, c), "auto": partial(bilinear.matmul, a, b, c)}
    calls |= {name: partial(bilinear.matmul, a, b, c, plan=choice) for name, choice in ways(shape).items()}
    exact = True
    for call in calls.values():
        c[...] = cupy.nan
        call()
        exact &= bool((c == wanted).all())
    del wanted
    a[...], b[...] = (generator.standard_normal(x.shape, dtype="float32") for x in (a, b))
    times = {name: round(1e3 * median(values), 2) for name, values in queued(calls, ROUNDS, IN_A_ROW).items()}
    return {"shape": shape, "dtype": "float32", "us": times, "exact": exact}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    for shape in (*EVEN, *UNEVEN):
        rows.append(row := measure(shape))
        print("x".join(map(str, shape)), row["us"], "" if row["exact"] else "WRONG", flush=True)
    save("uneven", rows, options.json)


if __name__ == "__main__":
    main()
