"""Bounds of products modulo p beside what every number of a range is cut into, and of complex products, traced and in closed form."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bilinear.analysis.accuracy import classical_bound, four_products_bound, run_error_bound, three_products_bound
from bilinear.analysis.integer_range import LARGEST_MODULUS, LARGEST_SUM, ModularWay, way_for
from bilinear.ir.linear import identity
from bilinear.ir.scheme import Scheme
from bilinear.lowering.prepare import Level, plain_complex, prepare_complex

SIZES = (1, 127, 2**15, 2**24, 2**30, 2**52, 2**61)


def cut(x: int, way: ModularWay) -> list[int]:
    """The pieces of a number, by their definition."""
    found = []
    for _ in range(way.pieces - 1):
        half = 2 ** (way.width - 1)
        digit = (x + half) % 2**way.width - half
        found.append(digit)
        x = (x - digit) // 2**way.width
    return [*found, x]


@given(st.integers(2, LARGEST_MODULUS), st.integers(1, 10**6), st.data())
def test_no_sum_is_larger_than_what_floats_hold(p: int, inner: int, data: st.DataObject) -> None:
    left, right = (data.draw(st.integers(0, p // 2)) for _ in "ab")
    way = way_for(p, left, right, inner)
    assert way.chunk >= 1 and way.most_chunks >= 1
    held = 2**way.element.significand
    xs, ys = ([cut(sign * x, way) for x in (size, size // 2, size - size // 3) for sign in (1, -1)] for size in (left, right))
    for i, j in way.pairs:
        x, y = (max(abs(sum(each[q] for q in {i, j})) for each in of) for of in (xs, ys))
        assert way.chunk * x * y <= held
    assert p - 1 + way.most_chunks * held <= LARGEST_SUM


@given(st.sampled_from(SIZES), st.data())
def test_products_of_pieces_are_the_product(size: int, data: st.DataObject) -> None:
    x, y = (data.draw(st.integers(-size, size)) for _ in "xy")
    p, inner = 2 * size, 1000
    way = way_for(p, size, size, inner)
    left, right = cut(x, way), cut(y, way)
    products = [sum(left[q] for q in {i, j}) * sum(right[q] for q in {i, j}) for i, j in way.pairs]
    found = sum(2 ** (way.width * power) * sum(sign * products[n] for n, sign in terms) for power, terms in enumerate(way.powers()))
    assert found == x * y


@pytest.mark.parametrize(
    ("p", "element", "pieces"),
    [
        (2, "float32", 1),
        (101, "float32", 1),
        (65521, "float64", 1),
        (2**22 - 3, "float64", 1),
        (2**31 - 1, "float64", 2),
        (2**62, "float64", 3),
    ],
)
def test_what_runs(p: int, element: str, pieces: int) -> None:
    way = way_for(p, p // 2, p // 2, 4096)
    assert (way.element.name, way.pieces) == (element, pieces)


def test_small_elements_take_one_product_whatever_the_modulus() -> None:
    for p, inner in product((2**31 - 1, 2**62), (100, 10**4)):
        assert len(way_for(p, 127, 128, inner).pairs) == 1


ONE = Scheme("one", 1, 1, 1, identity(1), identity(1), identity(1), ("M1",))


def test_closed_forms_are_near_what_is_traced() -> None:
    u = 2.0**-53
    for inner in (64, 1024, 16384):
        traced = run_error_bound(prepare_complex((Level(ONE),)), inner, u).product
        assert 1 <= traced / (three_products_bound(inner, u).imaginary / u) < 1.2
        four = run_error_bound(plain_complex(), inner, u).product
        assert 1 <= four / (four_products_bound(inner, u).real / u) < 2.1, "as one sum of 2K terms"
        assert four >= classical_bound(2 * inner, u)
