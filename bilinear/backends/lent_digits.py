"""A product of digits to whose digits C lends its memory: rows of C are computed in parts, and a part keeps its digits in later rows.

The last rows are computed by a product that cuts on load, or by the plain product of the type: neither keeps any.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from math import ceil

from bilinear.backends.bound_launches import Place, Values
from bilinear.backends.cut_blocks import Make, shifted
from bilinear.backends.cut_products import CutKernel, CutLaunch, CutMultiply
from bilinear.errors import fail
from bilinear.ir.matrix import Layout
from bilinear.ir.residue_tile import PANEL
from bilinear.planner.digit_geometry import CELL
from bilinear.planner.plan import Digits

WORKSPACE, LENT = 3, 4
"""The bases of the workspace and of the memory that C lends (see `CutMultiply.__call__`)."""


class LentMultiply(CutMultiply):
    """The product of digits for matrices of these layouts, in the parts of C of `digits` and its rest. C has no gaps, and beta is 0.

    Raises `BilinearError` (E543) if the parts are not those of C, or if the rows behind a part do not hold its digits.
    """

    def __init__(self, a: Layout, b: Layout, c: Layout, digits: Digits, make: Make) -> None:
        one = Digits(digits.levels, digits.tile)
        whole = make(a, b, c, one)
        super().__init__(a, b, c, whole._scheme, whole._stem, whole._geometry.tile, whole._element)
        rows, later = self._layouts[2].shape[0], [part.extent for part in digits.rest]
        self._ends = tuple(accumulate((rows - sum(later), *later)))
        self._begins = (0, *self._ends[:-1])
        if any(begin % PANEL or begin + 1 >= end for begin, end in zip(self._begins, self._ends, strict=True)):
            raise fail("E543", f"the plan's parts of C do not fit {rows} rows", "plan again")
        self._plain = "" if digits.rest[-1].is_digits else digits.rest[-1].tile
        parts = [replace(one, cut=digits.cut), *(Digits(part.levels, part.tile, part.cut) for part in digits.rest)]
        if self._plain:
            parts[-1] = one  # only its plain product is launched
        self._parts = [self._part(end - begin, own, make) for begin, end, own in zip(self._begins, self._ends, parts, strict=True)]
        room = [self._place(rows) - self._place(end) - CELL for end in self._ends[:-1]]  # C may begin anywhere
        if any(part.workspace * self._itemsize > most for part, most in zip(self._parts, room, strict=False)):
            raise fail("E543", "the rows of C that are computed later do not hold the plan's digits", "plan again")
        self.workspace = 0 if self._plain else self._parts[-1].workspace
        self.writing = len(self.launches(True, 1))

    def all_kernels(self) -> tuple[CutKernel, ...]:
        """The kernels for operands at multiples of 16 bytes, but the classical ones."""
        own = self._parts[:-1] if self._plain else self._parts
        return tuple(dict.fromkeys(kernel for part in own for kernel in part.all_kernels()))

    def launches(self, is_aligned: bool, multiprocessors: int, keeps_left: bool = False) -> list[CutLaunch]:
        """The launches of all parts, in their order, with the values of their arguments."""
        *heads, last = (part.launches(is_aligned, multiprocessors) for part in self._parts)
        if self._plain:
            last = [self._parts[-1].plain(self._plain)]
        lent = [[(launch, _lent(values, self._place(end))) for launch, values in own] for own, end in zip(heads, self._ends, strict=False)]
        each = zip((*lent, last), self._begins, strict=True)
        return [(launch, shifted(values, (begin, 0), self._layouts)) for own, begin in each for launch, values in own]

    def _place(self, row: int) -> int:
        """Where the memory that C lends from a row on begins, in bytes."""
        return ceil(row * self._layouts[2].strides[0] / CELL) * CELL

    def _part(self, rows: int, how: Digits, make: Make) -> CutMultiply:
        a, b, c = self._layouts
        (_, k), (_, n) = a.shape, b.shape
        extents = (rows, k), (k, n), (rows, n)
        a, b, c = (Layout(own, x.strides, x.dtype) for own, x in zip(extents, (a, b, c), strict=True))
        return make(a, b, c, how)


def _lent(values: Values, start: int) -> Values:
    """The arguments of a launch whose workspace begins there in C."""

    def moved(place: Place) -> Place:
        return replace(place, base=LENT, offset=place.offset + start) if place.base == WORKSPACE else place

    return {name: moved(value) if isinstance(value, Place) else value for name, value in values.items()}
