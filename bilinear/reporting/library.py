"""The index of shipped algorithms."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from bilinear.frontend import load
from bilinear.resources import algorithms_folder


@dataclass(frozen=True)
class LibraryRow:
    """One shipped algorithm; additions are counted as written."""

    name: str
    kind: str
    format: str
    additions: int
    exponent: float
    citation: str

    def to_json(self) -> dict[str, Any]:
        """The row for machines."""
        return asdict(self)


def library_rows() -> list[LibraryRow]:
    """Every shipped algorithm, by name."""
    rows = []
    for path in sorted(algorithms_folder().glob("*.bl")):
        loaded = load(path)
        scheme, schedule = loaded.scheme, loaded.schedule
        volume = scheme.m * scheme.k * scheme.n
        exponent = 3 * math.log(scheme.rank) / math.log(volume) if volume > 1 else 3.0
        kind = "scheme" if schedule is None else "in-place schedule" if schedule.runs_in_place else "schedule"
        citation = schedule.citation if schedule is not None else scheme.citation
        rows.append(LibraryRow(path.stem, kind, scheme.format, scheme.additions, exponent, citation))
    return rows
