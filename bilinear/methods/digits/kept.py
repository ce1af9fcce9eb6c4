"""A product of digits that reads the kept scales and digits of one operand, and does not search and cut that operand again.

What is kept holds the digits of that operand, the words that give its scales, and the flag of an Inf or a NaN, in this order. The other
launches, and their order, are those of the whole product, so the bits of C are, too.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import ceil

from bilinear.backends.bound_launches import Place, Values, run_launches
from bilinear.backends.caches import MOST_KEPT
from bilinear.backends.cuda_executor import CudaExecutor
from bilinear.backends.gemm import ALIGNMENT
from bilinear.ir.digit_kernel import ClearKernel
from bilinear.ir.matrix import Layout
from bilinear.methods.digits.binding import digit_multiply_of
from bilinear.methods.digits.choice import Digits
from bilinear.methods.digits.geometry import WORD
from bilinear.methods.digits.launches import CutLaunch, CutMultiply, at, launched, replaced
from bilinear.methods.digits.pairs import DigitMultiply
from bilinear.methods.digits.residues import ResidueMultiply
from bilinear.planner.ways import follows_from_names

WORKSPACE, KEPT = 3, 4
"""The bases of the workspace, and of what is kept."""
Form = tuple[object, ...]
"""What digits were cut for: equal forms read the same bytes."""


class KeptMultiply(CutMultiply):
    """A product by pairs or residues, `whole`, with the digits of A (`side` 0) or of B (`side` 1) kept.

    `kept_bytes` are the bytes of the digits, the scales and the flag, which begins at byte `flag_at`. `form` tells digits for different
    schemes, tiles and chips apart. C lies by rows.
    """

    def __init__(self, whole: DigitMultiply | ResidueMultiply, side: int) -> None:
        super().__init__(*whole._layouts, whole._scheme, whole._stem, whole._geometry.tile, whole._element)
        g = self._geometry
        self._whole, self._side = whole, side
        self._digits = range(*g.places[1 + side : 3 + side])
        begin = g.places[0] + (WORD * g.lines[0] if side else 0)
        self._words = range(begin, begin + WORD * g.lines[side])
        self.flag_at = len(self._digits) + len(self._words)
        self.kept_bytes = self.flag_at + WORD
        self.form: Form = whole._scheme, g.tile, whole._element, whole._by_warps, side, g.panels[side], g.slices, g.lines[side]
        self.workspace = (g.places[-1] - len(self._digits)) // self._itemsize

    def launches(self, is_aligned: bool, multiprocessors: int) -> list[CutLaunch]:
        """The launches of a call in their order, with the values of their arguments."""
        own, other = self._whole.passes(is_aligned, multiprocessors), 1 - self._side
        found = [own.scales[other], own.cutting[other], *own.after]
        return [own.clear, *((launch, self._moved(values)) for launch, values in found)]  # words that are kept elsewhere are cleared, too

    def fill(self, operand: int, kept: int) -> None:
        """Cut the operand at this address into memory at a multiple of 256 bytes, on CuPy's current stream.

        Raises `StageError` if a launch fails.
        """
        import cupy

        own = self._whole.passes(operand % ALIGNMENT == 0, cupy.cuda.Device().attributes["MultiProcessorCount"])
        count = len(self._words) // WORD + 1
        clear = launched(ClearKernel(), ceil(count / 256), {"words": Place(KEPT, len(self._digits), (0, 0), WORD), "count": count})
        flag = {"flag": Place(KEPT, self.flag_at, (0, 0), WORD)}
        each = own.scales[self._side], own.cutting[self._side]
        bound = self._loaded([clear, *((launch, self._moved(values) | flag) for launch, values in each)])
        with bound.ready((operand, operand, 0, 0, kept), *self.factors(1, 0), CudaExecutor().stream()) as steps:
            run_launches(steps, "cutting a prepared operand", 0)

    def _moved(self, values: Values) -> Values:
        """The arguments of a launch: places of the kept operand's digits and words there, and what lies behind its digits without them."""

        def moved(place: Place) -> Place:
            if place.base != WORKSPACE or place.offset < self._words.start:
                return place
            if place.offset in self._words:
                return replace(place, base=KEPT, offset=len(self._digits) + place.offset - self._words.start)
            if place.offset in self._digits:
                return replace(place, base=KEPT, offset=place.offset - self._digits.start)
            return at(place.offset - len(self._digits)) if place.offset >= self._digits.stop else place

        return replaced(values, moved)


def kept_multiply_of(a: Layout, b: Layout, c: Layout, digits: Digits, side: int) -> KeptMultiply | None:
    """The product for matrices of these layouts on the current device that finds the digits of A (0) or of B (1) kept.

    None if there is no such product of digits, if it computes C in blocks or cuts on load, or if C lies by columns: then the digits of the
    operands change places.
    """
    whole = digit_multiply_of(a, b, c, digits)
    if not isinstance(whole, DigitMultiply | ResidueMultiply) or whole.swaps:
        return None
    return _kept(whole, side)


@lru_cache(MOST_KEPT)
def _kept(whole: DigitMultiply | ResidueMultiply, side: int) -> KeptMultiply:
    """The product, with the launches that it has bound."""
    return KeptMultiply(whole, side)


follows_from_names(_kept.cache_clear)
