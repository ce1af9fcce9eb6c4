"""What schemes that are made from others have in common: names and citations, limits of size, and their ring."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from bilinear.errors import fail
from bilinear.ir.complex_scheme import ComplexAlgorithm
from bilinear.ir.digits import DigitScheme
from bilinear.ir.linear import Form, LinearMap, form
from bilinear.ir.number import Coefficient, Symbolic, exact, residue, square
from bilinear.ir.ring import RATIONALS, Ring
from bilinear.ir.scheme import Bases, Scheme

AnyScheme = Scheme | DigitScheme | ComplexAlgorithm

MOST_LETTERS = 100


def joined_name(first: AnyScheme, word: str, second: AnyScheme) -> str:
    """Both names with a word between them."""
    return shortened(f"{first.name}_{word}_{second.name}")


def shortened(name: str) -> str:
    """A name shortened to a readable length."""
    return name if len(name) <= MOST_LETTERS else "composed"


def joined_citations(first: AnyScheme, second: AnyScheme) -> str:
    """Both citations; one is left out if the other contains it."""
    one, other = first.citation, second.citation
    if other in one or one in other:
        return max(one, other, key=len)
    return f"{one} {other}" if one.endswith(".") else f"{one}; {other}"


def numbered(rank: int) -> tuple[str, ...]:
    """M1, M2, ..."""
    return tuple(f"M{i + 1}" for i in range(rank))


MOST_BLOCKS = 4096
"""The most blocks of one matrix."""
MOST_PRODUCTS = 20_000
MOST_TERMS = 200_000
"""The most terms in all sums of a scheme made from others."""


def within_bounds(m: int, k: int, n: int, rank: int) -> bool:
    """True if a scheme may have this format."""
    return max(m * k, k * n, m * n) <= MOST_BLOCKS and rank <= MOST_PRODUCTS


def limits() -> str:
    """The limits of a format, in words."""
    return f"a matrix has at most {MOST_BLOCKS} blocks, a scheme at most {MOST_PRODUCTS} products"


def require_size(m: int, k: int, n: int, rank: int, terms: int) -> None:
    """Refuse a scheme that would be too large (E641) before building anything."""
    if not within_bounds(m, k, n, rank):
        raise fail("E641", f"<{m},{k},{n};{rank}> is too large", "compose fewer parts", notes=(limits(),))
    if terms > MOST_TERMS:
        raise fail("E641", f"sums of {terms} terms are too many", "compose fewer parts", notes=(f"at most {MOST_TERMS} are composed",))


INTEGERS = Ring("Z")


def lies_over(scheme: Scheme, ring: Ring) -> bool:
    """True if a scheme that holds over its ring holds over this one too: the same, a larger one, or Z/p if p divides no denominator."""
    if scheme.ring in (ring, INTEGERS):
        return True
    if scheme.ring != RATIONALS or ring == INTEGERS:
        return False
    return not ring.modulus or all(ring.holds(c) for linear in maps_of(scheme) for row in linear.steps + linear.outputs for _, c in row)


def joined_ring(first: Scheme, second: Scheme) -> Ring:
    """The ring of a scheme made from both: the ring of one, over which the other lies as well. Raises `BilinearError` (E640)."""
    for ring in (first.ring, second.ring):
        if lies_over(first, ring) and lies_over(second, ring):
            return ring
    message = f"{first.name} is over {first.ring} and {second.name} over {second.ring}, and neither ring holds both"
    raise fail("E640", message, "compose schemes over one ring; a scheme over Z lies over every ring")


def maps_of(scheme: Scheme) -> tuple[LinearMap, ...]:
    """The maps of a scheme, including its changes of basis."""
    bases = scheme.bases
    return (scheme.u, scheme.v, scheme.w, *(() if bases is None else (bases.a, bases.b, bases.c)))


def reduced(scheme: Scheme) -> Scheme:
    """A scheme over Z/p with every coefficient reduced to its residue of least size; other schemes unchanged."""
    p = scheme.ring.modulus
    if not p:
        return scheme
    bases = scheme.bases
    if bases is not None:
        bases = Bases(_reduced(bases.a, p), _reduced(bases.b, p), _reduced(bases.c, p))
    return replace(scheme, u=_reduced(scheme.u, p), v=_reduced(scheme.v, p), w=_reduced(scheme.w, p), bases=bases)


def reciprocal(value: Coefficient, ring: Ring) -> Coefficient:
    """1/value in the ring or its field of fractions; `ZeroDivisionError` if there is none. Values with lambda are not supported.

    In Q[g] with g*g = s it is (a - b*g) / (a*a - s*b*b) for value = a + b*g.
    """
    if ring.modulus:
        return least_residue(Fraction(1, residue(value, ring.modulus)), ring.modulus)
    if not isinstance(value, Symbolic):
        return exact(1 / Fraction(value))
    root = square(ring.generator)
    if root is None:
        raise ZeroDivisionError(f"1/({value}) is not a polynomial in {ring.generator}")
    parts = dict(value.terms)
    a, b = parts.get((), Fraction(0)), parts[((ring.generator, 1),)]
    return (-value + 2 * a) / (a * a - root * b * b)


def least_residue(value: Coefficient, p: int) -> int:
    """The residue of least absolute value; of two, the positive one."""
    found = residue(value, p)
    return found if 2 * found <= p else found - p


def _reduced(linear: LinearMap, p: int) -> LinearMap:
    def row(terms: Form) -> Form:
        return form((index, least_residue(c, p)) for index, c in terms)

    return LinearMap(linear.inputs, tuple(map(row, linear.outputs)), tuple(map(row, linear.steps)), linear.names)
