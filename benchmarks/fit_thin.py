"""Fit what a description says of the tiles on the units for doubles to `thin.py` and `uneven.py`, beside the points of `model.py`.

First all rates of those tiles, to thin products and to the points of `model.py`; then what rows cost that do not begin at multiples of 16
bytes, to uneven products alone, for the points of `model.py` timed another text of the kernel there. As in `fit_device.py` one rate after
the other is moved by smaller and smaller steps. The library's rates are not touched.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import fit_device
from fit_device import OF_TILES, Point, together
from model import plan_of, profile

from bilinear.ir.plan import IN_DOUBLES, SIZES
from bilinear.planner.device import Device, load_device
from bilinear.planner.model import is_aligned, predict
from bilinear.planner.ways import Way
from bilinear.resources import write_file

NAME = re.compile(r"(\w+), (\d) levels?, tile (\d)")
Move = tuple[Callable[[Device], float], Callable[[Device, float], Device]]
OFTEN, WORST = 1.5, 0.1
"""How much more the mean error at the points of `model.py` counts than that at thin products, and the worst error of either."""


def points(file: Path) -> Iterator[Point]:
    """The plans that were timed, by their names; the libraries and `auto` have none."""
    for row in json.loads(file.read_text())["rows"]:
        for name, us in row["us"].items():
            told = NAME.fullmatch(name)
            if told is not None:
                way, tile = Way((told[1],) * int(told[2])), int(told[3])
                yield row["dtype"], us * 1e-3, profile(way), plan_of(way, tuple(row["shape"]), row["dtype"], tile)


def errors(device: Device, found: Sequence[Point]) -> list[float]:
    """|log(predicted / measured)| of each point."""
    return [abs(math.log(predict(work, plan, dtype, device) * 1e3 / ms)) for dtype, ms, work, plan in found]


def moves(device: Device, names: tuple[str, ...], shared: tuple[str, ...]) -> Iterator[Move]:
    """The rates of these names, of each tile on the units for doubles and of all."""
    known = {f"{name} {tile}": (tile, name) for tile in range(IN_DOUBLES, IN_DOUBLES + len(SIZES)) for name in names}
    for tile, name in known.values():
        if name == "share":
            for j in range(len(device.float32.tiles[tile].share)):
                yield (
                    (lambda d, i=tile, j=j: d.float32.tiles[i].share[j][1]),  # type: ignore[misc]
                    lambda d, v, i=tile, j=j: fit_device.with_tile(  # type: ignore[misc]
                        d, "float32", i, "share", fit_device.with_value(d.float32.tiles[i].share, j, v)
                    ),
                )
            continue
        yield (
            (lambda d, i=tile, n=name: getattr(d.float32.tiles[i], n)),  # type: ignore[misc]
            lambda d, v, i=tile, n=name: fit_device.with_tile(  # type: ignore[misc]
                d, "float32", i, n, min(v, 1.0) if n in fit_device.SHARES else v
            ),
        )
    for name in shared:
        yield (
            (lambda d, n=name: getattr(d.float32, n)),  # type: ignore[misc]
            lambda d, v, n=name: replace(d, float32=replace(d.float32, **{n: min(v, 1.0) if n in fit_device.SHARES else v})),  # type: ignore[misc]
        )


def fit(device: Device, off: Callable[[Device], float], names: tuple[str, ...], shared: tuple[str, ...]) -> Device:
    """The device with the rates that make the error least, as far as single moves find it."""
    best = off(device)
    for step in (0.3, 0.15, 0.08, 0.04, 0.02):
        for _ in range(3):
            before = best
            for read, write in moves(device, names, shared):
                for factor in (1 + step, 1 / (1 + step)):
                    tried = write(device, float(f"{read(device) * factor:.4g}"))
                    now = off(tried)
                    if now < best:
                        device, best = tried, now
                        break
            if before - best < 0.002:
                break
        print(f"step {step}: {best:.4f}", flush=True)
    return device


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
    thin, uneven = [point for file in options.thin for point in points(file) if point[0] == "float32"], list(points(options.uneven))

    def off(device: Device) -> float:
        of_known, of_thin = errors(device, known), errors(device, thin)
        return OFTEN * statistics.fmean(of_known) + statistics.fmean(of_thin) + WORST * max(of_known) + WORST / 4 * max(of_thin)

    def off_uneven(device: Device) -> float:
        found = errors(device, uneven)
        return statistics.fmean(found) + WORST * max(found)

    device = fit(load_device(options.device), off, (*OF_TILES, "share"), ("accumulating", "epilogue", "strip"))
    device = fit(device, off_uneven, ("unaligned",), ("scattered", "scattered_epilogue"))
    for name, found in (("model.py", known), ("thin.py", thin), ("uneven.py", uneven)):
        off_by = sorted(errors(device, found))
        told = f"median {statistics.median(off_by):.1%}, 90 % below {off_by[int(0.9 * len(off_by))]:.1%}, worst {off_by[-1]:.1%}"
        print(f"{name}: {len(off_by)} points, |log(predicted / measured)|: {told}")
    write_file(options.output, device.json())


if __name__ == "__main__":
    main()
