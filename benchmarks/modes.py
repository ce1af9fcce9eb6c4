"""Execution modes: what each of them launches and moves, and on a GPU its times beside those of the cost models (docs/modes.md).

Without options, the tables of docs/modes.md are drawn from counts, for which no GPU is needed, and from the committed results, if there
are any; with --check they are only compared. With --measure, every mode multiplies integers, which must come
out exact; then each stage is timed by itself, and the whole plan, launched and as a graph, on the device alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from itertools import product
from typing import Any

from common import Call, median, need_gpu, parser_of, queued, save
from drawn import RESULTS, ROOT, filled, keep
from mode_model import H200, IN_A_ROW, ModeStand, extended_seconds, graph_of, placed, published_seconds, stages_of, traffic_of

from bilinear.codegen.build import build_kernels
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.ir.kernel import LinearKernel
from bilinear.ir.placement import MODES
from bilinear.planner.device import Device
from bilinear.planner.device_files import load_device

PAGE, MODES_MEASURED = ROOT / "docs" / "modes.md", RESULTS / "modes-h200.json"
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
    rows = json.loads(MODES_MEASURED.read_text())["rows"]
    measured = table([told(row) for row in rows if "pilot" not in row and (row["size"], row["levels"]) == (1536, 2)], MEASURED)
    return filled(text, counts=table(found, COUNTS), measured=measured)


def table(rows: Iterable[Iterable[object]], head: Iterable[str]) -> str:
    """Rows in Markdown."""
    head = tuple(head)
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in (head, ("---",) * len(head), *rows))


def measured(name: str, levels: int, dtype: str, size: int, modes: Iterable[str], repeats: int) -> dict[str, dict[str, Any]]:
    """For each mode: microseconds of its stages, of the plan, of the plan as a graph and of the library, and whether it is exact."""
    import cupy

    stand = ModeStand(dtype, size)
    plans: dict[tuple[str, str], Call] = {("library", ""): partial(cupy.matmul, stand.a, stand.b, out=stand.c)}
    stages: dict[tuple[str, int], Call] = {}
    exact: dict[str, bool] = {}
    for mode in modes:
        whole, own = stand.calls(placed(mode, dtype, size, name, levels)[1])
        plans[mode, "us"], plans[mode, "graph"] = whole, graph_of(whole)
        exact[mode] = stand.is_exact(whole) and stand.is_exact(plans[mode, "graph"])
        stages |= {(mode, number): step for number, step in enumerate(own)}
    stand.fill_normal()
    whole_us = {key: round(1e3 * median(ms), 2) for key, ms in queued(plans, repeats, IN_A_ROW).items()}
    alone = {key: round(1e3 * median(ms), 2) for key, ms in queued(stages, repeats, IN_A_ROW).items()}
    return {
        mode: {"stages": [us for (own, _), us in alone.items() if own == mode], "exact": exact[mode], "library": whole_us["library", ""]}
        | {what: whole_us[mode, what] for what in ("us", "graph")}
        for mode in exact
    }


def beside_theory(row: dict[str, Any], device: Device) -> dict[str, Any]:
    """A measured row with what the equation says of its expansion, and the extension of every stage, in microseconds."""
    launches, placement = placed(row["mode"], row["dtype"], row["size"], row["scheme"], row["levels"])
    expansions = next(i for i, stage in enumerate(stages_of(launches)) if not isinstance(stage[0].kernel, LinearKernel))
    theory = [round(1e6 * seconds, 2) for seconds in extended_seconds(launches, placement, row["dtype"], device, H200)]
    published = sum(seconds or 0.0 for seconds in published_seconds(launches, placement, H200)[:expansions])
    return row | {"expansions": expansions, "published": round(1e6 * published, 2), "extended": theory}


def told(row: dict[str, Any]) -> tuple[object, ...]:
    """A row of the printed table."""
    first, theory = row["expansions"], sum(row["extended"])
    decompose = (f"{sum(row['stages'][:first]):.1f}", f"{row['published']:.1f}", f"{sum(row['extended'][:first]):.1f}")
    whole = (row["us"], row["graph"], f"{theory:.1f}", f"{theory / row['graph'] - 1:+.0%}", row["library"])
    return (row["dtype"], row["size"], f"{row['scheme']}, {row['levels']}", row["mode"], *decompose, *whole)


def build(cases: Iterable[tuple[str, str, str, int]]) -> None:
    """Build the kernels of these modes, types, schemes and levels into the cache."""
    launches = [launch for mode, dtype, name, levels in cases for launch in placed(mode, dtype, SIZE_DRAWN, name, levels)[0]]
    print(f"{len(build_kernels([*dict.fromkeys(one.kernel for one in launches)], CudaTarget('sm_90')))} kernels", flush=True)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--build", action="store_true", help="only build the kernels that --measure needs")
    parser.add_argument("--schemes", default=",".join(f"{name}:{levels}" for name, levels in CASES_DRAWN))
    parser.add_argument("--dtypes", default="float32,float64")
    parser.add_argument("--sizes", default=f"1536,3072,{SIZE_DRAWN}")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--device", default="h200", help="the description with the other rates")
    options = parser.parse_args()
    cases = [(name, int(levels)) for name, levels in (case.split(":") for case in options.schemes.split(","))]
    if options.build:
        build((mode, dtype, *case) for mode in MODES for dtype in options.dtypes.split(",") for case in cases)
        return
    if not options.measure:
        keep({PAGE: page(PAGE.read_text())})
        return
    need_gpu()
    device = load_device(options.device)
    rows: list[dict[str, Any]] = []
    sizes = [int(size) for size in options.sizes.split(",")]
    for dtype, size, (name, levels) in product(options.dtypes.split(","), sizes, cases):
        facts = {"scheme": name, "levels": levels, "dtype": dtype, "size": size}
        own = measured(name, levels, dtype, size, MODES, options.repeats)
        rows += [beside_theory(facts | {"mode": mode} | found, device) for mode, found in own.items()]
        save("modes", rows, options.json)
    print(table(map(told, rows), MEASURED))


if __name__ == "__main__":
    main()
