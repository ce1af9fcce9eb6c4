"""Where the time of a schedule goes on a GPU: every launch alone, beside what it must move or multiply.

A linear launch is told as the bytes that it reads and writes over its time, relative to a device copy; a product launch as its rate, and
relative to the library's multiply of one product of its size. Launches run on integer-valued data in the order of the schedule, whose
result must come out exact.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from common import classical, cupy, interleaved, median, need_gpu, save

from bilinear.backends.cuda_executor import CudaExecutor
from bilinear.backends.executor import allocate_workspace, execute, lay_out
from bilinear.frontend import load
from bilinear.ir.matrix import call_of
from bilinear.ir.schedule import LinearStage, Schedule
from bilinear.lowering.place import place_schedule
from bilinear.lowering.prepare import natural_inputs, prepare


def copy_rate(dtype: str) -> float:
    """Bytes a second that a device copy reads and writes."""
    source = cupy.ones(2**28, dtype)
    target = cupy.empty_like(source)
    ms = median(interleaved({"copy": lambda: cupy.copyto(target, source)}, 9)["copy"])
    return float(2 * source.nbytes / ms * 1e3)


def work(schedule: Schedule, extents: tuple[int, int, int], itemsize: int) -> list[tuple[str, int, int]]:
    """(kind, elements moved in bytes, flops) of each stage."""
    bm, bk, bn = extents
    size = {"A": bm * bk, "B": bk * bn, "C": bm * bn}
    shape = {space.name: space.shape for space in schedule.spaces}
    found = []
    for stage in schedule.stages:
        if isinstance(stage, LinearStage):
            moved = sum(size[shape[b.space]] for m in stage.maps for b in (*m.sources, *m.targets))
            found.append(("linear", moved * itemsize, 0))
        else:
            found.append((f"{len(stage.products)} products", 0, len(stage.products) * 2 * bm * bk * bn))
    return found


def measure(algorithm: str, dtype: str, size: int, levels: int, repeats: int) -> list[dict[str, Any]]:
    loaded = load(algorithm)
    schedule = prepare(loaded.scheme, loaded.schedule, levels, natural_inputs(loaded.schedule)).schedule
    generator = cupy.random.default_rng(1)
    a, b = (generator.integers(-2, 3, (size, size)).astype(dtype) for _ in range(2))
    c = cupy.empty((size, size), dtype)
    executor, plan = CudaExecutor(), place_schedule(schedule, size, size, size, a.itemsize)
    call = call_of(a, b, c, workspace=allocate_workspace(executor, plan, c.dtype))
    execute(executor, plan, call)
    exact = bool((c == cupy.matmul(a, b)).all())
    steps = executor.steps(plan, schedule.stages, lay_out(plan, call), 1, 0)
    inner = size // schedule.k
    x, y, z = (cupy.ones((inner, inner), dtype) for _ in range(3))
    library = min(median(times) for times in interleaved(classical(x, y, z), repeats).values())
    copy = copy_rate(dtype)
    rows = []
    times = [median(interleaved({"step": step}, repeats)["step"]) for step in steps]
    for number, ((kind, moved, flops), ms) in enumerate(zip(work(schedule, plan.block, a.itemsize), times, strict=True), 1):
        ratio = moved / ms * 1e3 / copy if moved else flops / (2 * inner**3) * library / ms
        rows.append({"algorithm": algorithm, "dtype": dtype, "size": size, "levels": levels, "launch": number, "kind": kind, "ms": ms})
        rows[-1] |= {"gb_s": moved / ms / 1e6, "tflop_s": flops / ms / 1e9, "ratio": ratio, "exact": exact}
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", default="msmes:1,msmes:2,winograd:1,winograd:2,winograd:3")
    parser.add_argument("--dtypes", default="float64,float32")
    parser.add_argument("--sizes", default="4096,8192")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    need_gpu()
    rows: list[dict[str, Any]] = []
    for dtype in options.dtypes.split(","):
        for size in map(int, options.sizes.split(",")):
            for case in options.cases.split(","):
                algorithm, levels = case.split(":")
                found = measure(algorithm, dtype, size, int(levels), options.repeats)
                rows += found
                print(f"{algorithm}, {levels} level(s), {dtype}, {size}: {sum(r['ms'] for r in found):.3f} ms, exact: {found[0]['exact']}")
                for r in found:
                    rate = f"{r['gb_s']:6.0f} GB/s" if r["gb_s"] else f"{r['tflop_s']:5.1f} TFLOP/s"
                    print(f"  {r['launch']:>3}  {r['kind']:<14} {r['ms']:8.3f} ms  {rate:>12}  {r['ratio']:5.2f}")
    save("launches", rows, options.json)


if __name__ == "__main__":
    main()
