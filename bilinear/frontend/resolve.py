"""Turn the statements of a file into its schemes and schedules: those written out, those of other files, and compositions of both."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from bilinear.algebra.composition import (
    AnyScheme,
    classical,
    direct_sum,
    lies_over,
    rotate,
    tensor,
    tensor_complex,
    tensor_digits,
    transpose,
)
from bilinear.algebra.maps import maps_of, number_of_terms
from bilinear.errors import BilinearError
from bilinear.frontend.files import COMPLEX, DIGITS, SUFFIX, Looks, own, shipped, split
from bilinear.frontend.messages import Reporter, did_you_mean, listed, shown
from bilinear.frontend.names import grid, read_numbers, read_ring
from bilinear.frontend.other_maps import digits_of, is_of_complex, read_complex, read_digit_scheme, read_digits, read_gram
from bilinear.frontend.parse import MOST_NESTED, NESTED, parse_statements
from bilinear.frontend.schemes import read_citation, read_scheme
from bilinear.frontend.stages import ScaledStageReader, StageReader, read_claims
from bilinear.frontend.syntax import (
    BasisStatement,
    Broken,
    Citation,
    CompositionStatement,
    DigitsHeader,
    Expression,
    Header,
    ScheduleHeader,
    SchemeHeader,
    StageStatement,
    Statement,
    SymmetryCall,
    TableRow,
    Update,
    Word,
)
from bilinear.ir.complex_scheme import ComplexAlgorithm
from bilinear.ir.digits import DigitScheme, Representation, residues
from bilinear.ir.gram import GramScheme
from bilinear.ir.schedule import AnySchedule, Result, Schedule
from bilinear.ir.scheme import Places, Scheme
from bilinear.source import Span

MOST_FILES = 50  # The longest chain of files that refer to each other.


class References:
    """The schemes that a file names, `found` so far (None: missing); `looks` records files, `outer` are the referring file's."""

    def __init__(self, path: Path, looks: Looks, outer: References | None = None) -> None:
        self.path = path
        self._looks = looks
        self.found: dict[str, AnyScheme | None] = {}
        self._open: tuple[Path, ...] = (*(outer._open if outer else ()), path.resolve())
        self._read: dict[Path, tuple[AnyScheme, ...]] = outer._read if outer else {}

    def find(self, word: Word, reporter: Reporter) -> AnyScheme | None:
        """The scheme that a word names; None if there is none, which is reported once (E221, E222, E645)."""
        if word.text not in self.found:
            place = self._quoted(word, reporter) if word.text.startswith('"') else self._named(word, reporter)
            self.found[word.text] = self._scheme(word, place, reporter) if place is not None else None
        return self.found[word.text]

    def _named(self, word: Word, reporter: Reporter) -> Path | None:
        known = own() | shipped() | shipped(DIGITS) | shipped(COMPLEX)
        places = [self.path.parent / f"{word.text}{SUFFIX}", *([known[word.text]] if word.text in known else [])]
        found = [place for place in places if len(word.text) < 200 and self._looks.is_file(place)]
        other = next((place for place in found if place.resolve() != self._open[-1]), None)
        if other is None and found:
            message = f"{shown(word.text)} names this file, which holds no such scheme"
            reporter.report("E222", message, word.span, "refers to itself", hint="write the scheme into this file")
        elif other is None:
            hint = did_you_mean(word.text, known) or f"known are the files beside this one, NAME{SUFFIX}, and what `bilinear list` shows"
            reporter.report("E221", f"there is no scheme {shown(word.text)}", word.span, "not known", hint=hint)
        return other

    def _quoted(self, word: Word, reporter: Reporter) -> Path | None:
        """The file of a quoted path, relative to the folder of this file."""
        asked, _ = split(word.text[1:-1])
        place = self.path.parent / asked
        try:
            is_there = self._looks.is_file(place)
        except (OSError, ValueError):
            is_there = False
        if is_there and place.suffix == SUFFIX:
            return place
        if is_there:
            hint = f"`bilinear import` writes a published table to a {SUFFIX} file"
            reporter.report("E221", f"{shown(asked, 200)} is not a {SUFFIX} file", word.span, "not read here", hint=hint)
            return None
        hint = f'write the path of a {SUFFIX} file, from here: "parts/mine{SUFFIX}", or "parts/mine{SUFFIX}:NAME" for one of its schemes'
        reporter.report("E221", f"there is no file {shown(asked, 200)}", word.span, "not found", hint=hint)
        return None

    def _scheme(self, word: Word, path: Path, reporter: Reporter) -> AnyScheme | None:
        if path.resolve() in self._open or len(self._open) >= MOST_FILES:
            why = "refers back to this file" if path.resolve() in self._open else f"is referred to through {MOST_FILES} files"
            reporter.report("E645", f"{path.name} {why}", word.span, "a circle", hint="write the schemes of a circle into one file")
            return None
        try:
            schemes = self._schemes(path)
        except BilinearError as error:
            reporter.found += error.diagnostics
            return None
        asked = split(word.text[1:-1])[1] if word.text.startswith('"') else word.text
        named = [s for s in schemes if s.name == asked]
        if not named and (len(schemes) != 1 or (asked and word.text.startswith('"'))):
            held = f"it holds {listed(s.name for s in schemes)}" if schemes else "it holds no scheme, and a schedule is made of a scheme"
            message = f"{path.name} has no scheme {shown(asked)}" if asked else f"{path.name} has not one scheme"
            reporter.report("E222", message, word.span, "not a scheme", note=held)
            return None
        return named[0] if named else schemes[0]

    def _schemes(self, path: Path) -> tuple[AnyScheme, ...]:
        place = path.resolve()
        if place not in self._read:
            reporter = Reporter()
            statements = parse_statements(self._looks.read(path), reporter)
            module = resolve(statements, References(path, self._looks, self).find, reporter, with_schedules=False)
            reporter.finish()
            self._read[place] = (*module.schemes, *module.digits, *module.complexes)
        return self._read[place]


Made = TypeVar("Made", Scheme, DigitScheme, ComplexAlgorithm)
FindScheme = Callable[[Word, Reporter], AnyScheme | None]
"""Finds the scheme that a word names in other files (a quoted word: in that file); reports it and returns None if there is none."""

MOST_TERMS = 250_000  # The most terms in the sums of all intermediate schemes of a file's compositions.
_FORMAT_ALONE = re.compile(r"<\s*([1-9][0-9]{0,8})\s*,\s*([1-9][0-9]{0,8})\s*,\s*([1-9][0-9]{0,8})\s*>")


@dataclass
class Composer:
    """The schemes of one file by name: those written out, and the compositions, each built on first use."""

    _known: MutableMapping[str, AnyScheme | None]
    _compositions: Mapping[str, tuple[CompositionStatement, Sequence[Statement]]]
    _find: FindScheme
    _reporter: Reporter
    _open: list[str] = field(default_factory=list)
    _terms: int = 0

    def named(self, word: Word) -> AnyScheme | None:
        """The scheme that a word names, in this file or elsewhere; None if there is none, which is reported."""
        name = word.text
        if name in self._known:
            return self._known[name]
        if name not in self._compositions:
            return self._find(word, self._reporter)
        if name in self._open:
            circle = " -> ".join([*self._open[self._open.index(name) :], name])
            self._reporter.report("E645", f"{shown(name)} is made of itself", word.span, "a circle", note=circle[:200])
            return None
        if len(self._open) >= MOST_NESTED:
            return self._too_deep(word.span)
        self._open.append(name)
        self._known[name] = self._composed(*self._compositions[name])
        self._open.pop()
        return self._known[name]

    def _composed(self, header: CompositionStatement, body: Sequence[Statement]) -> AnyScheme | None:
        before = self._reporter.count
        citation = read_citation(body, self._reporter)
        stranger = next((s for s in body if not isinstance(s, Citation | Broken)), None)
        if stranger is not None:
            hint = "give what is written out a header of its own"
            self._reporter.report("E646", "a composition has nothing but a source", stranger.span, "not expected", hint=hint)
        numbers = read_numbers(header.format, self._reporter) if header.format is not None else None
        ring = read_ring(header.ring, self._reporter) if header.ring is not None else None
        scheme = self._value(header.value)
        if scheme is None or self._reporter.count > before or any(isinstance(s, Broken) for s in body):
            return None
        sizes = (scheme.m, scheme.k, scheme.n) if isinstance(scheme, Scheme) else scheme.sizes
        if header.format is not None and numbers != (*sizes, scheme.rank):
            message = f"{shown(header.name.text)} is {scheme.format}, its header says {header.format.text}"
            self._reporter.report("E644", message, header.format.span, "another format", hint=f"write {scheme.format}, or leave it out")
            return None
        if ring is not None and not (isinstance(scheme, Scheme) and lies_over(scheme, ring)):
            ring_of = scheme.core if isinstance(scheme, ComplexAlgorithm) else scheme
            own = ring_of.representation.name if isinstance(ring_of, DigitScheme) else ring_of.ring
            message = f"{shown(header.name.text)} is over {own}, not over {ring}"
            self._reporter.report("E640", message, header.ring.span if header.ring else None, "another ring", hint="leave out the ring")
            return None
        name, text = header.name.text, citation or scheme.citation
        if isinstance(scheme, ComplexAlgorithm):
            return replace(scheme, name=name, citation=text)
        place = header.value.span
        places = Places(header.span, (place,) * scheme.rank, (place,) * (sizes[0] * sizes[2]))
        if isinstance(scheme, DigitScheme):
            return replace(scheme, name=name, citation=text, places=places)
        return replace(scheme, name=name, ring=ring or scheme.ring, citation=text, places=places)

    def _value(self, value: Expression) -> AnyScheme | None:
        if isinstance(value, Word):
            return self._operand(value)
        if isinstance(value, SymmetryCall):
            inner = self._of_blocks(self._value(value.argument), value.function)
            turn = {"rotate": rotate, "transpose": transpose}[value.function.text]
            return self._made(lambda: turn(inner), value.function.span) if inner is not None else None
        made = self._value(value.first)
        for operator, part in value.rest:
            if self._reporter.full:
                return None
            other = self._value(part)
            made = self._joined(made, other, operator) if made is not None and other is not None else None
        return made

    def _joined(self, first: AnyScheme, second: AnyScheme, operator: Word) -> AnyScheme | None:
        letter, both = operator.text.strip("( \t+)"), (first, second)
        if letter == "x" and any(isinstance(x, ComplexAlgorithm) for x in both):
            return self._made(lambda: tensor_complex(first, second), operator.span)
        if letter == "x" and any(isinstance(x, DigitScheme) for x in both):
            return self._made(lambda: tensor_digits(first, second), operator.span)
        one, other = self._of_blocks(first, operator), self._of_blocks(second, operator)
        if one is None or other is None:
            return None
        make = (lambda: tensor(one, other)) if letter == "x" else (lambda: direct_sum(one, other, letter))
        return self._made(make, operator.span)

    def _of_blocks(self, scheme: AnyScheme | None, operator: Word) -> Scheme | None:
        why, hint = f"and {operator.text} joins schemes of blocks", "(x) composes it with block schemes: strassen (x) {}"
        return _of_blocks(scheme, "E236", why, operator.span, hint, self._reporter)

    def _made(self, make: Callable[[], Made], place: Span) -> Made | None:
        """The result of an operation. Its errors, and excessive work (E641), are reported at this place."""
        try:
            made = make()
        except BilinearError as error:
            for d in error.diagnostics:
                self._reporter.report(d.code, d.message, place, "cannot be composed", note="; ".join(d.notes), hint="; ".join(d.hints))
            return None
        parts: tuple[Scheme, ...] = (made,) if isinstance(made, Scheme) else made.parts
        self._terms += sum(number_of_terms(linear) for scheme in parts for linear in maps_of(scheme))
        if self._terms > MOST_TERMS:
            note = f"at most {MOST_TERMS} terms are composed in a file"
            self._reporter.report("E641", "the compositions of this file are too many", place, "up to here", note=note)
            return None
        return made

    def _operand(self, word: Word) -> AnyScheme | None:
        if word.text == NESTED:
            return self._too_deep(word.span)
        if not word.text.startswith("<"):
            return self.named(word)
        match = _FORMAT_ALONE.fullmatch(word.text)
        if match is None:
            hint = "<2,2,3> is the classical scheme of that format, of 12 products"
            self._reporter.report("E201", f"{shown(word.text)} is not a format", word.span, "expected <m,k,n>", hint=hint)
            return None
        m, k, n = map(int, match.groups())
        return self._made(lambda: classical(m, k, n), word.span)

    def _too_deep(self, place: Span) -> Scheme | None:
        hint = "name the inner part in a composition of its own"
        self._reporter.report("E647", f"compositions nest at most {MOST_NESTED} deep", place, "too deep", hint=hint)
        return None


@dataclass(frozen=True)
class ResolvedFile:
    """The schemes and schedules of a file, in order: also `digits`, `grams` for A*A^T, and `complexes` for complex numbers."""

    schemes: tuple[Scheme, ...]
    schedules: tuple[AnySchedule, ...]
    digits: tuple[DigitScheme, ...] = ()
    grams: tuple[GramScheme, ...] = ()
    complexes: tuple[ComplexAlgorithm, ...] = ()


Item = tuple[Header, tuple[Statement, ...]]  # A header and the statements up to the next one.


def resolve(statements: Sequence[Statement], find_scheme: FindScheme, reporter: Reporter, with_schedules: bool = True) -> ResolvedFile:
    """The meaning of a file's statements: first digits and schemes written out, then compositions, then schedules."""
    items = _items(statements, reporter)
    _find_duplicates(items, reporter)
    schedules: list[AnySchedule] = []
    unsure = any(isinstance(s, Broken) and s.header for s in statements)
    schemes = _written_out(items, unsure, reporter)
    compositions = {header.name.text: (header, body) for header, body in reversed(items) if isinstance(header, CompositionStatement)}
    composer = Composer(schemes, compositions, lambda word, to: find_scheme(word, Reporter() if unsure else to), reporter)
    for header, _ in items:
        if isinstance(header, CompositionStatement) and not reporter.full:
            composer.named(header.name)
    for header, body in items:
        if not isinstance(header, ScheduleHeader) or not with_schedules or reporter.full or _is_claimed(header, items, reporter):
            continue
        of, hint = header.scheme, "a schedule is of a scheme of blocks, such as strassen"
        scheme = _of_blocks(composer.named(of), "E222", "not blocks", of.span, hint, reporter)
        schedule = _schedule(header, body, scheme, reporter)
        if schedule is not None:
            schedules.append(schedule)
    order = dict.fromkeys(header.name.text for header, _ in items if not isinstance(header, ScheduleHeader))
    found = [schemes.get(name) for name in order]
    own = tuple(scheme for scheme in found if isinstance(scheme, Scheme))
    digits = tuple(scheme for scheme in found if isinstance(scheme, DigitScheme))
    complexes = tuple(scheme for scheme in found if isinstance(scheme, ComplexAlgorithm))
    return ResolvedFile(own, tuple(schedules), digits, _grams(items, reporter), complexes)


def _is_claimed(header: ScheduleHeader, items: Sequence[Item], reporter: Reporter) -> bool:
    """Whether a schedule is of a scheme with claims, of A*A^T or of complex numbers, which is reported (E222)."""
    name, schemes = header.scheme.text, (header for header, _ in items if isinstance(header, SchemeHeader))
    found = next((own for own in schemes if own.claims is not None and own.name.text == name), None)
    if found is not None:
        hint = "a schedule is of a scheme for two matrices, such as strassen"
        what = "multiplies complex numbers, and has" if is_of_complex(found) else "computes A*A^T, which has"
        reporter.report("E222", f"{shown(name)} {what} no schedules", header.scheme.span, "not of two matrices", hint=hint)
    return found is not None


def _grams(items: Sequence[Item], reporter: Reporter) -> tuple[GramScheme, ...]:
    """The schemes for A*A^T. Nothing else refers to them: no schedule, and no composition."""
    found: list[GramScheme | None] = []
    for header, body in items:
        if isinstance(header, SchemeHeader) and header.claims is not None and not is_of_complex(header) and not reporter.full:
            found.append(read_gram(header, header.claims, body, reporter))
    return tuple(gram for gram in found if gram is not None)


def _written_out(items: Sequence[Item], unsure: bool, reporter: Reporter) -> dict[str, AnyScheme | None]:
    """The schemes that are written out, by name; those for A*A^T and of residues need not be. `unsure`: a header is broken."""
    known: dict[str, Representation | None] = {}
    schemes: dict[str, AnyScheme | None] = {}
    for header, body in items:
        if isinstance(header, DigitsHeader):
            representation = read_digits(header, body, reporter)
            known.setdefault(header.name.text, representation)
            if representation is not None and representation.is_modular:
                schemes.setdefault(representation.name, residues(representation))
    for header, body in items:
        if not isinstance(header, SchemeHeader):
            continue
        if is_of_complex(header) and not reporter.full:
            schemes.setdefault(header.name.text, read_complex(header, body, reporter))
        if header.claims is not None:
            continue
        over = digits_of(header, known, unsure)
        digits = known.get(over)
        scheme: AnyScheme | None = None
        if not over:
            scheme = read_scheme(header, body, reporter, known)
        elif digits is not None:
            scheme = read_digit_scheme(header, body, digits, reporter)
        schemes.setdefault(header.name.text, scheme)
    return schemes


def _of_blocks(scheme: AnyScheme | None, code: str, why: str, place: Span, hint: str, reporter: Reporter) -> Scheme | None:
    """A scheme of blocks; one that multiplies digits or complex numbers is reported."""
    if scheme is None or isinstance(scheme, Scheme):
        return scheme
    numbers = "digits" if isinstance(scheme, DigitScheme) else "complex numbers"
    reporter.report(code, f"{shown(scheme.name)} multiplies {numbers}, {why}", place, "not of blocks", hint=hint.format(scheme.name))
    return None


def _items(statements: Sequence[Statement], reporter: Reporter) -> list[Item]:
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
    return [(header, tuple(body)) for header, body in items]


def _find_duplicates(items: Sequence[Item], reporter: Reporter) -> None:
    """Report names that two schemes (digits are among them), or two schedules, of a file share (E227)."""
    first: dict[tuple[str, str], Word] = {}
    for header, _ in items:
        name, kind = header.name, "schedule" if isinstance(header, ScheduleHeader) else "scheme"
        other = first.setdefault((kind, name.text), name)
        if other is not name:
            note = f"the first is at {other.span}"
            what = "representation" if isinstance(header, DigitsHeader) else kind
            reporter.report("E227", f"a second {what} {shown(name.text)}", name.span, "named again", note=note, hint="rename one of them")


def _schedule(header: ScheduleHeader, body: Sequence[Statement], scheme: Scheme | None, reporter: Reporter) -> AnySchedule | None:
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
    for statement in body:
        if isinstance(statement, TableRow | Update | BasisStatement):
            what = {TableRow: "a row of a table", Update: "an equation", BasisStatement: "a basis"}[type(statement)]
            hint = "the steps of a schedule stand in stages: stage { A21 += A22 }"
            reporter.report("E218", f"{what} in a schedule", statement.span, "belongs to a scheme", hint=hint)
            return
        assert isinstance(statement, StageStatement | Citation | Broken)
