"""Put the library's times on thin products into a description, and say how well they foretell those that are left out.

`results/library-points-h200.csv.xz` has what `library_points.py` measured on an H200: m, n, k, order, type, the kernels that cublasLt
proposes with a small and with a large workspace, and microseconds of cuBLAS and cublasLt. Below `LEAST_US` the time of the host was
measured, which differs between calls: such points keep the shorter time for both. The named shapes of `thin_auto.py` are
points, too, of which the kernels are not known.
"""

from __future__ import annotations

import argparse
import csv
import json
import lzma
from dataclasses import replace
from functools import partial
from math import exp, log
from pathlib import Path
from statistics import fmean, median

import numpy as np

from bilinear.backends.cublas import suits_lt
from bilinear.backends.gemm import Gemm
from bilinear.ir.element import ELEMENTS
from bilinear.planner.device import Device
from bilinear.planner.device_files import device_json, load_device
from bilinear.planner.library_points import UNKNOWN, LibraryPoints, Measured, library_points
from bilinear.planner.plan import CUBLAS, CUBLASLT
from bilinear.planner.problem import Problem
from bilinear.planner.thin import by_columns
from bilinear.planner.thin_rates import ThinRates
from bilinear.writing import write_file

POINTS = Path(__file__).parent / "results" / "library-points-h200.csv.xz"
NAMED = Path(__file__).parent / "results" / "thin-auto-h200.json"
LEAST_US = 30.0
CLEARLY = 35.0
"""Of the points that are left out those are counted at which both calls take longer."""


def read(path: Path, dtype: str) -> list[Measured]:
    """The points of an element type in the order in which they were drawn."""
    found = []
    with lzma.open(path, "rt") as file:
        for m, n, k, order, own, small, large, cublas, cublaslt in csv.reader(file):
            if own == dtype:
                found.append(Measured((int(m), int(n), int(k)), order, (small, large), float(cublas), float(cublaslt)))
    return found


def named(path: Path, dtype: str) -> list[Measured]:
    """The named shapes of `thin_auto.py`, whose kernels are not known."""
    found = []
    for row in json.loads(path.read_text())["rows"]:
        if not row["name"] or row["dtype"] != dtype or not {CUBLAS, CUBLASLT} <= row["us"].keys():
            continue
        m, k, n = row["shape"]
        by_column = tuple(name for name, order in zip("ABC", row["orders"], strict=True) if order == "F")
        order, shape = by_columns(Problem(m, k, n, dtype, column_major=by_column))
        found.append(Measured(shape, order, (UNKNOWN, UNKNOWN), row["us"][CUBLAS], row["us"][CUBLASLT]))
    return found


def is_long(one: Measured) -> bool:
    """Whether no time of the host counts."""
    return min(one.cublas, one.cublaslt) > LEAST_US


def told(one: Measured) -> Measured:
    """What a description says of a point."""
    shorter = min(one.cublas, one.cublaslt)
    return one if is_long(one) else one._replace(cublas=shorter, cublaslt=shorter)


def gemm(one: Measured) -> Gemm:
    """The call that computes it."""
    m, n, k = one.shape
    first, second = (letter == "T" for letter in one.order)
    return Gemm(False, (int(first), int(second)), one.shape, (k if first else m, n if second else k, m))


def evaluate(points: LibraryPoints, left_out: list[Measured], rates: ThinRates, device: Device, dtype: str) -> None:
    """Print how often the slower call would run, and how far the times are off."""
    element = ELEMENTS[dtype]
    lost: dict[str, list[float]] = {}
    off: dict[str, list[float]] = {"by shape": [], "by shape and kernels": []}
    for one in left_out:
        us = {CUBLAS: one.cublas, CUBLASLT: one.cublaslt}
        best = min(us.values())
        ruled = CUBLASLT if suits_lt(gemm(one), np.dtype(dtype), device.library_rules) else CUBLAS
        picks = {CUBLAS: CUBLAS, "by the rules": ruled}
        picks["by shape"] = points.faster(one.order, one.shape, element.lanes, None) or ruled
        picks["by shape and kernels"] = points.faster(one.order, one.shape, element.lanes, one.kernels) or ruled
        for name, pick in picks.items():
            lost.setdefault(name, []).append(log(us[pick] / best))
        for name, kernels in zip(off, (None, one.kernels), strict=True):
            times = points.times(one.order, one.shape, element.lanes, kernels)
            off[name].append(abs(log(min(times.values()) * rates.least_us(one.shape, element.bytes, device.bandwidth) / best)))
    for name, own in lost.items():
        slower = [sum(x > log(1 + by) for x in own) / len(own) for by in (0.02, 0.05, 0.1)]
        print(f"  {name:22s} slower by 2, 5, 10 % at {', '.join(f'{x:.1%}' for x in slower)}; {exp(fmean(own)) - 1:.2%} in the mean")
    for name, errors in off.items():
        most = sorted(errors)[len(errors) * 9 // 10]
        print(f"  predicted {name}, times are off by {median(errors):.1%} in the median, 90 % of them by less than {most:.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=Path, default=POINTS)
    parser.add_argument("--points", type=int, default=5000, help="so many of each type are kept")
    parser.add_argument("--short", type=int, default=300, help="and so many that take less than 30 us")
    parser.add_argument("--device", default="h200")
    parser.add_argument("--output", "-o", type=Path)
    options = parser.parse_args()
    device, thin = load_device(options.device), []
    for dtype, rates in device.thin:
        measured = read(options.input, dtype)
        long, short = [one for one in measured if is_long(one)], [one for one in measured if not is_long(one)]
        kept = [told(one) for one in (*long[: options.points], *short[: options.short], *named(NAMED, dtype))]
        least = partial(rates.least_us, itemsize=ELEMENTS[dtype].bytes, bandwidth=device.bandwidth)
        points = library_points(kept, least)
        left_out = [one for one in long[options.points :] if min(one.cublas, one.cublaslt) > CLEARLY]
        print(f"{dtype}: {len(kept)} points of {len(measured)}, {len(left_out)} left out:")
        evaluate(points, left_out, rates, device, dtype)
        thin.append((dtype, replace(rates, library=points)))
    if options.output is not None:
        write_file(options.output, device_json(replace(device, thin=tuple(thin))))


if __name__ == "__main__":
    main()
