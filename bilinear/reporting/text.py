"""The report as aligned text."""

from __future__ import annotations

from collections.abc import Iterator

from bilinear.reporting.report_facts import ReportFacts
from bilinear.reporting.rows import (
    acceptance_rows,
    accuracy_notes,
    accuracy_table,
    fate_lines,
    kernel_table,
    lowered_rows,
    schedule_rows,
    scheme_rows,
    stage_title,
)
from bilinear.reporting.table import aligned
from bilinear.visible import visible_lines

MOST_EQUATIONS = 12
"""The most failing equations written out."""
SHORT_HASH = 16


def text(report: ReportFacts) -> str:
    """The whole report, as lines."""
    return visible_lines(_lines(report))


def _lines(report: ReportFacts) -> Iterator[str]:
    yield f"{report.algorithm}: {report.verdict}"
    yield ""
    facts = [*scheme_rows(report.scheme)]
    for schedule in report.schedules:
        facts += [row for row in schedule_rows(schedule) if row not in facts]
    for lowered in report.lowered:
        facts += lowered_rows(lowered)
    facts += acceptance_rows(report)
    yield from aligned([("", label, value[:SHORT_HASH] if label.endswith("hash") else value) for label, value in facts], header=None)
    yield from _refusal(report)
    for schedule in report.schedules:
        yield from ("", "stages as proved:" if report.proved else "stages as they run:")
        for stage in schedule.stages:
            yield f"  {stage.number} {stage_title(stage.kind, stage.contended)}"
            yield from (f"      {step}" for step in stage.told)
        for heading, details in fate_lines(schedule):
            yield f"  {heading}"
            yield from (f"      {line}" for line in details)
    errors = accuracy_table(report)
    for title, table in (("rounding errors", errors), ("kernels", kernel_table(report.kernels))):
        if table:
            yield from ("", f"{title}:", *aligned(table[1:], table[0]))
        if table and table is errors:
            yield from accuracy_notes(report)


def _refusal(report: ReportFacts) -> Iterator[str]:
    if report.scheme.failing:
        yield from ("", "equations that fail:")
        for e in report.scheme.failing[:MOST_EQUATIONS]:
            yield f"  {e.left}*{e.right} in {e.output}: found {e.found}, needed {e.needed}"
        if len(report.scheme.failing) > MOST_EQUATIONS:
            yield f"  and {len(report.scheme.failing) - MOST_EQUATIONS} more"
    for finding in report.findings:
        place = f"{finding.place}: " if finding.place else ""
        yield from ("", f"{place}error[{finding.code}]: {finding.message}", *finding.excerpt)
        yield from (f"  note: {note}" for note in finding.notes)
        yield from (f"  hint: {hint}" for hint in finding.hints)
