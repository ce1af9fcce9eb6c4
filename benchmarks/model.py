"""The performance model beside measurements: milliseconds of plans over a grid of shapes on a GPU, and how far the model is off.

`--json FILE` measures and keeps the points; `--evaluate FILE` weighs the model of this checkout against points measured before, and
needs no GPU. Shapes marked as held out were never used for calibration.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache, partial
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from time import monotonic
from typing import Any

from common import classical, cupy, gpu_state, interleaved, median, need_gpu, running, save

import bilinear
from bilinear.codegen.build import build_program
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.ir.element import ELEMENTS
from bilinear.ir.placement import Placement
from bilinear.ir.schedule import Schedule
from bilinear.ir.tile import LARGE, MMA_FLOAT64, SMALL, USUAL, tile_on
from bilinear.lowering.place import place_schedule
from bilinear.lowering.prepare import Level, plain, prepare_levels
from bilinear.measure.timing import each_milliseconds
from bilinear.methods.planning import make_plan
from bilinear.planner.device import Device
from bilinear.planner.device_files import load_device
from bilinear.planner.model import Profile, library_seconds, predict, profile_of, stage_seconds
from bilinear.planner.policy import Policy
from bilinear.planner.problem import Problem
from bilinear.planner.ways import Way, algorithm_named

Shape = tuple[int, int, int]
LIBRARY = "library"
SETTLE_MS = 20.0
SAVE_SECONDS = 20.0
UNIT = MMA_FLOAT64.unit
"""Floats are measured there, too: an H200 multiplies doubles as fast."""
LARGE_TILE_MOST, SMALL_TILE_MOST = 8192, 2560
"""Largest extents at which all ways are measured in the large tile, too, and at which the kernel alone is in the small one."""

CALIBRATION: tuple[Shape, ...] = (
    *((n, n, n) for n in (512, 1024, 1536, 2048, 3072, 4096, 8192, 16384)),
    (16384, 2048, 16384),
    (16384, 16384, 2048),
    (2048, 16384, 16384),
    (4099, 5003, 3001),
)
HELD_OUT: tuple[Shape, ...] = (
    (768, 768, 768),
    (1280, 1280, 1280),
    (2560, 2560, 2560),
    (5000, 5000, 5000),
    (6144, 6144, 6144),
    (12288, 12288, 12288),
    (7168, 5120, 6144),
    (8192, 16384, 4096),
    (4096, 16384, 4096),
    (20000, 3000, 20000),
    (10000, 6000, 14000),
    (6001, 7003, 5005),
)
FRESH: tuple[Shape, ...] = (
    (3500, 3500, 3500),
    (4500, 9000, 4500),
    (9000, 9000, 9000),
    (14000, 14000, 14000),
    (12000, 3000, 9000),
    (2816, 11264, 5632),
)
"""Held out, too, and younger than the model."""
WAYS: tuple[Way, ...] = (
    Way(("classical",)),
    *(Way(("winograd",) * levels) for levels in (1, 2, 3, 4)),
    Way(("winograd_depth_first",)),
    Way(("winograd_depth_first", "winograd_depth_first")),
    Way(("winograd_depth_first", "winograd")),
    Way(("winograd_depth_first", "winograd", "winograd")),
    Way(("winograd_depth_first", "dps_444")),
    Way(("dps_444",)),
    Way(("winograd", "dps_444")),
    Way(("hopcroft_kerr",)),
    Way(("laderman",)),
    *(Way(("msmes",) * levels, "restore") for levels in (1, 2, 3)),
    Way(("winograd_in_place",), "restore"),
    Way(("winograd_in_place", "winograd"), "restore"),
)


@cache
def lowered(way: Way) -> Schedule:
    """The proved schedule of a way."""
    return prepare_levels(tuple(Level(x.scheme, x.schedule) for x in map(algorithm_named, way.levels)), way.inputs)


@cache
def profile(way: Way) -> Profile:
    return profile_of(lowered(way))


def plan_of(way: Way, shape: Shape, dtype: str, tile: str) -> Placement:
    return place_schedule(lowered(way), *shape, ELEMENTS[dtype].bytes, tile=tile)


def ways_for(shape: Shape) -> Iterator[Way]:
    for way in WAYS:
        schedule = lowered(way)
        if min(shape[0] // schedule.m, shape[1] // schedule.k, shape[2] // schedule.n) >= Policy().least_block:
            yield way


def way_of(row: dict[str, Any]) -> Way | None:
    """What was measured; None for the library."""
    return Way(tuple(row["levels"]), row["inputs"]) if row["levels"] else None


def name_of(row: dict[str, Any]) -> str:
    runs = [(name, len(list(same))) for name, same in groupby(row["levels"])]
    levels = "+".join(f"{name}*{count}" if count > 1 else name for name, count in runs)
    return f"{levels}, tile {row['tile']}" if levels else LIBRARY


def build(task: tuple[Way | None, str, str, str]) -> None:
    """Fill the kernel cache with one program."""
    way, dtype, architecture, tile = task
    build_program(plain().schedule if way is None else lowered(way), ELEMENTS[dtype], [CudaTarget(architecture)], tile)


def build_all(ways: tuple[Way, ...], dtypes: list[str]) -> None:
    """All kernels at once, a process a core, so that the GPU does not wait for the compiler."""
    architecture = f"sm_{cupy.cuda.Device().compute_capability}"
    slow_first = sorted(ways, key=lambda way: -len(way.levels))
    tasks: list[tuple[Way | None, str, str, str]] = [
        (way, dtype, architecture, tile_on(dtype, UNIT, size))
        for way in slow_first
        for dtype in dtypes
        for size in ((USUAL, LARGE, SMALL) if len(way.levels) == 1 else (USUAL, LARGE))
    ]
    tasks += [(None, dtype, architecture, tile_on(dtype, UNIT, SMALL)) for dtype in dtypes]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        list(pool.map(build, tasks))


def stage_times(way: Way, tile: str, shape: Shape, a: Any, b: Any, c: Any) -> list[float]:
    """Milliseconds of each stage of the core, by events around every launch; the second of two runs."""
    from bilinear.backends.cuda_executor import CudaExecutor
    from bilinear.backends.executor import allocate_workspace, lay_out
    from bilinear.ir.matrix import call_of

    plan, executor = plan_of(way, shape, str(a.dtype), tile), CudaExecutor()
    spaces = lay_out(plan, call_of(a, b, c, workspace=allocate_workspace(executor, plan, c.dtype)))
    steps = executor.steps(plan, plan.schedule.stages, spaces, 1, 1 if plan.core_is_begun else 0)
    return [each_milliseconds(steps) for _ in range(2)][1]


def measure(shape: Shape, dtype: str, tiled: list[tuple[Way, str]], repeats: int) -> Iterator[dict[str, Any]]:
    """The points of one shape and element type, timed interleaved; the library is the fastest of those that are there."""
    cupy.get_default_memory_pool().free_all_blocks()
    m, k, n = shape
    generator = cupy.random.default_rng(8)
    a, b = generator.standard_normal((m, k), dtype=dtype), generator.standard_normal((k, n), dtype=dtype)
    c = cupy.empty((m, n), dtype)
    calls: dict[Any, Any] = dict(classical(a, b, c))
    for way, tile in tiled:
        choice = bilinear.plan(m, k, n, dtype, device="h200", inputs=way.inputs, levels=way.levels)
        choice = replace(choice, candidates=(running(choice.chosen, tile=tile), *choice.candidates[1:]))
        calls[way, tile] = partial(bilinear.matmul, a, b, c, plan=choice)
    times: dict[Any, float] = {name: median(values) for name, values in interleaved(calls, repeats, settle_ms=SETTLE_MS).items()}
    common = {"shape": shape, "dtype": dtype, "held_out": shape not in CALIBRATION}
    libraries = {name: times.pop(name) for name in list(times) if isinstance(name, str)}
    yield {**common, "levels": (), "inputs": "preserve", "ms": min(libraries.values()), **libraries, **gpu_state()}
    for way, tile in tiled:
        stages = [round(ms, 5) for ms in stage_times(way, tile, shape, a, b, c)]
        yield {**common, "levels": way.levels, "inputs": way.inputs, "tile": tile, "ms": times[way, tile], "stages": stages}


def worth_timing(shape: Shape, dtype: str, device: Device, near: float) -> list[tuple[Way, str]]:
    """Ways and their tiles that are predicted to take at most `near` times as long as the fastest one, and what the planner runs."""
    times = {(way, tile): predict(profile(way), plan_of(way, shape, dtype, tile), dtype, device) for way, tile in tiled(shape, dtype)}
    near_ones = [one for one, seconds in times.items() if seconds <= near * min(times.values())]
    return list(dict.fromkeys((*near_ones, *(one for one in (chosen(shape, dtype, device),) if one is not None))))


def chosen(shape: Shape, dtype: str, device: Device) -> tuple[Way, str] | None:
    """What the planner runs where memory is unlimited and the inputs are preserved; None for the library."""
    found = make_plan(Problem(*shape, dtype), device).chosen
    return None if found.is_library else (Way(found.levels, found.promise), found.tile)


def tiled(shape: Shape, dtype: str) -> Iterator[tuple[Way, str]]:
    """Each way in the tiles that it is measured in: the small one only where a problem is small."""
    for way in ways_for(shape):
        yield way, tile_on(dtype, UNIT, USUAL)
        if max(shape) <= LARGE_TILE_MOST or way.levels[-1] in ("classical", "winograd", "msmes"):
            yield way, tile_on(dtype, UNIT, LARGE)
        if way.levels == ("classical",) and max(shape) <= SMALL_TILE_MOST:
            yield way, tile_on(dtype, UNIT, SMALL)


def measure_all(
    shapes: tuple[Shape, ...], dtypes: list[str], device: Device, near: float, repeats: int, path: Path | None
) -> list[dict[str, Any]]:
    """All points, saved now and then where there is a file for them: a run can be cut."""
    picks = (chosen(shape, dtype, device) for shape in shapes for dtype in dtypes)
    build_all(tuple(dict.fromkeys((*WAYS, *(pick[0] for pick in picks if pick is not None)))), dtypes)
    rows: list[dict[str, Any]] = []
    saved = monotonic()
    for dtype in dtypes:
        for shape in shapes:
            try:
                found = list(measure(shape, dtype, worth_timing(shape, dtype, device, near), repeats))
            except Exception as error:  # the other points are worth keeping
                print(f"{dtype} {shape}: {type(error).__name__}: {error}", flush=True)
                continue
            print(dtype, shape, "  ".join(f"{name_of(r)} {r['ms']:.3f}" for r in found), flush=True)
            rows += found
            if path is not None and monotonic() > saved + SAVE_SECONDS:
                save("model", rows, path)
                saved = monotonic()
    save("model", rows, path)
    return rows


def predicted(row: dict[str, Any], device: Device) -> float:
    """Milliseconds that the model says."""
    m, k, n = row["shape"]
    shape = m, k, n
    way = way_of(row)
    if way is None:
        return library_seconds(shape, row["dtype"], device) * 1e3
    return predict(profile(way), plan_of(way, shape, row["dtype"], row["tile"]), row["dtype"], device) * 1e3


def evaluate(rows: list[dict[str, Any]], device: Device, stages: bool) -> None:
    """Print every point, the errors of the model, and how good its picks are."""
    for row in rows:
        row["predicted"] = predicted(row, device)
        off = row["predicted"] / row["ms"] - 1
        name = name_of(row)
        shape = "x".join(map(str, row["shape"]))
        print(f"{row['dtype']} {shape:>18} {name:>34} {row['ms']:9.3f} {row['predicted']:9.3f} {off:+7.1%}{'  held out' * row['held_out']}")
        if stages and "stages" in row:
            print_stages(row, device)
    parts = {
        "calibration": [row for row in rows if not row["held_out"]],
        "held out": [row for row in rows if row["held_out"]],
        "of these, younger than the model": [row for row in rows if tuple(row["shape"]) in FRESH],
    }
    for name, part in parts.items():
        if part:
            print(f"{name}: {summary(part, device)}")


def print_stages(row: dict[str, Any], device: Device) -> None:
    way = way_of(row)
    assert way is not None
    plan = plan_of(way, tuple(row["shape"]), row["dtype"], row["tile"])
    works = profile(way).works
    for work, ms, seconds in zip(works, row["stages"], stage_seconds(works, plan, row["dtype"], device), strict=True):
        print(f"      {ms:9.3f} {seconds * 1e3:9.3f} {seconds * 1e3 / ms:6.2f}  {work}")


def picked(rows: list[dict[str, Any]], device: Device) -> dict[str, Any] | None:
    """The measured point of what the planner runs for a problem; None where that was not measured."""
    m, k, n = rows[0]["shape"]
    known = chosen((m, k, n), rows[0]["dtype"], device)
    return next((row for row in rows if (way_of(row), row.get("tile")) == (known or (None, None))), None)


def summary(rows: list[dict[str, Any]], device: Device) -> str:
    errors = sorted(abs(row["predicted"] / row["ms"] - 1) for row in rows)
    problems: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        problems.setdefault((tuple(row["shape"]), row["dtype"]), []).append(row)
    picks = [(picked(found, device), min(row["ms"] for row in found if row["inputs"] == "preserve")) for found in problems.values()]
    losses = [own["ms"] / best - 1 for own, best in picks if own is not None]
    good, unknown = sum(loss <= 0.05 for loss in losses), len(picks) - len(losses)
    off = f"median {statistics.median(errors):.1%}, 90 % {errors[int(0.9 * len(errors))]:.1%}, worst {errors[-1]:.1%}"
    told = f"within 5 % of the best measured at {good} of {len(losses)} problems, worst {max(losses, default=0.0):.1%}"
    return f"{len(rows)} points; error: {off}; pick: {told}; not measured at {unknown}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtypes", default="float64,float32")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--part", choices=("calibration", "held-out", "fresh", "all"), default="all")
    parser.add_argument("--device", default="h200")
    parser.add_argument("--near", type=float, default=math.inf, help="time what is predicted to take at most so many times the best")
    parser.add_argument("--stages", action="store_true", help="print every stage beside its prediction")
    parser.add_argument("--json", type=Path, help="where the points are kept")
    parser.add_argument("--evaluate", type=Path, help="points measured before")
    options = parser.parse_args()
    shapes = {"calibration": CALIBRATION, "held-out": HELD_OUT, "fresh": FRESH, "all": CALIBRATION + HELD_OUT + FRESH}[options.part]
    device = load_device(options.device)
    if options.evaluate:
        rows = json.loads(options.evaluate.read_text())["rows"]
    else:
        need_gpu()
        rows = measure_all(shapes, options.dtypes.split(","), device, options.near, options.repeats, options.json)
    evaluate(rows, device, options.stages)


if __name__ == "__main__":
    main()
