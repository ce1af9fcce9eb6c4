"""`reproducible="bitwise"` on random problems: the bytes of a GPU's results beside those of NumPy's arrays. `--times` times small products.

A case is a shape, a type, layouts and options, drawn from the seed and its number, with several problems of other numbers: 30 decades,
subnormal numbers, signed zeros, Inf, NaN. Some calls are captured in a CUDA graph, some lie on a second GPU if there is one, in PyTorch's
tensors if it is there (bfloat16 always), or in the host's memory with gpus=. The oracle multiplies the same numbers in plain arrays of the
host. Numbers are drawn without rounding, so that the digest of all results is the same on every machine that runs the same cases.
`--host` runs the cases in the host's memory instead.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from itertools import islice
from math import ceil
from multiprocessing import get_context
from statistics import median
from typing import Any

import numpy as np
from common import classical, cupy, interleaved, need_gpu, parser_of, save

import bilinear
from bilinear.errors import BilinearError

PROBLEMS, CASES, SHOWN, MORE = 8, 6, 40, 1.06
"""Problems of a case, cases that a process takes at once, differences that are told, and how many times as many problems are drawn."""
TYPES = "float64", "float64", "float32", "float32", "float16", "bfloat16", "complex64", "complex128"
PLACES = "array", "array", "array", "torch", "graph", "graph", "graph of torch", "gpus"
LAYOUTS = "rows", "columns", "padded", "apart", "backwards"
DECADES = 50  # Powers of two above and below 1 that make 30 decades.
SMALL = [(16,) * 3, (64,) * 3, (256,) * 3, (1, 4096, 4096), (16, 4096, 4096), (4096, 4096, 1), (4096, 16, 4096), (64, 4096, 64)]


@dataclass
class Case:
    """What is multiplied, where, and how; drawn in this order."""

    seed: int
    number: int
    host: bool
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = random = np.random.default_rng([self.seed, self.number])
        self.dtype = str(random.choice(TYPES))
        kind = random.random()
        if kind < 0.65:
            extents = random.integers(1, 65, 3)
        elif kind < 0.9:
            extents = random.permutation([random.integers(65, 301), *random.integers(1, 17, 2)])
        elif kind < 0.99:
            extents = random.integers(33, 129, 3)
        else:
            extents = random.integers(129, 301, 3)
        self.m, self.k, self.n = map(int, extents)
        batch = (int(random.integers(2, 4)),) if random.random() < 0.1 else ()
        self.batches = [batch, batch if random.random() < 0.5 else ()]
        if random.random() < 0.3 and self.k > 8:
            self.options["accuracy"] = str(random.choice(["classical", "twice"]))
        factors = [(1, 0), (0.3, 0), (-1.7, 1), (2.0**-20, 0.7)][random.integers(4)]
        if not self.dtype.startswith("complex"):
            self.options |= dict(zip(("alpha", "beta"), factors, strict=True))
        self.layouts = [str(x) for x in random.choice(LAYOUTS, 3)]
        self.place, self.second, room = str(random.choice(PLACES)), random.random() < 0.5, random.random()
        if room < 0.1 and self.place == "array":
            self.options["workspace"] = int(2 ** random.integers(14, 24))

    def drawn(self, shape: tuple[int, ...]) -> Any:
        """Numbers of one kind, both parts of complex ones; of bfloat16 as PyTorch's tensor."""
        real = {"complex64": "float32", "complex128": "float64", "bfloat16": "float32"}.get(self.dtype, self.dtype)
        parts = [self._real(shape, real) for _ in range(1 + self.dtype.startswith("complex"))]
        if self.dtype == "bfloat16":
            import torch

            return torch.from_numpy(parts[0]).bfloat16()
        x = np.empty(shape, self.dtype)
        x.real = parts[0]
        if len(parts) > 1:
            x.imag = parts[1]
        return x

    def _real(self, shape: tuple[int, ...], real: str) -> Any:
        random, info = self.random, np.finfo(real)
        x = np.ldexp(random.integers(-(2**53), 2**53, shape), -53)
        decades, lines = min(DECADES, info.maxexp // 2), (*shape[:-1], 1)
        kind = random.integers(7)
        if kind in (1, 5):
            x = np.ldexp(x, random.integers(-decades, decades + 1, shape))
        elif kind == 2:  # results are subnormal, or nearly
            x = np.ldexp(x, random.choice([info.minexp // 2 - 3, info.minexp // 2 - 20 * (decades // 40), info.minexp], lines))
        elif kind == 3:
            x = np.ldexp(x, random.choice([info.maxexp // 2, info.maxexp // 2 + 1, info.maxexp], lines))
        elif kind == 4:  # ties, and sums that cancel
            x = random.choice([0.0, -0.0, 1, -1, 1.5, 2.0**-53, -(2.0**-53), 2.0**-24, -(2.0**-34)], shape)
        if kind >= 5:
            x = np.where(random.random(shape) < 0.03, random.choice([np.inf, -np.inf, np.nan, 0.0, -0.0], shape), x)
        with np.errstate(all="ignore"):
            return (x * (random.random(lines) < 0.7) if kind == 6 else x).astype(real)


class Memory:
    """Arrays of NumPy or CuPy, or tensors of PyTorch, in some layout."""

    def __init__(self, case: Case) -> None:
        self.is_torch = case.dtype == "bfloat16" or (not case.host and "torch" in case.place)
        self.on_gpu, self.dtype = not case.host and case.place != "gpus", case.dtype
        if self.is_torch:
            import torch

            self.torch, self.on_gpu = torch, not case.host

    def zeros(self, *shape: int) -> Any:
        """Zeros, row by row."""
        if self.is_torch:
            return self.torch.zeros(shape, dtype=getattr(self.torch, self.dtype), device="cuda" if self.on_gpu else "cpu")
        return (cupy if self.on_gpu else np).zeros(shape, self.dtype)

    def laid(self, shape: tuple[int, ...], layout: str) -> Any:
        """A view of this shape; PyTorch has none that runs backwards."""
        *batch, m, n = shape
        if layout == "columns":
            return self.zeros(*batch, n, m).swapaxes(-1, -2)
        if layout == "apart":
            return self.zeros(*batch, 2 * m + 1, 3 * n + 2)[..., 1::2, 2::3]
        if layout == "backwards" and not self.is_torch:
            return self.zeros(*batch, m, n)[..., ::-1, ::-1]
        return self.zeros(*batch, m, n + 3)[..., :n] if layout == "padded" else self.zeros(*shape)

    def fill(self, view: Any, values: Any) -> None:
        """Put numbers there."""
        if self.is_torch:
            view.copy_(values if isinstance(values, self.torch.Tensor) else self.torch.from_numpy(values))
        else:
            view[...] = cupy.asarray(values) if self.on_gpu else values

    def captured(self, call: Any) -> Any:
        """What runs the graph of a call that has run before."""
        if self.is_torch:
            graph = self.torch.cuda.CUDAGraph()
            self.torch.cuda.synchronize()
            with self.torch.cuda.graph(graph):
                call()
            return graph.replay
        stream = cupy.cuda.Stream(non_blocking=True)
        cupy.cuda.Device().synchronize()
        with stream:
            stream.begin_capture()
            try:
                call()
            finally:
                graph = stream.end_capture()
        return partial(run_graph, graph, stream)


def run_graph(graph: Any, stream: Any) -> None:
    """Run a graph after all that was begun before."""
    cupy.cuda.Device().synchronize()
    graph.launch(stream)
    stream.synchronize()


def bytes_of(x: Any) -> bytes:
    """The elements of an array or a tensor, row by row."""
    if hasattr(x, "untyped_storage"):
        import torch

        x = (x.view(torch.int16) if x.dtype == torch.bfloat16 else x).cpu().numpy()
    return np.ascontiguousarray(x.get() if hasattr(x, "get") else x).tobytes()


@dataclass
class Found:
    """What some cases came to."""

    problems: int = 0
    products: int = 0
    seconds: float = 0.0
    digest: int = 0
    tallies: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    def add(self, other: Found) -> None:
        """Count these, too."""
        self.problems += other.problems
        self.products += other.products
        self.seconds += other.seconds
        self.digest = (self.digest + other.digest) % 2**64
        self.tallies.update(other.tallies)
        self.differences += other.differences


def checked(case: Case, found: Found) -> None:
    """Multiply the problems of a case, and compare."""
    gpus = 0 if case.host else cupy.cuda.runtime.getDeviceCount()
    if case.dtype == "bfloat16" and find_spec("torch") is None:
        return
    if case.place == "gpus" and (case.batches[0] or case.dtype in ("float16", "bfloat16")):
        case.place = "array"
    if "torch" in case.place and find_spec("torch") is None:
        case.place = "graph" if "graph" in case.place else "array"
    memory, call = Memory(case), partial(bilinear.matmul, reproducible="bitwise")
    shapes = [(*case.batches[0], case.m, case.k), (*case.batches[1], case.k, case.n), (*case.batches[0], case.m, case.n)]
    options = case.options | ({"gpus": "all" if case.second else 1, "memory": "1MiB"} if case.place == "gpus" and not case.host else {})
    runs, in_graph = None, "graph" in case.place and not case.host
    second = case.second and gpus > 1 and not memory.is_torch
    with cupy.cuda.Device(1) if second else nullcontext():
        a, b, out = (memory.laid(shape, layout) for shape, layout in zip(shapes, case.layouts, strict=True))
        for _ in range(PROBLEMS):
            x, y, old = map(case.drawn, shapes)
            plain = {name: value for name, value in case.options.items() if name != "workspace"}
            target = old.clone() if hasattr(old, "clone") else old.copy()
            wanted = bytes_of(call(x, y, target, **plain))
            found.digest += int.from_bytes(sha256(wanted).digest()[:8], "little")
            for view, values in ((a, x), (b, y), (out, old)):
                memory.fill(view, values)
            try:
                if runs is None:
                    runs = partial(call, a, b, out, **options)
                    if in_graph:
                        runs()
                        runs = memory.captured(runs)
                        memory.fill(out, old)
                runs()
            except BilinearError as error:  # as of a workspace that is too small
                found.tallies[f"refused {error.diagnostics[0].code}"] += 1
                continue
            found.problems += 1
            found.products += sum(case.batches[0]) or 1
            if bytes_of(out) != wanted:
                found.differences.append(
                    f"seed {case.seed}, case {case.number}: {case.dtype} {shapes} {case.layouts} {case.place} {options}"
                )
            found.tallies.update({case.dtype: 1, f"in {case.place}": 1, "on a second GPU": int(second)})


def some(seed: int, first: int, host: bool, until: float) -> Found:
    """Some cases, if there is time."""
    found, start = Found(), time.perf_counter()
    for number in range(first, first + CASES):
        if time.time() < until:
            case = Case(seed, number, host)
            try:
                checked(case, found)
            except Exception as error:  # is a finding, and the others are to run
                found.differences.append(f"seed {seed}, case {number}: {type(error).__name__}: {error}")
    found.seconds = time.perf_counter() - start
    return found


def tested(asked: Any) -> Found:
    """Cases of so many problems and a few more, for some are refused; or as many as there is time for, and then the digest is its own."""
    found, until, jobs = Found(), time.time() + asked.seconds, set[Future[Found]]()
    firsts = iter(range(0, ceil(asked.count * MORE / PROBLEMS), CASES))
    with ProcessPoolExecutor(asked.processes, get_context("spawn")) as pool:
        while True:
            for first in islice(firsts, 2 * asked.processes - len(jobs)):
                jobs.add(pool.submit(some, asked.seed, first, asked.host, until))
            if not jobs:
                return found
            done, jobs = wait(jobs, return_when=FIRST_COMPLETED)
            for job in done:
                found.add(job.result())


def timed(dtype: str, shape: tuple[int, int, int]) -> dict[str, Any]:
    """Milliseconds of a product with the same bits, and of the fastest library's, called over and over."""
    m, k, n = shape
    random = cupy.random.default_rng(1)
    a, b = (random.standard_normal(x, dtype="float32").astype(dtype) for x in ((m, k), (k, n)))
    c = cupy.empty((m, n), dtype)
    calls = classical(a, b, c) | {"bitwise": partial(bilinear.matmul, a, b, c, reproducible="bitwise")}
    ms = {name: median(times) for name, times in interleaved(calls, 5, 3).items()}
    own, (library, best) = ms.pop("bitwise"), min(ms.items(), key=lambda one: one[1])
    print(f"{dtype:8} {m:5} x {k:5} x {n:5}  bitwise {own:.4f} ms, {library} {best:.4f} ms: {own / best:.1f} times", flush=True)
    return {"dtype": dtype, "shape": shape, "bitwise_ms": own, "library": library, "library_ms": best}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--count", type=int, default=100_000, help="how many problems; the seed and this number decide the cases")
    parser.add_argument("--seconds", type=float, default=150, help="start no case after this time")
    parser.add_argument("--processes", type=int, default=15)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--host", action="store_true", help="multiply in the host's memory")
    parser.add_argument("--times", action="store_true", help="time small and thin products instead, which needs a GPU")
    asked = parser.parse_args()
    if not asked.host or asked.times:
        need_gpu()
    if asked.times:
        save("same-bits-small", [timed(dtype, shape) for dtype in ("float64", "float32", "float16") for shape in SMALL], asked.json)
        return
    start = time.perf_counter()
    found = tested(asked)
    row = {"problems": found.problems, "products": found.products, "differences": len(found.differences), "digest": f"{found.digest:016x}"}
    row |= {
        "found": found.differences[:SHOWN],
        "seconds": round(time.perf_counter() - start, 1),
        "seed": asked.seed,
        "processes": asked.processes,
        "host": asked.host,
    }
    print(*found.differences[:SHOWN], sep="\n")
    print(f"{row}, {found.seconds / max(1, found.problems) * 1e3:.1f} ms of a process each; {dict(found.tallies)}")
    save("same-bits", [row | {"tallies": dict(found.tallies)}], asked.json)
    sys.exit(bool(found.differences))


if __name__ == "__main__":
    main()
