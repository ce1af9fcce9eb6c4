"""Residuals by matrix products are those that are added up one by one."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from bilinear.algebra.composition import tensor
from bilinear.analysis import brent
from bilinear.analysis.brent import integers
from bilinear.frontend import load
from bilinear.ir.linear import LinearMap, form
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Scheme
from bilinear.verify.scheme import prove_scheme

SCHEMES = ["strassen", "laderman", "dps_444", "smirnov_336", "accurate_halves"]


def table(scheme: Scheme) -> Scheme:
    """The scheme without named sums and changes of basis."""
    u, v, w = scheme.tables
    maps = LinearMap(scheme.m * scheme.k, u), LinearMap(scheme.k * scheme.n, v), LinearMap(scheme.rank, w)
    return replace(scheme, u=maps[0], v=maps[1], w=maps[2], bases=None, places=None)


def changed(scheme: Scheme, chance: random.Random) -> Scheme:
    """One coefficient changed, to one that may be large."""
    which = chance.choice("uvw")
    linear: LinearMap = getattr(scheme, which)
    row = chance.randrange(len(linear.outputs))
    delta = chance.choice([Fraction(1), Fraction(-1), Fraction(1, 2), Fraction(2**30), Fraction(2**60)])
    new = form([*linear.outputs[row], (chance.randrange(linear.inputs), delta)])
    outputs = (*linear.outputs[:row], new, *linear.outputs[row + 1 :])
    return replace(scheme, **{which: LinearMap(linear.inputs, outputs)})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", SCHEMES)
def test_both_ways_give_the_same_residual(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scheme, chance = table(load(name).scheme), random.Random(7)
    by_matrices = 0
    for _ in range(40):
        mutant = changed(scheme, chance)
        monkeypatch.setattr(brent, "FEW_TERMS", 10**9)
        one_by_one = brent.residual(mutant)
        monkeypatch.setattr(brent, "FEW_TERMS", 0)
        by_matrices += brent.by_matrices(mutant, integers(mutant))
        assert brent.residual(mutant) == one_by_one
    assert by_matrices > 20


def test_sums_that_float64_may_round_are_added_up_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brent, "FEW_TERMS", 0)
    plain = table(load("strassen").scheme)
    for bits, exact in ((50, True), (53, False)):
        large = replace(plain, u=LinearMap(4, (form((i, c * 2**bits) for i, c in plain.u.outputs[0]), *plain.u.outputs[1:])))
        assert brent.by_matrices(large, integers(large)) is exact


@pytest.mark.parametrize("ring", ["Q[sqrt(3)]", "Q[lambda]"])
def test_roots_and_lambda_are_added_up_one_by_one(ring: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brent, "FEW_TERMS", 0)
    scheme = load({"Q[sqrt(3)]": "accurate_sqrt3", "Q[lambda]": "bini"}[ring]).scheme
    assert scheme.ring == Ring(ring)
    assert not brent.by_matrices(scheme, integers(scheme))


@pytest.mark.slow
def test_a_system_of_13_million_products_of_coefficients_is_decided() -> None:
    scheme = table(tensor(load("dps_444").scheme, load("perminov_444").scheme))
    assert prove_scheme(scheme).holds
    row = scheme.u.outputs[5]
    wrong = replace(scheme, u=LinearMap(256, (*scheme.u.outputs[:5], form([*row, (0, 1)]), *scheme.u.outputs[6:])))
    proof = prove_scheme(wrong)
    assert not proof.holds and proof.failures[0].found - proof.failures[0].needed
