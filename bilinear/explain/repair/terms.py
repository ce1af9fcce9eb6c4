"""The single edits of a scheme that is written as equations or has no text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from bilinear.explain.repair.cells import cell_edits
from bilinear.explain.repair.edits import TABLES, Change, Edit, Patch
from bilinear.explain.repair.focus import Focus
from bilinear.explain.repair.names import Writing
from bilinear.ir.number import Coefficient, Symbolic
from bilinear.ir.scheme import Scheme, WrittenSum, WrittenTerm
from bilinear.source import Span

_NUMBER = re.compile(r"([0-9]+)(?:[ \t]*/[ \t]*([0-9]+))?")


def edits(scheme: Scheme, focus: Focus | None = None) -> tuple[Edit, ...]:
    """Every single edit of a scheme, in the order of the text (or of its tables); with a focus only those that it allows."""
    writing = Writing(scheme)
    if writing.places is not None and writing.places.rows:
        found = list(cell_edits(writing, writing.places.rows, focus))
    else:
        terms = [t for t in _terms(writing) if focus is None or focus.allows(t.table, t.row, t.index)]
        found = [edit for term in terms for edit in _term_edits(term)] + list(_additions(writing, focus))
    return tuple(sorted(found, key=lambda e: e.span.start if e.span is not None else -1))


def count_edits(scheme: Scheme) -> int:
    """An estimate of the number of edits: every term may name every value, and every value may be added to every row."""
    total = 0
    for table in TABLES:
        linear = Writing(scheme).map(table)
        rows = (*linear.steps, *linear.outputs)
        values = linear.inputs + len(linear.steps)
        if scheme.places is not None and scheme.places.rows:
            values = len(linear.outputs) if table == "w" else linear.inputs
        total += sum(map(len, rows)) * values + 2 * len(rows) * linear.inputs
    return total


@dataclass(frozen=True)
class _Term:
    """A term of a row, with its sign, and its place if there is a text."""

    writing: Writing
    number: int
    table: str
    row: int
    index: int
    coefficient: Coefficient
    written: WrittenTerm | None = None

    @property
    def name(self) -> str:
        return self.writing.value(self.table, self.index)

    @property
    def text(self) -> str:
        """The term as written, without its sign."""
        return self.written.span.text if self.written is not None else self.name

    def edit(self, kind: str, changes: dict[int, Coefficient], text: str, brief: str, span: Span | None = None, *patches: Patch) -> Edit:
        """An edit that adds to coefficients of the row."""
        told = f"{text} in {self.writing.row(self.table, self.row)}"
        amounts = tuple(Change(self.row, index, delta) for index, delta in changes.items())
        return Edit(kind, self.table, amounts, told, brief, span, frozenset({("term", self.number, 0)}), patches)


def _terms(writing: Writing) -> Iterator[_Term]:
    if writing.places is not None:
        for number, w in enumerate(writing.terms):
            yield _Term(writing, number, w.table, writing.number(w), w.index, w.coefficient, w)
        return
    number = 0
    for table in TABLES:
        linear = writing.map(table)
        for row, f in enumerate((*linear.steps, *linear.outputs)):
            for index, coefficient in f:
                yield _Term(writing, number, table, row, index, coefficient)
                number += 1


def _term_edits(term: _Term) -> Iterator[Edit]:
    """The edits of one term: change its sign, its name or its coefficient, or remove it."""
    if term.written is None or term.written.signed:
        yield _turned(term)
    if term.written is not None and term.written.product:
        return
    yield from _renamed(term)
    yield from _scaled(term)
    if len(term.writing.form(term.table, term.row)) > 1:
        yield _left_out(term)


def _turned(term: _Term) -> Edit:
    change = {term.index: -2 * term.coefficient}
    if term.written is None:
        old, new = ("-", "+") if _is_minus(term.coefficient) else ("+", "-")
        return term.edit("sign", change, f"writing {new}{term.text} for {old}{term.text}", f"write {new}{term.text}")
    sign = _Sign.before(term.writing, term.written)
    old, new = ("-", "+") if sign.minus else ("+", "-")
    text, span = f"writing {new}{term.text} for {old}{term.text}", sign.span(term.written.span)
    return term.edit("sign", change, text, f"write {new}{term.text}", span, sign.patch(new))


def _renamed(term: _Term) -> Iterator[Edit]:
    place = term.written.name if term.written is not None else None
    for other in term.writing.values_before(term.table, term.row, place.start if place is not None else None):
        if other == term.index:
            continue
        called, change = term.writing.value(term.table, other), {term.index: -term.coefficient, other: term.coefficient}
        patches = ((place.start, place.end, called),) if place is not None else ()
        yield term.edit("operand", change, f"writing {called} for {term.name}", f"write {called}", place, *patches)


def _scaled(term: _Term) -> Iterator[Edit]:
    """Edits that double the term, remove its number, or write another number that the map has."""
    w, c, name = term.written, term.coefficient, term.name
    if w is None or w.span.start == w.name.start:
        span, patches = (w.span, ((w.span.start, w.span.start, "2 "),)) if w is not None else (None, ())
        yield term.edit("scale", {term.index: c}, f"writing 2 {name} for {name}", f"write 2 {name}", span, *patches)
        return
    number = _NUMBER.match(w.span.text)
    size = Fraction(int(number[1]), int(number[2] or 1)) if number is not None else Fraction(0)
    if size not in (0, 1) and not isinstance(c, Symbolic):
        text, patch = f"writing {name} for {w.span.text}", (w.span.start, w.name.start, "")
        yield term.edit("scale", {term.index: Fraction(c) / size - c}, text, f"write {name}", w.span, patch)
        for other in term.writing.numbers(term.table):
            if other != size:
                text, patch = f"writing {other} {name} for {w.span.text}", (w.span.start, w.name.start, f"{other} ")
                yield term.edit("scale", {term.index: Fraction(c) / size * other - c}, text, f"write {other} {name}", w.span, patch)


def _left_out(term: _Term) -> Edit:
    change = {term.index: -term.coefficient}
    if term.written is None:
        return term.edit("drop", change, f"leaving out {'-' if _is_minus(term.coefficient) else '+'}{term.text}", "leave this out")
    sign = _Sign.before(term.writing, term.written)
    text = f"leaving out {'-' if sign.minus else '+'}{term.text}"
    return term.edit("drop", change, text, "leave this out", sign.span(term.written.span), sign.removal(term.written.span))


@dataclass(frozen=True)
class _Sign:
    """The sign before a term: its place if it has one, and the start of the term."""

    at: int | None
    start: int
    minus: bool

    @classmethod
    def before(cls, writing: Writing, term: WrittenTerm) -> _Sign:
        before = writing.blanked[: term.span.start].rstrip()
        if before.endswith(("+", "-")):
            return cls(len(before) - 1, term.span.start, before.endswith("-"))
        return cls(None, term.span.start, False)

    def patch(self, new: str) -> Patch:
        return (self.start, self.start, new) if self.at is None else (self.at, self.at + 1, new)

    def removal(self, term: Span) -> Patch:
        return (self.start if self.at is None else self.at, term.end, "")

    def span(self, term: Span) -> Span:
        """From the sign to the end of the term, if both are on one line."""
        if self.at is None or "\n" in term.source.text[self.at : term.start]:
            return term
        return Span(term.source, self.at, term.end)


def _additions(writing: Writing, focus: Focus | None) -> Iterator[Edit]:
    """Add a missing term at the end of a sum."""
    rows: list[tuple[str, int, WrittenSum | None]]
    if writing.places is None:
        rows = [(t, row, None) for t in TABLES for row in range(len(writing.map(t).steps) + len(writing.map(t).outputs))]
    else:
        rows = [(s.table, writing.number(s), s) for s in writing.places.sums]
    for number, (table, row, written) in enumerate(rows):
        here = dict(writing.form(table, row))
        at = written.span if written is not None else None
        for index in writing.values_before(table, row, at.start if at is not None else None):
            if focus is not None and not focus.allows(table, row, index):
                continue
            for sign, delta in (("+", 1), ("-", -1)) if index not in here else ():
                name = writing.value(table, index)
                text = f"adding {sign}{name} to {writing.row(table, row)}"
                patches = tuple(_insertion(written, f" {sign} {name}")) if written is not None else ()
                slot = frozenset({("sum", number, 0)})
                yield Edit("add", table, (Change(row, index, delta),), text, f"add {sign}{name}", at, slot, patches)


def _insertion(written: WrittenSum, text: str) -> Iterator[Patch]:
    start, end = written.span.start, written.span.end
    if written.bare:
        yield from ((start, start, "("), (end, end, text + ")"))
    elif written.table != "w" and not written.step:
        yield (end - 1, end - 1, text)
    else:
        yield (end, end, text)


def _is_minus(value: Coefficient) -> bool:
    return not isinstance(value, Symbolic) and value < 0
