"""What `auto` gains on the current GPU beside the fastest of cuBLAS, cublasLt, CuPy and PyTorch: each kind of call, checked, then timed.

Square products of float32, as `auto` runs them, with `accuracy="classical"`, and that without workspace; and of float64 with and without
workspace. Each has its error by norm on sampled rows and columns, beside sums in double-double. A call is timed after `--settle`
milliseconds of itself, so times are those under the power that long work has.

`--devices` names descriptions whose plans are compared in one run: shipped names, files of `bilinear tune`, or nothing for the usual one.
`--drawn SEED` takes shapes of all kinds instead, and times only where two descriptions choose different plans.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from math import exp, log
from pathlib import Path
from random import Random
from statistics import fmean, median
from time import perf_counter
from typing import Any

from common import Call, classical, cupy, interleaved, need_gpu, save
from residues import SAMPLED, exact_sums

import bilinear
from bilinear.measure.bench_tasks import AUTO, Task, build_ahead
from bilinear.planner.device_files import load_device

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


def drawn(seed: int, count: int) -> list[Shape]:
    """Shapes whose sides are log-uniform."""
    draw = Random(seed)
    return [tuple(round(exp(draw.uniform(log(16), log(16384)))) for _ in "mkn") for _ in range(count)]  # type: ignore[misc]


def compare(shapes: list[Shape], devices: list[str], asked: argparse.Namespace) -> list[Row]:
    """What the first description's plans take in units of the second's, at shapes where they differ."""
    first, second = devices
    found, ratios, same, begun = [], [], 0, perf_counter()
    differing: list[tuple[Shape, str, dict[str, Row]]] = []
    for shape in shapes:
        for dtype in ("float32", "float64"):
            rows = planned(shape, dtype, devices)
            kinds = [kind for kind, (own, _) in KINDS.items() if own == dtype]
            apart = [kind for kind in kinds if rows[f"{kind} | {first}"]["plan"] != rows[f"{kind} | {second}"]["plan"]]
            same += len(kinds) - len(apart)
            if apart:
                differing.append((shape, dtype, {name: row for name, row in rows.items() if row["kind"] in apart}))
    print(f"{same} plans are the same, {sum(len(rows) // 2 for *_, rows in differing)} differ", flush=True)
    cases = [(shape, dtype, replace(AUTO, accuracy=accuracy)) for shape, dtype, _ in differing for accuracy in (None, "classical")]
    for device in devices:
        build_ahead(tuple(Task(shape, dtype, (case,)) for shape, dtype, case in cases), load_device(device))
    for shape, dtype, rows in differing:
        if perf_counter() - begun > asked.seconds:
            break
        for row in measure(shape, dtype, rows, asked.rounds, asked.settle):
            found.append(row)
            if row["device"] == second:
                (other,) = (x for x in found if (x["shape"], x["kind"], x["device"]) == (shape, row["kind"], first))
                ratios.append(log(other["ms"] / row["ms"]))
                times = f"{other['ms']:.4f} {row['ms']:.4f} library {row['library_ms']:.4f}"
                print(
                    f"{'x'.join(map(str, shape)):18} {row['kind']:33} {exp(ratios[-1]):.3f} {times}: {other['plan']} / {row['plan']}",
                    flush=True,
                )
    if ratios:
        print(f"{len(ratios)} timed: {exp(fmean(ratios)):.4f} in the geometric mean, at most {exp(max(ratios)):.3f}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="4096,8192,16384", help="comma-separated")
    parser.add_argument("--drawn", type=int, metavar="SEED", help="shapes of all kinds, for two descriptions")
    parser.add_argument("--count", type=int, default=60, help="how many of them")
    parser.add_argument("--seconds", type=float, default=120.0, help="begin with none of them after so long")
    parser.add_argument("--devices", default="", help="comma-separated; empty: the description that a fresh install uses")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--settle", type=float, default=300.0)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    need_gpu()
    rows: list[Row] = []
    devices = asked.devices.split(",")
    if asked.drawn is not None:
        rows = compare(drawn(asked.drawn, asked.count), devices, asked)
    for n in map(int, asked.sizes.split(",")) if asked.drawn is None else ():
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
