"""`auto` on thin products beside the fastest of cuBLAS, cublasLt, CuPy and PyTorch, on the device alone: fresh shapes, and named ones.

A fresh shape has a side of at most 64 and others of up to 20,000, or up to 10 million where two are short; orders and types are drawn, too.
Each row is checked on integers first. Bandwidth counts each operand once, as a share of a device copy's. `auto` runs by the description of
the GPU, which may be an estimate. A row is behind if the whole interval of its ratio lies below 0.98.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from functools import partial
from math import exp, log, prod
from statistics import median
from time import monotonic
from typing import Any

import numpy as np
from common import Call, classical, exact_calls, need_gpu, parser_of, queued, save

import bilinear
from bilinear.backends.cublas import multiply_of
from bilinear.backends.timing import median_interval
from bilinear.codegen.build import build_kernels
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.ir.kernel import PartsKernel, ThinKernel
from bilinear.ir.matrix import Layout, layout_of
from bilinear.ir.measurement import Shape
from bilinear.methods.thin.choice import thin_candidates, thin_of
from bilinear.methods.thin.launches import kernels_of
from bilinear.planner.device import Device
from bilinear.planner.device_files import load_device
from bilinear.planner.library import thin_library
from bilinear.planner.library_points import CUBLAS, CUBLASLT
from bilinear.planner.problem import Problem
from bilinear.runtime.auto import plan_for
from bilinear.runtime.devices_here import current_device
from bilinear.runtime.operands import layouts_of

ROUNDS, IN_A_ROW = 7, 10
MOST_ELEMENTS = 2**28
COPY_SHARE, PEAK = 0.8, 60.0
"""The share of a copy's bandwidth that is asked for. A product is bound by memory if so many TFLOP/s take less time than its bytes."""
MAY_GAIN, TARGET = 1.2, "sm_90"
"""A tile may be chosen if it is predicted to take less than this, times the library's time by shape alone; what kernels are built for."""
LEAST_US = 20.0  # Below this a product is as long as its launch, and not counted in the summary.
NAMED: tuple[tuple[str, Shape], ...] = (
    *((f"TSM2L, k = n = {n}", (m, n, n)) for m in (10**7, 10**6) for n in (8, 16)),
    *((f"TSM2R, n = {n}", (20480, 20480, n)) for n in (2, 4, 8, 16)),
    *((f"A^T B, {n} columns", (n, 10**7, n)) for n in (8, 16)),
)
Row = dict[str, Any]


def drawn(seed: int, count: int) -> Iterator[tuple[Shape, str, str]]:
    """Shapes (m, k, n), orders of A, B and C, and types."""
    draw = random.Random(seed)

    def side(least: float, most: float) -> int:
        return round(exp(draw.uniform(log(least), log(most))))

    while count:
        sides = [draw.randint(1, 64), side(64, 20_000), side(64, 20_000)]
        if draw.random() < 0.4:
            sides = [draw.randint(1, 64), draw.randint(1, 64), side(20_000, 1e7)]
        draw.shuffle(sides)
        m, k, n = sides
        orders = "".join(draw.choice("CF") for _ in range(3))
        if max(m * k, k * n, m * n) <= MOST_ELEMENTS:
            count -= 1
            yield (m, k, n), orders, draw.choice(("float32", "float64"))


def matrix(shape: tuple[int, int], dtype: str, order: str, seed: int) -> Any:
    """Small integers."""
    import cupy

    values = cupy.random.default_rng(seed).integers(-2, 3, shape if order == "C" else shape[::-1]).astype(dtype)
    return values if order == "C" else values.T


def libraries(a: Any, b: Any, c: Any) -> dict[str, Call]:
    """The libraries' multiplies of matrices as they lie: CuPy's and PyTorch's, cuBLAS and cublasLt."""
    found = {name: call for name, call in classical(a, b, c).items() if name in ("cupy", "torch")}
    for name in (CUBLAS, CUBLASLT):
        multiply = multiply_of(layout_of(a), layout_of(b), layout_of(c), name)
        if multiply is not None:
            found[name] = partial(multiply, a.data.ptr, b.data.ptr, c.data.ptr, 1, 0)
    return found


def measure(shape: Shape, orders: str, dtype: str, copy: float) -> Row:
    """Times on normal data of what is exact on integers."""
    import cupy

    m, k, n = shape
    a, b = matrix((m, k), dtype, orders[0], 1), matrix((k, n), dtype, orders[1], 2)
    c = cupy.empty((m, n), dtype, order=orders[2])
    calls: dict[str, Call] = {**libraries(a, b, c), "auto": partial(bilinear.matmul, a, b, c)}
    exact = exact_calls(calls, a, b, c)
    calls = {name: call for name, call in calls.items() if exact[name] or name == "auto"}
    times = queued(calls, ROUNDS, IN_A_ROW)
    us = {name: round(1e3 * median(values), 2) for name, values in times.items()}
    plan = plan_for(layouts_of(a, b, c), "preserve", None)
    library, fastest = min((value, name) for name, value in us.items() if name != "auto")
    interval = median_interval([x / y for x, y in zip(times[fastest], times["auto"], strict=True)])
    moved = (m * k + k * n + m * n) * a.itemsize / 1e3  # kB
    return {
        "shape": shape,
        "orders": orders,
        "dtype": dtype,
        "us": us,
        "exact": exact["auto"],
        "auto": "library"
        if plan is None
        else f"{plan.chosen.name} {plan.chosen.tile}"
        if plan.chosen.strategy == "thin"
        else plan.chosen.name,
        "ratio": round(library / us["auto"], 3),
        "interval": [round(interval.low, 3), round(interval.high, 3)],
        "bytes_us": round(moved / copy, 2),
        "work_us": round(2e-6 * m * n * k / PEAK, 2),
        "bandwidth": round(moved / us["auto"] / copy, 3),
        "library_bandwidth": round(moved / library / copy, 3),
    }


def problem_of(shape: Shape, orders: str, dtype: str) -> Problem:
    """The planner's problem."""
    return Problem(*shape, dtype, column_major=tuple(name for name, order in zip("ABC", orders, strict=True) if order == "F"))


def layout(shape: tuple[int, int], order: str, dtype: Any) -> Layout:
    """A matrix without gaps."""
    size = dtype.itemsize
    return Layout(shape, (shape[1] * size, size) if order == "C" else (size, shape[0] * size), dtype)


def build(cases: Iterable[tuple[Shape, str, str]], device: Device) -> None:
    """Build the kernels that `auto` may choose for these shapes: the library's time is known better when it has been asked."""
    kernels: set[ThinKernel | PartsKernel] = set()
    for (m, k, n), orders, dtype in cases:
        a, b, c = (layout(extents, order, np.dtype(dtype)) for extents, order in zip(((m, k), (k, n), (m, n)), orders, strict=True))
        problem = problem_of((m, k, n), orders, dtype)
        library = thin_library(problem, device)
        found = sorted(thin_candidates(problem, device), key=lambda one: one.ms or 0.0)[:1]
        for own in found:
            if library is None or (own.ms or 0.0) < MAY_GAIN * (library.ms or 0.0):
                kernels |= set(kernels_of(a, b, c, thin_of(own)))
    print(f"{len(kernels)} kernels", flush=True)
    build_kernels([*kernels], CudaTarget(TARGET))


def copy_rate() -> float:
    """What a device copy moves, in kB a microsecond."""
    import cupy

    x = cupy.zeros(2**28, "float32")
    y = cupy.empty_like(x)
    (times,) = queued({"copy": lambda: cupy.copyto(y, x)}, ROUNDS, IN_A_ROW).values()
    return float(2 * x.nbytes / 1e3 / (1e3 * median(times)))


def tell(row: Row) -> None:
    shape, library = "x".join(map(str, row["shape"])), row["library_bandwidth"]
    line = f"{row['ratio']:5.2f} {row['bandwidth']:6.1%} (library {library:6.1%}) {row['dtype']} {shape} {row['orders']} {row['auto']}"
    print(line, "" if row["exact"] else "WRONG", row["us"], flush=True)


def summary(rows: list[Row]) -> None:
    """Of the rows of at least `LEAST_US`: how much faster, and how many are slower."""
    counted = [row for row in rows if min(us for name, us in row["us"].items() if name != "auto") >= LEAST_US]
    if not counted:
        return
    ratios = sorted(row["ratio"] for row in counted)
    mean = prod(ratios) ** (1 / len(ratios))
    behind = sum(row["interval"][1] < 0.98 for row in counted)
    print(f"{len(ratios)} rows: geometric mean {mean:.3f}, median {median(ratios):.3f}, least {ratios[0]:.3f}, behind: {behind}")
    bound = [row["us"]["auto"] / (row["bytes_us"] / COPY_SHARE + 4) for row in counted if row["bytes_us"] > row["work_us"]]
    if bound:
        print(f"{len(bound)} bound by memory: median time {median(bound):.2f} of bytes / ({COPY_SHARE} copy bandwidth) + 4 us")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shapes", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin with no further shape after so long")
    parser.add_argument("--build", metavar="DEVICE", help="only build the kernels that may be chosen by a description, on any machine")
    options = parser.parse_args()
    named = [(name, shape, orders, dtype) for name, shape in NAMED for orders in ("CCC", "FFF") for dtype in ("float32", "float64")]
    cases = [*named, *(("", *case) for case in drawn(options.seed, options.shapes))]
    if options.build:
        build((case[1:] for case in cases), load_device(options.build))
        return
    need_gpu()
    import cupy

    begun, copy, rows, device = monotonic(), copy_rate(), [], current_device()
    assert device is not None, "this GPU has no description"
    print(f"{device.title}, copy: {copy / 1e3:.2f} TB/s")
    build((case[1:] for case in cases), device)
    for name, shape, orders, dtype in cases:
        if monotonic() - begun > options.seconds:
            print("stopped", flush=True)
            break
        rows.append({"name": name, **measure(shape, orders, dtype, copy)})
        tell(rows[-1])
        cupy.get_default_memory_pool().free_all_blocks()
    summary([row for row in rows if row["name"]])
    summary([row for row in rows if not row["name"]])
    save("thin_auto", rows, options.json)


if __name__ == "__main__":
    main()
