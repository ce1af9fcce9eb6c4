"""Turn the statements of a file into its schemes and schedules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bilinear.algebra.combined import AnyScheme
from bilinear.frontend.atoms import grid
from bilinear.frontend.compositions import Composer, FindScheme
from bilinear.frontend.digits import digits_of, read_digit_scheme, read_digits
from bilinear.frontend.headers import read_claims
from bilinear.frontend.other_maps import is_of_complex, read_complex, read_gram
from bilinear.frontend.reporter import Reporter, shown
from bilinear.frontend.scaled_stages import ScaledStageReader
from bilinear.frontend.schemes import read_citation, read_scheme
from bilinear.frontend.stages import StageReader
from bilinear.frontend.syntax import (
    BasisStatement,
    Broken,
    Citation,
    CompositionStatement,
    DigitsHeader,
    Header,
    ScheduleHeader,
    SchemeHeader,
    StageStatement,
    Statement,
    TableRow,
    Update,
    Word,
)
from bilinear.ir.complex_scheme import ComplexAlgorithm
from bilinear.ir.digits import DigitScheme, Representation, residues
from bilinear.ir.gram import GramScheme
from bilinear.ir.schedule import AnySchedule, Result, Schedule
from bilinear.ir.scheme import Scheme


@dataclass(frozen=True)
class ResolvedFile:
    """The schemes and the schedules of one file, in order.

    `digits` are the schemes that multiply digits, `grams` those for A*A^T, `complexes` those of complex numbers.
    """

    schemes: tuple[Scheme, ...]
    schedules: tuple[AnySchedule, ...]
    digits: tuple[DigitScheme, ...] = ()
    grams: tuple[GramScheme, ...] = ()
    complexes: tuple[ComplexAlgorithm, ...] = ()


@dataclass(frozen=True)
class _Item:
    """A header and the statements up to the next one."""

    header: Header
    body: tuple[Statement, ...]


def resolve(statements: Sequence[Statement], find_scheme: FindScheme, reporter: Reporter, with_schedules: bool = True) -> ResolvedFile:
    """The meaning of a file's statements: first digits and schemes written out, then compositions, then schedules."""
    items = _items(statements, reporter)
    _find_duplicates(items, reporter)
    schedules: list[AnySchedule] = []
    unsure = any(isinstance(s, Broken) and s.header for s in statements)
    schemes = _written_out(items, unsure, reporter)
    compositions = {i.header.name.text: (i.header, i.body) for i in reversed(items) if isinstance(i.header, CompositionStatement)}
    composer = Composer(schemes, compositions, lambda word, to: find_scheme(word, Reporter() if unsure else to), reporter)
    for item in items:
        if isinstance(item.header, CompositionStatement) and not reporter.full:
            composer.named(item.header.name)
    for item in items:
        if not isinstance(item.header, ScheduleHeader) or not with_schedules or reporter.full or _is_claimed(item.header, items, reporter):
            continue
        schedule = _schedule(item.header, item.body, _of_blocks(composer.named(item.header.scheme), item.header, reporter), reporter)
        if schedule is not None:
            schedules.append(schedule)
    order = dict.fromkeys(item.header.name.text for item in items if not isinstance(item.header, ScheduleHeader))
    found = [schemes.get(name) for name in order]
    own = tuple(scheme for scheme in found if isinstance(scheme, Scheme))
    digits = tuple(scheme for scheme in found if isinstance(scheme, DigitScheme))
    complexes = tuple(scheme for scheme in found if isinstance(scheme, ComplexAlgorithm))
    return ResolvedFile(own, tuple(schedules), digits, _grams(items, reporter), complexes)


def _is_claimed(header: ScheduleHeader, items: Sequence[_Item], reporter: Reporter) -> bool:
    """Whether a schedule is of a scheme with claims, of A*A^T or of complex numbers, which is reported (E222)."""
    name, schemes = header.scheme.text, (i.header for i in items if isinstance(i.header, SchemeHeader))
    found = next((own for own in schemes if own.claims is not None and own.name.text == name), None)
    if found is not None:
        hint = "a schedule is of a scheme for two matrices, such as strassen"
        what = "multiplies complex numbers, and has" if is_of_complex(found) else "computes A*A^T, which has"
        reporter.report("E222", f"{shown(name)} {what} no schedules", header.scheme.span, "not of two matrices", hint=hint)
    return found is not None


def _grams(items: Sequence[_Item], reporter: Reporter) -> tuple[GramScheme, ...]:
    """The schemes for A*A^T. Nothing else refers to them: no schedule, and no composition."""
    found: list[GramScheme | None] = []
    for item in items:
        header = item.header
        if isinstance(header, SchemeHeader) and header.claims is not None and not is_of_complex(header) and not reporter.full:
            found.append(read_gram(header, header.claims, item.body, reporter))
    return tuple(gram for gram in found if gram is not None)


def _written_out(items: Sequence[_Item], unsure: bool, reporter: Reporter) -> dict[str, AnyScheme | None]:
    """The schemes that are written out, by name, but for those for A*A^T, and those of residues, which need not be.

    `unsure` says that a header is broken.
    """
    known: dict[str, Representation | None] = {}
    schemes: dict[str, AnyScheme | None] = {}
    for item in items:
        if isinstance(item.header, DigitsHeader):
            representation = read_digits(item.header, item.body, reporter)
            known.setdefault(item.header.name.text, representation)
            if representation is not None and representation.is_modular:
                schemes.setdefault(representation.name, residues(representation))
    for item in items:
        if not isinstance(item.header, SchemeHeader):
            continue
        if is_of_complex(item.header) and not reporter.full:
            schemes.setdefault(item.header.name.text, read_complex(item.header, item.body, reporter))
        if item.header.claims is not None:
            continue
        over = digits_of(item.header, known, unsure)
        digits = known.get(over)
        scheme: AnyScheme | None = None
        if not over:
            scheme = read_scheme(item.header, item.body, reporter, known)
        elif digits is not None:
            scheme = read_digit_scheme(item.header, item.body, digits, reporter)
        schemes.setdefault(item.header.name.text, scheme)
    return schemes


def _of_blocks(scheme: AnyScheme | None, header: ScheduleHeader, reporter: Reporter) -> Scheme | None:
    """The scheme of a schedule; one that multiplies digits or complex numbers is reported (E222)."""
    if scheme is None or isinstance(scheme, Scheme):
        return scheme
    numbers = "digits" if isinstance(scheme, DigitScheme) else "complex numbers"
    hint = "a schedule is of a scheme of blocks, such as strassen"
    reporter.report("E222", f"{shown(scheme.name)} multiplies {numbers}, not blocks", header.scheme.span, "not of blocks", hint=hint)
    return None


def _items(statements: Sequence[Statement], reporter: Reporter) -> list[_Item]:
    """Group statements under their headers. Those before any header are reported once (E217); those under a broken one are dropped."""
    items: list[tuple[Header, list[Statement]]] = []
    outside, dropped = False, False
    for statement in statements:
        if isinstance(statement, Header):
            items.append((statement, []))
            dropped = False
        elif isinstance(statement, Broken) and statement.header:
            dropped = True
        elif items and not dropped:
            items[-1][1].append(statement)
        elif not (outside or dropped or isinstance(statement, Broken)):
            outside = True
            hint = "begin with a header, such as: scheme strassen <2,2,2;7>"
            reporter.report("E217", "this belongs to no scheme and no schedule", statement.span, "no header before it", hint=hint)
    return [_Item(header, tuple(body)) for header, body in items]


def _find_duplicates(items: Sequence[_Item], reporter: Reporter) -> None:
    """Report names that two schemes (digits are among them), or two schedules, of a file share (E227)."""
    first: dict[tuple[str, str], Word] = {}
    for item in items:
        name, kind = item.header.name, "schedule" if isinstance(item.header, ScheduleHeader) else "scheme"
        other = first.setdefault((kind, name.text), name)
        if other is not name:
            note = f"the first is at {other.span}"
            what = "representation" if isinstance(item.header, DigitsHeader) else kind
            reporter.report("E227", f"a second {what} {shown(name.text)}", name.span, "named again", note=note, hint="rename one of them")


def _schedule(header: ScheduleHeader, body: Sequence[Statement], scheme: Scheme | None, reporter: Reporter) -> AnySchedule | None:
    """The schedule of a header and its statements; None if an error was reported."""
    claims = read_claims(header.claims, reporter)
    citation = read_citation(body, reporter)
    _find_strangers(body, reporter)
    if scheme is None:
        return None
    blocks = grid(scheme.m, scheme.k, scheme.n)
    scaled = claims.result is not None or claims.temporaries
    reader = ScaledStageReader(blocks, reporter, scheme.ring, claims.temporaries) if scaled else StageReader(blocks, reporter, scheme.ring)
    stages = [reader.read(s) for s in body if isinstance(s, StageStatement) and not reporter.full]
    if not stages and not any(isinstance(s, Broken) for s in body):
        hint = "write its stages: stage { A21 += A22 }"
        reporter.report("E220", f"schedule {shown(header.name.text)} has no stages", header.name.span, "empty", hint=hint)
    schedule = Schedule(
        header.name.text,
        header.scheme.text,
        scheme.m,
        scheme.k,
        scheme.n,
        tuple(s for s in stages if s is not None),
        workspaces=tuple(claims.temporaries.values()),
        in_place=claims.in_place,
        restores=claims.restores,
        citation=citation,
        span=header.span,
        ring=scheme.ring,
    )
    return schedule.scaled(schedule.stages, schedule.workspaces, claims.result or Result()) if scaled else schedule


def _find_strangers(body: Sequence[Statement], reporter: Reporter) -> None:
    """Report the first row or equation in a schedule (E218)."""
    for statement in body:
        if isinstance(statement, TableRow | Update | BasisStatement):
            what = {TableRow: "a row of a table", Update: "an equation", BasisStatement: "a basis"}[type(statement)]
            hint = "the steps of a schedule stand in stages: stage { A21 += A22 }"
            reporter.report("E218", f"{what} in a schedule", statement.span, "belongs to a scheme", hint=hint)
            return
        assert isinstance(statement, StageStatement | Citation | Broken)
