"""Tiles of the product kernel on a GPU: the products of schedules, and all their launches, in each candidate beside the library.

Every schedule runs once on integers in each tile, which must come out exact; then its launches are timed on normal data.
`results/tiles-h200.json` keeps runs of an earlier form of this script, some with other texts of the kernel, which are named there.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from common import classical, cupy, gpu_state, interleaved, median, need_gpu, save

from bilinear.backends.cuda_executor import CudaExecutor
from bilinear.backends.executor import allocate_workspace, execute, lay_out
from bilinear.errors import BilinearError
from bilinear.frontend import load
from bilinear.ir.matrix import call_of
from bilinear.ir.schedule import ProductStage, Schedule
from bilinear.ir.tile import TILES, USUAL, MmaTile
from bilinear.lowering.place import place_schedule
from bilinear.lowering.prepare import natural_inputs, plain, prepare

MORE = {
    "float64": ((128, 64, 32, 2, 2, 2, 2), (128, 128, 32, 2, 4, 2, 1), (128, 128, 16, 2, 4, 4, 1)),
    "float32": ((128, 64, 32, 2, 2, 3, 2), (128, 128, 32, 2, 4, 2, 1), (32, 64, 32, 2, 2, 3, 4)),
}
"""Candidates beside the tiles that plans name: m, n, k, the warps along m and n, the stages, and the blocks of threads."""


def candidate(m: int, n: int, k: int, m_warps: int, n_warps: int, stages: int, blocks: int) -> MmaTile:
    """A tile on matrix units, named by its numbers."""
    name = f"{m}x{n}x{k} {m_warps}x{n_warps} s{stages} b{blocks}"
    return MmaTile(name, USUAL, m, n, k, m_warps, n_warps, stages, blocks)


def schedule_of(case: str) -> Schedule:
    """`winograd:3` as the proved schedule of so many levels; `classical` as the plain product."""
    name, _, levels = case.partition(":")
    if name == "classical":
        return plain().schedule
    loaded = load(name)
    return prepare(loaded.scheme, loaded.schedule, int(levels or 1), natural_inputs(loaded.schedule)).schedule


def in_tile(tile: str, schedule: Schedule, whole: tuple[Any, Any], drawn: tuple[Any, Any], wanted: Any) -> tuple[Any, Any, bool]:
    """The product launches and all launches with this tile, and whether integers came out exact; A and B hold normal data afterwards."""
    size, c = wanted.shape[0], cupy.empty_like(wanted)
    a, b = (x.copy() for x in whole)
    executor, plan = CudaExecutor(), place_schedule(schedule, size, size, size, c.itemsize, tile=tile)
    call = call_of(a, b, c, workspace=allocate_workspace(executor, plan, c.dtype))
    c[...] = cupy.nan
    execute(executor, plan, call)
    exact = bool((c == wanted).all())
    a[...], b[...] = drawn
    steps = executor.steps(plan, schedule.stages, lay_out(plan, call), 1, 0)
    products = [step for step, stage in zip(steps, schedule.stages, strict=True) if isinstance(stage, ProductStage)]
    return (lambda: [step() for step in products]), (lambda: [step() for step in steps]), exact


def measure(case: str, dtype: str, size: int, repeats: int, settle_ms: float) -> list[dict[str, Any]]:
    """The rows of one schedule, element type and size."""
    schedule, generator = schedule_of(case), cupy.random.default_rng(1)
    x, y = (generator.integers(-2, 3, (size, size)).astype(dtype) for _ in range(2))
    a, b = (generator.standard_normal((size, size), dtype=dtype) for _ in range(2))
    wanted = cupy.matmul(x, y)
    calls: dict[Any, Any] = {("library", name): call for name, call in classical(a, b, cupy.empty_like(wanted)).items()}
    exact: dict[str, bool] = {}
    for tile in TILES[dtype]:
        try:
            products, launches, exact[tile] = in_tile(tile, schedule, (x, y), (a, b), wanted)
        except BilinearError as error:
            print(f"{tile}: {error.diagnostics[0].notes[-1:]}")
            continue
        calls |= {("products", tile): products, ("all launches", tile): launches}
    inner = size // schedule.m
    flops = {"products": 2 * inner**3 * sum(len(s.products) for s in schedule.stages if isinstance(s, ProductStage))}
    rows = []
    for (timed, name), values in interleaved(calls, repeats, settle_ms=settle_ms).items():
        rate = flops.get(timed, 2 * size**3) / median(values) / 1e9
        rows.append({"dtype": dtype, "case": case, "size": size, "timed": timed, "tile": name, "ms": median(values), "tflop_s": rate})
        rows[-1]["exact"] = exact.get(name)
        print(f"{dtype} {case:<12} {size:>6} {timed:<12} {median(values):9.3f} ms {rate:6.1f} TFLOP/s  {exact.get(name)!s:>5}  {name}")
    print(gpu_state(), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="classical,winograd:2,winograd:3,msmes:2")
    parser.add_argument("--dtypes", default="float64,float32")
    parser.add_argument("--sizes", default="4096,8192")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--settle-ms", type=float, default=20.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    need_gpu()
    for dtype, candidates in MORE.items():
        TILES[dtype] |= {tile.name: tile for tile in (candidate(*numbers) for numbers in candidates)}
    rows: list[dict[str, Any]] = []
    for dtype in options.dtypes.split(","):
        for size in map(int, options.sizes.split(",")):
            for case in options.cases.split(","):
                rows += measure(case, dtype, size, options.repeats, options.settle_ms)
    save("tiles", rows, options.json)


if __name__ == "__main__":
    main()
