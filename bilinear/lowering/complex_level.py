"""The outermost level of a schedule for complex matrices: real products of sums of real and imaginary parts."""

from __future__ import annotations

from dataclasses import replace

from bilinear.ir.bilinear_map import BilinearAlgorithm
from bilinear.ir.schedule import Schedule
from bilinear.passes.nest_levels import why_not_nested
from bilinear.passes.scheme_to_schedule import complex_to_products, complex_to_schedule


def complex_level(inner: Schedule, algorithm: BilinearAlgorithm, conjugated: str) -> Schedule:
    """The outermost level of complex matrices, above a level of real ones: expanded, or adding products to C if that level adds to C.

    The algorithm multiplies the conjugates of the operands in `conjugated`.
    """
    expanded = complex_to_schedule(algorithm, conjugated)
    found = complex_to_products(algorithm, conjugated) if why_not_nested(expanded, inner) else expanded
    return replace(found, name=f"{algorithm.name}-{inner.name}")
