"""Exact matrices over the rationals, or over them with one root, in sympy's domains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from bilinear.ir.linear import Form
from bilinear.ir.number import Coefficient, Symbolic, exact, generator
from bilinear.verify.elements import Number

if TYPE_CHECKING:
    from bilinear.verify.engine import Domain, DomainMatrix


@dataclass(frozen=True)
class ExactDomain:
    """A sympy domain for Q, or for Q with a root, by the name of its generator."""

    generator: str
    domain: Domain

    @staticmethod
    def of(name: str) -> ExactDomain:
        """The domain of Q with this generator, `i` or `sqrt(d)`; Q itself if the generator is empty."""
        from bilinear.verify.engine import QQ, I, sqrt

        if not name:
            return ExactDomain(name, QQ)
        return ExactDomain(name, QQ.algebraic_field(I if name == "i" else sqrt(int(name[5:-1]))))

    def matrix(self, rows: Sequence[Form], columns: int) -> DomainMatrix:
        """Sparse rows as a sparse matrix."""
        from bilinear.verify.engine import DomainMatrix

        entries = {i: {j: self.element(value) for j, value in row} for i, row in enumerate(rows) if row}
        return DomainMatrix(entries, (len(rows), columns), self.domain)

    def element(self, value: Coefficient) -> Number:
        """A coefficient as an element of the domain."""
        from bilinear.verify.engine import QQ

        terms = {e: QQ(c.numerator, c.denominator) for e, c in _by_power(value)}
        whole: Number = terms.get(0, QQ(0))
        if self.generator:
            whole = self.domain([terms.get(1, QQ(0)), whole])
        return whole

    def number(self, value: Number) -> Coefficient:
        """An element of the domain as a coefficient."""
        powers = list(reversed(value.to_list())) if self.generator else [value]
        whole, *root = (Fraction(int(c.numerator), int(c.denominator)) for c in powers)
        return exact(whole + root[0] * generator(self.generator) if root else whole)


def _by_power(value: Coefficient) -> list[tuple[int, Fraction]]:
    if not isinstance(value, Symbolic):
        return [(0, Fraction(value))]
    return [(sum(e for _, e in monomial), c) for monomial, c in value.terms]
