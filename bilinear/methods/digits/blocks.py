"""A product of digits whose C is computed in blocks, one after the other, in the same workspace.

First the scales of all lines are found, and whether there is an Inf or a NaN. If there is one, no block is written, and the classical
product computes all of C. The blocks of C in one block of rows have the digits of A in common; those of B are made again for every block of
rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import ceil

from bilinear.backends.bound_launches import Place, Values
from bilinear.ir.digit_kernel import ClearKernel
from bilinear.ir.matrix import Layout
from bilinear.methods.digits.choice import Digits
from bilinear.methods.digits.geometry import WORD, block_of
from bilinear.methods.digits.launches import CutLaunch, CutMultiply, Passes, StoredMultiply, at, launched, replaced

Make = Callable[[Layout, Layout, Layout, Digits], CutMultiply]
"""What makes the product of a block."""
Corner = tuple[int, int]
WORKSPACE = 3
"""The base of the workspace."""


class BlockwiseMultiply(CutMultiply):
    """The product of digits for matrices of these layouts, in `digits.cut` blocks of rows and of columns of C, or fewer."""

    def __init__(self, a: Layout, b: Layout, c: Layout, digits: Digits, make: Make) -> None:
        one = replace(digits, cut=(1, 1))
        self._whole = whole = stored(make(a, b, c, one))
        super().__init__(a, b, c, whole._scheme, whole._stem, whole._geometry.tile, whole._element)
        (m, _), (_, n) = self._layouts[0].shape, self._layouts[1].shape
        height, width = block_of(m, digits.cut[0]), block_of(n, digits.cut[1])
        self._rows, self._columns = range(0, m, height), range(0, n, width)
        self._parts = {
            (rows, columns): stored(part_of(self._layouts, (rows, columns), one, make))
            for rows in {height, m - self._rows[-1]}
            for columns in {width, n - self._columns[-1]}
        }
        self._geometry = replace(self._parts[height, width]._geometry, blocks=(len(self._rows), len(self._columns)))
        self.workspace = self._geometry.places[-1] // self._itemsize
        self.writing = len(self.launches(True, 1))

    def launches(self, is_aligned: bool, multiprocessors: int) -> list[CutLaunch]:
        """The launches of all blocks, in their order, with the values of their arguments."""
        own = {part: part.passes(is_aligned, multiprocessors) for part in self._parts.values()}
        g, result = self._geometry, self.result()
        found = [launched(ClearKernel(), ceil(g.words / 256), {"words": result["LA"], "count": g.words})]
        if g.lines == (self._rows.step, self._columns.step):  # each line has a scale of its own, whatever the blocks are
            found += [self._at(launch, self._whole) for launch in self._whole.passes(is_aligned, multiprocessors).scales]
        else:
            found += [self._at(own[self._part(i, 0)].scales[0], self._part(i, 0), i) for i in range(len(self._rows))]
            found += [self._at(own[self._part(0, j)].scales[1], self._part(0, j), 0, j) for j in range(len(self._columns))]
        for i in range(len(self._rows)):
            last: Passes | None = None
            for j in range(len(self._columns)):
                part = self._part(i, j)
                each = own[part]
                launches = [*each.cutting[each is last :], *each.after[:-1]]  # digits of A are those of the block before
                found += [self._at(launch, part, i, j) for launch in launches]
                last = each
        return [*found, self.classical(multiprocessors)]

    def _part(self, i: int, j: int) -> StoredMultiply:
        """The product of the block in this row and column of blocks."""
        m, n = self._layouts[2].shape
        rows, columns = (min(own.step, end - own[at]) for own, end, at in ((self._rows, m, i), (self._columns, n, j)))
        return self._parts[rows, columns]

    def _at(self, launch: CutLaunch, part: StoredMultiply, i: int = 0, j: int = 0) -> CutLaunch:
        """A launch of a part for the block in this row and column of blocks."""
        kernel, values = launch
        own, whole = part._geometry, self._geometry
        (rows, columns), (down, _) = whole.lines, whole.blocks
        words = WORD * i * rows, WORD * (down * rows + j * columns), WORD * (whole.words - 1)
        begins = dict(zip((0, WORD * own.lines[0], WORD * sum(own.lines)), words, strict=True))

        def moved(place: Place) -> Place:
            if place.base != WORKSPACE:
                return place
            area = area_of(own.places, place.offset)
            return at(begins[place.offset] if area == 0 else whole.places[area] + place.offset - own.places[area])

        return kernel, shifted(replaced(values, moved), (self._rows[i], self._columns[j]), self._layouts)


def part_of(layouts: tuple[Layout, Layout, Layout], extents: Corner, how: Digits, make: Make) -> CutMultiply:
    """The product of digits for this many rows and columns of a row-major C."""
    a, b, c = layouts
    (_, k), (m, n) = a.shape, extents
    a, b, c = (Layout(own, x.strides, x.dtype) for own, x in zip(((m, k), (k, n), extents), (a, b, c), strict=True))
    return make(a, b, c, how)


def stored(product: CutMultiply) -> StoredMultiply:
    """The product of a block."""
    if not isinstance(product, StoredMultiply):
        raise TypeError("the operands of blocks are cut by launches of their own")
    return product


def area_of(places: tuple[int, ...], offset: int) -> int:
    """Which part of a workspace an offset lies in: words, digits of A, digits of B, products."""
    return max(area for area, begin in enumerate(places[:-1]) if begin <= offset)


def shifted(values: Values, corner: Corner, layouts: tuple[Layout, ...]) -> Values:
    """The arguments of a launch for the block of C at a corner, with the operands and C there; the workspace stays where it is."""
    return replaced(values, partial(_shifted, corner, layouts))


def _shifted(corner: Corner, layouts: tuple[Layout, ...], place: Place) -> Place:
    steps = (corner[0], 0), (0, corner[1]), corner
    if place.base >= len(steps):
        return place
    (down, right), (rows, columns) = steps[place.base], layouts[place.base].strides
    return replace(place, offset=place.offset + down * rows + right * columns)
