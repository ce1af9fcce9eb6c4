"""Forms as integers: the same as forms as tables, however long the coefficients grow."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bilinear.ir.linear import Form, LinearMap, form, substitute
from bilinear.ir.number import Coefficient, generator, rational
from bilinear.ir.packed import Packing, TooLongError, widened

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
