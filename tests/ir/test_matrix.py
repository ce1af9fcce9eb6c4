"""Layouts and matrices as data, beside what NumPy says of the same arrays."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import numpy as np
import pytest

from bilinear.ir.element import FLOAT32, FLOAT64
from bilinear.ir.matrix import Layout, Matrix, layout_of, matrix_of

WHOLE = np.arange(5 * 7 * 11.0).reshape(5, 7, 11)


def drawn(draw: random.Random) -> Any:
    """A view of the array, in any order of its axes, of two or three extents."""
    view = WHOLE.transpose(draw.sample(range(3), 3))
    ends = [sorted(draw.sample(range(extent + 1), 2)) for extent in view.shape]
    view = view[tuple(slice(first, last, draw.randint(1, 2)) for first, last in ends)]
    view = view[tuple(slice(None, None, draw.choice([1, 1, -1])) for _ in view.shape)]
    return view if draw.random() < 0.5 else view[draw.randrange(view.shape[0])]


def same(found: Matrix, wanted: Any) -> bool:
    """Whether a matrix is this view: by its address and its layout, and by its memory."""
    at = wanted.__array_interface__["data"][0]
    here = found.memory.__array_interface__["data"][0]
    strides = [s for s, extent in zip(found.layout.strides, wanted.shape, strict=True) if extent > 1]
    known = [s for s, extent in zip(wanted.strides, wanted.shape, strict=True) if extent > 1]
    shapes = found.layout.shape == found.memory.shape == wanted.shape
    return bool(shapes and strides == known and (wanted.size == 0 or found.address == here == at))


def test_parts_of_a_matrix_are_numpys_views() -> None:
    draw = random.Random(7)
    for _ in range(500):
        array = drawn(draw)
        rows, columns = (tuple(sorted(draw.sample(range(extent + 1), 2))) for extent in array.shape[-2:])
        matrix = matrix_of(array)
        assert same(matrix, array)
        assert same(matrix.part((rows[0], rows[1]), (columns[0], columns[1])), array[..., slice(*rows), slice(*columns)])
        index = tuple(draw.randrange(extent) for extent in array.shape[:-2])
        assert same(matrix.at(index), array[index]) and same(matrix.at(index).T, array[index].T)
        bare = Matrix(matrix.address, matrix.layout).at(index).T.part((0, 1), (0, 1))
        assert bare.address == matrix.at(index).address and bare.memory is None


def test_extents_of_a_batch_that_are_missing_or_1_repeat() -> None:
    one, row = matrix_of(WHOLE[0]), matrix_of(WHOLE[:1, None])
    for index in product(range(2), range(3)):
        assert same(one.at(index), WHOLE[0]) and same(row.at(index), WHOLE[0])
        assert same(matrix_of(WHOLE).at(index), WHOLE[index[1]])


def test_spaces_of_a_workspace() -> None:
    buffer = np.arange(64.0)
    found = matrix_of(buffer).space(3, (4, 5), 7)
    assert same(found, buffer[3:31].reshape(4, 7)[:, :5])
    assert same(found.T, buffer[3:31].reshape(4, 7)[:, :5].T)
    assert same(matrix_of(buffer.reshape(8, 8)).part((2, 8), (0, 8)).start(9), buffer[16:25])
    with pytest.raises(ValueError, match="gaps"):
        matrix_of(buffer.reshape(8, 8)).part((2, 8), (0, 7)).start(9)


def test_facts_of_a_layout() -> None:
    draw = random.Random(3)
    for _ in range(500):
        array = drawn(draw)
        layout = layout_of(array)
        assert (layout.ndim, layout.size, layout.itemsize) == (array.ndim, array.size, 8)
        assert array.size == 0 or layout.is_contiguous == array.flags.c_contiguous
        assert not layout.overlaps_itself
        low, high = np.lib.array_utils.byte_bounds(array)
        address = matrix_of(array).address
        assert array.size == 0 or (address + layout.reach[0], address + layout.reach[1]) == (low, high)


@pytest.mark.parametrize(("shape", "strides"), [((4, 4), (8, 8)), ((4, 4), (24, 8)), ((2, 2), (0, 8)), ((2, 2), (4, 8))])
def test_layouts_that_overlap_themselves(shape: tuple[int, int], strides: tuple[int, int]) -> None:
    assert Layout(shape, strides, np.dtype("f8")).overlaps_itself


def test_order_gaps_and_evenness() -> None:
    double = np.dtype("f8")
    rows, columns = Layout((3, 5), (40, 8), double), Layout((3, 5), (8, 24), double)
    assert not rows.is_by_column and columns.is_by_column and not rows.has_gaps and not columns.has_gaps
    assert Layout((3, 5), (48, 8), double).has_gaps and Layout((3, 5), (48, 8), double).lies_evenly
    assert not rows.lies_evenly and not Layout((2, 3, 4), (96, 32, 8), double).lies_evenly


def test_the_element_of_a_layout() -> None:
    elements = [Layout((1, 1), (8, 8), np.dtype(code)).element for code in ("f8", "f4", ">f8", "i8", "f2")]
    assert elements == [FLOAT64, FLOAT32, None, None, None]
