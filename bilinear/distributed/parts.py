"""Parts of what a rank holds: arrays cut and filled by rows and columns of the whole matrix."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise

import numpy as np

from bilinear.distributed.spread import Rect, Run, Runs
from bilinear.ir.matrix import Array

FEW = 64
"""Blocks up to which a part is copied block by block, in a kernel each on a GPU; a part of more is gathered by indices."""
Index = tuple[object, ...]


def window(x: Array, held: Rect, part: Rect) -> Array | None:
    """A view of a part of what is held; None if the part does not lie in one piece."""
    local = part.inside(held)
    if len(local.rows) > 1 or len(local.columns) > 1:
        return None
    return x[tuple(slice(*runs[0]) if runs else slice(0, 0) for runs in (local.rows, local.columns))]


def take(x: Array, held: Rect, part: Rect) -> Array:
    """A part of what is held: a view if it lies in one piece."""
    view = window(x, held, part)
    if view is not None:
        return view
    local = part.inside(held)
    if not _is_few(local):
        return x[_indices(local)]
    out = np.empty_like(x, shape=part.shape, order="C")
    for there, here in _blocks(local):
        out[here] = x[there]
    return out


def put(x: Array, held: Rect, part: Rect, value: Array) -> None:
    """Write a part of what is held."""
    if not part.size:
        return
    local = part.inside(held)
    if not _is_few(local):
        x[_indices(local)] = value
        return
    for there, here in _blocks(local):
        x[there] = value[here]


def dense(x: Array) -> Array:
    """The array without gaps."""
    return x if x.flags.c_contiguous else x.copy()


def _is_few(local: Rect) -> bool:
    return len(local.rows) * len(local.columns) <= FEW


def _blocks(local: Rect) -> Iterator[tuple[Index, Index]]:
    """The places of each block in what is held and in the part itself."""
    for rows, own_rows in _beside(local.rows):
        for columns, own_columns in _beside(local.columns):
            yield (slice(*rows), slice(*columns)), (slice(*own_rows), slice(*own_columns))


def _beside(runs: Runs) -> Iterator[tuple[Run, Run]]:
    """Runs with their places one after another."""
    return zip(runs, pairwise((0, *accumulate(stop - start for start, stop in runs))), strict=True)


def _indices(local: Rect) -> Index:
    rows, columns = (np.concatenate([np.arange(0), *(np.arange(*run) for run in runs)]) for runs in (local.rows, local.columns))
    return np.ix_(rows, columns)
