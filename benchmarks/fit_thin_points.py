"""Fit what a description says of thin products to `thin_points.py`: the library's times as they are, and the rates of the thin kernel.

One rate after the other is moved by smaller and smaller steps as long as the mean of |log(predicted / measured)| falls; what is far off
counts no more than a factor of e.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import fields, replace
from math import log
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from bilinear.ir.element import ELEMENTS
from bilinear.ir.tile import THIN_TILES
from bilinear.planner.device import Device
from bilinear.planner.device_files import device_json, load_device
from bilinear.planner.problem import Problem
from bilinear.planner.thin import View, thin_seconds, view_of
from bilinear.planner.thin_rates import ThinRates
from bilinear.writing import write_file

STEPS = (1.3, 1.3, 1.15, 1.1, 1.07, 1.04)
SHARED = ("launch", "latency", "adding", "again", "copies", "torn", "gathering")
OWN = ("along", "across", "arithmetic", "short_along", "short_across")
MOST_SHARE = 1.2


class Point(NamedTuple):
    """What was measured: a tile and parts of sums on a problem, and microseconds."""

    tile: str
    view: View
    parts: int
    us: float


def points(rows: list[dict[str, Any]], dtype: str) -> list[Point]:
    """The points of an element type."""
    found = []
    for row in rows:
        if row["dtype"] != dtype:
            continue
        (m, n, k), order = row["shape"], str(row["order"])
        by_column = tuple(name for name, way in zip("AB", order, strict=True) if way == "N")
        view = view_of(Problem(m, k, n, dtype, column_major=(*by_column, "C")))
        found += [Point(tile, view, parts, us) for tile, parts, us in row["thin"] if us]
    return found


def off(device: Device, rates: ThinRates, known: list[Point], dtype: str) -> list[float]:
    """|log(predicted / measured)| of each point."""
    own, element = {tile.name: tile for tile in rates.tiles}, ELEMENTS[dtype]
    tiles = THIN_TILES[dtype]
    seconds = (thin_seconds(own[p.tile], tiles[p.tile], p.view, p.parts, element, device, rates) for p in known)
    return [min(1.0, abs(log(predicted * 1e6 / p.us))) for predicted, p in zip(seconds, known, strict=True)]


def fit(device: Device, rates: ThinRates, known: list[Point], dtype: str) -> ThinRates:
    """The rates that predict the points best."""

    def better(changed: ThinRates, than: ThinRates, some: list[Point]) -> bool:
        return fmean(off(device, changed, some, dtype)) < fmean(off(device, than, some, dtype)) - 1e-6

    of_tile = {tile.name: [p for p in known if p.tile == tile.name] for tile in rates.tiles}
    for step in STEPS:
        for factor in (step, 1 / step):
            for name in SHARED:
                while better(changed := replace(rates, **{name: getattr(rates, name) * factor}), rates, known):
                    rates = changed
            for i, tile in enumerate(rates.tiles):
                for name in OWN:
                    some = of_tile[tile.name]
                    while some:
                        moved = replace(rates.tiles[i], **{name: min(MOST_SHARE, getattr(rates.tiles[i], name) * factor)})
                        changed = replace(rates, tiles=(*rates.tiles[:i], moved, *rates.tiles[i + 1 :]))
                        if not better(changed, rates, some):
                            break
                        rates = changed
    rounded = {field.name: round(getattr(rates, field.name), 3) for field in fields(rates) if field.name in SHARED}
    tiles = tuple(replace(tile, **{name: round(getattr(tile, name), 3) for name in OWN}) for tile in rates.tiles)
    return replace(rates, **rounded, tiles=tiles)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("points", type=Path, nargs="+")
    parser.add_argument("--device", default="h200", help="where the search begins")
    parser.add_argument("--output", "-o", type=Path, required=True)
    options = parser.parse_args()
    read = [json.loads(path.read_text())["rows"] for path in options.points]
    device, thin = load_device(options.device), []
    for dtype, rates in device.thin:
        known = [p for rows in read for p in points(rows[1:], dtype)]
        times = read[-1][0]["library"][dtype]
        library = tuple((order, tuple((name, tuple(us)) for name, us in calls.items())) for order, calls in times.items())
        found = fit(device, replace(rates, library=library), known, dtype)
        print(f"{dtype}: {len(known)} points, median |log(predicted / measured)| {median(off(device, found, known, dtype)):.3f}")
        thin.append((dtype, found))
    write_file(options.output, device_json(replace(device, thin=tuple(thin))))


if __name__ == "__main__":
    main()
