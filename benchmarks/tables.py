"""Write the README's speed tables from the committed results: python benchmarks/tables.py [--check]"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- speed:begin -->", "<!-- speed:end -->"
TABLES = (
    ("inplace-h200.json", "In place (`msmes`, inputs restored, nothing allocated)"),
    ("workspace-h200.json", "With workspace (`winograd`, inputs never written)"),
)


def table(path: Path, title: str) -> str:
    """One result file as a table: ratio to the library by shape and number of levels, and whether every check of the run held."""
    result = json.loads(path.read_text())
    rows: dict[tuple[str, tuple[int, ...]], dict[int, Any]] = {}
    for row in result["rows"]:
        rows.setdefault((row["dtype"], tuple(row["shape"])), {})[row["levels"]] = row
    levels = sorted({level for by_level in rows.values() for level in by_level})
    lines = [
        f"{title}: time of the library over ours, {result['machine']['gpu']}, commit {result['machine']['commit']}",
        "",
        f"| dtype | shape | {' | '.join(f'{level} level(s)' for level in levels)} | library | exact, restored, same bits |",
        "|---|---|" + "--:|" * len(levels) + "--:|---|",
    ]
    for (dtype, shape), by_level in rows.items():
        ratios = [f"{by_level[level]['library_ms'] / by_level[level]['ms']:.2f}" for level in levels]
        held = all(row["exact"] and row["restored"] and row["same_bits"] for row in by_level.values())
        library = next(iter(by_level.values()))["library_ms"]
        shown = "x".join(map(str, shape))
        lines.append(f"| {dtype} | {shown} | {' | '.join(ratios)} | {library:.2f} ms | {'yes' if held else 'NO'} |")
    return "\n".join(lines)


def written(readme: str) -> str:
    """The README with its speed section drawn anew."""
    head, rest = readme.split(BEGIN)
    tail = rest.split(END)[1]
    body = "\n\n".join(table(ROOT / "benchmarks" / "results" / name, title) for name, title in TABLES)
    return f"{head}{BEGIN}\n{body}\n{END}{tail}"


def main() -> None:
    path = ROOT / "README.md"
    text = path.read_text()
    if "--check" in sys.argv:
        sys.exit(0 if written(text) == text else "README.md: the speed tables are not those of benchmarks/results")
    path.write_text(written(text))


if __name__ == "__main__":
    main()
