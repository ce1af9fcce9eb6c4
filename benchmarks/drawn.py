"""Pages and pictures that scripts draw from results: written, or with `--check` compared with what is there."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
IMAGES = ROOT / "docs" / "images"


def filled(page: str, **bodies: str) -> str:
    """The page with what stands between the marks of each name drawn anew."""
    for name, body in bodies.items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        head, rest = page.split(begin)
        page = f"{head}{begin}\n{body}\n{end}{rest.split(end)[1]}"
    return page


def keep(texts: Mapping[Path, str]) -> None:
    """Write these files; with `--check`, end with exit code 1 and their names if one is not as drawn."""
    if "--check" in sys.argv:
        stale = [path.name for path, text in texts.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
        sys.exit(f"not as drawn by {Path(sys.argv[0]).name}: {', '.join(stale)}" if stale else 0)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
