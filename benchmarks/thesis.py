"""Write the figures of docs/msmes.md from committed results: python benchmarks/thesis.py [--check]

From the points of the performance model: where the time of MSMES goes by stage, beside table 3.2 of Krishnan (2021), and what its levels
gain, as in figures 3.7 and 3.8. From `msmes_single.py`: from which size on a level is ahead, and what unified memory costs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from drawn import RESULTS, ROOT, filled, keep

PAGE = ROOT / "docs" / "msmes.md"
MODEL, SINGLE = RESULTS / "model-all-h200.json", RESULTS / "msmes-single-h200.json"
LIBRARIES = ("cublas", "cublaslt", "cupy", "torch")
STAGES = ("sums before", "4 products", "sums between", "3 products", "sums after")
LAUNCHES = (slice(0, 1), slice(1, 3), slice(3, 4), slice(4, 6), slice(6, 7))
"""The launches of one level: a map, two colours of products, a map, two colours, a map."""
THESIS = (0.5, 56.3, 0.5 + 0.26, 41.7, 0.26 + 0.5)
"""Table 3.2, averages over N of stages 1; 2; 3 and 4; 5; 6 and 7, in percent, on a V100."""
SIZES = (2048, 4096, 8192, 16384)
SHOWN = (1024, 2048, 4096, 6144, 8192, 12288, 16384)
"""The sizes of the rows on the page; the results have more."""
LEVELS = (1, 2, 3)
Times = dict[tuple[str, int, int], dict[str, Any]]
"""The fastest row by element type, size and levels; the library is at no level."""


def fastest(rows: list[dict[str, Any]]) -> Times:
    found: Times = {}
    for row in rows:
        if len(set(row["shape"])) == 1 and set(row["levels"]) <= {"msmes"}:
            key = row["dtype"], row["shape"][0], len(row["levels"])
            found[key] = min(row, found.get(key, row), key=lambda r: float(r["ms"]))
    return found


def shares(times: Times) -> Iterator[str]:
    """Percent of the launches' time by stage, one level."""
    yield f"| | N | {' | '.join(STAGES)} |"
    yield "|---|--:|" + "--:|" * len(STAGES)
    for dtype in ("float64", "float32"):
        for n in SIZES:
            if (dtype, n, 1) in times:
                stages = times[dtype, n, 1]["stages"]
                parts = (100 * sum(stages[part]) / sum(stages) for part in LAUNCHES)
                yield f"| H200, {dtype} | {n} | {' | '.join(f'{part:.1f}' for part in parts)} |"
    yield f"| V100, float64 (table 3.2) | 256 to 12544 | {' | '.join(f'{part:.1f}' for part in THESIS)} |"


def gains(times: Times) -> Iterator[str]:
    """Time of the library over that of each level, and of one level over more."""
    measured = [level for level in LEVELS if any(key[2] == level for key in times)]
    yield f"| | N | {' | '.join(f'library / {level}' for level in measured)} | {' | '.join(f'1 / {level}' for level in measured[1:])} |"
    yield "|---|--:|" + "--:|" * (2 * len(measured) - 1)
    for dtype in ("float64", "float32"):
        for n in SHOWN:
            ms = {level: times[dtype, n, level]["ms"] for level in (0, *measured) if (dtype, n, level) in times}
            if len(ms) > 1:
                ratios = [(0, level) for level in measured] + [(1, level) for level in measured[1:]]
                shown = (f"{ms[a] / ms[b]:.2f}" if {a, b} <= ms.keys() else "" for a, b in ratios)
                yield f"| {dtype} | {n} | {' | '.join(shown)} |"


CROSSOVERS = (
    ("one level before the library", 0, 1, "1152 (V100), 896 (GTX 1660 Ti)"),
    ("two levels before the library", 0, 2, ""),
    ("three levels before the library", 0, 3, ""),
    ("two levels before one", 1, 2, "2048 or less (V100)"),
    ("three levels before two", 2, 3, ""),
)
"""Which levels are compared (the library at none), and what the thesis says, in float64."""


def single(rows: list[dict[str, Any]]) -> Iterator[str]:
    """From which size on a level is ahead, and how far."""
    found: dict[str, dict[int, list[float]]] = {"float64": {}, "float32": {}}
    for row in rows:
        if row["part"] == "levels":
            ms = row["ms"]
            found[row["dtype"]][row["n"]] = [min(ms[name] for name in LIBRARIES), *(ms[f"msmes {level}"] for level in LEVELS)]
    yield "| ahead from N on | float64 | float32 | thesis, float64 |"
    yield "|---|--:|--:|---|"
    for what, slower, faster, thesis in CROSSOVERS:
        yield f"| {what} | {' | '.join(ahead_from(found[dtype], slower, faster) for dtype in found)} | {thesis} |"
    yield from ("", "| library over levels, N | float64: 1 | 2 | 3 | float32: 1 | 2 | 3 |", "|--:|" + "--:|" * 6)
    for n in sorted(found["float64"].keys() & SHOWN):
        yield f"| {n} | {' | '.join(f'{times[n][0] / times[n][level]:.2f}' for times in found.values() for level in LEVELS)} |"


def ahead_from(times: dict[int, list[float]], slower: int, faster: int) -> str:
    """The first size from which on one is faster than the other at all larger ones."""
    sizes = sorted(times)
    behind = [i for i, n in enumerate(sizes) if times[n][faster] >= times[n][slower]]
    first = behind[-1] + 1 if behind else 0
    return str(sizes[first]) if first < len(sizes) else f"above {sizes[-1]}"


def memory(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Milliseconds by where the operands lie; of two calls the faster one."""
    places = {"device": "on the device", "resident": "unified, used on the device before"}
    places |= {"on the host": "unified, written on the host before", "crowded": "unified, 60 % fit"}
    yield "| operands, float64 | N | CuPy | msmes, 1 level | 2 levels |"
    yield "|---|--:|--:|--:|--:|"
    for where, told in places.items():
        own = {r["what"]: r for r in rows if r.get("where", r["part"]) == where and r.get("dtype") == "float64" and r["part"] != "levels"}
        if own:
            ms = (f"{min(own[name]['ms']):.1f}" if name in own else "" for name in ("cupy", "msmes 1", "msmes 2"))
            yield f"| {told} | {own['cupy']['n']} | {' | '.join(ms)} |"


def drawn(page: str) -> str:
    """The page with its figures drawn anew."""
    points, one = json.loads(MODEL.read_text()), json.loads(SINGLE.read_text())
    times = fastest(points["rows"])
    shown = "Percent of the time of one level:", "", *shares(times), "", "Ratios of times, by levels:", "", *gains(times)
    figures, levels = (source(points, MODEL), "", *shown), (source(one, SINGLE), "", *single(one["rows"]))
    return filled(page, figures="\n".join(figures), single="\n".join(levels), memory="\n".join(memory(one["rows"])))


def source(result: dict[str, Any], path: Path) -> str:
    return f"{result['machine']['gpu']}, commit {result['machine']['commit']}, {path.relative_to(ROOT)}"


if __name__ == "__main__":
    keep({PAGE: drawn(PAGE.read_text())})
