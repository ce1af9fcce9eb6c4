"""A product of digits that reads the kept scales and digits of one operand, and does not search and cut that operand again.

What is kept holds the digits of that operand, the words that give its scales, and the flag of an Inf or a NaN, in this order. The other
launches, and their order, are those of the whole product, so the bits of C are, too.
"""

from __future__ import annotations

from math import ceil

from bilinear.backends.bound_launches import run_launches
from bilinear.backends.cuda_executor import CudaExecutor
from bilinear.backends.gemm import ALIGNMENT
from bilinear.ir.digit_kernel import ClearKernel
from bilinear.ir.matrix import Layout
from bilinear.methods.digits.binding import digit_multiply_of
from bilinear.methods.digits.choice import Digits
from bilinear.methods.digits.geometry import WORD
from bilinear.methods.digits.launches import CutMultiply, at, launched
from bilinear.methods.digits.pairs import DigitMultiply
from bilinear.methods.digits.residues import ResidueMultiply
from bilinear.methods.program import BESIDE, Buffers, NamedLaunch, once

Form = tuple[object, ...]
"""What digits were cut for: equal forms read the same bytes."""


class KeptMultiply(CutMultiply):
    """A product by pairs or residues, `whole`, with the digits of A (`side` 0) or of B (`side` 1) kept.

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
