"""Points for the model of thin products: tiles of the thin kernel on drawn shapes.

Writes what `fit_thin_points.py` reads: rows of a shape (m, n, k), an order, a type, and [tile, parts of sums, microseconds] of every tile
that suits. All kernels are built first, by one process a core.
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

from common import need_gpu, save

from bilinear.codegen.build import build_kernel
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.ir.tile import THIN_TILES
from bilinear.measure.thin_stand import Stand, drawn, kernel_of, problem_of
from bilinear.planner.device_files import load_device
from bilinear.planner.thin import thin_candidates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shapes", type=int, default=160, help="of each type")
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    need_gpu()
    device, rows = load_device("h200"), list[dict[str, Any]]()
    for dtype in THIN_TILES:
        cases = list(islice(drawn(options.seed), options.shapes))
        found = [(case, list(thin_candidates(problem_of(case, dtype), device))) for case in cases]
        kernels = {kernel_of(case, dtype, own.tile) for case, candidates in found for own in candidates}
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda one: build_kernel(one, CudaTarget(options.target)), kernels))
        stand = Stand(dtype)
        for case, candidates in found:
            us = [(own.tile, own.parts_of_sums, stand.thin(case, own)) for own in candidates]
            rows.append({"shape": case.shape, "order": case.order, "dtype": dtype, "thin": us})
    save("thin_points", rows, options.json)


if __name__ == "__main__":
    main()
