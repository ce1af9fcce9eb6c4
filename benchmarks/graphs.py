"""`auto` beside the libraries on squares and fresh shapes of all kinds: on the device alone, in CUDA graphs, and by the user's clock.

A graph holds the same call several times; beside it are graphs of PyTorch's by both of its libraries. By the user's clock calls follow each
other until the device has ended, the host's time included, beside CuPy's and PyTorch's. Each row is checked on integers, in the graph.

`--devices` names descriptions that are compared in the same rounds: shipped names, files of `bilinear tune`, or nothing for the usual one.
Kernels are built side by side before the first time is taken, and rows are saved every few seconds, for a run can be cut: 150
shapes by two descriptions took 42 s on an H100, and their kernels 8 s before. What `BARS` ask for is printed beside what was reached.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from math import exp, log, prod
from statistics import geometric_mean, median
from time import monotonic, perf_counter
from typing import Any

from common import Call, cupy, need, need_gpu, orders, parser_of, queued, save

import bilinear
from bilinear.errors import BilinearError
from bilinear.ir.measurement import Shape
from bilinear.methods.planning import make_plan
from bilinear.planner.problem import Problem
from bilinear.runtime.ahead import fill_cache
from bilinear.runtime.auto import plan_for
from bilinear.runtime.devices_here import current_device
from bilinear.runtime.operands import layouts_of

IN_A_GRAPH, ROUNDS, CLOCK_ROUNDS = 20, 9, 5
LONG_TERMS = 2e9  # From so many terms on a graph holds `FEW` calls.
FEW = 3
MOST_TERMS, MOST_ELEMENTS = 7e10, 2**28
LEAST_US = 8.0  # Below this a product is as long as its launch, and counted apart.
CLOCK_MS, MOST_IN_A_ROW = 2.0, 100  # By the user's clock calls follow each other for so long.
SAVED_EVERY = 10.0
BARS = (
    ("above 8 us", "alone_us", "least", 0.95),
    ("above 8 us", "clock_us", "least", 0.95),
    ("a side below 64", "alone_us", "mean", 1.0),
    ("above 20 us", "clock_us", "mean", 1.3),
)
"""Of a kind of shapes, in graphs or outside by the user's clock, the least gain or the geometric mean, and what it must be."""
Case = tuple[Shape, str, str]  # (m, k, n), the orders of A and B, and the type.
SQUARES: tuple[Case, ...] = tuple(((n, n, n), "CC", dtype) for dtype in ("float32", "float64") for n in (2048, 4096, 8192))
Row = dict[str, Any]


def drawn(seed: int) -> Iterator[Case]:
    """Fresh products without end: a third with a side of at most 64, a third of any sides, a third whose sides are all long."""
    draw = random.Random(seed)

    def side(least: float, most: float) -> int:
        return round(exp(draw.uniform(log(least), log(most))))

    while True:
        kind, even = draw.random(), draw.random()
        ranges = [(1, 64), (64, 20_000), (64, 1e6)] if kind < 1 / 3 else [(1, 12_000)] * 3 if kind < 2 / 3 else [(512, 8192)] * 3
        sides = [side(*ends) for ends in ranges]
        if even > 0.9:
            sides = [2 ** round(log(x, 2)) for x in sides]
        elif even > 0.6:
            sides = [x if x <= 64 else x // 8 * 8 for x in sides]
        draw.shuffle(sides)
        m, k, n = sides
        if prod(sides) <= MOST_TERMS and max(m * k, k * n, m * n) <= MOST_ELEMENTS:
            yield (m, k, n), draw.choice("CF") + draw.choice("CF"), draw.choice(("float32", "float64"))


def plan_by(device: str) -> None:
    """Have the next calls plan by this description."""
    os.environ["BILINEAR_DEVICE"] = device


def build(cases: list[Case], devices: list[str]) -> None:
    """Build the kernels of all cases side by side."""
    plans = []
    for device in devices:
        plan_by(device)
        known = current_device()
        assert known is not None, "this GPU has no description"
        for shape, lines, dtype in cases:
            by_column = tuple(name for name, order in zip("AB", lines, strict=True) if order == "F")
            plans.append(make_plan(Problem(*shape, dtype, column_major=by_column), known))
    fill_cache(plans)


def captured(multiply: Call, calls: int) -> Callable[[], None]:
    """The replay of a graph of our calls, on CuPy's current stream."""
    stream = cupy.cuda.get_current_stream()
    multiply()
    stream.begin_capture()
    try:
        for _ in range(calls):
            multiply()
    finally:
        graph = stream.end_capture()
    return partial(graph.launch, stream)


def by_torch(multiply: Call, library: str, calls: int) -> Callable[[], None]:
    """The replay of a graph of PyTorch's products, on the same stream."""
    import torch

    torch.backends.cuda.preferred_blas_library(library)
    graph = torch.cuda.CUDAGraph()
    multiply()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            multiply()
    return lambda: graph.replay() and None


def by_clock(calls: dict[str, tuple[str, Call]], about_us: float) -> dict[str, float]:
    """Microseconds of each call in a row of calls, until the device has ended; each comes with the description that it plans by."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    in_a_row = max(1, min(MOST_IN_A_ROW, round(1e3 * CLOCK_MS / about_us)))
    wait = cupy.cuda.get_current_stream().synchronize
    for order in orders(calls, CLOCK_ROUNDS):
        for name in order:
            device, call = calls[name]
            plan_by(device)
            call()
            wait()
            start = perf_counter()
            for _ in range(in_a_row):
                call()
            wait()
            times[name].append((perf_counter() - start) / in_a_row)
    return {name: 1e6 * median(values) for name, values in times.items()}


def measured(case: Case, devices: list[str]) -> Row:
    """A row of results: microseconds of a call, on the device alone and by the user's clock, and what ran by each description."""
    import torch

    ((m, k, n), lines, dtype), generator = case, cupy.random.default_rng(1)
    shapes = zip(((m, k), (k, n)), lines, strict=True)
    a, b = (cupy.asarray(generator.integers(-2, 3, shape).astype(dtype), order=order) for shape, order in shapes)
    c, wanted = cupy.empty((m, n), dtype), cupy.matmul(a.astype("float64"), b.astype("float64"))
    ours, is_exact, ran = partial(bilinear.matmul, a, b, c), True, dict[str, str]()
    calls = IN_A_GRAPH if m * k * n < LONG_TERMS else FEW
    replays = dict[str, Callable[[], None]]()
    for device in devices:
        plan_by(device)
        found = plan_for(layouts_of(a, b, c), "preserve", None)
        ran[device] = "library" if found is None else f"{found.chosen.name} {found.chosen.tile}".strip()
        replays[device] = captured(ours, calls)
        c[...] = cupy.nan
        replays[device]()
        is_exact = is_exact and bool((c == wanted).all())
    for x in (a, b):
        x[...] = generator.standard_normal(x.shape, dtype=x.dtype)
    left, right, out = (torch.from_dlpack(x) for x in (a, b, c))
    with torch.cuda.stream(torch.cuda.ExternalStream(cupy.cuda.get_current_stream().ptr)):
        theirs = partial(torch.mm, left, right, out=out)
        replays |= {library: by_torch(theirs, library, calls) for library in ("cublas", "cublaslt")}
        alone = {name: 1e3 * median(values) / calls for name, values in queued(replays, ROUNDS, 1).items()}
        torch.backends.cuda.preferred_blas_library("cublas")  # which PyTorch takes by itself
        named: dict[str, tuple[str, Call]] = {device: (device, ours) for device in devices}
        named |= {"cupy": ("", partial(cupy.matmul, a, b, out=c)), "torch": ("", theirs)}
        clock = by_clock(named, min(alone.values()))
    row = {"shape": (m, k, n), "orders": lines, "dtype": dtype, "exact": is_exact, "ran": ran}
    return row | {"alone_us": _rounded(alone), "clock_us": _rounded(clock)}


def _rounded(times: dict[str, float]) -> dict[str, float]:
    return {name: round(us, 2) for name, us in times.items()}


def gain(row: Row, table: str, device: str) -> float:
    """How many times as fast as the fastest library a description's choice is."""
    ran: dict[str, str] = row["ran"]
    times: dict[str, float] = row[table]
    return min(us for name, us in times.items() if name not in ran) / times[device]


def summary(rows: list[Row], devices: list[str]) -> None:
    """The bars, geometric means by table and description, and the ten shapes that are furthest behind."""
    kinds = {
        "all": rows,
        f"above {LEAST_US:g} us": [row for row in rows if min(row["alone_us"].values()) > LEAST_US],
        "a side below 64": [row for row in rows if min(row["shape"]) < 64],
        "above 20 us": [row for row in rows if min(row["alone_us"].values()) > 20],
    }
    for device in devices:
        print(f"bars by {device or 'the usual description'}: asked, reached")
        for kind, table, what, asked in BARS:
            ratios, where = [gain(row, table, device) for row in kinds[kind]], "in graphs" if table == "alone_us" else "outside"
            if not ratios:
                print(f"  {where}, {kind}: no such shape")
                continue
            reached = min(ratios) if what == "least" else geometric_mean(ratios)
            below = f", {sum(x < asked for x in ratios)} below" if what == "least" else ""
            print(
                f"  {where}, {kind}: {what} {asked:.2f}, {reached:.3f} of {len(ratios)}{below}: {'holds' if reached >= asked else 'FAILS'}"
            )
    for table in ("alone_us", "clock_us"):
        for device in devices:
            print(f"{table} by {device or 'the usual description'}", flush=True)
            for kind, some in kinds.items():
                ratios = [gain(row, table, device) for row in some] or [1.0]
                print(f"  {kind}: {len(some)} shapes, {geometric_mean(ratios):.3f}, below 0.95: {sum(x < 0.95 for x in ratios)}")
            for row in sorted(rows, key=lambda row: gain(row, table, device))[:10]:
                shape = "x".join(map(str, row["shape"]))
                print(f"  {gain(row, table, device):5.2f} {row['dtype']} {shape} {row['orders']} {row[table]} {row['ran'][device]}")


def main() -> None:
    """Measure the squares and as many fresh shapes as there is time for."""
    parser = parser_of(__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shapes", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=150, help="begin with no further shape after so long, kernels built")
    parser.add_argument("--devices", default="", help="comma-separated; empty: the description that a fresh install uses")
    chosen = parser.parse_args()
    need_gpu()
    need("torch")
    devices, cases = chosen.devices.split(","), [*SQUARES, *islice(drawn(chosen.seed), chosen.shapes)]
    began = monotonic()
    build(cases, devices)
    print(f"kernels after {monotonic() - began:.0f} s", flush=True)
    began = saved = monotonic()
    rows: list[Row] = []
    with cupy.cuda.Stream(non_blocking=True):
        for case in cases:
            if monotonic() - began > chosen.seconds:
                print("stopped", flush=True)
                break
            try:
                rows.append(measured(case, devices))
            except BilinearError as error:
                print("refused", case, str(error).splitlines()[0], flush=True)
            cupy.get_default_memory_pool().free_all_blocks()
            if chosen.json and monotonic() - saved > SAVED_EVERY:
                saved = monotonic()
                save("graphs", rows, chosen.json)
    named = {(shape, dtype) for shape, _, dtype in SQUARES}
    squares, fresh = ([row for row in rows if ((row["shape"], row["dtype"]) in named) is is_named] for is_named in (True, False))
    for row in squares:
        gains = {f"{table} {device}": round(gain(row, table, device), 3) for table in ("alone_us", "clock_us") for device in devices}
        print(row["dtype"], row["shape"][0], gains, flush=True)
    summary(fresh, devices)
    print(f"{len(fresh)} fresh shapes in {monotonic() - began:.0f} s; all exact: {all(row['exact'] for row in rows)}")
    save("graphs", rows, chosen.json)


if __name__ == "__main__":
    main()
