"""Write what is kept of the shipped algorithms, their index and the page docs/algorithms.md: python benchmarks/algorithms.py [--check]"""

from __future__ import annotations

import sys
from pathlib import Path

from bilinear.reporting.shipped import INDEX, found_rows, index_text
from bilinear.reporting.shipped_page import library_page

PAGE = Path(__file__).resolve().parent.parent / "docs" / "algorithms.md"


def kept() -> dict[Path, str]:
    """The files that are drawn from the algorithms, and what they have to hold."""
    rows = found_rows()
    return {INDEX: index_text(rows), PAGE: library_page(rows)}


def main() -> None:
    stale = [path for path, text in kept().items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv:
        sys.exit(", ".join(f"{path.name} is not what the algorithms say" for path in stale) or 0)
    for path, text in kept().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
