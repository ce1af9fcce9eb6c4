"""A*A^T of float32 by pairs of float16 digits: A is cut once, and one launch computes the tiles of one triangle, for both of them.

If an Inf or a NaN was seen, the classical product computes all of C, and another launch copies the lower triangle to the upper one.
"""

from __future__ import annotations

from dataclasses import replace

from bilinear.backends.bound_launches import Values
from bilinear.backends.gemm import is_by_rows
from bilinear.backends.machine import has_digit_units, multiplies_by_warps
from bilinear.ir.digit_kernel import MirrorKernel
from bilinear.ir.element import FLOAT32
from bilinear.ir.matrix import Layout
from bilinear.methods.digits.choice import Digits
from bilinear.methods.digits.geometry import triangle_tiles
from bilinear.methods.digits.launches import Passes, launched
from bilinear.methods.digits.lower import DigitKernels
from bilinear.methods.digits.pairs import DigitMultiply
from bilinear.methods.program import NamedLaunch, once

MIRRORING = 264
"""Blocks of threads that copy a triangle."""


class TriangleMultiply(DigitMultiply):
    """C = alpha * A * A^T + beta * C, symmetric bit by bit; of C, which lies by rows, the lower triangle is read."""

    writing = 3

    def __init__(self, a: Layout, c: Layout, digits: Digits) -> None:
        super().__init__(a, a.T, c, digits)

    def kernels(self, is_aligned: bool) -> DigitKernels:
        """The kernels for an operand at a multiple of 16 bytes, or at any address."""
        found = super().kernels(is_aligned)
        return replace(found, product=replace(found.product, name=f"{found.product.name}_triangle", one_triangle=True))

    def launches(self, is_aligned: bool, multiprocessors: int) -> list[NamedLaunch]:
        """The launches in their order, with the values of their arguments."""
        own: Passes = self.passes(is_aligned, multiprocessors)
        result = self.result()
        mirror = launched(MirrorKernel(), MIRRORING, result)
        (product, values), classical = own.after
        as_left: Values = {"DB": values["DA"], "LB": values["LA"], "panels_n": values["panels_m"]}
        tiles = triangle_tiles(self._geometry.panels[0], self._tile.cluster)
        values = values | as_left | {"blocks": min(tiles, values["blocks"])}
        return [own.clear, own.scales[0], own.cutting[0], (product, values), classical, mirror]


def triangle_multiply_of(a: Layout, c: Layout, digits: Digits) -> TriangleMultiply | None:
    """A*A^T by digits for matrices of these layouts on the current device.

    None if they are not two matrices of float32, C by rows, or if the device lacks warpgroups.
    """
    if not a.ndim == c.ndim == 2 or {str(a.dtype), str(c.dtype)} != {FLOAT32.name} or not is_by_rows(c) or 0 in a.shape:
        return None
    is_whole = all(stride % x.itemsize == 0 for x in (a, c) for stride in x.strides)
    if a.shape[0] < 2 or not is_whole or not has_digit_units() or multiplies_by_warps():
        return None
    return once(TriangleMultiply, a, c, digits)
