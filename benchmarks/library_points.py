"""Points of the library's calls on drawn thin products, as `fit_library_points.py` reads them."""

from __future__ import annotations

import argparse
import csv
import io
import lzma
from pathlib import Path

from common import need_gpu

from bilinear.ir.thin_tile import THIN_TILES
from bilinear.methods.thin.rates import MOST_BRIEF, ThinBench


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=50, help="for each type")
    parser.add_argument("--brief", type=float, default=MOST_BRIEF, help="the share of drawn short products that is kept")
    parser.add_argument("--output", "-o", type=Path, required=True)
    options = parser.parse_args()
    need_gpu()
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for dtype in THIN_TILES:
        for one in ThinBench().thin_library(dtype, options.seconds, seed=options.seed, brief=options.brief):
            writer.writerow((*one.shape, one.order, dtype, *one.kernels, f"{one.cublas:.4g}", f"{one.cublaslt:.4g}"))
    options.output.write_bytes(lzma.compress(text.getvalue().encode(), preset=9))


if __name__ == "__main__":
    main()
