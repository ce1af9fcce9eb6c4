"""The pages of algorithms for digits and for complex numbers, which share their templates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bilinear.version import __version__

Table = tuple[tuple[str, ...], ...]


class MapReport(Protocol):
    """A report that these templates print."""

    @property
    def error_table(self) -> Table:
        """Header and rows of the table of errors; empty without errors."""


def map_page(report: MapReport, kernels: Sequence[Sequence[str]], html: bool, date: str = "") -> str:
    """The report as Markdown, or as one self-contained HTML page; `kernels` is the table of built kernels."""
    from bilinear.reporting.pages import environment  # pages are imported on demand

    template = environment(html).get_template("report_map.html.j2" if html else "report_map.md.j2")
    return template.render(report=report, table=report.error_table, kernels=kernels, version=__version__, date=date)
