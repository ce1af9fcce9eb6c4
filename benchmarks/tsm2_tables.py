"""Write the figures of docs/thin.md from the committed results: python benchmarks/tsm2_tables.py [--check]

TSM2X's variants, the libraries and our own kernel on an H200 beside what Rivera et al. (2021) measured, and updates of low rank.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from statistics import mean
from typing import Any

from drawn import RESULTS, ROOT, filled, keep
from thesis import source
from tsm2 import card, descent, searched, threshold

from bilinear.ir.element import ELEMENTS
from bilinear.ir.thin_tile import THIN_TILES

PAGE = ROOT / "docs" / "thin.md"
ABLATION, UPDATES = RESULTS / "tsm2-ablation-h200.json", RESULTS / "rank-updates-h200.json"
LIBRARIES = ("cublas", "cublaslt", "cupy", "torch")
STEPS = (("V0", "V1", "2.2 to 4.7"), ("V1", "V2", "1.1 to 2.1"), ("V2", "V3", "1.3 to 3.5 (1.9)"))
"""How many times as fast a step makes the kernel on a K40c (section 4.2.1; in brackets the mean)."""
PAPER = {
    ("V3", "float32"): "up to 1.35 (0.91)",
    ("V3", "float64"): "up to 3.2 (1.5)",
    ("Opt", "float32"): "1.1 to 3.5 (2.5)",
    ("Opt", "float64"): "1.0 to 1.7 (1.3)",
}
"""How many times as fast as cuBLAS on a V100 (sections 4.2.3 and 4.3)."""
Row = dict[str, Any]


def library(row: Row) -> float:
    """Microseconds of the fastest library."""
    return float(min(row["us"][name] for name in LIBRARIES if name in row["us"]))


def library_share(row: Row) -> float:
    return float(max(row["bandwidth"][name] for name in LIBRARIES if name in row["us"]))


def parameters(kernel: Row) -> str:
    tcf = f", {kernel['tcf']}" if kernel["tcf"] > 1 else ""
    return f"{kernel['t1']}, {kernel['t3']}{tcf}, {'columns' if kernel['by_columns'] else 'rows'}"


def squares(rows: list[Row]) -> Iterator[str]:
    """TSM2R: shares of a copy's bandwidth."""
    yield "| 20480 x 20480 x n | n | library | V0 | V1 | V2 | V3 | V3, searched | t1, t3, B's tile by | our kernel |"
    yield "|---|--:|" + "--:|" * 6 + "---|--:|"
    for row in rows:
        shares = " | ".join(percent(row["bandwidth"][name]) for name in ("V0", "V1", "V2", "V3", "V3, searched"))
        own = f"{parameters(row['kernels']['V3, searched'])} | {percent(row['bandwidth']['thin'])}"
        yield f"| {row['dtype']} | {row['shape'][2]} | {percent(library_share(row))} | {shares} | {own} |"


def percent(share: float) -> str:
    return f"{share:.1%}" if share < 0.1 else f"{share:.0%}"


def talls(rows: list[Row]) -> Iterator[str]:
    """TSM2L: microseconds."""
    names = ("V3", "Opt1", "Opt2", "Opt1, searched", "Opt2, searched")
    yield f"| m x k by k x k | m | k | library | {' | '.join(names)} | t1, t3, tcf, B's tile by | our kernel | of a copy's bandwidth |"
    yield "|---|--:|--:|" + "--:|" * 6 + "---|--:|--:|"
    for row in rows:
        m, k, _ = row["shape"]
        us = " | ".join(f"{row['us'][name]:.1f}" for name in names)
        own = f"{parameters(row['kernels']['Opt2, searched'])} | {row['us']['thin']:.1f} | {row['bandwidth']['thin']:.0%}"
        yield f"| {row['dtype']} | 10^{len(str(m)) - 1} | {k} | {library(row):.1f} | {us} | {own} |"


def beside(square: list[Row], tall: list[Row]) -> Iterator[str]:
    """What the steps gain, and how the best are beside the library: the paper's figures and ours."""
    yield "| times as fast | paper | here, float32 | here, float64 |"
    yield "|---|---|---|---|"
    for before, after, paper in STEPS:
        yield f"| {after} as {before}, TSM2R | {paper}, K40c | {_both(square, lambda r, b=before, a=after: r['us'][b] / r['us'][a])} |"
    for name, what, rows in (("V3", "TSM2R", square), ("Opt", "TSM2L", tall)):
        single, double = (PAPER[name, dtype] for dtype in ("float32", "float64"))
        paper = f"float32 {single}, float64 {double}, V100"
        own = ("V3",) if name == "V3" else ("Opt1", "Opt2")
        title = "V3" if name == "V3" else "the better of Opt1 and Opt2"
        yield f"| {title} as the library, {what} | {paper} | {_both(rows, lambda r, n=own: library(r) / min(r['us'][x] for x in n))} |"
        searched = tuple(f"{x}, searched" for x in own)
        every = own + searched
        yield f"| the same with the parameters found here | | {_both(rows, lambda r, n=every: library(r) / min(r['us'][x] for x in n))} |"
        yield f"| our kernel as the library | | {_both(rows, lambda r: library(r) / r['us']['thin'])} |"


def _both(rows: list[Row], ratio: Any) -> str:
    found = [[ratio(row) for row in rows if row["dtype"] == dtype] for dtype in ("float32", "float64")]
    return " | ".join(f"{min(own):.2g} to {max(own):.2g} ({mean(own):.2g})" for own in found)


def model(rows: list[Row]) -> Iterator[str]:
    """What the paper's model predicts, with a full multiprocessor and with the rows that there are, and what is measured."""
    yield "| | | n | threads, full | rows | bytes under way, full | rows | ms, full | rows | measured |"
    yield "|---|---|--:|" + "--:|" * 7
    for row, name in ((row, name) for row in rows if row["shape"][2] == 16 for name in ("V0", "V1", "V2", "V3")):
        figures = []
        for key, scale, digits in (("occupancy", 1, 0), ("memory", 100, 0), ("seconds", 1e3, 2)):
            figures += [f"{scale * row['kernels'][name][way][key]:.{digits}f}{'%' * (scale == 100)}" for way in ("published", "with rows")]
        yield f"| {name} | {row['dtype']} | {row['shape'][2]} | {' | '.join(figures)} | {row['us'][name] / 1e3:.2f} |"


TABLE_3 = {
    ("K40c", "float32"): ("n", 4),
    ("K40c", "float64"): ("n", 4),
    ("M40", "float32"): (8, 4),
    ("M40", "float64"): (8, 4),
    ("P100", "float32"): (4, 4),
    ("P100", "float64"): (4, 4),
    ("V100", "float32"): ("n", 32),
    ("V100", "float64"): ("n", "16 or 12"),
}
"""t2 and t3 as printed; those of the V100 were searched for."""


def parameters_chosen() -> Iterator[str]:
    """Table 3 beside what algorithm 5 finds, and beside a search through its model."""
    yield "| t2, t3 | threshold | table 3 | algorithm 5: n = 2 | 4 | 8 | 16 | search, n = 16 |"
    yield "|---|--:|---|---|---|---|---|---|"
    for (name, dtype), printed in TABLE_3.items():
        chip, element = card(name, dtype), ELEMENTS[dtype]
        found = ((*descent(chip, element.bytes, n, 10240),) for n in (2, 4, 8, 16))
        told = (f"{t2}, {t3}" for t2, t3 in (printed, *found, searched(element, chip, 16, 10240)))
        yield f"| {name}, {dtype} | {threshold(chip, element.bytes):.0f} | {' | '.join(told)} |"


def updates(rows: list[Row]) -> Iterator[str]:
    """The fastest of our tiles beside the bound."""
    yield "| 8192 x k x 8192 | k | bound by | bound, us | our kernel | of the bound | of a copy's bandwidth | library |"
    yield "|---|--:|---|--:|--:|--:|--:|--:|"
    for row in rows:
        if row["order"] != "C" or row["k"] not in (4, 16, 64):
            continue
        size = 4 if row["dtype"] == "float32" else 8
        moved = (2 * row["n"] * row["k"] + row["n"] ** 2) * size / 1e3
        own = min(us for name, us in row["us"].items() if name not in LIBRARIES and name in row["shipped"])
        what = "memory" if row["bound"] <= moved / row["copy"] + 0.01 else "arithmetic"
        times = f"{row['bound']:.0f} | {own:.0f} | {row['bound'] / own:.0%} | {moved / own / row['copy']:.0%} | {library(row):.0f}"
        yield f"| {row['dtype']} | {row['k']} | {what} | {times} |"


def sections() -> dict[str, tuple[str, ...]]:
    """The figures by the name of their place on the page."""
    ablation, low = json.loads(ABLATION.read_text()), json.loads(UPDATES.read_text())
    first, *rows = ablation["rows"]
    rows.sort(key=lambda row: (row["dtype"], row["shape"][2], row["shape"][0]))
    square, tall = ([row for row in rows if (row["shape"][0] == row["shape"][1]) == is_square] for is_square in (True, False))
    for row in low["rows"]:
        row["shipped"] = shipped(row["dtype"])
    told = f"{source(ablation, ABLATION)}; a copy moves {first['copy'] / 1e3:.2f} TB/s. All results are {exactness(rows)} on integers."
    return {
        "tsm2": (
            told,
            "",
            *beside(square, tall),
            "",
            *squares([row for row in square if row["shape"][2] in (2, 16)]),
            "",
            *talls([row for row in tall if row["shape"][0] == 10**7]),
        ),
        "model": tuple(model([row for row in square if row["dtype"] == "float32"])),
        "descent": tuple(parameters_chosen()),
        "updates": (source(low, UPDATES), "", *updates(low["rows"])),
    }


def shipped(dtype: str) -> set[str]:
    """The names of the tiles that `matmul` has."""
    return set(THIN_TILES[dtype])


def exactness(rows: list[Row]) -> str:
    return "exact" if all(all(row["exact"].values()) for row in rows) else "NOT exact"


if __name__ == "__main__":
    keep({PAGE: filled(PAGE.read_text(), **{name: "\n".join(lines) for name, lines in sections().items()})})
