"""A matrix in memory, as data: how it lies (its layout), and where."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from bilinear.ir.element import ELEMENTS, Element


class Layout(NamedTuple):
    """How a matrix lies in memory, or a batch of them: extents (..., rows, columns), strides in bytes, NumPy's dtype."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any

    @property
    def ndim(self) -> int:
        """The number of extents."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(self.dtype.itemsize)

    @property
    def element(self) -> Element | None:
        """The element type; None where no kernels are generated for this dtype and byte order."""
        return ELEMENTS.get(str(self.dtype))

    @property
    def T(self) -> Layout:  # noqa: N802  # NumPy's name
        """The layout of the transposed matrix."""
        return Layout(self.shape[::-1], self.strides[::-1], self.dtype)

    @property
    def is_by_column(self) -> bool:
        """Whether the columns of each matrix are contiguous."""
        return bool(self.strides[-2] == self.itemsize != self.strides[-1])

    @property
    def has_gaps(self) -> bool:
        """Whether the elements of each matrix do not lie one behind the other, row by row or column by column."""
        (m, n), size = self.shape[-2:], self.itemsize
        return tuple(self.strides[-2:]) not in ((n * size, size), (size, m * size))

    @property
    def lies_evenly(self) -> bool:
        """Whether it is one matrix, whose rows are apart by a multiple of 16 bytes."""
        return self.ndim == 2 and self.strides[0] % 16 == 0

    @property
    def overlaps_itself(self) -> bool:
        """Whether two elements may share memory: a stride is smaller than what lies below it."""
        return _overlaps_itself(self.shape, self.strides, self.itemsize)

    @property
    def reach(self) -> tuple[int, int]:
        """How many bytes before its first element it starts, and behind it ends."""
        return _reach(self.shape, self.strides, self.itemsize)


def layout_of(array: Any) -> Layout:
    """The layout of an array of NumPy or CuPy."""
    return Layout(array.shape, array.strides, array.dtype)


@lru_cache(maxsize=1024)
def _overlaps_itself(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    if prod(shape) <= 1:
        return False
    reach = itemsize
    for stride, extent in sorted((abs(s), e) for s, e in zip(strides, shape, strict=True) if e > 1):
        if stride < reach:
            return True
        reach += stride * (extent - 1)
    return False


@lru_cache(maxsize=1024)
def _reach(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    moves = [stride * (extent - 1) for stride, extent in zip(strides, shape, strict=True)]
    return sum(min(0, move) for move in moves), sum(max(0, move) for move in moves) + itemsize
