"""`mpirun -n P python -m bilinear.distributed.bench`: decompositions and local multiplies, timed and checked on all ranks."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from bilinear.distributed.connection import Connection, connected
from bilinear.distributed.distributions import Slab
from bilinear.distributed.multiply import CLASSICAL, Asked, home, plan_for, run
from bilinear.distributed.plan import Plan
from bilinear.distributed.spread import Rect, Runs
from bilinear.distributed.traffic import busiest, classical_bound, recursive_order, traffic
from bilinear.errors import BilinearError, fail
from bilinear.reporting.table import aligned

Matrix = NDArray[np.float64]
HEADER = "decomposition", "local", "ms", "GFLOP/s", "busiest rank", "least", "ratio", "efficiency", "exact"
LARGEST = 2
"""The largest integer in A and B: sums stay far below 2^24, so that float32 holds them."""
TIMEOUT = 60.0
MIB = 2**20


@dataclass(frozen=True)
class Row:
    """One configuration: the time of the slowest rank in seconds; bytes that the busiest rank sends or receives, counted and planned."""

    plan: Plan
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
        print("\n".join(_table(rows, alone, asked, connection.comm.size)), flush=True)
    return 0 if all(row.exact and row.moved == row.planned for row in rows) else 1


def _parsed(arguments: Sequence[str] | None) -> Namespace:
    parser = ArgumentParser(prog="python -m bilinear.distributed.bench", description=__doc__)
    parser.add_argument("--shape", default="1024", help="N, or MxKxN: M x K by K x N")
    parser.add_argument("--dtype", default="float64", choices=("float64", "float32"))
    parser.add_argument("--decompositions", default="2d,strassen,winograd", help="2d, and names or paths of schemes")
    parser.add_argument("--local", default="auto,winograd", help="what multiplies on a rank: names for bilinear.matmul's algorithm=")
    parser.add_argument("--levels", type=int, help="levels of a scheme that run breadth first; by default the fewest with a product a rank")
    parser.add_argument("--home", action="store_true", help="matrices lie where schemes sum them, not in slabs of rows")
    parser.add_argument("--memory", type=int, help="the most bytes that a rank may take beside its pieces")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each configuration, of which the median is shown")
    found = parser.parse_args(arguments)
    parts = found.shape.split("x")
    if len(parts) not in (1, 3) or not all(part.isdecimal() and int(part) for part in parts):
        raise fail("E769", f"--shape {found.shape} is not a shape", "give N, or MxKxN")
    for option in ("repeat", "levels"):
        if getattr(found, option) is not None and getattr(found, option) < 1:
            raise fail("E769", f"--{option} {getattr(found, option)} is not positive")
    found.extents = tuple(map(int, parts * (3 // len(parts))))
    return found


def measure(connection: Connection, asked: Namespace) -> tuple[list[Row], float]:
    """All configurations, and the seconds that rank 0 alone takes with the library's multiply."""
    m, k, n = asked.extents
    generator = np.random.default_rng(7)
    a, b = (generator.integers(-LARGEST, LARGEST + 1, shape).astype(asked.dtype) for shape in ((m, k), (k, n)))
    alone = 0.0
    if connection.comm.rank == 0:
        np.matmul(a, b)  # the library's threads begin
        alone = median(_seconds(lambda: np.matmul(a, b)) for _ in range(asked.repeat))
    alone = connection.largest(alone)
    rows = []
    for decomposition in asked.decompositions.split(","):
        for local in asked.local.split(","):
            given = (Slab.X, Slab.X, Slab.X)
            one = Asked(asked.extents, given, decomposition, asked.levels or "auto", asked.memory, local)
            if asked.home and decomposition != CLASSICAL:
                lie = home(asked.extents, connection.comm.size, decomposition, levels=one.levels)
                one = replace(one, distributions=lie)
            rows.append(_measured(connection, a, b, one, asked.repeat))
    return rows, alone


def _measured(connection: Connection, a: Matrix, b: Matrix, asked: Asked, repeat: int) -> Row:
    comm = connection.comm
    plan, _ = plan_for(asked, str(a.dtype), comm.size)
    left, right = (_piece(x, spread[comm.rank]) for x, spread in zip((a, b), plan.given, strict=False))
    wanted = plan.given[2][comm.rank]
    times, exact = [], True
    for _ in range(repeat + 1):
        before, begun = (connection.sent, connection.received), perf_counter()
        found = run(connection, left, right, asked, TIMEOUT)
        times.append(connection.largest(perf_counter() - begun))
        moved = max(connection.sent - before[0], connection.received - before[1])
        exact = exact and bool(np.array_equal(found, a[_indices(wanted.rows)] @ b[:, _indices(wanted.columns)]))
    exact = connection.largest(float(not exact)) == 0.0
    planned = busiest(traffic(plan), comm.size) * a.dtype.itemsize
    return Row(plan, asked.algorithm, median(times[1:]), int(connection.largest(float(moved))), planned, exact)


def _table(rows: list[Row], alone: float, asked: Namespace, ranks: int) -> list[str]:
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
    title = f"{m} x {k} by {k} x {n}, {asked.dtype}, {ranks} rank{'s' if ranks > 1 else ''}"
    return [title, "", *aligned(cells, HEADER), "", f"one rank, the library's multiply: {alone * 1e3:.1f} ms"]


def _seconds(call: Callable[[], object]) -> float:
    begun = perf_counter()
    call()
    return perf_counter() - begun


def _piece(matrix: Matrix, part: Rect) -> Matrix:
    return matrix[np.ix_(_indices(part.rows), _indices(part.columns))]


def _indices(runs: Runs) -> list[int]:
    return [at for start, stop in runs for at in range(start, stop)]


if __name__ == "__main__":
    sys.exit(main())
