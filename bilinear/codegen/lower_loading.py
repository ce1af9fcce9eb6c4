"""Operands that lie so to the kernels of a product whose loader cuts them: largest magnitudes, and the product itself."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from bilinear.codegen.lower_digits import LANES, OperandOrder
from bilinear.ir.digit_kernel import LargestKernel
from bilinear.ir.loading_kernel import LoadingKernel
from bilinear.ir.tile import LoadingTile


@dataclass(frozen=True)
class LoadingKernels:
    """The kernels of a product in the order in which they run."""

    largest: tuple[LargestKernel, LargestKernel]
    product: LoadingKernel


@lru_cache(maxsize=64)
def lower_loading(tile: LoadingTile, left: OperandOrder, right: OperandOrder) -> LoadingKernels:
    """The kernels for operands that lie so."""
    widths = _width(left), _width(right)
    orders = "".join(f"{'ca'[x.along]}{width}" for x, width in zip((left, right), widths, strict=True))
    product = LoadingKernel(f"digit_load_{tile.name}_{orders}", tile, left.along, right.along, *widths)
    return LoadingKernels((_largest(left), _largest(right)), product)


def _width(order: OperandOrder) -> int:
    return LANES if order.whole else 1


def _largest(order: OperandOrder) -> LargestKernel:
    return LargestKernel(f"digit_largest_{'ca'[order.along]}_{_width(order)}", order.along, _width(order))
