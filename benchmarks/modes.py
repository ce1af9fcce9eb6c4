"""Execution modes: what each of them launches and moves, and on a GPU its times beside those of the cost models (docs/modes.md).

Without options, the tables of docs/modes.md are drawn from counts, for which no GPU is needed, and from the committed results, if there
are any; with --check they are only compared. With --measure, every mode multiplies integers, which must come
out exact; then each stage is timed by itself, and the whole plan, launched and as a graph, on the device alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

from common import Call, median, need_gpu, parser_of, queued, save
from drawn import RESULTS, ROOT, filled, keep

from bilinear.backends.cuda_executor import CudaExecutor
from bilinear.backends.executor import allocate_workspace, execute
from bilinear.codegen.build import build_kernels
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.ir.kernel import LinearKernel
from bilinear.ir.launch import Launch
from bilinear.ir.matrix import call_of
from bilinear.ir.placement import MODES, Placement
from bilinear.measure import mode_costs
from bilinear.measure.mode_costs import H200, extended_seconds, published_seconds, stages_of, traffic_of
from bilinear.planner.device import Device
from bilinear.planner.device_files import load_device

PAGE, MODES_MEASURED = ROOT / "docs" / "modes.md", RESULTS / "modes-h200.json"
IN_A_ROW = 5
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


def placed(mode: str, dtype: str, size: int, scheme: str, levels: int) -> tuple[tuple[Launch, ...], Placement]:
    return mode_costs.placed(mode, dtype, (size,) * 3, scheme, levels)


def counts(name: str, levels: int) -> list[tuple[object, ...]]:
    """What each mode launches, and what its linear stages move, in blocks and relative to the default mode."""
    rows: list[tuple[object, ...]] = []
    whole = 0
    for mode in MODES:
        launches, placement = placed(mode, "float32", SIZE_DRAWN, name, levels)
        stages = list(stages_of(launches))
        moved = [traffic_of(stage, placement, "float32") for stage in stages if isinstance(stage[0].kernel, LinearKernel)]
        block = 4 * placement.block[0] * placement.block[1]
        once, again = sum(size for of, _ in moved for _, size in of) // block, sum(again for _, again in moved) // block
        whole = whole or once
        at_once = max(len(stage) if stage[0].at_once else 1 for stage in stages)
        kernels = len({launch.kernel.name for launch in launches})
        rows.append((f"{name}, {levels}", mode, kernels, len(launches), at_once, once, again, f"{(once + again) / whole:.2f}"))
    return rows


def page(text: str) -> str:
    """The page with its tables drawn anew."""
    found = counts(*CASES_DRAWN[0])
    rows = json.loads(MODES_MEASURED.read_text())["rows"]
    measured = table(
        [told(row) for row in rows if "pilot" not in row and (row["size"], row["levels"], row["dtype"]) == (1536, 2, "float32")], MEASURED
    )
    return filled(text, counts=table(found, COUNTS), measured=measured)


def times_kept() -> str:
    """What the package ships of the measured times."""
    result = json.loads(MODES_MEASURED.read_text())
    rows = [
        [*(row[key] for key in ("dtype", "size", "scheme", "levels", "mode")), [row["us"], row["graph"]]]
        for row in result["rows"]
        if "mode" in row
    ]
    facts = {"device": result["machine"]["gpu"], "commit": result["machine"]["commit"]}
    return json.dumps(facts)[:-1] + ', "rows": [\n' + ",\n".join(map(json.dumps, rows)) + "\n]}\n"


def table(rows: Iterable[Iterable[object]], head: Iterable[str]) -> str:
    """Rows in Markdown."""
    head = tuple(head)
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in (head, ("---",) * len(head), *rows))


class Calls(NamedTuple):
    """A plan on the operands of a stand: the whole call, and each stage by itself."""

    whole: Call
    stages: Sequence[Call]


class ModeStand:
    """Square matrices of one type on the current GPU: integers until `fill_normal`, and what they multiply to."""

    def __init__(self, dtype: str, size: int) -> None:
        import cupy

        cupy.get_default_memory_pool().free_all_blocks()
        self._generator = cupy.random.default_rng(1)
        self.a, self.b = (self._generator.integers(-2, 3, (size, size)).astype(dtype) for _ in range(2))
        self.c, self._wanted = cupy.empty((size, size), dtype), cupy.matmul(self.a, self.b)
        self._executor = CudaExecutor()
        self._held: list[object] = []

    def calls(self, placement: Placement) -> Calls:
        """The calls of a placement on a, b and c. The stand keeps the arguments of the stages."""
        call = call_of(self.a, self.b, self.c, workspace=allocate_workspace(self._executor, placement, self.c.dtype))
        ready = self._executor.ready(placement, call)
        self._held.append(ready)
        return Calls(partial(execute, self._executor, placement, call), ready.__enter__())

    def is_exact(self, *calls: Call) -> bool:
        """Whether these calls, one after the other, multiply a and b, which are still integers, exactly; c is NaN before."""
        import cupy

        self.c[...] = cupy.nan
        cupy.cuda.Device().synchronize()
        for call in calls:
            call()
        cupy.cuda.Device().synchronize()
        return not (self.c != self._wanted).any()

    def fill_normal(self) -> None:
        """Replace the integers by normal data, on which plans are timed."""
        for x in (self.a, self.b):
            x[...] = self._generator.standard_normal(x.shape, dtype=x.dtype)


def graph_of(call: Call) -> Call:
    """The launches of a call as a graph, which replays them without time of the host."""
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        call()
        stream.synchronize()
        stream.begin_capture()
        call()
        launch: Callable[[], object] = stream.end_capture().launch
    return launch


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
        keep({PAGE: page(PAGE.read_text()), mode_costs.MEASURED: times_kept()})
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
