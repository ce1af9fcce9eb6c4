"""Write the figures of speed in the README, docs/index.md and docs/results.md: python benchmarks/tables.py [--check]

They come from the committed results.
"""

from __future__ import annotations

import json
import math
import statistics
from typing import Any

from drawn import RESULTS, ROOT, filled, keep

RUNS = ("best",)
UNLIMITED, RESTORED, UNTOUCHED = ("preserve", None), ("restore", 0.0), ("preserve", 0.0)
LEAST_RATIO = 0.98
LEAST_US = 20.0
BYTES = {"float32": 4, "float64": 8}

NAMED_SHOWN = {(10**7, 8, 8), (10**7, 16, 16), (20480, 20480, 2), (20480, 20480, 16), (8, 10**7, 8), (16, 10**7, 16)}
"""The named thin products on the page; the results have more."""
LIBRARY = "library", "cublas", "cublaslt"  # The names of plans that are one call of the library.


def best(result: dict[str, Any]) -> str:
    """The best plans by size: the ratio to the library, and what ran."""
    rows = {(row["dtype"], row["n"], row["inputs"], row["budget"]): row for row in result["rows"]}
    sizes = dict.fromkeys((row["dtype"], row["n"]) for row in result["rows"])
    columns = {
        UNLIMITED: "memory unlimited",
        RESTORED: "nothing allocated, inputs restored",
        UNTOUCHED: "nothing allocated, inputs untouched",
    }
    if all(rows[*size, *RESTORED]["plan"] == rows[*size, *UNTOUCHED]["plan"] for size in sizes):
        columns = {UNLIMITED: "memory unlimited", UNTOUCHED: "nothing allocated"}
    lines = [
        f"Time of the library over that of the planner's plan, {_source(result)}; the library is the fastest of {_libraries(result)}",
        "",
        f"| dtype | N | library | {' | '.join(columns.values())} | exact, restored, within the bound |",
        "|---|--:|--:|" + "---|" * len(columns) + "---|",
    ]
    for dtype, n in sizes:
        found = [rows[dtype, n, *case] for case in columns]
        shown = " | ".join(f"{row['ratio']:.2f} ({row['plan']})" for row in found)
        lines.append(f"| {dtype} | {n} | {found[0]['library_ms']:.2f} ms | {shown} | {_held(found)} |")
    return "\n".join(lines)


def short(found: dict[str, Any], other: dict[str, Any], energy: dict[str, Any]) -> str:
    """The README's table: the ratios on both cards, one above the other, with unlimited workspace and with none; then joules."""
    sizes = (4096, 8192, 16384, 32768)
    one, two = (result["machine"]["gpu"].removeprefix("NVIDIA ").split()[0] for result in (found, other))
    own = {(row["dtype"], row["budget"], row["n"]): row for row in found["rows"] if row["inputs"] == "preserve"}
    beside = {(row["kind"], row["shape"][0]): row for row in other["rows"] if not row["device"]}
    lines = [f"| | {' | '.join(f'N={n}' for n in sizes)} |", "|---|--:|--:|--:|--:|"]
    for kind in ("float64", "float32", "float32, classical"):
        for memory, budget in (("", None), (", nothing allocated", 0.0)):
            named = f"{kind}, no workspace" if memory else kind if "," in kind else f"{kind}, auto"
            for card, rows in ((one, [own.get((kind, budget, n)) for n in sizes]), (two, [beside.get((named, n)) for n in sizes])):
                if any(rows):
                    lines.append(f"| {kind}{memory}, {card} | {' | '.join(map(_gained, rows))} |")
    rounds = sorted({len(row["times"]) for row in own.values()})
    asked = other["command"][other["command"].index("--rounds") + 1]
    return "\n".join(lines) + (
        f"\n\nMeasured times of predicted plans. {one}: medians (and intervals) of {rounds[0]} to {rounds[-1]} rounds,"
        f" {commits_of(found)}; {two}: {asked} rounds, {commits_of(other)}.\n"
        f"Energy at N=16384 on an {two}: "
        + ", ".join(f"{row['joules']:.0f} J for the library's {row['library_joules']:.0f} in {row['dtype']}" for row in energy["rows"])
        + f" ({commits_of(energy)})."
    )


def _gained(row: dict[str, Any] | None) -> str:
    """The ratio to the library with its interval, or that the library runs."""
    if row is None:
        return ""
    if row["plan"].split(",")[0] in LIBRARY:
        return "library"
    low, high = row.get("ratio_low"), row.get("ratio_high")
    return f"{row.get('ratio', row.get('gain')):.2f}" + (f" ({low:.2f}–{high:.2f})" if low else "")


def headline(results: list[dict[str, Any]]) -> str:
    """The highest ratios of each element type, with and without memory beyond A, B and C."""
    rows = [row for result in results for row in result["rows"]]

    def highest(inputs: str, budget: float | None) -> list[str]:
        cases = ((dtype, inputs, budget) for dtype in ("float64", "float32"))
        return [f"{max(row['ratio'] for row in rows if (row['dtype'], row['inputs'], row['budget']) == case):.2f}" for case in cases]

    most, least = highest("preserve", None), highest("restore", 0.0)
    return (
        f"On an H200 it is up to **{most[0]} times (float64) and {most[1]} times (float32)** as fast as the fastest library,\n"
        f"and up to {least[0]} and {least[1]} times with **no memory beyond A, B and C**."
    )


def pareto(result: dict[str, Any]) -> str:
    """What a budget of memory buys, for each size with several budgets."""
    budgets = {(row["dtype"], row["n"]) for row in result["rows"] if row["budget"] not in (None, 0.0)}
    lines = [
        f"The planner's plan within a budget of workspace, in N^2 elements, {_source(result)}",
        "",
        "| dtype | N | inputs | budget | plan | uses | predicted | measured | ratio | exact, restored, within the bound |",
        "|---|--:|---|--:|---|--:|--:|--:|--:|---|",
    ]
    for row in sorted(result["rows"], key=lambda r: (r["dtype"], r["n"], r["inputs"], math.inf if r["budget"] is None else r["budget"])):
        if (row["dtype"], row["n"]) not in budgets:
            continue
        budget = "unlimited" if row["budget"] is None else f"{row['budget']:g}"
        uses = (row["workspace"] or 0) / (row["n"] ** 2 * BYTES[row["dtype"]])
        times = f"{row['predicted_ms']:.1f} ms | {row['ms']:.1f} ms | {row['ratio']:.2f}"
        start = f"| {row['dtype']} | {row['n']} | {row['inputs']} | {budget} | {row['plan']} | {uses:.2f}"
        lines.append(f"{start} | {times} | {_held([row])} |")
    return "\n".join(lines)


def shapes(result: dict[str, Any], kind: str = "") -> str:
    """`auto` on all kinds of shapes: how the ratio is spread where the library was chosen, and where a plan was; and where it is slower."""
    rows = result["rows"]
    failed = [row for row in rows if row["ratio_high"] < LEAST_RATIO]
    cut = f" ({len(result['left_out'])} more were not reached)" if result["left_out"] else ""
    told = ", ".join(f"{'x'.join(map(str, row['shape']))} {row['dtype']} ({row['ratio']:.3f})" for row in failed)
    lines = [
        f"`matmul` with `auto` on {len(rows)} {kind}shapes of all kinds{cut}, 1 to 20000 a side, both types, {_source(result)}: "
        f"at {len(failed)} of them the whole [interval](benchmarking.md#the-grid) of its speed is below "
        f"{LEAST_RATIO:g} of the fastest of {_libraries(result)}{': ' + told if failed else ''}.",
        "",
        "| chosen | shapes | lowest ratio | median | highest | exact, restored, within the bound |",
        "|---|--:|--:|--:|--:|---|",
    ]
    chosen = ("the library", [r for r in rows if r["plan"] in LIBRARY]), ("a plan", [r for r in rows if r["plan"] not in LIBRARY])
    for name, own in ((name, own) for name, own in chosen if own):
        ratios = [row["ratio"] for row in own]
        lines.append(f"| {name} | {len(own)} | {min(ratios):.2f} | {statistics.median(ratios):.2f} | {max(ratios):.2f} | {_held(own)} |")
    return "\n".join(lines)


def thin(result: dict[str, Any]) -> str:
    """Thin products: named ones by the share of a copy's bandwidth, and how the ratio is spread over fresh ones."""
    named, fresh = [r for r in result["rows"] if r["name"]], [r for r in result["rows"] if not r["name"] and least_us(r) >= LEAST_US]
    ratios = sorted(row["ratio"] for row in fresh)
    slower = [row for row in fresh if row["ratio"] < LEAST_RATIO]
    lines = [
        f"Thin products ([thin.md](thin.md)) by `auto`, {_source(result)}, on the device alone: the share of a device copy's "
        "bandwidth, each operand counted once, of the fastest of cuBLAS, cublasLt, CuPy and PyTorch, and of `auto`. On "
        f"{len(fresh)} fresh thin shapes of more than {LEAST_US:g} microseconds the geometric mean of the ratio is "
        f"{math.prod(ratios) ** (1 / len(ratios)):.2f}, the median "
        f"{statistics.median(ratios):.2f}; {len(slower)} are below {LEAST_RATIO:g}"
        f"{', the lowest ' + format(ratios[0], '.2f') if slower else ''}.",
        "",
        "| product | m x k x n | dtype | library, by rows | `auto` | ratio | library, by columns | `auto` | ratio |",
        "|---|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    rates: dict[str, list[str]] = {}
    shown = [row for row in named if tuple(row["shape"]) in NAMED_SHOWN]
    for row in sorted(shown, key=lambda row: row["orders"] != "CCC"):
        if not row["exact"]:
            raise SystemExit(f"not exact: {row}")
        start = f"| {row['name']} | {'x'.join(map(str, row['shape']))} | {row['dtype']} | "
        rates.setdefault(start, []).append(f"{row['library_bandwidth']:.0%} | {row['bandwidth']:.0%} | {row['ratio']:.2f}")
    return "\n".join([*lines, *(f"{start}{' | '.join(both)} |" for start, both in rates.items())])


def least_us(row: dict[str, Any]) -> float:
    """Microseconds of the fastest library."""
    return float(min(us for name, us in row["us"].items() if name != "auto"))


def searched(results: list[dict[str, Any]], grids: list[dict[str, Any]]) -> str:
    """`auto` where `bilinear tune` had timed plans, beside what it was without in a run of a grid."""
    before = {(tuple(row["shape"]), row["dtype"]): f"{row['ratio']:.2f}" for grid in grids for row in grid["rows"]}
    rows = [row for result in results for row in result["rows"]]
    others = ["x".join(map(str, row["shape"])) for row in rows if (tuple(row["shape"]), row["dtype"]) not in before]
    lines = [
        "`matmul` with `auto` after `bilinear tune --shapes-file` had timed plans for what was below 0.98 in the two runs above"
        f"{', and for ' if others else ''}{' and '.join(others)}, {_source(results[0])}. "
        "At the other shapes nothing faster than a library was found:",
        "",
        "| shape | dtype | before | what runs | ratio | exact, restored, within the bound |",
        "|---|---|--:|---|--:|---|",
    ]
    for row in (row for row in rows if row["plan"] not in LIBRARY):
        shape = "x".join(map(str, row["shape"]))
        was = before.get((tuple(row["shape"]), row["dtype"]), "-")
        lines.append(f"| {shape} | {row['dtype']} | {was} | {row['plan']} | {row['ratio']:.2f} | {_held([row])} |")
    return "\n".join(lines)


def card(result: dict[str, Any]) -> str:
    """What one card gains by the description that is shipped for it: the ratio by kind of call and size."""
    rows = {(row["kind"], row["shape"][0]): row for row in result["rows"] if not row["device"]}
    sizes = sorted({n for _, n in rows})
    lines = [
        f"The same on an {result['machine']['gpu']}, as installed ({commits_of(result)}, times of one run, plans predicted):",
        "",
        f"| | {' | '.join(map(str, sizes))} |",
        f"|---|{'--:|' * len(sizes)}",
    ]
    for kind in dict.fromkeys(kind for kind, _ in rows):
        lines.append(f"| {kind} | {' | '.join(format(rows[kind, n]['gain'], '.2f') for n in sizes)} |")
    return "\n".join(lines)


def _source(result: dict[str, Any]) -> str:
    return f"{result['machine']['gpu']}, {commits_of(result)}"


def commits_of(result: dict[str, Any]) -> str:
    """The commits that were measured: a row of another run than the file's has its own."""
    commits = sorted({row.get("commit", result["machine"]["commit"]) for row in result["rows"]})
    return f"commit{'s' if len(commits) > 1 else ''} {', '.join(commits)}"


def _libraries(result: dict[str, Any]) -> str:
    return ", ".join(sorted(result["rows"][0]["libraries"]))


def _held(rows: list[dict[str, Any]]) -> str:
    return "yes" if all(row["exact"] and row["restored"] and row["error"] <= row["bound"] for row in rows) else "NO"


def main() -> None:
    names = *RUNS, "best-budgets", "grid", "grid-fresh", "thin-auto", "searched-float32", "searched-float64"
    found, budgets, many, fresh, narrow, *timed = (json.loads((RESULTS / f"{name}-h200.json").read_text()) for name in names)
    grids = shapes(many), shapes(fresh, "other "), searched(timed, [many, fresh])
    readme, home, page = (ROOT / name for name in ("README.md", "docs/index.md", "docs/results.md"))
    other, energy = (json.loads((RESULTS / f"{name}-h100.json").read_text()) for name in ("cards", "energy"))
    tables = "\n\n".join((best(found), card(other), *grids, thin(narrow), pareto(budgets)))
    texts = {
        readme: filled(readme.read_text(), headline=headline([found]), speed=short(found, other, energy)),
        home: filled(home.read_text(), headline=headline([found])),
        page: filled(page.read_text(), speed=tables),
    }
    keep(texts)


if __name__ == "__main__":
    main()
