"""How a product of digits is bound: which launches multiply matrices of given layouts, also with the digits of one operand kept."""

from __future__ import annotations

from functools import partial
from math import ceil

from bilinear.backends.bound_launches import run_launches
from bilinear.backends.cuda_executor import CudaExecutor
from bilinear.backends.gemm import ALIGNMENT
from bilinear.backends.machine import has_digit_units, multiplies_by_warps
from bilinear.ir.digit_kernel import ClearKernel
from bilinear.ir.element import MULTIPLIED
from bilinear.ir.launch import AnyKernel
from bilinear.ir.matrix import Layout
from bilinear.ir.tile import LOADING_TILES, RESIDUE_TILES
from bilinear.methods.digits.blocks import BlockwiseMultiply, LentMultiply
from bilinear.methods.digits.choice import Digits
from bilinear.methods.digits.geometry import WORD, element_of
from bilinear.methods.digits.launches import CutMultiply, at, launched
from bilinear.methods.digits.pairs import DigitMultiply, LoadingMultiply
from bilinear.methods.digits.residues import ResidueMultiply
from bilinear.methods.program import BESIDE, Buffers, NamedLaunch, once


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


Form = tuple[object, ...]
"""What digits were cut for: equal forms read the same bytes."""


class KeptMultiply(CutMultiply):
    """A product by pairs or residues, `whole`, with the digits of A (`side` 0) or of B (`side` 1) kept.

    What is kept holds the digits of that operand, the words that give its scales, and the flag of an Inf or a NaN, in this order. The other
    launches, and their order, are those of the whole product, so the bits of C are, too.

    `kept_bytes` are the bytes of the digits, the scales and the flag, which begins at byte `flag_at`. `form` tells digits for different
    schemes, tiles and chips apart. C lies by rows.
    """

    def __init__(self, whole: DigitMultiply | ResidueMultiply, side: int) -> None:
        super().__init__(*whole._layouts, whole._scheme, whole._stem, whole._geometry.tile, whole._cut)
        g = self._geometry
        self._whole, self._side, self._gone = whole, side, range(*g.places[1 + side : 3 + side])
        self.flag_at = len(self._gone) + WORD * g.lines[side]
        self.kept_bytes = self.flag_at + WORD
        self.form: Form = whole._scheme, g.tile, whole._cut, whole._by_warps, side, g.panels[side], g.slices, g.lines[side]
        self.workspace -= len(self._gone) // self._dtype.itemsize

    def buffers(self) -> Buffers:
        """The digits of the operand and their scales lie beside; what would lie behind these digits moves up."""
        own = {
            name: (base, place - len(self._gone) if place >= self._gone.stop else place)
            for name, (base, place) in super().buffers().items()
        }
        return own | {f"D{'AB'[self._side]}": (BESIDE, 0), f"L{'AB'[self._side]}": (BESIDE, len(self._gone))}

    def launches(self, is_aligned: bool, multiprocessors: int) -> list[NamedLaunch]:
        """The launches of a call in their order, with the values of their arguments."""
        own, other = self._whole.passes(is_aligned, multiprocessors), 1 - self._side
        return [own.clear, own.scales[other], own.cutting[other], *own.after]  # words that are kept elsewhere are cleared, too

    def fill(self, operand: int, kept: int) -> None:
        """Cut the operand at this address into memory at a multiple of 256 bytes, on CuPy's current stream.

        Raises `StageError` if a launch fails.
        """
        import cupy

        own = self._whole.passes(operand % ALIGNMENT == 0, cupy.cuda.Device().attributes["MultiProcessorCount"])
        count = self._geometry.lines[self._side] + 1
        clear = launched(ClearKernel(), ceil(count / 256), {"words": at("words"), "count": count})
        beside = {"words": (BESIDE, len(self._gone)), "flag": (BESIDE, self.flag_at)}
        bound = self.laid_out([clear, own.scales[self._side], own.cutting[self._side]], {**self.buffers(), **beside})
        with bound.ready((operand, operand, 0, 0, kept), *self.factors(1, 0), CudaExecutor().stream()) as steps:
            run_launches(steps, "cutting a prepared operand", 0)


def kept_multiply_of(a: Layout, b: Layout, c: Layout, digits: Digits, side: int) -> KeptMultiply | None:
    """The product for matrices of these layouts on the current device that finds the digits of A (0) or of B (1) kept.

    None if there is no such product of digits, if it computes C in blocks or cuts on load, or if C lies by columns: then the digits of the
    operands change places.
    """
    whole = digit_multiply_of(a, b, c, digits)
    if not isinstance(whole, DigitMultiply | ResidueMultiply) or whole.swaps:
        return None
    return once(KeptMultiply, whole, side)
