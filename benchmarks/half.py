"""float16 and bfloat16 by named schemes beside the library's multiply: checked first, then timed in shuffled rounds, with errors by norm.

Integers so small that every sum is exact in the type must come out bit for bit as the library's product of the same integers in float32;
the errors are those of some rows of normal data beside float64. PyTorch is the library, because CuPy has no bfloat16.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from common import Call, interleaved, median, need_gpu, save

import bilinear

SAMPLED = 64
"""Rows that are compared."""
WAYS = (("winograd", 1), ("winograd", 2), ("strassen", 1))
Row = dict[str, Any]


def is_exact(call: Call, a: Any, b: Any, c: Any, torch: Any) -> bool:
    """Whether products of zeros and few ones are those of float32: at most 2^8 in size, sums of blocks, too."""
    for x in (a, b):
        x.copy_(torch.rand(x.shape, device=x.device) < (4 / a.shape[1]) ** 0.5)
    c.fill_(float("nan"))
    call()
    rows = torch.linspace(0, len(c) - 1, SAMPLED, device=a.device).long()
    wanted = a[rows].float() @ b.float()
    return float(wanted.max()) <= 64 and bool((c[rows].float() == wanted).all())


def error(call: Call, a: Any, b: Any, c: Any, torch: Any) -> float:
    """The error by norm on normal data, beside float64."""
    call()
    rows = torch.linspace(0, len(c) - 1, SAMPLED, device=a.device).long()
    wanted = a[rows].double() @ b.double()
    return float((c[rows].double() - wanted).norm() / wanted.norm())


def measure(n: int, dtype: str, repeats: int) -> Row:
    """One size and type."""
    import torch

    generator = torch.Generator(device="cuda").manual_seed(n)
    a, b, c = (torch.empty((n, n), dtype=getattr(torch, dtype), device="cuda") for _ in range(3))
    calls: dict[str, Call] = {"library": partial(torch.mm, a, b, out=c)}
    calls |= {f"{name} {levels}": partial(bilinear.matmul, a, b, c, algorithm=name, levels=levels) for name, levels in WAYS}
    exact = {name: is_exact(call, a, b, c, torch) for name, call in calls.items()}
    for x in (a, b):
        x.normal_(generator=generator)
    errors = {name: error(call, a, b, c, torch) for name, call in calls.items()}
    ms = {name: median(values) for name, values in interleaved(calls, repeats).items()}
    return {
        "n": n,
        "dtype": dtype,
        "exact": exact,
        "error": errors,
        "bound": {name: bilinear.plan(n, n, n, dtype, device="h200", levels=(way,) * levels).chosen.error for name, way, levels in named()},
        "ms": ms,
        "ratio": {name: ms["library"] / ms[name] for name in calls},
    }


def named() -> list[tuple[str, str, int]]:
    """The ways, each with its name in the results."""
    return [(f"{way} {levels}", way, levels) for way, levels in WAYS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="8192,16384,32768", help="comma-separated")
    parser.add_argument("--dtypes", default="bfloat16,float16", help="comma-separated")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    need_gpu()
    rows = []
    for dtype in options.dtypes.split(","):
        for size in map(int, options.sizes.split(",")):
            row = measure(size, dtype, options.repeats)
            rows.append(row)
            for name in row["ms"]:
                figures = f"{row['ms'][name]:9.3f} ms {row['ratio'][name]:6.3f} x  error {row['error'][name]:.2e}"
                print(f"{size:>6} {dtype:>9} {name:>12} {figures}  {'exact' if row['exact'][name] else 'WRONG'}", flush=True)
    save("half", rows, options.json)
    if not all(all(row["exact"].values()) for row in rows):
        raise SystemExit("a result is wrong")


if __name__ == "__main__":
    main()
