"""Build schemes from others, as in `scheme big = laderman (x) strassen`, by the operations of `algebra`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import TypeVar

from bilinear.algebra.combined import AnyScheme, lies_over, maps_of
from bilinear.algebra.composition import classical, direct_sum, rotate, tensor, tensor_complex, tensor_digits, transpose
from bilinear.algebra.maps import number_of_terms
from bilinear.errors import BilinearError
from bilinear.frontend.headers import read_numbers, read_ring
from bilinear.frontend.reporter import Reporter, shown
from bilinear.frontend.schemes import read_citation
from bilinear.frontend.syntax import Broken, Citation, CompositionStatement, Expression, Statement, SymmetryCall, Word
from bilinear.frontend.tree import MOST_NESTED, NESTED
from bilinear.ir.complex_scheme import ComplexAlgorithm
from bilinear.ir.digits import DigitScheme
from bilinear.ir.scheme import Places, Scheme
from bilinear.source import Span

Made = TypeVar("Made", Scheme, DigitScheme, ComplexAlgorithm)
FindScheme = Callable[[Word, Reporter], AnyScheme | None]
"""Finds the scheme that a word names in other files (a quoted word: in that file); reports it and returns None if there is none."""

MOST_TERMS = 250_000
"""The most terms in the sums of all intermediate schemes of a file's compositions."""
_FORMAT = re.compile(r"<\s*([1-9][0-9]{0,8})\s*,\s*([1-9][0-9]{0,8})\s*,\s*([1-9][0-9]{0,8})\s*>")


class Composer:
    """The schemes of one file by name: those written out, and the compositions, each built on first use."""

    def __init__(
        self,
        written: MutableMapping[str, AnyScheme | None],
        compositions: Mapping[str, tuple[CompositionStatement, Sequence[Statement]]],
        find: FindScheme,
        reporter: Reporter,
    ) -> None:
        self._known = written
        self._compositions = compositions
        self._find = find
        self._reporter = reporter
        self._open: list[str] = []
        self._terms = 0

    def named(self, word: Word) -> AnyScheme | None:
        """The scheme that a word names, in this file or elsewhere; None if there is none, which is reported."""
        name = word.text
        if name in self._known:
            return self._known[name]
        if name not in self._compositions:
            return self._find(word, self._reporter)
        if name in self._open:
            circle = " -> ".join([*self._open[self._open.index(name) :], name])
            self._reporter.report("E645", f"{shown(name)} is made of itself", word.span, "a circle", note=circle[:200])
            return None
        if len(self._open) >= MOST_NESTED:
            return self._too_deep(word.span)
        self._open.append(name)
        self._known[name] = self._composed(*self._compositions[name])
        self._open.pop()
        return self._known[name]

    def _composed(self, header: CompositionStatement, body: Sequence[Statement]) -> AnyScheme | None:
        before = len(self._reporter.found) + self._reporter.unreported
        citation = read_citation(body, self._reporter)
        stranger = next((s for s in body if not isinstance(s, Citation | Broken)), None)
        if stranger is not None:
            hint = "give what is written out a header of its own"
            self._reporter.report("E646", "a composition has nothing but a source", stranger.span, "not expected", hint=hint)
        numbers = read_numbers(header.format, self._reporter) if header.format is not None else None
        ring = read_ring(header.ring, self._reporter) if header.ring is not None else None
        scheme = self._value(header.value)
        if scheme is None or len(self._reporter.found) + self._reporter.unreported > before or any(isinstance(s, Broken) for s in body):
            return None
        sizes = (scheme.m, scheme.k, scheme.n) if isinstance(scheme, Scheme) else scheme.sizes
        if header.format is not None and numbers != (*sizes, scheme.rank):
            message = f"{shown(header.name.text)} is {scheme.format}, its header says {header.format.text}"
            self._reporter.report("E644", message, header.format.span, "another format", hint=f"write {scheme.format}, or leave it out")
            return None
        if ring is not None and not (isinstance(scheme, Scheme) and lies_over(scheme, ring)):
            own = _ring_of(scheme)
            message = f"{shown(header.name.text)} is over {own}, not over {ring}"
            self._reporter.report("E640", message, header.ring.span if header.ring else None, "another ring", hint="leave out the ring")
            return None
        name, text = header.name.text, citation or scheme.citation
        if isinstance(scheme, ComplexAlgorithm):
            return replace(scheme, name=name, citation=text)
        place = header.value.span
        places = Places(header.span, (place,) * scheme.rank, (place,) * (sizes[0] * sizes[2]))
        if isinstance(scheme, DigitScheme):
            return replace(scheme, name=name, citation=text, places=places)
        return replace(scheme, name=name, ring=ring or scheme.ring, citation=text, places=places)

    def _value(self, value: Expression) -> AnyScheme | None:
        """The scheme of an expression; None if an error was reported."""
        if isinstance(value, Word):
            return self._operand(value)
        if isinstance(value, SymmetryCall):
            inner = self._of_blocks(self._value(value.argument), value.function)
            turn = {"rotate": rotate, "transpose": transpose}[value.function.text]
            return self._made(lambda: turn(inner), value.function.span) if inner is not None else None
        made = self._value(value.first)
        for operator, part in value.rest:
            if self._reporter.full:
                return None
            other = self._value(part)
            made = self._joined(made, other, operator) if made is not None and other is not None else None
        return made

    def _joined(self, first: AnyScheme, second: AnyScheme, operator: Word) -> AnyScheme | None:
        letter, both = operator.text.strip("( \t+)"), (first, second)
        if letter == "x" and any(isinstance(x, ComplexAlgorithm) for x in both):
            return self._made(lambda: tensor_complex(first, second), operator.span)
        if letter == "x" and any(isinstance(x, DigitScheme) for x in both):
            return self._made(lambda: tensor_digits(first, second), operator.span)
        one, other = self._of_blocks(first, operator), self._of_blocks(second, operator)
        if one is None or other is None:
            return None
        make = (lambda: tensor(one, other)) if letter == "x" else (lambda: direct_sum(one, other, letter))
        return self._made(make, operator.span)

    def _of_blocks(self, scheme: AnyScheme | None, operator: Word) -> Scheme | None:
        """A scheme of blocks; one that multiplies digits or complex numbers is reported (E236)."""
        if scheme is None or isinstance(scheme, Scheme):
            return scheme
        numbers = "digits" if isinstance(scheme, DigitScheme) else "complex numbers"
        hint = f"(x) composes it with block schemes: strassen (x) {scheme.name}"
        message = f"{shown(scheme.name)} multiplies {numbers}, and {operator.text} joins schemes of blocks"
        self._reporter.report("E236", message, operator.span, "not of blocks", hint=hint)
        return None

    def _made(self, make: Callable[[], Made], place: Span) -> Made | None:
        """The result of an operation. Its errors, and excessive work (E641), are reported at this place."""
        try:
            made = make()
        except BilinearError as error:
            for d in error.diagnostics:
                self._reporter.report(d.code, d.message, place, "cannot be composed", note="; ".join(d.notes), hint="; ".join(d.hints))
            return None
        parts: tuple[Scheme, ...] = (made,) if isinstance(made, Scheme) else made.parts
        self._terms += sum(number_of_terms(linear) for scheme in parts for linear in maps_of(scheme))
        if self._terms > MOST_TERMS:
            note = f"at most {MOST_TERMS} terms are composed in a file"
            self._reporter.report("E641", "the compositions of this file are too many", place, "up to here", note=note)
            return None
        return made

    def _operand(self, word: Word) -> AnyScheme | None:
        if word.text == NESTED:
            return self._too_deep(word.span)
        if not word.text.startswith("<"):
            return self.named(word)
        match = _FORMAT.fullmatch(word.text)
        if match is None:
            hint = "<2,2,3> is the classical scheme of that format, of 12 products"
            self._reporter.report("E201", f"{shown(word.text)} is not a format", word.span, "expected <m,k,n>", hint=hint)
            return None
        m, k, n = map(int, match.groups())
        return self._made(lambda: classical(m, k, n), word.span)

    def _too_deep(self, place: Span) -> Scheme | None:
        hint = "name the inner part in a composition of its own"
        self._reporter.report("E647", f"compositions nest at most {MOST_NESTED} deep", place, "too deep", hint=hint)
        return None


def _ring_of(scheme: AnyScheme) -> str:
    """The ring of a scheme, or the digits that it is over, as they are written."""
    if isinstance(scheme, DigitScheme):
        return scheme.representation.name
    return str(scheme.ring if isinstance(scheme, Scheme) else scheme.core.ring)
