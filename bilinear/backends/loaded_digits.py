"""Float32 products on the float16 matrix units of a GPU by a kernel that cuts A and B itself: the workspace holds the scales alone.

Launches: the largest magnitude of every line, which gives its scale; the product.
"""

from __future__ import annotations

from math import ceil

from bilinear.backends.bound_launches import Values
from bilinear.backends.cut_products import CutLaunch, CutMultiply, launched, proved_scheme, stem_of
from bilinear.codegen.lower_digits import LoadingKernels, lower_loading
from bilinear.ir.digit_kernel import ClearKernel, LargestKernel
from bilinear.ir.element import FLOAT32
from bilinear.ir.matrix import Layout
from bilinear.ir.tile import LOADING_TILES
from bilinear.planner.plan import Digits

LEAST_DEPTH = 512
"""The least terms of a line that a block of threads searches for the largest magnitude."""
BLOCKS_EACH = 8
"""Blocks of threads for each multiprocessor that search for the largest magnitudes."""


def search(kernel: LargestKernel, operand: Values, multiprocessors: int) -> CutLaunch:
    """The launch that finds the largest magnitudes: lines are cut in parts so that all multiprocessors take part."""
    terms, tiles = operand["terms"], ceil(operand["lines"] / kernel.lines)
    parts = max(1, min(ceil(terms / LEAST_DEPTH), ceil(BLOCKS_EACH * multiprocessors / tiles)))
    depth = ceil(ceil(terms / parts) / 4) * 4
    parts = ceil(terms / depth)
    return launched(kernel, tiles * parts, operand | {"depth": depth, "parts": parts})


class LoadingMultiply(CutMultiply):
    """A product of float32 matrices by pairs of float16 digits, without levels above it, that are cut on their way to the unit."""

    def __init__(self, a: Layout, b: Layout, c: Layout, digits: Digits) -> None:
        self._tile = LOADING_TILES[digits.tile]
        super().__init__(a, b, c, proved_scheme(()), stem_of(()), self._tile, FLOAT32)

    def kernels(self, is_aligned: bool) -> LoadingKernels:
        """The kernels for operands at multiples of 16 bytes, or at any address."""
        return lower_loading(self._tile, *self.orders(is_aligned)[:2])

    def launches(self, is_aligned: bool, multiprocessors: int) -> list[CutLaunch]:
        """The launches in their order, with the values of their arguments."""
        g, own, result = self._geometry, self.kernels(is_aligned), self.result()
        clear = launched(ClearKernel(), ceil(g.words / 256), {"words": result["LA"], "count": g.words})
        left, right = self.operands()
        searches = [
            search(kernel, x | {"block": lines, "largest": result[scales], "flag": result["flag"]}, multiprocessors)
            for kernel, x, lines, scales in zip(own.largest, (left, right), g.lines, ("LA", "LB"), strict=True)
        ]
        (panels_m, panels_n), blocks = g.panels, min(g.tiles, multiprocessors)  # a block of threads computes a tile after another
        shape: Values = {"terms": self._extents[1], "panels_m": panels_m, "panels_n": panels_n, "slices": g.slices}
        matrices: Values = {f"{name}{of[1:]}": x[of] for name, x in (("A", left), ("B", right)) for of in ("X", "X_line", "X_term")}
        product = launched(own.product, blocks, result | matrices | shape)
        return [clear, *searches, product, self.classical(multiprocessors)]
