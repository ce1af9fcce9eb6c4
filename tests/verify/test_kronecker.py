"""Tensor products are proved by their factors: exactly those that are products of right schemes, and nothing else passes."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from bilinear.algebra.composition import tensor
from bilinear.frontend import load
from bilinear.ir.linear import LinearMap
from bilinear.ir.scheme import Scheme
from bilinear.verify.composed import is_product_of
from bilinear.verify.scheme import multiplies, prove_scheme

PAIRS = [
    ("winograd", "hopcroft_kerr"),
    ("winograd_223", "accurate_halves"),
    ("accurate_sqrt3", "laderman"),
    ("strassen (x) winograd", "split_k"),
]


def composed(outer: str, inner: str) -> Scheme:
    return tensor(load(outer).scheme, load(inner).scheme)


def with_coefficient(scheme: Scheme, table: str, row: int, place: int) -> Scheme:
    """The scheme with half of one coefficient more, in a table without named sums."""
    linear = LinearMap(getattr(scheme, table).inputs, getattr(scheme, table).matrix)
    form = tuple((i, c + Fraction(1, 2) if number == place else c) for number, (i, c) in enumerate(linear.outputs[row]))
    outputs = (*linear.outputs[:row], form, *linear.outputs[row + 1 :])
    changed: dict[str, Any] = {table: replace(linear, outputs=outputs)}
    return replace(scheme, **changed)


@pytest.mark.parametrize("pair", PAIRS)
def test_a_product_is_proved_with_the_facts_of_its_own_equations(pair: tuple[str, str]) -> None:
    scheme = composed(*pair)
    assert is_product_of(scheme, multiplies)
    alone = replace(scheme, factors=())
    assert not is_product_of(alone, multiplies)
    assert prove_scheme(scheme) == prove_scheme(alone) and prove_scheme(alone).holds


@pytest.mark.parametrize("table", ["u", "v", "w"])
def test_a_changed_product_falls_back_on_its_equations_and_fails(table: str) -> None:
    scheme = composed("winograd", "hopcroft_kerr")
    for row in range(0, 12, 5):
        wrong = with_coefficient(scheme, table, row, 0)
        assert not is_product_of(wrong, multiplies)
        assert not prove_scheme(wrong).holds


def test_factors_that_are_wrong_or_of_another_scheme_prove_nothing() -> None:
    wrong = with_coefficient(load("strassen").scheme, "w", 0, 0)
    product = tensor(wrong, load("winograd").scheme)
    assert not is_product_of(product, multiplies) and not prove_scheme(product).holds
    scheme = composed("winograd", "hopcroft_kerr")
    others = composed("strassen", "hopcroft_kerr").factors
    for factors in (scheme.factors[::-1], others, scheme.factors[:1]):
        assert not is_product_of(replace(scheme, factors=factors), multiplies)
        assert prove_scheme(replace(scheme, factors=factors)).holds


def test_approximate_and_modular_products_are_decided_by_their_equations() -> None:
    scheme = tensor(load("bini").scheme, load("split_k").scheme)
    assert not is_product_of(scheme, multiplies)
    assert prove_scheme(scheme).holds
