"""Edits of a scheme's text: their changes, their places, and their descriptions in messages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from bilinear.ir.linear import LinearMap, form
from bilinear.ir.number import Coefficient
from bilinear.ir.scheme import Scheme
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
