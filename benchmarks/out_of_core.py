"""Times `matmul(..., gpus=)` on host matrices beside the slower of its transfers and its products alone; checks sampled rows.

python benchmarks/out_of_core.py --n 98304 --dtype float32 --memory 60GiB --pinned
"""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Callable
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

import bilinear
from bilinear.backends.stream_cupy import CupyDevice, free_memory
from bilinear.backends.stream_engine import run_streamed
from bilinear.ir.matrix import Array, Factor
from bilinear.planner.streamed import StreamPlan
from bilinear.runtime.budgets import budget_and_buffer
from bilinear.runtime.on_arrays import matmul_arrays
from bilinear.runtime.streamed import plan_streamed

LARGEST = 2
"""Integers in A and B: float32 holds the sums of up to four million products."""
SAMPLES = 8


def main() -> int:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=16384)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--memory", default=None, help="bytes of the GPU, or a size such as 60GiB")
    parser.add_argument("--algorithm", default="auto")
    parser.add_argument("--accuracy", default=None, help="classical, twice, or a bound")
    parser.add_argument("--pinned", action="store_true", help="host matrices in pinned memory")
    parser.add_argument("--json", default=None, help="a file for the result")
    asked = parser.parse_args()
    limit = None if asked.memory is None else int(asked.memory) if asked.memory.isdigit() else budget_and_buffer(asked.memory)[0]
    accuracy = asked.accuracy if asked.accuracy in (None, "classical", "twice") else float(asked.accuracy)
    free = free_memory(0)
    memory = free if limit is None else min(limit, free)
    n, random = asked.n, np.random.default_rng(0)
    a, b, c = (host_matrix(n, asked.dtype, asked.pinned) for _ in range(3))
    for matrix in (a, b):
        for row in range(0, n, 1024):
            matrix[row : row + 1024] = random.integers(-LARGEST, LARGEST + 1, matrix[row : row + 1024].shape)
    c[...] = 0
    options = {"algorithm": asked.algorithm, "accuracy": accuracy, "gpus": 1, "memory": memory}
    plan = plan_streamed((n, n, n), asked.dtype, memory=memory, accuracy=accuracy, named=asked.algorithm != "auto")
    print(plan, flush=True)
    bm, bk, bn = plan.block
    bilinear.matmul(a[:bm, :bk], b[:bk, :bn], c[:bm, :bn], **options)  # builds kernels and keeps plans of nearly such a block
    seconds = timed(lambda: bilinear.matmul(a, b, c, **options))
    rows = random.choice(n, SAMPLES, replace=False)
    error = sampled(a, b, c, rows)
    transfer = transfers_alone(plan, a, b, c)
    compute = products_alone(plan, asked.algorithm, accuracy)
    slower = max(transfer, compute)
    result = {
        "n": n,
        "dtype": asked.dtype,
        "pinned": asked.pinned,
        "seconds": seconds,
        "transfer": transfer,
        "compute": compute,
        "over_slower": seconds / slower,
        "largest_error_of_sampled_rows": error,
        "plan": json.loads(plan.json()),
    }
    print(f"{seconds:.3f} s; transfers alone {transfer:.3f} s, products alone {compute:.3f} s: {seconds / slower:.2f} times the slower")
    print(f"largest error in {SAMPLES} rows: {error:g}")
    if asked.json:
        with open(asked.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=2)
    return 0 if error == 0 or asked.algorithm != "auto" or accuracy is not None else 1


def host_matrix(n: int, dtype: str, pinned: bool) -> NDArray[np.generic]:
    if not pinned:
        return np.empty((n, n), dtype)
    import cupy

    memory = cupy.cuda.alloc_pinned_memory(n * n * np.dtype(dtype).itemsize)
    return np.frombuffer(memory, dtype, n * n).reshape(n, n)


def sampled(a: Array, b: Array, c: Array, rows: Array) -> float:
    """The largest error of some rows, by panels of B, for all of B in float64 may not fit."""
    worst, left = 0.0, a[rows].astype(np.float64)
    for column in range(0, b.shape[1], 4096):
        part = slice(column, column + 4096)
        worst = max(worst, float(np.abs(c[rows, part] - left @ b[:, part].astype(np.float64)).max()))
    return worst


def timed(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def transfers_alone(plan: StreamPlan, a: Array, b: Array, c: Array) -> float:
    """The same steps without products: what transfers take. C is overwritten."""

    def nothing(left: Array, right: Array, target: Array, factors: tuple[Factor, Factor], inputs: str) -> None:
        return None

    device = CupyDevice(0, a.dtype, nothing)
    return timed(lambda: run_streamed(plan, [device], (a, b, c), (1, 0)))


def products_alone(plan: StreamPlan, algorithm: str, accuracy: float | str | None) -> float:
    """The products of all blocks, on blocks that lie on the GPU."""
    import cupy

    dtype = {4: "float32", 8: "float64"}[plan.itemsize]
    slots = [cupy.ones(plan.most_elements(operand), dtype) for operand in "ABC"]

    def one(m: int, k: int, n: int, beta: int) -> None:
        a, b, c = slots[0][: m * k].reshape(m, k), slots[1][: k * n].reshape(k, n), slots[2][: m * n].reshape(m, n)
        asked = 1, beta, algorithm, "auto", plan.inputs, plan.workspace, None, None, accuracy
        matmul_arrays(a, b, c, asked, None)

    def every() -> None:
        for task in plan.tasks(0):
            (m, k), n = plan.shape("A", task.block("A")), plan.shape("B", task.block("B"))[1]
            one(m, k, n, 0 if task.first else 1)
        cupy.cuda.Device().synchronize()

    one(*plan.block, 0)
    return timed(every)


if __name__ == "__main__":
    raise SystemExit(main())
