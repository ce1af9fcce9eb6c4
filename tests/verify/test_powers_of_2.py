"""Schemes over Z/4, Z/8 and so on, where numbers other than 0 have no inverse."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from mutants import expanded, mutant, mutations
from shell import Shell

import bilinear
from bilinear.errors import BilinearError
from bilinear.frontend.printer import print_scheme
from bilinear.ir.ring import Ring, parse_ring
from bilinear.ir.scheme import Scheme
from bilinear.verify.scheme import prove_scheme


def over(ring: str, name: str = "strassen") -> Scheme:
    return replace(expanded(bilinear.load(name).scheme), ring=Ring(ring), name="x", places=None)


def shifted(scheme: Scheme, by: int) -> Scheme:
    """The scheme with a number added to its first coefficient."""
    ((i, value), *rest), *rows = scheme.u.outputs
    return replace(scheme, u=replace(scheme.u, outputs=(((i, value + by), *rest), *rows)))


@pytest.mark.parametrize(("name", "known"), [("Z/4", True), ("Z/1024", True), ("Z/1", False), ("Z/6", False), ("Z/9", False)])
def test_powers_of_2_are_moduli(name: str, known: bool) -> None:
    assert (parse_ring(name) == Ring(name)) is known
    assert not known or Ring(name).has_zero_divisors


def test_fractions_need_odd_denominators() -> None:
    assert Ring("Z/8").holds(Fraction(1, 3)) and not Ring("Z/8").holds(Fraction(1, 2)) and not Ring("Z/8").holds(Fraction(1, 6))
    assert not Ring("Z/2").has_zero_divisors and not Ring("Z").has_zero_divisors and not Ring("Z/7").has_zero_divisors


@pytest.mark.parametrize("power", [2, 3, 5])
def test_the_equations_are_decided_modulo_the_power(power: int) -> None:
    scheme = over(f"Z/{2**power}")
    assert prove_scheme(shifted(scheme, 2**power)).holds and prove_scheme(shifted(scheme, -(2 ** (power + 1)))).holds
    assert not prove_scheme(shifted(scheme, 2 ** (power - 1))).holds
    assert not prove_scheme(replace(shifted(scheme, 2**power), ring=Ring(f"Z/{2 ** (power + 1)}"))).holds


def test_what_is_wrong_is_told_and_nothing_is_searched(shell: Shell, tmp_path: Path) -> None:
    chosen = random.Random(4).sample(list(mutations(over("Z/4", "winograd"))), 40)
    for number, mutation in enumerate(chosen):
        changed = mutant(over("Z/4", "winograd"), mutation)
        file = tmp_path / "x.bl"
        file.write_text(print_scheme(replace(changed, name="x")))
        status, out, err = shell(str(file))
        holds = prove_scheme(changed).holds
        assert (status == 0) is holds and ("proved" in out) is holds, number
        assert holds or ("error[E301]" in err and "Traceback" not in err)


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(monkeypatch, capsys, "verify")


def test_such_a_scheme_multiplies_modulo_its_power_alone(tmp_path: Path) -> None:
    file = tmp_path / "x.bl"
    file.write_text(print_scheme(shifted(over("Z/8"), 8)))
    generator = np.random.default_rng(8)
    a, b = generator.integers(0, 8, (33, 20)), generator.integers(0, 8, (20, 41))
    for levels in (1, 2):
        assert np.array_equal(bilinear.matmul(a, b, algorithm=str(file), levels=levels, modulus=8), a @ b % 8)
    for options in ({}, {"modulus": 4}, {"modulus": 16}):
        with pytest.raises(BilinearError, match=r"E506|E594"):
            bilinear.matmul(a, b, algorithm=str(file), **options)  # type: ignore[call-overload]


SCHEDULE = """scheme x <1,1,2;2> over Z/4
  M1: 1 | 1 0 | 1 1
  M2: 1 | 3 1 | 0 1
schedule s of x
  stage { B12 -= B11 }
  stage { C11, C12 += A11*B11 ; C12 += A11*B12 }
"""


def test_a_schedule_is_proved_and_what_it_leaves_is_not_decided(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "x.bl"
    file.write_text(SCHEDULE)
    status, out, _ = shell(str(file))
    assert status == 0 and "x <1,1,2;2> over Z/4" in out
    file.write_text(SCHEDULE.replace("B12 -= B11", "B12 += B11"))
    status, _, err = shell(str(file))
    assert status == 1 and "Traceback" not in err and "error[E4" in err


def test_it_is_not_shared_from_other_bases_and_not_scheduled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.bl"
    file.write_text(print_scheme(over("Z/4", "winograd")))
    status, out, err = Shell(monkeypatch, capsys)("share", str(file))
    assert status == 0 and "all" in out and not err
    assert Shell(monkeypatch, capsys)("schedule", str(file), "--in-place")[0] == 1
