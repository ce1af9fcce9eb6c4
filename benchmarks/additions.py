"""Additions of published schemes: of their tables, as they were published, and as `share_sums` finds them from the tables alone.

    python benchmarks/additions.py [--folder FOLDER] [--work N] [--only TEXT] [--json FILE] [--markdown]

What is published is counted in the programs that the files hold (plinopt's `.slp`, the addition-reduced JSON of FastMatrixMultiplication)
or cited below. The programs are dropped before the search. Every result is proved, and its tables are compared with those that it is for.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from common import parser_of, save
from published import FOLDER

from bilinear.algebra.change_basis import change_to_sparse_bases
from bilinear.algebra.maps import table_of
from bilinear.algebra.share_sums import WORK, share_sums
from bilinear.frontend import load
from bilinear.interchange.importing import import_scheme
from bilinear.ir.scheme import Scheme
from bilinear.reporting.table import aligned
from bilinear.verify.scheme import prove_scheme

HEADER = ("scheme", "format", "table", "published", "found", "scalings", "least", "tries", "seconds", "source")

CITED = (
    ("strassen", 18, "Strassen 1969"),
    ("winograd", 15, "Winograd 1971; the least for rank 7: Probert 1976"),
    ("laderman", 62, "Martensson, Stankovski Wagner 2025, by arXiv:2508.03857"),
)
OTHER_BASES = (
    ("strassen", 12, "Karstadt, Schwartz 2017"),
    ("winograd", 12, "Karstadt, Schwartz 2017"),
)
OTHER_BASES_333 = (61, "another scheme of this format: Schwartz, Vaknin 2023, by arXiv:2508.03857")
BETTER = {
    "3x3x3_23_58": "plinopt (.slp); 56 for rank 23: arXiv:2604.27645",
    "3x3x3_m23_cr58_cn120": "arXiv:2512.21980; 56 for rank 23: arXiv:2604.27645",
}
"""What is known beside the program in the file."""
FRACTIONS = (("4x4x4_48_accurate", 6), ("4x4x4_48_rational", 4))
"""Those with other coefficients than 1 and -1, of which programs over bases differ from seed to seed, and the tries for them."""
PLINOPT = ("2x2x2_7_Winograd", "3x3x3_23_58", "3x3x3_JS", "4x4x4_49_156")


@dataclass(frozen=True)
class Task:
    """A scheme whose programs were dropped, its published additions a level, who says so, and the tries of the search."""

    name: str
    scheme: Scheme
    published: int
    source: str
    other_bases: bool = False
    tries: int = 1


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--work", type=int, default=WORK)
    parser.add_argument("--only", default="", help="schemes whose names contain this text")
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    rows = []
    for task in tasks(arguments.folder):
        if arguments.only not in task.name:
            continue
        rows.append(measure(task, arguments.work))
        print(*(str(rows[-1][column]) for column in HEADER), sep="  ", file=sys.stderr, flush=True)
    print(markdown(rows) if arguments.markdown else "\n".join(aligned([[row[column] for column in HEADER] for row in rows], HEADER)))
    if arguments.json is not None:
        save("additions", rows, arguments.json)


def tasks(folder: Path) -> Iterator[Task]:
    """Those of the shipped schemes, and where the folder is there, those of the published files."""
    for name, published, source in CITED:
        yield Task(name, table(load(name).scheme), published, source)
    for name, published, source in OTHER_BASES:
        yield Task(f"{name}, other bases", table(load(name).scheme), published, source, other_bases=True)
    yield Task("dps_444", table(load("dps_444").scheme), 256, "plinopt (.slp); 252 in the shipped file", tries=6)
    for stem, tries in FRACTIONS if folder.is_dir() else ():
        sms, slp = (import_scheme(folder / "plinopt" / "data" / f"{stem}_L.{suffix}").scheme for suffix in ("sms", "slp"))
        yield Task(stem, table(sms), slp.additions, "plinopt (.slp)", tries=tries)
    for stem in PLINOPT if folder.is_dir() else ():
        sms, slp = (import_scheme(folder / "plinopt" / "data" / f"{stem}_L.{suffix}").scheme for suffix in ("sms", "slp"))
        yield Task(stem, table(sms), slp.additions, BETTER.get(stem, "plinopt (.slp)"))
        if stem == "3x3x3_23_58":
            yield Task(f"{stem}, other bases", table(sms), *OTHER_BASES_333, other_bases=True)
    for path in sorted((folder / "fast-matrix-multiplication" / "addition_reduced_ZT").glob("*.json")):
        scheme = import_scheme(path).scheme
        name = path.stem.removesuffix("_ZT_reduced")
        yield Task(name, table(scheme), scheme.additions, BETTER.get(name, "FastMatrixMultiplication"))


def table(scheme: Scheme) -> Scheme:
    return replace(scheme, u=table_of(scheme.u), v=table_of(scheme.v), w=table_of(scheme.w), places=None)


def markdown(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| scheme | format | table | published | found | least | tries | seconds | published in |",
        "|---|---|--:|--:|--:|---|--:|--:|---|",
    ]
    for row in rows:
        least = "yes" if row["least"] else ""
        cells = (
            row["scheme"],
            row["format"],
            row["table"],
            row["published"],
            row["found"],
            least,
            row["tries"],
            f"{row['seconds']:.2f}",
            row["source"],
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def measure(task: Task, work: int) -> dict[str, Any]:
    start = time.perf_counter()
    found = share_sums(change_to_sparse_bases(task.scheme) if task.other_bases else task.scheme, work=work, tries=task.tries)
    seconds = time.perf_counter() - start
    prove_scheme(found.scheme).require()
    assert found.scheme.tables == task.scheme.tables
    maps = (found.scheme.u, found.scheme.v, found.scheme.w)
    return {
        "scheme": task.name,
        "format": task.scheme.format,
        "table": task.scheme.additions,
        "published": task.published,
        "found": found.scheme.additions,
        "by_map": [linear.additions for linear in maps],
        "scalings": sum(linear.scalings for linear in maps),
        "least": all(found.least),
        "seconds": round(seconds, 2),
        "work": found.work,
        "seed": 0,
        "tries": task.tries,
        "source": task.source,
    }


if __name__ == "__main__":
    main()
