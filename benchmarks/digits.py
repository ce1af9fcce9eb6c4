"""Products of float16 digits beside the fastest of cuBLAS, cublasLt, CuPy and PyTorch in float32: speed and errors, level by level.

Every way is checked on integers of 5 bits first, and its error is that of some rows and columns beside float64: by norm, and the largest of
an element relative to |A||B|, on normal data and on data that spans nine decades in every row.

`--architecture compute_80` builds the kernels by which chips without warpgroups multiply, and runs them here. Then `auto`, with rates
of warpgroups, is left out.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from common import Call, build_for, classical, cupy, need_gpu, queued, save
from residues import launch_ms

import bilinear
from bilinear.backends.target_here import target_here
from bilinear.ir.matrix import layout_of
from bilinear.methods.digits.binding import digit_multiply_of
from bilinear.methods.digits.choice import Digits
from bilinear.methods.digits.launches import CutMultiply
from bilinear.planner.portfolio import portfolio

ROUNDS, IN_A_ROW = 7, 2
SAMPLED = 256
DECADES = (0, 9)
Row = dict[str, Any]


def normal(n: int, decades: int, seed: int) -> Any:
    """Normal numbers, each times a power of ten of its own, from 10^(-decades/2) to 10^(decades/2)."""
    generator = cupy.random.default_rng(seed)
    x = generator.standard_normal((n, n), dtype="float32")
    if decades:
        x *= cupy.exp(cupy.log(cupy.float32(10)) * decades * (generator.random((n, n), dtype="float32") - cupy.float32(0.5)))
    return x


def errors(a: Any, b: Any, c: Any) -> tuple[float, float]:
    """The error by norm, and the largest of an element over |A||B|, of some rows and columns."""
    rows = cupy.linspace(0, c.shape[0] - 1, SAMPLED).astype(int)
    columns = cupy.linspace(0, c.shape[1] - 1, SAMPLED).astype(int)
    left, right = a[rows].astype("float64"), b[:, columns].astype("float64")
    off = c[rows][:, columns] - left @ right
    return float(cupy.linalg.norm(off) / cupy.linalg.norm(left @ right)), float((abs(off) / (abs(left) @ abs(right))).max())


def ways(a: Any, b: Any, c: Any) -> dict[str, Call]:
    """Products of digits below the levels of the portfolio, and what `auto` runs with each class of accuracy."""
    found: dict[str, Call] = {}
    for levels in portfolio().digits:
        multiply = digit_multiply_of(layout_of(a), layout_of(b), layout_of(c), Digits(levels, "pairs"))
        if multiply is not None:
            found[f"pairs {' '.join(levels)}".strip()] = partial(multiply, a.data.ptr, b.data.ptr, c.data.ptr, 1, 0)
    for accuracy in ("classical", "twice") if target_here().has_warpgroups else ():
        found[f"auto, {accuracy}"] = partial(bilinear.matmul, a, b, c, accuracy=accuracy)
    return found


def measure(n: int, decades: int) -> Row:
    """One size: each way checked, timed beside the libraries, and its errors."""
    c = cupy.empty((n, n), "float32")
    draw = cupy.random.default_rng(5)
    a, b = (draw.integers(-15, 16, (n, n)).astype("float32") for _ in "AB")
    wanted = cupy.matmul(a, b)  # exact: sums stay below 2^24
    own = ways(a, b, c)
    exact = {}
    for name, call in own.items():
        c[...] = cupy.nan
        call()
        exact[name] = bool((c == wanted).all())
    a[...], b[...] = normal(n, decades, 1), normal(n, decades, 2)
    calls: dict[str, Call] = {**classical(a, b, c), **own}
    ms = {name: round(median(values), 4) for name, values in queued(calls, ROUNDS, IN_A_ROW).items()}
    found = {}
    for name, call in calls.items():
        c[...] = cupy.nan
        call()
        found[name] = errors(a, b, c)
    launches = {
        k: launch_ms(call.func, a, b, c) for k, call in own.items() if isinstance(call, partial) and isinstance(call.func, CutMultiply)
    }
    library = min(value for name, value in ms.items() if name not in own)
    ratios = {name: round(library / ms[name], 3) for name in own}
    return {
        "n": n,
        "decades": decades,
        "ms": ms,
        "ratio": ratios,
        "errors": found,
        "exact": exact,
        "launches": launches,
        "architecture": str(target_here()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="2048,4096,8192,16384", help="comma-separated")
    parser.add_argument("--architecture", default="", help="what the kernels are built for, such as compute_80 (default: this GPU)")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    need_gpu()
    build_for(asked.architecture)
    rows = []
    for n in map(int, asked.sizes.split(",")):
        for decades in DECADES:
            row = measure(n, decades)
            rows.append(row)
            for name, ms in row["ms"].items():
                norm, element = row["errors"][name]
                wrong = "" if row["exact"].get(name, True) else "WRONG"
                ratio = f"x{row['ratio'][name]:.2f}" if name in row["ratio"] else ""
                print(f"{n:6} {decades} {name:28} {ms:9.3f} ms {ratio:6} {norm:.2e} {element:.2e} {wrong}", flush=True)
            for name, launches in row["launches"].items():
                print(f"       {name}: {', '.join(f'{launch} {ms:.3f}' for launch, ms in launches.items())}", flush=True)
            cupy.get_default_memory_pool().free_all_blocks()
    save("digits", rows, asked.json)


if __name__ == "__main__":
    main()
