"""Tiles: rectangles that cover a block in the order of its memory, each small enough for a cache."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]
Tile = tuple[slice, slice]


def tile_shape(extents: tuple[int, int], elements: int) -> tuple[int, int]:
    """The shape of tiles of at most `elements` elements: whole rows if one fits, else equal pieces of a row."""
    height, width = extents
    pieces = -(-width // elements)
    columns = -(-width // max(1, pieces))
    return max(1, min(height, elements // max(1, columns))), max(1, columns)


def tiles_by_row(height: int, width: int, elements: int) -> Iterator[Tile]:
    """Tiles of at most `elements` elements that cover height x width."""
    rows, columns = tile_shape((height, width), elements)
    for i in range(0, height, rows):
        for j in range(0, width, columns):
            yield slice(i, min(i + rows, height)), slice(j, min(j + columns, width))


def tiles_along(extents: tuple[int, int], by_column: bool, elements: int) -> Iterator[Tile]:
    """Tiles of whole rows, or of whole columns where those are contiguous."""
    if not by_column:
        return tiles_by_row(*extents, elements)
    return ((rows, columns) for columns, rows in tiles_by_row(extents[1], extents[0], elements))


def tile_count(extents: tuple[int, int], elements: int) -> int:
    """How many tiles of at most `elements` elements cover these extents."""
    rows, columns = tile_shape(extents, elements)
    return -(-extents[0] // rows) * -(-extents[1] // columns)


def is_by_column(array: Array) -> bool:
    """Whether neighbours in a column lie closer together than neighbours in a row."""
    return abs(array.strides[0]) < abs(array.strides[1])


def shaped(buffer: Array, shape: tuple[int, int], by_column: bool) -> Array:
    """The start of a buffer as a matrix of this shape."""
    start = buffer[: shape[0] * shape[1]]
    return start.reshape(shape[::-1]).T if by_column else start.reshape(shape)


def is_readable(array: Array) -> bool:
    """Whether NumPy multiplies the array where it lies; if not, it first copies the whole array."""
    if array.dtype.char not in "fd" or array.size == 0:
        return bool(array.flags.aligned)
    row, column = array.strides if not is_by_column(array) else array.strides[::-1]
    width = array.shape[0] if is_by_column(array) else array.shape[1]
    return bool(array.flags.aligned and column == array.itemsize and row % column == 0 and row >= column * width)
