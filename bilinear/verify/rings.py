"""The rings over which a scheme holds, with its coefficients as written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Protocol, Self

from bilinear.analysis.brent import Residual, lowest_power
from bilinear.ir.number import square
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Scheme

if TYPE_CHECKING:
    from bilinear.verify.engine import PolyElement


class Number(Protocol):
    """An element of a domain. A rational has `numerator` and `denominator`, a rational function of lambda has `numer` and `denom`."""

    def __add__(self, other: Self, /) -> Self: ...
    def __sub__(self, other: Self, /) -> Self: ...
    def __mul__(self, other: Self, /) -> Self: ...
    def __truediv__(self, other: Self, /) -> Self: ...
    def __neg__(self) -> Self: ...
    def __pow__(self, exponent: int, /) -> Self: ...

    numerator: int
    denominator: int
    numer: PolyElement
    denom: PolyElement

    def to_list(self) -> Sequence[Number]:
        """Of an algebraic number: the rationals before the powers of its generator, the highest first."""


MOST_TRIED = 10_000  # Prime factors below this are named; the cofactor is named as a whole.


@dataclass(frozen=True)
class RingFacts:
    """The rings over which a scheme holds, by its residual.

    `ring` is the ring of the scheme. `modulus` is the largest g such that the equations hold modulo g: 0 if they hold exactly, 1 if they
    hold modulo nothing. `denominator` must be invertible. For an approximate scheme `order` is the largest h >= 1 such that the error is
    O(lambda^h), None without an error, and `degree` the largest power of 1/lambda in a product: in arithmetic of precision eps the best
    lambda gives an error of about eps^(h / (h + degree)) (Bini, Lotti, Romani 1980).
    """

    ring: Ring
    modulus: int
    denominator: int
    order: int | None = None
    degree: int | None = None

    @property
    def for_reals(self) -> bool:
        """True if its equations hold exactly for real numbers."""
        return self.for_complex and not self.ring.is_complex

    @property
    def for_complex(self) -> bool:
        """True if its equations hold exactly for complex numbers."""
        return self.modulus == 0 and not self.ring.is_approximate

    @property
    def valid_over(self) -> tuple[str, ...]:
        """The rings over which it holds, stated as widely as the coefficients allow; empty if there are none."""
        if self.ring.is_approximate:
            return (f"{self.ring} up to O(lambda^{self.order})" if self.order else str(self.ring),) if self.modulus == 0 else ()
        if self.modulus:  # over Z/p for its prime factors, and over Z/g itself unless it is one of them
            primes = [p for p in factors(self.modulus) if p < MOST_TRIED**2]
            return tuple(f"Z/{q}" for q in dict.fromkeys([*primes, self.modulus]) if q > 1)
        if self.ring.generator:
            root = square(self.ring.generator) or 0
            return str(self.ring), *(("R",) if root > 0 else ()), "C", *self._localized()
        return self._localized()

    @property
    def fails_over(self) -> tuple[str, ...]:
        """Rings that one might expect, but over which it does not hold as written."""
        if self.ring.is_approximate:
            return ()
        if self.modulus:
            return "Z", "Q"
        return tuple(f"Z/{p}" for p in factors(self.denominator) if p < MOST_TRIED**2) if self.denominator > 1 else ()

    def __str__(self) -> str:
        held = f"holds over {', '.join(self.valid_over)}" if self.valid_over else "holds over no ring"
        return held + (f", not over {', '.join(self.fails_over)}" if self.valid_over and self.fails_over else "")

    def _localized(self) -> tuple[str, ...]:
        """The smallest ring that contains all coefficients, and the others that do."""
        root = self.ring.generator
        rings = f"every ring with {root}" if root else "every ring"
        inverted = prod(factors(self.denominator))
        if inverted == 1:
            return (rings,)
        return f"Z[{root},1/{inverted}]" if root else f"Z[1/{inverted}]", f"{rings} in which {inverted} is invertible"


def facts_of(scheme: Scheme, left: Residual, denominator: int) -> RingFacts:
    """The facts about a scheme with this residual and common denominator."""
    if not scheme.ring.is_approximate:
        return RingFacts(scheme.ring, left.modulus, denominator)
    order = left.order if left.is_zero else None
    return RingFacts(scheme.ring, 0 if left.is_zero else 1, denominator, order, max(0, -lowest_power(scheme)))


def factors(number: int) -> tuple[int, ...]:
    """The primes below `MOST_TRIED` that divide a number, then its cofactor unless that is 1."""
    found = []
    for p in range(2, MOST_TRIED):
        if number % p == 0:
            found.append(p)
        while number % p == 0:
            number //= p
        if p * p > number:
            break
    return (*found, number) if number > 1 else tuple(found)
