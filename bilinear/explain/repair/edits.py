"""Edits of a scheme's text: their changes, places and descriptions, and the names that are allowed at each place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from bilinear.ir.linear import Form, LinearMap, form
from bilinear.ir.number import Coefficient, Symbolic, rational
from bilinear.ir.scheme import Places, Scheme, WrittenSum, WrittenTerm, block_name
from bilinear.source import Span

KINDS = ("sign", "operand", "scale", "drop", "add", "step")
"""The kinds of edits; those that stay closest to the text come first."""
TABLES = ("u", "v", "w")

Slot = tuple[str, int, int]
Patch = tuple[int, int, str]
"""Replace the characters `[start, end)` of a source by a text."""


@dataclass(frozen=True)
class Change:
    """A number to add to one coefficient of a map; `row` counts its steps, then its outputs."""

    row: int
    index: int
    delta: Coefficient


@dataclass(frozen=True)
class Edit:
    """One edit of the text. `changes` apply to `table` (u, v, w); `slots` are the terms that the edit rewrites.

    `text` describes it ("writing B3 for B1 in Q2"); `brief` stands under a caret.
    """

    kind: str
    table: str
    changes: tuple[Change, ...]
    text: str
    brief: str
    span: Span | None
    slots: frozenset[Slot]
    patches: tuple[Patch, ...] = ()

    def __str__(self) -> str:
        return f"{self.text} ({place(self.span)})" if self.span is not None else self.text


def place(span: Span) -> str:
    """The start of a span as messages write it."""
    return f"line {span.line}, column {span.column}"


def patched(text: str, patches: Iterable[Patch]) -> str:
    """Apply patches that do not overlap; those that start at the same place keep their order."""
    for _, (start, end, new) in sorted(enumerate(patches), key=lambda numbered: (numbered[1][0], numbered[0]), reverse=True):
        text = text[:start] + new + text[end:]
    return text


def with_edits(scheme: Scheme, edits: Iterable[Edit]) -> Scheme:
    """The scheme after some edits; its places still refer to the original text."""
    chosen = tuple(edits)
    maps = {table: _changed(getattr(scheme, table), [c for e in chosen if e.table == table for c in e.changes]) for table in TABLES}
    return replace(scheme, u=maps["u"], v=maps["v"], w=maps["w"])


def _changed(linear: LinearMap, changes: list[Change]) -> LinearMap:
    rows = [*linear.steps, *linear.outputs]
    for change in changes:
        rows[change.row] = form([*rows[change.row], (change.index, change.delta)])
    count = len(linear.steps)
    return LinearMap(linear.inputs, tuple(rows[count:]), tuple(rows[:count]), linear.names)


MOST_NUMBERS = 6
"""The most numbers of a map that are tried in other terms."""
_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|#[^\n]*')


@dataclass(frozen=True)
class Writing:
    """The names of a scheme, and its text if it has one."""

    scheme: Scheme

    @cached_property
    def places(self) -> Places | None:
        """The places of its terms or cells, if known."""
        places = self.scheme.places
        return places if places is not None and (places.terms or places.rows) else None

    @cached_property
    def terms(self) -> tuple[WrittenTerm, ...]:
        """The written terms; empty without a text."""
        return self.places.terms if self.places is not None else ()

    @cached_property
    def blanked(self) -> str:
        """The text with comments blanked, for finding the sign before a term."""
        text = self.places.header.source.text if self.places is not None else ""
        return _COMMENT.sub(lambda m: m[0] if m[0][0] == '"' else " " * len(m[0]), text)

    @cached_property
    def inline(self) -> frozenset[int]:
        """The products that are multiplied inside a sum and have no name in the text."""
        return frozenset(t.index for t in self.terms if t.product)

    @cached_property
    def starts(self) -> dict[tuple[str, int], int]:
        """Where each step's value, and each product, is defined in the text."""
        if self.places is None:
            return {}
        found = {(s.table, self.map(s.table).inputs + s.row): s.span.start for s in self.places.sums if s.step}
        return found | {("w", p): span.start for p, span in enumerate(self.places.products)}

    def map(self, table: str) -> LinearMap:
        """The map of a table."""
        linear: LinearMap = getattr(self.scheme, table)
        return linear

    def numbers(self, table: str) -> tuple[Fraction, ...]:
        """The smallest sizes of coefficients of a map, other than 1."""
        linear = self.map(table)
        used = {abs(rational(c)) for f in (*linear.steps, *linear.outputs) for _, c in f if not isinstance(c, Symbolic)}
        return tuple(sorted(used - {Fraction(1)})[:MOST_NUMBERS])

    def value(self, table: str, index: int) -> str:
        """The name of a value that forms of a table use."""
        s, linear = self.scheme, self.map(table)
        if index >= linear.inputs:
            return _name(linear.names, index - linear.inputs)
        if table == "w":
            return s.products[index]
        return block_name("A", *divmod(index, s.k)) if table == "u" else block_name("B", *divmod(index, s.n))

    def form(self, table: str, row: int) -> Form:
        """The form of a row."""
        linear = self.map(table)
        steps = len(linear.steps)
        return linear.steps[row] if row < steps else linear.outputs[row - steps]

    def number(self, written: WrittenTerm | WrittenSum) -> int:
        """The row that a term or a sum belongs to."""
        return written.row if written.step else written.row + len(self.map(written.table).steps)

    def row(self, table: str, row: int) -> str:
        """The name of the value that a row defines."""
        steps = len(self.map(table).steps)
        if row < steps:
            return _name(self.map(table).names, row)
        return block_name("C", *divmod(row - steps, self.scheme.n)) if table == "w" else self.scheme.products[row - steps]

    def values_before(self, table: str, row: int, start: int | None) -> Iterator[int]:
        """The values allowed in a row for a term at `start`: inputs, and steps defined before it."""
        linear = self.map(table)
        limit = min(row, len(linear.steps)) + linear.inputs
        for index in range(limit):
            if table == "w" and index in self.inline:
                continue
            if start is None or self.starts.get((table, index), -1) < start:
                yield index


def _name(names: Sequence[str], number: int) -> str:
    return names[number] if number < len(names) else f"step {number + 1}"
