"""Products of floats whose rows do not begin at multiples of 16 bytes, in the tiles on the units for doubles, on the device alone.

The kernel alone, and below one or two levels of Winograd's scheme or one of Hopcroft and Kerr's, beside the libraries.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from common import need_gpu, on_device, pinned, save, tell_row

from bilinear.ir.tile import LARGE, MMA_FLOAT64, SMALL, USUAL, tile_on

EVEN = ((4096, 4096, 4096), (4097, 4096, 4096))
UNEVEN = (
    *((4096, 4097, 4096), (4096, 4096, 4097)),
    *((n, n, n) for n in (1001, 1777, 2667, 3109, 4097)),
    *((8887, 2731, 9491), (2887, 3677, 15643), (741, 5099, 3089), (7311, 529, 1643)),
    *((175, 1601, 9117), (276, 965, 11202), (3301, 769, 7), (8075, 13585, 135)),
)
WAYS = {("classical",): 0, ("winograd",): 1700, ("winograd", "winograd"): 1700, ("hopcroft_kerr",): 2600}
"""Levels that are timed, and from which shortest side on."""
ROUNDS, IN_A_ROW = 5, 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    need_gpu()
    rows = []
    for shape in (*EVEN, *UNEVEN):
        plans: dict[str, Any] = {}
        for levels, least in WAYS.items():
            if min(shape) >= least:
                sizes = (USUAL, LARGE) if least else (USUAL, LARGE, SMALL)
                plans |= pinned(shape, "float32", levels, (tile_on("float32", MMA_FLOAT64.unit, size) for size in sizes))
        rows.append(on_device(shape, "float32", plans, ROUNDS, IN_A_ROW))
        tell_row(rows[-1])
    save("uneven", rows, options.json)


if __name__ == "__main__":
    main()
