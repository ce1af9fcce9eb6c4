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
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache, partial
from statistics import median
from time import perf_counter
from traceback import print_exc
from typing import Any

import numpy as np
from common import Later, cupy, need, need_gpu, parser_of, save

import bilinear
from bilinear.distributed import Slab, home, matmul
from bilinear.distributed.connection import connected
from bilinear.distributed.distributions import Distribution, Runs, Spread
from bilinear.distributed.multiply import Request, free_memory, plan_for, rounded_down
from bilinear.distributed.rank import Post, Steps, Wait, steps_of
from bilinear.distributed.rank_plan import RankPlan, busiest, rank_workspace, traffic
from bilinear.ir.matrix import Array
from bilinear.measure.bench_library import library_calls
from bilinear.planner.plan import Plan
from bilinear.runtime.devices_here import current_device

MPI: Any = Later("mpi4py.MPI")
LARGEST, SEED, VECTORS, STRIPE = 2, 7, 2, 2048
TIMEOUT = 60.0
Call = Callable[[], Array]
Configuration = dict[str, Any]
Lie = tuple[Spread, ...]  # How A, B and C lie.
OURS: dict[str, Configuration] = {
    "2d x library": {"local_levels": 0},
    "2d x own": {"own": True},
    "2d x own, B by columns": {"own": True, "by_columns": True},
    "2d x auto": {},
    "2d x auto, B by columns": {"by_columns": True},
    "2d x winograd": {"algorithm": "winograd"},
    "2d x msmes, B by columns": {"algorithm": "msmes", "local_levels": 2, "by_columns": True},
    "winograd x msmes, home": {"decomposition": "winograd", "algorithm": "msmes", "local_levels": 2, "home": True},
    "strassen x library, home": {"decomposition": "strassen", "local_levels": 0, "home": True},
    "strassen x own, home": {"decomposition": "strassen", "own": True, "home": True},
    "winograd x library, home": {"decomposition": "winograd", "local_levels": 0, "home": True},
    "winograd x own, home": {"decomposition": "winograd", "own": True, "home": True},
    "winograd x own": {"decomposition": "winograd", "own": True},
    "winograd x auto, home": {"decomposition": "winograd", "home": True},
    "winograd deep x own, home": {"decomposition": "winograd", "levels": 1, "own": True, "home": True, "matrices": 4},
    "winograd deep x auto, home": {"decomposition": "winograd", "levels": 1, "home": True, "matrices": 4},
    "2d x twice, B by columns": {"accuracy": "twice", "by_columns": True},
}
"""`own`: the best plan on the element type's own units, without digits. `auto` may take digits. `matrices`: the memory that a rank may
hold beside its pieces, in multiples of one matrix's bytes; with 4 a level stands above the breadth-first one and runs depth first."""
SHORT = "2d x own, B by columns", "winograd deep x own, home", "2d x auto, B by columns", "winograd deep x auto, home"
"""The configurations that are timed where all would take too long."""
LONG = 40_000
LIBRARIES = "cupy", "cublas", "torch", "cublaslt"
NO_LIBRARY = "auto", "twice", "own"
MIB = 2**20


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--sizes", default="16384,32768", help="N, comma-separated")
    parser.add_argument("--dtypes", default="float64,float32")
    parser.add_argument("--only", default="", help="configurations, comma-separated with ';'")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin with no further size after so long")
    parser.add_argument("--cpu", action="store_true")
    asked = parser.parse_args()
    need("mpi4py")
    if not asked.cpu:
        need_gpu()
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    try:
        run(asked)
    except BaseException:  # the others would wait for this rank
        print_exc()
        world().Abort(1)


@cache
def world() -> Any:
    """All ranks."""
    return MPI.COMM_WORLD


def run(asked: Namespace) -> None:
    """Measure all sizes and types."""
    begun = perf_counter()
    if not asked.cpu:
        cupy.cuda.Device(world().rank % cupy.cuda.runtime.getDeviceCount()).use()
    rows: list[dict[str, object]] = []
    for n in map(int, asked.sizes.split(",")):
        for dtype in asked.dtypes.split(","):
            late = world().bcast(perf_counter() - begun > asked.seconds)
            if not late:
                rows.append(measured(n, dtype, asked))
                if world().rank == 0 and asked.json:
                    save("many-gpus", rows, asked.json)
    if world().rank == 0 and not all(row["exact"] for row in rows):
        raise SystemExit("not exact")


def measured(n: int, dtype: str, asked: Namespace) -> dict[str, object]:
    """One size and type: check all configurations on integers, then time them on normal data."""
    matrices = Run(n, dtype, np if asked.cpu else cupy)
    names = [name for name in OURS if name in asked.only.split(";")] if asked.only else [x for x in OURS if n < LONG or x in SHORT]
    names = [name for name in names if not (asked.cpu and "own" in OURS[name])]
    matrices.fill(integers=True)
    exact: dict[str, bool] = {}
    failed: dict[str, str] = {}
    for name, (call, lie) in {**matrices.plain(), **{name: matrices.ours(OURS[name]) for name in names}}.items():
        say(f"  {name} ...")
        try:
            exact[name] = matrices.checked(call, lie)
        except Exception as error:  # shown in the table; the ranks fail together, by agreement
            failed[name] = f"{type(error).__name__}: {error}".splitlines()[0]
            say(f"  {name}: {failed[name]}")
            connected(world(), TIMEOUT).watch.require_sound()
    matrices.fill(integers=False)
    calls = {
        name: call
        for name, (call, _) in {**matrices.plain(), **{name: matrices.ours(OURS[name]) for name in names}}.items()
        if name in exact
    }
    together: dict[str, list[float]] = {name: [] for name in calls}
    alone = matrices.alone()
    for _ in range(asked.rounds):
        for name, call in calls.items():
            together[name].append(matrices.seconds(call))
        for name, call in alone.items():
            together.setdefault(name, []).append(matrices.seconds(call))
    ms = {name: round(1e3 * median(values), 3) for name, values in together.items()}
    row = {"n": n, "dtype": dtype, "ranks": world().size, "ms": ms, "all": together, "exact": all(exact.values()), "checks": exact}
    row |= {
        "failed": failed,
        "plans": {name: matrices.described(OURS[name]) for name in names},
        "carrier": connected(world(), TIMEOUT).carrier.name,
    }
    show(row)
    return row


class Run:
    """The matrices of one size and type: slabs of rows, and pieces where a scheme sums them."""

    def __init__(self, n: int, dtype: str, xp: Array) -> None:
        self.n, self.dtype, self.xp = n, dtype, xp
        self.slab = Slab.X.spread(n, n, world().size)
        self.a, self.b = (xp.empty(self.slab[world().rank].shape, dtype) for _ in range(2))

    def fill(self, integers: bool) -> None:
        """Integers or normal data, other on each rank."""
        for at, x in enumerate((self.a, self.b)):
            generator = self.xp.random.default_rng(SEED + 2 * world().rank + at)
            for row in range(0, x.shape[0], STRIPE):
                part = x[row : row + STRIPE]
                part[...] = generator.integers(-LARGEST, LARGEST + 1, part.shape) if integers else generator.standard_normal(part.shape)
        self.settle()

    def settle(self) -> None:
        if self.xp is not np:
            self.xp.cuda.Device().synchronize()

    def ours(self, configuration: Configuration) -> tuple[Call, Lie]:
        """A configuration, and how its A, B and C lie: the elements are random, so a slab of rows serves as any other piece of its size."""
        options, lie, extents = self._options(configuration), self._lie(configuration), (self.n,) * 3
        spreads = tuple(distribution.spread(self.n, self.n, world().size) for distribution in lie)
        b = self.b.reshape(spreads[1][world().rank].shape)
        assert spreads[0][world().rank].shape == self.a.shape, "pieces at home are as large as slabs where the ranks divide the blocks"
        if "own" not in configuration:
            return partial(matmul, self.a, b, shape=extents, distributions=lie, timeout=TIMEOUT, **options), spreads
        asked = Request(extents, lie, **options)

        def call() -> Array:
            plan, _ = plan_for(asked, self.dtype, world().size)
            needed = rank_workspace(plan, world().rank) * self.a.dtype.itemsize + self.a.nbytes  # C is as large as A
            multiply = partial(on_own_units, workspace=rounded_down(free_memory() - needed))
            return connected(world(), TIMEOUT).run(steps_of(plan, world().rank, self.a, b, multiply), True)

        return call, spreads

    def _options(self, configuration: Configuration) -> Configuration:
        """The options of the call."""
        options = {name: value for name, value in configuration.items() if name not in ("home", "own", "by_columns", "matrices")}
        whole = self.n * self.n * np.dtype(self.dtype).itemsize
        return options | ({"memory": configuration["matrices"] * whole} if "matrices" in configuration else {})

    def _lie(self, configuration: Configuration) -> tuple[Distribution, Distribution, Distribution]:
        """The distributions of A, B and C: at home a rank has rows of the blocks of all levels, the depth-first one's too."""
        if "home" not in configuration:
            return Slab.X, Slab.Y if "by_columns" in configuration else Slab.X, Slab.X
        lies = partial(home, (self.n,) * 3, world().size, str(configuration["decomposition"]), dtype=self.dtype)
        return lies(levels=2) if "matrices" in configuration else lies()

    def described(self, configuration: Configuration) -> str:
        """The plan over the ranks, what the busiest of them sends or receives, and what each multiplies."""
        asked = Request((self.n,) * 3, self._lie(configuration), **self._options(configuration))
        plan, _ = plan_for(asked, self.dtype, world().size)
        moved = busiest(traffic(plan), world().size) * np.dtype(self.dtype).itemsize
        tasks = ", ".join("x".join(map(str, task.extents)) for task in plan.tasks[0])
        return f"{plan.name}: {moved / 2**30:.2f} GiB moved; tasks of rank 0 {tasks}; {self._local(configuration, plan)}"

    def _local(self, configuration: Configuration, over: RankPlan) -> str:
        """The plan of the first task on a rank, where one is chosen."""
        if self.xp is np or "local_levels" in configuration or "algorithm" in configuration:
            return ""
        needed = rank_workspace(over, world().rank) * np.dtype(self.dtype).itemsize
        workspace, shape = rounded_down(free_memory() - needed), over.tasks[0][0].extents
        if "own" in configuration:
            return own_plan(shape, self.dtype, False, workspace).chosen.name
        return bilinear.plan(*shape, self.dtype, accuracy=configuration.get("accuracy"), workspace=workspace).chosen.name

    def plain(self) -> dict[str, tuple[Call, Lie]]:
        """The distributed multiply of the library: B is gathered beside the first product, or before one product."""
        lie = self.slab, self.slab, self.slab
        found: dict[str, tuple[Call, Lie]] = {"plain, beside": (partial(self._distributed, self._beside), lie)}
        for name in ("numpy",) if self.xp is np else LIBRARIES if self.n < LONG else LIBRARIES[2:3]:
            found[f"plain, {name}"] = partial(self._distributed, partial(self._gathered, name)), lie
        return found

    def _distributed(self, steps: Callable[[], Steps]) -> Array:
        return connected(world(), TIMEOUT).run(steps(), self.xp is not np)

    def _gather(self) -> tuple[Array, Post]:
        whole, post = self.xp.empty((self.n, self.n), self.dtype), Post()
        for other, part in enumerate(self.slab):
            rows = slice(*part.rows[0])
            if other != world().rank:
                post.sends.append((other, 0, self.b))
                post.receives.append((other, 0, whole[rows]))
        return whole, post

    def _beside(self) -> Steps:
        whole, post = self._gather()
        ticket = yield post
        c = self.xp.empty(self.a.shape, self.dtype)
        own = slice(*self.slab[world().rank].rows[0])
        self._add(self.a[:, own], self.b, c, 0)
        yield Wait(ticket)
        for other, part in enumerate(self.slab):
            rows = slice(*part.rows[0])
            if other != world().rank:
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
        z.addmm_(x, y) if beta else torch.mm(x, y, out=z)

    def _gathered(self, name: str) -> Steps:
        whole, post = self._gather()
        ticket = yield post
        whole[slice(*self.slab[world().rank].rows[0])] = self.b
        yield Wait(ticket)
        if self.xp is np:
            return self.a @ whole
        c = self.xp.empty(self.a.shape, self.dtype)
        library_calls(self.a, whole, c)[name]()
        return c

    def alone(self) -> dict[str, Call]:
        """One GPU's multiplies, while the other ranks wait: the libraries, and the best plan, also of digits. None if they are long."""
        needed = 3.5 * self.n**2 * np.dtype(self.dtype).itemsize
        has_room = world().bcast(self.n < LONG and (self.xp is np or free_memory() > needed))
        if not has_room:
            return {}
        if world().rank:
            names = ("numpy",) if self.xp is np else LIBRARIES
            others = NO_LIBRARY if self.xp is not np else NO_LIBRARY[:2]
            return dict.fromkeys([f"one, {name}" for name in (*names, *others)], lambda: None)
        generator = self.xp.random.default_rng(1)
        a, b, c = (self.xp.empty((self.n, self.n), self.dtype) for _ in range(3))
        for x in (a, b):
            for row in range(0, self.n, STRIPE):
                x[row : row + STRIPE] = generator.standard_normal(x[row : row + STRIPE].shape)
        libraries = {"numpy": lambda: np.matmul(a, b, out=c)} if self.xp is np else library_calls(a, b, c)
        found: dict[str, Call] = {f"one, {name}": call for name, call in libraries.items()}
        room: dict[str, Any] = {} if self.xp is np else {"workspace": rounded_down(free_memory())}
        found["one, auto"] = lambda: bilinear.matmul(a, b, c, **room)
        found["one, twice"] = lambda: bilinear.matmul(a, b, c, accuracy="twice", **room)
        if room:
            found["one, own"] = lambda: on_own_units(a, b, c, **room)
        for call in found.values():
            call()
        return found

    def seconds(self, call: Call) -> float:
        """Of the slowest rank."""
        self.settle()
        world().Barrier()
        begin = perf_counter()
        result = call()
        self.settle()
        taken = perf_counter() - begin
        del result
        return float(world().allreduce(taken, MPI.MAX))

    def checked(self, call: Call, lie: Lie) -> bool:
        """Whether C x is A (B x), exactly: all of them are integers below 2^53. C is computed where NaN was."""
        if self.xp is not np:
            self.xp.get_default_memory_pool().free_all_blocks()
        poison = self.xp.full(self.a.shape, np.nan, self.dtype)
        del poison
        c = call()
        generator = np.random.default_rng(5)
        x = generator.integers(-8, 9, (self.n, VECTORS)).astype(float)
        wanted = self._times(self.a, lie[0], self._times(self.b.reshape(lie[1][world().rank].shape), lie[1], x))
        found = self._times(c, lie[2], x)
        return bool(np.array_equal(found, wanted))

    def _times(self, piece: Array, lie: Spread, x: Array) -> Array:
        """The whole matrix of which a piece lies here times x, on every rank: each adds what its rows and columns give."""
        part = lie[world().rank]
        there, out = self.xp.asarray(x[indices(part.columns)]), np.zeros((self.n, x.shape[1]))
        own = self.xp.concatenate([piece[row : row + STRIPE].astype("float64") @ there for row in range(0, piece.shape[0], STRIPE)])
        out[indices(part.rows)] = own if self.xp is np else own.get()
        return world().allreduce(out)


def on_own_units(a: Array, b: Array, out: Array = None, *, beta: int = 0, workspace: int = 0) -> Array:
    """The product by the best plan that takes no digits."""
    chosen = own_plan((a.shape[0], *b.shape), str(a.dtype), bool(beta), workspace)
    return bilinear.matmul(a, b, out, beta=beta, plan=chosen)


@lru_cache(maxsize=64)
def own_plan(shape: tuple[int, int, int], dtype: str, accumulate: bool, workspace: int) -> Plan:
    here = current_device()
    assert here is not None, "the GPU is described"
    return bilinear.plan(*shape, dtype, device=replace(here, digits=(), rounded=()), accumulate=accumulate, workspace=workspace)


def indices(runs: Runs) -> list[int]:
    return [at for start, stop in runs for at in range(start, stop)]


def show(row: dict[str, Array]) -> None:
    """Print the row as a table: ratios to the plain multiply and to one GPU."""
    ms = row["ms"]
    plain = min(value for name, value in ms.items() if name.startswith("plain"))
    library = min(
        (value for name, value in ms.items() if name.startswith("one") and name.split(", ")[1] not in ("auto", "twice")), default=None
    )
    say(f"{row['dtype']} N = {row['n']}, {row['ranks']} ranks, by {row['carrier']}: plain {plain:.1f} ms, one GPU's library {library} ms")
    for name, value in sorted(ms.items(), key=lambda each: each[1]):
        best = ms.get("one, twice" if " x twice" in name else "one, own" if " x own" in name else "one, auto")
        cells = [f"{plain / value:.2f} x plain", "" if best is None else f"{best / value:.2f} x our best on one"]
        cells.append("" if library is None else f"efficiency {library / value / row['ranks']:.0%}")
        exact = {True: "exact", False: "WRONG", None: ""}[row["checks"].get(name)]
        say(f"  {name:28}{value:10.2f} ms  {'  '.join(cells)}  {exact}  {row['plans'].get(name, '')}")


def say(line: str) -> None:
    if world().rank == 0:
        print(line, flush=True)


if __name__ == "__main__":
    main()
