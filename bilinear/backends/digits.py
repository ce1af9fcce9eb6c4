"""Float32 products on the float16 matrix units of a GPU: numbers are cut into two digits, by kernels that also form a scheme's sums.

Launches: the largest magnitude of every line, which gives its scale; the forms of A and of B, cut; the products; the forms of the products.
"""

from __future__ import annotations

from functools import lru_cache, partial
from math import ceil

from bilinear.backends.bound_launches import Values
from bilinear.backends.cut_blocks import BlockwiseMultiply
from bilinear.backends.cut_products import (
    CutLaunch,
    CutMultiply,
    Passes,
    StoredMultiply,
    at,
    conjugated_in,
    launched,
    proved_scheme,
    stem_of,
)
from bilinear.backends.lent_digits import LentMultiply
from bilinear.backends.loaded_digits import LoadingMultiply, search
from bilinear.backends.residues import ResidueMultiply
from bilinear.backends.target_here import has_digit_units, multiplies_by_warps
from bilinear.backends.thin import MOST_KEPT
from bilinear.codegen.lower_digits import DigitKernels, lower_digits
from bilinear.ir.digit_kernel import PANEL, SLICE, ClearKernel, ExpandKernel
from bilinear.ir.element import FLOAT32, MULTIPLIED
from bilinear.ir.launch import AnyKernel
from bilinear.ir.matrix import Layout
from bilinear.ir.residue_tile import RESIDUE_TILES
from bilinear.ir.tile import DIGIT_TILES, LOADING_TILES
from bilinear.planner.digits import element_of
from bilinear.planner.plan import Digits
from bilinear.planner.ways import follows_from_names


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
        each = zip(own.expand, (left, right), g.panels, g.places[1:3], strict=True)
        cut_left, cut_right = (self._expansion(*one) for one in each)
        clear = launched(ClearKernel(), ceil(g.words / 256), {"words": result["LA"], "count": g.words})
        after = [*self.products(own.product, own.recompose, result, multiprocessors), self.classical(multiprocessors)]
        return Passes(clear, (first, second), (cut_left, cut_right), after)

    def _expansion(self, kernel: ExpandKernel, operand: Values, panels: int, place: int) -> CutLaunch:
        g = self._geometry
        lines, terms = panels * PANEL, g.slices * SLICE
        fast, slow = (terms, lines) if kernel.along else (lines, terms)
        shape: Values = {"block_lines": operand["block"], "block_terms": g.block[1], "panels": panels, "slices": g.slices, "D": at(place)}
        return launched(kernel, ceil(fast / (kernel.threads[0] * kernel.lanes)) * ceil(slow / kernel.threads[1]), operand | shape)


def kernels_of(a: Layout, b: Layout, c: Layout, digits: Digits, by_warps: bool) -> tuple[AnyKernel, ...]:
    """The kernels of a product of digits of matrices of these layouts whose addresses are multiples of 16 bytes.

    Warps multiply, or warpgroups.
    """
    return made(a, b, c, digits, by_warps).all_kernels()


def digit_multiply_of(a: Layout, b: Layout, c: Layout, digits: Digits) -> CutMultiply | None:
    """The product of digits for matrices of these layouts on the current device.

    None if they are not three matrices of the type that the digits stand for, or if the device lacks the instructions.
    """
    element = element_of(digits.tile)
    types = {str(x.dtype) for x in (a, b, c)}
    if not a.ndim == b.ndim == c.ndim == 2 or len(types) > 1 or MULTIPLIED.get(types.pop()) is not element:
        return None
    if c.dtype.kind == "c" and (digits.holds_scales_alone or digits.rest):
        return None
    if (digits.tile in LOADING_TILES and digits.levels) or not digits.suits(c, 0):
        return None
    if digits.tile in RESIDUE_TILES and RESIDUE_TILES[digits.tile].gaussian and c.dtype.kind != "c":
        return None
    if 0 in (*a.shape, *b.shape) or any(stride % x.itemsize for x in (a, b, c) for stride in x.strides):
        return None
    import cupy

    if not has_digit_units() or (digits.holds_scales_alone and multiplies_by_warps()):
        return None
    return _kept(a, b, c, digits, multiplies_by_warps(), cupy.cuda.Device().id)


def made(a: Layout, b: Layout, c: Layout, digits: Digits, by_warps: bool) -> CutMultiply:
    """The product of digits for matrices of these layouts, by warps or by warpgroups."""
    if digits.rest:
        return LentMultiply(a, b, c, digits, partial(made, by_warps=by_warps))
    if digits.cut != (1, 1):
        return BlockwiseMultiply(a, b, c, digits, partial(made, by_warps=by_warps))
    if digits.tile in LOADING_TILES:
        return LoadingMultiply(a, b, c, digits)
    return ResidueMultiply(a, b, c, digits, by_warps) if digits.tile in RESIDUE_TILES else DigitMultiply(a, b, c, digits, by_warps)


@lru_cache(MOST_KEPT)
def _kept(a: Layout, b: Layout, c: Layout, digits: Digits, by_warps: bool, device: int) -> CutMultiply:
    """The product, with the launches that it has bound on a device."""
    return made(a, b, c, digits, by_warps)


follows_from_names(_kept.cache_clear)
