"""A program for mpirun: products in all decompositions and many distributions, exact on integers, with the traffic that the plan has.

With the argument `cuda` the pieces are CuPy's, one GPU a rank.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import reduce
from itertools import pairwise, permutations
from typing import Literal

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from bilinear import matmul, multi_dot
from bilinear.distributed import BlockCyclic, BlockNonCyclic, ProcessGrid, Slab
from bilinear.distributed.chain import AskedChain, Machine, run_chain
from bilinear.distributed.connection import Connection, connected
from bilinear.distributed.distributions import Distribution, Runs
from bilinear.distributed.multiply import Request, plan_for, run
from bilinear.distributed.rank_plan import traffic, workspace
from bilinear.errors import BilinearError
from bilinear.ir.matrix import Array

Matrix = NDArray[np.generic]
TIMEOUT = 300.0
ON_GPU = "cuda" in sys.argv


def placed(matrix: Matrix) -> Array:
    """The matrix where products are to run."""
    if not ON_GPU:
        return matrix
    import cupy

    return cupy.asarray(matrix)


def brought(found: Array) -> Matrix:
    """A result, which must lie where the operands do, in memory of the host."""
    assert isinstance(found, np.ndarray) is not ON_GPU
    return np.asarray(found.get() if ON_GPU else found)


def indices(runs: Runs) -> list[int]:
    return [at for start, stop in runs for at in range(start, stop)]


def piece(matrix: Matrix, distribution: Distribution, comm: MPI.Intracomm) -> Matrix:
    rows, columns = matrix.shape
    part = distribution.spread(rows, columns, comm.size)[comm.rank]
    return matrix[np.ix_(indices(part.rows), indices(part.columns))]


def distributions(ranks: int) -> list[Distribution]:
    tall, wide = ProcessGrid((ranks, 1)), ProcessGrid((1, ranks), "column-major")
    square = ProcessGrid((2, ranks // 2)) if ranks % 2 == 0 else wide
    return [Slab.X, Slab.Y, BlockNonCyclic(square), BlockCyclic(square, (3, 2), (0, 0)), BlockCyclic(tall, (4, 4), (ranks - 1, 0))]


def main() -> None:
    comm = MPI.COMM_WORLD
    gpus = 0
    if ON_GPU:
        import cupy

        gpus = cupy.cuda.runtime.getDeviceCount()
        cupy.cuda.Device(comm.rank % gpus).use()
    connection = connected(comm, TIMEOUT)
    known, calls = distributions(comm.size), 0
    for extents in ((24, 24, 24), (45, 37, 52), (3, 50, 1)):
        m, k, n = extents
        generator = np.random.default_rng(7)
        a, b = generator.integers(-9, 10, (m, k)), generator.integers(-9, 10, (k, n))
        for name, dtype in (("2d", "int64"), ("strassen", "float64"), ("winograd", "float32"), ("laderman", "int32"), ("2d", "complex128")):
            three = known[calls % 5], known[calls // 2 % 5], known[calls // 3 % 5]
            for memory in (None, tight(Request(extents, three, name), dtype, comm.size)):
                asked = Request(extents, three, name, "auto", memory, local_levels=0)
                left, right = (placed(piece(x, d, comm).astype(dtype)) for x, d in zip((a, b), three, strict=False))
                before = connection.sent, connection.received
                found = brought(run(connection, left, right, asked, TIMEOUT))
                assert found.dtype == dtype and np.array_equal(found, piece(a @ b, three[2], comm)), (extents, asked)
                check_traffic(asked, dtype, before, (connection.sent, connection.received), comm)
                calls += 1
    a = np.random.default_rng(3).integers(-9, 10, (64, 64)).astype("float64")
    balances: tuple[Literal["static", "queue"] | None, ...] = (None, None, None, "static", "queue")
    ways = ("winograd", "strassen"), ("2d", "msmes"), ("winograd", "msmes"), ("2d", "strassen"), ("2d", "msmes")
    for (decomposition, local), balance in zip(ways, balances, strict=True):
        by_plan = Request((64, 64, 64), (Slab.X,) * 3, decomposition, algorithm=local, local_levels=1, balance=balance)
        left, right = (placed(piece(a, Slab.X, comm)) for _ in range(2))
        assert np.array_equal(brought(run(connection, left, right, by_plan, TIMEOUT)), piece(a @ a, Slab.X, comm))
        assert all(np.array_equal(brought(x), piece(a, Slab.X, comm)) for x in (left, right))
    with_accuracy(connection)
    with_bits(connection, known)
    chains(connection, known)
    chains_with_bits(connection, known)
    assert connection.carrier.name == ("NCCL" if 1 < comm.size <= gpus else "MPI")
    print(f"rank {comm.rank}: {calls} products")


def with_accuracy(connection: Connection) -> None:
    """k is not cut, in panels of columns; large enough that digits multiply on a GPU."""
    n, comm = 2048 if ON_GPU else 96, connection.comm
    a, b = (np.random.default_rng(seed).integers(-9, 10, (n, n)).astype("float32") for seed in (5, 6))
    for accuracy in ("classical", "twice", 1.0):
        asked = Request((n, n, n), (Slab.X,) * 3, accuracy=accuracy)
        found = brought(run(connection, placed(piece(a, Slab.X, comm)), placed(piece(b, Slab.X, comm)), asked, TIMEOUT))
        assert np.array_equal(found, piece(a.astype("float64") @ b, Slab.X, comm)), accuracy
        assert all(task.inner == ((0, n),) for tasks in plan_for(asked, "float32", comm.size)[0].tasks for task in tasks)


def with_bits(connection: Connection, known: list[Distribution]) -> None:
    """Numbers of 30 decades, wherever k is cut in what ranks hold, also in the least memory: the bits of one process."""
    comm, extents, random = connection.comm, (23, 150, 19), np.random.default_rng(7)
    for at, dtype in enumerate(("float64", "float32", "float16", "complex64")):
        a, b = ((random.standard_normal(x) * 10.0 ** random.uniform(-15, 15, x)).astype(dtype) for x in (extents[:2], extents[1:]))
        a[3, 7], b[9, 4] = np.inf, -0.0
        wanted = matmul(a, b, reproducible="bitwise")
        for left, right, out in [*permutations(known, 3)][at::4]:
            own = placed(piece(a, left, comm)), placed(piece(b, right, comm))
            asked = Request(extents, (left, right, out), reproducible="bitwise")
            for one in (asked, replace(asked, memory=tight(asked, dtype, comm.size))):
                found = brought(run(connection, own[0], own[1], one, TIMEOUT))
                assert found.dtype == dtype and found.tobytes() == piece(wanted, out, comm).tobytes(), (dtype, one)


def chains_with_bits(connection: Connection, known: list[Distribution]) -> None:
    """The order, and so the bits, of one process, by all ranks at once and by groups of them."""
    comm, extents, random = connection.comm, (23, 150, 19, 60, 7), np.random.default_rng(8)
    for at, lie in enumerate(known):
        matrices = [random.standard_normal(shape) * 10.0 ** random.uniform(-9, 9, shape) for shape in pairwise(extents)]
        given = (lie, *(known[(at + 1) % len(known)],) * 4)
        own = [placed(piece(x, each, comm)) for x, each in zip(matrices, given, strict=False)]
        wanted = piece(multi_dot(matrices, reproducible="bitwise"), given[-1], comm)
        for machine in ("h200", SAME):
            asked = AskedChain(extents, given, machine=machine, reproducible="bitwise")
            assert brought(run_chain(connection, own, asked, TIMEOUT)).tobytes() == wanted.tobytes(), asked


def chains(connection: Connection, known: list[Distribution]) -> None:
    """Chains by products on all ranks, and on groups of them: on the second machine every product takes as long on any number of ranks."""
    comm = connection.comm
    for machine in ("h200", SAME):
        for at, dtype in enumerate(("float64", "int64", "float32")):
            extents = (9, 40, 6, 30, 5, 50, 8)
            given = tuple(known[(at + place) % 5] for place in range(len(extents)))
            matrices = [np.random.default_rng(place).integers(-3, 4, shape) for place, shape in enumerate(pairwise(extents))]
            own = [placed(piece(matrix, d, comm).astype(dtype)) for matrix, d in zip(matrices, given, strict=False)]
            asked = AskedChain(extents, given, "winograd", machine, local_levels=0)
            found = brought(run_chain(connection, own, asked, TIMEOUT))
            assert found.dtype == dtype and np.array_equal(found, piece(reduce(np.matmul, matrices), given[-1], comm)), (dtype, machine)


def one_second(m: int, k: int, n: int) -> float:
    return 1.0


SAME = Machine("products of one second", 8, 8, 1e12, 1e12, 1e12, 1e12, 1e12, 0.0, 0.0, local=one_second)


def tight(asked: Request, dtype: str, ranks: int) -> int | None:
    """Bytes that need a depth-first level, if one helps."""
    memory = workspace(plan_for(asked, dtype, ranks)[0]) * np.dtype(dtype).itemsize * 9 // 10
    try:
        plan_for(replace(asked, memory=memory), dtype, ranks)
    except BilinearError:
        return None
    return memory


def check_traffic(asked: Request, dtype: str, before: tuple[int, int], after: tuple[int, int], comm: MPI.Intracomm) -> None:
    pairs = traffic(plan_for(asked, dtype, comm.size)[0])
    for end, (low, high) in enumerate(zip(before, after, strict=True)):
        wanted = sum(size for pair, size in pairs.items() if pair[end] == comm.rank)
        assert high - low == wanted * np.dtype(dtype).itemsize, asked


if __name__ == "__main__":
    main()
    sys.stdout.flush()
