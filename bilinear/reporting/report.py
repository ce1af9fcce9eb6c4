"""The verification report: one frozen object, of which text, JSON, Markdown and HTML are views made of the same rows and tables."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from html import escape

from bilinear.analysis.accuracy import LevelAccuracy, LevelsKept
from bilinear.codegen.build import LaunchProgram
from bilinear.errors import Diagnostic
from bilinear.frontend import Loaded
from bilinear.lowering.prepare import PreparedAlgorithm
from bilinear.reporting.facts import (
    PROVED,
    REFUSED,
    KernelLine,
    LoweredFacts,
    ProductLine,
    Refusal,
    ScheduleFacts,
    SchemeFacts,
    lowered_facts,
    readable,
    schedule_facts,
    scheme_facts,
    stage_title,
)
from bilinear.reporting.table import aligned
from bilinear.resources import templates_folder
from bilinear.verify.facts import LOST, OperandFate
from bilinear.verify.schedule import ScheduleProof
from bilinear.verify.scheme import SchemeProof
from bilinear.version import __version__
from bilinear.visible import visible_lines

FORMAT = "bilinear-report/2"
MOST_EQUATIONS, MOST_LISTED = 12, 60  # The most failing equations written out in a text, and on a page.
MOST_LINES = 64  # The most products written out as equations on a page.
SHORT_HASH = 16
Rows = tuple[tuple[str, str], ...]  # Labels and values.
Table = tuple[tuple[str, ...], ...]  # Header and rows; empty if nothing is known.


class ReportViews:
    """The views of a report: text, JSON, Markdown and HTML."""

    verdict: str

    @property
    def proved(self) -> bool:
        """True if nothing was refused."""
        return self.verdict == PROVED

    def to_json(self) -> dict[str, object]:
        """The report as a JSON object."""
        raise NotImplementedError

    def lines(self) -> Iterator[str]:
        """The report as text."""
        raise NotImplementedError

    def page(self, html: bool) -> tuple[str, dict[str, object]]:
        """The template of a page, and what it prints."""
        raise NotImplementedError

    def __str__(self) -> str:
        return visible_lines(self.lines())

    def _repr_html_(self) -> str:
        """The page in a frame, so that its style and a notebook's do not meet."""
        return f'<iframe srcdoc="{escape(self.html())}" style="width: 100%; height: 40em; border: 0"></iframe>'

    def json(self) -> str:
        """The report as JSON text."""
        return json.dumps(self.to_json(), indent=1) + "\n"

    def markdown(self) -> str:
        """The report as Markdown."""
        return self._rendered(html=False)

    def html(self, date: str = "") -> str:
        """The report as one self-contained HTML page; its footer contains the `date` if one is given."""
        return self._rendered(html=True, date=date)

    def _rendered(self, html: bool, date: str = "") -> str:
        from bilinear.reporting.pages import environment  # pages and drawings are imported on demand

        name, values = self.page(html)
        template = environment(html).get_template(f"{name}.{'html' if html else 'md'}.j2")
        return template.render(report=self, version=__version__, date=date, **values)


@dataclass(frozen=True, repr=False)
class Report(ReportViews):
    """The findings about one algorithm; `verdict` is `proved` or `refused`. What is unknown or was not requested is an empty tuple.

    `schedules` holds the schedule as written, `lowered` its costs as it runs; a report of a scheme alone has neither. `findings` say why
    something is refused. `known` says how many products are known for the format, `same_as` which shipped schemes equal this one up to the
    symmetries of the tensor. `accepted_by` names the proof assistant that accepted the theorems, now or on record.
    """

    algorithm: str
    verdict: str
    scheme: SchemeFacts
    schedules: tuple[ScheduleFacts, ...] = ()
    lowered: tuple[LoweredFacts, ...] = ()
    accuracy: tuple[LevelAccuracy, ...] = ()
    levels_for: tuple[LevelsKept, ...] = ()
    kernels: tuple[KernelLine, ...] = ()
    findings: tuple[Refusal, ...] = ()
    known: str = ""
    same_as: str = ""
    accepted_by: str = ""

    def __repr__(self) -> str:
        return f"<Report on {self.algorithm}: {self.verdict}; {self.scheme.name} {self.scheme.format} over {self.scheme.ring}>"

    def to_json(self) -> dict[str, object]:
        """The report as a JSON object."""
        return {"format": FORMAT, "proved": self.proved, **asdict(self)}

    def lines(self) -> Iterator[str]:
        """The report as text."""
        yield f"{self.algorithm}: {self.verdict}"
        yield ""
        facts = [*scheme_rows(self.scheme)]
        for schedule in self.schedules:
            facts += [row for row in schedule_rows(schedule) if row not in facts]
        for lowered in self.lowered:
            facts += lowered_rows(lowered)
        facts += standing_rows(self)
        yield from aligned([("", label, value[:SHORT_HASH] if label.endswith("hash") else value) for label, value in facts], header=None)
        yield from _refusal(self)
        for schedule in self.schedules:
            yield from ("", "stages as proved:" if self.proved else "stages as they run:")
            for stage in schedule.stages:
                yield f"  {stage.number} {stage_title(stage.kind, stage.contended)}"
                yield from (f"      {step}" for step in stage.told)
            for heading, details in fate_lines(schedule):
                yield f"  {heading}"
                yield from (f"      {line}" for line in details)
        errors = accuracy_table(self)
        for title, table in (("rounding errors", errors), ("kernels", kernel_table(self.kernels))):
            if table:
                yield from ("", f"{title}:", *aligned(table[1:], table[0]))
            if table and table is errors:
                yield from accuracy_notes(self)

    def page(self, html: bool) -> tuple[str, dict[str, object]]:
        """The template of a page, and what it prints."""
        failing, rows = self.scheme.failing, scheme_rows(self.scheme)
        views = {
            "summary": summary(self),
            "scheme_rows": rows,
            "schedules": [(t, tuple(row for row in schedule_rows(t) if row not in rows), fate_lines(t)) for t in self.schedules],
            "lowered": [rows for rows in (*map(lowered_rows, self.lowered), standing_rows(self)) if rows],
            "accuracy": accuracy_table(self),
            "accuracy_notes": accuracy_notes(self),
            "kernels": kernel_table(self.kernels),
            "failing": failing[:MOST_LISTED],
            "failing_more": max(0, len(failing) - MOST_LISTED),
            "stage_title": stage_title,
        }
        return "report", views | (_drawings(self) if html else {})


def _drawings(report: Report) -> dict[str, object]:
    from markupsafe import Markup

    from bilinear.reporting.coefficients import coefficients, flow, flow_note
    from bilinear.reporting.pages import accuracy_charts
    from bilinear.reporting.play import play, timeline

    s = report.scheme
    plays = [play(schedule) for schedule in report.schedules]
    equations = [_equation(line) for line in s.products]
    shown = coefficients(s.tables, equations)
    needed = {"play.js": any(played.boards for played in plays), "zoom.js": bool(shown.pictures)}
    script = "".join((templates_folder() / name).read_text(encoding="utf-8") for name, used in needed.items() if used)
    return {
        "coefficients": shown,
        "equations": equations if len(equations) <= MOST_LINES else [],
        "flows": flow(s.tables, equations, s.shared, s.subexpressions),
        "flow_note": flow_note(s.tables, s.shared),
        "timelines": [timeline(schedule) for schedule in report.schedules],
        "wrong_outputs": frozenset(equation.output for equation in s.failing),
        "charts": accuracy_charts(report.accuracy),
        "plays": plays,
        "real": not s.ring.startswith("Z/") and "[i]" not in s.ring and "sqrt(-" not in s.ring,
        "script": Markup(script),  # our own text, and the policy lets only this one run
        "script_hash": b64encode(sha256(script.encode()).digest()).decode() if script else "",
    }


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
            threads, image = kernel.threads[0] * kernel.threads[1], (len(built.image), built.cached)
            if not built.resources:
                lines.append(KernelLine(kernel.name, built.target.name, threads, None, None, None, None, *image))
                continue
            own = built.resources[0]
            registers, shared = own.registers, own.shared_bytes + kernel.shared_bytes
            spills, occupancy = own.spill_stores + own.spill_loads, built.target.occupancy(threads, registers, shared)
            lines.append(KernelLine(kernel.name, built.target.name, threads, registers, shared, spills, occupancy, *image))
    return lines


def _refusal(report: Report) -> Iterator[str]:
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


def _equation(line: ProductLine) -> str:
    """A product as one equation: `M1 = (A11 + A22) (B11 + B22) -> C11 + C22`."""
    targets = "".join(f"{' − ' if c.startswith('-') else ' + '}{_factor(c)}{block}" for block, c in line.targets)
    left, right = (f"({text})" if " " in text or text.startswith("-") else text for text in (line.left, line.right))
    goes = targets.removeprefix(" + ").replace(" − ", "−", 1) if targets.startswith(" − ") else targets.removeprefix(" + ")
    return readable(f"{line.name} = {left} · {right}") + (f"  →  {goes}" if goes else "")


def _factor(coefficient: str) -> str:
    size = coefficient.removeprefix("-")
    return "" if size == "1" else f"{readable(size)} " if size.replace("/", "").isdigit() else f"({readable(size)}) "


MOST_WIDTHS = 12  # The numbers of products of at most this many launches are listed one by one.
PROMISES = {"preserve": "never written", "restore": "restored", "consume": "consumed"}


def summary(report: Report) -> str:
    """The verdict in one sentence."""
    s = report.scheme
    if s.failing:
        many = f"{len(s.failing)}" if s.complete else f"at least {len(s.failing)}"
        return f"{many} of {s.equations} Brent equations of {s.name} {s.format} over {s.ring} fail."
    held = f"{s.name} {s.format} multiplies matrices over {s.ring}: all {s.equations} Brent equations hold{_so_far(s, ', exactly')}."
    if not report.schedules:
        return held
    t = report.schedules[0]
    if not report.proved:
        return f"The scheme {held} The schedule {t.name} is refused."
    return f"{held} The schedule {t.name} computes {t.result}{_operands(t)}."


def _so_far(s: SchemeFacts, exact: str) -> str:
    """How the equations hold: with lambda only to the order of the error, which is left."""
    return exact if not s.order else f" to order lambda{'' if s.order == 1 else f'^{s.order}'}"


def scheme_rows(s: SchemeFacts) -> Rows:
    """The facts about the scheme."""
    holding = s.equations - len(s.failing)
    down = f", coefficients down to lambda^-{s.degree}" if s.degree else ""
    rows = (
        ("scheme", f"{s.name} {s.format} over {s.ring}"),
        ("source", s.citation),
        ("Brent equations", f"{holding if s.complete else f'fewer than {holding}'} of {s.equations} hold{_so_far(s, ' (exact)')}"),
        ("holds over", ", ".join(s.valid_over)),
        ("error", f"O(lambda^{s.order}){down}" if s.order else ""),
        ("additions", f"{sum(s.additions)} = {s.additions[0]} on A + {s.additions[1]} on B + {s.additions[2]} on C"),
        ("scalings", str(s.scalings) if s.scalings else ""),
        ("exponent", f"{s.exponent:.4f}"),
        ("growth factor", f"{s.growth} a level" if s.growth else ""),
        ("scheme hash", s.sha256),
    )
    return tuple(row for row in rows if row[1])


def schedule_rows(t: ScheduleFacts) -> Rows:
    """The facts about the schedule as written."""
    own = ", ".join(space.name for space in t.spaces[3:])
    computes = t.result + (f", written as {t.written}" if t.written else "") + ", by products that are not the scheme's" * t.direct
    rows = [
        ("schedule", f"{t.name}: {'in place' if t.in_place else f'with {own} beside A, B and C'}"),
        ("computes", computes),
        ("source", t.citation),
        ("recursion", _recursion(t)),
    ]
    for fate in t.fates:
        rows.append((f"{fate.operand} afterwards", _fate(fate) if fate.operand in _written(t) else "as it was: never written"))
    rows += [("shapes", shape.statement) for shape in t.shapes]
    for costs in t.costs:
        groups = ", ".join(map(str, costs.groups))
        rows += [
            ("live blocks", f"{costs.live_blocks} at most"),
            ("longest chain", numbered(costs.chain, "step")),
            ("products a stage", f"{', '.join(map(str, costs.widths))} as written"),
            ("groups", f"{groups} at least: so many of them add to one block of C" if max(costs.groups, default=1) > 1 else ""),
            ("memory passes", str(costs.passes)),
        ]
    return tuple(row for row in rows if row[1])


def standing_rows(report: Report) -> Rows:
    """How the scheme stands among known ones, and which proof assistant accepted the theorems, now or on record."""
    rows = ("rank", report.known), ("same as", report.same_as), ("accepted by", report.accepted_by)
    return tuple((label, told) for label, told in rows if told)


def lowered_rows(low: LoweredFacts) -> Rows:
    """The costs of the schedule as it runs."""
    launches = numbered(low.launches, "launch", "launches")
    each = ", ".join(map(str, low.widths))
    if low.colours > MOST_WIDTHS:
        each = f"{min(low.widths)} to {max(low.widths)} of {low.products}"
    why = (
        "they add to C atomically, so that rounding differs from call to call"
        if low.contended
        else "no two of a launch add to one block of C"
    )
    return (
        ("inputs", PROMISES[low.inputs]),
        ("as it runs", f"{numbered(low.levels, 'level')} in {launches}"),
        ("launched at once", f"{each} products: {why}"),
        ("sums move", f"{low.sums_traffic:g} N^2 elements"),
        ("workspace", f"{low.workspace:g} N^2 elements" if low.workspace else "nothing beyond A, B, C"),
        ("schedule hash", low.sha256),
    )


def accuracy_table(report: Report) -> Table:
    """Header and rows of the error table; empty without facts."""
    if not report.accuracy:
        return ()
    header = ("type", "levels", "growth", "always", "x classical", "likely", "x classical", "drift a call")
    classical = {a.dtype: a for a in report.accuracy if not a.levels}
    rows = []
    for a in sorted(report.accuracy, key=lambda a: (a.dtype, a.levels)):
        base = classical.get(a.dtype)
        always, likely = (f"{a.deterministic:.1e}", f"{a.probabilistic:.1e}")
        times = ("-", "-") if base is None else (_times(a.deterministic, base.deterministic), _times(a.probabilistic, base.probabilistic))
        rows.append(
            (a.dtype, str(a.levels), f"{a.growth:g}", always, times[0], likely, times[1], "-" if a.drift is None else f"{a.drift:.1e}")
        )
    return header, *rows


def _times(value: float, classical: float) -> str:
    return f"{value / classical:.3g}" if classical else "-"


def accuracy_notes(report: Report) -> tuple[str, ...]:
    """The units of the error table, and how many levels keep the requested accuracy; empty without facts."""
    if not report.accuracy:
        return ()
    inners = ", ".join(dict.fromkeys(str(a.inner) for a in report.accuracy))
    confidences = ", ".join(dict.fromkeys(f"{a.confidence:.4g}" for a in report.accuracy))
    held = (
        f"always: holds for all data; likely: with probability {confidences}; x classical: times that of the classical multiply, 0 levels"
    )
    units = f"errors: the largest of an element of C, in units of max|A| * max|B|, K = {inners}"
    drift = "drift: of a restored block, in units of the largest entry of the blocks that it met"
    has_drift = any(a.drift is not None for a in report.accuracy)
    return held, units, *([drift] if has_drift else []), *map(_levels_kept, sorted(report.levels_for, key=lambda kept: kept.dtype))


def _levels_kept(kept: LevelsKept) -> str:
    """`levels that keep an error of 0.001 (float32): 2 always, 3 with probability 0.99`."""
    always, likely = ("none" if levels is None else str(levels) for levels in (kept.always, kept.likely))
    looked = f" ({kept.looked} were looked at)" if kept.looked in (kept.always, kept.likely) else ""
    return f"levels that keep {kept.accuracy:g} ({kept.dtype}): {always} always, {likely} with probability {kept.confidence:.4g}{looked}"


def kernel_table(kernels: Sequence[KernelLine]) -> Table:
    """Header and rows of the built kernels; empty if there are none."""
    if not kernels:
        return ()
    header = ("kernel", "built for", "threads", "registers", "shared B", "occupancy", "spilled to memory", "image B")
    rows = []
    for k in kernels:
        numbers = ("-" if number is None else str(number) for number in (k.registers, k.shared_bytes))
        blocks, share, limit = k.occupancy or (0, 0.0, "")
        occupancy = f"{share:.0%}, {blocks} block{'s' * (blocks != 1)} by {limit}" if k.occupancy else "-"
        # a thread spills for want of registers, which the launch bounds limit, so that several blocks run at once
        spilled = f"{k.spills} B a thread, which may have {k.registers} registers" if k.spills else "-" if k.spills is None else "none"
        rows.append((k.kernel, k.architecture, str(k.threads), *numbers, occupancy, spilled, str(k.image_bytes)))
    return header, *rows


def fate_lines(t: ScheduleFacts) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """How an operand that is not restored may be recovered, or why it cannot: a heading and lines for each."""
    lines: list[tuple[str, tuple[str, ...]]] = []
    recovered = [fate for fate in t.fates if fate.restoring]
    if len({fate.restoring for fate in recovered}) < len(recovered):  # one list of steps for both
        told = ", ".join(f"{fate.operand} is {_fate(fate)}" for fate in recovered)
        lines.append((f"{told}: these steps bring both back, in this order", recovered[0].restoring))
        recovered = []
    for fate in t.fates:
        order = ", in this order" if len(fate.restoring) > 1 else ""
        found = (
            (f"this brings it back{order}", fate.restoring if fate in recovered else ()),
            ("changes that leave no trace, at any input", fate.confused),
            ("two inputs that end in one state", fate.counterexample),
        )
        lines += [(f"{fate.operand} is {_fate(fate)}: {title}", details) for title, details in found if details]
    return tuple(lines)


def _fate(fate: OperandFate) -> str:
    if fate.divisor:
        return f"{fate.verdict} where {fate.divisor} can be divided by"
    if fate.lost_dimensions:
        return f"{fate.verdict} in {numbered(fate.lost_dimensions, 'dimension')}"
    return f"{fate.verdict}, not determined at every input" if fate.verdict == LOST else fate.verdict


def _written(t: ScheduleFacts) -> set[str]:
    spaces = {block: space.name for space in t.spaces for block in space.blocks}
    return {spaces[state.block] for stage in t.stages for state in stage.states if state.kind != "original"}


def _recursion(t: ScheduleFacts) -> str:
    if t.recursive:
        return "safe in place at every level"
    if (not {"A", "B"} & _written(t)) and not t.in_place:
        return "by workspace"
    return "not safe in place" + (f": {t.why_not_recursive}" if t.why_not_recursive else "")


def _operands(t: ScheduleFacts) -> str:
    written = _written(t)
    kept = [fate.operand for fate in t.fates if fate.operand not in written]
    back = [name for name in t.restores if name in written]
    facts = (
        ["in place"] * t.in_place + [f"never writes {' or '.join(kept)}"] * bool(kept) + [f"gives {' and '.join(back)} back"] * bool(back)
    )
    return f"{'' if t.in_place else ' and'} {' and '.join(facts)}" if facts else ""


def numbered(count: int, one: str, several: str = "") -> str:
    """A count and what is counted: `1 level`, `7 launches`."""
    return f"{count} {one if count == 1 else several or one + 's'}"
