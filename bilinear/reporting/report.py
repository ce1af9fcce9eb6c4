"""The verification report: one frozen object, of which text, JSON, Markdown and HTML are views."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from bilinear.analysis.accuracy import LevelAccuracy, LevelsKept
from bilinear.codegen.build import LaunchProgram
from bilinear.errors import Diagnostic
from bilinear.frontend import Loaded
from bilinear.lowering.prepare import PreparedAlgorithm
from bilinear.reporting.facts import PROVED, REFUSED, KernelLine, Refusal, ReportFacts, lowered_facts, schedule_facts, scheme_facts
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
from bilinear.verify.schedule import ScheduleProof
from bilinear.verify.scheme import SchemeProof
from bilinear.visible import visible_lines


@dataclass(frozen=True)
class Report(ReportFacts):
    """The findings about one algorithm, and their views."""

    def __repr__(self) -> str:
        return f"<Report on {self.algorithm}: {self.verdict}; {self.scheme.name} {self.scheme.format} over {self.scheme.ring}>"

    def __str__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        """The page in a frame, so that its style and a notebook's do not meet."""
        return f'<iframe srcdoc="{escape(self.html())}" style="width: 100%; height: 40em; border: 0"></iframe>'

    def json(self) -> str:
        """The report as JSON text."""
        return json.dumps(self.to_json(), indent=1) + "\n"

    def markdown(self) -> str:
        """The report as Markdown."""
        from bilinear.reporting.pages import markdown  # pages and drawings are imported on demand

        return markdown(self)

    def html(self, date: str = "") -> str:
        """The report as one self-contained HTML page; its footer contains the `date` if one is given."""
        from bilinear.reporting.pages import html

        return html(self, date)


def name_of(loaded: Loaded, inputs: str) -> str:
    """The title of an algorithm's report: the schedule that runs, else the scheme."""
    schedule = loaded.schedule
    runs = schedule is not None and (inputs != "preserve" or not schedule.writes_operands)
    return schedule.name if schedule is not None and runs else loaded.scheme.name


def make_report(
    loaded: Loaded,
    prepared: PreparedAlgorithm,
    inputs: str,
    programs: Sequence[LaunchProgram] = (),
    accuracy: Iterable[LevelAccuracy] = (),
    levels_for: Iterable[LevelsKept] = (),
) -> Report:
    """The report of an algorithm whose proofs hold (`prepare` raises if one does not)."""
    return Report(
        name_of(loaded, inputs),
        PROVED,
        scheme_facts(prepared.scheme, prepared.scheme_proof),
        (schedule_facts(prepared.authored, prepared.authored_proof, loaded.schedule, prepared.written_proof),),
        (lowered_facts(prepared.schedule, inputs, len(programs[0].launches if programs else prepared.schedule.stages)),),
        tuple(accuracy),
        tuple(levels_for),
        tuple(line for program in programs for line in kernel_lines(program)),
    )


def proof_report(
    loaded: Loaded,
    scheme_proof: SchemeProof,
    schedule_proof: ScheduleProof | None = None,
    diagnostics: Iterable[Diagnostic] = (),
    accuracy: Iterable[LevelAccuracy] = (),
) -> Report:
    """The report of a scheme alone, or of a refused algorithm: `refused` if a proof fails or a diagnostic is given.

    `diagnostics` are those that were raised; without them, a failing schedule proof supplies its own. The schedule is reported if `loaded`
    has one and its proof is given.
    """
    schedule = loaded.schedule if schedule_proof is not None else None
    failures = () if schedule_proof is None else schedule_proof.failures
    found = tuple(diagnostics) or failures
    refused = bool(found) or not scheme_proof.holds or bool(failures)
    schedules = () if schedule is None or schedule_proof is None else (schedule_facts(schedule, schedule_proof),)
    return Report(
        schedule.name if schedule is not None else loaded.scheme.name,
        REFUSED if refused else PROVED,
        scheme_facts(loaded.scheme, scheme_proof),
        schedules,
        accuracy=tuple(accuracy),
        findings=tuple(map(_finding, found)),
    )


def _finding(diagnostic: Diagnostic) -> Refusal:
    place = "" if diagnostic.span is None else str(diagnostic.span)
    lines = str(diagnostic).splitlines()[1:]
    excerpt = tuple(line for line in lines if line.lstrip("0123456789 ").startswith("|"))
    return Refusal(diagnostic.code, diagnostic.message, place, excerpt, diagnostic.notes, diagnostic.hints)


def kernel_lines(program: LaunchProgram) -> list[KernelLine]:
    """The images of a program."""
    lines = []
    for own_kernel in program.kernels:
        kernel = own_kernel.kernel
        for built in own_kernel.images:
            own = built.resources[0] if built.resources else None
            lines.append(
                KernelLine(
                    kernel.name,
                    built.target.name,
                    kernel.threads[0] * kernel.threads[1],
                    own.registers if own else None,
                    own.shared_bytes + kernel.shared_bytes if own else None,
                    own.spill_stores + own.spill_loads if own else None,
                    len(built.image),
                    built.cached,
                )
            )
    return lines


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
