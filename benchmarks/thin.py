"""Products with a short side on the device alone: `auto`, and the product kernel with sums whole and in parts, beside the libraries.

Shapes are drawn evenly by the logarithm of their sides, the same ones for a seed: of floats those whose rows begin at multiples of 16
bytes, which the kernel is weighed for down to 17 rows and columns, and of doubles wide ones, which `library.Gemm.suits_lt` is about.
Integers must come out exact, into NaN. Calls are queued (`bench_timing.queued`), so that no time of the host counts.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import replace
from functools import partial
from math import exp, log, prod
from pathlib import Path
from time import monotonic
from typing import Any

import cupy
from common import classical, median, save

import bilinear
from bilinear.ir.measurement import Shape
from bilinear.ir.plan import IN_DOUBLES, SIZES
from bilinear.planner.choose import LEAST_PLAIN_BLOCK
from bilinear.runtime.bench_timing import queued

FAMILIES = {"float32": 80, "float64": 20}
MULTIPLE = 4
"""Elements of 16 bytes."""
LEAST, MOST = 2e5, 1e10
"""Multiplications of a product of floats."""
TILES = {"float32": tuple(IN_DOUBLES + size for size in SIZES), "float64": ()}
PARTS = 4
"""Levels of `split_k` that are timed at most, each of which halves the sums."""
IN_A_ROW, ROUNDS = 10, 7


def drawn(seed: int, dtype: str) -> list[Shape]:
    """The shapes of an element type."""
    draw, found = random.Random(seed), list[Shape]()

    def side(least: int, most: int) -> int:
        return round(exp(draw.uniform(log(least), log(most))))

    while len(found) < FAMILIES[dtype]:
        if dtype == "float64":
            found.append((side(8, 32), side(2000, 5000), side(7000, 20000)))
            continue
        k, n = (max(1, side(least, most) // MULTIPLE) * MULTIPLE for least, most in ((16, 8192), (16, 16384)))
        shape = side(17, 8192), k, n
        if LEAST <= prod(shape) <= MOST:
            found.append(shape)
    return found


def ways(shape: Shape, dtype: str) -> dict[str, Any]:
    """The plans of the kernel alone, in each tile, with sums whole and in parts."""
    found = {}
    for levels in (("classical",), *(("split_k",) * parts for parts in range(1, PARTS + 1))):
        if levels == ("classical",) or shape[1] >> len(levels) >= LEAST_PLAIN_BLOCK[1]:
            choice = bilinear.plan(*shape, dtype, device="h200", levels=levels)
            for tile in TILES[dtype]:
                pinned = replace(choice, candidates=(replace(choice.chosen, tile=tile), *choice.candidates[1:]))
                found[f"{choice.chosen.name}, tile {tile}"] = pinned
    return found


def measure(shape: Shape, dtype: str) -> dict[str, Any]:
    """Microseconds by call, what `auto` is, and whether all came out exact."""
    m, k, n = shape
    generator = cupy.random.default_rng(1)
    a, b = generator.integers(-2, 3, (m, k)).astype(dtype), generator.integers(-2, 3, (k, n)).astype(dtype)
    c, wanted = cupy.empty((m, n), dtype), cupy.matmul(a.astype("float64"), b.astype("float64"))
    calls: dict[str, Any] = {**classical(a, b, c), "auto": partial(bilinear.matmul, a, b, c)}
    calls |= {name: partial(bilinear.matmul, a, b, c, plan=choice) for name, choice in ways(shape, dtype).items()}
    exact = True
    for call in calls.values():
        c[...] = cupy.nan
        call()
        exact &= bool((c == wanted).all())
    draw = partial(generator.standard_normal, dtype=dtype)
    a[...], b[...] = draw(a.shape), draw(b.shape)
    times = {name: round(1e3 * median(values), 2) for name, values in queued(calls, ROUNDS, IN_A_ROW).items()}
    chosen = bilinear.plan(m, k, n, dtype, device="h200").chosen
    library = min(us for name, us in times.items() if name in ("cupy", "cublas", "torch", "cublaslt"))
    return {
        "shape": shape,
        "dtype": dtype,
        "us": times,
        "auto": chosen.name if chosen.is_library else f"{chosen.name}, tile {chosen.tile}",
        "ratio": round(library / times["auto"], 3),
        "exact": exact,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, help="begin with no further shape after so long")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    start, rows = monotonic(), []
    for shape, dtype in [(shape, family) for family in FAMILIES for shape in drawn(options.seed, family)]:
        if options.seconds is not None and monotonic() - start > options.seconds:
            print("stopped", flush=True)
            break
        rows.append(row := measure(shape, dtype))
        best = sorted((us, name) for name, us in row["us"].items() if name != "auto")[:2]
        wrong = "" if row["exact"] else "WRONG"
        print(dtype, "x".join(map(str, shape)), f"{row['ratio']:.2f} {row['auto']}; best", best, wrong, flush=True)
    save("thin", rows, options.json)


if __name__ == "__main__":
    main()
