"""Diagnostics: what went wrong for a reason that the user can fix, and how it is printed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bilinear.source import Span
from bilinear.visible import visible, visible_lines


@dataclass(frozen=True)
class Diagnostic:
    """One diagnostic: what is wrong, where, why, and what to do.

    `code` is stable (documented in docs/diagnostics.md); `label` stands under the caret; notes are facts, hints are actions. `others` are
    further places in the same text, each with its label, shown below the first.
    """

    code: str
    message: str
    span: Span | None = None
    label: str = ""
    notes: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    others: tuple[tuple[Span, str], ...] = ()

    def __str__(self) -> str:
        head = f"error[{self.code}]: {self.message}"
        lines = [head if self.span is None else f"{self.span}: {head}"]
        if self.span is not None:
            shown = ((self.span, self.label), *self.others)
            gutter = max(len(str(span.line)) for span, _ in shown)
            lines += [line for span, label in shown for line in _excerpt(span, label, gutter)]
        lines += [f"  note: {note}" for note in self.notes]
        lines += [f"  hint: {hint}" for hint in self.hints]
        return visible_lines(lines)

    def to_json(self) -> dict[str, object]:
        """The diagnostic as a JSON object."""
        place = None
        if self.span is not None:
            place = {"file": self.span.source.name, "line": self.span.line, "column": self.span.column}
        return {
            "code": self.code,
            "message": self.message,
            "place": place,
            "label": self.label,
            "others": [{"line": span.line, "column": span.column, "label": label} for span, label in self.others],
            "notes": list(self.notes),
            "hints": list(self.hints),
        }


def _excerpt(span: Span, label: str, room: int) -> list[str]:
    """The source line with carets under the span; long lines are cut around it. `room` is the width of line numbers."""
    width = 100
    line, first = span.source.line(span.line).replace("\t", " "), span.column - 1
    cut, last = max(0, first - width // 2), first + span.end - span.start
    before, marked, after = map(visible, (line[cut:first], line[first:last], line[last : cut + width]))
    before = before[-width // 2 :]
    text, first = (before + marked + after)[:width], len(before)
    length = max(1, min(len(marked), width - first))
    gutter = str(span.line).rjust(room)
    blank = " " * room
    return [
        f"  {gutter} | {text}",
        f"  {blank} | {' ' * first}{'^' * length}{' ' + label if label else ''}",
    ]


class BilinearError(Exception):
    """A user's error: one or more diagnostics, by place; it keeps its arguments as `args`, so that pickle can pass it on."""

    def __init__(self, diagnostics: Diagnostic | Iterable[Diagnostic]) -> None:
        found = (diagnostics,) if isinstance(diagnostics, Diagnostic) else tuple(diagnostics)
        self.diagnostics: tuple[Diagnostic, ...] = found
        super().__init__(found)

    def __str__(self) -> str:
        return "\n".join(map(str, self.diagnostics))


class ArrayValueError(BilinearError, ValueError):
    """An error where `numpy.matmul` raises a `ValueError`."""


class ArrayTypeError(BilinearError, TypeError):
    """An error where `numpy.matmul` raises a `TypeError`."""


def fail(
    code: str, message: str, *hints: str, span: Span | None = None, notes: tuple[str, ...] = (), kind: type[BilinearError] = BilinearError
) -> BilinearError:
    """A `BilinearError`, of this kind, with a single diagnostic, for the caller to raise."""
    return kind(Diagnostic(code, message, span, notes=notes, hints=hints))


def install(extra: str) -> str:
    """The command that installs an optional part of the package from a checkout; there is no published package."""
    return f"pip install '.[{extra}]' in the folder of the checkout"


class StageError(RuntimeError):
    """A stage failed while running, so some blocks have changed.

    `changed` names blocks whose values are defined but differ from the caller's; `undefined` names blocks that the failing stage may have
    written in part. All other blocks of A, B and C still hold the caller's values.
    """

    def __init__(self, message: str, changed: tuple[str, ...], undefined: tuple[str, ...]) -> None:
        self.message = message
        self.changed = changed
        self.undefined = undefined
        super().__init__(message, changed, undefined)

    def __str__(self) -> str:
        lists = [("changed", self.changed), ("undefined", self.undefined)]
        told = "; ".join(f"{word}: {', '.join(blocks)}" for word, blocks in lists if blocks)
        return f"{self.message} ({told or 'no block was changed'})"
