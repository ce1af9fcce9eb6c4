"""Kernels that multiply digits and residues by warps, for chips without warpgroups. They read and write the same layouts."""

from __future__ import annotations

from dataclasses import dataclass, field

from bilinear.ir.digit_kernel import DigitProductKernel
from bilinear.ir.residue_kernel import ResidueProductKernel

LEAST_CAPABILITY = 80
"""The first compute capability, times ten, that has the instructions: products of warps in float16 and int8, asynchronous copies."""


@dataclass(frozen=True)
class WarpTile:
    """How m_warps x n_warps warps multiply a tile of digits by an instruction, in slices of depth k; `stages` slices are in flight.

    `line_bytes` are the bytes of shared memory of one term of all lines of the tile. The stages fit in 99 KiB, which every chip has.
    """

    instruction: str
    k: int
    line_bytes: int
    m_warps: int = 2
    n_warps: int = 4
    stages: int = 3

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.m_warps * self.n_warps

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block of threads."""
        return self.stages * self.k * self.line_bytes


WARP_PAIRS = WarpTile("mma.m16n8k16.f32.f16.f16.f32", k=32, line_bytes=2 * 2 * (128 + 128))
"""For float16, two digits of each number. The unit truncates its sums, like that of warpgroups."""
WARP_RESIDUES = WarpTile("mma.m16n8k32.s32.s8.s8.s32", k=64, line_bytes=128 + 256, stages=4)
"""For int8."""


class _ByWarps:
    """The launch of a kernel whose products are computed by warps."""

    warps: WarpTile

    @property
    def bounds(self) -> str:
        """The launch bounds for the compiler: threads of a block, and blocks of a multiprocessor."""
        return f"{self.warps.threads}, 1"

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block of threads."""
        return self.warps.shared_bytes

    @property
    def threads(self) -> tuple[int, int]:
        """Threads of a block along x and y."""
        return (self.warps.threads, 1)

    @property
    def cluster(self) -> int:
        """Blocks of threads that share slices: none do."""
        return 1


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
