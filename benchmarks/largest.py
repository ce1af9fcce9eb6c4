"""The largest N before memory ends, by algorithm, from the planner's placements; with --measure also its speed there on this GPU.

Beside section 3.4.4 of A. G. Krishnan, Fast and Memory Efficient Strassen's Matrix Multiplication on GPU Cluster, Concordia, 2021, whose
MSMES reaches 14,976 on a card of 6 GB and 24,576 on one of 16 GB, 256 more than cuBLAS. A, B and C and the workspace fill memory, or
with --share a part of it. On the GPU the part is what it has free, and CuPy's pool is given no more. Each size is multiplied twice on
integers, and the next one is tried too.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from common import cupy, need_gpu, parser_of, save

import bilinear
from bilinear.errors import BilinearError
from bilinear.ir.element import ELEMENTS
from bilinear.planner.device_files import load_description
from bilinear.planner.problem import Problem
from bilinear.planner.profiles import outline
from bilinear.planner.ways import Way
from bilinear.reporting.table import aligned

STEP = 256
WAYS = {
    "the library": Way(()),
    **{f"msmes, {levels}": Way(("msmes",) * levels, "restore") for levels in (1, 2, 3)},
    "winograd_in_place, 1": Way(("winograd_in_place",), "restore"),
    **{f"winograd_depth_first, {levels}": Way(("winograd_depth_first",) * levels) for levels in (1, 2, 3)},
    **{f"winograd, {levels}": Way(("winograd",) * levels) for levels in (1, 2, 3)},
    **{f"s_mm, {levels}": Way(("s_mm",) * levels) for levels in (1, 2)},
}
"""Levels of one algorithm, by its name and their number."""


def needed(way: Way, n: int, dtype: str) -> int:
    """Bytes of A, B, C and of the workspace."""
    size = ELEMENTS[dtype].bytes
    if not way.levels:
        return 3 * n * n * size
    return size * (3 * n * n + outline(way).placed(Problem(n, n, n, dtype), size).allocated_elements)


def largest(way: Way, memory: float, dtype: str) -> int:
    """The largest multiple of `STEP` that fits."""
    n = STEP
    while needed(way, n + STEP, dtype) <= memory:
        n += STEP
    return n


def measured(way: Way, n: int, dtype: str) -> dict[str, Any]:
    """Whether this size and the next one run, and TFLOP/s of 2 N^3 operations."""
    found: dict[str, Any] = {}
    for extent in (n, n + STEP):
        cupy.get_default_memory_pool().free_all_blocks()
        try:
            a, b, c = cupy.ones((extent, extent), dtype), cupy.ones((extent, extent), dtype), cupy.empty((extent, extent), dtype)
            multiply = partial(cupy.matmul, a, b, out=c)
            if way.levels:
                plan = bilinear.plan(extent, extent, extent, dtype, inputs=way.inputs, levels=way.levels)
                multiply = partial(bilinear.matmul, a, b, c, plan=plan)
            multiply()
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record()
            multiply()
            end.record()
            end.synchronize()
            ms = cupy.cuda.get_elapsed_time(begin, end)
            exact = all(bool(x.min() == value == x.max()) for x, value in ((a, 1), (b, 1), (c, extent)))  # allocates next to nothing
            found |= {f"exact {extent}": exact, f"TFLOP/s {extent}": round(2 * extent**3 / ms / 1e9, 1)}
        except (cupy.cuda.memory.OutOfMemoryError, BilinearError) as error:
            found[f"refused {extent}"] = str(error).splitlines()[0]
        a = b = c = multiply = None  # type: ignore[assignment]
    return found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--devices", default="gtx1660ti,v100,h100,h200", help="descriptions or data sheets, comma-separated")
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--measure", action="store_true")
    options = parser.parse_args()
    if options.measure:
        need_gpu()
        memory = options.share * cupy.cuda.runtime.memGetInfo()[0]
        cupy.get_default_memory_pool().set_limit(int(memory))
        rows = []
        for name, way in WAYS.items():
            n = largest(way, memory, options.dtype)
            rows.append({"way": name, "n": n, "needed": needed(way, n, options.dtype), **measured(way, n, options.dtype)})
            print(rows[-1], flush=True)
            if options.json:
                save("largest", rows, options.json)
        return
    devices = [load_description(name) for name in options.devices.split(",")]
    cells = [(name, *(largest(way, options.share * one.memory, options.dtype) for one in devices)) for name, way in WAYS.items()]
    print("\n".join(aligned(cells, (f"largest N, {options.dtype}", *(one.name for one in devices)))))


if __name__ == "__main__":
    main()
