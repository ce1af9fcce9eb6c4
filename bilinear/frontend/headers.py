"""Headers: the format and the ring of a scheme, the claims of a schedule."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bilinear.frontend.reporter import Reporter, did_you_mean, shown
from bilinear.frontend.syntax import SchemeHeader, Word
from bilinear.ir.ring import RINGS, Ring, parse_ring
from bilinear.source import Span

MOST_BLOCKS = 4096
"""Blocks of one matrix."""
MOST_PRODUCTS = 100_000

_FORMAT = re.compile(r"<\s*([0-9]+)\s*,\s*([0-9]+)\s*,\s*([0-9]+)\s*;\s*([0-9]+)\s*>")
_CLAIMS = ("in-place", "restores A", "restores B", "restores A B")


@dataclass(frozen=True)
class Format:
    """A format <m,k,n;r> and the ring of its coefficients."""

    m: int
    k: int
    n: int
    rank: int
    ring: Ring


@dataclass(frozen=True)
class Claims:
    """What a schedule promises."""

    in_place: bool = False
    restores: tuple[str, ...] = ()


def read_format(header: SchemeHeader, reporter: Reporter) -> Format | None:
    """The format of a scheme; None where it is malformed, out of bounds, or over a ring that is not supported, which is reported."""
    word = header.format
    match = _FORMAT.fullmatch(word.text)
    hint = "<2,2,2;7> multiplies 2 x 2 by 2 x 2 blocks with 7 products"
    if match is None:
        reporter.report("E201", f"{shown(word.text)} is not a format", word.span, "expected <m,k,n;r>", hint=hint)
        return None
    if max(map(len, match.groups())) > 9:
        reporter.report("E202", "the format is too large", word.span, "out of bounds", note=_limits())
        return None
    m, k, n, rank = map(int, match.groups())
    if min(m, k, n, rank) == 0:
        reporter.report("E201", "a format has no zeros", word.span, "expected positive numbers", hint=hint)
        return None
    if max(m * k, k * n, m * n) > MOST_BLOCKS or rank > MOST_PRODUCTS:
        reporter.report("E202", "the format is too large", word.span, "out of bounds", note=_limits())
        return None
    ring = read_ring(header.ring, reporter)
    return Format(m, k, n, rank, ring) if ring is not None else None


def read_ring(word: Word | None, reporter: Reporter) -> Ring | None:
    """The ring of a scheme's coefficients, Q by default; what is no ring that schemes can be written over is reported (E203)."""
    if word is None:
        return Ring()
    text = word.text[len("over") :].strip()
    ring = parse_ring(text)
    if ring is None:
        name = shown(text) if text else "this"
        hint = f"write over one of {RINGS}, or nothing, which means Q"
        reporter.report("E203", f"{name} is no ring that schemes can be written over", word.span, "not known", hint=hint)
    return ring


def read_claims(word: Word | None, reporter: Reporter) -> Claims:
    """The claims after the colon of a schedule's header; unknown ones are reported (E223)."""
    if word is None:
        return Claims()
    in_place = False
    restores: list[str] = []
    for match in re.finditer(r"[^,:]+", word.text):
        claim = " ".join(match[0].split())
        operands = re.fullmatch(r"restores((?: [AB])+)", claim)
        if claim == "in-place":
            in_place = True
        elif operands is not None:
            restores += operands[1].split()
        elif claim:
            _unknown(claim, match, word, reporter)
    if word.text.strip(" \t,:") == "":
        reporter.report("E223", "no claim follows the colon", word.span, "expected a claim", hint=f"known claims: {'; '.join(_CLAIMS)}")
    return Claims(in_place, tuple(sorted(set(restores))))


def _unknown(claim: str, match: re.Match[str], word: Word, reporter: Reporter) -> None:
    start = word.span.start + match.start() + len(match[0]) - len(match[0].lstrip())
    span = Span(word.span.source, start, start + len(match[0].strip()))
    hint = did_you_mean(claim, _CLAIMS) or f"known claims: {'; '.join(_CLAIMS)}"
    reporter.report("E223", f"{shown(claim)} is no claim", span, "not known", hint=hint)


def _limits() -> str:
    return f"a matrix has at most {MOST_BLOCKS} blocks, a scheme at most {MOST_PRODUCTS} products"
