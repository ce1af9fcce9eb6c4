"""`auto` in CUDA graphs beside PyTorch by both of its libraries: fresh thin and small shapes, and large squares.

A graph holds 20 calls. Each row is checked on integers, in the graph. The second time of ours is that of the same calls outside, queued so
that no time of the host counts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from math import exp, log
from statistics import geometric_mean, median
from time import monotonic
from typing import Any

from common import cupy, need, need_gpu, parser_of, queued, save

import bilinear
from bilinear.errors import BilinearError
from bilinear.ir.measurement import Shape

IN_A_GRAPH, ROUNDS = 20, 9
MOST_SHORT, MOST_TERMS = 600, 2e10
"""A fresh shape has a side of at most so many elements, and a product of at most so many terms."""
LEAST_US = 8.0
"""Below this a product is as long as its launch, and counted apart."""
SQUARES: tuple[tuple[Shape, str], ...] = tuple(((n, n, n), dtype) for dtype in ("float32", "float64") for n in (2048, 4096, 8192))
Row = dict[str, Any]


def drawn(seed: int) -> Iterator[tuple[Shape, str]]:
    """Fresh shapes (m, k, n) and types, without end."""
    draw = random.Random(seed)
    while True:
        m, k, n = (round(exp(draw.uniform(0, log(12_000)))) for _ in "mkn")
        if min(m, k, n) <= MOST_SHORT and m * k * n <= MOST_TERMS:
            yield (m, k, n), draw.choice(("float32", "float64"))


def captured(multiply: Callable[[], Any]) -> Callable[[], None]:
    """The replay of a graph of our calls, on CuPy's current stream."""
    stream = cupy.cuda.get_current_stream()
    multiply()
    stream.begin_capture()
    try:
        for _ in range(IN_A_GRAPH):
            multiply()
    finally:
        graph = stream.end_capture()
    return partial(graph.launch, stream)


def by_torch(a: Any, b: Any, library: str) -> Callable[[], None]:
    """The replay of a graph of PyTorch's products, on the same stream."""
    import torch

    torch.backends.cuda.preferred_blas_library(library)
    left, right = torch.from_dlpack(a), torch.from_dlpack(b)
    out, graph = torch.empty((a.shape[0], b.shape[1]), dtype=left.dtype, device="cuda"), torch.cuda.CUDAGraph()
    torch.mm(left, right, out=out)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for _ in range(IN_A_GRAPH):
            torch.mm(left, right, out=out)
    return lambda: graph.replay() and None


def measured(shape: Shape, dtype: str) -> Row:
    """A row of results: microseconds of a call."""
    import torch

    (m, k, n), generator = shape, cupy.random.default_rng(1)
    a, b = generator.integers(-2, 3, (m, k)).astype(dtype), generator.integers(-2, 3, (k, n)).astype(dtype)
    c, multiply = cupy.full((m, n), cupy.nan, dtype), partial(bilinear.matmul, a, b)
    replay = captured(partial(multiply, c))
    c[...] = cupy.nan
    replay()
    exact = bool((c == cupy.matmul(a.astype("float64"), b.astype("float64"))).all())
    for x in (a, b):
        x[...] = generator.standard_normal(x.shape, dtype=x.dtype)
    with torch.cuda.stream(torch.cuda.ExternalStream(cupy.cuda.get_current_stream().ptr)):
        graphs = {"auto": replay, **{library: by_torch(a, b, library) for library in ("cublas", "cublaslt")}}
        times = {name: 1e3 * median(values) / IN_A_GRAPH for name, values in queued(graphs, ROUNDS, 1).items()}
    outside = 1e3 * median(queued({"auto": partial(multiply, c)}, ROUNDS, IN_A_GRAPH)["auto"])
    us = {name: round(time, 2) for name, time in (*times.items(), ("outside", outside))}
    ratio = min(times["cublas"], times["cublaslt"]) / times["auto"]
    return {"shape": shape, "dtype": dtype, "us": us, "ratio": round(ratio, 3), "exact": exact}


def tell(row: Row) -> None:
    """Print a line for a row."""
    print(row["dtype"], "x".join(map(str, row["shape"])), row["ratio"], row["us"], "" if row["exact"] else "WRONG", flush=True)


def summary(rows: list[Row]) -> str:
    """What the rows say together."""
    ratios = [row["ratio"] for row in rows] or [1.0]
    return f"{len(rows)} rows: geometric mean {geometric_mean(ratios):.3f}, below 0.95: {sum(x < 0.95 for x in ratios)}"


def main() -> None:
    """Measure until the time is over, then the squares."""
    parser = parser_of(__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60)
    chosen = parser.parse_args()
    need_gpu()
    need("torch")
    rows: list[Row] = []
    began = monotonic()
    with cupy.cuda.Stream(non_blocking=True):
        for shape, dtype in drawn(chosen.seed):
            if monotonic() - began > chosen.seconds:
                break
            try:
                rows.append(measured(shape, dtype))
            except BilinearError as error:
                print("refused", shape, dtype, str(error).splitlines()[0], flush=True)
        fresh = list(rows)
        for shape, dtype in SQUARES:
            rows.append(measured(shape, dtype))
            tell(rows[-1])
    for row in sorted(fresh, key=lambda row: row["ratio"])[:12]:
        tell(row)
    long = [row for row in fresh if max(row["us"].values()) > LEAST_US]
    print(f"fresh shapes: {summary(fresh)}; above {LEAST_US} us: {summary(long)}; all exact: {all(row['exact'] for row in rows)}")
    save("graphs", rows, chosen.json)


if __name__ == "__main__":
    main()
