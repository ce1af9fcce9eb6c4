"""Time tiles of the kernel for thin products on drawn shapes, beside the library: what `fit_thin_points.py` fits rates to.

Results lie by columns. Of each shape the tiles that are predicted to be fastest are timed: so many of those on pipes, so many of those on
matrix units. `--turned` also times C^T = B^T A^T by the library and the copy of C^T into C, which CuPy runs instead. `--build` only builds
the kernels for all of them, on any machine.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from itertools import chain, islice
from pathlib import Path
from time import monotonic
from typing import Any

from common import need_gpu, save
from thin_auto import NAMED

from bilinear.codegen.build import build_kernel
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.ir.thin_tile import THIN_TILES
from bilinear.ir.thin_unit_tile import ThinMmaTile
from bilinear.measure import thin_stand
from bilinear.measure.thin_stand import Case, Stand, drawn, kernel_of, problem_of, turned
from bilinear.methods.thin.choice import thin_of
from bilinear.methods.thin.method import thin_candidates
from bilinear.planner.device import Device
from bilinear.planner.device_files import load_device
from bilinear.planner.plan import Candidate
from bilinear.planner.thin_rates import ThinRates, ThinTileRates

GUESS = (0.85, 0.85, 0.85, 0.8, 0.8)
"""Rates of a tile that has none yet."""


@cache
def described(device: str, names: tuple[str, ...]) -> Device:
    """A device's description; where tiles are named, with guessed rates for those of them that have none."""
    known = load_device(device)
    return replace(known, thin=tuple((dtype, with_guesses(dtype, rates, names)) for dtype, rates in known.thin)) if any(names) else known


def with_guesses(dtype: str, rates: ThinRates, names: tuple[str, ...]) -> ThinRates:
    have = {own.name for own in rates.tiles}
    new = (ThinTileRates(name, *GUESS) for name in THIN_TILES[dtype] if name.startswith(names) and name not in have)
    return replace(rates, tiles=(*rates.tiles, *new))


def fastest(case: Case, dtype: str, device: str, on_pipes: int, on_units: int, names: tuple[str, ...]) -> Iterator[Candidate]:
    """The tiles of either kind that are predicted to be fastest, each with the best number of parts, of those whose names begin so."""
    best: dict[str, Candidate] = {}
    able = (own for own in thin_candidates(problem_of(case, dtype), described(device, names)) if own.tile.startswith(names))
    for own in sorted(able, key=lambda one: one.ms or 0.0):
        best.setdefault(own.tile, own)
    on = {isinstance(THIN_TILES[dtype][name], ThinMmaTile): list[Candidate]() for name in THIN_TILES[dtype]}
    for own in best.values():
        on[isinstance(THIN_TILES[dtype][own.tile], ThinMmaTile)].append(own)
    yield from (*on[False][:on_pipes], *on[True][:on_units])


def named() -> Iterator[Case]:
    """The products on which `bilinear tune` times tiles, and those that `thin_auto.py` names, as far as there is memory for them."""
    yield from thin_stand.timed_cases()
    for _, (m, k, n) in NAMED:
        if max(m * k, k * n, m * n) <= thin_stand.MOST_ELEMENTS:
            yield from (Case(shape, "NN") for shape in ((n, m, k), (m, n, k)))


def tell(row: dict[str, Any]) -> None:
    """A line: the library's time, and those of the tiles, the fastest first."""
    us = sorted((us, tile, parts) for tile, parts, us in row["thin"] if us is not None)
    told = ", ".join(f"{tile} {parts} {us:.1f}" for us, tile, parts in us[:4])
    library = f"{min(row['library']):.1f}" if row["library"] else "-"
    if row.get("turned"):
        library += f" (turned {min(row['turned']):.1f} + {row['turning']:.1f})"
    print(row["dtype"], *row["shape"], row["order"], library, told, "WRONG " + " ".join(row["wrong"]) if row["wrong"] else "", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shapes", type=int, default=160, help="of each type")
    parser.add_argument("--named", action="store_true", help="before them the products that have names")
    parser.add_argument("--pipes", type=int, default=99, help="tiles on multiply-add pipes")
    parser.add_argument("--units", type=int, default=99, help="tiles on matrix units")
    parser.add_argument(
        "--names",
        default="",
        help="how names of the timed tiles begin, comma-separated; also those without rates; products without one are left out",
    )
    parser.add_argument("--turned", action="store_true", help="time the library's C^T and its copy, too")
    parser.add_argument("--device", default="h200", help="by whose description they are predicted")
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--build", action="store_true", help="only build the kernels")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin with no further shape after so long, for each type")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not options.build:
        need_gpu()
    rows = list[dict[str, Any]]()
    for dtype in THIN_TILES:
        cases = list(chain(named() if options.named else (), islice(drawn(options.seed), options.shapes)))
        found = [
            (case, list(fastest(case, dtype, options.device, options.pipes, options.units, tuple(options.names.split(",")))))
            for case in cases
        ]
        found = [(case, candidates) for case, candidates in found if candidates or not options.names]
        kernels = {kernel_of(case, dtype, own.tile) for case, candidates in found for own in candidates}
        print(f"{dtype}: {len(kernels)} kernels", flush=True)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda one: build_kernel(one, CudaTarget(options.target)), kernels))
        if options.build:
            continue
        stand, begun = Stand(dtype), monotonic()
        for case, candidates in found:
            if monotonic() - begun > options.seconds:
                break
            library = stand.library(case)
            us = [(own.tile, thin_of(own).parts, stand.thin(case, own)) for own in candidates]
            row: dict[str, Any] = {"shape": case.shape, "order": case.order, "dtype": dtype, "library": library and library[-2:]}
            row |= {"kernels": library and library.kernels, "thin": us, "wrong": stand.wrong(case, candidates)}
            if options.turned:
                other = stand.library(turned(case))
                row |= {"turned": other and other[-2:], "turned_kernels": other and other.kernels, "turning": stand.turning(case)}
            rows.append(row)
            tell(row)
    if rows:
        save("thin_points", rows, options.json)


if __name__ == "__main__":
    main()
