"""Every variant of TSM2X beside the libraries and our own kernel, in one run, and what the paper's model says of each.

The variants run with the paper's parameters for a V100 (tables 3 and 4, section 4.3), the best of them also with those that a search finds
here in place of its gradient descent. All matrices lie column by column, as in the paper. Each call is checked on integers first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache, partial
from statistics import median
from time import monotonic
from typing import Any

import numpy as np
from common import Call, cupy, exact_calls, need_gpu, parser_of, queued, save
from thin_auto import copy_rate, libraries, matrix
from tsm2 import Chip, Tsm2Kernel, candidates, estimate, launch_arguments, source, threshold, variant_of

import bilinear
from bilinear.backends.loaded_kernels import load_function
from bilinear.backends.timing import milliseconds
from bilinear.codegen.cuda.nvrtc import Built, build_all
from bilinear.codegen.cuda.target import target_of
from bilinear.ir.element import ELEMENTS
from bilinear.ir.measurement import Shape
from bilinear.methods.planning import make_plan
from bilinear.planner.device_files import load_device
from bilinear.planner.plan import Plan
from bilinear.planner.problem import Problem

ROUNDS, IN_A_ROW = 5, 5
T1, T3 = 128, {"float32": 32, "float64": 16}
"""The paper's parameters on a V100; t2 = n. It takes t3 = 12 for large doubles, which no tile of 128 terms is a multiple of."""
TCF = {"float32": {10**4: 1, 10**5: 1, 10**6: 2, 10**7: 8}, "float64": {10**4: 1, 10**5: 1, 10**6: 1, 10**7: 4}}
SQUARE, COLUMNS = 20480, (2, 4, 8, 16)
TALL, SHORT = (10**4, 10**5, 10**6, 10**7), (8, 16)
TCFS = (1, 2, 4, 8, 16, 32)
CHASE = r"""extern "C" __global__ void chase(const long long* next, int hops, long long at, long long* end)
{ for (int hop = 0; hop < hops; ++hop) at = next[at]; *end = at; }"""
CHAIN = r"""extern "C" __global__ void chain(REAL* x, int steps)
{ REAL value = x[0], factor = x[1]; for (int step = 0; step < steps; ++step) value = fma(value, factor, factor); x[0] = value; }"""
Row = dict[str, Any]
Launcher = Callable[[Tsm2Kernel, Any, Any, Any], Call]


def memory_latency() -> float:
    """Nanoseconds of a load from memory: one thread reads where to read next in 512 MiB, each time from where the caches hold nothing."""
    places, hops, times = 2**26, 20_000, []
    following = (cupy.arange(places) + 16_000_057) % places
    kernel, end = cupy.RawKernel(CHASE, "chase"), cupy.zeros(1, "int64")
    for begin in range(4):
        arguments = following, np.int32(hops), np.int64(begin * 3_000_016), end
        times.append(milliseconds(partial(kernel, (1,), (1,), arguments)) * 1e6 / hops)
    return median(times[1:])


def arithmetic_latency(dtype: str) -> float:
    """Nanoseconds of a multiply-add that waits for the one before it."""
    steps, x = 200_000, cupy.full(2, 0.5, dtype)
    kernel = cupy.RawKernel(CHAIN.replace("REAL", ELEMENTS[dtype].cuda), "chain")
    return min(milliseconds(partial(kernel, (1,), (1,), (x, np.int32(steps)))) for _ in range(4)) * 1e6 / steps


def kernels_of(shape: Shape, dtype: str) -> dict[str, list[Tsm2Kernel]]:
    """The variants for a problem: what the paper takes first, then what is searched through."""
    (m, k, n), element = shape, ELEMENTS[dtype]
    t3 = min(T3[dtype], k)
    if k == SQUARE:
        found = {name: [variant_of(name, element, n, T1, t3)] for name in ("V0", "V1", "V2", "V3")}
        return found | {"V3, searched": candidates(element, "V3", n, k)}
    found = {"V3": [variant_of("V3", element, n, T1, t3)]}
    for name in ("Opt1", "Opt2"):
        found[name] = [variant_of(name, element, n, T1, t3, TCF[dtype][m])]
        found[f"{name}, searched"] = candidates(element, name, n, k, TCFS)
    return found


def build(problems: list[tuple[Shape, str]]) -> dict[str, Built]:
    """An image of each kernel that is needed, by name."""
    needed = {one.name: one for problem in problems for found in kernels_of(*problem).values() for one in found}
    target = target_of(cupy.cuda.Device().compute_capability)
    images = build_all([(source(one), name, target) for name, one in needed.items()])
    return dict(zip(needed, images, strict=True))


def launcher(images: dict[str, Built]) -> Launcher:
    """Kernels as calls that compute C of A and B."""

    @cache
    def loaded(name: str) -> Any:
        return load_function(images[name].image, name, 0)

    def launch(kernel: Tsm2Kernel, a: Any, b: Any, c: Any) -> Call:
        *places, beta = launch_arguments(a, b, c, c.dtype.type(0))
        arguments = (*(np.int64(x.data.ptr if isinstance(x, cupy.ndarray) else x) for x in places), beta)
        return partial(loaded(kernel.name), (kernel.blocks(a.shape[0]),), (kernel.t1,), arguments)

    return launch


def thin_plan(shape: Shape, dtype: str) -> Plan:
    """Our own kernel, in the tile that is predicted to be the fastest."""
    plan = make_plan(Problem(*shape, dtype, column_major=("A", "B", "C")), load_device("h200"), explain=True)
    return replace(plan, candidates=(next(own for own in plan.candidates if own.strategy == "thin"),))


def measure(shape: Shape, dtype: str, images: dict[str, Built], launch: Launcher, copy: float, chip: Chip) -> Row:
    """Times on normal data of what is exact on integers."""
    m, k, n = shape
    a, b, c = matrix((m, k), dtype, "F", 1), matrix((k, n), dtype, "F", 2), cupy.empty((m, n), dtype, order="F")
    plan = thin_plan(shape, dtype)
    kernels = {name: fastest([(one, launch(one, a, b, c)) for one in found]) for name, found in kernels_of(shape, dtype).items()}
    calls: dict[str, Call] = {**libraries(a, b, c), "thin": partial(bilinear.matmul, a, b, c, plan=plan)}
    calls |= {name: launch(one, a, b, c) for name, one in kernels.items()}
    exact = exact_calls(calls, a, b, c)
    us = {name: round(1e3 * median(values), 2) for name, values in queued(calls, ROUNDS, IN_A_ROW).items()}
    moved = (m * k + k * n + m * n) * a.itemsize / 1e3  # kB
    return {
        "shape": shape,
        "dtype": dtype,
        "us": us,
        "bandwidth": {name: round(moved / time / copy, 3) for name, time in us.items()},
        "exact": exact,
        "thin": plan.chosen.tile,
        "kernels": {name: told(one, images[one.name], chip, shape) for name, one in kernels.items()},
    }


def fastest(found: list[tuple[Tsm2Kernel, Call]]) -> Tsm2Kernel:
    """The kernel whose calls take the shortest time."""
    if len(found) == 1:
        return found[0][0]
    times = []
    for number, (_, call) in enumerate(found):
        call()
        times.append((min(milliseconds(call, 2) for _ in range(2)), number))
    return found[min(times)[1]][0]


def told(kernel: Tsm2Kernel, built: Built, chip: Chip, shape: Shape) -> Row:
    """The parameters of a kernel, what it takes, and what the model says: as published, and with the rows that there are."""
    own = {name: getattr(kernel, name) for name in ("t1", "t2", "t3", "tcf", "by_columns")}
    own |= {"registers": built.resources[0].registers, "spilled": built.resources[0].spill_stores}
    ways = {"published": False, "with rows": True}
    return own | {name: asdict(estimate(kernel, chip, *shape, rows_bound=is_bound)) for name, is_bound in ways.items()}


def tell(row: Row) -> None:
    library = min(us for name, us in row["us"].items() if name in ("cupy", "torch", "cublas", "cublaslt"))
    shares = " ".join(f"{name} {share:.0%}" for name, share in row["bandwidth"].items())
    wrong = [name for name, is_exact in row["exact"].items() if not is_exact]
    print(row["dtype"], "x".join(map(str, row["shape"])), f"library {library} us;", shares, f"WRONG {wrong}" if wrong else "", flush=True)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin with no further problem after so long")
    options = parser.parse_args()
    need_gpu()
    problems = [((SQUARE, SQUARE, n), dtype) for n in COLUMNS for dtype in T3]
    problems += [((m, n, n), dtype) for n in SHORT for m in TALL for dtype in T3]
    begun, images, copy, device = monotonic(), build(problems), copy_rate(), load_device("h200")
    print(f"{len(images)} kernels built after {monotonic() - begun:.0f} s; copy: {copy / 1e3:.2f} TB/s", flush=True)
    latency, launch, chips = memory_latency(), launcher(images), dict[str, Chip]()
    for dtype in T3:
        rates = device.thin_rates(dtype)
        assert rates is not None
        chips[dtype] = Chip(rates.pipes * 1e3, copy, latency=latency, arithmetic_latency=arithmetic_latency(dtype))
    thresholds = {dtype: [round(threshold(chip, ELEMENTS[dtype].bytes, flops), 1) for flops in (1, 2)] for dtype, chip in chips.items()}
    rows: list[Row] = [{"copy": copy, "chips": {dtype: asdict(chip) for dtype, chip in chips.items()}, "thresholds": thresholds}]
    print(rows[0], flush=True)
    for shape, dtype in problems:
        if monotonic() - begun > options.seconds:
            print("stopped", flush=True)
            break
        rows.append(measure(shape, dtype, images, launch, copy, chips[dtype]))
        tell(rows[-1])
        cupy.get_default_memory_pool().free_all_blocks()
    save("tsm2_ablation", rows, options.json)


if __name__ == "__main__":
    main()
