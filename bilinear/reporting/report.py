"""The verification report: one frozen object, of which text, JSON, Markdown and HTML are views."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from bilinear.analysis.accuracy import LevelAccuracy, LevelsKept
from bilinear.codegen.build import Program
from bilinear.errors import Diagnostic
from bilinear.frontend import Loaded
from bilinear.lowering.prepare import Prepared
from bilinear.reporting.report_facts import PROVED, REFUSED, Finding, KernelLine, ReportFacts
from bilinear.reporting.schedule_facts import lowered_facts, schedule_facts
from bilinear.reporting.scheme_facts import scheme_facts
from bilinear.reporting.text import text
from bilinear.verify.schedule import ScheduleProof
from bilinear.verify.scheme import SchemeProof


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
    prepared: Prepared,
    inputs: str,
    programs: Sequence[Program] = (),
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


def _finding(diagnostic: Diagnostic) -> Finding:
    place = "" if diagnostic.span is None else str(diagnostic.span)
    lines = str(diagnostic).splitlines()[1:]
    excerpt = tuple(line for line in lines if line.lstrip("0123456789 ").startswith("|"))
    return Finding(diagnostic.code, diagnostic.message, place, excerpt, diagnostic.notes, diagnostic.hints)


def kernel_lines(program: Program) -> list[KernelLine]:
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
