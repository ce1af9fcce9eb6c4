"""Errors of products whose operands are rounded to fewer bits and summed in the matrix unit, all of K at once (docs/digits.md)."""

from __future__ import annotations

from bilinear.analysis.digit_bounds import ROUNDED, SHRUNK, SPREAD, Unit, cut_off
from bilinear.ir.element import FLOAT32
from bilinear.ir.rounded import Rounding

STEP = 2.0**-22 * (1 + 2.0**-20)
"""By how much a step of a single product, which the unit cuts off twice, multiplies the sum of sizes; of longer steps each product less."""


def rounded_bound(own: Rounding, inner: int) -> float:
    """The bound of max|C - A*B| / (max|A| max|B|) that always holds, unless numbers overflow or underflow when they are rounded."""
    u = FLOAT32.roundoffs[1]
    kept = 1 + 2.0 ** (1 - own.bits if own.cuts else -own.bits)
    return inner * (kept**2 * (1 + STEP) ** inner * (1 + u) ** 3 - 1)


def rounded_probable(own: Rounding, inner: int) -> float:
    """The probable error by norm, for independent centred data."""
    shrunk, varied = cut_off(inner, Unit())
    last = 2.0 ** (1 - own.bits)
    if own.cuts:
        shrunk, varied = shrunk + 2 * SHRUNK * last, varied + 2 * (SPREAD * last) ** 2
    else:
        varied += 2 * (ROUNDED * last / 2) ** 2
    return float((shrunk**2 + varied) ** 0.5)
