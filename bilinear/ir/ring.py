"""The ring of a scheme's coefficients: Z, Q, Z/p, Z/2^k, Q[sqrt(d)], Q[i], or Q[lambda] for approximate schemes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import gcd

from bilinear.ir.number import Coefficient, Symbolic, square

RINGS = "Z, Q, Z/p (p a prime or a power of 2), Q[sqrt(d)] (d without square factors), Q[i], Q[lambda]"
"""The supported rings, as messages list them."""
MOST_DIGITS = 18  # The most digits of a modulus or of the number under a root.

_RING = re.compile(r"Z|Q|Z/([1-9][0-9]*)|Q\[(?:sqrt\((-?[0-9]+)\)|i|lambda)\]")


@dataclass(frozen=True)
class Ring:
    """A ring by the name it is written under: `Z`, `Q`, `Z/2`, `Q[sqrt(3)]`, `Q[i]`, `Q[lambda]`.

    In Z/p, where p may be a power of 2, a coefficient stands for its residue. In Q[lambda] coefficients are Laurent polynomials, and a
    scheme computes A*B up to terms of positive order in lambda (Bini, Capovani, Lotti, Romani 1979).
    """

    name: str = "Q"

    def __str__(self) -> str:
        return self.name

    @property
    def modulus(self) -> int:
        """The prime p of Z/p, or the power of 2; 0 for every other ring."""
        return int(self.name[2:]) if self.name.startswith("Z/") else 0

    @property
    def has_zero_divisors(self) -> bool:
        """True for Z/4, Z/8 and so on: there are numbers other than 0 without an inverse, in no larger ring either."""
        return self.modulus > 2 and self.modulus % 2 == 0

    @property
    def generator(self) -> str:
        """The generator adjoined to Q: `sqrt(3)`, `i`, `lambda`, or the empty string."""
        return self.name[2:-1] if self.name.endswith("]") else ""

    @property
    def is_approximate(self) -> bool:
        """True for Q[lambda], the ring of approximate (APA) schemes."""
        return self.generator == "lambda"

    @property
    def is_complex(self) -> bool:
        """True for Q[i], and for Q[sqrt(d)] with a negative d."""
        return (square(self.generator) or 0) < 0

    def holds(self, value: Coefficient) -> bool:
        """True if a coefficient, as written, belongs to the ring; Z/p takes rationals whose denominator is prime to p."""
        if isinstance(value, Symbolic):
            return value.generators <= {self.generator}
        if self.name == "Z":
            return value.denominator == 1
        return not self.modulus or gcd(value.denominator, self.modulus) == 1


RATIONALS = Ring()


def parse_ring(text: str) -> Ring | None:
    """The ring of this name; None if it is not supported (p must be a prime or a power of 2, the number under a root not a square)."""
    name = "".join(text.split())
    match = _RING.fullmatch(name)
    if match is None or any(group is not None and len(group) > MOST_DIGITS for group in match.groups()):
        return None
    p = int(match[1] or 2)
    if not (_is_prime(p) or (p > 1 and p & (p - 1) == 0)):
        return None
    if match[2] is not None and not _is_free_of_squares(int(match[2])):
        return None
    return Ring(name)


def _is_prime(p: int) -> bool:
    """Miller and Rabin's test with the first twelve primes as bases, which is exact below 3.3e24 (Sorenson, Webster 2015)."""
    bases = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
    if p < 2 or any(p % b == 0 for b in bases):
        return p in bases
    odd, twos = p - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    return all(_passes(pow(b, odd, p), p, twos) for b in bases)


def _passes(x: int, p: int, twos: int) -> bool:
    if x in (1, p - 1):
        return True
    for _ in range(twos - 1):
        x = x * x % p
        if x == p - 1:
            return True
    return False


def _is_free_of_squares(d: int) -> bool:
    """True if d is square-free and not 1, so that sqrt(d) has degree 2 in lowest terms; d is small enough to try every factor."""
    if d in (0, 1) or abs(d) > 10**6:
        return False
    return all(d % (f * f) for f in range(2, int(abs(d) ** 0.5) + 1))
