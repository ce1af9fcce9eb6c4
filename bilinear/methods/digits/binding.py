"""How a product of digits is bound: which launches multiply matrices of given layouts."""

from __future__ import annotations

from functools import partial

from bilinear.backends.target_here import has_digit_units, multiplies_by_warps
from bilinear.ir.element import MULTIPLIED
from bilinear.ir.launch import AnyKernel
from bilinear.ir.matrix import Layout
from bilinear.ir.tile import LOADING_TILES, RESIDUE_TILES
from bilinear.methods.digits.blocks import BlockwiseMultiply
from bilinear.methods.digits.choice import Digits
from bilinear.methods.digits.launches import CutMultiply
from bilinear.methods.digits.lent import LentMultiply
from bilinear.methods.digits.pairs import DigitMultiply, LoadingMultiply
from bilinear.methods.digits.residues import ResidueMultiply
from bilinear.methods.digits.schemes import element_of
from bilinear.methods.program import once


def kernels_of(a: Layout, b: Layout, c: Layout, digits: Digits, by_warps: bool) -> tuple[AnyKernel, ...]:
    """The kernels of a product of digits of matrices of these layouts whose addresses are multiples of 16 bytes.

    Warps multiply, or warpgroups.
    """
    return multiply_of(a, b, c, digits, by_warps).all_kernels()


def digit_multiply_of(a: Layout, b: Layout, c: Layout, digits: Digits) -> CutMultiply | None:
    """The product of digits for matrices of these layouts on the current device.

    None if they are not three matrices of the type that the digits stand for, or if the device lacks the instructions.
    """
    element = element_of(digits.tile)
    types = {str(x.dtype) for x in (a, b, c)}
    if not a.ndim == b.ndim == c.ndim == 2 or len(types) > 1 or MULTIPLIED.get(types.pop()) is not element:
        return None
    if c.dtype.kind == "c" and (digits.needs_little or digits.rest):
        return None
    if (digits.tile in LOADING_TILES and digits.levels) or not digits.suits(c, 0):
        return None
    if digits.tile in RESIDUE_TILES and RESIDUE_TILES[digits.tile].gaussian and c.dtype.kind != "c":
        return None
    if 0 in (*a.shape, *b.shape) or any(stride % x.itemsize for x in (a, b, c) for stride in x.strides):
        return None
    if not has_digit_units() or (digits.needs_little and multiplies_by_warps()):
        return None
    return once(multiply_of, a, b, c, digits, multiplies_by_warps())


def multiply_of(a: Layout, b: Layout, c: Layout, digits: Digits, by_warps: bool) -> CutMultiply:
    """The product for matrices of these layouts. Warps multiply, or warpgroups."""
    if digits.rest:
        return LentMultiply(a, b, c, digits, partial(multiply_of, by_warps=by_warps))
    if digits.cut != (1, 1):
        return BlockwiseMultiply(a, b, c, digits, partial(multiply_of, by_warps=by_warps))
    if digits.tile in LOADING_TILES:
        return LoadingMultiply(a, b, c, digits)
    return ResidueMultiply(a, b, c, digits, by_warps) if digits.tile in RESIDUE_TILES else DigitMultiply(a, b, c, digits, by_warps)
