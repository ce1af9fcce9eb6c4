"""In place over two GPUs of one host, each a rank of its own thread, beside B gathered and multiplied by the library. Needs no MPI.

Every way is checked on integers: C by two columns of random integers, A and B as before, and the most bytes that CuPy's pool gave beside
A, B and C. Times are those of the slower thread, medians of rounds in which each way runs twice and the second run counts, on normal data,
and on the integers (`ms of integers`), which draw less power, so that the clocks of a product by the library fall less.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import monotonic, perf_counter
from typing import Any

import numpy as np
from common import cupy, median, need_gpu, parser_of, save

import bilinear
from bilinear.distributed import Slab, home
from bilinear.distributed.connection import run_steps
from bilinear.distributed.distributions import Distribution
from bilinear.distributed.multiply import Request, local_multiply, plan_for
from bilinear.distributed.rank import Post, Steps, Wait, steps_of
from bilinear.distributed.rank_plan import rank_workspace

GPUS, STRIPE, PLAIN = (0, 1), 1024, "plain"
Array = Any
Lie = tuple[Distribution, Distribution, Distribution]
Work = Callable[[int, Any], Array]
Runs = Sequence[tuple[int, int]]


class Way:
    """A multiply of the pieces on both GPUs."""

    def __init__(self, own: list[list[Array]], n: int, lie: Lie = (Slab.X,) * 3, **options: Any) -> None:
        self.own, self.lie, asked = own, lie, Request((n, n, n), lie, **options)
        self.plan, _ = plan_for(asked, "float64", len(GPUS))
        self.multiply = [local_multiply(asked, self.plan, rank, True, 8) for rank in GPUS]
        self.planned: int | None = max(rank_workspace(self.plan, rank) for rank in GPUS) * 8

    def __call__(self, rank: int, carrier: Any) -> Array:
        a, b = (x.reshape(self.plan.given[side][rank].shape) for side, x in enumerate(self.own[rank]))
        return run_steps(steps_of(self.plan, rank, a, b, self.multiply[rank]), carrier)


class Plain:
    """B gathered, then one multiply of a rank's rows of A."""

    planned, lie = None, (Slab.X,) * 3

    def __init__(self, own: list[list[Array]], n: int, multiply: Callable[[Array, Array], Array]) -> None:
        self.own, self.n, self.multiply = own, n, multiply

    def __call__(self, rank: int, carrier: Any) -> Array:
        return run_steps(self.steps(rank), carrier)

    def steps(self, rank: int) -> Steps:
        (a, b), whole, half = self.own[rank], cupy.empty((self.n, self.n)), self.n // 2
        ticket = yield Post([(1 - rank, 0, b)], [(1 - rank, 0, whole[(1 - rank) * half : (2 - rank) * half])])
        whole[rank * half : (rank + 1) * half] = b
        yield Wait(ticket)
        return self.multiply(a, whole)


def ways(own: list[list[Array]], n: int) -> Iterator[tuple[str, Callable[[], Way | Plain]]]:
    """The names of the ways, and what makes each."""
    columns: Lie = (Slab.X, Slab.Y, Slab.X)
    yield f"{PLAIN}, CuPy", partial(Plain, own, n, cupy.matmul)
    yield f"{PLAIN}, the library's faster call", partial(Plain, own, n, partial(bilinear.matmul, levels=0))
    yield f"{PLAIN}, panels as they arrive", partial(Way, own, n, local_levels=0)
    for name, levels in (("msmes", 1), ("msmes", 2), ("winograd_in_place", 2), ("msmes", 3)):
        yield f"2d x {name}:{levels}", partial(Way, own, n, columns, algorithm=name, local_levels=levels)
    at_home = home((n, n, n), len(GPUS), "winograd", levels=1)
    for name, levels in (("msmes", 1), ("msmes", 2), ("winograd_in_place", 2)):
        scheme: dict[str, Any] = {"decomposition": "winograd", "levels": 1, "algorithm": name, "local_levels": levels}
        yield f"winograd x {name}:{levels}", partial(Way, own, n, at_home, **scheme)
    yield "2d x winograd:2, with workspace", partial(Way, own, n, columns, algorithm="winograd", local_levels=2)


def fill(own: list[list[Array]], integers: bool) -> None:
    for rank, pieces in enumerate(own):
        with cupy.cuda.Device(GPUS[rank]) as device:
            for at, x in enumerate(pieces):
                generator = cupy.random.default_rng(10 * rank + at)
                for row in range(0, len(x), STRIPE):
                    part = x[row : row + STRIPE]
                    part[...] = generator.integers(-2, 3, part.shape) if integers else generator.standard_normal(part.shape)
            device.synchronize()


def checksums(own: list[list[Array]]) -> list[int]:
    """Of the bits of every piece, modulo 2^64."""
    found = []
    for pieces in own:
        for x in pieces:
            with x.device:
                found.append(int(x.view(cupy.uint64).sum()))
    return found


def indices(runs: Runs) -> Any:
    return np.concatenate([np.arange(*each) for each in runs])


def times(pieces: list[Array], lie: Distribution, n: int, x: Any) -> Any:
    """A matrix in pieces times one of the host."""
    out = np.zeros((n, x.shape[1]))
    for rank, part in enumerate(lie.spread(n, n, len(GPUS))):
        with cupy.cuda.Device(GPUS[rank]):
            y = pieces[rank].reshape(part.shape) @ cupy.asarray(x[indices(part.columns)])
            out[indices(part.rows)] += y.get()
    return out


def free() -> None:
    for gpu in GPUS:
        with cupy.cuda.Device(gpu) as device:
            device.synchronize()
            cupy.get_default_memory_pool().free_all_blocks()


def timed(work: Work, runs: int = 2) -> tuple[list[float], list[Array]]:
    """Milliseconds of the slower thread in each run, and the pieces of C."""
    from bilinear.backends.peer_copies import PeerCopies

    barrier, seconds = threading.Barrier(len(GPUS)), [list[float](), list[float]()]

    def each(rank: int, carrier: Any) -> Array:
        try:
            for _ in range(runs):
                c = None
                cupy.cuda.get_current_stream().synchronize()
                barrier.wait()
                begun = perf_counter()
                c = work(rank, carrier)
                cupy.cuda.get_current_stream().synchronize()
                seconds[rank].append(perf_counter() - begun)
        except BaseException:
            barrier.abort()
            raise
        return c

    found = PeerCopies(GPUS).run(each)
    return [1e3 * max(pair) for pair in zip(*seconds, strict=True)], found


def counted(work: Work, bytes_beside: list[int]) -> Work:
    """The work, which appends the most bytes that a thread held at once beside what it began with."""

    class Live(cupy.cuda.MemoryHook):  # type: ignore[misc]  # CuPy has no types
        name = "live"
        now = most = 0

        def malloc_postprocess(self, **event: int) -> None:
            self.now += event["mem_size"]
            self.most = max(self.most, self.now)

        def free_postprocess(self, **event: int) -> None:
            self.now -= event["mem_size"]

    def run(rank: int, carrier: Any) -> Array:
        with Live() as hook:
            c = work(rank, carrier)
        bytes_beside.append(hook.most)
        return c

    return run


def checked(one: Way | Plain, own: list[list[Array]], n: int) -> dict[str, Any]:
    """What a way computes of integers, and in which memory."""
    before, beside = checksums(own), list[int]()
    _, c = timed(counted(one, beside), 1)
    x = np.random.default_rng(5).integers(-8, 9, (n, 2)).astype(float)
    a, b = ([pieces[side] for pieces in own] for side in range(2))
    wanted = times(a, one.lie[0], n, times(b, one.lie[1], n, x))
    exact = bool(np.array_equal(times(c, one.lie[2], n, x), wanted))
    gib = round((max(beside) - 4 * n * n) / 2**30, 2)
    return {"exact": exact, "A and B as before": checksums(own) == before, "GiB beside A, B, C": gib}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--size", type=int, default=32768, help="N")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=80.0, help="begin no second or third round after so long")
    options = parser.parse_args()
    need_gpu()
    from bilinear.backends.stream_cupy import _meet

    begun, n = monotonic(), options.size
    _meet(*GPUS)
    own = list[list[Array]]()
    for gpu in GPUS:
        with cupy.cuda.Device(gpu):
            own.append([cupy.empty((n // 2, n)) for _ in range(2)])
    fill(own, True)
    rows, found = dict[str, dict[str, Any]](), dict[str, Way | Plain]()
    for name, make in ways(own, n):
        try:
            found[name] = make()
            rows[name] = {"way": name, "n": n, **checked(found[name], own, n)}
            free()
            rows[name]["ms of integers"] = [round(timed(found[name])[0][1], 1)]
        except (bilinear.BilinearError, MemoryError, RuntimeError) as error:  # RuntimeError: the other thread failed
            found.pop(name, None)
            print(f"left out: {name}: {str(error)[:200]}", flush=True)
        free()
        print(round(monotonic() - begun, 1), rows.get(name), flush=True)
    fill(own, False)
    before = checksums(own)
    for number in range(options.rounds):
        if number and monotonic() - begun > options.seconds:
            break
        for name, one in found.items():
            rows[name].setdefault("ms", []).append(round(timed(one)[0][1], 1))
            free()
        print(f"round {number}: A and B as before: {checksums(own) == before}", flush=True)
        for key in ("ms of integers", "ms"):
            base = min(median(row[key]) for name, row in rows.items() if name.startswith(PLAIN))
            for row in rows.values():
                row["x plain" + key.removeprefix("ms")] = round(base / median(row[key]), 3)
        save("in_place_ranks", [*rows.values()], options.json)
    for row in rows.values():
        print(row, flush=True)


if __name__ == "__main__":
    main()
