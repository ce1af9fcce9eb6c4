"""A product of digits that keeps digits in C: rows of C are computed in parts, and the digits of a part lie in later rows.

Digits that do not fit there lie in the workspace. The last rows are computed within the workspace, or by a product that needs none: one
that cuts on load, or the plain product of the type.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise
from math import ceil

from bilinear.errors import fail
from bilinear.ir.matrix import Layout
from bilinear.ir.tile import PANEL
from bilinear.methods.digits.blocks import Make, corner_of, part_of
from bilinear.methods.digits.choice import Digits
from bilinear.methods.digits.geometry import CELL
from bilinear.methods.digits.launches import CutMultiply
from bilinear.methods.program import BESIDE, WORKSPACE, Buffers, NamedLaunch, lay, shift

AREAS = " ABP"
"""The areas of a workspace: scales, which C holds in any case, digits of A, digits of B, and products."""
AREA_OF = {"words": " ", "LA": " ", "LB": " ", "flag": " ", "DA": "A", "DB": "B", "P": "P"}
"""In which of them a buffer lies."""


class LentMultiply(CutMultiply):
    """The product of digits for matrices of these layouts, in the parts of C of `digits` and its rest. C has no gaps, and beta is 0.

    Raises `BilinearError` (E543) if the parts are not those of C, or if the rows behind a part do not hold what it keeps there.
    """

    lends = True

    def __init__(self, a: Layout, b: Layout, c: Layout, digits: Digits, make: Make) -> None:
        one = Digits(digits.levels, digits.tile)
        whole = make(a, b, c, one)
        super().__init__(a, b, c, whole._scheme, whole._stem, whole._geometry.tile, whole._cut)
        (rows, columns), later = self._layouts[2].shape, [part.extent for part in digits.rest]
        self._ends = tuple(accumulate((rows - sum(later), *later)))
        self._begins = (0, *self._ends[:-1])
        if any(begin % PANEL or begin + 1 >= end for begin, end in zip(self._begins, self._ends, strict=True)):
            raise fail("E543", f"the plan's parts of C do not fit {rows} rows", "plan again")
        hows = [replace(one, cut=digits.cut, lent=digits.lent)]
        hows += [part.choice if isinstance(part.choice, Digits) else one for part in digits.rest]  # of others the plain product is launched
        last = digits.rest[-1].choice
        self._plain = "" if isinstance(last, Digits) else last.tile
        extents = [(end - begin, columns) for begin, end in zip(self._begins, self._ends, strict=True)]
        self._parts = [part_of(self._layouts, own, replace(how, lent=""), make) for own, how in zip(extents, hows, strict=True)]
        placed = [self._placed(part, how.lent, end) for part, how, end in zip(self._parts[:-1], hows, self._ends, strict=False)]
        self._buffers = [buffers for buffers, _, _ in placed]
        if any(inside > self._place(rows) - CELL for _, inside, _ in placed):  # C may begin anywhere
            raise fail("E543", "the rows of C that are computed later do not hold the plan's digits", "plan again")
        most = 0 if self._plain else self._parts[-1].workspace
        self.workspace = max(most, *(outside // c.itemsize for _, _, outside in placed))
        self.writing = len(self.launches(True, 1))

    def launches(self, is_aligned: bool, multiprocessors: int) -> list[NamedLaunch]:
        """The launches of all parts, in their order, with the values of their arguments."""
        found: list[NamedLaunch] = []
        for number, (part, begin) in enumerate(zip(self._parts, self._begins, strict=True)):
            is_last = number == len(self._buffers)
            buffers = part.buffers() if is_last else self._buffers[number]
            own = [part.plain(self._plain)] if is_last and self._plain else part.launches(is_aligned, multiprocessors)
            corner = corner_of(self._layouts, begin, 0)
            found += [(kernel, lay(shift(values, corner), buffers)) for kernel, values in own]
        return found

    def _place(self, row: int) -> int:
        """Where the memory that C lends from a row on begins, in bytes."""
        return ceil(row * self._layouts[2].strides[0] / CELL) * CELL

    def _placed(self, part: CutMultiply, lent: str, end: int) -> tuple[Buffers, int, int]:
        """Where the buffers of a part lie whose rows end there; and how many bytes of C and of the workspace it needs."""
        starts, inside, outside = {}, self._place(end), 0
        for name, (begin, stop) in zip(AREAS, pairwise(part._geometry.places), strict=True):
            if name == " " or name in lent:
                starts[name] = BESIDE, inside - begin
                inside += stop - begin
            else:
                starts[name] = WORKSPACE, outside - begin
                outside += stop - begin
        own = dict(part.buffers())
        for name, area in AREA_OF.items():
            base, moved = starts[area]
            own[name] = base, own[name][1] + moved
        return own, inside, outside
