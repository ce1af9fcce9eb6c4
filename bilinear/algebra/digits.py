"""Block schemes and digit schemes as one algebra: `winograd (x) pairs`, `residues15 (x) winograd`."""

from __future__ import annotations

from dataclasses import replace

from bilinear.algebra.credits import AnyScheme, joined_citations, joined_name
from bilinear.algebra.size_limits import require_size
from bilinear.algebra.tensor import tensor
from bilinear.errors import fail
from bilinear.ir.digits import DigitScheme
from bilinear.ir.scheme import Scheme


def tensor_digits(outer: AnyScheme, inner: AnyScheme) -> DigitScheme:
    """The tensor product of a block scheme and a digit scheme: sums of a block scheme on the left are formed before numbers are cut.

    Raises `BilinearError`: E236 if both are digit schemes, if the block scheme is inside of floating-point digits, whose sums would be
    rounded, or if it does not hold for real numbers; E641 if the scheme grows too large.
    """
    if isinstance(outer, DigitScheme) and isinstance(inner, DigitScheme):
        message = f"{outer.name} and {inner.name} both multiply digits"
        raise fail("E236", message, "a number is cut once: compose one of them with block schemes")
    if isinstance(outer, DigitScheme):
        assert isinstance(inner, Scheme)
        made = _with_inside(outer, inner)
    else:
        assert isinstance(inner, DigitScheme) and isinstance(outer, Scheme)
        made = _with_above(outer, inner)
    require_size(*made.sizes, made.rank, 0)
    return replace(made, name=joined_name(outer, "x", inner), citation=joined_citations(outer, inner))


def _with_above(outer: Scheme, inner: DigitScheme) -> DigitScheme:
    if outer.ring.modulus or outer.ring.is_approximate:
        message = f"{outer.name} is over {outer.ring}, and its sums are formed in {inner.representation.of} before they are cut"
        raise fail("E236", message, "take a block scheme over Z or Q")
    return replace(inner, above=outer if inner.above is None else tensor(outer, inner.above))


def _with_inside(outer: DigitScheme, inner: Scheme) -> DigitScheme:
    representation = outer.representation
    if not representation.is_modular:
        message = f"{inner.name} would add up digits of {representation.name}, and sums of {representation.digit} are rounded"
        raise fail("E236", message, f"write {inner.name} (x) {outer.name}: numbers are then added up before they are cut")
    return replace(outer, inside=inner if outer.inside is None else tensor(outer.inside, inner))
