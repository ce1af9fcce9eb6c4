"""What `auto` gains on the current GPU beside the fastest of cuBLAS, cublasLt, CuPy and PyTorch: each kind of call, checked, then timed.

Square products of float32, as `auto` runs them, with `accuracy="classical"`, and that without workspace; and of float64 with and without
workspace. Every call is checked: its error by norm on sampled rows and columns beside sums in float64, or in double-double for float64.
Times are those under the power that long work has: a call is timed after `--settle` milliseconds of itself.
`--devices` names descriptions whose plans are compared in one run: shipped names, files of `bilinear tune`, or nothing for the usual one.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from common import Call, classical, cupy, interleaved, need_gpu, save
from residues import SAMPLED, drawn, exact_sums

import bilinear

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "float32, auto": ("float32", {}),
    "float32, classical": ("float32", {"accuracy": "classical"}),
    "float32, classical, no workspace": ("float32", {"accuracy": "classical", "workspace": "none"}),
    "float64, auto": ("float64", {}),
    "float64, no workspace": ("float64", {"workspace": "none"}),
}
Row = dict[str, Any]


def error(a: Any, b: Any, c: Any, rows: Any, columns: Any) -> float:
    """The error by norm of some rows and columns."""
    high, low = exact_sums(a[rows].astype("float64"), b[:, columns].astype("float64"))
    off = (c[rows][:, columns].astype("float64") - high) - low
    return float(cupy.linalg.norm(off) / cupy.linalg.norm(high))


def measure(n: int, dtype: str, devices: list[str], rounds: int, settle_ms: float) -> list[Row]:
    """The kinds of calls of one element type at one size, on every description."""
    a, b, c = drawn(n, dtype, 0, 1), drawn(n, dtype, 0, 2), cupy.empty((n, n), dtype)
    libraries = classical(a, b, c)
    calls: dict[str, Call] = dict(libraries)
    rows: dict[str, Row] = {}
    for device in devices:
        for kind, (own, options) in KINDS.items():
            if own == dtype:
                plan = bilinear.plan(n, n, n, dtype, device=device or None, **options)
                name = f"{kind} | {device}"
                calls[name] = partial(bilinear.matmul, a, b, c, **(options if not device else {"plan": plan}))
                rows[name] = {"n": n, "kind": kind, "device": device, "plan": plan.chosen.name, "predicted_ms": plan.chosen.ms}
    at = cupy.linspace(0, n - 1, SAMPLED).astype(int)
    errors = {}
    for name, call in calls.items():
        c[...] = cupy.nan
        call()
        errors[name] = error(a, b, c, at, at)
    ms = {name: median(values) for name, values in interleaved(calls, rounds, settle_ms=settle_ms).items()}
    library = min(libraries, key=lambda name: ms[name])
    for name, row in rows.items():
        row |= {"ms": ms[name], "library": library, "library_ms": ms[library], "gain": ms[library] / ms[name]}
        row |= {"error": errors[name], "library_error": errors[library]}
    return list(rows.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="4096,8192,16384", help="comma-separated")
    parser.add_argument("--devices", default="", help="comma-separated; empty: the description that a fresh install uses")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--settle", type=float, default=300.0)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    need_gpu()
    rows: list[Row] = []
    for n in map(int, asked.sizes.split(",")):
        for dtype in ("float32", "float64"):
            found = measure(n, dtype, asked.devices.split(","), asked.rounds, asked.settle)
            cupy.get_default_memory_pool().free_all_blocks()
            rows += found
            for row in found:
                predicted = "-" if row["predicted_ms"] is None else f"{row['predicted_ms']:.3f}"
                words = f"{row['kind']:34} {row['device'][-12:]:12} x{row['gain']:.2f} {row['ms']:9.3f} ms, predicted {predicted}"
                print(
                    f"{n:6} {words}, library {row['library_ms']:.3f}, error {row['error']:.1e}, {row['library_error']:.1e}: {row['plan']}",
                    flush=True,
                )
    save("cards", rows, asked.json)


if __name__ == "__main__":
    main()
