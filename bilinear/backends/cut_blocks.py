"""A product of digits whose C is computed in blocks, one after the other, in the same workspace.

The blocks of C in one block of rows have the digits of A in common; those of B are made again for every block of rows. An Inf or a NaN that
one of them meets sets the flag until its block of rows ends, so the classical product computes what is left of that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bilinear.backends.bound_launches import Place, Values
from bilinear.backends.cut_products import CutKernel, CutLaunch, CutMultiply
from bilinear.ir.matrix import Layout
from bilinear.planner.digit_geometry import block_of
from bilinear.planner.plan import Digits

Make = Callable[[Layout, Layout, Layout, Digits], CutMultiply]
"""What makes the product of a block."""
Corner = tuple[int, int]


class BlockwiseMultiply(CutMultiply):
    """The product of digits for matrices of these layouts, in `digits.cut` blocks of rows and of columns of C, or fewer."""

    def __init__(self, a: Layout, b: Layout, c: Layout, digits: Digits, make: Make) -> None:
        whole = make(a, b, c, replace(digits, cut=(1, 1)))
        super().__init__(a, b, c, whole._scheme, whole._stem, whole._geometry.tile, whole._element)
        (m, _), (_, n) = self._layouts[0].shape, self._layouts[1].shape
        self._block = block_of(m, digits.cut[0]), block_of(n, digits.cut[1])
        self._corners = [(i, j) for i in range(0, m, self._block[0]) for j in range(0, n, self._block[1])]
        shapes = {self._shape(corner) for corner in self._corners}
        self._parts = {shape: self._part(shape, digits, make) for shape in shapes}
        self.workspace = max(part.workspace for part in self._parts.values())
        self.writing = len(self.launches(True, 1))

    def all_kernels(self) -> tuple[CutKernel, ...]:
        """The kernels for operands at multiples of 16 bytes, but the classical one."""
        return tuple(dict.fromkeys(kernel for part in self._parts.values() for kernel in part.all_kernels()))

    def launches(self, is_aligned: bool, multiprocessors: int, keeps_left: bool = False) -> list[CutLaunch]:
        """The launches of all blocks, in their order, with the values of their arguments."""
        found: list[CutLaunch] = []
        last: tuple[int, CutMultiply] | None = None
        for corner in self._corners:
            part = self._parts[self._shape(corner)]
            own = part.launches(is_aligned, multiprocessors, keeps_left=last == (corner[0], part))
            found += [(launch, shifted(values, corner, self._layouts)) for launch, values in own]
            last = corner[0], part
        return found

    def _shape(self, corner: Corner) -> Corner:
        """The extents of the block of C that begins there."""
        ends = self._layouts[0].shape[0], self._layouts[1].shape[1]
        rows, columns = (min(block, end - begin) for block, end, begin in zip(self._block, ends, corner, strict=True))
        return rows, columns

    def _part(self, shape: Corner, digits: Digits, make: Make) -> CutMultiply:
        a, b, c = self._layouts
        inner = a.shape[1]
        extents = (shape[0], inner), (inner, shape[1]), shape
        a, b, c = (Layout(own, x.strides, x.dtype) for own, x in zip(extents, (a, b, c), strict=True))
        return make(a, b, c, replace(digits, cut=(1, 1)))


def shifted(values: Values, corner: Corner, layouts: tuple[Layout, ...]) -> Values:
    """The arguments of a launch for the block of C at a corner, with the operands and C there; the workspace stays where it is."""
    steps = (corner[0], 0), (0, corner[1]), corner

    def moved(place: Place) -> Place:
        if place.base >= len(steps):
            return place
        (down, right), (rows, columns) = steps[place.base], layouts[place.base].strides
        return replace(place, offset=place.offset + down * rows + right * columns)

    return {name: moved(value) if isinstance(value, Place) else value for name, value in values.items()}
