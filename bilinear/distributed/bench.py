"""`mpirun -n P python -m bilinear.distributed.bench`: decompositions and local multiplies, timed and checked on all ranks."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from bilinear.distributed.connection import Connection, connected
from bilinear.distributed.distributions import Runs, Slab
from bilinear.distributed.multiply import CLASSICAL, Request, home, plan_for, run
from bilinear.distributed.rank_plan import RankPlan, busiest, classical_bound, recursive_order, traffic
from bilinear.errors import BilinearError, fail
from bilinear.ir.matrix import Array
from bilinear.planner.plan import LIBRARY
from bilinear.planner.problem import CLASSES
from bilinear.planner.streamed import BALANCES
from bilinear.reporting.table import aligned
from bilinear.runtime.arrays import cupy_module

Matrix = NDArray[np.float64]
HEADER = "decomposition", "local", "ms", "GFLOP/s", "busiest rank", "least", "ratio", "efficiency", "exact"
LARGEST = 2  # The largest integer in A and B: sums stay far below 2^24, so that float32 holds them.
TIMEOUT = 60.0
MIB = 2**20


@dataclass(frozen=True)
class RankRow:
    """One configuration: the time of the slowest rank in seconds; bytes that the busiest rank sends or receives, counted and planned."""

    plan: RankPlan
    local: str
    seconds: float
    moved: int
    planned: int
    exact: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; every rank must. The exit code is 1 if an argument, a rank or a product is wrong."""
    try:
        asked = _parsed(arguments)
        connection = connected(None, TIMEOUT)
        rows, alone = measure(connection, asked)
    except BilinearError as error:
        print(error, file=sys.stderr, flush=True)
        return 1
    if connection.comm.rank == 0:
        print("\n".join(_table(rows, alone, asked, connection.comm.size, connection.carrier.name)), flush=True)
    return 0 if all(row.exact and row.moved == row.planned for row in rows) else 1


def _parsed(arguments: Sequence[str] | None) -> Namespace:
    parser = ArgumentParser(prog="python -m bilinear.distributed.bench", description=__doc__)
    parser.add_argument("--shape", default="1024", help="N, or MxKxN: M x K by K x N")
    parser.add_argument("--dtype", default="float64", choices=("float64", "float32"))
    parser.add_argument("--decompositions", default="2d,strassen,winograd", help="2d, and names or paths of schemes")
    parser.add_argument("--local", default="auto,winograd", help="what multiplies on a rank: library, or an algorithm= of bilinear.matmul")
    parser.add_argument("--levels", type=int, help="levels of a scheme that run breadth first; by default the fewest with a product a rank")
    parser.add_argument("--gpu", action="store_true", help="pieces of CuPy, a GPU a rank")
    parser.add_argument("--accuracy", help="classical, twice, or a bound, for the products of 2d with local auto on a rank")
    parser.add_argument("--home", action="store_true", help="matrices lie where schemes sum them, not in slabs of rows")
    parser.add_argument("--memory", type=int, help="the most bytes that a rank may take beside its pieces")
    parser.add_argument("--balance", choices=BALANCES, help="share blocks of 2d: equally, or by how fast ranks are")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each configuration, of which the median is shown")
    found = parser.parse_args(arguments)
    parts = found.shape.split("x")
    if len(parts) not in (1, 3) or not all(part.isdecimal() and int(part) for part in parts):
        raise fail("E769", f"--shape {found.shape} is not a shape", "give N, or MxKxN")
    for option in ("repeat", "levels"):
        if getattr(found, option) is not None and getattr(found, option) < 1:
            raise fail("E769", f"--{option} {getattr(found, option)} is not positive")
    found.extents = tuple(map(int, parts * (3 // len(parts))))
    try:
        found.accuracy = found.accuracy if found.accuracy in (None, *CLASSES) else float(found.accuracy)
    except ValueError:
        raise fail("E769", f"--accuracy {found.accuracy} is not an accuracy", f"give {', '.join(CLASSES)}, or a number") from None
    return found


def measure(connection: Connection, asked: Namespace) -> tuple[list[RankRow], float]:
    """All configurations, and the seconds that rank 0 alone takes with the library's multiply."""
    m, k, n = asked.extents
    generator = np.random.default_rng(7)
    a, b = (generator.integers(-LARGEST, LARGEST + 1, shape).astype(asked.dtype) for shape in ((m, k), (k, n)))
    place = RankPlace(asked.gpu, connection.comm.rank)
    alone = 0.0
    if connection.comm.rank == 0:
        left, right = place.put(a), place.put(b)
        times = [place.timed(lambda: np.matmul(left, right))[0] for _ in range(asked.repeat + 1)]
        alone = median(times[1:])  # the library's threads begin with the first
    alone = connection.largest(alone)
    rows = []
    for decomposition in asked.decompositions.split(","):
        for local in asked.local.split(","):
            given = (Slab.X, Slab.X, Slab.X)
            promised = asked.accuracy if (decomposition, local) == (CLASSICAL, "auto") else None
            one = Request(asked.extents, given, decomposition, asked.levels or "auto", asked.memory, local, accuracy=promised)
            if decomposition == CLASSICAL:
                one = replace(one, balance=asked.balance)
            if local == LIBRARY:
                one = replace(one, algorithm="auto", local_levels=0)
            if asked.home and decomposition != CLASSICAL:
                lie = home(asked.extents, connection.comm.size, decomposition, levels=one.levels)
                one = replace(one, distributions=lie)
            rows.append(_measured(connection, place, a, b, one, asked.repeat))
    return rows, alone


def _measured(connection: Connection, place: RankPlace, a: Matrix, b: Matrix, asked: Request, repeat: int) -> RankRow:
    comm = connection.comm
    plan, _ = plan_for(asked, str(a.dtype), comm.size)
    *given, wanted = (spread[comm.rank] for spread in plan.given)
    pieces = (x[np.ix_(_indices(part.rows), _indices(part.columns))] for x, part in zip((a, b), given, strict=True))
    left, right = map(place.put, pieces)
    times, exact = [], True
    for _ in range(repeat + 1):
        before = connection.sent, connection.received
        seconds, found = place.timed(lambda: run(connection, left, right, asked, TIMEOUT))
        times.append(connection.largest(seconds))
        moved = max(connection.sent - before[0], connection.received - before[1])
        exact = exact and bool(np.array_equal(place.get(found), a[_indices(wanted.rows)] @ b[:, _indices(wanted.columns)]))
    exact = connection.largest(float(not exact)) == 0.0
    planned = moved if plan.by_queue else busiest(traffic(plan), comm.size) * a.dtype.itemsize
    moved = int(connection.largest(float(moved)))
    local = LIBRARY if asked.local_levels == 0 else asked.algorithm
    return RankRow(plan, local, median(times[1:]), moved, planned, exact)


def _table(rows: list[RankRow], alone: float, asked: Namespace, ranks: int, carrier: str) -> list[str]:
    m, k, n = asked.extents
    itemsize, flops = np.dtype(asked.dtype).itemsize, 2 * m * k * n
    cells = []
    for row in rows:
        least = (recursive_order(row.plan, ranks) if row.plan.levels else classical_bound(asked.extents, ranks)) * itemsize
        cells.append(
            (
                row.plan.name,
                row.local,
                f"{row.seconds * 1e3:.1f}",
                f"{flops / row.seconds * 1e-9:.1f}",
                f"{row.moved / MIB:.2f} MiB",
                f"{'' if not row.plan.levels else 'order '}{least / MIB:.2f} MiB" if ranks > 1 else "0",
                f"{row.moved / least:.2f}" if ranks > 1 else "-",
                f"{alone / row.seconds / ranks:.0%}",
                "yes" if row.exact and row.moved == row.planned else "NO",
            )
        )
    title = f"{m} x {k} by {k} x {n}, {asked.dtype}, {ranks} rank{'s' if ranks > 1 else ''}, by {carrier}"
    return [title, "", *aligned(cells, HEADER), "", f"one rank, the library's multiply: {alone * 1e3:.1f} ms"]


class RankPlace:
    """Where the pieces lie: memory of the host, or the rank's GPU."""

    def __init__(self, on_gpu: bool, rank: int) -> None:
        self.cupy: ModuleType | None = None
        if on_gpu:
            self.cupy = cupy_module()
            self.cupy.cuda.Device(rank % self.cupy.cuda.runtime.getDeviceCount()).use()

    def put(self, x: Matrix) -> Array:
        """A matrix there."""
        return x if self.cupy is None else self.cupy.asarray(x)

    def get(self, x: Array) -> Matrix:
        """A matrix back."""
        found: Matrix = x if self.cupy is None else x.get()
        return found

    def timed(self, call: Callable[[], Array]) -> tuple[float, Array]:
        """The seconds of a call, with all that it begins there, and its result."""
        self._settle()
        begun = perf_counter()
        found = call()
        self._settle()
        return perf_counter() - begun, found

    def _settle(self) -> None:
        if self.cupy is not None:
            self.cupy.cuda.Device().synchronize()


def _indices(runs: Runs) -> list[int]:
    return [at for start, stop in runs for at in range(start, stop)]


if __name__ == "__main__":
    sys.exit(main())
