"""Arrays with labelled dimensions: diagonals, sums over labels, and the product of two, by a multiply of matrices if anything is summed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np

from bilinear.ir.matrix import Array, Dtype
from bilinear.runtime.accept import shares_memory
from bilinear.runtime.subscripts import Labels

Multiply = Callable[[Array, Array, Array], Array]
"""A multiply of matrices, and batches of them: a, b, and where the result goes (None for a new array)."""


class Work(NamedTuple):
    """How a sum is carried out: its multiply, and whether products of elements are written to where the result goes."""

    multiply: Multiply
    writes: bool = True


class Labelled(NamedTuple):
    """An array, and a label for each of its dimensions."""

    array: Array
    labels: Labels

    def axes(self, labels: Iterable[str]) -> list[int]:
        """The places of labels."""
        return [self.labels.index(label) for label in labels]

    def in_order(self, labels: Labels) -> Array:
        """A view with the dimensions in this order."""
        return self.array.transpose(*self.axes(labels))


def diagonal(part: Labelled) -> Labelled:
    """A view in which every label stands once."""
    array, labels = part
    while (twice := next((label for label in labels if labels.count(label) > 1), None)) is not None:
        first = labels.index(twice)
        second = labels.index(twice, first + 1)
        array = array.diagonal(axis1=first, axis2=second)  # its dimension is the last one
        labels = (*(label for axis, label in enumerate(labels) if axis not in (first, second)), twice)
    return Labelled(array, labels)


def without_ones(part: Labelled, extents: Mapping[str, int]) -> Labelled:
    """A view without the dimensions of extent 1 whose label has another extent elsewhere: they fit everything."""
    return _first(part, [axis for axis, size in enumerate(part.array.shape) if size == 1 != extents[part.labels[axis]]])


def summed(part: Labelled, kept: Collection[str], dtype: Dtype) -> Labelled:
    """The sum over all labels but those to be kept, in this type."""
    axes = tuple(axis for axis, label in enumerate(part.labels) if label not in kept)
    if not axes:
        return part
    total = part.array.sum(axis=axes, dtype=dtype, keepdims=True)  # without dimensions NumPy gives a number, which is not an array
    return _first(Labelled(total, part.labels), axes)


def product(left: Labelled, right: Labelled, wanted: Labels, dtype: Dtype, target: Array, work: Work) -> Array:
    """The product in this type with the `wanted` labels in their order, summed over what both have and is not wanted.

    It is `target` if that is given. A label that only one operand has must be wanted.
    """
    if np.result_type(left.array.dtype, right.array.dtype) != dtype:
        left = Labelled(left.array.astype(dtype), left.labels)
    shared = [label for label in left.labels if label in right.labels and label not in wanted]
    if not shared:
        x, y = (own.in_order(tuple(label for label in wanted if label in own.labels))[_spread(own, wanted)] for own in (left, right))
        return written((x * y)[..., 0], target if work.writes else None)
    batch = tuple(label for label in wanted if label in left.labels and label in right.labels)
    rows = _as_they_lie(left, [label for label in left.labels if label not in right.labels])
    columns = _as_they_lie(right, [label for label in right.labels if label not in left.labels])
    inner = min((_as_they_lie(x, shared) for x in (left, right)), key=lambda order: _copied(left, order) + _copied(right, order))
    x, y = _joined(left, batch, rows, inner), _joined(right, batch, inner, columns)
    lying = (*batch, *rows, *columns)
    place = None if target is None else Labelled(target, wanted)
    if place is not None and _joins(place, rows) and _joins(place, columns):
        work.multiply(x, y, _joined(place, batch, rows, columns))
        return target
    extents = {label: size for own in (left, right) for label, size in zip(own.labels, own.array.shape, strict=True)}
    found = work.multiply(x, y, None).reshape(tuple(extents[label] for label in lying))
    return written(Labelled(found, lying).in_order(wanted), target if work.writes else None)


def written(array: Array, target: Array) -> Array:
    """The array, or `target` with its elements, which may share memory with it."""
    if target is None:
        return array
    target[...] = array.copy() if shares_memory(array, target) else array
    return target


def _first(part: Labelled, axes: Collection[int]) -> Labelled:
    """A view without some dimensions, at index 0 of each."""
    array, labels = part
    kept = tuple(label for axis, label in enumerate(labels) if axis not in axes)
    return Labelled(array[(..., *(0 if axis in axes else slice(None) for axis in range(array.ndim)))], kept)  # `...`: an array, no number


def _spread(part: Labelled, wanted: Labels) -> tuple[object, ...]:
    """The index that gives an array a dimension of extent 1 for each wanted label that it lacks, and one more at the end.

    With that the product of two numbers is an array, too.
    """
    return (..., *(slice(None) if label in part.labels else None for label in wanted), None)


def _as_they_lie(part: Labelled, labels: Sequence[str]) -> Labels:
    """Labels in the order in which their dimensions lie in memory, the farthest apart first."""
    return tuple(sorted(labels, key=lambda label: -abs(part.array.strides[part.labels.index(label)])))


def _joins(part: Labelled, labels: Labels) -> bool:
    """Whether dimensions can be joined to one where they lie."""
    known = [(part.array.strides[axis], part.array.shape[axis]) for axis in part.axes(labels)]
    return all(outer == inner * size for (outer, _), (inner, size) in pairwise([x for x in known if x[1] != 1]))


def _copied(part: Labelled, labels: Labels) -> int:
    """How many elements are copied if these dimensions are joined in this order."""
    return 0 if _joins(part, labels) else int(part.array.size)


def _joined(part: Labelled, batch: Labels, rows: Labels, columns: Labels) -> Array:
    """A matrix, or a batch of them: a view if rows and columns can be joined where they lie, else a copy."""
    array = part.in_order((*batch, *rows, *columns))
    shape, end = array.shape, len(batch) + len(rows)
    return array.reshape((*shape[: len(batch)], prod(shape[len(batch) : end]), prod(shape[end:])))
