"""Linear maps whose coefficients may be multiples of a number that the file does not state: a letter, or plinopt's placeholder 1013."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction

from bilinear.ir.linear import LinearMap, form
from bilinear.ir.number import Coefficient, exact, generator
from bilinear.ir.ring import Ring, parse_ring
from bilinear.source import Source

PLACEHOLDER = 1013
"""A prime that stands for an algebraic number in files of rationals."""

_NAMED = re.compile(r"(?:sqrt\(\s*(-?[0-9]{1,6})\s*\)|square root of (-?[0-9]{1,6}))")


@dataclass(frozen=True)
class Marked:
    """A value as written: `number`, times the placeholder if it is a `root`; `letter` if that is certain."""

    number: Fraction
    root: bool = False
    letter: bool = False

    def coefficient(self, ring: Ring) -> Coefficient:
        """The value with the placeholder replaced by the ring's generator, or by the integer 1013 if there is none."""
        if not self.root:
            return exact(self.number)
        if ring.generator:
            return self.number * generator(ring.generator)
        return exact(self.number * PLACEHOLDER)


def marked(number: Fraction) -> Marked:
    """A rational, marked where it is a multiple of 1013."""
    if number and number.numerator % PLACEHOLDER == 0:
        return Marked(number / PLACEHOLDER, root=True)
    return Marked(number)


MarkedForm = tuple[tuple[int, Marked], ...]


@dataclass(frozen=True)
class Part:
    """One linear map of a scheme as its file writes it: a `LinearMap` with marked values."""

    source: Source
    inputs: int
    outputs: tuple[MarkedForm, ...]
    steps: tuple[MarkedForm, ...] = ()
    names: tuple[str, ...] = ()
    at_least: bool = False
    """Whether there may be more, unread inputs: a program does not state how many it has."""

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs and inputs: the size of the matrix."""
        return len(self.outputs), self.inputs

    @property
    def roots(self) -> list[Marked]:
        """The values that are multiples of the placeholder."""
        return [value for row in self.outputs + self.steps for _, value in row if value.root]

    def linear(self, ring: Ring) -> LinearMap:
        """The map over a ring whose generator replaces the placeholder."""
        steps, outputs = (
            tuple(form((i, value.coefficient(ring)) for i, value in row) for row in rows) for rows in (self.steps, self.outputs)
        )
        return LinearMap(self.inputs, outputs, steps, self.names)

    def widened(self, inputs: int) -> Part:
        """The same map with more, unread inputs; unchanged if its file states their number."""
        if inputs <= self.inputs or not self.at_least:
            return self
        shift = inputs - self.inputs
        steps, outputs = (
            tuple(tuple((i + shift * (i >= self.inputs), value) for i, value in row) for row in rows) for rows in (self.steps, self.outputs)
        )
        return replace(self, inputs=inputs, outputs=outputs, steps=steps)


def named_ring(parts: tuple[Part, ...]) -> Ring | None:
    """The ring of the number that a comment names for the placeholder."""
    for part in parts:
        for line in (" ".join(text.split()) for text in part.source.text.splitlines()):
            match = _NAMED.search(line) if line.startswith((f"# {PLACEHOLDER} ", "# X ")) else None
            if match is not None:
                square = match[1] or match[2]
                return Ring("Q[i]") if square == "-1" else parse_ring(f"Q[sqrt({square})]")
    return None
