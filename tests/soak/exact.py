"""Brent's equations multiplied out, term by term: what a scheme's tables compute, by nothing of the package but its numbers' parts."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import prod
from typing import Any

from bilinear.ir.digits import DigitScheme
from bilinear.ir.number import Symbolic
from bilinear.ir.scheme import Scheme

Entry = tuple[int, int, Fraction]  # Column, power of the ring's generator, and a rational factor.
Rows = Sequence[Sequence[Entry]]
WRONG = 0  # The order of an error that does not vanish with lambda.


def entries(table: Iterable[Iterable[tuple[int, Any]]]) -> list[list[Entry]]:
    """The rows of a table of coefficients."""
    return [[(index, power, value) for index, c in row for power, value in parts(c)] for row in table]


def parts(coefficient: Any) -> list[tuple[int, Fraction]]:
    """A coefficient as powers of its one generator, and their factors."""
    if not isinstance(coefficient, Symbolic):
        return [(0, Fraction(coefficient))]
    assert len(coefficient.generators) <= 1
    return [(sum(e for _, e in monomial), Fraction(value)) for monomial, value in coefficient.terms]


def error_of(scheme: Scheme) -> int | None:
    """The order of the error of a scheme's tables, as `error_order` says it."""
    u, v, w = scheme.tables
    return error_order(str(scheme.ring), (scheme.m, scheme.k, scheme.n), entries(u), entries(v), entries(w))


def error_order(ring: str, sizes: tuple[int, int, int], u: Rows, v: Rows, w: Rows) -> int | None:
    """None where the tables multiply in the ring, WRONG where they do not; over Q[lambda] the least power of lambda in their error.

    `u` and `v` have a row a product, `w` a row a block of C; blocks are numbered row by row.
    """
    m, k, n = sizes
    found: dict[tuple[int, int, int, int], Fraction] = {}
    by_product: list[list[tuple[int, int, Fraction]]] = [[] for _ in u]
    for c, row in enumerate(w):
        for product, power, value in row:
            by_product[product].append((c, power, value))
    for left, right, out in zip(u, v, by_product, strict=True):
        for a, p, x in left:
            for b, q, y in right:
                for c, r, z in out:
                    key = a, b, c, p + q + r
                    found[key] = found.get(key, 0) + x * y * z
    if m * k * n > len(found):  # an equation has no product at all; sizes may say anything
        return WRONG
    for i in range(m):
        for j in range(n):
            for p in range(k):
                key = i * k + p, p * n + j, i * n + j, 0
                found[key] = found.get(key, Fraction(0)) - 1
    powers = {key[3] for key, value in _reduced(found, ring).items() if value}
    return max(WRONG, min(powers)) if powers else None


def _reduced(found: dict[tuple[int, int, int, int], Fraction], ring: str) -> dict[tuple[int, int, int, int], Fraction]:
    """Residues modulo p; powers of a root without its squares; a power that is not lambda's counts as none."""
    if ring.startswith("Z/"):
        p = int(ring[2:])
        return {key: Fraction(value.numerator * pow(value.denominator, -1, p) % p) for key, value in found.items()}
    if ring == "Q[lambda]" or ring in ("Z", "Q"):
        return found
    square = -1 if ring == "Q[i]" else int(ring[len("Q[sqrt(") : -2])
    total: dict[tuple[int, int, int, int], Fraction] = {}
    for (a, b, c, power), value in found.items():
        key = a, b, c, power % 2
        total[key] = total.get(key, Fraction(0)) + value * Fraction(square) ** (power // 2)
    return {(a, b, c, 0): Fraction(1) for (a, b, c, _), value in total.items() if value}


def belongs(scheme: Scheme) -> bool:
    """Whether every coefficient is in the ring that the scheme names."""
    ring = str(scheme.ring)
    for table in scheme.tables:
        for row in entries(table):
            for _, power, value in row:
                if power and "[" not in ring:
                    return False
                if ring == "Z" and value.denominator != 1:
                    return False
                if ring.startswith("Z/") and value.denominator % int(ring[2:]) == 0:
                    return False
    return True


def is_right(scheme: Scheme) -> bool:
    """Whether a scheme that was accepted is what it says."""
    order = error_of(scheme)
    return belongs(scheme) and (order is None or order > WRONG)


def multiplies_complex_residues(scheme: DigitScheme, draw: random.Random) -> bool:
    """The same of complex numbers, whose parts are drawn, by both of their parts modulo every p."""
    own = scheme.representation
    numbers = a, b, c, d = [draw.getrandbits(200) for _ in range(4)]
    x, y = ([part % p for p in own.moduli for part in pair] for pair in (numbers[:2], numbers[2:]))
    u, v, w = ([[(i, int(value)) for i, _, value in row] for row in entries(table)] for table in scheme.core.tables)
    products = [sum(k * x[i] for i, k in left) * sum(k * y[i] for i, k in right) for left, right in zip(u, v, strict=True)]
    found = [sum(k * products[p] for p, k in row) for row in w]
    wanted = a * c - b * d, a * d + b * c
    return all((f - e) % prod(own.moduli) == 0 for f, e in zip(found, wanted, strict=True)) and all(map(is_right, scheme.parts))


def multiplies_digits(scheme: DigitScheme, draw: random.Random) -> bool:
    """Whether drawn digits, multiplied by an accepted scheme, give the product: up to lambda^n for n digits, or modulo every p."""
    own, core = scheme.representation, scheme.core
    if own.gaussian:
        return multiplies_complex_residues(scheme, draw)
    step = Fraction(0) if own.is_modular else Fraction(1, 2**60)
    u, v, w = ([[(i, value * step**power) for i, power, value in row] for row in entries(table)] for table in core.tables)
    x, y = ([draw.randint(-99, 99) for _ in range(own.count)] for _ in "xy")
    if own.is_modular:
        a, b = draw.getrandbits(200), draw.getrandbits(200)
        x, y = ([number % p for p in own.moduli] for number in (a, b))
    products = [sum(c * x[i] for i, c in left) * sum(c * y[i] for i, c in right) for left, right in zip(u, v, strict=True)]
    (found,) = (sum(c * products[p] for p, c in row) for row in w)
    if own.is_modular:
        return (found - a * b) % prod(own.moduli) == 0 and all(map(is_right, scheme.parts))
    whole = [sum(step**i * digit for i, digit in enumerate(digits)) for digits in (x, y)]
    off = Fraction(found - whole[0] * whole[1])
    return abs(off) < 10**6 * step**own.count and all(map(is_right, scheme.parts))
