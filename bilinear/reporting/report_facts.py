"""The facts of a verification report, shown by all its views."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from bilinear.analysis.accuracy import LevelAccuracy, LevelsKept
from bilinear.reporting.schedule_facts import LoweredFacts, ScheduleFacts
from bilinear.reporting.scheme_facts import SchemeFacts

PROVED, REFUSED = "proved", "refused"
FORMAT = "bilinear-report/2"


@dataclass(frozen=True)
class Finding:
    """A diagnostic as text: `place` is file:line:column or empty, `excerpt` the source line with its caret and label."""

    code: str
    message: str
    place: str
    excerpt: tuple[str, ...]
    notes: tuple[str, ...]
    hints: tuple[str, ...]


@dataclass(frozen=True)
class KernelLine:
    """One built image; `spills` counts bytes stored and loaded. PTX has no resource figures."""

    kernel: str
    architecture: str
    threads: int
    registers: int | None
    shared_bytes: int | None
    spills: int | None
    image_bytes: int
    cached: bool


@dataclass(frozen=True)
class ReportFacts:
    """The facts about one algorithm; `verdict` is `proved` or `refused`. What is unknown or was not requested is an empty tuple.

    `schedules` holds the schedule as written, `lowered` its costs as it runs; a report of a scheme alone has neither. `findings` say why
    something is refused. `accepted_by` names the proof assistant that accepted the theorems, now or on record.
    """

    algorithm: str
    verdict: str
    scheme: SchemeFacts
    schedules: tuple[ScheduleFacts, ...] = ()
    lowered: tuple[LoweredFacts, ...] = ()
    accuracy: tuple[LevelAccuracy, ...] = ()
    levels_for: tuple[LevelsKept, ...] = ()
    kernels: tuple[KernelLine, ...] = ()
    findings: tuple[Finding, ...] = ()
    accepted_by: str = ""

    @property
    def proved(self) -> bool:
        """True if nothing was refused."""
        return self.verdict == PROVED

    def to_json(self) -> dict[str, object]:
        """The report as a JSON object."""
        return {"format": FORMAT, "proved": self.proved, **asdict(self)}
