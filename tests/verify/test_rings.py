"""Over which rings a scheme holds, up to which power of lambda, also where numbers have no inverse; and schedules over them."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from mutants import expanded, mutant, mutations
from published import FOLDER, needs_folder
from shell import Shell

import bilinear
from bilinear.errors import BilinearError
from bilinear.frontend import load, parse_source
from bilinear.frontend.printer import print_scheme
from bilinear.interchange.tables import read_fast_matmul
from bilinear.ir.linear import LinearMap, form
from bilinear.ir.number import Coefficient, generator, rational
from bilinear.ir.ring import Ring, parse_ring
from bilinear.ir.schedule import AnySchedule
from bilinear.ir.scheme import Scheme
from bilinear.passes.order_products import mark_first_writes
from bilinear.passes.scheme_to_schedule import scheme_to_schedule
from bilinear.source import Source
from bilinear.verify.facts import LINEAR, LOST, RESTORED
from bilinear.verify.rings import RingFacts, factors
from bilinear.verify.schedule import ScheduleProof, prove_schedule
from bilinear.verify.scheme import prove_scheme


def ring_facts(scheme: Scheme) -> RingFacts:
    facts = prove_scheme(scheme).facts
    assert facts is not None
    return facts


def scaled(scheme: Scheme, factors_: tuple[Coefficient, Coefficient, Coefficient]) -> Scheme:
    """The tables multiplied by three numbers."""
    maps = [
        LinearMap(t.inputs, tuple(form((i, c * f) for i, c in row) for row in t.matrix))
        for t, f in zip((scheme.u, scheme.v, scheme.w), factors_, strict=True)
    ]
    return replace(scheme, u=maps[0], v=maps[1], w=maps[2])


def without_signs(scheme: Scheme, modulus: int) -> Scheme:
    """The coefficients as residues 0, 1, ..., p - 1."""
    maps = [
        LinearMap(t.inputs, tuple(form((i, rational(c).numerator % modulus) for i, c in row) for row in t.matrix))
        for t in (scheme.u, scheme.v, scheme.w)
    ]
    return replace(scheme, u=maps[0], v=maps[1], w=maps[2])


def multiplies_modulo(scheme: Scheme, modulus: int) -> bool:
    """Whether the equations hold modulo p, by plain loops over all of them."""
    u, v, w = (tuple({i: rational(c).numerator for i, c in row} for row in table) for table in scheme.tables)
    m, k, n = scheme.m, scheme.k, scheme.n
    for a, b, c in product(range(m * k), range(k * n), range(m * n)):
        found = sum(w[c].get(p, 0) * u[p].get(a, 0) * v[p].get(b, 0) for p in range(scheme.rank))
        needed = a % k == b // n and a // k == c // n and b % n == c % n
        if (found - needed) % modulus:
            return False
    return True


@pytest.mark.parametrize("modulus", [2, 3, 5])
def test_residues_hold_over_their_field_only(modulus: int) -> None:
    plain = without_signs(load("strassen").scheme, modulus)
    over = prove_scheme(replace(plain, ring=Ring(f"Z/{modulus}")))
    assert multiplies_modulo(plain, modulus) and over.holds
    assert over.valid_over == (f"Z/{modulus}",) and over.ring == f"Z/{modulus}"
    facts = ring_facts(plain)
    assert facts == RingFacts(Ring(), modulus, 1) and facts.fails_over == ("Z", "Q")
    assert not facts.for_reals and not facts.for_complex
    assert str(facts) == f"holds over Z/{modulus}, not over Z, Q"
    for other in (2, 3, 5, 7):
        assert prove_scheme(replace(plain, ring=Ring(f"Z/{other}"))).holds == multiplies_modulo(plain, other) == (other == modulus)


def test_a_refusal_over_q_says_over_which_field_the_scheme_would_hold() -> None:
    with pytest.raises(BilinearError) as caught:
        prove_scheme(without_signs(load("strassen").scheme, 2)).require()
    (diagnostic,) = caught.value.diagnostics
    assert "as it is written it holds over Z/2" in diagnostic.notes
    assert "if that is the ring that is meant, say so in the header: over Z/2" in diagnostic.hints


def test_a_refusal_over_a_field_is_in_residues() -> None:
    half = prove_scheme(replace(scaled(load("strassen").scheme, (Fraction(1, 2), 1, 1)), ring=Ring("Z/5")))
    assert len(half.failures) == 8 and {(e.found, e.needed) for e in half.failures} == {(3, 1)}
    none = prove_scheme(replace(scaled(load("strassen").scheme, (0, 1, 1)), ring=Ring("Z/2")))
    assert len(none.failures) == 8 and {(e.found, e.needed) for e in none.failures} == {(0, 1)}
    plain = without_signs(load("strassen").scheme, 3)
    proof = prove_scheme(replace(plain, ring=Ring("Z/2")))
    assert {equation.found for equation in proof.failures} <= {0, 1} and not proof.holds
    with pytest.raises(BilinearError, match="strassen is not a multiplication over Z/2: "):
        proof.require()


def test_integers_hold_everywhere_also_where_less_is_declared() -> None:
    for ring in ("Z", "Q", "Z/2", "Z/5"):
        facts = ring_facts(replace(load("strassen").scheme, ring=Ring(ring)))
        assert facts.valid_over == ("every ring",) and not facts.fails_over
        assert facts.for_reals and facts.for_complex


def test_fractions_hold_where_their_denominators_are_invertible() -> None:
    scheme = scaled(load("strassen").scheme, (Fraction(1, 12), Fraction(3), Fraction(4)))
    facts = ring_facts(scheme)
    assert facts.valid_over == ("Z[1/6]", "every ring in which 6 is invertible")
    assert facts.fails_over == ("Z/2", "Z/3")
    assert facts.for_reals
    for p in (5, 7, 11):
        assert prove_scheme(replace(scheme, ring=Ring(f"Z/{p}"))).holds
    for p in (2, 3):
        with pytest.raises(BilinearError, match="is not an element of"):
            prove_scheme(replace(scheme, ring=Ring(f"Z/{p}")))


def test_a_fraction_may_be_right_in_one_field_only() -> None:
    scheme = scaled(load("strassen").scheme, (Fraction(1, 2), 1, -1))
    assert prove_scheme(replace(scheme, ring=Ring("Z/3"))).valid_over == ("Z/3",)
    assert not prove_scheme(scheme).holds and not prove_scheme(replace(scheme, ring=Ring("Z/5"))).holds
    twice = scaled(load("strassen").scheme, (Fraction(1, 2), 1, 4))
    assert not prove_scheme(twice).valid_over  # 2AB - AB is 0 nowhere, and 1/2 is not a number of Z/2


@pytest.mark.parametrize(
    ("root", "square", "real"), [("sqrt(3)", 3, True), ("i", -1, False), ("sqrt(-2)", -2, False), ("sqrt(5)", 5, True)]
)
def test_roots_are_multiplied_exactly(root: str, square: int, real: bool) -> None:
    x = generator(root)
    scheme = replace(scaled(load("strassen").scheme, (x, x, Fraction(1, square))), ring=Ring(f"Q[{root}]"))
    proof = prove_scheme(scheme)
    assert proof.holds and proof.ring == f"Q[{root}]" and proof.valid_over[0] == f"Q[{root}]"
    assert ("R" in proof.valid_over) == real and "C" in proof.valid_over
    assert proof.facts is not None and proof.facts.for_reals == real and proof.facts.for_complex
    wrong = replace(scaled(load("strassen").scheme, (x, x, Fraction(1, 4 * square))), ring=Ring(f"Q[{root}]"))
    assert not prove_scheme(wrong).holds
    one_root = prove_scheme(replace(scaled(load("strassen").scheme, (x, 1, 1)), ring=Ring(f"Q[{root}]")))
    assert one_root.failures[0].found == x and one_root.failures[0].needed == 1
    with pytest.raises(BilinearError, match="E302"):
        prove_scheme(replace(scheme, ring=Ring()))


def bini(power: int) -> Scheme:
    """A11*B11 + A12*B21 by two products, up to lambda^power * A12*B11."""
    x, y = generator("lambda", power), generator("lambda", -power)
    u = LinearMap(2, (((0, 1), (1, x)), ((0, 1),)))
    v = LinearMap(2, (((0, x), (1, 1)), ((1, 1),)))
    w = LinearMap(2, (((0, y), (1, -y)),))
    return Scheme("bini", 1, 2, 1, u, v, w, ("M1", "M2"), Ring("Q[lambda]"))


@pytest.mark.parametrize("power", [1, 2, 3])
def test_the_order_and_the_degree_of_an_approximate_scheme(power: int) -> None:
    proof = prove_scheme(bini(power))
    assert proof.holds and (proof.order, proof.degree) == (power, power)
    assert proof.valid_over == (f"Q[lambda] up to O(lambda^{power})",)
    assert proof.facts is not None and not proof.facts.for_complex


def test_terms_of_order_zero_and_below_make_an_approximate_scheme_fail() -> None:
    right = bini(1)
    shifted = scaled(right, (1, 1, generator("lambda", -1)))
    proof = prove_scheme(shifted)
    assert not proof.holds and not proof.valid_over and proof.order is None
    assert [str(equation) for equation in proof.failures] == [
        "A11*B11 in C11: found lambda^-1, needed 1",
        "A12*B11 in C11: found 1, needed 0",
        "A12*B21 in C11: found lambda^-1, needed 1",
    ]
    late = scaled(right, (1, 1, generator("lambda", 1)))
    assert [str(equation.found) for equation in prove_scheme(late).failures] == ["0", "0"]


def test_an_exact_scheme_over_lambda_has_no_order() -> None:
    scheme = scaled(load("strassen").scheme, (generator("lambda"), 1, generator("lambda", -1)))
    proof = prove_scheme(replace(scheme, ring=Ring("Q[lambda]")))
    assert proof.holds and proof.order is None and proof.degree == 0 and proof.valid_over == ("Q[lambda]",)


@needs_folder
@pytest.mark.parametrize(("name", "sigma", "phi"), [("224-13-91", 1, 2), ("225-16-124", 1, 3), ("272-22-198", 1, 5), ("444-46-352", 1, 3)])
def test_order_and_degree_are_those_that_were_published(name: str, sigma: int, phi: int) -> None:
    path = FOLDER / "fast-matmul" / "algorithms" / f"smirnov{name}-approx"
    assert f"error params: sigma = {sigma}, phi = {phi}" in path.read_text(encoding="utf-8")
    proof = prove_scheme(read_fast_matmul(path))
    assert (proof.order, proof.degree) == (sigma, phi)


def test_factors_are_found_or_left_as_they_are() -> None:
    big = 1_000_000_007 * 1_000_000_009
    assert factors(1) == () and factors(360) == (2, 3, 5) and factors(2 * big) == (2, big) and factors(97) == (97,)


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


@pytest.mark.slow
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


@pytest.mark.slow
def test_it_is_not_shared_from_other_bases_and_not_scheduled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.bl"
    file.write_text(print_scheme(over("Z/4", "winograd")))
    status, out, err = Shell(monkeypatch, capsys)("share", str(file))
    assert status == 0 and "all" in out and not err
    assert Shell(monkeypatch, capsys)("schedule", str(file), "--in-place")[0] == 1


TABLES = {
    "Z/2": "  M1: 1 | 1 0 | 1 1\n  M2: 1 | 1 1 | 0 1\n",
    "Z/7": "  M1: 1/2 | 3 0 | 3 0\n  M2: 2 | 0 1 | 0 1/2\n",
    "Q[sqrt(3)]": "  M1: sqrt(3) | 1 0 | sqrt(3)/3 0\n  M2: 1-sqrt(3) | 0 1 | 0 -1/2-sqrt(3)/2\n",
    "Q[i]": "  M1: i | 1 0 | -i 0\n  M2: 1+i | 0 1 | 0 1/2-i/2\n",
    "Q[lambda]": "  M1: lambda | 1 lambda | lambda^-1 0\n  M2: 1 | 0 1-lambda | 0 1\n",
}


def scheme_over(ring: str) -> Scheme:
    return parse_source(Source("x.bl", f"scheme x <1,1,2;2> over {ring}\n{TABLES[ring]}")).schemes[0]


def prove(schedule: AnySchedule, scheme: Scheme) -> ScheduleProof:
    return prove_schedule(mark_first_writes(schedule), scheme)


@pytest.mark.parametrize("ring", TABLES)
def test_the_plain_schedule_of_a_scheme(ring: str) -> None:
    scheme = scheme_over(ring)
    proof = prove(scheme_to_schedule(scheme), scheme)
    assert proof.holds, proof.failures
    assert [product for stage in proof.stages for product in stage.products] == ["M1", "M2"]


def written(ring: str, body: str, head: str = "") -> tuple[AnySchedule, Scheme]:
    module = parse_source(Source("x.bl", f"scheme x <1,1,2;2> over {ring}\n{TABLES[ring]}schedule s of x{head}\n{body}"))
    return module.schedules[0], module.schemes[0]


@pytest.mark.parametrize(
    ("ring", "body"),
    [
        ("Z/2", "  stage { B12 -= B11 }\n  stage { C11, -C12 += A11*B11 ; C12 += A11*B12 }\n"),
        ("Z/7", "  stage { B12 = 15 B12 ; B11 = 1/2 B11 }\n  stage { -5 C11 += A11*B11 ; C12 += A11*B12 }\n"),
        ("Q[sqrt(3)]", "  stage { B12 = [sqrt(3)] B12 }\n  stage { C11 += A11*B11 ; [sqrt(3)/3] C12 += A11*B12 }\n"),
        ("Q[i]", "  stage { B12 = [1+i] B12 ; B11 = [i] B11 }\n  stage { -[i] C11 += A11*B11 ; [1/2-i/2] C12 += A11*B12 }\n"),
    ],
)
def test_schedules_that_are_right_in_their_ring(ring: str, body: str) -> None:
    schedule, scheme = written(ring, body)
    right = prove(schedule, scheme)
    wrong = prove(written(ring, body.replace("A11*B12", "A11*B11"))[0], scheme)
    assert right.holds, right.failures
    assert "E406" in {d.code for d in wrong.failures}


def test_signs_do_not_matter_in_characteristic_two() -> None:
    body = "  stage { B12 += B11 }\n  stage { C11, C12 += A11*B11 ; C12 += A11*B12 }\n  restore stage { B12 += B11 }\n"
    schedule, scheme = written("Z/2", body, ": in-place, restores A B")
    assert prove(schedule, scheme).holds
    over_z, plain = written("Z/7", body, ": in-place, restores A B")
    assert {d.code for d in prove(over_z, plain).failures} >= {"E406", "E407"}


def test_recovery_in_a_ring() -> None:
    body = "  stage { C11 = A11*B11 }\n  stage { C12 = A11*B12 }\n"
    for ring, step, verdict in (
        ("Z/2", "B11 = 3 B11 + 2 B12", RESTORED),
        ("Z/7", "B11 = 7 B11 + 2 B12", LOST),
        ("Z/7", "B11 = 3 B11", LINEAR),
        ("Q[sqrt(3)]", "B11 = [1-sqrt(3)] B11", LINEAR),
        ("Q[i]", "B11 += [i] B12 ; B12 -= [i] B11", LOST),
    ):
        schedule, scheme = written(ring, f"{body}  stage {{ {step} }}\n", ": C = A*B")
        fate = prove(schedule, scheme).fates[1]
        assert fate.verdict == verdict
        if verdict == LINEAR:
            again, _ = written(ring, f"{body}  stage {{ {step} }}\n  stage {{ {' ; '.join(fate.restoring)} }}\n", ": C = A*B, restores B")
            assert prove(again, scheme).holds
        if verdict == LOST:
            assert len(fate.counterexample) == 3 and fate.lost_dimensions == 1
