"""A product of digits that keeps digits in C: rows of C are computed in parts, and the digits of a part lie in later rows.

Digits that do not fit there lie in the workspace. The last rows are computed within the workspace, or by a product that needs none: one
that cuts on load, or the plain product of the type.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise
from math import ceil

from bilinear.backends.bound_launches import Place, Values
from bilinear.errors import fail
from bilinear.ir.matrix import Layout
from bilinear.ir.residue_tile import PANEL
from bilinear.methods.digits.blocks import WORKSPACE, Make, area_of, part_of, shifted
from bilinear.methods.digits.choice import Digits
from bilinear.methods.digits.geometry import CELL
from bilinear.methods.digits.launches import CutLaunch, CutMultiply, replaced

LENT = 4
"""The base of the memory that C lends (see `CutMultiply.__call__`)."""
AREAS = " ABP"
"""The areas of a workspace: scales, which C holds in any case, digits of A, digits of B, and products."""


class LentMultiply(CutMultiply):
    """The product of digits for matrices of these layouts, in the parts of C of `digits` and its rest. C has no gaps, and beta is 0.

    Raises `BilinearError` (E543) if the parts are not those of C, or if the rows behind a part do not hold what it keeps there.
    """

    def __init__(self, a: Layout, b: Layout, c: Layout, digits: Digits, make: Make) -> None:
        one = Digits(digits.levels, digits.tile)
        whole = make(a, b, c, one)
        super().__init__(a, b, c, whole._scheme, whole._stem, whole._geometry.tile, whole._element)
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
        self._starts = [starts for starts, _, _ in placed]
        if any(inside > self._place(rows) - CELL for _, inside, _ in placed):  # C may begin anywhere
            raise fail("E543", "the rows of C that are computed later do not hold the plan's digits", "plan again")
        most = 0 if self._plain else self._parts[-1].workspace
        self.workspace = max(most, *(outside // self._itemsize for _, _, outside in placed))
        self.writing = len(self.launches(True, 1))

    def launches(self, is_aligned: bool, multiprocessors: int) -> list[CutLaunch]:
        """The launches of all parts, in their order, with the values of their arguments."""
        found: list[CutLaunch] = []
        for part, begin, starts in zip(self._parts, self._begins, (*self._starts, None), strict=True):
            is_plain = starts is None and self._plain
            own = [part.plain(self._plain)] if is_plain else part.launches(is_aligned, multiprocessors)
            moved = own if starts is None else [(kernel, _moved(values, part._geometry.places, starts)) for kernel, values in own]
            found += [(kernel, shifted(values, (begin, 0), self._layouts)) for kernel, values in moved]
        return found

    def _place(self, row: int) -> int:
        """Where the memory that C lends from a row on begins, in bytes."""
        return ceil(row * self._layouts[2].strides[0] / CELL) * CELL

    def _placed(self, part: CutMultiply, lent: str, end: int) -> tuple[list[Place], int, int]:
        """Where the areas of a part begin whose rows end there; and how many bytes of C and of the workspace it needs."""
        starts, inside, outside = [], self._place(end), 0
        for name, (begin, stop) in zip(AREAS, pairwise(part._geometry.places), strict=True):
            if name == " " or name in lent:
                starts.append(Place(LENT, inside, (0, 0), CELL))
                inside += stop - begin
            else:
                starts.append(Place(WORKSPACE, outside, (0, 0), CELL))
                outside += stop - begin
        return starts, inside, outside


def _moved(values: Values, places: tuple[int, ...], starts: list[Place]) -> Values:
    """The arguments of a launch whose areas begin there."""

    def moved(place: Place) -> Place:
        if place.base != WORKSPACE:
            return place
        area = area_of(places, place.offset)
        start = starts[area]
        return replace(place, base=start.base, offset=start.offset + place.offset - places[area])

    return replaced(values, moved)
