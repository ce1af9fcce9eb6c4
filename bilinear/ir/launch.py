"""Launches: kernels with their grids."""

from __future__ import annotations

from dataclasses import dataclass, field

from bilinear.ir.digit_kernel import DigitKernel, LargestIntegersKernel, LoadingKernel
from bilinear.ir.kernel import (
    BitProductKernel,
    DigestKernel,
    GramHalvesKernel,
    Grid,
    LinearKernel,
    MagnitudeKernel,
    MirrorKernel,
    PartsKernel,
    ProductKernel,
    ScanKernel,
    ThinKernel,
)
from bilinear.ir.projection_kernel import CheckKernel
from bilinear.ir.residue_kernel import ResidueKernel
from bilinear.ir.rounded import RoundKernel

Kernel = LinearKernel | ProductKernel
InputKernel = ScanKernel | MagnitudeKernel | DigestKernel | LargestIntegersKernel | CheckKernel
"""Kernels that only read matrices."""
DirectKernel = (
    ThinKernel
    | PartsKernel
    | DigitKernel
    | LoadingKernel
    | ResidueKernel
    | RoundKernel
    | BitProductKernel
    | MirrorKernel
    | GramHalvesKernel
)
"""Kernels that multiply matrices as they lie, without a schedule, and what copies one triangle of C to the other."""
AnyKernel = Kernel | InputKernel | DirectKernel  # A kernel of any kind.


@dataclass(frozen=True)
class Launch:
    """One launch: `grid.y` times the kernel's `rows` of its table, from row `first` on.

    `stage` numbers the stage if its mode may need several launches, which run in order or all `at_once`; else the launch is a stage.
    """

    kernel: Kernel
    first: int
    grid: Grid
    stage: int | None = None
    at_once: bool = False


@dataclass(frozen=True)
class PlainLaunch:
    """One launch of a kernel that has no table."""

    kernel: ScanKernel | DigestKernel | LargestIntegersKernel | CheckKernel | DirectKernel
    grid: Grid
    first: int = field(default=0, init=False)
    stage: None = field(default=None, init=False)
    at_once: bool = field(default=False, init=False)
