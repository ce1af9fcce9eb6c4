"""The smallest units of meaning: numbers, blocks, and sums of terms, each with its diagnostics."""

from __future__ import annotations

import re
from collections.abc import Iterable

from bilinear.frontend.numbers import MOST_BITS, NumberError, longest, parse_number
from bilinear.frontend.reporter import Reporter, shown
from bilinear.frontend.syntax import Word
from bilinear.ir.linear import Form, form
from bilinear.ir.number import Coefficient, Symbolic
from bilinear.ir.ring import RATIONALS, Ring
from bilinear.ir.schedule import Block
from bilinear.source import Span

MOST_TERMS = 256
"""The most terms of a polynomial coefficient."""

_BLOCK = re.compile(r"([ABC])(?:([1-9])([1-9])|\[[ \t]*([0-9]{1,9})[ \t]*,[ \t]*([0-9]{1,9})[ \t]*\])")

Grid = dict[str, tuple[int, int]]
"""The rows and columns of blocks of A, B and C."""


def grid(m: int, k: int, n: int) -> Grid:
    """The grids of a format."""
    return {"A": (m, k), "B": (k, n), "C": (m, n)}


def read_number(text: str, span: Span, reporter: Reporter, ring: Ring = RATIONALS) -> Coefficient | None:
    """An exact coefficient; None if it is malformed or not in the ring, which is reported (E205)."""
    try:
        value = parse_number(text)
    except NumberError as error:
        reporter.report("E205", f"{shown(text)} is not a number", span, "expected a coefficient", hint=str(error))
        return None
    if ring.holds(value):
        return value
    reporter.report("E205", f"{shown(str(value))} is not in {ring}", span, f"not in {ring}", hint=_wider(value, ring))
    return None


def _wider(value: Coefficient, ring: Ring) -> str:
    """The hint for a coefficient that is not in the ring."""
    if not isinstance(value, Symbolic):
        return f"its denominator is zero in {ring}" if ring.modulus else "leave out 'over Z', the ring is then Q"
    missing = sorted(value.generators - {ring.generator})
    if len(value.generators) == 1 and missing[0] not in ("alpha", "beta"):
        return f"write: over Q[{missing[0]}], in the header of the scheme"
    return "a scheme has one generator: sqrt(d), i, or lambda"


def is_block(text: str) -> bool:
    """True if a word has the form of a block."""
    return text[0] in "ABC" and (text[1:2] == "[" or (len(text) == 3 and text[1] in "123456789" and text[2] in "123456789"))


def read_block(word: Word, blocks: Grid, reporter: Reporter) -> Block | None:
    """The block that a word names; None if it is not in the grid, which is reported (E210)."""
    match = _BLOCK.fullmatch(word.text)
    if match is None:
        hint = f"write a row and a column, such as {word.text[0]}[1,10]"
        reporter.report("E210", f"{shown(word.text)} is not a block", word.span, "expected a row and a column", hint=hint)
        return None
    space, row, column = match[1], int(match[2] or match[4]), int(match[3] or match[5])
    rows, columns = blocks[space]
    if not (1 <= row <= rows and 1 <= column <= columns):
        note = f"{space} has {_count(rows, 'row')} and {_count(columns, 'column')} of blocks, numbered from 1"
        reporter.report("E210", f"there is no block {shown(word.text)}", word.span, "outside of the format", note=note)
        return None
    return Block(space, row - 1, column - 1)


def number_of(block: Block, blocks: Grid) -> int:
    """The row-major number of a block."""
    return block.row * blocks[block.space][1] + block.column


def add_up(terms: Iterable[tuple[int, Coefficient]], span: Span, reporter: Reporter) -> Form | None:
    """The linear form with these terms; None if a sum grows too large, which is reported (E205)."""
    total: dict[int, Coefficient] = {}
    for index, coefficient in terms:
        value = total.get(index, 0) + coefficient
        if _is_long(value):
            reporter.report("E205", "the coefficients of this sum are too long", span, note="exact sums of many fractions grow")
            return None
        total[index] = value
    return form(total)


def _is_long(value: Coefficient) -> bool:
    return longest(value) > MOST_BITS or (isinstance(value, Symbolic) and len(value.terms) > MOST_TERMS)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
