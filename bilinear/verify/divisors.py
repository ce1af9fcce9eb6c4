"""What must be divided by, where a ring does not let one: 2 over Z, 1 + lambda over Q[lambda]."""

from __future__ import annotations

from collections.abc import Iterable
from math import lcm
from typing import Any

from bilinear.ir.ring import Ring


def needed_divisor(ring: Ring, coefficients: Iterable[Any]) -> str:
    """What some coefficients, elements of `domain_of(ring)`, are divided by that has no inverse in the ring; empty where nothing.

    The domain is a field in which the ring lies: Q for Z, and the rational functions for Q[lambda], whose elements are Laurent
    polynomials, so that powers of lambda divide. The other rings are fields.
    """
    if ring.name == "Z":
        divisor = lcm(*(int(c.denominator) for c in coefficients))
        return str(divisor) if divisor > 1 else ""
    if not ring.is_approximate:
        return ""
    product: Any = None
    for coefficient in coefficients:
        denominator = coefficient.denom
        product = denominator if product is None else product.lcm(denominator)
    return _without_monomial(product) if product is not None else ""


def _without_monomial(polynomial: Any) -> str:
    """A polynomial in lambda, without its power of lambda and its constant factor; nothing where only these are left."""
    lowest = min(power for (power,) in polynomial.monoms())
    rest = {(power - lowest,): c for (power,), c in polynomial.terms()}
    if len(rest) == 1:
        return ""
    return str(polynomial.ring.from_dict(rest).primitive()[1].as_expr()).replace("**", "^")
