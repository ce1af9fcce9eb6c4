"""Fit the rates of the thin kernel in a description to what `thin_points.py` measured."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from bilinear.ir.thin_tile import THIN_TILES
from bilinear.measure.fit_thin import SHARED, Point, fit, off
from bilinear.methods.thin.times import view_of
from bilinear.planner.device_files import device_json, load_device
from bilinear.planner.problem import Problem
from bilinear.writing import write_file


def points(rows: list[dict[str, Any]], dtype: str) -> list[Point]:
    """The points of an element type."""
    found = []
    for row in rows:
        if row["dtype"] != dtype:
            continue
        (m, n, k), order = row["shape"], str(row["order"])
        by_column = tuple(name for name, way in zip("AB", order, strict=True) if way == "N")
        problem = Problem(m, k, n, dtype, column_major=(*by_column, "C"))
        found += [
            Point(name, view_of(problem, THIN_TILES[dtype][name]), parts, us)
            for name, parts, us in row["thin"]
            if us and name in THIN_TILES[dtype]
        ]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("points", type=Path, nargs="+")
    parser.add_argument("--device", default="h200", help="where the search begins")
    parser.add_argument("--own", action="store_true", help="leave alone the rates that all tiles share")
    parser.add_argument("--output", "-o", type=Path, required=True)
    options = parser.parse_args()
    read = [json.loads(path.read_text())["rows"] for path in options.points]
    device, thin = load_device(options.device), []
    for dtype, rates in device.thin:
        known = [p for rows in read for p in points(rows, dtype)]
        found = fit(device, rates, known, dtype, () if options.own else SHARED)
        if known:
            print(f"{dtype}: {len(known)} points, median |log(predicted / measured)| {median(off(device, found, known, dtype)):.3f}")
        thin.append((dtype, found))
    write_file(options.output, device_json(replace(device, thin=tuple(thin))))


if __name__ == "__main__":
    main()
