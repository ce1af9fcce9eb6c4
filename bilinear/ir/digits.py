"""Digits: a number written as a few narrow numbers, and the bilinear schemes that multiply digits (docs/digits.md).

There are two kinds. Floating-point digits stand for x = d_0 + lambda * d_1 + lambda^2 * d_2 + ..., and multiply by an approximate scheme.
Residues stand for an integer modulo several p. They multiply exactly, one modulus at a time, and the Chinese remainder theorem gives the
integer product.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import combinations
from math import gcd, isqrt, prod

from bilinear.ir.bilinear_map import BilinearAlgorithm, BilinearMap
from bilinear.ir.element import COMPLEX, Element
from bilinear.ir.linear import LinearMap, identity
from bilinear.ir.number import generator
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Places, Scheme
from bilinear.ir.tile import ResidueTile
from bilinear.source import Span

MOST_DIGITS = 4  # The most floating-point digits of a number.
LARGEST_MODULUS = 256  # Residues of least size modulo this number, -128 to 127, are the numbers of int8.
MOST_MODULI = 32  # The most moduli of a number.
_NAMES = {1: ("h",), 2: ("h", "l"), 3: ("h", "m", "l")}


@dataclass(frozen=True)
class Representation:
    """How numbers of a type are cut into digits and put together again.

    `of` is the type that is represented. Floating-point digits are `count` numbers of the type `digit`; `step` is lambda, so digit i weighs
    lambda^i. If they are `shifted`, digit i is stored divided by its weight, so that all digits have the size of the first; otherwise it is
    stored with its weight. Each digit is the remainder of x after the earlier digits, `rounded` to nearest, ties to even, or truncated.

    Residues have `moduli` instead, and `digit` is None: x is `rounded` (or truncated) to an integer, and its residues of least size are
    stored in int8. If `scaled`, each row of A and each column of B is multiplied by a power of two before it is cut.

    `gaussian` residues stand for complex numbers x + i y whose parts are of the type `of`. Modulo p, -1 has the square root r, so the
    residues of x + r y and of x - r y suffice: a complex product is one product of each.
    """

    name: str
    of: Element
    digit: Element | None
    count: int
    step: Fraction = Fraction(1)
    moduli: tuple[int, ...] = ()
    scaled: bool = True
    shifted: bool = True
    rounded: bool = True
    citation: str = ""
    span: Span | None = field(default=None, compare=False, repr=False)
    gaussian: bool = False

    @property
    def is_modular(self) -> bool:
        """True for residues."""
        return bool(self.moduli)

    @property
    def digits(self) -> tuple[str, ...]:
        """The names of the digits: h and l, or h, m and l, or the moduli."""
        if self.is_modular:
            numbers = tuple(map(str, self.moduli))
            return tuple(f"{p}.{part}" for p in numbers for part in ("re", "im")) if self.gaussian else numbers
        return _NAMES.get(self.count) or tuple(f"d{i}" for i in range(self.count))

    @property
    def product(self) -> int:
        """M, the product of the moduli: residues determine an integer within an interval of M numbers."""
        return prod(self.moduli)

    @property
    def norm_limit(self) -> int:
        """R, the largest integer with 2 R^2 < (1 - 2^-30) M: rows and columns whose 2-norms are at most R have products below M/2.

        The margin to M/2 is large enough for a float64 to determine the multiple of M that is subtracted.
        """
        return isqrt(((2**30 - 1) * self.product - 1) // 2**31)

    @property
    def bytes(self) -> int:
        """Bytes of one number in digits."""
        return self.count * (self.digit.bytes if self.digit else 1 + self.gaussian)

    @cached_property
    def weights(self) -> tuple[int, ...]:
        """The numbers e_p of the Chinese remainder theorem, 1 modulo p and 0 modulo the others; x = sum of e_p * x_p modulo M."""
        return tuple(M // p * inverse for M in (self.product,) for p, inverse in zip(self.moduli, self.inverses, strict=True))

    @property
    def inverses(self) -> tuple[int, ...]:
        """The inverses of M/p modulo p."""
        return tuple(pow(self.product // p, -1, p) for p in self.moduli)

    @cached_property
    def roots(self) -> tuple[int, ...]:
        """For each modulus of gaussian residues a number whose square is -1."""
        return tuple(root_of_minus_one(p) or 0 for p in self.moduli) if self.gaussian else ()

    @property
    def numbers(self) -> str:
        """The type of the numbers that are cut: `float64`, or `complex128`."""
        return next(name for name, part in COMPLEX.items() if part is self.of) if self.gaussian else self.of.name

    def __str__(self) -> str:
        return f"digits {self.name} of {self.numbers}: {', '.join(self.claims)}"

    @property
    def claims(self) -> tuple[str, ...]:
        """The text behind the colon of its declaration."""
        if self.is_modular:
            claims = [f"int8 modulo {' '.join(map(str, self.moduli))}"]
        else:
            exponent = self.step.numerator.bit_length() - self.step.denominator.bit_length()
            claims = [f"{self.digit} x {self.count}", *([f"lambda = 2^{exponent}"] if self.count > 1 else [])]
            claims += ["unshifted"] if self.count > 1 and not self.shifted else []
        claims += [] if self.rounded else ["truncated"]
        return *claims, "scaled by rows of A and columns of B" if self.scaled else "unscaled"


@dataclass(frozen=True)
class DigitScheme:
    """A scheme that multiplies matrices by products of digits: (numbers in blocks) x (digits of a number) x (digits in blocks).

    `core` multiplies two numbers, digit by digit, in the `products` of these names. `above` is an optional block scheme whose sums are
    formed in the represented type, before numbers are cut. `inside` is an optional one whose sums are formed from residues, exactly.
    """

    name: str
    representation: Representation
    core: BilinearAlgorithm
    above: Scheme | None = None
    inside: Scheme | None = None
    products: tuple[str, ...] = ()
    citation: str = ""
    places: Places | None = field(default=None, compare=False, repr=False)

    @property
    def parts(self) -> tuple[Scheme, ...]:
        """The block schemes, outermost first."""
        return tuple(scheme for scheme in (self.above, self.inside) if scheme is not None)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """m, k and n of the format."""
        return prod(s.m for s in self.parts), prod(s.k for s in self.parts), prod(s.n for s in self.parts)

    @property
    def rank(self) -> int:
        """The number of products of digits."""
        return len(self.core.u.outputs) * prod(s.rank for s in self.parts)

    @property
    def format(self) -> str:
        """The format as written: `<2,2,2;21>`."""
        return f"<{','.join(map(str, self.sizes))};{self.rank}>"


@lru_cache
def residues_of(of: Element, count: int, gaussian: bool = False) -> Representation:
    """The residues of a type, or of complex numbers with such parts, modulo the `count` largest moduli."""
    moduli = largest_moduli(count, gaussian)
    return Representation(f"{'gaussian' if gaussian else 'residues'}{count}", of, None, count, moduli=moduli, gaussian=gaussian)


def representation_of(tile: ResidueTile) -> Representation:
    """The residues that a tile multiplies."""
    return residues_of(tile.of, tile.count, tile.gaussian)


def residues(representation: Representation) -> DigitScheme:
    """The scheme of residues: one product a modulus, put together modulo M."""
    if representation.gaussian:
        return _gaussian_residues(representation)
    r = representation
    each = identity(r.count)
    w = LinearMap(r.count, (tuple(enumerate(r.weights)),))
    core = BilinearAlgorithm(r.name, modular_product(r, r.moduli[0]), each, each, w, Ring("Z"))
    return DigitScheme(r.name, r, core, products=tuple(f"M{p}" for p in r.moduli), citation=r.citation)


def _gaussian_residues(r: Representation) -> DigitScheme:
    """Two products modulo each p, of x + root y and of x - root y: their sum is twice the real part, their difference 2 root the other."""
    factors = LinearMap(2 * r.count, tuple(((2 * i, 1), (2 * i + 1, c)) for i, root in enumerate(r.roots) for c in (root, -root)))
    real, imaginary = list[tuple[int, int]](), list[tuple[int, int]]()
    for i, (p, weight, root) in enumerate(zip(r.moduli, r.weights, r.roots, strict=True)):
        half, quotient = weight * pow(2, -1, p) % r.product, weight * pow(2 * root, -1, p) % r.product
        real += [(2 * i, half), (2 * i + 1, half)]
        imaginary += [(2 * i, quotient), (2 * i + 1, r.product - quotient)]
    w = LinearMap(2 * r.count, (tuple(real), tuple(imaginary)))
    core = BilinearAlgorithm(r.name, modular_product(r, r.moduli[0]), factors, factors, w, Ring("Z"))
    return DigitScheme(r.name, r, core, products=tuple(f"M{p}{sign}" for p in r.moduli for sign in "+-"), citation=r.citation)


def modular_product(representation: Representation, p: int) -> BilinearMap:
    """The product of two numbers modulo p, one of the moduli, which is the product of their residues modulo p."""
    i = representation.moduli.index(p)
    left, right = digit_names(representation)
    if representation.gaussian:
        re, im = 2 * i, 2 * i + 1
        rows = ((re, re, 1), (im, im, -1)), ((re, im, 1), (im, re, 1))
        return BilinearMap(f"x*y of complex numbers modulo {p}", left, right, ("C.re", "C.im"), rows)
    return BilinearMap(f"x*y modulo {p}", left, right, ("C",), (((i, i, 1),),))


def digit_product(representation: Representation) -> BilinearMap:
    """The product of two numbers of floating-point digits, a polynomial in lambda: exact below the power of lambda that is dropped.

    x has no digit of weight lambda^count, so terms of this order and above are as small as the remainder that cutting drops.
    """
    count = representation.count
    left, right = digit_names(representation)
    terms = tuple((i, j, generator("lambda", i + j) if i + j else 1) for i in range(count) for j in range(count))
    return BilinearMap(f"x*y up to O(lambda^{count})", left, right, ("C",), (terms,), order=count)


def digit_names(representation: Representation) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The digits of A and of B as they are written: A.h, A.l; B.h, B.l."""
    return tuple(f"A.{d}" for d in representation.digits), tuple(f"B.{d}" for d in representation.digits)


def common_factors(moduli: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """The pairs of moduli that share a factor."""
    return tuple((p, q) for p, q in combinations(moduli, 2) if gcd(p, q) > 1)


def largest_moduli(count: int, gaussian: bool = False) -> tuple[int, ...]:
    """The largest numbers up to 256 that are coprime in pairs, taken from above: 256, 255, 253, 251, 247, ...

    With `gaussian`, those modulo which -1 has a root and 2 an inverse: 241, 233, 229, 221, 205, ...
    """
    found: list[int] = []
    for p in range(LARGEST_MODULUS, 1, -1):
        if len(found) < count and all(gcd(p, q) == 1 for q in found) and (not gaussian or root_of_minus_one(p)):
            found.append(p)
    return tuple(found)


@lru_cache(maxsize=LARGEST_MODULUS)
def root_of_minus_one(p: int) -> int | None:
    """The least r with r^2 = -1 modulo an odd p; None if there is none, or if p is even. All prime factors of p are then 1 modulo 4."""
    return next((r for r in range(1, p) if (r * r + 1) % p == 0), None) if p % 2 else None


def least_residue(x: int, p: int) -> int:
    """The residue of least size: -p/2 <= r < p/2, so that it fits int8 for every p up to 256."""
    return (x + p // 2) % p - p // 2
