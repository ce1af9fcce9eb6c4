"""Bounds of residues, of products modulo p and of complex products, beside exact arithmetic: no error is above them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product
from math import isqrt, log2

import numpy as np
import pytest
from digit_unit import KINDS, allowed, as_integers, by_residues, data, digits, norm_upward, scale_exponent
from each_case import each
from hypothesis import given
from hypothesis import strategies as st

from bilinear.analysis.accuracy import classical_bound, four_products_bound, run_error_bound, three_products_bound
from bilinear.analysis.digit_bounds import (
    moduli_for,
    probable_residues,
    residue_block_bound,
    residue_bound,
)
from bilinear.analysis.integer_range import LARGEST_MODULUS, LARGEST_SUM, ModularWay, way_for
from bilinear.errors import BilinearError
from bilinear.ir.element import FLOAT32, FLOAT64
from bilinear.ir.linear import identity
from bilinear.ir.scheme import Scheme
from bilinear.lowering.prepare import Level, plain_complex, prepare_complex
from bilinear.reporting.map_report import digit_report


@pytest.mark.sample(24)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("inner", [1, 2, 33, 700])
@pytest.mark.parametrize("name", ["residues13", "residues15", "residues17"])
def test_products_are_exact_and_no_element_is_further_off_than_the_bound(name: str, inner: int, kind: str) -> None:
    scheme = digits(name)
    representation = scheme.representation
    a, b = data(kind, 3, inner, 2)
    rows, columns = as_integers(a, representation), as_integers(b.T, representation)
    bound = residue_bound(scheme, inner)
    for i, (e, left) in enumerate(rows):
        for j, (f, right) in enumerate(columns):
            assert 2 * sum(abs(x * y) for x, y in zip(left, right, strict=True)) < representation.product
            total = sum(x * y for x, y in zip(left, right, strict=True))
            assert by_residues(representation, left, right) == total
            x, y = [Fraction(float(v)) for v in a[i]], [Fraction(float(v)) for v in b[:, j]]
            wanted = sum((p * q for p, q in zip(x, y, strict=True)), Fraction(0))
            found = Fraction(float(Fraction(total) / Fraction(2) ** (e + f)))
            assert abs(found - wanted) <= allowed(bound.rounded, bound.cut, inner, x, y) + Fraction(1, 2**1075)


@each("inner", [1, 100, 131072, 10**6])
@each("name", ["residues8", "residues15"])
def test_scales_are_as_large_as_they_may_be(name: str, inner: int) -> None:
    representation = digits(name).representation
    for norm in (Fraction(1), Fraction(3, 7), Fraction(10) ** 300, Fraction(1, 10**300), Fraction(5e-324), 0.1):
        e = scale_exponent(norm, representation, inner)
        room = representation.norm_limit - Fraction(isqrt(inner - 1) + 1, 2)
        assert Fraction(2) ** e * Fraction(norm) <= room < Fraction(2) ** (e + 1) * Fraction(norm)
    nearly = representation.product * (1 - Fraction(1, 2**30))
    assert 2 * representation.norm_limit**2 < nearly <= 2 * (representation.norm_limit + 1) ** 2
    assert scale_exponent(0, representation, inner) == 0


def test_a_row_at_the_limit_is_still_below_half_of_the_range() -> None:
    """The largest integers that a scale allows, alone or spread over a line, stay in the range, and twice as large ones do not."""
    representation = digits("residues13").representation
    limit = representation.norm_limit
    assert by_residues(representation, [limit], [-limit]) == -(limit**2)
    spread = isqrt(limit**2 // 64)
    assert by_residues(representation, [spread] * 64, [spread] * 64) == 64 * spread**2
    assert by_residues(representation, [2 * limit], [limit]) != 2 * limit**2


@pytest.mark.slow
def test_the_longest_sums_of_the_largest_residues_are_exact() -> None:
    """Modulo 256 the sum of 131072 products of -128 is 2^31, which int32 does not hold; it wraps around, and is still right."""
    representation = digits("residues13").representation
    for value, terms in ((128, 131_072), (-127, 131_072), (127, 131_073), (128, 300_001)):
        assert by_residues(representation, [value] * terms, [value] * terms) == value**2 * terms


def test_norms_in_floating_point_are_rounded_upward() -> None:
    generator = np.random.default_rng(3)
    for inner in (1, 7, 1000):
        x = generator.standard_normal(inner)
        exact = sum((Fraction(float(v)) ** 2 for v in x), Fraction(0))
        squares = float(np.cumsum(x * x)[-1])
        assert Fraction(norm_upward(squares, inner)) ** 2 >= exact
        assert Fraction(norm_upward(squares, inner)) ** 2 <= exact * (1 + Fraction(inner + 8, 2**51))


@pytest.mark.slow
def test_probable_errors_are_near_those_of_exact_arithmetic() -> None:
    for name, inner in (("residues13", 256), ("residues14", 1024)):
        scheme = digits(name)
        errors, sizes = [], []
        a, b = data("normal", 16, inner, 16)
        rows, columns = as_integers(a, scheme.representation), as_integers(b.T, scheme.representation)
        for (e, left), u in zip(rows, a, strict=True):
            for (f, right), v in zip(columns, b.T, strict=True):
                wanted = sum((Fraction(float(x)) * Fraction(float(y)) for x, y in zip(u, v, strict=True)), Fraction(0))
                errors.append(float(Fraction(sum(x * y for x, y in zip(left, right, strict=True))) / Fraction(2) ** (e + f) - wanted))
                sizes.append(float(wanted))
        measured = float(np.linalg.norm(errors) / np.linalg.norm(sizes))
        assert 0.5 < probable_residues(scheme, inner) / measured < 2  # every line has a scale of its own


def test_more_moduli_err_less_until_only_the_result_is_rounded() -> None:
    errors = [probable_residues(digits(f"residues{n}"), 16384) for n in (13, 14, 15, 16, 17)]
    assert errors == sorted(errors, reverse=True) and errors[-1] == pytest.approx(0.393 * 2.0**-53, rel=0.01)
    bounds = [residue_block_bound(digits(f"residues{n}"), 16384) for n in (13, 14, 15, 16)]
    steps = [log2(x / y) for x, y in pairwise(bounds)]
    assert steps[0] == pytest.approx(log2(digits("residues14").representation.moduli[-1]) / 2, abs=0.1)


def test_block_schemes_inside_cost_no_accuracy_and_those_above_do() -> None:
    plain = residue_block_bound(digits("residues15"), 4096)
    assert residue_block_bound(digits("residues15 (x) winograd"), 4096) == plain
    assert residue_block_bound(digits("winograd (x) residues15"), 4096) > 4 * plain
    assert probable_residues(digits("residues15 (x) winograd"), 4096) == probable_residues(digits("residues15"), 4096)
    assert 2 < probable_residues(digits("winograd (x) residues17"), 4096) / probable_residues(digits("residues17"), 4096) < 10


def test_the_fewest_moduli_that_keep_an_accuracy() -> None:
    assert moduli_for(FLOAT64, 16384, 1e-15, probable=True).count == 15
    assert moduli_for(FLOAT32, 16384, 1e-6, probable=True).count == 7
    found = moduli_for(FLOAT64, 16384, 1e-8)
    fewer = residue_block_bound(digits(f"residues{found.count}"), 16384)
    assert found.count == 13 and fewer <= 1e-8
    assert moduli_for(FLOAT64, 16384, 1e-8, counts=(15, 16)).count == 15


def test_unscaled_residues_stand_for_integers() -> None:
    plain = digits("residues8")
    unscaled = replace(plain, representation=replace(plain.representation, scaled=False))
    with pytest.raises(ValueError, match="those of integers"):
        residue_bound(unscaled, 16)
    report, error = digit_report(unscaled)
    assert error is None and report.errors == () and report.notes[0].endswith("those of integers, and exact while 2 |C| < M")


def test_too_few_moduli_are_refused() -> None:
    with pytest.raises(BilinearError) as raised:
        moduli_for(FLOAT64, 16384, 1e-20)
    assert str(raised.value).startswith("error[E567]: no residues of float64 keep an error of 1e-20 at K = 16384")
    tiny = moduli_for(FLOAT32, 1, 0.5)
    with pytest.raises(BilinearError) as raised:
        scale_exponent(1.0, tiny, 10**9)
    assert str(raised.value) == (
        "error[E567]: 2 moduli are too few for sums of 1000000000 terms\n  hint: take more moduli: their product grows with each"
    )


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


@each(
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
