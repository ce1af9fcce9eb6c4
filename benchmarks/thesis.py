"""Write the figures of docs/msmes.md from the points of the performance model: python benchmarks/thesis.py [--check]

Where the time of MSMES goes by stage, beside table 3.2 of Krishnan (2021), and what its levels gain, as in figures 3.7 and 3.8.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "msmes.md"
RESULTS = ROOT / "benchmarks" / "results" / "model-all-h200.json"
BEGIN, END = "<!-- figures:begin -->", "<!-- figures:end -->"
STAGES = ("sums before", "4 products", "sums between", "3 products", "sums after")
LAUNCHES = (slice(0, 1), slice(1, 3), slice(3, 4), slice(4, 6), slice(6, 7))
"""The launches of one level: a map, two colours of products, a map, two colours, a map."""
THESIS = (0.5, 56.3, 0.5 + 0.26, 41.7, 0.26 + 0.5)
"""Table 3.2, averages over N of stages 1; 2; 3 and 4; 5; 6 and 7, in percent, on a V100."""
SIZES = (2048, 4096, 8192, 16384)
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
        for n in sorted({key[1] for key in times}):
            ms = {level: times[dtype, n, level]["ms"] for level in (0, *measured) if (dtype, n, level) in times}
            if len(ms) > 1:
                ratios = [(0, level) for level in measured] + [(1, level) for level in measured[1:]]
                shown = (f"{ms[a] / ms[b]:.2f}" if {a, b} <= ms.keys() else "" for a, b in ratios)
                yield f"| {dtype} | {n} | {' | '.join(shown)} |"


def drawn(page: str) -> str:
    """The page with its figures drawn anew."""
    result = json.loads(RESULTS.read_text())
    times, machine = fastest(result["rows"]), result["machine"]
    head, rest = page.split(BEGIN)
    source = f"{machine['gpu']}, commit {machine['commit']}, {RESULTS.relative_to(ROOT)}"
    shown = "\n".join(("Percent of the time of one level:", "", *shares(times), "", "Ratios of times, by levels:", "", *gains(times)))
    return f"{head}{BEGIN}\n{source}\n\n{shown}\n{END}{rest.split(END)[1]}"


def main() -> None:
    text = PAGE.read_text()
    if "--check" in sys.argv:
        sys.exit(0 if drawn(text) == text else "docs/msmes.md: the figures are not those of benchmarks/results")
    PAGE.write_text(drawn(text))


if __name__ == "__main__":
    main()
