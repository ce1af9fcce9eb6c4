"""Build the kernels that benchmarks need, all at once and without a GPU, so that none is waited for where a GPU is.

Each process of a core builds one kernel after another into the cache of kernels (`BILINEAR_CACHE_DIR`), which may be carried to another
machine: an entry is found there if its compiler (NVRTC) has the same version. A problem is N, or MxKxN, and a type; `--gram` adds the
blocks of A*A^T, `--workspace` plans within budgets, and `--ways` all ways of benchmarks/error_speed.py. What `auto` chooses on a GPU by
plans that were timed there is not known here.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from error_speed import plans as ways
from grid import LARGE, drawn

import bilinear
from bilinear.codegen.cuda.target import targets_of
from bilinear.ir.matrix import Layout
from bilinear.measure import bench_shapes
from bilinear.measure.bench_tasks import Built, builder, kernels_of
from bilinear.methods.digits.choice import Digits
from bilinear.methods.digits.triangle import TriangleMultiply
from bilinear.planner.gram import TRIANGLE_TILE
from bilinear.planner.problem import CLASSES

Block = tuple[int, int, int]


def accuracy_of(text: str) -> float | str | None:
    """The accuracy that is meant: none, a class, or a bound."""
    return None if text == "none" else text if text in CLASSES else float(text)


def bytes_of(budget: str, shape: Block, dtype: str) -> int | None:
    """A budget of workspace in bytes; None if there is no limit."""
    if budget == "any":
        return None
    elements = 0.0 if budget == "none" else float(budget)
    return int(elements * shape[0] * shape[2] * np.dtype(dtype).itemsize)


def blocks(options: argparse.Namespace, dtype: str, accuracy: float | str | None) -> Iterator[tuple[Block, bool]]:
    """The products of a type: extents, and whether B is the transpose of a part of A."""
    for size in filter(None, options.sizes.split(",")):
        extents = [int(extent) for extent in size.split("x")]
        m, k, n = extents if len(extents) == 3 else extents * 3
        yield (m, k, n), False
        if options.gram and m == n and dtype in ("float64", "float32"):
            for step in bilinear.plan_gram(n, k, dtype, device=options.device, accuracy=accuracy).steps:
                (top, bottom), (left, right) = step.rows, step.columns
                yield (bottom - top, k, right - left), True
    if options.large is not None:
        yield from ((shape, False) for shape in drawn(options.large, *LARGE))
    if options.grid:
        yield from ((shape, False) for shape, own in bench_shapes.grid(options.grid == "fresh") if own == dtype)


def triangle_kernels() -> set[Built]:
    """Those of A*A^T by digits in one launch, A by rows."""
    square = Layout((1024, 1024), (4096, 4), np.dtype("float32"))
    return {*TriangleMultiply(square, square, Digits((), TRIANGLE_TILE)).all_kernels()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="2048,4096,8192,16384,32768", help="comma-separated N, or MxKxN")
    parser.add_argument("--dtypes", default="float64,float32", help="comma-separated")
    parser.add_argument("--accuracy", default="none,classical,twice", help="comma-separated: none, classes, or bounds")
    parser.add_argument("--gram", action="store_true", help="also A*A^T of the same extents")
    parser.add_argument("--grid", choices=("known", "fresh"), help="also the shapes of benchmarks/grid.py")
    parser.add_argument("--large", type=int, metavar="SEED", help="also the large shapes of benchmarks/grid.py")
    parser.add_argument("--workspace", default="any", help="comma-separated: any, none, or numbers of elements of C")
    parser.add_argument("--ways", type=int, metavar="N", help="also the ways of benchmarks/error_speed.py at this size")
    parser.add_argument("--device", default="h200")
    parser.add_argument("--arch", default="sm_90")
    options = parser.parse_args()
    (target,) = targets_of([options.arch])
    needed: set[Built] = set()
    for dtype in options.dtypes.split(","):
        for accuracy in map(accuracy_of, options.accuracy.split(",")):
            for shape, by_transpose in blocks(options, dtype, accuracy):
                for budget in options.workspace.split(","):
                    plan = bilinear.plan(*shape, dtype, device=options.device, accuracy=accuracy, workspace=bytes_of(budget, shape, dtype))
                    turned = replace(plan, problem=replace(plan.problem, column_major=("B",))) if by_transpose else plan
                    needed |= kernels_of(turned, not target.has_warpgroups)
        if options.ways:
            needed |= {kernel for _, plan in ways(options.ways, dtype) for kernel in kernels_of(plan, not target.has_warpgroups)}
        if options.gram and dtype == "float32" and target.has_warpgroups:
            needed |= triangle_kernels()
    print(f"{len(needed)} programs and kernels", flush=True)
    with builder(lambda _, done, of: print(f"\r{done + 1} of {of}", end="", flush=True), target) as build:
        build(needed)
    print()


if __name__ == "__main__":
    main()
