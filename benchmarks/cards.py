"""What `auto` gains on the current GPU beside the fastest of cuBLAS, cublasLt, CuPy and PyTorch: each kind of call, checked, then timed.

Square products of float32, as `auto` runs them, with `accuracy="classical"`, and that without workspace; and of float64 with and without
workspace. Each has its error by norm on sampled rows and columns, beside sums in double-double. A call is timed after `--settle`
milliseconds of itself, so times are those under the power that long work has.

`--devices` names descriptions whose plans are compared in one run: shipped names, files of `bilinear tune`, or nothing for the usual one.
"""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import Any

from common import Call, classical, cupy, interleaved, need_gpu, parser_of, save
from residues import SAMPLED, exact_sums

import bilinear

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "float32, auto": ("float32", {}),
    "float32, classical": ("float32", {"accuracy": "classical"}),
    "float32, classical, no workspace": ("float32", {"accuracy": "classical", "workspace": "none"}),
    "float64, auto": ("float64", {}),
    "float64, no workspace": ("float64", {"workspace": "none"}),
}
Shape = tuple[int, int, int]
Row = dict[str, Any]


def planned(shape: Shape, dtype: str, devices: list[str]) -> dict[str, Row]:
    """The plans of one element type by kind and description."""
    found = {}
    for device in devices:
        for kind, (own, options) in KINDS.items():
            if own == dtype:
                plan = bilinear.plan(*shape, dtype, device=device or None, **options)
                name = f"{plan.chosen.name}, tile {plan.chosen.tile}"
                row = {"shape": shape, "kind": kind, "device": device, "plan": name, "predicted_ms": plan.chosen.ms}
                found[f"{kind} | {device}"] = row | {"call": options if not device else {"plan": plan}}
    return found


def measure(shape: Shape, dtype: str, rows: dict[str, Row], rounds: int, settle_ms: float) -> list[Row]:
    """The planned calls of one element type."""
    m, k, n = shape
    generator = cupy.random.default_rng(1)
    a, b = (generator.standard_normal(x, dtype=dtype) for x in ((m, k), (k, n)))
    c = cupy.empty((m, n), dtype)
    libraries = classical(a, b, c)
    calls: dict[str, Call] = libraries | {name: partial(bilinear.matmul, a, b, c, **row.pop("call")) for name, row in rows.items()}
    lines = [cupy.linspace(0, extent - 1, min(extent, SAMPLED)).astype(int) for extent in (m, n)]
    high, low = exact_sums(a[lines[0]].astype("float64"), b[:, lines[1]].astype("float64"))
    errors = {}
    for name, call in calls.items():
        c[...] = cupy.nan
        call()
        off = (c[lines[0]][:, lines[1]].astype("float64") - high) - low
        errors[name] = float(cupy.linalg.norm(off) / cupy.linalg.norm(high))
    ms = {name: median(values) for name, values in interleaved(calls, rounds, settle_ms=settle_ms).items()}
    library = min(libraries, key=lambda name: ms[name])
    for name, row in rows.items():
        row |= {"ms": ms[name], "library": library, "library_ms": ms[library], "gain": ms[library] / ms[name]}
        row |= {"error": errors[name], "library_error": errors[library]}
    return list(rows.values())


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--sizes", default="4096,8192,16384", help="comma-separated")
    parser.add_argument("--devices", default="", help="comma-separated; empty: the description that a fresh install uses")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--settle", type=float, default=300.0)
    asked = parser.parse_args()
    need_gpu()
    rows: list[Row] = []
    devices = asked.devices.split(",")
    for n in map(int, asked.sizes.split(",")):
        for dtype in ("float32", "float64"):
            shape = (n, n, n)
            found = measure(shape, dtype, planned(shape, dtype, devices), asked.rounds, asked.settle)
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
