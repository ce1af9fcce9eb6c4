"""Divisors without an inverse in the ring: 2 over Z, 1 + lambda over Q[lambda]."""

from __future__ import annotations

from collections.abc import Iterable
from math import lcm
from typing import TYPE_CHECKING

from bilinear.ir.ring import Ring
from bilinear.verify.elements import Number

if TYPE_CHECKING:
    from bilinear.verify.engine import PolyElement


def needed_divisor(ring: Ring, coefficients: Iterable[Number]) -> str:
    """The divisor in some coefficients, elements of `domain_of(ring)`, that has no inverse in the ring; empty if there is none.

    The domain is a field that contains the ring: Q for Z; rational functions for Q[lambda], whose elements are Laurent polynomials, so
    powers of lambda are invertible. The other rings that are asked about are fields.
    """
    if ring.name == "Z":
        divisor = lcm(*(int(c.denominator) for c in coefficients))
        return str(divisor) if divisor > 1 else ""
    if not ring.is_approximate:
        return ""
    product: PolyElement | None = None
    for coefficient in coefficients:
        denominator = coefficient.denom
        product = denominator if product is None else product.lcm(denominator)
    return _without_monomial(product) if product is not None else ""


def _without_monomial(polynomial: PolyElement) -> str:
    """A polynomial in lambda without its power of lambda and constant factor; empty if nothing else is left."""
    lowest = min(power for (power,) in polynomial.monoms())
    rest = {(power - lowest,): c for (power,), c in polynomial.terms()}
    if len(rest) == 1:
        return ""
    return str(polynomial.ring.from_dict(rest).primitive()[1].as_expr()).replace("**", "^")
