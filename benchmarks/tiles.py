"""Tiles of the plain product on a GPU: time of each candidate beside the library's, on integer-valued data that must come out exact."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import cupy
from common import classical, gpu_state, interleaved, median, save

from bilinear.codegen import schedule_to_launches as lowering
from bilinear.errors import BilinearError
from bilinear.ir.kernel import MmaTile, SimtTile
from bilinear.planner.plan import make_plan
from bilinear.planner.prepare import plain
from bilinear.runtime import cuda_executor
from bilinear.runtime.executor import execute

CANDIDATES: dict[str, list[SimtTile | MmaTile]] = {
    "float64": [
        *lowering.KERNEL_TILES["double"],
        MmaTile(128, 64, 16, 2, 2, 4, blocks=2),
        MmaTile(128, 64, 32, 2, 2, 2, blocks=2),
        MmaTile(128, 128, 32, 2, 4, 3, blocks=1),
        MmaTile(64, 64, 16, 2, 2, 3, blocks=3),
    ],
    "float32": [
        *lowering.KERNEL_TILES["float"],
        SimtTile(128, 128, 16, 2, 2, 3, blocks=2),
        MmaTile(128, 128, 32, 2, 4, 3, blocks=1),
        MmaTile(128, 128, 32, 2, 4, 2, blocks=1),
        MmaTile(128, 64, 32, 2, 2, 3, blocks=2),
        MmaTile(64, 64, 32, 2, 2, 3, blocks=3),
    ],
}


def steps(tile: SimtTile | MmaTile, dtype: str, a: Any, b: Any, c: Any) -> Any:
    """The launch of a plain product with this tile, built now."""
    lowering.KERNEL_TILES[{"float64": "double", "float32": "float"}[dtype]] = (tile,)
    cuda_executor._functions.clear()
    schedule = plain().schedule
    plan = make_plan(schedule, a.shape[0], a.shape[1], b.shape[1], a.itemsize)
    executor = cuda_executor.CudaExecutor()
    c[...] = cupy.nan
    execute(executor, plan, a, b, c, 1, 0)
    (step,) = executor.steps(plan, schedule.stages, {"A": a, "B": b, "C": c}, 1, 0)
    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="4096,8192")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for dtype, tiles in CANDIDATES.items():
        for size in map(int, options.sizes.split(",")):
            generator = cupy.random.default_rng(1)
            a, b = (generator.integers(-4, 5, (size, size)).astype(dtype) for _ in range(2))
            wanted = cupy.matmul(a, b)
            c = cupy.empty_like(wanted)
            calls, exact = classical(a, b, cupy.empty_like(c)), {}
            for tile in tiles:
                try:
                    calls[str(tile)] = steps(tile, dtype, a, b, c)
                except BilinearError as error:
                    print(f"{tile}: {error.diagnostics[0].notes[-1:]}")
                    continue
                exact[str(tile)] = bool((c == wanted).all())
            a[...], b[...] = (generator.standard_normal((size, size), dtype=dtype) for _ in range(2))
            times = {name: median(values) for name, values in interleaved(calls, options.repeats).items()}
            library = min(time for name, time in times.items() if name not in exact)
            for name, ms in times.items():
                rows.append({"dtype": dtype, "size": size, "tile": name, "ms": ms, "ratio": library / ms, "exact": exact.get(name)})
                rate = 2e-9 * size**3 / ms
                print(f"{dtype} {size:>6} {ms:9.3f} ms  {rate:6.1f} TFLOP/s  {library / ms:6.3f}  {exact.get(name)!s:>5}  {name}")
            print(gpu_state(), flush=True)
    save("tiles", rows, options.json)


if __name__ == "__main__":
    main()
