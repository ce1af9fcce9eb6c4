"""Write what is kept of the shipped algorithms, their index and the page docs/algorithms.md: python benchmarks/algorithms.py [--check]"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from drawn import ROOT, keep

from bilinear.reporting.shipped import INDEX, LibraryRow, found_rows, index_text

PAGE = ROOT / "docs" / "algorithms.md"
INTRODUCTION = """\
# The shipped algorithms

Every file of [algorithms/](../algorithms) is a scheme, or a schedule of one. `bilinear list` prints this table, `--format 3,4,5`,
`--over Z` and `--max-rank 30` choose from it, and `bilinear verify NAME` proves one and says more. Formats that are not here are composed
of these by `bilinear combine` ([algebra.md](algebra.md)); how a scheme of your own comes to run beside them is told in
[tutorial.md](tutorial.md#9-put-it-into-the-library). The files of [algorithms/digits/](../algorithms/digits) multiply digits of numbers:
[digits.md](digits.md). The files of [algorithms/transposed/](../algorithms/transposed) compute A*A^T: [gram.md](how-to/gram.md).

[known_ranks.toml](../bilinear/reporting/known_ranks.toml) holds the fewest products published for each format up to 16 x 16 x 16, by
ring, with their sources; `list`, `combine`, `discover` and `verify` compare with it. `verify` also names the shipped schemes that equal
yours up to the symmetries of the tensor (order and scale of the products, changes of basis, rotation, transposition), or says that yours is
new here. The site has a page for each format up to 8 x 8 x 8, with the schemes to download.

| column | what it says |
|---|---|
| format | `<m,k,n;r>`: A is of m x k blocks, B of k x n, and r products do; `rotate(NAME)` and `transpose(NAME)` are of the other orders |
| known | the fewest products that are published for the format, over Z/p for a scheme over it, else over Q |
| exponent | 3 log(r) / log(mkn): of the time, where nothing but this scheme is used |
| ring | the least ring that has all coefficients; with Z, all numbers will do, and with Z/p integers modulo p alone |
| naive, shared | block additions of the tables, and as the file writes them, with shared sums; changes of basis are not counted |
| scalings | multiplications of a block by something else than 1 and -1, as written |
| growth | how much larger errors may become with each level, in the largest norm; that of the classical product is k |
| runs | `expand`: with workspace, the fastest for large problems; schedules that take less memory, or none; `modulus=p`: with that alone |

"""
SHARED = " Its shared sums are this project's: `bilinear share` found them."
FOUND = "Where `shared` is below `naive` from benson_ballard_324 on, `bilinear share` found the sums, unless the entry says otherwise."


def kept() -> dict[Path, str]:
    """The files that are drawn from the algorithms, and what they have to hold."""
    rows = found_rows()
    return {INDEX: index_text(rows), PAGE: library_page(rows)}


def main() -> None:
    keep(kept())


def library_page(rows: Iterable[LibraryRow]) -> str:
    """The page as Markdown."""
    rows = tuple(rows)
    return (
        INTRODUCTION
        + "\n".join([*_table(rows), "", "## What each is for, and where it comes from", "", FOUND, "", *map(_entry, rows)])
        + "\n"
    )


def _table(rows: Iterable[LibraryRow]) -> Iterator[str]:
    yield "| name | format | known | exponent | ring | naive | shared | scalings | growth | runs |"
    yield "|---|---|--:|--:|---|--:|--:|--:|--:|---|"
    for r in rows:
        growth = "" if r.growth is None else f"{r.growth:.4g}"
        numbers = f"{r.known_rank or ''} | {r.exponent:.3f} | {r.least_ring} | {r.naive} | {r.shared} | {r.scalings} | {growth}"
        yield f"| [{r.name}](../algorithms/{r.name}.bl) | `{r.format}` | {numbers} | {_runs(r)} |"


def _runs(row: LibraryRow) -> str:
    own = [f"[{schedule.name}](../algorithms/{schedule.name}.bl) ({schedule.strategy})" for schedule in row.schedules]
    return ", ".join([*row.expansion, *own]) or row.runs


def _entry(row: LibraryRow) -> str:
    why = row.why.replace(SHARED, "")
    return f"* **{row.name}**: {why}" + (f" *{row.citation}*" if row.citation else "")


if __name__ == "__main__":
    main()
