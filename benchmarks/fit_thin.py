"""Fit what a description says of the tiles on the units for doubles to `thin.py` and `uneven.py`, beside the points of `model.py`.

First all rates of those tiles, to thin products and to the points of `model.py`; then what rows cost that do not begin at multiples of 16
bytes, to uneven products alone, for the points of `model.py` timed another text of the kernel there. As in `fit_device.py` one rate after
the other is moved by smaller and smaller steps. The library's rates are not touched.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

import fit_device
from fit_device import OF_TILES, Point, What, errors, fit, together
from model import plan_of, profile

from bilinear.ir.tile import MMA_FLOAT64, TILES
from bilinear.planner.device import Device
from bilinear.planner.device_files import device_json, load_device
from bilinear.planner.model import is_aligned
from bilinear.planner.ways import Way
from bilinear.writing import write_file

NAME = re.compile(r"(\w+), (\d) levels?, tile ([\w-]+)")
OF_THIN, OF_UNEVEN = (*OF_TILES, "share", "accumulating", "epilogue", "strip"), ("unaligned", "scattered", "scattered_epilogue")
"""The rates that each run tells of."""
OFTEN, WORST = 1.5, 0.1
"""How much more the mean error at the points of `model.py` counts than that at thin products, and the worst error of either."""


def points(file: Path) -> Iterator[Point]:
    """The plans for floats that were timed, by their names; the libraries and `auto` have none."""
    for row in json.loads(file.read_text())["rows"]:
        for name, us in row["us"].items():
            told = NAME.fullmatch(name)
            if told is not None and row["dtype"] == "float32":
                way, tile = Way((told[1],) * int(told[2])), told[3]
                yield row["dtype"], us * 1e-3, profile(way), plan_of(way, tuple(row["shape"]), row["dtype"], tile)


def is_of(what: What, names: tuple[str, ...]) -> bool:
    """Whether it is a rate of these names, of floats in all tiles or in one on the units for doubles."""
    dtype, tile, name = what
    return dtype == "float32" and name in names and (tile is None or TILES[dtype][tile].instruction == MMA_FLOAT64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, nargs="+", required=True, help="points of model.py")
    parser.add_argument("--thin", type=Path, nargs="+", required=True)
    parser.add_argument("--uneven", type=Path, required=True)
    parser.add_argument("--device", default="h200", help="where the search begins")
    parser.add_argument("--output", "-o", type=Path, required=True)
    options = parser.parse_args()
    known = [p for p in fit_device.points([r for r in together(options.model) if not r["held_out"]]) if p[0] == "float32"]
    known = [p for p in known if is_aligned(p[3].k, p[3].n, p[0])]
    thin, uneven = [point for file in options.thin for point in points(file)], list(points(options.uneven))

    def off(device: Device) -> float:
        of_known, of_thin = errors(device, known), errors(device, thin)
        return OFTEN * statistics.fmean(of_known) + statistics.fmean(of_thin) + WORST * max(of_known) + WORST / 4 * max(of_thin)

    device = fit(load_device(options.device), off, lambda what: is_of(what, OF_THIN))
    device = fit(device, lambda d: fit_device.off(d, uneven), lambda what: is_of(what, OF_UNEVEN))
    for name, found in (("model.py", known), ("thin.py", thin), ("uneven.py", uneven)):
        off_by = sorted(errors(device, found))
        told = f"median {statistics.median(off_by):.1%}, 90 % below {off_by[int(0.9 * len(off_by))]:.1%}, worst {off_by[-1]:.1%}"
        print(f"{name}: {len(off_by)} points, |log(predicted / measured)|: {told}")
    write_file(options.output, device_json(device))


if __name__ == "__main__":
    main()
