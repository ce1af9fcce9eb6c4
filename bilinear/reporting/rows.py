"""The facts of a report as (label, value) rows, shared by text, Markdown and HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bilinear.analysis.accuracy import LevelsKept
from bilinear.reporting.facts import KernelLine, LoweredFacts, ReportFacts, ScheduleFacts, SchemeFacts
from bilinear.verify.facts import LOST, OperandFate

Rows = tuple[tuple[str, str], ...]

MOST_WIDTHS = 12
"""The numbers of products of at most this many launches are listed one by one."""
PROMISES = {"preserve": "never written", "restore": "restored", "consume": "consumed"}


def summary(report: ReportFacts) -> str:
    """The verdict in one sentence."""
    s = report.scheme
    if s.failing:
        many = f"{len(s.failing)}" if s.complete else f"at least {len(s.failing)}"
        return f"{many} of {s.equations} Brent equations of {s.name} {s.format} over {s.ring} fail."
    error = f" up to terms of order {s.order} in lambda" if s.order else ""
    held = f"{s.name} {s.format} multiplies matrices over {s.ring}{error}: all {s.equations} Brent equations hold, exactly."
    if not report.schedules:
        return held
    t = report.schedules[0]
    if not report.proved:
        return f"The scheme {held} The schedule {t.name} is refused."
    return f"{held} The schedule {t.name} computes {t.result}{_operands(t)}."


def scheme_rows(s: SchemeFacts) -> Rows:
    """The facts about the scheme."""
    return _told(_scheme_rows(s))


def schedule_rows(t: ScheduleFacts) -> Rows:
    """The facts about the schedule as written."""
    return _told(_schedule_rows(t))


def acceptance_rows(report: ReportFacts) -> Rows:
    """Which proof assistant accepted the theorems, now or on record."""
    return (("accepted by", report.accepted_by),) if report.accepted_by else ()


def lowered_rows(low: LoweredFacts) -> Rows:
    """The costs of the schedule as it runs."""
    launches = _many(low.launches, "launch", "launches")
    each = ", ".join(map(str, low.widths))
    if low.colours > MOST_WIDTHS:
        each = f"{min(low.widths)} to {max(low.widths)} of {low.products}"
    return (
        ("inputs", PROMISES[low.inputs]),
        ("as it runs", f"{_many(low.levels, 'level')} in {launches}"),
        ("launched at once", f"{each} products: no two of a launch add to one block of C"),
        ("sums move", f"{low.sums_traffic:g} N^2 elements"),
        ("workspace", f"{low.workspace:g} N^2 elements" if low.workspace else "nothing beyond A, B, C"),
        ("schedule hash", low.sha256),
    )


def accuracy_table(report: ReportFacts) -> tuple[tuple[str, ...], ...]:
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
        rows.append((a.dtype, str(a.levels), f"{a.growth:g}", always, times[0], likely, times[1], _measure(a.drift)))
    return header, *rows


def _times(value: float, classical: float) -> str:
    """How many times the classical multiply's error a value is."""
    return f"{value / classical:.3g}" if classical else "-"


def accuracy_notes(report: ReportFacts) -> tuple[str, ...]:
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


def kernel_table(kernels: Sequence[KernelLine]) -> tuple[tuple[str, ...], ...]:
    """Header and rows of the built kernels; empty if there are none."""
    if not kernels:
        return ()
    header = ("kernel", "built for", "threads", "registers", "shared B", "spilled to memory", "image B")
    rows = (
        (k.kernel, k.architecture, str(k.threads), _count(k.registers), _count(k.shared_bytes), _spilled(k), str(k.image_bytes))
        for k in kernels
    )
    return header, *rows


def _spilled(k: KernelLine) -> str:
    """What a thread keeps in memory for want of registers: the launch bounds limit these, so that several blocks run at once."""
    if not k.spills:
        return "-" if k.spills is None else "none"
    return f"{k.spills} B a thread, which may have {k.registers} registers"


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


def stage_title(kind: str, contended: Sequence[str]) -> str:
    """A stage's kind, and the blocks to which several of its products are added."""
    return kind + (f" (contended: {', '.join(contended)})" if contended else "")


def _told(rows: Iterator[tuple[str, str]]) -> Rows:
    return tuple((label, value) for label, value in rows if value)


def _scheme_rows(s: SchemeFacts) -> Iterator[tuple[str, str]]:
    yield "scheme", f"{s.name} {s.format} over {s.ring}"
    yield "source", s.citation
    holding = s.equations - len(s.failing)
    yield "Brent equations", f"{holding if s.complete else 'fewer than ' + str(holding)} of {s.equations} hold (exact)"
    yield "holds over", ", ".join(s.valid_over)
    down = f", coefficients down to lambda^-{s.degree}" if s.degree else ""
    yield "error", f"O(lambda^{s.order}){down}" if s.order else ""
    yield "additions", f"{sum(s.additions)} = {s.additions[0]} on A + {s.additions[1]} on B + {s.additions[2]} on C"
    yield "scalings", str(s.scalings) if s.scalings else ""
    yield "exponent", f"{s.exponent:.4f}"
    yield "growth factor", f"{s.growth} a level" if s.growth else ""
    yield "scheme hash", s.sha256


def _schedule_rows(t: ScheduleFacts) -> Iterator[tuple[str, str]]:
    own = ", ".join(space.name for space in t.spaces[3:])
    yield "schedule", f"{t.name}: {'in place' if t.in_place else f'with {own} beside A, B and C'}"
    yield (
        "computes",
        t.result + (f", written as {t.written}" if t.written else "") + (", by products that are not the scheme's" if t.direct else ""),
    )
    yield "source", t.citation
    yield "recursion", _recursion(t)
    for fate in t.fates:
        yield f"{fate.operand} afterwards", _fate(fate) if fate.operand in _written(t) else "as it was: never written"
    for shape in t.shapes:
        yield "shapes", shape.statement
    for costs in t.costs:
        yield "live blocks", f"{costs.live_blocks} at most"
        yield "longest chain", _many(costs.chain, "step")
        yield "products a stage", f"{', '.join(map(str, costs.widths))} as written"
        yield "memory passes", str(costs.passes)


def _fate(fate: OperandFate) -> str:
    """The verdict on an operand, with its conditions."""
    if fate.divisor:
        return f"{fate.verdict} where {fate.divisor} can be divided by"
    if fate.lost_dimensions:
        return f"{fate.verdict} in {_many(fate.lost_dimensions, 'dimension')}"
    return f"{fate.verdict}, not determined at every input" if fate.verdict == LOST else fate.verdict


def _preserves(t: ScheduleFacts) -> bool:
    """True if neither A nor B is written."""
    return not {"A", "B"} & _written(t)


def _written(t: ScheduleFacts) -> set[str]:
    """The spaces that some stage writes."""
    spaces = {block: space.name for space in t.spaces for block in space.blocks}
    return {spaces[state.block] for stage in t.stages for state in stage.states if state.kind != "original"}


def _recursion(t: ScheduleFacts) -> str:
    if t.recursive:
        return "safe in place at every level"
    if _preserves(t) and not t.in_place:
        return "by workspace"
    return "not safe in place" + (f": {t.why_not_recursive}" if t.why_not_recursive else "")


def _operands(t: ScheduleFacts) -> str:
    written = _written(t)
    kept = [fate.operand for fate in t.fates if fate.operand not in written]
    back = [name for name in t.restores if name in written]
    facts = (
        ["in place"] * t.in_place + [f"never writes {' or '.join(kept)}"] * bool(kept) + [f"gives {' and '.join(back)} back"] * bool(back)
    )
    if not t.in_place:
        return f" and {' and '.join(facts)}" if facts else ""
    return f" {' and '.join(facts)}"


def _many(count: int, one: str, several: str = "") -> str:
    return f"{count} {one if count == 1 else several or one + 's'}"


def _measure(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}"


def _count(value: int | None) -> str:
    return "-" if value is None else str(value)
