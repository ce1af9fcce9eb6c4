"""Fit a device's description to measured points of `model.py`: rates that make the model's predictions closest to the times.

Only the points that are not held out are looked at. What a table of stages says directly is taken from the stages (linear kernels, the
library); the other rates are moved one by one, by smaller and smaller steps, while the mean of |log(predicted / measured)| and a tenth of
the worst fall.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from model import plan_of, profile, way_of

from bilinear.ir.element import ELEMENTS
from bilinear.ir.placement import Placement
from bilinear.ir.tile import SMALL, TILES, USUAL
from bilinear.planner.device import Device, Table, TileRates, at
from bilinear.planner.device_files import device_json, load_device
from bilinear.planner.model import LinearWork, Profile, is_aligned, predict
from bilinear.writing import write_file

Point = tuple[str, float, Profile, Placement]
"""Element type, milliseconds, and what was run."""
What = tuple[str, str | None, str]
"""A rate: its element type, or none; its tile, or none; its name."""
SHARED = ("launch", "call", "scan")
OWN = ("accumulating", "epilogue", "scattered_epilogue", "strip", "scattered")
OF_TILES = ("start", "lone", "unaligned", "exposed")
SHARES = frozenset(("unaligned", "accumulating", "scattered_epilogue", "strip", "scattered", "lone", "exposed"))
SHARE_KEYS = (1000.0, 2000.0, 4000.0)
KEYS = (1000.0, 1500.0, 2000.0, 3000.0, 5000.0, 8192.0, 16384.0)
STREAMS = (3, 7, 11, 16, 24, 32, 56, 93, 220, 400)
SHARE_OF_WORST = 0.1
LEAST_LINEAR = 0.05
"""Linear launches shorter than this, in milliseconds, tell of launching and not of memory."""


def together(files: list[Path]) -> list[dict[str, Any]]:
    """The rows of all files; of those for the same thing the first."""
    found: dict[Any, dict[str, Any]] = {}
    for file in files:
        for row in json.loads(file.read_text())["rows"]:
            found.setdefault((tuple(row["shape"]), row["dtype"], tuple(row["levels"]), row["inputs"], row.get("tile")), row)
    return list(found.values())


def points(rows: list[dict[str, Any]]) -> Iterator[Point]:
    for row in rows:
        way = way_of(row)
        if way is not None:
            yield row["dtype"], row["ms"], profile(way), plan_of(way, tuple(row["shape"]), row["dtype"], row["tile"])


def errors(device: Device, found: Sequence[Point]) -> list[float]:
    """|log(predicted / measured)| of each point."""
    return [abs(math.log(predict(work, plan, dtype, device) * 1e3 / ms)) for dtype, ms, work, plan in found]


def off(device: Device, found: Sequence[Point]) -> float:
    """The mean error, and a share of the worst."""
    of_points = errors(device, found)
    return statistics.fmean(of_points) + SHARE_OF_WORST * max(of_points)


def is_told(what: What) -> bool:
    """Whether whole multiplies tell of a rate: no core with uneven rows is measured in a small tile, and strips tell of `strip` as well."""
    dtype, tile, name = what
    return name != "unaligned" or tile is None or TILES[dtype][tile].size != SMALL


def streaming(rows: list[dict[str, Any]], device: Device, dtype: str) -> Table:
    """Share of the bandwidth by blocks that a thread reads and writes, from whole aligned launches."""
    shares: dict[int, list[float]] = {}
    for row in rows:
        way = way_of(row)
        if way is None or row["dtype"] != dtype:
            continue
        plan = plan_of(way, tuple(row["shape"]), dtype, row["tile"])
        if not (is_aligned(plan.k, plan.n, dtype) and is_aligned(*plan.block[1:], dtype)):
            continue
        bm, bk, bn = plan.block
        elements = {"A": bm * bk, "B": bk * bn, "C": bm * bn}
        for work, ms in zip(profile(way).works, row["stages"], strict=True):
            if isinstance(work, LinearWork) and ms > LEAST_LINEAR:
                moved = sum(p.places * (p.sources + p.targets) * elements[p.shape] for p in work.parts) * ELEMENTS[dtype].bytes
                most = max(p.sources + p.targets for p in work.parts)
                nearest = min(STREAMS, key=lambda s: abs(math.log(s / most)))
                shares.setdefault(nearest, []).append(moved / ((ms - device.launch * 1e-3) * 1e-3 * device.bandwidth * 1e9))
    return tuple((float(key), round(min(1.0, statistics.median(shares[key])), 2)) for key in sorted(shares))


def library(rows: list[dict[str, Any]], device: Device, dtype: str) -> tuple[Table, float]:
    """Rates of aligned square multiplies by size, and the speed without the alignment; of what was measured several times the median."""
    own: dict[tuple[int, ...], list[float]] = {}
    for r in rows:
        if not r["levels"] and r["dtype"] == dtype and not r["held_out"]:
            own.setdefault(tuple(r["shape"]), []).append(2e-9 * math.prod(r["shape"]) / (r["ms"] - device.launch * 1e-3))
    rate = {shape: statistics.median(rates) for shape, rates in own.items()}
    table = tuple((float(m), round(x, 1)) for (m, k, n), x in sorted(rate.items()) if m == k == n)
    small = tuple(pair for pair in device.rates(dtype).library if pair[0] < table[0][0])
    uneven = [x for (m, k, n), x in rate.items() if not is_aligned(k, n, dtype)]
    return small + table, round(min(1.0, statistics.median(uneven) / max(x for _, x in table if x)), 2) if uneven else 1.0


def moves(device: Device) -> Iterator[tuple[What, Callable[[Device], float], Callable[[Device, float], Device]]]:
    """Each rate that can be fitted: what it is, how it is read, and a device with another value of it."""
    for name in SHARED:
        yield ("", None, name), (lambda d, n=name: getattr(d, n)), (lambda d, v, n=name: replace(d, **{n: v}))  # type: ignore[misc]
    for dtype in ELEMENTS:
        for name in OWN:
            yield (
                (dtype, None, name),
                (lambda d, t=dtype, n=name: getattr(d.rates(t), n)),  # type: ignore[misc]
                lambda d, v, t=dtype, n=name: d.with_rates(t, replace(d.rates(t), **{n: min(v, 1.0) if n in SHARES else v})),  # type: ignore[misc]
            )
        for own in device.rates(dtype).tiles:
            for j in range(1 if own.name == USUAL else 0, len(own.share)):  # the first of the usual tile is what the others are relative to
                yield (
                    (dtype, own.name, "share"),
                    (lambda d, t=dtype, i=own.name, j=j: d.rates(t).tile(i).share[j][1]),  # type: ignore[misc]
                    lambda d, v, t=dtype, i=own.name, j=j: _with_tile(d, t, i, "share", _at(d.rates(t).tile(i).share, j, v)),  # type: ignore[misc]
                )
            for name in OF_TILES:
                if not (own.blocks == 1 and name in ("lone", "exposed")):
                    yield (
                        (dtype, own.name, name),
                        (lambda d, t=dtype, i=own.name, n=name: getattr(d.rates(t).tile(i), n)),  # type: ignore[misc]
                        lambda d, v, t=dtype, i=own.name, n=name: _with_tile(d, t, i, n, min(v, 1.0) if n in SHARES else v),  # type: ignore[misc]
                    )
        for i in range(len(KEYS)):
            yield (
                (dtype, None, "product"),
                (lambda d, t=dtype, i=i: d.rates(t).product[i][1]),  # type: ignore[misc]
                lambda d, v, t=dtype, i=i: d.with_rates(t, replace(d.rates(t), product=_at(d.rates(t).product, i, v))),  # type: ignore[misc]
            )


def _with_tile(device: Device, dtype: str, tile: str, name: str, value: Any) -> Device:
    rates = device.rates(dtype)
    tiles = tuple(replace(own, **{name: value}) if own.name == tile else own for own in rates.tiles)
    return device.with_rates(dtype, replace(rates, tiles=tiles))


def _at(table: Table, i: int, value: float) -> Table:
    return (*table[:i], (table[i][0], value), *table[i + 1 :])


def _share_of(own: TileRates, dtype: str) -> Table:
    """Where the search for the rates of a tile begins: at its own by the size of a block, or one for all where it is small."""
    keys = (1.0,) if TILES[dtype][own.name].size == SMALL else SHARE_KEYS
    return tuple((key, 1.0 if own.name == USUAL else at(own.share, key)) for key in keys)


def fit(device: Device, off: Callable[[Device], float], wanted: Callable[[What], bool]) -> Device:
    """The device with the wanted rates that make the error least, as far as single moves find it."""
    best = off(device)
    for step in (0.3, 0.15, 0.08, 0.04, 0.02, 0.01):
        for _ in range(4):
            before = best
            for what, read, write in moves(device):
                for factor in (1 + step, 1 / (1 + step)) if wanted(what) else ():
                    tried = write(device, float(f"{read(device) * factor:.4g}"))
                    now = off(tried)
                    if now < best:
                        device, best = tried, now
                        break
            print(f"step {step}: {best:.4f}", flush=True)
            if before - best < 0.0005:
                break
    return device


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("points", type=Path, nargs="+", help="of what several files hold, that of the first")
    parser.add_argument("--device", default="h200", help="where the search begins")
    parser.add_argument("--output", "-o", type=Path, required=True)
    options = parser.parse_args()
    rows = [row for row in together(options.points) if not row["held_out"]]
    device = load_device(options.device)
    found = list(points(rows))
    for dtype in ELEMENTS:
        table, uneven = library([row for file in options.points for row in json.loads(file.read_text())["rows"]], device, dtype)
        rates = replace(device.rates(dtype), streaming=streaming(rows, device, dtype), library=table, library_unaligned=uneven)
        tiles = tuple(replace(own, share=_share_of(own, dtype)) for own in rates.tiles)
        product = tuple((key, at(rates.product, key)) for key in KEYS)
        device = device.with_rates(dtype, replace(rates, tiles=tiles, product=product))
    write_file(options.output, device_json(fit(device, lambda d: off(d, found), is_told)))


if __name__ == "__main__":
    main()
