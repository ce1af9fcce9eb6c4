"""Arrays that lie in a larger buffer in some way, so that what is written beside their elements is noticed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

GUARD = 24  # Elements of the buffer before the first one and behind the last one of the array.


@dataclass(frozen=True)
class Laid:
    """A view of a buffer, and both as they were: `before` is a copy of the buffer, `values` one of the view."""

    view: Array
    base: Array
    offset: int
    before: Array
    values: Array

    @classmethod
    def of(cls, view: Array, base: Array, offset: int) -> Laid:
        """Remember how a view, which begins at this byte of its buffer, and the buffer are now."""
        return cls(view, base, offset, base.copy(), view.copy())

    def is_untouched(self) -> bool:
        """Whether no byte of the buffer differs."""
        return _same(self.base, self.before)

    def again(self) -> Array:
        """The same array in a copy of the buffer, as it was."""
        copy = placed(self.before.copy(), self.view.dtype, self.view.shape, self.offset, self.view.strides)
        if not self.view.flags.writeable:
            copy.flags.writeable = False
        return copy

    def __str__(self) -> str:
        frozen = "" if self.view.flags.writeable else " read-only"
        return f"{self.view.dtype.str}{list(self.view.shape)} strides {list(self.view.strides)} at {self.offset}{frozen}"


def _same(x: Array, y: Array) -> bool:
    return all(p is q for p, q in zip(x, y, strict=True)) if x.dtype.hasobject else x.tobytes() == y.tobytes()


def placed(base: Array, dtype: Any, shape: Sequence[int], offset: int, strides: Sequence[int]) -> Array:
    """The view of a buffer, of bytes or of objects, whose first element begins at this byte."""
    if base.dtype.hasobject:
        return np.lib.stride_tricks.as_strided(base[offset // base.itemsize :], shape, strides)
    return np.ndarray(tuple(shape), dtype, base, offset, tuple(strides))


def laid_out(
    generator: np.random.Generator,
    values: Array,
    *,
    plain: bool = False,
    repeats: bool = False,
    bytewise: bool = True,
    reverses: bool = True,
) -> Laid:
    """The values in a drawn layout: any order of the axes, gaps, negative strides, odd addresses; strides of 0 only where it `repeats`.

    Where an axis repeats, the first of its values stands for all. If it is not `bytewise`, elements lie at multiples of their size.
    """
    hasobject, item = values.dtype.hasobject, values.dtype.itemsize
    axes, strides, reach = list(range(values.ndim))[::-1], [0] * values.ndim, item
    if not plain and generator.random() < 0.5:
        generator.shuffle(axes)
    gaps = not plain and generator.random() < 0.4
    unit = item if hasobject or generator.random() < 0.8 or not bytewise else 1
    first = GUARD * item + (unit if not plain and unit == 1 else 0)
    first += 0 if bytewise or plain else item * int(generator.integers(4))
    for axis in axes:
        extent = values.shape[axis]
        if repeats and extent and generator.random() < 0.3:
            values = np.broadcast_to(values.take([0], axis), values.shape)
            continue
        reach += unit * int(generator.integers(1, 4)) if gaps and generator.random() < 0.5 else 0
        is_reversed = not plain and reverses and generator.random() < 0.15
        strides[axis] = -reach if is_reversed else reach
        first += reach * (extent - 1) if is_reversed and extent else 0
        reach *= max(1, extent)
    base: Array
    if hasobject:
        base = np.array([object() for _ in range(2 * GUARD + first // item + reach // item)], dtype=object)
    else:
        base = generator.integers(0, 256, 2 * GUARD * item + first + reach, dtype=np.uint8)
    view = placed(base, values.dtype, values.shape, first, strides)
    view[...] = values
    return Laid.of(view, base, first)
