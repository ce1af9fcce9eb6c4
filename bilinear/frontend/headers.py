"""Headers: the format and the ring of a scheme."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from bilinear.algebra.combined import limits, within_bounds
from bilinear.frontend.reporter import Reporter, did_you_mean, shown
from bilinear.frontend.syntax import SchemeHeader, Word
from bilinear.ir.ring import RINGS, Ring, parse_ring

_FORMAT = re.compile(r"<\s*([0-9]+)\s*,\s*([0-9]+)\s*,\s*([0-9]+)\s*;\s*([0-9]+)\s*>")


@dataclass(frozen=True)
class Format:
    """A format <m,k,n;r> and the ring of its coefficients."""

    m: int
    k: int
    n: int
    rank: int
    ring: Ring


def read_format(header: SchemeHeader, reporter: Reporter, digits: Iterable[str] = ()) -> Format | None:
    """The format of a scheme; None if it is malformed, out of bounds, or over an unsupported ring, which is reported.

    `digits` are the names of representations, one of which may have been meant.
    """
    numbers = read_numbers(header.format, reporter)
    if numbers is None:
        return None
    ring = read_ring(header.ring, reporter, digits)
    return Format(*numbers, ring) if ring is not None else None


def read_numbers(word: Word, reporter: Reporter) -> tuple[int, int, int, int] | None:
    """m, k, n and r of a format; None if it is malformed or out of bounds, which is reported (E201, E202)."""
    match = _FORMAT.fullmatch(word.text)
    hint = "<2,2,2;7> multiplies 2 x 2 by 2 x 2 blocks with 7 products"
    if match is None:
        reporter.report("E201", f"{shown(word.text)} is not a format", word.span, "expected <m,k,n;r>", hint=hint)
        return None
    if max(map(len, match.groups())) > 9:
        reporter.report("E202", "the format is too large", word.span, "out of bounds", note=limits())
        return None
    m, k, n, rank = map(int, match.groups())
    if min(m, k, n, rank) == 0:
        reporter.report("E201", "a format has no zeros", word.span, "expected positive numbers", hint=hint)
        return None
    if not within_bounds(m, k, n, rank):
        reporter.report("E202", "the format is too large", word.span, "out of bounds", note=limits())
        return None
    return m, k, n, rank


def read_ring(word: Word | None, reporter: Reporter, digits: Iterable[str] = ()) -> Ring | None:
    """The ring of a scheme's coefficients, Q by default; a ring that schemes cannot be written over is reported (E203)."""
    if word is None:
        return Ring()
    text = word.text[len("over") :].strip()
    ring = parse_ring(text)
    if ring is None:
        name = shown(text) if text else "this"
        hint = did_you_mean(text, digits) or f"write over one of {RINGS}, or nothing, which means Q"
        reporter.report("E203", f"{name} is not a ring that schemes can be written over", word.span, "not known", hint=hint)
    return ring
