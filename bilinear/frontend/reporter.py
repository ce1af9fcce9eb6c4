"""Collect the diagnostics of one run, and build the phrases that they share."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches

from bilinear.errors import BilinearError, Diagnostic
from bilinear.source import Span
from bilinear.visible import visible

MOST = 50
"""The most diagnostics reported in one run; further ones are only counted."""


class Reporter:
    """The diagnostics found so far."""

    def __init__(self) -> None:
        self.found: list[Diagnostic] = []
        self.unreported = 0

    @property
    def full(self) -> bool:
        """True if further findings are only counted."""
        return len(self.found) >= MOST

    @property
    def count(self) -> int:
        """The number of findings, reported or only counted."""
        return len(self.found) + self.unreported

    def report(self, code: str, message: str, span: Span | None, label: str = "", *, note: str = "", hint: str = "") -> None:
        """Add a diagnostic, or count it if there are too many."""
        if self.full:
            self.unreported += 1
            return
        self.found.append(Diagnostic(code, message, span, label, (note,) if note else (), (hint,) if hint else ()))

    def finish(self) -> None:
        """Raise `BilinearError` with all diagnostics in the order of their places, if there are any."""
        if not self.found:
            return
        ordered = sorted(self.found, key=lambda d: d.span.start if d.span is not None else -1)
        if self.full:
            last = ordered[-1]
            ordered[-1] = replace(last, notes=(*last.notes, f"the first {MOST} errors are shown, there may be more"))
        raise BilinearError(ordered)


def shown(text: str, width: int = 40) -> str:
    """A user's text, quoted, printable, and cut to a readable length."""
    return f"'{visible(text, width)}'"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint with the nearest known names, or nothing."""
    if len(name) > 64:
        return ""
    candidates = [k for _, k in zip(range(400), known, strict=False)]
    folded = [k for k in candidates if k.lower() == name.lower()]
    near = folded or get_close_matches(name, candidates, n=3, cutoff=0.6)
    return f"did you mean {' or '.join(near)}?" if near else ""


def listed(names: Iterable[str], most: int = 6) -> str:
    """A list of names, cut after a few."""
    every = list(names)
    if len(every) > most:
        return f"{', '.join(every[:most])} and {len(every) - most} more"
    return ", ".join(every)


def first_word(text: str) -> str:
    """The name at the start of a text, or nothing."""
    match = re.match(r"\s*([A-Za-z_][A-Za-z0-9_]*)", text)
    return match.group(1) if match else ""
