"""Rings: over which numbers a proved scheme may run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction

from bilinear.errors import fail
from bilinear.ir.number import Coefficient, Symbolic, square
from bilinear.ir.schedule import LinearStage, Schedule
from bilinear.ir.scheme import Scheme
from bilinear.verify.scheme import SchemeProof


def require_numbers(scheme: Scheme, proof: SchemeProof) -> None:
    """Refuse a proved scheme that does not multiply matrices of numbers (E506): one over Z/p, or an approximate one."""
    span = scheme.places.header if scheme.places else None
    if scheme.ring.modulus:
        message = f"{scheme.name} is proved over {scheme.ring} only, so it is not compiled for floats or integers"
        lifts = proof.facts is not None and proof.facts.for_reals
        hint = "as it is written it holds over Q too: leave out the ring" if lifts else "over Q its Brent equations fail"
        raise fail("E506", message, hint, span=span)
    if scheme.ring.is_approximate:
        message = f"{scheme.name} is approximate: it multiplies up to terms in lambda, and no lambda makes it exact"
        raise fail("E506", message, "`bilinear verify` proves it and says its order; compile an exact scheme", span=span)


def require_elements(name: str, coefficients: Iterable[Coefficient], dtype: str, kind: str) -> None:
    """Refuse coefficients that an element type cannot hold (E528); `kind` is NumPy's letter of the type.

    Integers cannot hold fractions and roots, and real numbers no roots of negative numbers; nothing is rounded away in silence.
    """
    for value in coefficients:
        imaginary = isinstance(value, Symbolic) and any((square(g) or 0) < 0 for g in value.generators)
        if kind in "iub" and isinstance(value, Fraction | Symbolic):
            raise fail("E528", f"{name} has the coefficient {value}, which {dtype} cannot hold", "convert to floats or to Fractions")
        if kind == "f" and imaginary:
            raise fail("E528", f"{name} has the coefficient {value}, which is no real number", "convert to a complex type")
        if kind == "O" and isinstance(value, Symbolic):
            raise fail("E528", f"{name} has the coefficient {value}, which is no Fraction", "convert to a floating-point type")


def coefficients_of(schedule: Schedule) -> Iterator[Coefficient]:
    """Every coefficient of a schedule."""
    for stage in schedule.stages:
        if isinstance(stage, LinearStage):
            for block_map in stage.maps:
                yield from (c for terms in block_map.map.steps + block_map.map.outputs for _, c in terms)
        else:
            yield from (target.coefficient for product in stage.products for target in product.targets)
