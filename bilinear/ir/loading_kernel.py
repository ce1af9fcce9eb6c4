"""The kernel that multiplies float32 matrices as pairs of float16 digits and cuts them itself, without digits in memory.

A line is a row of A or a column of B. An operand lies `along` if its neighbours in memory are terms of one sum.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bilinear.ir.digit_kernel import FACTORS, RESULT, SCALES, indices
from bilinear.ir.element import FLOAT32, Element
from bilinear.ir.kernel import Argument, TiledKernel
from bilinear.ir.tile import LoadingTile


@dataclass(frozen=True)
class LoadingKernel(TiledKernel):
    """C = alpha * A * B + beta * C by digits. A copy takes 4 neighbours, or 1 where lines begin at no multiple of 16 bytes."""

    name: str
    tile: LoadingTile
    left_along: bool
    right_along: bool
    left_width: int
    right_width: int
    element: Element = FLOAT32
    direct: bool = field(default=True, init=False)
    """The product is C: there are no levels above it."""
    one_triangle: bool = field(default=False, init=False)
    features: str = field(default="a", init=False)
    """The suffix of the architecture: the kernel uses instructions that only one chip has."""
    template: str = field(default="digit_load_product.cu.j2", init=False)
    sums: str = field(default="digit_load_sums.cu.j2", init=False)
    """The template of the sums of a tile."""
    arguments: tuple[Argument, ...] = (
        Argument("pointer", "A"),
        *indices("A_line", "A_term"),
        Argument("pointer", "B"),
        *indices("B_line", "B_term", "terms", "panels_m", "panels_n", "slices"),
        *RESULT,
        *SCALES,
        *FACTORS,
    )
