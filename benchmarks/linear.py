"""The linear launches of a schedule on a GPU, each alone: bytes read and written over time, relative to a device copy in the same run.

Every launch runs on integer-valued data first and is compared with its map, one form after the other, where the size is small enough.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from common import cupy, gpu_state, interleaved, median, need_gpu, save
from launches import copy_rate

from bilinear.backends.bound_launches import grid_blocks, launch_arguments
from bilinear.codegen import lower as lowering
from bilinear.codegen.cuda.nvrtc import Built, build
from bilinear.codegen.cuda.target import target_of
from bilinear.codegen.render import render
from bilinear.frontend import load
from bilinear.ir.element import ELEMENTS
from bilinear.ir.launch import Launch
from bilinear.ir.number import to_float
from bilinear.ir.schedule import Block, LinearStage, Schedule
from bilinear.lowering.prepare import natural_inputs, prepare

LARGEST_CHECKED = 4096
Spaces = dict[str, Any]


class Functions:
    """The kernels of linear launches, built once each."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Built, Any]] = {}

    def of(self, launch: Launch) -> tuple[Built, Any]:
        text = render(launch.kernel)
        if text not in self._known:
            built, module = build(text, launch.kernel.name, target_of(cupy.cuda.Device().compute_capability)), cupy.cuda.function.Module()
            module.load(built.image)
            self._known[text] = built, module.get_function(launch.kernel.name)
        return self._known[text]


def shape_of(schedule: Schedule, name: str, size: int) -> tuple[int, int]:
    bm, bk, bn = size // schedule.m, size // schedule.k, size // schedule.n
    space = schedule.space(name)
    height, width = {"A": (bm, bk), "B": (bk, bn), "C": (bm, bn)}[space.shape]
    return space.rows * height, space.columns * width


def block_of(schedule: Schedule, spaces: Spaces, block: Block) -> Any:
    array, space = spaces[block.space], schedule.space(block.space)
    height, width = array.shape[0] // space.rows, array.shape[1] // space.columns
    return array[block.row * height : (block.row + 1) * height, block.column * width : (block.column + 1) * width]


def filled(schedule: Schedule, stage: LinearStage, size: int, dtype: str) -> Spaces:
    """The spaces of a stage, of small integers."""
    generator = cupy.random.default_rng(1)
    names = dict.fromkeys(block.space for m in stage.maps for block in m.sources + m.targets)
    spaces = {}
    for name in names:
        rows, columns = shape_of(schedule, name, size)
        spaces[name] = cupy.empty((rows, columns), dtype)
        for start in range(0, rows, 4096):
            part = spaces[name][start : start + 4096]
            part[...] = generator.integers(-4, 5, part.shape, dtype=np.int8)
    return spaces


def is_exact(schedule: Schedule, stage: LinearStage, spaces: Spaces, run: Any) -> bool:
    """Whether a launch leaves the forms of the stage's maps in their targets (with beta = 0)."""
    before = {block: block_of(schedule, spaces, block).copy() for m in stage.maps for block in m.sources}
    run()
    for m in stage.maps:
        for target, row in zip(m.targets, m.map.matrix, strict=True):
            wanted = sum(to_float(c) * before[m.sources[i]] for i, c in row)
            if not bool((block_of(schedule, spaces, target) == wanted).all()):
                return False
    return True


def runner(launch: Launch, function: Any, schedule: Schedule, spaces: Spaces, size: int) -> Any:
    real = next(iter(spaces.values())).dtype.type
    extents = {name: size // count for name, count in (("bm", schedule.m), ("bk", schedule.k), ("bn", schedule.n))}
    values: dict[str, Any] = {**extents, "alpha": real(1), "beta": real(0)}
    for name, array in spaces.items():
        values |= {name: np.uint64(array.data.ptr), f"{name}_rs": array.shape[1], f"{name}_cs": 1}
    blocks = grid_blocks(launch.grid, values)
    arguments = tuple(np.int64(value) if isinstance(value, int) else value for value in launch_arguments(launch, values))
    return lambda: function((*blocks, 1), (*launch.kernel.threads, 1), arguments)


def measure(case: str, dtype: str, size: int, functions: Functions, repeats: int, copy: float) -> list[dict[str, Any]]:
    algorithm, levels = case.split(":")
    loaded = load(algorithm)
    schedule = prepare(loaded.scheme, loaded.schedule, int(levels), natural_inputs(loaded.schedule)).schedule
    launches = lowering.schedule_to_launches(schedule, ELEMENTS[dtype])
    rows: list[dict[str, Any]] = []
    for number, (stage, launch) in enumerate(zip(schedule.stages, launches, strict=True), 1):
        if not isinstance(stage, LinearStage):
            continue
        built, function = functions.of(launch)
        spaces = filled(schedule, stage, size, dtype)
        run = runner(launch, function, schedule, spaces, size)
        exact = is_exact(schedule, stage, spaces, run) if size <= LARGEST_CHECKED else None
        ms = median(interleaved({"step": run}, repeats)["step"])
        moved = sum(block_of(schedule, spaces, b).nbytes for m in stage.maps for b in m.sources + m.targets)
        registers, spilled = next(
            ((own.registers, own.spill_stores) for own in built.resources), (None, None)
        )  # silent where NVRTC kept it
        rows.append({"algorithm": algorithm, "levels": int(levels), "dtype": dtype, "size": size, "launch": number, "ms": ms})
        rows[-1] |= {"moved": moved / size**2 / np.dtype(dtype).itemsize, "gb_s": moved / ms / 1e6, "ratio": moved / ms * 1e3 / copy}
        rows[-1] |= {"exact": exact, "registers": registers, "spilled": spilled, "threads": launch.kernel.threads}
        del spaces, run
    cupy.get_default_memory_pool().free_all_blocks()
    return rows


def told(row: dict[str, Any]) -> str:
    what = f"{row['algorithm']}:{row['levels']} {row['dtype']} {row['size']:>6} launch {row['launch']} {row['threads']}"
    rate = f"{row['ms']:8.3f} ms {row['moved']:6.2f} N^2 {row['gb_s']:6.0f} GB/s {row['ratio']:5.2f} of a copy"
    return f"{what:<52} {rate}, exact: {row['exact']}, {row['registers']} registers, {row['spilled']} spilled"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", default="winograd:1,winograd:2,winograd:3,strassen:3,msmes:2")
    parser.add_argument("--dtypes", default="float64,float32")
    parser.add_argument("--sizes", default="4096,8192,16384")
    parser.add_argument("--threads", default="", help="shapes of the blocks of threads to try, such as 32x8,256x1")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    need_gpu()
    functions, rows = Functions(), []
    for threads in options.threads.split(","):
        if threads:
            lowering.LINEAR_THREADS = tuple(map(int, threads.split("x")))  # type: ignore[assignment]
        for dtype in options.dtypes.split(","):
            copy = copy_rate(dtype)
            for size in map(int, options.sizes.split(",")):
                for case in options.cases.split(","):
                    for r in measure(case, dtype, size, functions, options.repeats, copy):
                        rows.append(r)
                        print(told(r), flush=True)
        print(gpu_state(), flush=True)
    save("linear", rows, options.json)


if __name__ == "__main__":
    main()
