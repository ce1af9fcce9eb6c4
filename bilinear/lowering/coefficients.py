"""Coefficients: the numbers over which a proved scheme can run, and whether an element type can hold its coefficients."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from bilinear.errors import BilinearError, fail
from bilinear.ir.element import ELEMENTS, FLOAT64, Element
from bilinear.ir.number import Coefficient, Symbolic, is_normal, residue, square
from bilinear.ir.scheme import Scheme
from bilinear.verify.scheme import SchemeProof

MOST_SHOWN = 60
"""The most characters of a coefficient in a message."""


def require_numbers(scheme: Scheme, proof: SchemeProof, modulus: int = 0) -> None:
    """Refuse a scheme that does not multiply matrices of numbers (E506): one over Z/p, or an approximate one.

    With a `modulus`, numbers are integers modulo it. Then a scheme over Z/p is one for p alone (E594).
    """
    span = scheme.places.header if scheme.places else None
    if modulus and scheme.ring.modulus not in (0, modulus):
        message = f"{scheme.name} is proved over {scheme.ring}, and the product is asked for modulo {modulus}"
        raise fail("E594", message, "take a scheme over Z, or give the modulus for which it is proved", span=span)
    if scheme.ring.modulus and not modulus:
        message = f"{scheme.name} is proved over {scheme.ring} only, so it is not compiled for floats or integers"
        lifts = proof.facts is not None and proof.facts.for_reals
        over_q = "as it is written it holds over Q too: leave out the ring" if lifts else "over Q its Brent equations fail"
        hint = f"{over_q}; matmul(..., modulus={scheme.ring.modulus}) runs it"
        raise fail("E506", message, hint, span=span)
    if scheme.ring.is_approximate:
        message = f"{scheme.name} is approximate: it multiplies up to terms in lambda, and no lambda makes it exact"
        raise fail("E506", message, "`bilinear verify` proves it and says its order; compile an exact scheme", span=span)


def require_residues(scheme: Scheme, coefficients: Iterable[Coefficient], modulus: int) -> None:
    """Refuse coefficients that are not numbers modulo p (E594): roots, and fractions whose denominator shares a factor with p."""
    for value in dict.fromkeys(coefficients):
        try:
            residue(value, modulus)
        except ValueError:
            message = f"{scheme.name} has the coefficient {value}, which is not a number modulo {modulus}"
            raise fail("E594", message, "take a scheme over Z, such as winograd") from None


def require_elements(scheme: Scheme, coefficients: Iterable[Coefficient], dtype: str, kind: str) -> None:
    """Refuse coefficients that an element type cannot hold (E528); `kind` is NumPy's letter of the type.

    Integer types cannot hold fractions or roots, and real types cannot hold roots of negative numbers. A floating-point type cannot hold a
    number that overflows or underflows in it. No coefficient is rounded to zero or to infinity.
    """
    name, held = scheme.name, ELEMENTS.get(dtype, FLOAT64).arithmetic
    for value in dict.fromkeys(coefficients):
        imaginary = isinstance(value, Symbolic) and any((square(g) or 0) < 0 for g in value.generators)
        if kind in "iub" and isinstance(value, Fraction | Symbolic):
            raise fail("E528", f"{name} has the coefficient {value}, which {dtype} cannot hold", "convert to floats or to Fractions")
        if kind == "f" and imaginary:
            raise fail("E528", f"{name} has the coefficient {value}, which is not a real number", "choose a scheme with real coefficients")
        if kind == "f" and not is_normal(value, held.name):
            raise _out_of_range(scheme, str(value), dtype, held)
        if kind == "O" and isinstance(value, Symbolic):
            raise fail("E528", f"{name} has the coefficient {value}, which is not a Fraction", "convert to a floating-point type")


def _out_of_range(scheme: Scheme, coefficient: str, dtype: str, held: Element) -> BilinearError:
    shown = coefficient if len(coefficient) <= MOST_SHOWN else coefficient[: MOST_SHOWN - 3] + "..."
    hint = "scale its products" if held == FLOAT64 else "scale its products, or take float64"
    message = f"{scheme.name} has the coefficient {shown}, which is too large or too small for {dtype}"
    note = f"the least is {held.smallest_normal:.3g}, the largest {held.largest:.3g}"
    return fail("E528", message, hint, span=scheme.places.header if scheme.places else None, notes=(note,))
