"""Put the library's times on thin products into a description, and print how well they predict those that are left out.

`results/library-points-h200.csv.xz` has what an early `library_points.py` measured on an H200: m, n, k, order, type, the kernels that
cublasLt proposes with a small and with a large workspace, and microseconds of cuBLAS and cublasLt. Its times below `LEAST_US` are the
host's, so these points are dropped. `results/library-calls-h200.csv.xz` has the device's times in runs of tiles,
`thin_auto.py` and `grid.py --any`, short ones too; their kernels are unknown. `results/library-short-h200.csv.xz` has what a later
`library_points.py` measured. Of the points of all three files the description holds one in `EVERY`. To evaluate, each
call of both is left out in turn, with every point of the same shape.
"""

from __future__ import annotations

import argparse
import csv
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
from bilinear.planner.device import Device, ThinRates
from bilinear.planner.device_files import device_json, load_device
from bilinear.planner.library_points import CUBLAS, CUBLASLT, LibraryPoints, Measured, library_points
from bilinear.writing import write_file

POINTS = Path(__file__).parent / "results" / "library-points-h200.csv.xz"
CALLS = [Path(__file__).parent / "results" / f"library-{name}-h200.csv.xz" for name in ("calls", "short")]
LEAST_US = 30.0
EVERY = 4
"""With all of them predicted times are off by 6.9 and 10.3 % in the median, with one in four by 8.7 and 12.1 %."""
COLUMNS = ("m", "n", "k", "order", "small", "large", "cublas", "cublaslt")
CLEARLY = 35.0  # Of the long points that are left out those are counted at which both calls take longer.
BANDS = ((0.0, 6.0), (6.0, 20.0), (20.0, 1e9))
"""Microseconds of the faster call, for the table of points that are left out one by one."""


def read(path: Path, dtype: str) -> list[Measured]:
    """The points of an element type in the order in which they were drawn."""
    found = []
    with lzma.open(path, "rt") as file:
        for m, n, k, order, own, small, large, cublas, cublaslt in csv.reader(file):
            if own == dtype:
                found.append(Measured((int(m), int(n), int(k)), order, (small, large), float(cublas), float(cublaslt)))
    return found


def is_long(one: Measured) -> bool:
    """Whether no time of the host counts."""
    return min(one.cublas, one.cublaslt) > LEAST_US


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


def one_by_one(kept: list[Measured], calls: list[Measured], device: Device, dtype: str) -> None:
    """Print, by the time of the faster call, what choosing each way loses for `calls`, each left out of `kept`."""
    element, losses = ELEMENTS[dtype], dict[str, list[tuple[float, float]]]()
    everything = library_points(kept, lambda shape: 1.0)
    shapes = np.array([one.shape for one in kept])
    for one in calls:
        others = np.flatnonzero((shapes != one.shape).any(axis=1))
        columns = {name: tuple(map(getattr(everything, name).__getitem__, others)) for name in COLUMNS}
        points, us = replace(everything, **columns), {CUBLAS: one.cublas, CUBLASLT: one.cublaslt}
        ruled = CUBLASLT if suits_lt(gemm(one), np.dtype(dtype), device.library_rules) else CUBLAS
        times = points.times(one.order, one.shape, element.lanes)
        picks = {"cuBLAS": CUBLAS, "cublasLt": CUBLASLT, "rules": ruled, "plane": min(times, key=times.__getitem__)}
        picks["nearest points"] = points.faster(one.order, one.shape, element.lanes, None) or ruled
        for name, pick in picks.items():
            losses.setdefault(name, []).append((min(us.values()), log(us[pick] / min(us.values()))))
    for name, own in losses.items():
        told = []
        for least, most in BANDS:
            lost = [x for us, x in own if least <= us < most]
            told.append(f"{exp(fmean(lost)) - 1:.1%}, {sum(x > log(1.02) for x in lost) / len(lost):.0%} of {len(lost)}" if lost else "-")
        print(f"  {name:15s} loses in the mean, by more than 2 % at: {'; '.join(told)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=Path, default=POINTS)
    parser.add_argument("--points", type=int, default=5000, help="so many of each type are taken")
    parser.add_argument("--calls", type=Path, nargs="+", default=CALLS, help="points that are all taken")
    parser.add_argument("--device", default="h200")
    parser.add_argument("--output", "-o", type=Path)
    options = parser.parse_args()
    device, thin = load_device(options.device), []
    for dtype, rates in device.thin:
        calls = [one for path in options.calls for one in read(path, dtype)]
        long = [one for one in read(options.input, dtype) if is_long(one)]
        kept = [*long[: options.points], *calls][::EVERY]
        least = partial(rates.least_us, itemsize=ELEMENTS[dtype].bytes, bandwidth=device.bandwidth)
        points = library_points(kept, least)
        left_out = [one for one in long[options.points :] if min(one.cublas, one.cublaslt) > CLEARLY]
        print(f"{dtype}: {len(kept)} points, {len(left_out)} left out:")
        evaluate(points, left_out, rates, device, dtype)
        one_by_one(kept, calls, device, dtype)
        thin.append((dtype, replace(rates, library=points)))
    if options.output is not None:
        write_file(options.output, device_json(replace(device, thin=tuple(thin))))


if __name__ == "__main__":
    main()
