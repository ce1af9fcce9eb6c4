"""Headers: the format and the ring of a scheme; and the claims of a schedule."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction

from bilinear.algebra.combined import limits, within_bounds
from bilinear.frontend.atoms import is_block
from bilinear.frontend.reporter import Reporter, did_you_mean, shown
from bilinear.frontend.syntax import SchemeHeader, Word
from bilinear.ir.number import Coefficient, exact, generator
from bilinear.ir.ring import RINGS, Ring, parse_ring
from bilinear.ir.schedule import Result, Space
from bilinear.source import Span

_FORMAT = re.compile(r"<\s*([0-9]+)\s*,\s*([0-9]+)\s*,\s*([0-9]+)\s*;\s*([0-9]+)\s*>")


@dataclass(frozen=True)
class FormatAndRing:
    """A format <m,k,n;r> and the ring of its coefficients."""

    m: int
    k: int
    n: int
    rank: int
    ring: Ring


def read_format(header: SchemeHeader, reporter: Reporter, digits: Iterable[str] = ()) -> FormatAndRing | None:
    """The format of a scheme; None if it is malformed, out of bounds, or over an unsupported ring, which is reported.

    `digits` are the names of representations, one of which may have been meant.
    """
    numbers = read_numbers(header.format, reporter)
    if numbers is None:
        return None
    ring = read_ring(header.ring, reporter, digits)
    return FormatAndRing(*numbers, ring) if ring is not None else None


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


_CLAIMS = ("in-place", "restores A", "restores B", "restores A B", "C = alpha*A*B + beta*C", "temporaries X Y")
_NUMBER = r"[0-9]{1,9}(?:/[1-9][0-9]{0,8})?"
_RESULT = re.compile(rf"C=(-?)(?:(alpha|{_NUMBER})\*)?A\*B(?:([+-])(?:(beta|{_NUMBER})\*)?C)?")
_TEMPORARIES = re.compile(r"temporar(?:y|ies)((?: [A-Za-z_][A-Za-z0-9_]*)+?)(?: like ([ABC]))?")


@dataclass
class ScheduleClaims:
    """The promises of a schedule, the result that it states if its scaling is explicit, and its blocks other than A, B and C."""

    in_place: bool = False
    restores: tuple[str, ...] = ()
    result: Result | None = None
    temporaries: dict[str, Space] = field(default_factory=dict)
    place: Span | None = None
    """The place where the first temporaries are named."""


def read_claims(word: Word | None, reporter: Reporter) -> ScheduleClaims:
    """The claims of a header; unknown and contradictory ones are reported (E223)."""
    claims = ScheduleClaims()
    if word is None:
        return claims
    if word.text.strip(" \t,:") == "":
        reporter.report("E223", "no claim follows the colon", word.span, "expected a claim", hint=f"known claims: {'; '.join(_CLAIMS)}")
    for match in re.finditer(r"[^,:]+", word.text):
        if match[0].strip():
            _read_claim(" ".join(match[0].split()), _place(match, word), claims, reporter)
    if claims.temporaries and claims.result is None:
        hint = "say what C becomes, such as C = alpha*A*B + beta*C; every step then says all that it computes"
        reporter.report("E223", "temporaries without a claim of what C becomes", claims.place, "not enough", hint=hint)
    if claims.temporaries and claims.in_place:
        reporter.report("E223", "an in-place schedule has no temporaries", claims.place, "a contradiction", hint="leave out in-place")
    return claims


def _read_claim(claim: str, span: Span, claims: ScheduleClaims, reporter: Reporter) -> None:
    result = _RESULT.fullmatch(claim.replace(" ", ""))
    operands = re.fullmatch(r"restores((?: [AB])+)", claim)
    temporaries = _TEMPORARIES.fullmatch(claim)
    if claim == "in-place":
        claims.in_place = True
    elif operands is not None:
        claims.restores = tuple(sorted({*claims.restores, *operands[1].split()}))
    elif result is not None and claims.result is None:
        alpha, beta = _coefficient(result[1], result[2]), _coefficient(result[3], result[4]) if result[3] else 0
        claims.result = Result(alpha, beta)
    elif result is not None:
        reporter.report("E223", "a second claim of what C becomes", span, "claimed again", hint="leave one of them out")
    elif temporaries is not None:
        claims.place = claims.place or span
        _add_temporaries(temporaries[1].split(), temporaries[2] or "", span, claims, reporter)
    else:
        hint = did_you_mean(claim, _CLAIMS) or f"known claims: {'; '.join(_CLAIMS)}"
        reporter.report("E223", f"{shown(claim)} is not a claim", span, "not known", hint=hint)
        if re.match(r"C *[+-]?=", claim):  # its stages scale explicitly
            claims.result = claims.result or Result()


def _add_temporaries(names: list[str], shape: str, span: Span, claims: ScheduleClaims, reporter: Reporter) -> None:
    for name in names:
        if name in ("A", "B", "C", "like") or is_block(name) or name in claims.temporaries:
            what = "is named twice" if name in claims.temporaries else "is not a name for a temporary"
            reporter.report("E223", f"{shown(name)} {what}", span, "another name is needed", hint="choose a name such as X")
            return
        claims.temporaries[name] = Space(name, shape, 0, 0)


def _coefficient(sign: str, text: str | None) -> Coefficient:
    value = 1 if text is None else generator(text) if text.isalpha() else exact(Fraction(text))
    return -value if sign == "-" else value


def _place(match: re.Match[str], word: Word) -> Span:
    start = word.span.start + match.start() + len(match[0]) - len(match[0].lstrip())
    return Span(word.span.source, start, start + len(match[0].strip()))
