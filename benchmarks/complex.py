"""Complex products beside CuPy, PyTorch, and cublasCgemm or cublasZgemm and their 3m variants: checked, timed in turns, with errors.

The ways: three real products by block levels on the units of the real type, and as digits: pairs of float16 for complex64, residues for
both types, and gaussian residues, two products modulo each p. Every way must be exact on small integers; digits must keep their certain
bound on sampled rows and columns of normal data, beside sums in complex128 (for complex64) or double-double, and an Inf must stay in its
row. A way that cannot be built is left out, and a line says why. Each way is one line of JSON.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from common import Call, cupy, need_gpu, queued, save
from residues import Row, exact_sums

import bilinear
from bilinear.ir.matrix import layout_of
from bilinear.measure.bench_library import complex_cublas
from bilinear.methods.digits.binding import digit_multiply_of
from bilinear.methods.digits.choice import Digits
from bilinear.methods.digits.launches import CutMultiply
from bilinear.planner.plan import Candidate

IN_A_ROW, SAMPLED = 1, 64
WINOGRAD = "winograd"
PRODUCTS = {"complex64": ("pairs", "gaussian7"), "complex128": ("gaussian15", "residues13", "residues14", "residues15")}
MOST_LEVELS = {"pairs": 2}
"""Levels below residues: one, for two have more blocks than a thread puts together."""
LIBRARIES = ("cupy", "torch", "gemm", "gemm3m")
SHARE = 0.6
"""The share of the free memory that all ways use as their workspace, one after another."""


def drawn(n: int, dtype: str, seed: int) -> Any:
    """Normal numbers in both parts."""
    generator, part = cupy.random.default_rng(seed), "float32" if dtype == "complex64" else "float64"
    x = cupy.empty((n, n), dtype)
    x.real, x.imag = (generator.standard_normal((n, n), dtype=part) for _ in "ri")
    return x


def by_torch(a: Any, b: Any, c: Any) -> Call:
    """`torch.mm` without TF32."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    x, y, z = (torch.from_dlpack(each) for each in (a, b, c))
    return lambda: torch.mm(x, y, out=z)


def by_digits(a: Any, b: Any, c: Any, digits: Digits) -> CutMultiply:
    """A product of digits, or why there is none."""
    multiply = digit_multiply_of(layout_of(a), layout_of(b), layout_of(c), digits)
    if multiply is None:
        raise RuntimeError("this device lacks the instructions")
    return multiply


def launch_ms(multiply: CutMultiply, a: Any, b: Any, c: Any, memory: Any, rounds: int) -> dict[str, float]:
    """The median milliseconds of each launch."""
    found = dict[str, float]()
    names = [launch.kernel.name for launch, _ in multiply.launches(True, cupy.cuda.Device().attributes["MultiProcessorCount"])]
    bases = [x.data.ptr for x in (a, b, c, memory)]
    with multiply.bound(True).ready(bases, 1.0, 0.0, cupy.cuda.get_current_stream().ptr) as calls:
        for name, call in zip(names, calls, strict=True):
            times = []
            for _ in range(rounds):
                begin, end = cupy.cuda.Event(), cupy.cuda.Event()
                begin.record()
                call()
                end.record()
                end.synchronize()
                times.append(cupy.cuda.get_elapsed_time(begin, end))
            found[f"{len(found)} {name}"] = round(median(times), 4)
    return found


def ways(
    a: Any, b: Any, c: Any, memory: Any, asked: argparse.Namespace
) -> tuple[dict[str, Call], dict[str, tuple[CutMultiply, Candidate]]]:
    """Every way that runs here by name; those of digits also by themselves."""
    dtype, own = str(a.dtype), dict[str, tuple[CutMultiply, Candidate]]()
    makers: dict[str, Callable[[], Call]] = {"cupy": lambda: partial(cupy.matmul, a, b, out=c), "torch": lambda: by_torch(a, b, c)}
    makers |= {name: partial(complex_cublas, name, a, b, c) for name in ("gemm", "gemm3m")}

    def by_schedule(levels: int) -> Call:
        name = WINOGRAD if levels else "classical"
        return partial(bilinear.matmul, a, b, c, algorithm=name, levels=max(1, levels), workspace=memory)

    def digits(name: str, tile: str, levels: tuple[str, ...]) -> Call:
        multiply = by_digits(a, b, c, Digits(levels, tile))
        if multiply.workspace * a.itemsize > memory.nbytes:
            raise MemoryError(f"{multiply.workspace * a.itemsize} bytes of workspace, and there are {memory.nbytes}")
        own[name] = multiply, Candidate(Digits(levels, tile))
        return partial(multiply, a.data.ptr, b.data.ptr, c.data.ptr, 1, 0, memory.data.ptr)

    makers |= {
        f"complex3, {levels} levels": partial(by_schedule, levels) for levels in range(0 if asked.no_schedules else asked.levels + 1)
    }
    for tile in (tile for tile in PRODUCTS[dtype] if tile in asked.products.split(",")):
        for levels in range(min(asked.levels, MOST_LEVELS.get(tile, 1)) + 1):
            name = f"{tile}, {levels} levels"
            makers[name] = partial(digits, name, tile, (WINOGRAD,) * levels)
    found = {}
    for name, make in makers.items():
        try:
            found[name] = make()
            found[name]()
            cupy.cuda.get_current_stream().synchronize()
        except Exception as error:  # of any library, or for want of memory
            found.pop(name, None)
            own.pop(name, None)
            print(f"left out: {dtype} {len(a)} {name}: {type(error).__name__}: {error}", flush=True)
        cupy.get_default_memory_pool().free_all_blocks()
    return found, own


def exact(a: Any, b: Any, sampled: Any) -> tuple[Any, Any]:
    """Sampled rows and columns of the product, as a high and a low part of complex128."""
    left, right = a[sampled].astype("complex128"), b[:, sampled].astype("complex128")
    if a.dtype == "complex64":
        return left @ right, 0
    x, y, z, w = left.real, left.imag, right.real, right.imag
    real = exact_sums(cupy.concatenate((x, -y), 1), cupy.concatenate((z, w)))
    imaginary = exact_sums(cupy.concatenate((x, y), 1), cupy.concatenate((w, z)))
    high, low = (re + 1j * im for re, im in zip(real, imaginary, strict=True))
    return high, low


def errors(c: Any, sampled: Any, wanted: tuple[Any, Any], size: float) -> tuple[float, float]:
    """Of some rows and columns: the error by norm, and the largest of a part over `size`, that of the largest parts of A and of B."""
    off = (c[sampled][:, sampled].astype("complex128") - wanted[0]) - wanted[1]
    largest = max(float(abs(part).max()) for part in (off.real, off.imag))
    return float(cupy.linalg.norm(off) / cupy.linalg.norm(wanted[0])), largest / size


def largest_part(x: Any) -> float:
    return max(float(abs(part).max()) for part in (x.real, x.imag))


def are_right(calls: dict[str, Call], own: dict[str, Any], a: Any, b: Any, c: Any) -> dict[str, bool]:
    """Which ways are exact on small integers, which stand in A and B afterwards; digits are also tried with an Inf."""
    generator, right = cupy.random.default_rng(5), {}
    for x in (a, b):
        x.real, x.imag = (generator.integers(-2, 3, x.shape).astype(x.real.dtype) for _ in "ri")
    wanted = cupy.matmul(a, b)
    for name, call in calls.items():
        c[...] = cupy.nan
        call()
        right[name] = bool((c == wanted).all())
    a[3, 5] = cupy.inf
    for name in own:
        calls[name]()
        right[name] = right[name] and bool((c[4:] == wanted[4:]).all() and not cupy.isfinite(c[3]).any())
    return right


def measure(n: int, dtype: str, asked: argparse.Namespace) -> list[Row]:
    """One size and type: a row for each way."""
    a, b, c = (drawn(n, dtype, seed) for seed in (1, 2, 3))
    memory = cupy.empty(int(SHARE * cupy.cuda.Device().mem_info[0]), "uint8")
    calls, own = ways(a, b, c, memory, asked)
    right = are_right(calls, own, a, b, c)
    for x, seed in ((a, 1), (b, 2)):
        x[...] = drawn(n, dtype, seed)
    sampled, size = cupy.linspace(0, n - 1, SAMPLED).astype(int), largest_part(a) * largest_part(b)
    wanted = exact(a, b, sampled)
    ms = {name: round(median(values), 4) for name, values in queued(calls, asked.rounds, IN_A_ROW).items()}
    library = min((ms[name] for name in LIBRARIES if name in ms), default=float("nan"))
    rows = []
    for name, call in calls.items():
        c[...] = cupy.nan
        call()
        norm, largest = errors(c, sampled, wanted, size)
        row: Row = {"n": n, "dtype": dtype, "way": name, "ms": ms[name], "ratio": round(library / ms[name], 3)}
        row |= {"norm": norm, "largest": largest, "right": right[name]}
        if name in own:
            multiply, candidate = own[name]
            bound = candidate.choice.bound(n, dtype)
            row |= {"bound": bound, "right": right[name] and largest <= bound}
            cupy.get_default_memory_pool().free_all_blocks()
            row["launches"] = launch_ms(multiply, a, b, c, memory, asked.rounds)
        rows.append(row)
        print(json.dumps(row), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="4096,8192,16384", help="comma-separated")
    parser.add_argument("--dtypes", default="complex64,complex128", help="comma-separated")
    parser.add_argument("--levels", type=int, default=2, help="the most block levels")
    parser.add_argument("--products", default="pairs,gaussian7,gaussian15,residues14", help="comma-separated")
    parser.add_argument("--no-schedules", action="store_true", help="leave out three real products by schedules")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    need_gpu()
    rows = []
    for n in map(int, asked.sizes.split(",")):
        for dtype in asked.dtypes.split(","):
            rows += measure(n, dtype, asked)
            cupy.get_default_memory_pool().free_all_blocks()
    save("complex", rows, asked.json)


if __name__ == "__main__":
    main()
