"""Schedules for complex matrices: their outermost level, real products of sums of both parts, and what they have not."""

from __future__ import annotations

from dataclasses import replace

from bilinear.errors import fail
from bilinear.frontend import Loaded
from bilinear.ir.bilinear_map import BilinearAlgorithm
from bilinear.ir.element import COMPLEX
from bilinear.ir.placement import STAGE
from bilinear.ir.schedule import Schedule
from bilinear.passes.nest_levels import why_not_nested
from bilinear.passes.scheme_to_schedule import complex_to_products, complex_to_schedule


def require_kind(loaded: Loaded, dtype: str, inputs: str, mode: str) -> None:
    """Refuse (E799) an algorithm for complex numbers on a real type; on a complex type promises (E785) and modes (E557) of real ones."""
    if dtype not in COMPLEX:
        if loaded.complex_core is not None:
            what = f"{loaded.complex_core.name} multiplies complex numbers, and {dtype} is a real type"
            raise fail("E799", what, f"take complex64 or complex128, or the algorithm of the real products, {loaded.scheme.name}")
        return
    if inputs != "preserve":
        raise fail("E785", f"inputs={inputs!r} lets a schedule write A and B, and complex operands are only read", "use inputs='preserve'")
    if mode != STAGE:
        raise fail("E557", f"mode={mode!r} has no meaning for {dtype}: its stages run in one way", "leave it out")


def complex_level(inner: Schedule, algorithm: BilinearAlgorithm, conjugated: str) -> Schedule:
    """The outermost level of complex matrices, above a level of real ones: expanded, or adding products to C if that level adds to C.

    The algorithm multiplies the conjugates of the operands in `conjugated`.
    """
    expanded = complex_to_schedule(algorithm, conjugated)
    found = complex_to_products(algorithm, conjugated) if why_not_nested(expanded, inner) else expanded
    return replace(found, name=f"{algorithm.name}-{inner.name}")
