"""Products with a short side on the device alone: `auto`, and the product kernel with sums whole and in parts, beside the libraries.

Shapes are drawn evenly by the logarithm of their sides, the same ones for a seed: of floats those whose rows begin at multiples of 16
bytes, which the kernel is weighed for down to 17 rows and columns, and of doubles wide ones, which `cublas.suits_lt` is about.
"""

from __future__ import annotations

import argparse
import random
from math import exp, log, prod
from pathlib import Path
from time import monotonic
from typing import Any

from common import need_gpu, on_device, pinned, save, tell_row

from bilinear.ir.measurement import Shape
from bilinear.ir.tile import MMA_FLOAT64, TILES
from bilinear.planner.policy import Policy

FAMILIES = {"float32": 80, "float64": 20}
MULTIPLE = 4
"""Elements of 16 bytes."""
LEAST, MOST = 2e5, 1e10
"""Multiplications of a product of floats."""
IN_DOUBLES = tuple(name for name, tile in TILES["float32"].items() if tile.instruction == MMA_FLOAT64)
"""The tiles for floats on the units for doubles."""
PARTS = 4
"""Levels of `split_k` that are timed at most, each of which halves the sums."""
ROUNDS, IN_A_ROW = 7, 10


def drawn(seed: int, dtype: str, is_uneven: bool = False) -> list[Shape]:
    """The shapes of an element type; floats with rows of any length and shorter sides where they shall be uneven."""
    draw, found = random.Random(seed), list[Shape]()

    def side(least: int, most: int) -> int:
        return round(exp(draw.uniform(log(least), log(most))))

    while len(found) < FAMILIES[dtype]:
        if dtype == "float64":
            found.append((side(8, 32), side(2000, 5000), side(7000, 20000)))
            continue
        if is_uneven:
            shape = side(4, 8192), side(64, 8192), side(4, 16384)
        else:
            k, n = (max(1, side(least, most) // MULTIPLE) * MULTIPLE for least, most in ((16, 8192), (16, 16384)))
            shape = side(17, 8192), k, n
        if LEAST <= prod(shape) <= MOST:
            found.append(shape)
    return found


def measure(shape: Shape, dtype: str) -> dict[str, Any]:
    """A row of results: of doubles without plans, for none is weighed there."""
    plans: dict[str, Any] = {}
    least = dict(Policy().least_plain_block)
    if dtype in least:
        plans |= pinned(shape, dtype, ("classical",), IN_DOUBLES)
        for parts in range(1, PARTS + 1):
            if shape[1] >> parts >= least[dtype][1]:
                plans |= pinned(shape, dtype, ("split_k",) * parts, IN_DOUBLES)
    return on_device(shape, dtype, plans, ROUNDS, IN_A_ROW)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--uneven", action="store_true", help="floats alone, with rows of any length and shorter sides")
    parser.add_argument("--seconds", type=float, help="begin with no further shape after so long")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    need_gpu()
    start, rows = monotonic(), []
    families = ("float32",) if options.uneven else tuple(FAMILIES)
    for shape, dtype in [(shape, family) for family in families for shape in drawn(options.seed, family, options.uneven)]:
        if options.seconds is not None and monotonic() - start > options.seconds:
            print("stopped", flush=True)
            break
        rows.append(measure(shape, dtype))
        tell_row(rows[-1])
    save("thin", rows, options.json)


if __name__ == "__main__":
    main()
