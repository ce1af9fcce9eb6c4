"""Edits of a text: the names allowed at each place, and combinations of edits that meet a target at a point modulo a prime."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

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
class TextChange:
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
    changes: tuple[TextChange, ...]
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


def _changed(linear: LinearMap, changes: list[TextChange]) -> LinearMap:
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


PRIME = 2**24 - 3
"""Small enough that 32 products of two residues sum exactly in float64. The proof refuses the few wrong combinations that pass."""

Residues = NDArray[np.int64]


def residue(value: Coefficient, modulus: int = PRIME) -> int:
    """A rational modulo a prime."""
    assert not isinstance(value, Symbolic)
    return value.numerator * pow(value.denominator, -1, modulus) % modulus


def has_residue(value: Coefficient) -> bool:
    """True if a coefficient is a number modulo the prime."""
    return not isinstance(value, Symbolic) and value.denominator % PRIME != 0


@dataclass(frozen=True)
class EditSide:
    """Combinations of edits of a table. For each combination, and for the table as written: one value a product."""

    table: str
    sets: Residues
    values: Residues
    written: Residues

    @property
    def touched(self) -> NDArray[np.bool_]:
        """Which combinations change which product: a boolean array of (sets, products)."""
        return np.not_equal(self.values, self.written)


class Join:
    """Finds combinations of three sides, the shortest first, whose sum over the products is the target.

    For a fixed combination of the first side, combinations of the other two that change different products add their changes, so sorting
    finds the partners. Combinations that change a common product are multiplied out.
    """

    def __init__(self, sides: Sequence[EditSide], target: int) -> None:
        self.first, self.second, self.third = sides
        self.target = target
        self.groups = self._groups()

    def _groups(self) -> list[tuple[Residues, Residues]]:
        """The pairs of combinations of the second and third side that change a common product, or all pairs if most do."""
        x, y = self.second.touched, self.third.touched
        meeting = [(np.flatnonzero(x[:, p]), np.flatnonzero(y[:, p])) for p in range(x.shape[1])]
        if sum(len(a) * len(b) for a, b in meeting) * 2 > len(x) * len(y):
            return [(np.arange(len(x)), np.arange(len(y)))]
        return [(a, b) for a, b in meeting if len(a) and len(b)]

    @property
    def work(self) -> int:
        """The number of combinations examined."""
        return len(self.first.sets) * (len(self.second.sets) + len(self.third.sets) + sum(len(a) * len(b) for a, b in self.groups))

    def hits(self) -> Iterator[tuple[int, int, int]]:
        """The combinations that reach the target, each once."""
        for i, row in enumerate(self.first.values):
            found = {*self._apart(row), *self._meeting(row)}
            yield from ((i, j, k) for j, k in sorted(found))

    def _apart(self, row: Residues) -> Iterator[tuple[int, int]]:
        x, y = self.second, self.third
        scaled = x.written * row % PRIME
        base = int((scaled * y.written % PRIME).sum()) % PRIME
        left = _product(x.values, (row * y.written % PRIME)[None])[:, 0]
        right = _product(y.values, scaled[None])[:, 0]
        order = np.argsort(right, kind="stable")
        wanted = (self.target + base - left) % PRIME
        low, high = np.searchsorted(right[order], wanted, "left"), np.searchsorted(right[order], wanted, "right")
        for j in np.flatnonzero(high > low):
            for k in order[low[j] : high[j]]:
                if int((x.values[j] * row % PRIME * y.values[k] % PRIME).sum()) % PRIME == self.target:
                    yield int(j), int(k)

    def _meeting(self, row: Residues) -> Iterator[tuple[int, int]]:
        for left, right in self.groups:
            scaled = self.second.values[left] * row % PRIME
            block = max(1, 1_000_000 // len(left))
            for start in range(0, len(right), block):
                products = _product(scaled, self.third.values[right[start : start + block]])
                yield from ((int(left[j]), int(right[start + k])) for j, k in np.argwhere(products == self.target))


def _product(left: Residues, right: Residues) -> Residues:
    """left @ right.T modulo the prime, by float64 products of 32 columns, which are exact."""
    total = np.zeros((len(left), len(right)), dtype=np.int64)
    for start in range(0, left.shape[1], 32):
        x, y = (side[:, start : start + 32].astype(np.float64) for side in (left, right))
        total += (x @ y.T).astype(np.int64) % PRIME
    return total % PRIME if left.shape[1] > 32 else total


class Point:
    """Random values of the blocks of A and B, random weights of those of C, and the number that a correct scheme gives there."""

    def __init__(self, scheme: Scheme, modulus: int, seed: int = 0) -> None:
        generator = random.Random(seed)
        self.modulus = modulus
        m, k, n = scheme.m, scheme.k, scheme.n
        self.u, self.v, self.w = ([generator.randrange(modulus) for _ in range(count)] for count in (m * k, k * n, m * n))
        cells = product(range(m), range(k), range(n))
        self.target = sum(self.u[i * k + p] * self.v[p * n + j] * self.w[i * n + j] for i, p, j in cells) % modulus


class Pool:
    """The edits of one table as arrays: rows, indices and amounts of at most `width` changes each, and the numbers of their slots."""

    def __init__(self, linear: LinearMap, chosen: Sequence[Edit], modulus: int) -> None:
        self.linear = linear
        self.modulus = modulus
        self.edits = tuple(chosen)
        width = max((len(e.changes) for e in chosen), default=1)
        slots: dict[Slot, int] = {}
        for slot in (slot for e in chosen for slot in sorted(e.slots)):
            slots.setdefault(slot, len(slots))
        taken = max((len(e.slots) for e in chosen), default=1)
        self.rows, self.indices, self.deltas = (np.zeros((len(chosen), width), dtype=np.int64) for _ in range(3))
        self.rows -= 1
        self.slots = np.full((len(chosen), taken), -1, dtype=np.int64)
        for number, e in enumerate(chosen):
            self.slots[number, : len(e.slots)] = [slots[slot] for slot in e.slots]
            for place, change in enumerate(e.changes):
                self.rows[number, place], self.indices[number, place] = change.row, change.index
                self.deltas[number, place] = residue(change.delta, modulus)

    def sets(self, size: int) -> Residues:
        """The combinations of `size` edits that rewrite different terms: an array of (sets, size)."""
        count = len(self.edits)
        if size < 2:
            return np.arange(count).reshape(-1, 1) if size else np.zeros((1, 0), dtype=np.int64)
        first, second = np.triu_indices(count, 1)
        pairs = np.stack([first, second], axis=1)[~self._clash(first, second)]
        if size == 2:
            return pairs
        triples = [np.column_stack([pairs[pairs[:, 1] < last], np.full((pairs[:, 1] < last).sum(), last)]) for last in range(count)]
        every = np.concatenate([np.zeros((0, 3), dtype=np.int64), *triples])
        return every[~(self._clash(every[:, 0], every[:, 2]) | self._clash(every[:, 1], every[:, 2]))]

    def _clash(self, left: Residues, right: Residues) -> NDArray[np.bool_]:
        x, y = self.slots[left][:, :, None], self.slots[right][:, None, :]
        clashing: NDArray[np.bool_] = ((x == y) & (x >= 0)).any(axis=(1, 2))
        return clashing

    def changes(self, sets: Residues, row: int) -> Iterator[tuple[Residues, Residues, Residues]]:
        """The changes of a row: the sets that make them, the index, and the amount."""
        for member in range(sets.shape[1]):
            for place in range(self.rows.shape[1]):
                which = np.flatnonzero(self.rows[sets[:, member], place] == row)
                if len(which):
                    edit = sets[which, member]
                    yield which, self.indices[edit, place], self.deltas[edit, place]


def values_of(table: str, pool: Pool, point: Point, sets: Residues) -> Residues:
    """One factor of each product, for each of the combinations of edits of a table: (sets, products)."""
    return (weights_of if table == "w" else outputs_of)(pool, getattr(point, table), sets)


def outputs_of(pool: Pool, inputs: Sequence[int], sets: Residues) -> Residues:
    """The outputs of a map, edited by each of the sets: an array of (sets, outputs)."""
    linear, modulus, count = pool.linear, pool.modulus, len(pool.linear.steps)
    values = np.empty((len(sets), linear.inputs + count + len(linear.outputs)), dtype=np.int64)
    values[:, : linear.inputs] = inputs
    for row, f in enumerate((*linear.steps, *linear.outputs)):
        total = np.zeros(len(sets), dtype=np.int64)
        for index, coefficient in f:
            total = (total + residue(coefficient, modulus) * values[:, index]) % modulus
        for which, places, delta in pool.changes(sets, row):
            total[which] = (total[which] + delta * values[which, places]) % modulus
        values[:, linear.inputs + row] = total
    return values[:, linear.inputs + count :]


def weights_of(pool: Pool, weights: Sequence[int], sets: Residues) -> Residues:
    """The weight of each input in a weighted sum of the outputs of a map, edited by each of the sets: (sets, inputs)."""
    linear, modulus, count = pool.linear, pool.modulus, len(pool.linear.steps)
    values = np.zeros((len(sets), linear.inputs + count + len(linear.outputs)), dtype=np.int64)
    values[:, linear.inputs + count :] = weights
    rows = [*linear.steps, *linear.outputs]
    for row in range(len(rows) - 1, -1, -1):
        own = values[:, linear.inputs + row]
        for which, places, delta in pool.changes(sets, row):
            values[which, places] = (values[which, places] + delta * own[which]) % modulus
        for index, coefficient in rows[row]:
            values[:, index] = (values[:, index] + residue(coefficient, modulus) * own) % modulus
    return values[:, : linear.inputs]
