"""Execution modes: what each of them launches and moves, and on a GPU its times beside those of the cost models (docs/modes.md).

Without options, the tables of docs/modes.md are drawn from counts, for which no GPU is needed, and from the committed results, if there
are any; with --check they are only compared. With --measure, pilots are timed first; then every mode multiplies integers, which must come
out exact; then each stage is timed by itself, and the whole plan, launched and as a graph, on the device alone. --describe writes the
device's description with the rates that the pilots tell.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from common import median, need_gpu, queued, save
from mode_model import extended_seconds, published_seconds, stages_of, traffic_of
from pilots import SMALL_SIZE, Pilot, pilot_plans, pilots, placed, rates_of

from bilinear.backends.executor import allocate_workspace, execute
from bilinear.codegen.cuda.nvrtc import build_all
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.codegen.render import render
from bilinear.ir.kernel import LinearKernel
from bilinear.ir.matrix import Array, call_of
from bilinear.ir.placement import MODES
from bilinear.planner.device import Device
from bilinear.planner.device_files import device_json, load_device

WARPS = 32
ADD = 'for (int i = 0; i < each; ++i) {{ y[i * all + item] = x[i * all + item] + x[i * all + item]; asm volatile("// {0}"); }} break;'
PATHS = "\n".join(f"    case {warp}: {ADD.format(warp)}" for warp in range(WARPS))
PILOT = f"""extern "C" __global__ void __launch_bounds__(1024) pilot(const float* x, float* y, int each, int apart)
{{
    const long long item = blockIdx.x * blockDim.x + threadIdx.x, all = gridDim.x * blockDim.x;
    switch (threadIdx.x / 32 * apart) {{
{PATHS}
    }}
}}"""
ROOT = Path(__file__).resolve().parent.parent
PAGE, RESULTS = ROOT / "docs" / "modes.md", ROOT / "benchmarks" / "results" / "modes-h200.json"
UNMEASURED = """No GPU was measured yet: neither model was compared with times, and streams and graphs ran on a pretended GPU only.
`python benchmarks/modes.py --measure --json benchmarks/results/modes-h200.json` measures one; without options it draws the table here."""
CASES_DRAWN, SIZE_DRAWN = (("strassen", 2), ("laderman", 1)), 6144
COUNTS = ("scheme, levels", "mode", "kernels", "launches", "at once", "blocks moved once", "blocks read again", "traffic")
MEASURED = (
    "dtype",
    "N",
    "scheme, levels",
    "mode",
    "decompose",
    "eq. 4.1",
    "extended",
    "whole",
    "graph",
    "extended",
    "off",
    "library",
    "exact",
)


def counts(name: str, levels: int) -> list[tuple[object, ...]]:
    """What each mode launches, and what its linear stages move, in blocks and relative to the default mode."""
    rows: list[tuple[object, ...]] = []
    whole = 0
    for mode in MODES:
        launches, placement = placed(mode, "float32", SIZE_DRAWN, name, levels)
        stages = list(stages_of(launches))
        moved = [traffic_of(stage, placement, "float32") for stage in stages if isinstance(stage[0].kernel, LinearKernel)]
        block = 4 * placement.block[0] * placement.block[1]
        once, again = sum(x.once for x in moved) // block, sum(x.again for x in moved) // block
        whole = whole or once
        at_once = max(len(stage) if stage[0].at_once else 1 for stage in stages)
        kernels = len({launch.kernel.name for launch in launches})
        rows.append((f"{name}, {levels}", mode, kernels, len(launches), at_once, once, again, f"{(once + again) / whole:.2f}"))
    return rows


def page(text: str) -> str:
    """The page with its tables drawn anew."""
    found = [row for case in CASES_DRAWN for row in counts(*case)]
    measured = UNMEASURED
    if RESULTS.exists():
        rows = json.loads(RESULTS.read_text())["rows"]
        measured = table([told(row) for row in rows if "pilot" not in row], MEASURED)
    for name, drawn in (("counts", table(found, COUNTS)), ("measured", measured)):
        begin, end = f"<!-- {name}:begin -->\n", f"\n<!-- {name}:end -->"
        text = text[: text.index(begin) + len(begin)] + drawn + text[text.index(end) :]
    return text


def table(rows: Iterable[Iterable[object]], head: Iterable[str]) -> str:
    """Rows in Markdown."""
    head = tuple(head)
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in (head, ("---",) * len(head), *rows))


def pilot_times(processors: int, repeats: int) -> dict[Pilot, float]:
    """Microseconds of the runs of the pilot kernel."""
    import cupy
    import numpy as np

    kernel = cupy.RawKernel(PILOT, "pilot")
    x, y = (cupy.zeros(2**24, "float32") for _ in range(2))
    calls = {
        run: partial(kernel, (run.groups,), (run.items,), (x, y, np.int32(run.each), np.int32(run.apart))) for run in pilots(processors)
    }
    return {run: 1e3 * median(ms) for run, ms in queued(calls, repeats, 10).items()}


def graph_of(call: Callable[[], object]) -> Callable[[], object]:
    """The launches of a call as a graph."""
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        call()
        stream.synchronize()
        stream.begin_capture()
        call()
        launch: Callable[[], object] = stream.end_capture().launch
    return launch


def is_exact(run: Callable[[], object], c: Array, wanted: Array) -> bool:
    """Whether a call computes what is wanted, into NaN."""
    import cupy

    c[...] = cupy.nan
    cupy.cuda.Device().synchronize()
    run()
    cupy.cuda.Device().synchronize()
    return bool((c == wanted).all())


def measured(name: str, levels: int, dtype: str, size: int, modes: Iterable[str], repeats: int) -> dict[str, dict[str, Any]]:
    """For each mode: microseconds of its stages, of the plan, of the plan as a graph and of the library, and whether it is exact."""
    import cupy

    from bilinear.backends.cuda_executor import CudaExecutor

    generator, executor = cupy.random.default_rng(1), CudaExecutor()
    a, b = (generator.integers(-2, 3, (size, size)).astype(dtype) for _ in range(2))
    c, wanted = cupy.empty((size, size), dtype), cupy.matmul(a, b)
    plans: dict[tuple[str, str], Callable[[], object]] = {("library", ""): partial(cupy.matmul, a, b, out=c)}
    stages: dict[tuple[str, int], Callable[[], object]] = {}
    exact: dict[str, bool] = {}
    ready = []
    for mode in modes:
        plan = placed(mode, dtype, size, name, levels)[1]
        call = call_of(a, b, c, workspace=allocate_workspace(executor, plan, c.dtype))
        own = partial(execute, executor, plan, call)
        plans[mode, "us"], plans[mode, "graph"] = own, graph_of(own)
        exact[mode] = all(is_exact(run, c, wanted) for run in (own, plans[mode, "graph"]))
        ready.append(executor.ready(plan, call))  # its arguments stay bound to the steps while it is held
        stages |= {(mode, number): step for number, step in enumerate(ready[-1].__enter__())}
    a[...], b[...] = (generator.standard_normal(x.shape, dtype=dtype) for x in (a, b))
    whole = {key: round(1e3 * median(ms), 2) for key, ms in queued(plans, repeats, 5).items()}
    alone = {key: round(1e3 * median(ms), 2) for key, ms in queued(stages, repeats, 5).items()}
    return {
        mode: {"stages": [us for (own, _), us in alone.items() if own == mode], "exact": exact[mode], "library": whole["library", ""]}
        | {what: whole[mode, what] for what in ("us", "graph")}
        for mode in exact
    }


def described(device: Device, repeats: int) -> tuple[Device, list[dict[str, Any]]]:
    """The device with the rates that pilots tell, and what was measured."""
    times, stages = pilot_times(device.processors, repeats), {}
    for plan in pilot_plans():
        found = measured("winograd", 1, plan.dtype, plan.size, (plan.mode,), repeats)[plan.mode]
        stages[plan] = tuple(found["stages"]) if plan.size > SMALL_SIZE else (found["graph"],)
    rows = [{"pilot": vars(pilot), "us": round(us, 3)} for pilot, us in times.items()]
    rows += [{"pilot": vars(plan), "stages": own} for plan, own in stages.items()]
    return replace(device, modes=rates_of(times, stages, device)), rows


def beside_theory(row: dict[str, Any], device: Device) -> dict[str, Any]:
    """A measured row with what the equation says of its expansion, and the extension of every stage, in microseconds."""
    launches, placement = placed(row["mode"], row["dtype"], row["size"], row["scheme"], row["levels"])
    expansions = next(i for i, stage in enumerate(stages_of(launches)) if not isinstance(stage[0].kernel, LinearKernel))
    theory = [round(1e6 * seconds, 2) for seconds in extended_seconds(launches, placement, row["dtype"], device)]
    published = sum(seconds or 0.0 for seconds in published_seconds(launches, placement, device)[:expansions])
    return row | {"expansions": expansions, "published": round(1e6 * published, 2), "extended": theory}


def told(row: dict[str, Any]) -> tuple[object, ...]:
    """A row of the printed table."""
    first, theory = row["expansions"], sum(row["extended"])
    decompose = (f"{sum(row['stages'][:first]):.1f}", f"{row['published']:.1f}", f"{sum(row['extended'][:first]):.1f}")
    whole = (row["us"], row["graph"], f"{theory:.1f}", f"{theory / row['graph'] - 1:+.0%}", row["library"], "yes" if row["exact"] else "NO")
    return (row["dtype"], row["size"], f"{row['scheme']}, {row['levels']}", row["mode"], *decompose, *whole)


def build(cases: Iterable[tuple[str, str, str, int]]) -> None:
    """Build the kernels of these modes, types, schemes and levels into the cache, and those of the pilots."""
    wanted = {(plan.mode, plan.dtype, "winograd", 1) for plan in pilot_plans()} | set(cases)
    kernels = {launch.kernel for mode, dtype, name, levels in wanted for launch in placed(mode, dtype, SIZE_DRAWN, name, levels)[0]}
    print(f"{len(kernels)} kernels", flush=True)
    build_all([(render(kernel), kernel.name, CudaTarget("sm_90")) for kernel in kernels])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--build", action="store_true", help="only build the kernels that --measure needs")
    parser.add_argument("--schemes", default=",".join(f"{name}:{levels}" for name, levels in CASES_DRAWN))
    parser.add_argument("--dtypes", default="float32,float64")
    parser.add_argument("--sizes", default=f"1536,3072,{SIZE_DRAWN}")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--device", default="h200", help="the description that the rates of modes are added to")
    parser.add_argument("--describe", type=Path, help="write the description with the rates that the pilots tell")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cases = [(name, int(levels)) for name, levels in (case.split(":") for case in options.schemes.split(","))]
    if options.build:
        build((mode, dtype, *case) for mode in MODES for dtype in options.dtypes.split(",") for case in cases)
        return
    if not options.measure:
        old = PAGE.read_text()
        if not options.check:
            PAGE.write_text(page(old))
        elif page(old) != old:
            sys.exit("docs/modes.md does not show the counts and the results: run python benchmarks/modes.py")
        return
    need_gpu()
    device, rows = described(load_device(options.device), options.repeats)
    print(device.modes, flush=True)
    if options.describe is not None:
        options.describe.write_text(device_json(device))
    sizes = [int(size) for size in options.sizes.split(",")]
    for dtype, size, (name, levels) in product(options.dtypes.split(","), sizes, cases):
        facts = {"scheme": name, "levels": levels, "dtype": dtype, "size": size}
        own = measured(name, levels, dtype, size, MODES, options.repeats)
        rows += [beside_theory(facts | {"mode": mode} | found, device) for mode, found in own.items()]
        save("modes", rows, options.json)
    print(table([told(row) for row in rows if "pilot" not in row], MEASURED))


if __name__ == "__main__":
    main()
