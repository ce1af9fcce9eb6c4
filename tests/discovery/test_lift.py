"""Lifting: what is lifted is proved over its ring, and what cannot be lifted is refused with equations that contradict each other."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from each_case import each
from hypothesis import given
from hypothesis import strategies as st
from published import FOLDER

from bilinear.discovery.lift import EquationsMod2, _Attempt, _Begin, lift, packed, reconstructed, unpacked
from bilinear.discovery.walker import coefficients_of, residues_of, scheme_of
from bilinear.errors import BilinearError
from bilinear.frontend.algorithms import load_shipped
from bilinear.interchange.importing import Imported, import_file
from bilinear.ir.number import Coefficient
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Scheme
from bilinear.verify.scheme import prove_scheme


def modulo_2(name: str) -> Scheme:
    """A shipped scheme, of which only the residues are left."""
    scheme = load_shipped(name).scheme
    return scheme_of(scheme, [table.tolist() for table in residues_of(scheme, "E743")], Ring("Z/2"))


@each("name", ["strassen", "winograd", "hopcroft_kerr", "laderman", "perminov_434", "moosbauer_poole_555"])
def test_residues_of_schemes_over_z_are_lifted_to_z(name: str) -> None:
    scheme = modulo_2(name)
    assert prove_scheme(scheme).holds and not prove_scheme(replace(scheme, ring=Ring("Z"))).holds
    found = lift(scheme)
    assert found.scheme.ring == Ring("Z") and found.scheme.format == scheme.format and prove_scheme(found.scheme).holds
    for rows, others in zip(coefficients_of(found.scheme), residues_of(scheme, "E743"), strict=True):
        assert (np.array(rows) % 2 == others).all()
    assert found.equations == np.prod([len(rows[0]) for rows in coefficients_of(scheme)]) and found.rank <= found.unknowns


@pytest.mark.parametrize("power", [2, 3, 20, 48])
def test_a_scheme_is_lifted_to_a_power_of_2(power: int) -> None:
    scheme = modulo_2("perminov_434")
    found = lift(scheme, over=f"Z/{2**power}")
    assert found.scheme.ring.modulus == 2**power and found.power == power and prove_scheme(found.scheme).holds
    for rows, others in zip(coefficients_of(found.scheme), residues_of(scheme, "E743"), strict=True):
        assert (np.array(rows) % 2 == others).all()


@each("over", ["Z/2", "Z/6", "Z/7", "Z/0", f"Z/{2**49}", "Z/99999999999999999999"])
def test_what_is_no_power_of_2_is_not_lifted_to(over: str) -> None:
    with pytest.raises(BilinearError, match="E740"):
        lift(modulo_2("strassen"), over=over)


def test_a_scheme_over_z2_alone_does_not_come_to_z4() -> None:
    with pytest.raises(BilinearError, match="E744"):
        lift(load_shipped("walk_444_mod2").scheme, over="Z/4")


def test_a_scheme_that_holds_over_z_as_it_is_stays_as_it_is() -> None:
    classical = modulo_2("naive2x2")
    found = lift(classical)
    assert found.power == 1 and found.scheme.tables == classical.tables


def test_fractions_are_read_where_there_are_no_integers() -> None:
    """Strassen's scheme with U scaled by 3/5 and V by 5/3, known modulo 2^48 alone."""
    tables = coefficients_of(load_shipped("strassen").scheme)
    scales = (Fraction(3, 5), Fraction(5, 3), Fraction(1))
    values = [[scale * value for value in row] for table, scale in zip(tables, scales, strict=True) for row in table]
    rows = [Fraction(str(value)) for value in _by_products(values)]
    attempt = _Attempt(_Begin(modulo_2("strassen")), "Q", None)
    attempt.values[:] = [value.numerator * pow(value.denominator, -1, 2**48) % 2**48 for value in rows]
    found = attempt._rationals()
    assert found is not None and found.ring == Ring("Q") and prove_scheme(found).holds
    assert found.u.outputs[0] == ((0, Fraction(3, 5)), (3, Fraction(3, 5)))
    attempt.over = "Z"
    assert attempt._rationals() is None


def _by_products(rows: list[list[Coefficient]]) -> list[Coefficient]:
    """Rows of U, then of V, then of W, as the unknowns of a lift are numbered: product by product."""
    rank = len(rows) // 3
    return [value for p in range(rank) for table in range(3) for value in rows[table * rank + p]]


@pytest.mark.parametrize("seed", [1, 2])
def test_further_tries_choose_otherwise_and_are_proved_too(seed: int) -> None:
    begin = _Begin(modulo_2("laderman"))
    scheme, power = _Attempt(begin, "Q", np.random.default_rng(seed)).run()
    assert prove_scheme(scheme).holds and power >= 2


def test_a_scheme_over_z2_alone_is_refused_by_name() -> None:
    """AlphaTensor's <4,4,4;47>; the equations that the message counts are checked by hand, from the residues alone."""
    path = FOLDER / "alphatensor/algorithms/factorizations_f2.npz"
    if not path.exists():
        pytest.skip("the published schemes are not there")
    imported = import_file(path, entry="4,4,4")
    assert isinstance(imported, Imported)
    with pytest.raises(BilinearError) as refused:
        lift(imported.scheme)
    (diagnostic,) = refused.value.diagnostics
    assert diagnostic.code == "E744"
    assert "does not lift from Z/2 to Z/4: the linear system has no solution" in diagnostic.message
    assert re.fullmatch(r"these \d+ add up to 0 = 1: A\d\d\*B\d\d in C\d\d, .* and \d+ more", diagnostic.notes[0])
    assert diagnostic.notes[1] == "so it is the residue of no scheme over Z/4, over Z, or over Q with odd denominators"


def test_the_named_equations_contradict_each_other() -> None:
    """A map that is not a multiplication keeps this small: 1 = u*v*w modulo 2, and again, so that the sum of both is 0 = 1 modulo 4."""
    columns = packed(np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]], bool))
    system = EquationsMod2(columns, 3)
    assert system.rank == 2
    assert system.solve(np.array([True, False, False])) in ((1, 0), (0, 1))
    assert list(system.solve(np.array([True, True, True]))) == [True, False, True]


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_solutions_solve_and_contradictions_contradict(equations: int, unknowns: int, seed: int) -> None:
    """Against all right-hand sides that can be reached, by trying all unknowns."""
    random = np.random.default_rng(seed)
    matrix = random.integers(0, 2, (equations, unknowns)).astype(bool)
    reached = {tuple(matrix @ np.array(x, int) % 2) for x in product((0, 1), repeat=unknowns)}
    system = EquationsMod2(packed(np.ascontiguousarray(matrix.T)), equations)
    assert len(reached) == 2**system.rank
    for right in product((False, True), repeat=equations):
        found = system.solve(np.array(right))
        if isinstance(found, tuple):
            assert tuple(map(int, right)) not in reached
            rows = list(found)
            assert not (matrix[rows].sum(axis=0) % 2).any() and sum(right[row] for row in rows) % 2 == 1
        else:
            assert (matrix @ found.astype(int) % 2 == np.array(right)).all()


@given(st.integers(1, 200), st.integers(0, 2**32 - 1))
def test_bits_are_packed_and_unpacked(count: int, seed: int) -> None:
    bits = np.random.default_rng(seed).integers(0, 2, (3, count)).astype(bool)
    assert (unpacked(packed(bits), count) == bits).all()


@given(st.integers(-100, 100), st.integers(0, 49))
def test_fractions_are_reconstructed(numerator: int, half: int) -> None:
    denominator = 2 * half + 1
    modulus = 2**20
    residue = numerator * pow(denominator, -1, modulus) % modulus
    assert reconstructed(residue, modulus, 100) == Fraction(numerator, denominator)


def test_what_is_no_small_fraction_is_not_made_up() -> None:
    assert sum(reconstructed(x, 2**20, 100) is not None for x in range(0, 2**20, 997)) < 30


@pytest.mark.parametrize(("name", "note"), [("dps_444", "one is 1/2"), ("bini", "one is "), ("accurate_sqrt3", "one is ")])
def test_coefficients_without_residues_are_refused(name: str, note: str) -> None:
    with pytest.raises(BilinearError) as refused:
        lift(load_shipped(name).scheme)
    (diagnostic,) = refused.value.diagnostics
    assert diagnostic.code == "E743" and note in diagnostic.notes[0] and diagnostic.hints


def test_what_does_not_hold_over_z2_is_refused() -> None:
    scheme = modulo_2("strassen")
    wrong = replace(scheme, u=replace(scheme.u, outputs=(scheme.u.outputs[1], *scheme.u.outputs[1:])), places=None)
    with pytest.raises(BilinearError, match="E301"):
        lift(wrong)


def test_a_system_that_is_too_large_is_refused_before_it_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bilinear.discovery.lift.MOST_BITS", 1000)
    with pytest.raises(BilinearError, match=r"E746.*64 equations for 84 unknowns"):
        lift(modulo_2("strassen"))


def test_what_is_read_is_named_in_the_result(tmp_path: Path) -> None:
    found = lift(modulo_2("strassen"), seed=3)
    assert found.scheme.name == "strassen_lifted" and found.scheme.citation.endswith("Lifted from Z/2 by `bilinear lift`, with --seed 3.")


def test_the_linear_system_is_the_change_of_the_equations() -> None:
    """Twice a coefficient more changes what the equations lack by twice its column, modulo 4."""
    begin = _Begin(modulo_2("hopcroft_kerr"))
    values = np.concatenate(begin.factors, axis=1).reshape(-1)
    columns = unpacked(begin.jacobian(), begin.equations)
    for unknown in range(0, len(values), 7):
        more = values.copy()
        more[unknown] += np.uint64(2)
        assert ((begin.wrong(values) - begin.wrong(more)) % 4 == 2 * columns[unknown].astype(np.uint64)).all()
