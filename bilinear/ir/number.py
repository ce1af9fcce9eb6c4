"""Exact numbers beyond the rationals: polynomials in a few named generators, such as sqrt(3), i, lambda, alpha and beta."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import inf, isfinite, ldexp

from bilinear.ir.element import KNOWN

Monomial = tuple[tuple[str, int], ...]  # A product of powers of generators, by name; no exponent is 0.
HELD = 2**24  # float32 and wider types hold all integers up to it: a quotient of two rounds only once.

_ROOT = re.compile(r"sqrt\((-?[0-9]+)\)")


@dataclass(frozen=True)
class Symbolic:
    """A Laurent polynomial over the rationals in named generators, reduced by the squares of those that are roots.

    It represents every coefficient that is not rational: a number of Q[sqrt(3)] or Q[i], a polynomial in lambda (approximate schemes), or
    one in alpha and beta (schedules with explicit scaling). Arithmetic returns an `int` or a `Fraction` wherever the value is one.
    """

    terms: tuple[tuple[Monomial, Fraction], ...]

    def __add__(self, other: Coefficient) -> Coefficient:
        return _collect([*self.terms, *_terms(other)])

    def __neg__(self) -> Symbolic:
        return Symbolic(tuple((monomial, -c) for monomial, c in self.terms))

    def __sub__(self, other: Coefficient) -> Coefficient:
        return self + (-other)

    def __rsub__(self, other: Coefficient) -> Coefficient:
        return -self + other

    def __mul__(self, other: Coefficient) -> Coefficient:
        return _collect(_times(a, c, b, d) for a, c in self.terms for b, d in _terms(other))

    def __truediv__(self, other: int | Fraction) -> Coefficient:
        return _collect((monomial, c / other) for monomial, c in self.terms)

    def __str__(self) -> str:
        text = ""
        for monomial, coefficient in self.terms:
            sign = "-" if coefficient < 0 else "+" if text else ""
            factors = [name if e == 1 else f"{name}^{e}" for name, e in monomial]
            size = abs(coefficient)
            text += sign + "*".join(([str(size)] if size != 1 or not factors else []) + factors)
        return text

    __radd__ = __add__
    __rmul__ = __mul__

    @property
    def generators(self) -> frozenset[str]:
        """The names of the generators that occur."""
        return frozenset(name for monomial, _ in self.terms for name, _ in monomial)


Coefficient = int | Fraction | Symbolic


def generator(name: str, exponent: int = 1) -> Coefficient:
    """A power of a generator: `sqrt(d)` and `i` are roots, every other name is free."""
    return _collect([_times((), Fraction(1), ((name, exponent),), Fraction(1))])


def exact(value: Coefficient) -> Coefficient:
    """The same number, as an `int` if it is an integer."""
    return value.numerator if isinstance(value, Fraction) and value.denominator == 1 else value


def rational(value: Coefficient) -> Fraction:
    """The same number as a fraction; raises `ValueError` if it is not rational."""
    if isinstance(value, Symbolic):
        raise ValueError(f"{value} is not a rational number")
    return Fraction(value)


def residue(value: Coefficient, p: int) -> int:
    """A rational as an element of Z/p; raises `ValueError` if it is not rational or p divides its denominator."""
    if isinstance(value, Symbolic):
        raise ValueError(f"{value} is not a rational number")
    return value.numerator * pow(value.denominator, -1, p) % p


def rank_modulo(rows: Iterable[Sequence[int]], p: int) -> int:
    """The rank of rows of residues over Z/p."""
    pivots: dict[int, list[int]] = {}
    for row in rows:
        rest = list(row)
        for column, pivot in pivots.items():
            if factor := rest[column]:
                rest = [(x - factor * y) % p for x, y in zip(rest, pivot, strict=True)]
        lead = next((i for i, x in enumerate(rest) if x), None)
        if lead is not None:
            inverse = pow(rest[lead], -1, p)
            pivots[lead] = [x * inverse % p for x in rest]
    return len(pivots)


def is_negative(value: Coefficient) -> bool:
    """True if the number is written with a leading minus."""
    return (value.terms[0][1] if isinstance(value, Symbolic) else value) < 0


def to_float(value: Coefficient) -> float:
    """The double nearest to an algebraic number, infinite if it overflows; `ValueError` if it is not real or has a free generator."""
    if not isinstance(value, Symbolic):
        return nearest(value, "float64")
    total = 0.0
    for monomial, coefficient in value.terms:
        size = nearest(coefficient, "float64")
        for name, exponent in monomial:
            root = square(name)
            if root is None or root < 0:
                raise ValueError(f"{value} is not a real number")
            size *= float(root) ** (exponent / 2)
        total += size
    return total


def nearest(value: int | Fraction, dtype: str) -> float:
    """The number of an element type nearest to a rational, ties to even; infinite if it overflows."""
    if dtype == "float64":
        try:
            return value.numerator / value.denominator
        except OverflowError:
            return inf if value > 0 else -inf
    element = KNOWN[dtype]
    mantissa, exponent = rounded(value, element.significand, element.least)
    if mantissa.bit_length() + exponent > element.most:
        return inf if value > 0 else -inf
    return ldexp(mantissa, exponent)


def rounded(value: int | Fraction, digits: int, least: int) -> tuple[int, int]:
    """(M, e) with M * 2**e nearest to a rational, ties to even M, where |M| <= 2**digits and e >= `least`."""
    fraction = Fraction(value)
    exponent = fraction.numerator.bit_length() - fraction.denominator.bit_length() - digits
    if abs(fraction) >= Fraction(2) ** (exponent + digits):
        exponent += 1
    exponent = max(exponent, least)
    return round(fraction / Fraction(2) ** exponent), exponent


def is_normal(value: Coefficient, dtype: str) -> bool:
    """True if a real number rounds to 0, or to a finite number with all significant bits; raises `ValueError` as `to_float` does."""
    found = to_float(value) if isinstance(value, Symbolic) else nearest(value, dtype)
    if isinstance(value, Symbolic) and isfinite(found):
        found = nearest(Fraction(found), dtype)
    return value == 0 or KNOWN[dtype].smallest_normal <= abs(found) < inf


@lru_cache(maxsize=256)
def square(name: str) -> int | None:
    """The square of a generator that is a root of an integer; None for a free generator."""
    if name == "i":
        return -1
    match = _ROOT.fullmatch(name)
    return int(match[1]) if match is not None else None


def _terms(value: Coefficient) -> tuple[tuple[Monomial, Fraction], ...]:
    return value.terms if isinstance(value, Symbolic) else (((), Fraction(value)),)


def _times(a: Monomial, c: Fraction, b: Monomial, d: Fraction) -> tuple[Monomial, Fraction]:
    """The product of two terms, with every root reduced to power 0 or 1."""
    exponents: dict[str, int] = {}
    for name, exponent in (*a, *b):
        exponents[name] = exponents.get(name, 0) + exponent
    factor = c * d
    for name, exponent in exponents.items():
        root = square(name)
        if root is not None:
            factor *= Fraction(root) ** (exponent // 2)
            exponents[name] = exponent % 2
    return tuple(sorted((name, e) for name, e in exponents.items() if e)), factor


def _collect(terms: Iterable[tuple[Monomial, Fraction]]) -> Coefficient:
    total: dict[Monomial, Fraction] = {}
    for monomial, coefficient in terms:
        total[monomial] = total.get(monomial, Fraction(0)) + coefficient
    kept = tuple((monomial, total[monomial]) for monomial in sorted(total) if total[monomial])
    if not kept:
        return 0
    return exact(kept[0][1]) if len(kept) == 1 and not kept[0][0] else Symbolic(kept)
