"""Parts of what a rank holds: arrays cut and filled by rows and columns of the whole matrix."""

from __future__ import annotations

import numpy as np

from bilinear.distributed.spread import Rect
from bilinear.ir.matrix import Array


def place_of(held: Rect, part: Rect) -> tuple[object, ...]:
    """NumPy's index of a part of what is held."""
    local = part.inside(held)
    if len(local.rows) <= 1 and len(local.columns) <= 1:
        first, second = (slice(*runs[0]) if runs else slice(0, 0) for runs in (local.rows, local.columns))
        return first, second
    rows, columns = (np.concatenate([np.arange(0), *(np.arange(*run) for run in runs)]) for runs in (local.rows, local.columns))
    return np.ix_(rows, columns)


def take(x: Array, held: Rect, part: Rect) -> Array:
    """A part of what is held: a view if it lies in one piece."""
    return x[place_of(held, part)]


def put(x: Array, held: Rect, part: Rect, value: Array) -> None:
    """Write a part of what is held."""
    if part.size:
        x[place_of(held, part)] = value


def dense(x: Array) -> Array:
    """The array without gaps."""
    return x if x.flags.c_contiguous else x.copy()
