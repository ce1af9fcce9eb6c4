"""Host time of a repeated `bilinear.matmul` on GPU arrays: what a call adds to its launches, and to the library's own multiply.

On a GPU, `CALLS` calls of one problem, with operands that alternate, are made without waiting for the device, small enough that the launch
queue never fills up; the same launches, made ready beforehand, are issued as often. A cold call finds nothing of what it needs in the
caches. The kernels of all cases are built first, at once. `--profile CASE` prints where a call spends its time.
"""

from __future__ import annotations

import cProfile
import gc
import pstats
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from time import perf_counter
from typing import Any

from common import median, need_gpu, parser_of, save

CALLS = 100
ROUNDS = 5
COLD_CALLS = 9
PUSHED_OUT = 2**26
"""Bytes that are written between two cold calls, so that none of what a call uses is left in the caches of a core."""
CASES: dict[str, dict[str, Any]] = {
    "levels=0": {"levels": 0},
    "auto (library)": {},
    "winograd:1": {"algorithm": "winograd", "levels": 1},
    "winograd:2": {"algorithm": "winograd", "levels": 2},
    "winograd:3": {"algorithm": "winograd", "levels": 3},
    "winograd:2 odd": {"algorithm": "winograd", "levels": 2},
    "msmes:1 consume": {"algorithm": "msmes", "levels": 1, "inputs": "consume"},
    "msmes:2 consume": {"algorithm": "msmes", "levels": 2, "inputs": "consume"},
    "msmes:1 restore": {"algorithm": "msmes", "levels": 1, "inputs": "restore"},
    "msmes:2 restore": {"algorithm": "msmes", "levels": 2, "inputs": "restore"},
    "msmes:3 restore": {"algorithm": "msmes", "levels": 3, "inputs": "restore"},
}
"""Those that restore their inputs look for Inf and NaN and wait for the answer, and so for the multiply before it; so do their launches."""


def microseconds(call: Callable[[int], object], wait: Callable[[], object]) -> float:
    """Median over some rounds of the host time of one of `CALLS` calls in a row, the device idle at the start of each round."""
    call(0), call(1)
    times = []
    gc.disable()
    for _ in range(ROUNDS):
        wait()
        start = perf_counter()
        for i in range(CALLS):
            call(i)
        times.append((perf_counter() - start) / CALLS * 1e6)
    wait()
    gc.enable()
    return median(times)


def cold_microseconds(call: Callable[[int], object], wait: Callable[[], object]) -> float:
    """Median of the host time of single calls, with other work and its memory between them."""
    import numpy as np

    other, times = np.ones(PUSHED_OUT, np.uint8), []
    for i in range(COLD_CALLS):
        other += 1
        wait()
        start = perf_counter()
        call(i)
        times.append((perf_counter() - start) * 1e6)
    return median(times)


def prepared(options: dict[str, Any], a: Any, b: Any, c: Any) -> tuple[int, Callable[[int], object]]:
    """How many launches a case has, and a call that issues them, all made ready beforehand.

    Where inputs are restored, they are looked at first: two launches, and the wait for their answer.
    """
    import cupy

    from bilinear.backends import cuda_executor
    from bilinear.backends.bound_launches import CELL
    from bilinear.backends.executor import allocate_workspace
    from bilinear.frontend import load
    from bilinear.ir.kernel import ScanKernel
    from bilinear.ir.matrix import call_of, layout_of
    from bilinear.measure.bench_library import library_calls
    from bilinear.runtime.operands import layouts_of
    from bilinear.runtime.recipe import Recipe, placement_for

    if "algorithm" not in options:
        call = library_calls(a, b, c)["cublas"]
        return 1, lambda _: call()
    executor = cuda_executor.CudaExecutor()
    recipe = Recipe((load(options["algorithm"]),), options["levels"], options.get("inputs", "preserve"))
    plan = placement_for(recipe, layouts_of(a, b, c))
    buffer = allocate_workspace(executor, plan, c.dtype)
    held = ExitStack()  # of arguments that are never given back, so that no call changes them
    steps = held.enter_context(executor.ready(plan, call_of(a, b, c, 1.0, 0.0, buffer)))
    looks: list[Callable[[], None]] = []
    flag = None
    if options.get("inputs") == "restore":
        flag = cuda_executor._Flag(cupy.cuda.alloc_pinned_memory(CELL))
        device, stream = cupy.cuda.runtime.getDevice(), executor.stream()
        scans = [cuda_executor._look(ScanKernel, layout_of(x), device) for x in (a, b)]
        looks = [held.enter_context(scan.ready((x.data.ptr, flag.address), 1, 0, stream))[0] for scan, x in zip(scans, (a, b), strict=True)]

    def launch(_: int, held: Any = (held, buffer, flag)) -> None:  # what the launches read lives as long as they may be issued
        for look in looks:
            look()
        if looks:
            executor.wait()
        for step in steps:
            step()

    return len(looks) + len(steps), launch


def build(names: list[str], size: int, dtype: str) -> None:
    """Build the kernels of these cases, all at once, but those of strips."""
    import cupy

    from bilinear.backends.machine import target_here
    from bilinear.codegen.build import build_program
    from bilinear.frontend import load
    from bilinear.ir.element import ELEMENTS
    from bilinear.runtime.operands import layouts_of
    from bilinear.runtime.recipe import Recipe, placement_for

    target, plans = target_here(), []
    for name in names:
        options, m = CASES[name], size + name.endswith("odd")
        if "algorithm" in options:
            recipe = Recipe((load(options["algorithm"]),), options["levels"], options.get("inputs", "preserve"))
            plans.append(placement_for(recipe, layouts_of(*(cupy.empty((m, m), dtype) for _ in range(3)))))
    with ThreadPoolExecutor(max(1, len(plans))) as pool:
        list(pool.map(lambda plan: build_program(plan.schedule, ELEMENTS[dtype], [target], plan.tile, mode=plan.mode), plans))


def measure(name: str, size: int, dtype: str) -> dict[str, Any]:
    """One case: with and without `out`, and the launches alone."""
    import cupy

    import bilinear

    options = CASES[name]
    m = size + 1 if name.endswith("odd") else size
    sets = [tuple(cupy.ones((m, m), dtype) for _ in range(3)) for _ in range(2)]
    wait = cupy.cuda.get_current_stream().synchronize
    into = microseconds(lambda i: bilinear.matmul(*sets[i % 2], **options), wait)
    fresh = microseconds(lambda i: bilinear.matmul(*sets[i % 2][:2], **options), wait)
    cold = cold_microseconds(lambda i: bilinear.matmul(*sets[i % 2], **options), wait)
    launches, launch = prepared(options, *sets[0])
    alone = microseconds(launch, wait)
    row = {"case": name, "dtype": dtype, "size": m, "launches": launches, "us": into, "us_fresh_out": fresh, "us_launches": alone}
    return row | {"us_added": into - alone, "us_cold": cold, "us_launches_cold": cold_microseconds(launch, wait)}


def beside_torch(size: int, dtype: str) -> list[dict[str, Any]]:
    """`torch.mm`, and `auto` on the same tensors and on arrays, in turns; nothing without PyTorch."""
    import cupy

    import bilinear

    try:
        import torch
    except ImportError:
        return []
    arrays = [tuple(cupy.ones((size, size), dtype) for _ in range(3)) for _ in range(2)]
    tensors = [tuple(torch.from_dlpack(x) for x in own) for own in arrays]
    calls: dict[str, tuple[Callable[[int], object], Callable[[int], object]]] = {
        "torch.mm": (lambda i: torch.mm(*tensors[i % 2][:2], out=tensors[i % 2][2]), lambda i: torch.mm(*tensors[i % 2][:2])),
        "auto, tensors": (lambda i: bilinear.matmul(*tensors[i % 2]), lambda i: bilinear.matmul(*tensors[i % 2][:2])),
        "auto, arrays": (lambda i: bilinear.matmul(*arrays[i % 2]), lambda i: bilinear.matmul(*arrays[i % 2][:2])),
        "cupy.matmul": (lambda i: cupy.matmul(*arrays[i % 2][:2], out=arrays[i % 2][2]), lambda i: cupy.matmul(*arrays[i % 2][:2])),
    }
    wait = torch.cuda.synchronize
    rounds = [{name: tuple(microseconds(call, wait) for call in both) for name, both in calls.items()} for _ in range(3)]
    facts = {"dtype": dtype, "size": size, "launches": 1}
    medians = {name: [median([own[name][i] for own in rounds]) for i in range(2)] for name in calls}
    return [{"case": name, **facts, "us": into, "us_fresh_out": fresh} for name, (into, fresh) in medians.items()]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--profile", metavar="CASE")
    options = parser.parse_args()
    need_gpu()
    if options.profile:
        run = partial(measure, options.profile, options.size, options.dtype)
        run()
        profile = cProfile.Profile()
        profile.runcall(run)
        pstats.Stats(profile).sort_stats("tottime").print_stats(35)
        return
    cases = options.cases.split(",")
    build(cases, options.size, options.dtype)
    rows = []
    for case in cases:  # a line at once: a run that is cut off has told what it measured
        rows.append(measure(case, options.size, options.dtype))
        print(f"{case}: {rows[-1]['us']:.1f} us, {rows[-1]['us_added']:.1f} added", flush=True)
    rows += beside_torch(options.size, options.dtype)
    figures = {"us": "call us", "us_fresh_out": "no out", "us_launches": "launches", "us_added": "added"}
    figures |= {"us_cold": "cold", "us_launches_cold": "launches"}
    print(f"{'case':<18}{'launches':>9}" + "".join(f"{name:>10}" for name in figures.values()))
    for r in rows:
        print(f"{r['case']:<18}{r['launches']:>9}" + "".join(f"{r[figure]:>10.1f}" for figure in figures if figure in r))
    save("host_time", rows, options.json)


if __name__ == "__main__":
    main()
