"""Times `matmul(..., gpus=)` on host matrices beside the slower of its transfers and its products alone; checks sampled elements.

python benchmarks/out_of_core.py --n 98304 --dtype float32 --memory 60GiB --pinned

With `--gpus` they run on several; `--on-gpu` puts the matrices on the first of them. A, B are integers, and the sampled elements of C, in
rows and columns all over it, must be exact.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from common import Later, need_gpu, save
from numpy.typing import NDArray

import bilinear
from bilinear.backends.stream_engine import run_streamed
from bilinear.ir.matrix import Array, Factor
from bilinear.planner.streamed import BUS, StreamPlan
from bilinear.runtime.budgets import budget_and_buffer
from bilinear.runtime.call import matmul_arrays
from bilinear.runtime.options import Accuracy, Options
from bilinear.runtime.streamed import LINK, plan_streamed

stream_cupy: Any = Later("bilinear.backends.stream_cupy")
LARGEST = 2  # Integers in A and B: float32 holds the sums of up to four million products.
ROWS, COLUMNS = 32, 256
THREADS = 16
BANK = 2**24
"""Random integers from which matrices are filled: to make as many as there are elements takes minutes."""


def main() -> int:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=16384)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--memory", default=None, help="bytes of a GPU, or a size such as 60GiB")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--algorithm", default="auto")
    parser.add_argument("--accuracy", default=None, help="classical, twice, or a bound")
    parser.add_argument("--pinned", action="store_true", help="host matrices in pinned memory")
    parser.add_argument("--on-gpu", action="store_true", help="matrices in memory of the first GPU")
    parser.add_argument("--json", default=None, help="a file for the result")
    asked = parser.parse_args()
    need_gpu()
    limit = None if asked.memory is None else int(asked.memory) if asked.memory.isdigit() else budget_and_buffer(asked.memory)[0]
    accuracy = asked.accuracy if asked.accuracy in (None, "classical", "twice") else float(asked.accuracy)
    begin = perf_counter()
    a, b, c = (matrix(asked.n, asked.dtype, asked.pinned) for _ in range(3))
    for seed, x in enumerate((a, b)):
        fill(x, seed)
    fill(c, None)
    told(f"filled {3 * a.nbytes / 1e9:.0f} GB in {perf_counter() - begin:.1f} s")
    given = a, b, c
    if asked.on_gpu:
        import cupy

        given = tuple(cupy.asarray(x) for x in given)
    free = min(map(stream_cupy.free_memory, range(asked.gpus)))
    memory = free if limit is None else min(limit, free)
    options = {"algorithm": asked.algorithm, "accuracy": accuracy, "gpus": asked.gpus, "memory": memory}
    where = LINK if asked.on_gpu else BUS
    extents = (asked.n,) * 3
    plan = plan_streamed(extents, asked.dtype, gpus=asked.gpus, memory=memory, accuracy=accuracy, algorithm=asked.algorithm, bus=where)
    told(str(plan))
    compute = products_alone(plan, asked.algorithm, accuracy)
    told(f"products alone {compute:.3f} s on one GPU of {asked.gpus}")
    transfer = transfers_alone(plan, *given)
    told(f"transfers alone {transfer:.3f} s")
    seconds = timed(lambda: bilinear.matmul(*given, **options))
    slower = max(transfer, compute)
    told(f"{seconds:.3f} s: {seconds / slower:.2f} times the slower, {2 * asked.n**3 / seconds * 1e-12:.1f} TFLOP/s")
    error = sampled(a, b, given[2])
    told(f"largest error of {ROWS} x {COLUMNS} sampled elements: {error:g}")
    result = {
        "n": asked.n,
        "dtype": asked.dtype,
        "gpus": asked.gpus,
        "where": "gpu" if asked.on_gpu else "pinned" if asked.pinned else "host",
        "accuracy": accuracy,
        "seconds": seconds,
        "transfer": transfer,
        "compute": compute,
        "over_slower": seconds / slower,
        "error": error,
        "plan": json.loads(plan.json()),
    }
    save("out-of-core", [result], None if asked.json is None else Path(asked.json))
    return int(error != 0)


def matrix(n: int, dtype: str, pinned: bool) -> NDArray[np.generic]:
    if not pinned:
        return np.empty((n, n), dtype)
    import cupy

    memory = cupy.cuda.alloc_pinned_memory(n * n * np.dtype(dtype).itemsize)
    return np.frombuffer(memory, dtype, n * n).reshape(n, n)


def fill(x: Array, seed: int | None) -> None:
    """Fill a matrix with integers by many threads, each stripe from another place of the bank; with NaN if there is no seed."""
    bank = None if seed is None else np.random.default_rng(seed).integers(-LARGEST, LARGEST + 1, BANK, dtype=np.int8)
    n = x.shape[1]

    def row(at: int) -> None:
        if bank is None:
            x[at] = np.nan
            return
        place = at * 7_990_271 % (BANK - n)
        x[at] = bank[place : place + n]

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(row, range(x.shape[0]), chunksize=64))


def sampled(a: Array, b: Array, c: Array) -> float:
    """The largest error where some rows and columns of C cross."""
    random = np.random.default_rng(11)
    rows, columns = (np.sort(random.choice(a.shape[0], min(count, a.shape[0]), replace=False)) for count in (ROWS, COLUMNS))
    wanted = np.zeros((len(rows), len(columns)))
    for start in range(0, a.shape[1], 4096):
        inner = slice(start, start + 4096)
        wanted += a[rows, inner].astype(np.float64) @ b[inner][:, columns].astype(np.float64)
    found = c[rows] if isinstance(c, np.ndarray) else c[rows].get()
    error = np.abs(found[:, columns] - wanted)
    return float(np.where(np.isnan(error), np.inf, error).max())


def told(line: str) -> None:
    print(line, flush=True)


def timed(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def transfers_alone(plan: StreamPlan, a: Array, b: Array, c: Array) -> float:
    """The same steps without products: what transfers take. C is overwritten."""

    def nothing(left: Array, right: Array, target: Array, factors: tuple[Factor, Factor], inputs: str) -> None:
        return None

    devices = [stream_cupy.CupyDevice(number, a.dtype, nothing) for number in range(plan.gpus)]
    return timed(lambda: run_streamed(plan, devices, (a, b, c), (1, 0)))


def products_alone(plan: StreamPlan, algorithm: str, accuracy: Accuracy) -> float:
    """The products of all blocks of the first GPU, on blocks that lie there; they run once before, which builds their kernels."""
    import cupy

    dtype = {4: "float32", 8: "float64"}[plan.itemsize]
    slots = [cupy.random.randint(-LARGEST, LARGEST + 1, plan.most_elements(operand), dtype="int8").astype(dtype) for operand in "ABC"]

    def one(m: int, k: int, n: int, beta: int) -> None:
        a, b, c = slots[0][: m * k].reshape(m, k), slots[1][: k * n].reshape(k, n), slots[2][: m * n].reshape(m, n)
        asked = Options(1, beta, algorithm, inputs=plan.inputs, workspace=plan.workspace, accuracy=accuracy)
        matmul_arrays(a, b, c, asked.as_named())

    def every() -> None:
        for task in plan.tasks(0):
            (m, k), n = plan.shape("A", task.block("A")), plan.shape("B", task.block("B"))[1]
            one(m, k, n, 0 if task.first else 1)
        cupy.cuda.Device().synchronize()

    every()
    return timed(every)


if __name__ == "__main__":
    raise SystemExit(main())
