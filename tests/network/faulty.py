"""A program for mpirun: a multiply in which rank 1 misbehaves in the way that the arguments name; after `cuda`, on a GPU a rank."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

import bilinear
from bilinear.distributed import Slab, connection, matmul, multiply, rank_plan

Matrix = NDArray[np.float64]
N, SHORT, LONG = 12, 8.0, 300.0
ON_GPU = "cuda" in sys.argv


def died(x: Matrix, y: Matrix, *_: object, **options: object) -> Matrix:
    os.kill(os.getpid(), signal.SIGKILL)
    return x


def stopped(x: Matrix, y: Matrix, *_: object, **options: object) -> Matrix:
    os.kill(os.getpid(), signal.SIGSTOP)
    return x


def raised(x: Matrix, y: Matrix, *_: object, **options: object) -> Matrix:
    raise MemoryError("no room for a product")


def aborted(x: Matrix, y: Matrix, *given: object, **options: object) -> Matrix:
    """NCCL fails, on this rank."""
    carrier = connection.connected(None, LONG).carrier
    assert carrier.name == "NCCL"
    carrier.abort()  # type: ignore[union-attr]
    return bilinear.matmul(x, y, *given, **options)  # type: ignore[call-overload,no-any-return]


IN_A_PRODUCT: dict[str, Callable[..., Matrix]] = {"died": died, "stopped": stopped, "raised": raised, "aborted": aborted}


def main(way: str) -> None:
    """Rank 1 of `mpirun` deviates; every rank ends with an error."""
    is_odd = MPI.COMM_WORLD.rank == 1
    if ON_GPU:
        import cupy

        cupy.cuda.Device(MPI.COMM_WORLD.rank).use()  # raises if there are fewer GPUs than ranks
    a = b = (cupy if ON_GPU else np).ones(Slab.X.spread(N, N, MPI.COMM_WORLD.size)[MPI.COMM_WORLD.rank].shape)
    shape, decomposition, timeout = (N, N, N), "strassen", LONG
    if way == "stopped":
        connection.SILENCE = SHORT
    if way.startswith("late") or way == "missing":  # the latter: more ranks than GPUs
        timeout = SHORT
    if way == "plan":
        decomposition = "2d"
    if way in ("late twice", "ended after one"):
        matmul(a, b, shape=shape, distributions=Slab.X, timeout=LONG)
    if way == "ended":
        timeout = SHORT
    if is_odd and way in IN_A_PRODUCT:
        setattr(multiply, "multiply_here", IN_A_PRODUCT[way])  # noqa: B010
    elif is_odd and way.startswith("late"):
        time.sleep(600)
    elif is_odd and way.startswith("ended"):
        sys.exit(0)
    elif is_odd and way == "shape":
        shape = N, N, N + 1
    elif is_odd and way == "type":
        a = b = a.astype(np.float32)
    elif is_odd and way == "piece":
        a = a[:-1]
    elif is_odd and way == "scheme":
        decomposition = "winograd"
    elif is_odd and way == "name":
        decomposition = "strasen"
    elif is_odd and way == "plan":
        rank_plan.FIRST = 1
    elif is_odd and way == "version":
        setattr(multiply, "__version__", "0.0.1")  # noqa: B010
    matmul(a, b, shape=shape, distributions=Slab.X, decomposition=decomposition, timeout=timeout)
    print("went on")


if __name__ == "__main__":
    main(" ".join(word for word in sys.argv[1:] if word != "cuda"))
