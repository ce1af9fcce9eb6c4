"""Over which rings a scheme holds, as its coefficients are written."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from bilinear.analysis.brent import Residual, lowest_power
from bilinear.ir.number import square
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Scheme

MOST_TRIED = 10_000
"""Primes below are named as factors; what is left of a number is named as it is."""


@dataclass(frozen=True)
class RingFacts:
    """What the residual of a scheme tells about rings.

    `ring` is the one that it is written over. `modulus` is 0 where its equations hold exactly, 1 where they hold nowhere, and else the
    largest g such that they hold modulo g. `denominator` must be invertible. For an approximate scheme `order` is the largest h >= 1
    such that the error is O(lambda^h), None where there is no error, and `degree` the largest power of 1/lambda that meets a product:
    in arithmetic of precision eps the best lambda gives an error of about eps^(h / (h + degree)) (Bini, Lotti, Romani 1980).
    """

    ring: Ring
    modulus: int
    denominator: int
    order: int | None = None
    degree: int | None = None

    @property
    def for_reals(self) -> bool:
        """Whether its equations hold exactly for real numbers."""
        return self.for_complex and not (square(self.ring.generator) or 0) < 0

    @property
    def for_complex(self) -> bool:
        """Whether its equations hold exactly for complex numbers."""
        return self.modulus == 0 and not self.ring.is_approximate

    @property
    def valid_over(self) -> tuple[str, ...]:
        """The rings over which it holds, the widest statement that its coefficients as written allow; empty where it holds nowhere."""
        if self.ring.is_approximate:
            return (f"{self.ring} up to O(lambda^{self.order})" if self.order else str(self.ring),) if self.modulus == 0 else ()
        if self.modulus:
            return tuple(_modular(self.modulus))
        if self.ring.generator:
            root = square(self.ring.generator) or 0
            return str(self.ring), *(("R",) if root > 0 else ()), "C", *self._localized()
        return self._localized()

    @property
    def fails_over(self) -> tuple[str, ...]:
        """Rings that one may expect, and over which it does not hold as written."""
        if self.ring.is_approximate:
            return ()
        if self.modulus:
            return "Z", "Q"
        return tuple(f"Z/{p}" for p in factors(self.denominator) if p < MOST_TRIED**2) if self.denominator > 1 else ()

    def __str__(self) -> str:
        held = f"holds over {', '.join(self.valid_over)}" if self.valid_over else "holds over no ring"
        return held + (f", not over {', '.join(self.fails_over)}" if self.valid_over and self.fails_over else "")

    def _localized(self) -> tuple[str, ...]:
        """The least ring with all coefficients, and the others that have them."""
        root = self.ring.generator
        rings = f"every ring with {root}" if root else "every ring"
        inverted = prod(factors(self.denominator))
        if inverted == 1:
            return (rings,)
        return f"Z[{root},1/{inverted}]" if root else f"Z[1/{inverted}]", f"{rings} in which {inverted} is invertible"


def facts_of(scheme: Scheme, left: Residual, denominator: int) -> RingFacts:
    """The facts about a scheme whose residual and common denominator are known."""
    if not scheme.ring.is_approximate:
        return RingFacts(scheme.ring, left.modulus, denominator)
    order = left.order if left.is_zero else None
    return RingFacts(scheme.ring, 0 if left.is_zero else 1, denominator, order, max(0, -lowest_power(scheme)))


def factors(number: int) -> tuple[int, ...]:
    """The primes below `MOST_TRIED` that divide a number, then what is left of it, if anything."""
    found = []
    for p in range(2, MOST_TRIED):
        if number % p == 0:
            found.append(p)
        while number % p == 0:
            number //= p
        if p * p > number:
            break
    return (*found, number) if number > 1 else tuple(found)


def _modular(modulus: int) -> list[str]:
    """The rings Z/p of the prime factors, and Z/g itself where it is none of them."""
    if modulus == 1:
        return []
    primes = [p for p in factors(modulus) if p < MOST_TRIED**2]
    return [f"Z/{q}" for q in primes] + ([f"Z/{modulus}"] if modulus not in primes else [])
