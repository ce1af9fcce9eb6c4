"""Layouts and matrices as data, beside what NumPy says of the same arrays; and forms as integers beside forms as tables."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bilinear.ir.element import FLOAT32, FLOAT64
from bilinear.ir.linear import Form, LinearMap, form, substitute
from bilinear.ir.matrix import Layout, Matrix, layout_of, matrix_of
from bilinear.ir.number import Coefficient, generator, rational
from bilinear.ir.packed import Packing, TooLongError, widened

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


ROOT = generator("sqrt(3)")
NUMBERS = st.fractions(min_value=-(10**6), max_value=10**6, max_denominator=100).map(lambda x: x.numerator if x.denominator == 1 else x)
WITH_ROOT = st.tuples(NUMBERS, NUMBERS).map(lambda pair: pair[0] + pair[1] * ROOT)


@st.composite
def programs(draw: st.DrawFn, numbers: st.SearchStrategy[Coefficient]) -> LinearMap:
    inputs, steps = draw(st.integers(1, 5)), list[Form]()
    for i in range(draw(st.integers(1, 30))):
        steps.append(form(draw(st.dictionaries(st.integers(0, inputs + i - 1), numbers, max_size=3))))
    last = inputs + len(steps) - 1
    outputs = draw(st.lists(st.dictionaries(st.integers(0, last), numbers, max_size=3).map(form), min_size=1, max_size=4))
    return LinearMap(inputs, tuple(outputs), tuple(steps))


def by_substitution(linear: LinearMap) -> tuple[Form, ...]:
    values: list[Form] = [((i, 1),) for i in range(linear.inputs)]
    for step in linear.steps:
        values.append(substitute(step, values))
    return tuple(substitute(output, values) for output in linear.outputs)


@given(programs(NUMBERS))
def test_matrices_of_rational_programs(linear: LinearMap) -> None:
    found = linear.matrix
    assert found == by_substitution(linear)
    assert all(isinstance(c, int) or c.denominator != 1 for row in found for _, c in row)  # type: ignore[union-attr]


@pytest.mark.slow
@given(programs(WITH_ROOT))
def test_matrices_of_programs_with_a_root(linear: LinearMap) -> None:
    assert linear.matrix == by_substitution(linear)


@pytest.mark.slow
@given(st.one_of(programs(NUMBERS), programs(WITH_ROOT)))
def test_the_additions_of_a_table_are_counted_without_it(linear: LinearMap) -> None:
    assert linear.additions_of_table() == (table := LinearMap(linear.inputs, by_substitution(linear)).additions)
    assert table - 2 < linear.additions_of_table(table - 2) <= table


def test_a_chain_that_doubles_takes_longer_digits() -> None:
    steps = tuple(((i, 2), (i + 1, -1)) if i else ((0, 2), (1, -3)) for i in range(300))
    linear = LinearMap(2, (((301, 1),),), steps)
    assert linear.matrix == by_substitution(linear)
    assert max(abs(rational(c)) for _, c in linear.matrix[0]) > 2**64


def test_a_digit_never_reaches_into_the_next() -> None:
    packing = Packing(64)
    value = packing.sum([(packing.unit(0), 2**61), (packing.unit(1), 1)])
    with pytest.raises(TooLongError):
        packing.sum([(value, 4)])
    assert widened(lambda wide: wide.form(wide.sum([(wide.unit(0), -(2**100)), (wide.unit(1), 1)]))) == ((0, -(2**100)), (1, 1))


@given(st.lists(WITH_ROOT, min_size=1, max_size=6).filter(any))
def test_the_monic_multiple(numbers: list[Coefficient]) -> None:
    terms = form(enumerate(numbers))

    def attempt(packing: Packing) -> tuple[Form, Form]:
        value = packing.sum([(packing.unit(i), c) for i, c in terms])
        monic, factor = packing.monic(value)
        return packing.form(monic), packing.form(packing.sum([(monic, factor)]))

    monic, again = widened(attempt, "sqrt(3)")
    assert monic[0][1] == 1 and again == terms


def test_places_that_have_coefficients() -> None:
    packing = Packing(64)
    value = packing.sum([(packing.unit(3), -1), (packing.unit(5), Fraction(1, 2))])
    assert packing.lies_in(value, 3, 6) and packing.lies_in(value, 0, None)
    assert not packing.lies_in(value, 4, 6) and not packing.lies_in(value, 3, 5)
    assert packing.form(packing.moved(value, -3)) == ((0, -1), (2, Fraction(1, 2)))


@given(st.lists(WITH_ROOT, min_size=1, max_size=4), st.lists(WITH_ROOT, min_size=1, max_size=4))
def test_products_have_digits_within_their_bound(first: list[Coefficient], second: list[Coefficient]) -> None:
    def attempt(packing: Packing) -> tuple[Form, int, int]:
        left, right = (packing.sum([(packing.unit(i * step), c) for i, c in enumerate(x)]) for x, step in ((first, 4), (second, 1)))
        found = packing.product(left, right)
        return packing.form(found), found.most, max(map(abs, [*packing.digits(found.whole), *packing.digits(found.root)]))

    found, bound, most = widened(attempt, "sqrt(3)")
    assert found == form((4 * i + j, c * d) for i, c in enumerate(first) for j, d in enumerate(second)) and most <= bound


@given(st.lists(WITH_ROOT, min_size=1, max_size=4), st.integers(1, 2**12), st.integers(1, 2**12))
def test_forms_are_equal_whatever_their_denominators(numbers: list[Coefficient], a: int, b: int) -> None:
    def attempt(packing: Packing) -> tuple[bool, bool]:
        value = packing.sum([(packing.unit(i), c) for i, c in enumerate(numbers)])
        first, second = (packing.sum([(packing.sum([(value, Fraction(1, x))]), x)]) for x in (a, b))
        return packing.equal(first, second), packing.equal(first, packing.sum([(second, 1), (packing.unit(0), Fraction(1, a))]))

    assert widened(attempt, "sqrt(3)") == (True, False)
