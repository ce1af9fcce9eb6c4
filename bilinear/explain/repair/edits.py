"""Edits of a scheme's text: every single edit of its tables or equations, or, of a large scheme, those near its misprint."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bilinear.ir.linear import Form, LinearMap, form
from bilinear.ir.number import Coefficient, Symbolic, rational, residue
from bilinear.ir.scheme import Places, Scheme, WrittenSum, WrittenTerm, block_name
from bilinear.source import Span

KINDS = ("sign", "operand", "scale", "drop", "add", "step")  # Of edits, those closest to the text first.
TABLES = ("u", "v", "w")

Slot = tuple[str, int, int]
Patch = tuple[int, int, str]  # Replace the characters `[start, end)` of a source by a text.


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


MOST_NUMBERS = 6  # The most numbers of a map that are tried in other terms.
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


PRIME = 2**24 - 3
"""Small enough that `EXACT` products of two residues sum exactly in float64. The proof refuses the few wrong combinations that pass."""

Array = NDArray[np.int64]


def has_residue(value: Coefficient) -> bool:
    """True if a coefficient is a number modulo the prime."""
    return not isinstance(value, Symbolic) and value.denominator % PRIME != 0


Changes = Iterable[tuple[Array, Array, Array]]  # Edits of a row: where they apply, the index, the amount.


def forward(linear: LinearMap, inputs: Array, modulus: int, changes: Callable[[int], Changes] = lambda row: ()) -> Array:
    """The values of a map's inputs, steps and outputs: (points, values)."""
    rows = (*linear.steps, *linear.outputs)
    values = np.empty((len(inputs), linear.inputs + len(rows)), dtype=np.int64, order="F")
    values[:, : linear.inputs] = inputs
    for row, f in enumerate(rows):
        total = np.zeros(len(inputs), dtype=np.int64)
        for index, coefficient in f:
            total = (total + residue(coefficient, modulus) * values[:, index]) % modulus
        for which, places, delta in changes(row):
            total[which] = (total[which] + delta * values[which, places]) % modulus
        values[:, linear.inputs + row] = total
    return values


def backward(linear: LinearMap, weights: Array, modulus: int, changes: Callable[[int], Changes] = lambda row: ()) -> Array:
    """The derivative of a weighted sum of the outputs by each input, step and output: (points, values)."""
    rows = (*linear.steps, *linear.outputs)
    gains = np.zeros((len(weights), linear.inputs + len(rows)), dtype=np.int64, order="F")
    gains[:, linear.inputs + len(linear.steps) :] = weights
    for row in reversed(range(len(rows))):
        own = gains[:, linear.inputs + row]
        for which, places, delta in changes(row):
            gains[which, places] = (gains[which, places] + delta * own[which]) % modulus
        for index, coefficient in rows[row]:
            gains[:, index] = (gains[:, index] + residue(coefficient, modulus) * own) % modulus
    return gains


MOST_TERMS = 200_000  # Schemes with more terms in their forms are not examined.
GROUPS, MOST_GROUPS = 4, 24  # Points for one factor; in a small ring some values are 0 and tell nothing.
SMALL, FEW, MANY = 2**20, 4, 96  # Below this modulus, more points: a value may hide at 7/8 of them.


@dataclass(frozen=True)
class Focus:
    """The rows of each map, numbered from its named sums on, and the columns of W (products, then named sums) where one edit can repair."""

    rows: dict[str, frozenset[int]]
    columns: frozenset[int]

    @property
    def in_doubt(self) -> int:
        """The number of rows and columns where an edit may stand."""
        return len(self.columns) + sum(map(len, self.rows.values()))

    def allows(self, table: str, row: int, index: int) -> bool:
        """True if a coefficient of a map may be wrong."""
        return row in self.rows[table] or (table == "w" and index in self.columns)


def find_focus(scheme: Scheme) -> Focus | None:
    """Where a single edit can be; None for schemes with basis changes, roots or i, and very large ones."""
    modulus = scheme.ring.modulus or PRIME
    maps: tuple[LinearMap, ...] = (scheme.u, scheme.v, scheme.w)
    terms = [c for linear in maps for f in (*linear.steps, *linear.outputs) for _, c in f]
    if scheme.bases is not None or modulus >= 2**31 or len(terms) > MOST_TERMS or not all(map(has_residue, terms)):
        return None
    left = {t: _doubtful(scheme, modulus, t, held) for t, held in (("u", "u"), ("v", "v"), ("w", "uv"), ("", "w"))}
    rows, columns = {t: left[t] for t in TABLES}, left[""]
    return Focus({t: frozenset(np.flatnonzero(found).tolist()) for t, found in rows.items()}, frozenset(np.flatnonzero(columns).tolist()))


def _doubtful(scheme: Scheme, modulus: int, table: str, held: str) -> NDArray[np.bool_]:
    """Which rows of a map, or columns of W, can account for the error wherever the blocks of the `held` tables stay the same."""
    left, generator, told = np.ones(1, bool), np.random.default_rng(0), 0
    for _ in range(MOST_GROUPS):
        values, slopes, error = _evaluated(scheme, modulus, held, generator)
        factors = slopes[table][:, getattr(scheme, table).inputs :] if table else values
        at = int(np.argmax(error != 0))
        proportional = (factors * error[at] % modulus == factors[at] * error[:, None] % modulus).all(axis=0)
        left = left & proportional & ((factors[at] != 0) | (error[at] == 0))
        told += bool(error.any())
        if told == GROUPS:
            break
    return left


def _evaluated(scheme: Scheme, modulus: int, held: str, generator: np.random.Generator) -> tuple[Array, dict[str, Array], Array]:
    """At some points: the values of the columns of W, the dependence of the result on each row of each map, and its error.

    The points differ in everything but the blocks, or the weights of the blocks of C, of the `held` tables.
    """
    m, k, n = scheme.m, scheme.k, scheme.n
    count = MANY if modulus < SMALL else FEW
    inputs = {}
    for table, size in zip(TABLES, (m * k, k * n, m * n), strict=True):
        inputs[table] = np.broadcast_to(generator.integers(0, modulus, (size, 1 if table in held else count)), (size, count)).T
    left, right = (forward(getattr(scheme, table), inputs[table], modulus)[:, -scheme.rank :] for table in "uv")
    values = forward(scheme.w, left * right % modulus, modulus)
    slopes = {"w": backward(scheme.w, inputs["w"], modulus)}
    weights = slopes["w"][:, : scheme.rank]
    slopes["u"] = backward(scheme.u, right * weights % modulus, modulus)
    slopes["v"] = backward(scheme.v, left * weights % modulus, modulus)
    found = (left * right % modulus * weights % modulus).sum(axis=1)
    a, b, c = (inputs[t].T.reshape(*shape, count) for t, shape in zip(TABLES, ((m, k), (k, n), (m, n)), strict=True))
    wanted = sum((a[:, p, None] * b[p] % modulus * c % modulus).sum(axis=(0, 1)) for p in range(k))
    return values[:, : scheme.w.inputs + len(scheme.w.steps)], slopes, (wanted - found) % modulus


MOST_VALUES = 6  # The most coefficients of a table that are tried in other cells.


def cell_edits(writing: Writing, rows: Sequence[Span], focus: Focus | None = None) -> Iterator[Edit]:
    """The edits of a table: another coefficient in a cell, or a coefficient moved to another cell of its row."""
    values = {t: _cell_values(writing.map(t)) for t in TABLES}
    for product, cells in enumerate(rows):
        for table, part in zip(TABLES, _parts(cells), strict=True):
            spots = [_Cell(table, *((i, product) if table == "w" else (product, i)), span) for i, span in enumerate(part)]
            for spot in spots:
                if focus is not None and not focus.allows(table, spot.row, spot.index):
                    continue
                yield from _cell_edits(writing, spots, spot, values[table], product)


@dataclass(frozen=True)
class _Cell:
    table: str
    row: int
    index: int
    span: Span


def _cell_edits(writing: Writing, spots: list[_Cell], cell: _Cell, values: Sequence[Coefficient], product: int) -> Iterator[Edit]:
    c = _coefficient(writing, cell)
    where, title = f"in row {writing.scheme.products[product]}", _title(writing, cell)
    slot = frozenset({("cell", product, cell.span.start)})
    for new in values:
        if new == c:
            continue
        kind = "drop" if not new else "add" if not c else "sign" if new == -c else "scale"
        shown = _negated(cell.span.text) if kind == "sign" else str(new)
        text = f"writing {shown} for {cell.span.text} {where}, column {title}"
        patch = (cell.span.start, cell.span.end, _padded(shown, cell.span))
        yield Edit(kind, cell.table, (Change(cell.row, cell.index, new - c),), text, f"write {shown}", cell.span, slot, (patch,))
    for other in spots if c else ():
        if other is not cell and not _coefficient(writing, other):
            text = f"moving {cell.span.text} from column {title} to column {_title(writing, other)} {where}"
            patches = (
                (cell.span.start, cell.span.end, _padded("0", cell.span)),
                (other.span.start, other.span.end, _padded(cell.span.text, other.span)),
            )
            changes = (Change(cell.row, cell.index, -c), Change(other.row, other.index, c))
            both = slot | {("cell", product, other.span.start)}
            brief = f"move this to column {_title(writing, other)}"
            yield Edit("operand", cell.table, changes, text, brief, cell.span, both, patches)


def _padded(text: str, span: Span) -> str:
    return text.rjust(span.end - span.start)


def _title(writing: Writing, cell: _Cell) -> str:
    return writing.row("w", cell.row) if cell.table == "w" else writing.value(cell.table, cell.index)


def _coefficient(writing: Writing, cell: _Cell) -> Coefficient:
    return dict(writing.form(cell.table, cell.row)).get(cell.index, 0)


def _negated(text: str) -> str:
    inner = text[1:-1] if text.startswith("[") else text
    turned = re.sub(r"(?<![\^(])[+-]", lambda m: "+-"[m[0] == "+"], inner if inner[0] in "+-" else f"+{inner}").removeprefix("+")
    return f"[{turned}]" if text.startswith("[") else turned


def _cell_values(linear: LinearMap) -> tuple[Coefficient, ...]:
    """The values tried in a cell: -1, 0, 1, and a few of the table's coefficients with both signs."""
    used = [c for output in linear.outputs for _, c in output]
    plain = sorted({Fraction(c if c > 0 else -c) for c in used if not isinstance(c, Symbolic)} - {Fraction(1)})
    symbolic = sorted({c for c in used if isinstance(c, Symbolic)}, key=str)
    some: list[Coefficient] = [*plain[:MOST_VALUES], *symbolic[:MOST_VALUES]]
    return tuple(dict.fromkeys([-1, 0, 1, *(-c for c in some), *some]))


def _parts(cells: Span) -> list[list[Span]]:
    parts: list[list[Span]] = [[]]
    for match in re.finditer(r"\||[^\s|]+", cells.text):
        if match[0] == "|":
            parts.append([])
        else:
            parts[-1].append(Span(cells.source, cells.start + match.start(), cells.start + match.end()))
    return parts


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
class _RowTerm:
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
        told = f"{text} in {self.writing.row(self.table, self.row)}"
        amounts = tuple(Change(self.row, index, delta) for index, delta in changes.items())
        return Edit(kind, self.table, amounts, told, brief, span, frozenset({("term", self.number, 0)}), patches)


def _terms(writing: Writing) -> Iterator[_RowTerm]:
    if writing.places is not None:
        for number, w in enumerate(writing.terms):
            yield _RowTerm(writing, number, w.table, writing.number(w), w.index, w.coefficient, w)
        return
    number = 0
    for table in TABLES:
        linear = writing.map(table)
        for row, f in enumerate((*linear.steps, *linear.outputs)):
            for index, coefficient in f:
                yield _RowTerm(writing, number, table, row, index, coefficient)
                number += 1


def _term_edits(term: _RowTerm) -> Iterator[Edit]:
    if term.written is None or term.written.signed:
        yield _turned(term)
    if term.written is not None and term.written.product:
        return
    yield from _renamed(term)
    yield from _scaled(term)
    if len(term.writing.form(term.table, term.row)) > 1:
        yield _left_out(term)


def _turned(term: _RowTerm) -> Edit:
    change = {term.index: -2 * term.coefficient}
    if term.written is None:
        old, new = ("-", "+") if _is_minus(term.coefficient) else ("+", "-")
        return term.edit("sign", change, f"writing {new}{term.text} for {old}{term.text}", f"write {new}{term.text}")
    sign = _Sign.before(term.writing, term.written)
    old, new = ("-", "+") if sign.minus else ("+", "-")
    text, span = f"writing {new}{term.text} for {old}{term.text}", sign.span(term.written.span)
    patch = (sign.start, sign.start, new) if sign.at is None else (sign.at, sign.at + 1, new)
    return term.edit("sign", change, text, f"write {new}{term.text}", span, patch)


def _renamed(term: _RowTerm) -> Iterator[Edit]:
    place = term.written.name if term.written is not None else None
    for other in term.writing.values_before(term.table, term.row, place.start if place is not None else None):
        if other == term.index:
            continue
        called, change = term.writing.value(term.table, other), {term.index: -term.coefficient, other: term.coefficient}
        patches = ((place.start, place.end, called),) if place is not None else ()
        yield term.edit("operand", change, f"writing {called} for {term.name}", f"write {called}", place, *patches)


def _scaled(term: _RowTerm) -> Iterator[Edit]:
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


def _left_out(term: _RowTerm) -> Edit:
    change = {term.index: -term.coefficient}
    if term.written is None:
        return term.edit("drop", change, f"leaving out {'-' if _is_minus(term.coefficient) else '+'}{term.text}", "leave this out")
    sign = _Sign.before(term.writing, term.written)
    text = f"leaving out {'-' if sign.minus else '+'}{term.text}"
    removal = (sign.start if sign.at is None else sign.at, term.written.span.end, "")
    return term.edit("drop", change, text, "leave this out", sign.span(term.written.span), removal)


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

    def span(self, term: Span) -> Span:
        """From the sign to the end of the term, if both are on one line."""
        if self.at is None or "\n" in term.source.text[self.at : term.start]:
            return term
        return Span(term.source, self.at, term.end)


def _additions(writing: Writing, focus: Focus | None) -> Iterator[Edit]:
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
