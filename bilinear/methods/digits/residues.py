"""Products of float32 or float64 matrices on the int8 matrix units of a GPU: numbers are scaled, cut to integers, and those to residues.

Launches: the scale of every line, from its 2-norm; the forms of A and of B, as residues modulo each p; the products modulo each p; their
forms, put together by the Chinese remainder theorem. Everything between cutting and the result is exact (docs/digits.md).
"""

from __future__ import annotations

from math import ceil
from struct import pack, unpack

from bilinear.analysis.digit_bounds import largest_scaled, room_of
from bilinear.backends.bound_launches import Values
from bilinear.ir.digit_kernel import ClearKernel
from bilinear.ir.digits import representation_of
from bilinear.ir.matrix import Layout
from bilinear.ir.residue_kernel import ResidueExpandKernel, SpecialKernel
from bilinear.ir.tile import RESIDUE_TILES
from bilinear.methods.digits.choice import Digits
from bilinear.methods.digits.geometry import require_residues
from bilinear.methods.digits.launches import (
    RESIDENT,
    CutMultiply,
    Passes,
    StoredMultiply,
    at,
    conjugated_in,
    launched,
    proved_scheme,
    stem_of,
)
from bilinear.methods.digits.lower import ResidueKernels, lower_residues
from bilinear.methods.program import NamedLaunch


class ModularMultiply(CutMultiply):
    """What products of residues of floats and of integers have in common: how residues are written."""

    def expansion(self, kernel: ResidueExpandKernel, operand: Values, side: int) -> NamedLaunch:
        """The launch that writes the residues of A (side 0) or of B (side 1)."""
        g = self._geometry
        panels, lines = g.panels[side], g.block[0 if side == 0 else 2]
        shape: Values = {"block_lines": lines, "block_terms": g.block[1], "panels": panels, "slices": g.slices, "D": at(("DA", "DB")[side])}
        return launched(kernel, kernel.blocks * panels * g.slices, operand | shape)


class ResidueMultiply(ModularMultiply, StoredMultiply):
    """A product by residues of the type that they stand for.

    Raises `BilinearError`: E567 if there are too few moduli for sums of so many terms, E591 and E592 for levels that residues do not hold.
    """

    def __init__(self, a: Layout, b: Layout, c: Layout, digits: Digits, by_warps: bool = False) -> None:
        self._tile, self._by_warps = RESIDUE_TILES[digits.tile], by_warps
        conjugated, representation = conjugated_in(c, digits), representation_of(self._tile)
        scheme = proved_scheme(digits.levels, conjugated, representation if self._tile.gaussian else None)
        stem = stem_of(digits.levels, conjugated, "complex2" if self._tile.gaussian else "complex3")
        super().__init__(a, b, c, scheme, stem, self._tile, self._tile.of)
        require_residues(self._scheme, self._tile)
        self._same_bits, terms = digits.same_bits, self._extents[1] * (2 if self._is_complex else 1)
        self._room = (largest_scaled if digits.same_bits else room_of)(representation, terms)

    def kernels(self, is_aligned: bool) -> ResidueKernels:
        """The kernels for operands at multiples of 16 bytes, or at any address."""
        return lower_residues(self._scheme, self._stem, self._tile, *self.orders(is_aligned), self._by_warps, self._same_bits)

    def passes(self, is_aligned: bool, multiprocessors: int) -> Passes:
        """The launches by what they do."""
        own, result = self.kernels(is_aligned), self.result()
        (room,) = unpack("<q", pack("<d", self._room))
        left, right = (
            x | {"exponents": result[scales], "flag": result["flag"], "room": room}
            for x, scales in zip(self.operands(), ("LA", "LB"), strict=True)
        )
        first, second = (launched(kernel, ceil(x["lines"] / kernel.lines), x) for kernel, x in zip(own.scale, (left, right), strict=True))
        cutting = self.expansion(own.expand[0], left, 0), self.expansion(own.expand[1], right, 1)
        clear = launched(ClearKernel(), 1, {"words": result["flag"], "count": 1})
        after = [*self.products(own.product, own.recompose, result, multiprocessors), self.on_flag(multiprocessors)]
        return Passes(clear, (first, second), cutting, after)

    def on_flag(self, multiprocessors: int) -> NamedLaunch:
        """The classical product, or the elements of special lines alone."""
        if not self._same_bits:
            return super().on_flag(multiprocessors)
        kernel, (m, k, n) = SpecialKernel(f"residue_special_{self._tile.of.suffix}", self._tile.of), self._extents
        blocks = min(ceil(m * n / kernel.threads[0]), RESIDENT * multiprocessors)
        return launched(kernel, blocks, self.result() | self._matrices() | {"k": k})
