"""The planner's plans on a GPU beside the library: the best within a memory budget, predicted and measured.

For every size and element type: the best plan with unlimited memory, the best that allocates nothing and restores its inputs, and the best
that allocates nothing and never writes them; with `--pareto`, budgets of 0.25, 1 and 4 N^2 elements as well. In the same run every plan is
checked: integer matrices must come out bit for bit (the library's sums are exact in this range), in an output full of NaN, with A and B as
they were; on normal data the error must be within the bound of the plan. Times are interleaved medians.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import cupy
from common import classical, gpu_state, interleaved, median, save

import bilinear
from bilinear.planner.choice import Choice

CASES = (("preserve", None), ("restore", 0.0), ("preserve", 0.0))
PARETO = (*((inputs, share) for inputs in ("preserve", "restore") for share in (0.25, 1.0, 4.0)), ("restore", None))


def plan_for(n: int, dtype: str, inputs: str, share: float | None) -> Choice:
    """The plan for n x n matrices with a budget of `share` n^2 elements (None: what the device has)."""
    itemsize = {"float32": 4, "float64": 8}[dtype]
    budget = None if share is None else int(share * n * n * itemsize)
    return bilinear.plan(n, n, n, dtype, device="h200", inputs=inputs, workspace=budget, explain=True)


def trust(n: int, dtype: str, choice: Choice) -> dict[str, Any]:
    """Whether a plan is exact on integers and restores, and its error on normal data, relative to max|A| max|B|."""
    generator = cupy.random.default_rng(7)
    a, b = (generator.integers(-2, 3, (n, n), dtype="int8").astype(dtype) for _ in range(2))
    wanted = cupy.matmul(a, b)
    kept = a.astype("int8"), b.astype("int8")
    c = cupy.full((n, n), cupy.nan, dtype)
    bilinear.matmul(a, b, c, plan=choice)
    facts: dict[str, Any] = {"exact": bool((c == wanted).all()), "restored": bool((a == kept[0]).all() and (b == kept[1]).all())}
    del wanted, kept
    a[...], b[...] = (generator.standard_normal((n, n), dtype=dtype) for _ in range(2))
    rows = cupy.arange(0, n, max(1, n // 64))
    reference = cupy.matmul(a[rows].astype("float64"), b.astype("float64"))
    largest = float(abs(a).max() * abs(b).max())
    bilinear.matmul(a, b, c, plan=choice)
    facts["error"] = float(abs(c[rows] - reference).max()) / largest
    return facts


def measure(n: int, dtype: str, cases: tuple[tuple[str, float | None], ...], repeats: int) -> list[dict[str, Any]]:
    """One size and element type: every distinct plan checked, then all of them timed in turn with the library."""
    cupy.get_default_memory_pool().free_all_blocks()
    choices = {case: plan_for(n, dtype, *case) for case in cases}
    distinct = {(choice.chosen.levels, choice.chosen.inputs): choice for choice in choices.values()}
    checks = {key: trust(n, dtype, choice) for key, choice in distinct.items()}
    generator = cupy.random.default_rng(8)
    a, b = (generator.standard_normal((n, n), dtype=dtype) for _ in range(2))
    c = cupy.empty((n, n), dtype)
    calls: dict[Any, Any] = dict(classical(a, b, c))
    calls |= {key: partial(bilinear.matmul, a, b, c, plan=choice) for key, choice in distinct.items()}
    times: dict[Any, float] = {key: median(values) for key, values in interleaved(calls, repeats).items()}
    library = min(times[name] for name in ("cupy", "torch") if name in times)
    rows = []
    for (inputs, share), choice in choices.items():
        chosen, key = choice.chosen, (choice.chosen.levels, choice.chosen.inputs)
        rows.append(
            {
                "n": n,
                "dtype": dtype,
                "inputs": inputs,
                "budget": share,
                "levels": chosen.levels,
                "plan": chosen.name,
                "strategy": chosen.strategy,
            }
            | {
                "workspace": chosen.workspace,
                "predicted_ms": chosen.ms,
                "ms": times[key],
                "library_ms": library,
                "ratio": library / times[key],
            }
            | {"bound": chosen.error, **checks[key], **gpu_state()}
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="2048,4096,8192,16384,32768")
    parser.add_argument("--dtypes", default="float64,float32")
    parser.add_argument("--pareto", default="16384:float64", help="sizes and element types with more budgets, as N:dtype, comma-separated")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    more = options.pareto.split(",")
    rows: list[dict[str, Any]] = []
    head = (
        f"{'n':>6} {'dtype':>8} {'inputs':>9} {'budget':>7}  {'plan':<42} {'N^2':>6} {'predicted':>9} {'ms':>9} {'library':>9} {'ratio':>6}"
    )
    print(f"{head}  exact restored    error    bound")
    for dtype in options.dtypes.split(","):
        for n in map(int, options.sizes.split(",")):
            repeats = max(3, min(options.repeats, round(options.repeats * (16384 / n) ** 2)))
            found = measure(n, dtype, CASES + PARETO if f"{n}:{dtype}" in more else CASES, repeats)
            for r in found:
                space = (r["workspace"] or 0) / (n * n * {"float32": 4, "float64": 8}[dtype])
                budget = "-" if r["budget"] is None else f"{r['budget']:g}"
                print(
                    f"{n:>6} {dtype:>8} {r['inputs']:>9} {budget:>7}  {r['plan']:<42} {space:6.3f} {r['predicted_ms']:9.3f} {r['ms']:9.3f} "
                    f"{r['library_ms']:9.3f} {r['ratio']:6.3f}  {r['exact']!s:>5} {r['restored']!s:>8} {r['error']:8.1e} {r['bound']:8.1e}",
                    flush=True,
                )
            rows += found
    save("best", rows, options.json)


if __name__ == "__main__":
    main()
