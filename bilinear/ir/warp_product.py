"""Kernels that multiply digits and residues by warps, for chips without warpgroups. They read and write the same layouts."""

from __future__ import annotations

from dataclasses import dataclass, field

from bilinear.ir.digit_kernel import DigitProductKernel, TiledKernel
from bilinear.ir.residue_kernel import ResidueProductKernel
from bilinear.ir.tile import WARP_PAIRS, WARP_RESIDUES, WarpTile

LEAST_CAPABILITY = 80
"""The first compute capability, times ten, that has the instructions: products of warps in float16 and int8, asynchronous copies."""


class _ByWarps(TiledKernel):
    """The launch of a kernel whose products are computed by warps."""

    warps: WarpTile

    @property
    def shape(self) -> WarpTile:
        """The threads of a block, and their shared memory."""
        return self.warps


@dataclass(frozen=True)
class WarpDigitProductKernel(_ByWarps, DigitProductKernel):
    """Products of digits by warps."""

    warps: WarpTile = WARP_PAIRS
    features: str = field(default="", init=False)
    template: str = field(default="digit_product_warps.cu.j2", init=False)


@dataclass(frozen=True)
class WarpResidueProductKernel(_ByWarps, ResidueProductKernel):
    """Products of residues by warps."""

    warps: WarpTile = WARP_RESIDUES
    features: str = field(default="", init=False)
    template: str = field(default="residue_product_warps.cu.j2", init=False)
