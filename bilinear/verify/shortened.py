"""Short forms of long numbers, texts and lists for messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bilinear.errors import Diagnostic
from bilinear.ir.number import Coefficient, Symbolic

MOST_LETTERS = 80
"""The most characters of a number in a message."""
MOST_WRITTEN_BITS = 4096
"""The most bits of a number that is written in decimal; Python refuses far longer ones."""
MOST_FAILURES = 50
"""The most diagnostics reported for one proof."""


def told(value: Coefficient) -> str:
    """A number as text, shortened if it is long."""
    numbers = [c for _, c in value.terms] if isinstance(value, Symbolic) else [value]
    bits = max(max(c.numerator.bit_length(), c.denominator.bit_length()) for c in numbers)
    return f"a number of {bits} bits" if bits > MOST_WRITTEN_BITS else shortened(str(value))


def shortened(text: str) -> str:
    """The text with its middle left out if it is long."""
    if len(text) <= MOST_LETTERS:
        return text
    half = MOST_LETTERS // 2 - 8
    return f"{text[:half]}...{text[-half:]} ({len(text)} characters)"


def first_of(failures: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    """The first failures; the last one reported says how many there are."""
    if len(failures) <= MOST_FAILURES:
        return tuple(failures)
    last = failures[MOST_FAILURES - 1]
    note = f"the first {MOST_FAILURES} of {len(failures)} faults are shown"
    return (*failures[: MOST_FAILURES - 1], replace(last, notes=(*last.notes, note)))
