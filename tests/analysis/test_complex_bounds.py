"""Bounds of complex products: traced and closed forms agree, and hold for every element."""

from __future__ import annotations

import numpy as np
import pytest

from bilinear.analysis.accuracy import classical_bound, element_bounds, four_products_bound, run_error_bound, three_products_bound
from bilinear.ir.linear import identity
from bilinear.ir.scheme import Scheme
from bilinear.lowering.prepare import Level, plain_complex, prepare_complex

ONE = Scheme("one", 1, 1, 1, identity(1), identity(1), identity(1), ("M1",))


def test_closed_forms_are_near_what_is_traced() -> None:
    u = 2.0**-53
    for inner in (64, 1024, 16384):
        traced = run_error_bound(prepare_complex((Level(ONE),)), inner, u).product
        assert 1 <= traced / (three_products_bound(inner, u).imaginary / u) < 1.2
        four = run_error_bound(plain_complex(), inner, u).product
        assert 1 <= four / (four_products_bound(inner, u).real / u) < 2.1, "as one sum of 2K terms"
        assert four >= classical_bound(2 * inner, u)


def three(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    first, second = a.real @ b.real, a.imag @ b.imag
    return first - second, (a.real + a.imag) @ (b.real + b.imag) - first - second


@pytest.mark.parametrize("tiny", [1.0, 1e-3, 1e-7])
def test_every_element_is_within_its_bound(tiny: float) -> None:
    generator = np.random.default_rng(7)
    for inner in (1, 5, 40):
        a, b = (generator.uniform(-1, 1, s) + 1j * tiny * generator.uniform(-1, 1, s) for s in ((30, inner), (inner, 30)))
        a, b = a.astype("complex64"), b.astype("complex64")
        exact = a.astype("clongdouble") @ b.astype("clongdouble")
        bounds = element_bounds(a.astype("complex128"), b.astype("complex128"), 2.0**-24)
        for computed, wanted, bound in zip(three(a, b), (exact.real, exact.imag), bounds, strict=True):
            assert (abs(computed.astype("longdouble") - wanted) <= bound).all()


def test_a_small_imaginary_part_is_lost_though_its_norm_bound_holds() -> None:
    """What is said of componentwise errors is not an idle caution: with four products the part has full accuracy."""
    generator = np.random.default_rng(8)
    a, b = (np.ascontiguousarray((generator.uniform(1, 2, (20, 20)) * (1 + 1e-7j)).astype("complex64")) for _ in "AB")
    exact = (a.astype("clongdouble") @ b.astype("clongdouble")).imag
    worst = (abs(three(a, b)[1] - exact) / abs(exact)).max()
    four = (abs(a.real @ b.imag + a.imag @ b.real - exact) / abs(exact)).max()
    assert worst > 0.1 and four < 1e-5
