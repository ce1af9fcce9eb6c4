"""A matrix times a vector: the four partitions of a lecture as tiles of the kernel for thin products, beside the library.

G. Zachmann, *Massively Parallel Algorithms: Dense Matrix Algorithms*, University of Bremen (2013): one thread for a row, several threads
for a row, several rows for a thread, and both. A tile has 4 columns, of which 3 stay empty: reading A is all that takes time. The first two
read A only by rows, because a thread reads neighbouring rows of a column together.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median
from typing import Any

from common import cupy, need_gpu, queued, save
from rank_updates import own_call
from thin_auto import copy_rate, libraries, matrix

from bilinear.backends.loaded_kernels import load_function
from bilinear.codegen.cuda.nvrtc import build_all
from bilinear.codegen.cuda.target import target_of
from bilinear.codegen.render import render
from bilinear.ir.element import ELEMENTS
from bilinear.ir.matrix import layout_of
from bilinear.ir.thin_tile import THIN_TILES, ThinTile
from bilinear.methods.thin.launches import kernel_for

PARTITIONS = {
    "a thread for a row": ThinTile(128, 4, 16, 128, 1, 1, 3, 4),
    "threads for a row": ThinTile(16, 4, 64, 16, 1, 16, 4, 2),
    "rows for a thread": ThinTile(512, 4, 8, 128, 1, 1, 4, 4),
    "threads for rows": ThinTile(64, 4, 64, 16, 1, 16, 4, 2),
}
SHAPES = (20_480, 20_480), (1_000_000, 256), (4_096, 65_536)
ROUNDS, IN_A_ROW = 7, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    need_gpu()
    copy, rows, target = copy_rate(), list[dict[str, Any]](), target_of(cupy.cuda.Device().compute_capability)
    for dtype in THIN_TILES:
        for order in "CF":
            for m, k in SHAPES:
                a, b = matrix((m, k), dtype, order, 1), matrix((k, 1), dtype, order, 2)
                c = cupy.empty((m, 1), dtype, order=order)
                found = {
                    name: kernel_for(ELEMENTS[dtype], tile, layout_of(a), layout_of(b), layout_of(c), is_aligned=True)
                    for name, tile in PARTITIONS.items()
                    if tile.admits(ELEMENTS[dtype].lanes, order == "C", True)
                }
                images = build_all([(render(kernel), kernel.name, target) for kernel in found.values()])
                calls = libraries(a, b, c)
                for (name, kernel), image in zip(found.items(), images, strict=True):
                    calls[name] = own_call(load_function(image.image, kernel.name, kernel.shared_bytes), kernel, a, b, c)
                wanted, wrong = cupy.matmul(a.astype("float64"), b.astype("float64")), list[str]()
                for name, call in calls.items():
                    c[...] = cupy.nan
                    call()
                    wrong += [] if bool((c == wanted).all()) else [name]
                us = {name: round(1e3 * median(values), 2) for name, values in queued(calls, ROUNDS, IN_A_ROW).items()}
                moved = (m * k + k + m) * a.itemsize / 1e3
                shares = {name: round(moved / copy / own, 3) for name, own in us.items()}
                rows.append({"m": m, "k": k, "dtype": dtype, "order": order, "us": us, "shares": shares, "wrong": wrong})
                print(dtype, m, k, order, shares, wrong, flush=True)
    save("matvec", rows, options.json)


if __name__ == "__main__":
    main()
