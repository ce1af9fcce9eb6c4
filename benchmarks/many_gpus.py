"""Distributed multiplies on a GPU a rank beside the plain one, the best plan and the library on one GPU: times, checks, efficiency.

mpirun -n 2 python benchmarks/many_gpus.py --sizes 16384,32768 --json many-gpus.json

A, B and C lie in slabs of rows, or (`home`) where a scheme sums them. The plain multiply gathers B by NCCL, beside the library's product
of what a rank has of it or before one product. It and the library on one GPU are the fastest of cuBLAS, cublasLt, CuPy's and PyTorch's
multiply in the same run. Times are those of the slowest rank, medians of rounds in which every configuration runs once, on normal data.
Every configuration is checked in this run, on integers and into NaN: C x must be A (B x) exactly, for random integer vectors x.
`--cpu` tries the program itself on processors, with NumPy and messages by MPI.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from common import save
from mpi4py import MPI

import bilinear
from bilinear.distributed import Slab, home, matmul
from bilinear.distributed.connection import connected
from bilinear.distributed.multiply import Asked, plan_for
from bilinear.distributed.pieces_here import free_memory
from bilinear.distributed.rank import Post, Steps, Wait
from bilinear.distributed.spread import Rect, Spread
from bilinear.distributed.traffic import busiest, traffic
from bilinear.ir.matrix import Array
from bilinear.measure.bench_library import library_calls

COMM = MPI.COMM_WORLD
LARGEST, SEED, VECTORS, STRIPE = 2, 7, 2, 2048
TIMEOUT = 60.0
Call = Callable[[], Array]
Configuration = dict[str, Any]
OURS: dict[str, Configuration] = {
    "2d x library": {"local_levels": 0},
    "2d x auto": {},
    "2d x winograd": {"algorithm": "winograd"},
    "strassen x library, home": {"decomposition": "strassen", "local_levels": 0, "home": True},
    "strassen x auto, home": {"decomposition": "strassen", "home": True},
    "winograd x library, home": {"decomposition": "winograd", "local_levels": 0, "home": True},
    "winograd x auto, home": {"decomposition": "winograd", "home": True},
    "winograd x auto": {"decomposition": "winograd"},
    "2d x twice": {"accuracy": "twice"},
}
SHORT = "2d x auto", "winograd x auto, home", "2d x twice"
"""The configurations that are timed where all would take too long."""
LONG = 40_000


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="16384,32768", help="N, comma-separated")
    parser.add_argument("--dtypes", default="float64,float32")
    parser.add_argument("--only", default="", help="configurations, comma-separated with ';'")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin with no further size after so long")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--json", type=Path)
    asked, begun = parser.parse_args(), perf_counter()
    if not asked.cpu:
        import cupy

        cupy.cuda.Device(COMM.rank % cupy.cuda.runtime.getDeviceCount()).use()
    rows: list[dict[str, object]] = []
    for n in map(int, asked.sizes.split(",")):
        for dtype in asked.dtypes.split(","):
            late = COMM.bcast(perf_counter() - begun > asked.seconds)
            if not late:
                rows.append(measured(n, dtype, asked))
                if COMM.rank == 0 and asked.json:
                    save("many-gpus", rows, asked.json)
    if COMM.rank == 0 and not all(row["exact"] for row in rows):
        raise SystemExit("not exact")


def measured(n: int, dtype: str, asked: Namespace) -> dict[str, object]:
    """One size and type: check all configurations on integers, then time them on normal data."""
    run = Run(n, dtype, np if asked.cpu else __import__("cupy"))
    names = [name for name in OURS if name in asked.only.split(";")] if asked.only else [x for x in OURS if n < LONG or x in SHORT]
    names = [name for name in names if dtype == "float32" or not name.endswith("twice")]
    run.fill(integers=True)
    exact: dict[str, bool] = {}
    failed: dict[str, str] = {}
    for name, (call, lie) in {**run.plain(), **{name: run.ours(OURS[name]) for name in names}}.items():
        say(f"  {name} ...")
        try:
            exact[name] = run.checked(call, lie)
        except Exception as error:  # shown in the table; the ranks fail together, by agreement
            failed[name] = f"{type(error).__name__}: {error}".splitlines()[0]
            say(f"  {name}: {failed[name]}")
            connected(COMM, TIMEOUT).watch.require_sound()
    run.fill(integers=False)
    calls = {name: call for name, (call, _) in {**run.plain(), **{name: run.ours(OURS[name]) for name in names}}.items() if name in exact}
    together: dict[str, list[float]] = {name: [] for name in calls}
    alone = run.alone()
    for _ in range(asked.rounds):
        for name, call in calls.items():
            together[name].append(run.seconds(call))
        for name, call in alone.items():
            together.setdefault(name, []).append(run.seconds(call))
    ms = {name: round(1e3 * median(values), 3) for name, values in together.items()}
    row = {"n": n, "dtype": dtype, "ranks": COMM.size, "ms": ms, "all": together, "exact": all(exact.values()), "checks": exact}
    row |= {
        "failed": failed,
        "plans": {name: run.described(OURS[name]) for name in names},
        "carrier": connected(COMM, TIMEOUT).carrier.name,
    }
    show(row)
    return row


class Run:
    """The matrices of one size and type: slabs of rows, and pieces where a scheme sums them."""

    def __init__(self, n: int, dtype: str, xp: Array) -> None:
        self.n, self.dtype, self.xp = n, dtype, xp
        self.slab = Slab.X.spread(n, n, COMM.size)
        self.a, self.b = (xp.empty(self.slab[COMM.rank].shape, dtype) for _ in range(2))

    def fill(self, integers: bool) -> None:
        """Integers or normal data, other on each rank."""
        for at, x in enumerate((self.a, self.b)):
            generator = self.xp.random.default_rng(SEED + 2 * COMM.rank + at)
            for row in range(0, x.shape[0], STRIPE):
                part = x[row : row + STRIPE]
                part[...] = generator.integers(-LARGEST, LARGEST + 1, part.shape) if integers else generator.standard_normal(part.shape)
        self.settle()

    def settle(self) -> None:
        if self.xp is not np:
            self.xp.cuda.Device().synchronize()

    def ours(self, configuration: Configuration) -> tuple[Call, Spread]:
        """A configuration, and how its A and B lie. At home they are taken for slabs, for random elements are alike."""
        options = dict(configuration)
        if not options.pop("home", False):
            return partial(matmul, self.a, self.b, shape=(self.n,) * 3, distributions=Slab.X, timeout=TIMEOUT, **options), self.slab
        lie = home((self.n,) * 3, COMM.size, str(options["decomposition"]), dtype=self.dtype)
        spread = lie[0].spread(self.n, self.n, COMM.size)
        assert spread[COMM.rank].shape == self.a.shape, "pieces at home are as large as slabs where the ranks divide the blocks"
        return partial(matmul, self.a, self.b, shape=(self.n,) * 3, distributions=lie, timeout=TIMEOUT, **options), spread

    def described(self, configuration: Configuration) -> str:
        """The plan over the ranks, what the busiest of them sends or receives, and what each multiplies."""
        options = dict(configuration)
        options.pop("home", None)
        asked = Asked((self.n,) * 3, (Slab.X,) * 3, **options)
        plan, _ = plan_for(asked, self.dtype, COMM.size)
        moved = busiest(traffic(plan), COMM.size) * np.dtype(self.dtype).itemsize
        tasks = ", ".join("x".join(map(str, task.extents)) for task in plan.tasks[0])
        return f"{plan.name}: {moved / 2**30:.2f} GiB from slabs; tasks of rank 0 {tasks}"

    def plain(self) -> dict[str, tuple[Call, Spread]]:
        """The distributed multiply of the library: B is gathered beside the first product, or before one product."""
        found: dict[str, tuple[Call, Spread]] = {"plain, beside": (partial(self._distributed, self._beside), self.slab)}
        for name in ("numpy",) if self.xp is np else ("cupy", "cublas", "torch", "cublaslt"):
            found[f"plain, {name}"] = partial(self._distributed, partial(self._gathered, name)), self.slab
        return found

    def _distributed(self, steps: Callable[[], Steps]) -> Array:
        return connected(COMM, TIMEOUT).run(steps(), self.xp is not np)

    def _gather(self) -> tuple[Array, Post]:
        whole, post = self.xp.empty((self.n, self.n), self.dtype), Post()
        for other, part in enumerate(self.slab):
            rows = slice(*part.rows[0])
            if other != COMM.rank:
                post.sends.append((other, 0, self.b))
                post.receives.append((other, 0, whole[rows]))
        return whole, post

    def _beside(self) -> Steps:
        whole, post = self._gather()
        ticket = yield post
        c = self.xp.empty(self.a.shape, self.dtype)
        own = slice(*self.slab[COMM.rank].rows[0])
        self._add(self.a[:, own], self.b, c, 0)
        yield Wait(ticket)
        for other, part in enumerate(self.slab):
            rows = slice(*part.rows[0])
            if other != COMM.rank:
                self._add(self.a[:, rows], whole[rows], c, 1)
        return c

    def _add(self, a: Array, b: Array, c: Array, beta: int) -> None:
        """c = a b + beta c by PyTorch, whose multiply was the fastest of the libraries, or NumPy."""
        if self.xp is np:
            c[...] = a @ b + (c if beta else 0)
            return
        import torch

        torch.backends.cuda.matmul.allow_tf32 = False
        x, y, z = (torch.from_dlpack(each) for each in (a, b, c))
        torch.addmm(z, x, y, out=z) if beta else torch.mm(x, y, out=z)

    def _gathered(self, name: str) -> Steps:
        whole, post = self._gather()
        ticket = yield post
        whole[slice(*self.slab[COMM.rank].rows[0])] = self.b
        yield Wait(ticket)
        if self.xp is np:
            return self.a @ whole
        c = self.xp.empty(self.a.shape, self.dtype)
        library_calls(self.a, whole, c)[name]()
        return c

    def alone(self) -> dict[str, Call]:
        """One GPU's multiplies, while the other ranks wait: the libraries, and the best plan, also of digits. None if they are long."""
        needed = 3.5 * self.n**2 * np.dtype(self.dtype).itemsize
        has_room = COMM.bcast(self.n < LONG and (self.xp is np or free_memory() > needed))
        if not has_room:
            return {}
        if COMM.rank:
            names = ("numpy",) if self.xp is np else ("cupy", "cublas", "torch", "cublaslt")
            own = [f"one, {name}" for name in names] + ["one, auto"] + (["one, twice"] if self.dtype == "float32" else [])
            return dict.fromkeys(own, lambda: None)
        generator = self.xp.random.default_rng(1)
        a, b, c = (self.xp.empty((self.n, self.n), self.dtype) for _ in range(3))
        for x in (a, b):
            for row in range(0, self.n, STRIPE):
                x[row : row + STRIPE] = generator.standard_normal(x[row : row + STRIPE].shape)
        libraries = {"numpy": lambda: np.matmul(a, b, out=c)} if self.xp is np else library_calls(a, b, c)
        found: dict[str, Call] = {f"one, {name}": call for name, call in libraries.items()}
        room: dict[str, Any] = {} if self.xp is np else {"workspace": max(0, free_memory() // 2**20 * 2**20)}
        found["one, auto"] = lambda: bilinear.matmul(a, b, c, **room)
        if self.dtype == "float32":
            found["one, twice"] = lambda: bilinear.matmul(a, b, c, accuracy="twice", **room)
        for call in found.values():
            call()
        return found

    def seconds(self, call: Call) -> float:
        """Of the slowest rank."""
        self.settle()
        COMM.Barrier()
        begin = perf_counter()
        result = call()
        self.settle()
        taken = perf_counter() - begin
        del result
        return float(COMM.allreduce(taken, MPI.MAX))

    def checked(self, call: Call, lie: Spread) -> bool:
        """Whether C x is A (B x), exactly: all of them are integers below 2^53. C is computed where NaN was."""
        if self.xp is not np:
            self.xp.get_default_memory_pool().free_all_blocks()
        poison = self.xp.full(self.a.shape, np.nan, self.dtype)
        del poison
        c = call()
        generator = np.random.default_rng(5)
        x = generator.integers(-8, 9, (self.n, VECTORS)).astype(float)
        wanted = self._times(self.a, lie, self._times(self.b, lie, x))
        found = self._times(c, lie, x)
        return bool(np.array_equal(found, wanted))

    def _times(self, piece: Array, lie: Spread, x: Array) -> Array:
        """The whole matrix of which a piece lies here times x, on every rank."""
        there, parts = self.xp.asarray(x), []
        for row in range(0, piece.shape[0], STRIPE):
            parts.append(piece[row : row + STRIPE].astype("float64") @ there)
        own = self.xp.concatenate(parts)
        own = own if self.xp is np else own.get()
        out = np.empty((self.n, x.shape[1]))
        for part, rows in zip(lie, COMM.allgather(own), strict=True):
            out[indices(part)] = rows
        return out


def indices(part: Rect) -> list[int]:
    return [at for start, stop in part.rows for at in range(start, stop)]


def show(row: dict[str, Array]) -> None:
    """Print the row as a table: ratios to the plain multiply and to one GPU."""
    ms = row["ms"]
    plain = min(value for name, value in ms.items() if name.startswith("plain"))
    library = min(
        (value for name, value in ms.items() if name.startswith("one") and name.split(", ")[1] not in ("auto", "twice")), default=None
    )
    say(f"{row['dtype']} N = {row['n']}, {row['ranks']} ranks, by {row['carrier']}: plain {plain:.1f} ms, one GPU's library {library} ms")
    for name, value in sorted(ms.items(), key=lambda each: each[1]):
        best = ms.get("one, twice" if name.endswith("twice") else "one, auto")
        cells = [f"{plain / value:.2f} x plain", "" if best is None else f"{best / value:.2f} x our best on one"]
        cells.append("" if library is None else f"efficiency {library / value / row['ranks']:.0%}")
        exact = {True: "exact", False: "WRONG", None: ""}[row["checks"].get(name)]
        say(f"  {name:28}{value:10.2f} ms  {'  '.join(cells)}  {exact}  {row['plans'].get(name, '')}")


def say(line: str) -> None:
    if COMM.rank == 0:
        print(line, flush=True)


if __name__ == "__main__":
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    main()
