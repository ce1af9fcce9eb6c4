"""Every published file in one table: proved, or the datum that it lacks.

    python benchmarks/published_table.py [--folder FOLDER] [--json FILE] [--files]

The sums by folder and format are printed; with --files the line of every file too.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from common import parser_of, save
from published import FOLDER

from bilinear.interchange.folders import PASSED_OVER, PROVED, by_folder, survey
from bilinear.reporting.table import aligned

COLUMNS = ("folder", "format", "files", "proved", "lacking", "refused", "seconds")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--files", action="store_true")
    arguments = parser.parse_args()
    rows = [row for row in survey(arguments.folder) if row.verdict != PASSED_OVER]
    shown = rows if arguments.files else [row for row in rows if row.verdict != PROVED]
    print("\n".join(aligned([(row.file, row.format, row.verdict, row.what) for row in shown], ("file", "format", "verdict", "what"))))
    print("\n" + "\n".join(aligned(by_folder(rows), COLUMNS)))
    if arguments.json is not None:
        sums = [dict(zip(COLUMNS, line, strict=True)) for line in by_folder(rows)]
        files = [{**vars(row), "found": list(row.found), "seconds": round(row.seconds, 4)} for row in rows]
        save("published", [*sums, *files], arguments.json)


if __name__ == "__main__":
    main()
