"""Float32 products on the float16 matrix units of a GPU: numbers are cut into two digits.

Kernels that also form a scheme's sums cut them and store the digits. Launches: the largest magnitude of every line, which gives its scale;
the forms of A and of B, cut; the products; the forms of the products. Or the product itself cuts A and B on load: then the workspace holds
the scales alone.

For A*A^T A is cut once, and one launch computes the tiles of one triangle, for both of them. If an Inf or a NaN was seen, the classical
product computes all of C, and another launch copies the lower triangle to the upper one.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from bilinear.backends.bound_launches import Values
from bilinear.backends.gemm import is_by_rows
from bilinear.backends.machine import has_digit_units, multiplies_by_warps
from bilinear.ir.digit_kernel import ClearKernel, ExpandKernel, LargestKernel
from bilinear.ir.element import FLOAT32
from bilinear.ir.kernel import MirrorKernel
from bilinear.ir.matrix import Layout
from bilinear.ir.tile import DIGIT_SLICE, DIGIT_TILES, LOADING_TILES, PANEL
from bilinear.methods.digits.choice import Digits
from bilinear.methods.digits.geometry import triangle_tiles
from bilinear.methods.digits.launches import (
    CutMultiply,
    Passes,
    StoredMultiply,
    at,
    conjugated_in,
    launched,
    proved_scheme,
    stem_of,
)
from bilinear.methods.digits.lower import DigitKernels, LoadingKernels, lower_digits, lower_loading
from bilinear.methods.program import NamedLaunch, once

LEAST_DEPTH = 512
"""The least terms of a line that a block of threads searches for the largest magnitude."""
BLOCKS_EACH = 8
"""Blocks of threads for each multiprocessor that search for the largest magnitudes."""


def search(kernel: LargestKernel, operand: Values, multiprocessors: int) -> NamedLaunch:
    """The launch that finds the largest magnitudes: lines are cut in parts so that all multiprocessors take part."""
    terms, tiles = operand["terms"], ceil(operand["lines"] / kernel.lines)
    parts = max(1, min(ceil(terms / LEAST_DEPTH), ceil(BLOCKS_EACH * multiprocessors / tiles)))
    depth = ceil(ceil(terms / parts) / 4) * 4
    parts = ceil(terms / depth)
    return launched(kernel, tiles * parts, operand | {"depth": depth, "parts": parts})


class DigitMultiply(StoredMultiply):
    """A product of float32 or complex64 matrices by pairs of float16 digits."""

    def __init__(self, a: Layout, b: Layout, c: Layout, digits: Digits, by_warps: bool = False) -> None:
        self._tile, self._by_warps = DIGIT_TILES[digits.tile], by_warps
        conjugated = conjugated_in(c, digits)
        super().__init__(a, b, c, proved_scheme(digits.levels, conjugated), stem_of(digits.levels, conjugated), self._tile, FLOAT32)

    def kernels(self, is_aligned: bool) -> DigitKernels:
        """The kernels for operands at multiples of 16 bytes, or at any address."""
        return lower_digits(self._scheme, self._stem, self._tile, *self.orders(is_aligned), self._by_warps)

    def passes(self, is_aligned: bool, multiprocessors: int) -> Passes:
        """The launches by what they do."""
        g, own, result = self._geometry, self.kernels(is_aligned), self.result()
        left, right = (
            x | {"block": lines, "largest": result[scales], "flag": result["flag"]}
            for x, lines, scales in zip(self.operands(), g.lines, ("LA", "LB"), strict=True)
        )
        first, second = (search(kernel, x, multiprocessors) for kernel, x in zip(own.largest, (left, right), strict=True))
        each = zip(own.expand, (left, right), g.panels, ("DA", "DB"), strict=True)
        cut_left, cut_right = (self._expansion(*one) for one in each)
        clear = launched(ClearKernel(), ceil(g.words / 256), {"words": at("words"), "count": g.words})
        after = [*self.products(own.product, own.recompose, result, multiprocessors), self.on_flag(multiprocessors)]
        return Passes(clear, (first, second), (cut_left, cut_right), after)

    def _expansion(self, kernel: ExpandKernel, operand: Values, panels: int, digits: str) -> NamedLaunch:
        g = self._geometry
        lines, terms = panels * PANEL, g.slices * DIGIT_SLICE
        fast, slow = (terms, lines) if kernel.along else (lines, terms)
        shape: Values = {"block_lines": operand["block"], "block_terms": g.block[1], "panels": panels, "slices": g.slices, "D": at(digits)}
        return launched(kernel, ceil(fast / (kernel.threads[0] * kernel.lanes)) * ceil(slow / kernel.threads[1]), operand | shape)


class LoadingMultiply(CutMultiply):
    """A product of float32 matrices by pairs of float16 digits, without levels above it, that are cut on their way to the unit."""

    def __init__(self, a: Layout, b: Layout, c: Layout, digits: Digits) -> None:
        self._tile = LOADING_TILES[digits.tile]
        super().__init__(a, b, c, proved_scheme(()), stem_of(()), self._tile, FLOAT32)

    def kernels(self, is_aligned: bool) -> LoadingKernels:
        """The kernels for operands at multiples of 16 bytes, or at any address."""
        return lower_loading(self._tile, *self.orders(is_aligned)[:2])

    def launches(self, is_aligned: bool, multiprocessors: int) -> list[NamedLaunch]:
        """The launches in their order, with the values of their arguments."""
        g, own, result = self._geometry, self.kernels(is_aligned), self.result()
        clear = launched(ClearKernel(), ceil(g.words / 256), {"words": at("words"), "count": g.words})
        left, right = self.operands()
        searches = [
            search(kernel, x | {"block": lines, "largest": result[scales], "flag": result["flag"]}, multiprocessors)
            for kernel, x, lines, scales in zip(own.largest, (left, right), g.lines, ("LA", "LB"), strict=True)
        ]
        (panels_m, panels_n), blocks = g.panels, min(g.tiles, multiprocessors)  # a block of threads computes a tile after another
        shape: Values = {"terms": self._extents[1], "panels_m": panels_m, "panels_n": panels_n, "slices": g.slices}
        matrices: Values = {f"{name}{of[1:]}": x[of] for name, x in (("A", left), ("B", right)) for of in ("X", "X_line", "X_term")}
        product = launched(own.product, blocks, result | matrices | shape)
        return [clear, *searches, product, self.on_flag(multiprocessors)]


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
        mirror = launched(MirrorKernel(), MIRRORING, result | {"apart": 0, "count": 1})
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
