"""Bounds of complex products: traced and closed forms agree."""

from __future__ import annotations

from bilinear.analysis.accuracy import classical_bound, four_products_bound, run_error_bound, three_products_bound
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
