"""Tiles whose slices a warp fetches by bulk copies, beside the other tiles, on named and on uneven thin products.

Every call is checked on integers first. Times are on the device alone, of whole products: sums in parts are added up. The bandwidth counts
each operand once, as a share of a device copy's. Of the others those predicted to be fastest are timed. `--build` only
builds the kernels, on any machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import ceil
from statistics import median
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
from common import Call, exact_calls, need_gpu, parser_of, queued, save
from thin_auto import NAMED, copy_rate, layout, matrix, problem_of

from bilinear.backends.gemm import is_by_rows
from bilinear.codegen.build import build_kernel
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.ir.element import ELEMENTS
from bilinear.ir.kernel import PartsKernel, ThinKernel
from bilinear.ir.matrix import Layout, layout_of
from bilinear.ir.measurement import Shape
from bilinear.ir.thin_tile import THIN_TILES, ThinBulkTile
from bilinear.methods.thin.choice import Thin, thin_of
from bilinear.methods.thin.launches import kernel_for, kernels_of, thin_multiply_of
from bilinear.methods.thin.method import thin_candidates
from bilinear.planner.device import Device
from bilinear.planner.device_files import load_device

ROUNDS, IN_A_ROW = 5, 6
BUSY = 0.97
"""The share of all multiprocessors' time that the units of a product must fill, if sums can be split so."""
UNEVEN: tuple[tuple[Shape, str, str], ...] = (
    ((3_000_000, 13, 9), "CCC", "float32"),
    ((5_000_000, 7, 5), "FFF", "float32"),
    ((7_895_634, 11, 11), "CCC", "float64"),
    ((2_000_001, 8, 8), "CCF", "float32"),
    ((2_000_001, 8, 8), "FFF", "float32"),
    ((15_001, 15_001, 4), "CCC", "float32"),
    ((17_976, 8_968, 12), "CCC", "float32"),
    ((12, 2_000_003, 9), "CCC", "float32"),
)


class Case(NamedTuple):
    """A product: its name, extents m, k and n, the orders of A, B and C, and its type."""

    name: str
    shape: Shape
    orders: str
    dtype: str


def cases() -> Iterator[Case]:
    """The products with names, by rows and by columns, and uneven ones."""
    for name, shape in NAMED:
        for orders in ("CCC", "FFF"):
            yield from (Case(name, shape, orders, dtype) for dtype in ("float32", "float64"))
    yield from (Case("uneven", *rest) for rest in UNEVEN)


def layouts(case: Case) -> tuple[Layout, Layout, Layout]:
    """A, B and C without gaps."""
    (m, k, n), dtype = case.shape, np.dtype(case.dtype)
    a, b, c = (layout(extents, order, dtype) for extents, order in zip(((m, k), (k, n), (m, n)), case.orders, strict=True))
    return a, b, c


def parts_of(tiles: int, slots: int, slices: int) -> int:
    """In how few parts sums are split so that units fill the multiprocessors, or in as many as fill them best."""
    split = sorted({ceil(slices / ceil(slices / parts)) for parts in range(1, min(slices, 2 * slots) + 1)})
    busy = {parts: tiles * parts / (ceil(tiles * parts / slots) * slots) for parts in split}
    return next((parts for parts in split if busy[parts] >= BUSY), max(split, key=lambda parts: busy[parts]))


def bulk_tiles(case: Case, device: Device) -> Iterator[Thin]:
    """The new tiles that are neither far too large nor too small for a product; those that stage results only for rows of odd lengths."""
    (m, k, n), (a, b, c), element = case.shape, layouts(case), ELEMENTS[case.dtype]
    swaps = n > m
    if swaps:
        m, n, a, b, c = n, m, b.T, a.T, c.T
    is_odd = n % element.lanes != 0 and is_by_rows(c)
    for tile in THIN_TILES[case.dtype].values():
        if not isinstance(tile, ThinBulkTile) or not tile.admits(element.lanes, is_by_rows(a), not is_by_rows(b)):
            continue
        is_near = n <= tile.n < 2 * max(n, 3) and min(m, 32) <= tile.m < 2 * m and (k <= tile.k < 2 * k if tile.keeps else tile.k <= k)
        is_short = not tile.keeps and m > tile.m and not is_by_rows(a)  # its lines are too short for bulk copies
        if not is_near or is_short or (tile.staged and not is_odd):
            continue
        slots = device.processors * kernel_for(element, tile, a, b, c, is_aligned=True).resident_in(device.shared)
        parts = 1 if tile.keeps else parts_of(ceil(m / tile.m) * ceil(n / tile.n), slots, ceil(k / tile.k))
        yield Thin(tile.name, parts, swaps)


def known_tiles(case: Case, device: Device, count: int) -> list[Thin]:
    """The tiles of the device's description that are predicted to be fastest, each with its best number of parts."""
    best: dict[str, Thin] = {}
    for own in sorted(thin_candidates(problem_of(*case[1:]), device), key=lambda one: one.ms or 0.0):
        if isinstance(THIN_TILES[case.dtype][own.tile], ThinBulkTile):
            continue
        best.setdefault(own.tile, thin_of(own))
    return list(best.values())[:count]


def build(found: list[tuple[Case, list[Thin]]], target: str) -> None:
    """Build all kernels, and tell which of them keep registers in memory."""
    kernels = set[ThinKernel | PartsKernel]()
    for case, thins in found:
        kernels |= {kernel for thin in thins for kernel in kernels_of(*layouts(case), thin)}
    print(f"{len(kernels)} kernels", flush=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for kernel, built in zip(kernels, pool.map(lambda one: build_kernel(one, CudaTarget(target)), kernels), strict=True):
            used = built.resources[0]
            if used.spill_stores + used.spill_loads:
                print(f"{kernel.name}: {used.registers} registers, spills {used.spill_stores} and {used.spill_loads} bytes", flush=True)


def measure(case: Case, thins: list[Thin], copy: float) -> dict[str, Any]:
    """Times on normal data of the tiles that are exact on integers, and the shares of a copy's bandwidth."""
    import cupy

    (m, k, n), dtype = case.shape, case.dtype
    a, b = matrix((m, k), dtype, case.orders[0], 1), matrix((k, n), dtype, case.orders[1], 2)
    c = cupy.empty((m, n), dtype, order=case.orders[2])
    calls: dict[str, Call] = {}
    for thin in thins:
        multiply = thin_multiply_of(layout_of(a), layout_of(b), layout_of(c), thin)
        if multiply is not None:
            calls[f"{thin.tile} {thin.parts}"] = partial(multiply, a.data.ptr, b.data.ptr, c.data.ptr, 1, 0)
    exact = exact_calls(calls, a, b, c)
    times = queued({name: call for name, call in calls.items() if exact[name]}, ROUNDS, IN_A_ROW)
    us = {name: round(1e3 * median(values), 2) for name, values in times.items()}
    moved = (m * k + k * n + m * n) * a.itemsize / 1e3  # kB
    shares = {name: round(moved / copy / own, 3) for name, own in us.items()}
    return {**case._asdict(), "us": us, "shares": shares, "wrong": [name for name, right in exact.items() if not right]}


def tell(row: dict[str, Any]) -> None:
    """A line: the shares of the best new and the best known tile, and of all others."""
    told = list[str]()
    for kind in ("bulk", "known"):
        own = [(share, name) for name, share in row["shares"].items() if name.startswith("bulk") == (kind == "bulk")]
        told += [f"{kind} {max(own)[0]:.1%} {max(own)[1]}"] if own else []
    wrong = "WRONG " + " ".join(row["wrong"]) if row["wrong"] else ""
    print(row["dtype"], "x".join(map(str, row["shape"])), row["orders"], *told, "all", row["shares"], wrong, flush=True)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--known", type=int, default=2, help="other tiles, for each product")
    parser.add_argument("--device", default="h200", help="by whose description they are predicted")
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--build", action="store_true", help="only build the kernels")
    parser.add_argument("--only", default="", help="only products whose name begins so")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin with no further product after so long")
    options = parser.parse_args()
    begun, device = monotonic(), load_device(options.device)
    if not options.build:
        need_gpu()
    own = {case: list(bulk_tiles(case, device)) for case in cases() if case.name.startswith(options.only)}
    found = [(case, [*new, *known_tiles(case, device, options.known)]) for case, new in own.items() if new]
    build(found, options.target)
    if options.build:
        return
    import cupy

    copy, rows = copy_rate(), list[dict[str, Any]]()
    print(f"copy: {copy / 1e3:.2f} TB/s; kernels after {monotonic() - begun:.0f} s", flush=True)
    for case, thins in found:
        if monotonic() - begun > options.seconds:
            print("stopped", flush=True)
            break
        rows.append({**measure(case, thins, copy), "copy": round(copy)})
        tell(rows[-1])
        cupy.get_default_memory_pool().free_all_blocks()
    save("thin_bulk", rows, options.json)


if __name__ == "__main__":
    main()
