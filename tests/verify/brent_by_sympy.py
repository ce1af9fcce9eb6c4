"""A second opinion on the Brent equations: sympy's sparse matrices over the domain that the ring is.

W (mn x r) times the matrix whose row p is the Kronecker product of row p of U and row p of V must be the tensor of matrix multiplication.
It shares no arithmetic with `analysis.brent`, and is slower; it is for formats up to about 5x5x5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from bilinear.ir.linear import Form
from bilinear.ir.number import Coefficient, Symbolic, generator
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Scheme

if TYPE_CHECKING:
    from sympy.polys.matrices import DomainMatrix

Failures = dict[tuple[int, int], Coefficient]
"""By block of C and pair (block of A times kn, plus block of B): found minus needed. Over Q[lambda] without the terms of positive order."""


def failures_by_algebra(scheme: Scheme) -> Failures:
    """The Brent equations that fail over the scheme's ring, by matrix algebra over sympy's domain for it."""
    m, k, n = scheme.m, scheme.k, scheme.n
    field = ExactDomain.of(scheme.ring, scheme.tables)
    u, v, w = (field.matrix(table, width) for table, width in zip(scheme.tables, (m * k, k * n, scheme.rank), strict=True))
    computed = w * field.khatri_rao(u, v)
    return field.failures(computed - field.matrix(_tensor(m, k, n), m * k * k * n, field.shift * 3))


def _tensor(m: int, k: int, n: int) -> list[Form]:
    """The matrix multiplication tensor: row (i,j) of C over the pairs (block of A, block of B)."""
    return [tuple(((i * k + p) * k * n + p * n + j, 1) for p in range(k)) for i in range(m) for j in range(n)]


@dataclass(frozen=True)
class ExactDomain:
    """A sympy domain for a ring; each table of Q[lambda] is multiplied by lambda^shift, so that it is one of polynomials."""

    ring: Ring
    domain: Any
    shift: int = 0

    @staticmethod
    def of(ring: Ring, tables: Sequence[Sequence[Form]] = ()) -> ExactDomain:
        """The domain of a ring; for Q[lambda] the shift is that of these tables."""
        from sympy import GF, QQ, ZZ, I, Symbol, sqrt

        if ring.is_approximate:
            powers = [e for table in tables for row in table for _, c in row for e, _ in _by_power(c)]
            return ExactDomain(ring, QQ[Symbol("x")], max(0, -min(powers, default=0)))
        if ring.modulus:
            return ExactDomain(ring, GF(ring.modulus, symmetric=False))
        if ring.generator:
            root = I if ring.generator == "i" else sqrt(int(ring.generator[5:-1]))
            return ExactDomain(ring, QQ.algebraic_field(root))
        return ExactDomain(ring, ZZ if ring.name == "Z" else QQ)

    def matrix(self, rows: Sequence[Form], columns: int, shift: int | None = None) -> DomainMatrix:
        """Sparse rows as a sparse matrix."""
        from sympy.polys.matrices import DomainMatrix

        by = self.shift if shift is None else shift
        entries = {i: {j: self.element(value, by) for j, value in row} for i, row in enumerate(rows)}
        kept = {i: {j: value for j, value in row.items() if value} for i, row in entries.items()}
        return DomainMatrix({i: row for i, row in kept.items() if row}, (len(rows), columns), self.domain)

    def element(self, value: Coefficient, shift: int = 0) -> Any:
        """A coefficient as an element of the domain."""
        from sympy import QQ

        terms = {e: QQ(c.numerator, c.denominator) for e, c in _by_power(value)}
        if self.ring.is_approximate:
            x = self.domain.gens[0]
            return sum((self.domain(c) * x ** (e + shift) for e, c in terms.items()), self.domain.zero)
        if self.ring.generator:
            return self.domain([terms.get(1, QQ(0)), terms.get(0, QQ(0))])
        c = terms.get(0, QQ(0))
        return self.domain(int(c.numerator)) / self.domain(int(c.denominator)) if self.ring.modulus else self.domain.convert_from(c, QQ)

    def khatri_rao(self, u: DomainMatrix, v: DomainMatrix) -> DomainMatrix:
        """The matrix whose row p is the Kronecker product of the rows p."""
        from sympy.polys.matrices import DomainMatrix

        left, right, width = u.to_sdm(), v.to_sdm(), v.shape[1]
        rows = {p: {i * width + j: a * b for i, a in left[p].items() for j, b in right[p].items()} for p in left if p in right}
        return DomainMatrix(rows, (u.shape[0], u.shape[1] * width), self.domain)

    def failures(self, wrong: DomainMatrix) -> Failures:
        """What is not zero."""
        found = {(o, pair): self.number(value) for o, row in wrong.to_sdm().items() for pair, value in row.items()}
        return {place: value for place, value in found.items() if value}

    def number(self, value: Any) -> Coefficient:
        """An element of the domain as a coefficient."""
        if self.ring.modulus:
            return int(value) % self.ring.modulus
        if self.ring.is_approximate:
            terms = [(power[0] - 3 * self.shift, c) for power, c in value.terms()]
            return _sum(self.ring, [(e, c) for e, c in terms if e <= 0])
        if self.ring.generator:
            return _sum(self.ring, list(enumerate(reversed(value.to_list()))))
        return _sum(self.ring, [(0, value)])


def _by_power(value: Coefficient) -> list[tuple[int, Fraction]]:
    if not isinstance(value, Symbolic):
        return [(0, Fraction(value))]
    return [(sum(e for _, e in monomial), c) for monomial, c in value.terms]


def _sum(ring: Ring, terms: list[tuple[int, Any]]) -> Coefficient:
    total: Coefficient = 0
    for power, c in terms:
        size = Fraction(int(c.numerator), int(c.denominator))
        total = total + (size * generator(ring.generator, power) if power else size)
    return total.numerator if isinstance(total, Fraction) and total.denominator == 1 else total
