"""Products under an accuracy and budgets of workspace beside the libraries: checked, timed, and their errors beside the libraries' own.

A case is N:dtype:accuracy:budgets. Budgets are joined by `/`, and timed in the same rounds: `any`, `none`, or a number of N^2 elements.
Every multiply is first checked on integers of 5 bits into NaN, some rows against the library's. Times are medians of shuffled rounds on
the device; at `LARGEST` and above cuBLAS is timed alone, once, and the data is normal only. Errors are those of some rows and columns
beside sums in double-double: by norm, and the largest of an element over |A| |B|, on normal data and on data of nine decades.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from common import Call, classical, cupy, need_gpu, queued, save
from residues import exact_sums

import bilinear
from bilinear.measure.timing import milliseconds

CASES = "32768:float32:classical:any/none,32768:float64:twice:any/1,65536:float64:twice:any"
LARGEST = 65536
SAMPLED, PANEL = 64, 4096
DECADES = (0, 9)
Row = dict[str, Any]


def fill(x: Any, seed: int, decades: int | None) -> None:
    """Normal numbers in place, each times a power of ten of its own, or integers of 5 bits (None); panel by panel, for memory is short."""
    draw = cupy.random.default_rng(seed)
    for begin in range(0, len(x), PANEL):
        panel = x[begin : begin + PANEL]
        if decades is None:
            panel[...] = draw.integers(-15, 16, panel.shape, dtype="int8")
            continue
        panel[...] = draw.standard_normal(panel.shape, dtype=x.dtype)
        if decades:
            panel *= 10 ** (decades * (draw.random(panel.shape, dtype=x.dtype) - x.dtype.type(0.5)))


def errors(c: Any, a: Any, b: Any, sampled: Any, exact: tuple[Any, Any]) -> tuple[float, float]:
    """By norm, and the largest of an element over |A| |B|."""
    off = (c[sampled][:, sampled].astype("float64") - exact[0]) - exact[1]
    size = abs(a[sampled].astype("float64")) @ abs(b[:, sampled].astype("float64"))
    return float(cupy.linalg.norm(off) / cupy.linalg.norm(exact[0])), float((abs(off) / size).max())


def is_exact(call: Call, a: Any, b: Any, c: Any, sampled: Any) -> bool:
    """Whether sampled rows are right on integers; these sums are exact in every type."""
    for seed, x in enumerate((a, b)):
        fill(x, seed, None)
    c[...] = cupy.nan
    call()
    return bool((c[sampled] == cupy.matmul(a[sampled], b)).all() and not cupy.isnan(c[:: len(c) // SAMPLED]).any())


def planned(n: int, dtype: str, accuracy: str, budget: str) -> tuple[dict[str, Any], Any]:
    """The options of a call within a budget, and the candidate that it runs."""
    named: dict[str, Any] = {"any": None, "none": 0}
    workspace = named[budget] if budget in named else int(float(budget) * n * n * cupy.dtype(dtype).itemsize)
    plan = bilinear.plan(n, n, n, dtype, accuracy=accuracy, workspace=workspace)
    given: dict[str, Any] = {} if budget == "any" else {"workspace": "none" if budget == "none" else workspace}
    return {"accuracy": accuracy} | given, plan.chosen


def measure(n: int, dtype: str, accuracy: str, budgets: list[str], repeats: int) -> list[Row]:
    """One case: a row for each budget."""
    a, b, c = (cupy.empty((n, n), dtype) for _ in "abc")
    found = {budget: planned(n, dtype, accuracy, budget) for budget in budgets}
    own: dict[str, Call] = {budget: partial(bilinear.matmul, a, b, c, **options) for budget, (options, _) in found.items()}
    sampled = cupy.linspace(0, n - 1, SAMPLED).astype(int)
    exact = {budget: is_exact(call, a, b, c, sampled) for budget, call in own.items()}
    cupy.get_default_memory_pool().free_all_blocks()
    is_timed, by_library = n < LARGEST, partial(bilinear.matmul, a, b, c, algorithm="classical")
    calls: dict[str, Call] = classical(a, b, c) if is_timed else {"cublas": by_library}
    off: dict[str, dict[str, tuple[float, float]]] = {name: {} for name in (*own, "cublas")}
    once: dict[str, float] = {}
    for decades in reversed(DECADES if is_timed else DECADES[:1]):
        for seed, x in enumerate((a, b)):
            fill(x, seed, decades)
        sums = exact_sums(a[sampled].astype("float64"), b[:, sampled].astype("float64"))
        for name, call in {**calls, **own}.items():
            if name in off:
                c[...] = cupy.nan
                once[name] = milliseconds(call)
                off[name][f"{decades} decades"] = errors(c, a, b, sampled, sums)
        cupy.get_default_memory_pool().free_all_blocks()
    timed: dict[str, Call] = {**calls, **own} if is_timed else own
    ms = {name: round(median(values), 4) for name, values in queued(timed, repeats, 1).items()}
    ms |= {} if is_timed else {"cublas": round(once["cublas"], 4)}
    libraries = {name: value for name, value in ms.items() if name not in own}
    return [
        {
            "n": n,
            "dtype": dtype,
            "accuracy": accuracy,
            "budget": budget,
            "plan": chosen.name,
            "workspace": chosen.workspace,
            "predicted_ms": chosen.ms,
            "ms": libraries | {"own": ms[budget]},
            "TFLOP/s": round(2e-9 * n**3 / ms[budget], 1),
            "ratio": round(min(libraries.values()) / ms[budget], 3),
            "exact": exact[budget],
            "errors": {data: {"cublas": off["cublas"][data], "own": off[budget][data]} for data in off[budget]},
        }
        for budget, (_, chosen) in found.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=CASES, help="comma-separated N:dtype:accuracy:budgets")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    need_gpu()
    rows: list[Row] = []
    for case in asked.cases.split(","):
        n, dtype, accuracy, budgets = case.split(":")
        found = measure(int(n), dtype, accuracy, budgets.split("/"), asked.repeats)
        for row in found:
            print(*(f"{key} {value}" for key, value in row.items()), sep="  ", flush=True)
        rows += found
        cupy.get_default_memory_pool().free_all_blocks()
        save("budgets", rows, asked.json)
    if not all(row["exact"] for row in rows):
        raise SystemExit("a result is wrong")


if __name__ == "__main__":
    main()
