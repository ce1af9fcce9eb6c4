"""Points for the model of thin products: the library's calls on its grid of extents, and tiles of the thin kernel on drawn shapes.

Writes what `fit_thin_points.py` reads: the library's times as a description has them, and rows of a shape, an order, a type, the times of
the library's calls and [tile, parts of sums, microseconds] of our own. All kernels are built first, by one process a core.
"""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
from common import need_gpu, save
from thin_stand import MOST_ELEMENTS, Shape, Stand, layouts, library_times

from bilinear.backends.thin import kernel_for
from bilinear.codegen.build import build_kernel
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.ir.element import ELEMENTS
from bilinear.ir.kernel import ThinKernel
from bilinear.ir.tile import THIN_TILES
from bilinear.planner.device_files import load_device
from bilinear.planner.plan import CUBLAS, CUBLASLT, Candidate, Thin
from bilinear.planner.problem import Problem
from bilinear.planner.thin import thin_candidates
from bilinear.planner.thin_rates import ORDERS

SHORT = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64)


def drawn(seed: int, count: int) -> Iterator[tuple[Shape, str, str]]:
    """Shapes with one or two short extents, three of four with lines at multiples of 32 bytes; orders and types."""
    draw = random.Random(seed)

    def side(least: float, most: float) -> int:
        return round(exp(draw.uniform(log(least), log(most))))

    while count:
        sides = [draw.choice(SHORT), side(300, 21_000), side(300, 21_000)]
        if draw.random() < 0.5:
            sides = [draw.choice(SHORT), draw.choice(SHORT), side(20_000, 1.2e7)]
        if draw.random() < 0.75:
            sides = [x if x < 100 else x // 8 * 8 for x in sides]
        draw.shuffle(sides)
        shape = Shape(*sides)
        if max(shape.m * shape.k, shape.k * shape.n, shape.m * shape.n) <= MOST_ELEMENTS:
            count -= 1
            yield shape, draw.choice(ORDERS), draw.choice(tuple(THIN_TILES))


def candidates(shape: Shape, order: str, dtype: str) -> list[Candidate]:
    """What may be weighed for a product with a column-major result."""
    by_column = tuple(name for name, way in zip("AB", order, strict=True) if way == "N")
    problem = Problem(shape.m, shape.k, shape.n, dtype, column_major=(*by_column, "C"))
    return list(thin_candidates(problem, load_device("h200")))


def kernel(shape: Shape, order: str, dtype: str, tile: str) -> ThinKernel:
    """The kernel of a candidate."""
    a, b, c = layouts(shape, order, np.dtype(dtype))
    if shape.n > shape.m:
        a, b, c = b.T, a.T, c.T
    return kernel_for(ELEMENTS[dtype], THIN_TILES[dtype][tile], a, b, c, is_aligned=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shapes", type=int, default=320)
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    need_gpu()
    cases = [(case, candidates(*case)) for case in drawn(options.seed, options.shapes)]
    kernels = {kernel(*case, own.tile) for case, found in cases for own in found}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda one: build_kernel(one, CudaTarget(options.target)), kernels))
    library = {dtype: library_times(dtype, lambda *_: None) for dtype in THIN_TILES}
    stands, rows = {dtype: Stand(dtype) for dtype in THIN_TILES}, list[dict[str, Any]]()
    for (shape, order, dtype), found in cases:
        calls = {name: stands[dtype].library(shape, order, name) for name in (CUBLAS, CUBLASLT)}
        thin = [(own.tile, own.parts_of_sums, Thin(own.tile, own.parts_of_sums, shape.n > shape.m)) for own in found]
        us = [(tile, parts, stands[dtype].thin(shape, order, how)) for tile, parts, how in thin]
        rows.append({"shape": shape, "order": order, "dtype": dtype, "library": calls, "thin": us})
    save("thin_points", [{"library": library}, *rows], options.json)


if __name__ == "__main__":
    main()
