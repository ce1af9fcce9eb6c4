"""The proof of a scheme: the gate against sympy's domains, what is told where it fails, mutants, and residuals by matrix products."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import islice, product

import pytest
from each_case import each
from mutants import Mutation, Oracle, expanded, mutant, mutations, verdicts
from oracle import scheme_computes
from published import needs_folder, published
from verify.brent_by_sympy import Failures, failures_by_algebra

from bilinear.algebra.composition import tensor
from bilinear.analysis import brent
from bilinear.analysis.brent import integers, residual
from bilinear.errors import BilinearError
from bilinear.frontend import load
from bilinear.frontend.algorithms import shipped
from bilinear.ir.linear import Form, LinearMap, form
from bilinear.ir.number import Coefficient, generator
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Bases, Scheme
from bilinear.verify.scheme import prove_scheme

FORMATS = tuple((m, k, n) for m, k, n in product(range(1, 6), repeat=3))


def naive(m: int, k: int, n: int, ring: str = "Q") -> Scheme:
    """The scheme of the definition: one product for each triple of indices."""
    triples = list(product(range(m), range(k), range(n)))
    u: tuple[Form, ...] = tuple(((i * k + p, 1),) for i, p, _ in triples)
    v: tuple[Form, ...] = tuple(((p * n + j, 1),) for _, p, j in triples)
    w = tuple(tuple((r, 1) for r, (i, _, j) in enumerate(triples) if (i, j) == block) for block in product(range(m), range(n)))
    maps = LinearMap(m * k, u), LinearMap(k * n, v), LinearMap(len(triples), w)
    return Scheme("naive", m, k, n, *maps, tuple(f"M{r}" for r in range(len(triples))), Ring(ring))


def failures_by_gate(scheme: Scheme) -> Failures:
    return {(output, pair): difference for output, pair, difference in residual(scheme).differences()}


def corrupted(scheme: Scheme, count: int, seed: int) -> list[Scheme]:
    """A few mutants; over an extension of Q one with a multiple of the generator."""
    generator_ = random.Random(seed)
    plain = expanded(scheme)
    chosen = generator_.sample(list(mutations(plain)), count)
    if scheme.ring.generator:
        chosen.append(replace(chosen[0], new=generator(scheme.ring.generator) * Fraction(1, 2)))
    return [mutant(plain, mutation) for mutation in chosen]


@pytest.mark.sample(1)
@pytest.mark.parametrize("ring", ["Z", "Q", "Z/2", "Z/7"])
def test_the_gate_and_sympy_agree_on_every_format_up_to_5x5x5(ring: str) -> None:
    refused = 0
    formats = FORMATS if ring == "Q" else [dims for dims in FORMATS if max(dims) <= 3]
    for seed, dims in enumerate(formats):
        scheme = naive(*dims, ring)
        assert failures_by_gate(scheme) == failures_by_algebra(scheme) == {}
        for wrong in corrupted(scheme, 1 if ring == "Q" else 2, seed):
            found = failures_by_gate(wrong)
            assert found == failures_by_algebra(wrong)
            refused += bool(found)
    assert refused >= len(formats) // 2


def small(name: str) -> bool:
    """Whether a published scheme is of a format up to 5x5x5, by its table."""
    scheme = published()[name]()
    return max(scheme.m, scheme.k, scheme.n) <= 5


@needs_folder
def test_the_gate_and_sympy_agree_on_every_published_table_up_to_5x5x5() -> None:
    compared = 0
    for seed, name in enumerate(filter(small, published())):
        scheme = published()[name]()
        assert failures_by_gate(scheme) == failures_by_algebra(scheme) == {}, name
        for wrong in corrupted(scheme, 2, seed):
            assert failures_by_gate(wrong) == failures_by_algebra(wrong), name
        compared += 1
    assert compared > 120


def tensor_product(one: Scheme, two: Scheme) -> Scheme:
    """The scheme of two levels: `one` on the blocks, `two` inside each."""

    def merge(f: Form, g: Form, outer: int, inner: int, rows: int) -> Form:
        """Forms over two matrices of `outer` and `inner` columns as one over the matrix of the blocks of both."""

        def place(i: int, j: int) -> int:
            return ((i // outer) * rows + j // inner) * outer * inner + (i % outer) * inner + j % inner

        return form((place(i, j), a * b) for i, a in f for j, b in g)

    u, v = (
        tuple(merge(f, g, outer, inner, rows) for f in one.tables[t] for g in two.tables[t])
        for t, outer, inner, rows in ((0, one.k, two.k, two.m), (1, one.n, two.n, two.k))
    )
    m, k, n = one.m * two.m, one.k * two.k, one.n * two.n
    w: list[Form] = [()] * (m * n)
    for i, f in enumerate(one.tables[2]):
        for j, g in enumerate(two.tables[2]):
            at = ((i // one.n) * two.m + j // two.n) * n + (i % one.n) * two.n + j % two.n
            w[at] = form((p * two.rank + q, a * b) for p, a in f for q, b in g)
    names = tuple(f"M{p}" for p in range(one.rank * two.rank))
    return Scheme("power", m, k, n, LinearMap(m * k, u), LinearMap(k * n, v), LinearMap(len(names), tuple(w)), names)


@pytest.mark.parametrize("name", ["strassen", "winograd"])
def test_three_levels_are_proved_soon(name: str) -> None:
    one = load(name).scheme
    scheme = tensor_product(one, tensor_product(one, one))
    assert scheme.format == "<8,8,8;343>"
    began = time.process_time()
    proof = prove_scheme(scheme)
    assert time.process_time() - began < 10  # a tenth of a second on a quiet core
    assert proof.holds and proof.equations == 64**3
    wrong = mutant(scheme, next(mutations(scheme)))
    assert not prove_scheme(wrong).holds and not scheme_computes(wrong, trials=1)


def test_changes_of_basis_are_part_of_what_is_proved() -> None:
    plain = load("strassen").scheme
    shear = LinearMap(4, (((0, 1),), ((0, 1), (1, 1)), ((2, 1),), ((3, 1),)))
    back = LinearMap(4, (((0, 1),), ((0, -1), (1, 1)), ((2, 1),), ((3, 1),)))
    inner = LinearMap(4, tuple(form((i, c * d) for j, c in row for i, d in back.outputs[j]) for row in plain.u.matrix))
    identity = LinearMap(4, tuple(((i, 1),) for i in range(4)))
    assert prove_scheme(replace(plain, u=inner, bases=Bases(shear, identity, identity))).holds
    assert not prove_scheme(replace(plain, u=inner)).holds
    assert not prove_scheme(replace(plain, u=inner, bases=Bases(back, identity, identity))).holds
    assert not prove_scheme(replace(plain, u=inner, bases=Bases(shear, identity, shear))).holds


def with_coefficient(scheme: Scheme, value: Coefficient) -> Scheme:
    rows = list(scheme.w.outputs)
    rows[0] = form({**dict(rows[0]), 4: value})
    return replace(scheme, w=LinearMap(scheme.rank, tuple(rows)))


def test_a_refusal_names_the_equations_and_the_product() -> None:
    proof = prove_scheme(with_coefficient(load("strassen").scheme, Fraction(-1, 2)))
    assert [str(equation) for equation in proof.failures] == [
        "A11*B22 in C11: found 1/2, needed 0",
        "A12*B22 in C11: found 1/2, needed 0",
    ]
    with pytest.raises(BilinearError) as caught:
        proof.require()
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "E301" and diagnostic.span is not None and diagnostic.span.text.startswith("M5")
    assert diagnostic.message == "strassen is not a multiplication: 2 of 64 Brent equations fail"
    assert not proof.valid_over


def test_a_coefficient_of_another_ring_is_refused_where_it_stands() -> None:
    scheme = replace(with_coefficient(load("strassen").scheme, Fraction(1, 2)), ring=Ring("Z/2"))
    with pytest.raises(BilinearError) as caught:
        prove_scheme(scheme)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "E302" and diagnostic.span is not None and diagnostic.span.text.startswith("M5")
    assert diagnostic.message == "strassen: the coefficient 1/2 in row 1 of W (product M5) is not an element of Z/2"


def test_tables_that_are_too_large_are_refused_at_once() -> None:
    ones: Form = tuple((i, 1) for i in range(4096))
    dense = LinearMap(4096, (ones,))
    scheme = Scheme("dense", 64, 64, 64, dense, dense, LinearMap(1, (((0, 1),),) * 4096), ("M1",))
    with pytest.raises(BilinearError) as caught:
        prove_scheme(scheme)
    assert [d.code for d in caught.value.diagnostics] == ["E303"]


def test_fractions_without_a_reasonable_denominator_are_refused_at_once() -> None:
    primes = [p for p in range(2, 5000) if all(p % q for q in range(2, int(p**0.5) + 1))]
    u = LinearMap(len(primes), (tuple((i, Fraction(1, p)) for i, p in enumerate(primes)),))
    one = LinearMap(1, (((0, 1),),))
    with pytest.raises(BilinearError, match=r"E303.*no common denominator of reasonable length"):
        prove_scheme(Scheme("fractions", 1, len(primes), 1, u, LinearMap(len(primes), (((0, 1),),)), one, ("M1",)))


def test_a_search_for_failures_ends_early_where_there_are_very_many() -> None:
    zero = LinearMap(2500, ((),))
    scheme = Scheme("nothing", 50, 50, 50, zero, zero, LinearMap(1, ((),) * 2500), ("M1",))
    proof = prove_scheme(scheme)
    assert not proof.holds and not proof.complete and len(proof.failures) == 100_000
    with pytest.raises(BilinearError, match=r"at least 100000 of 15625000000 Brent equations fail"):
        proof.require()


MOST_POSITIONS = 2500  # Larger published schemes have too many positions for a test.


def positions(scheme: Scheme) -> int:
    return scheme.rank * (scheme.m * scheme.k + scheme.k * scheme.n + scheme.m * scheme.n)


def agree(scheme: Scheme, chosen: Iterable[Mutation]) -> tuple[int, int]:
    """How many mutants there were, and how many of them still multiply; every verdict is the oracle's."""
    oracle, count, correct = Oracle(scheme), 0, 0
    for mutation, holds in verdicts(scheme, iter(chosen)):
        assert holds == oracle.is_correct(mutation), mutation
        count, correct = count + 1, correct + holds
    return count, correct


def whole_gate_agrees(scheme: Scheme, chosen: Iterable[Mutation]) -> int:
    """The same with a whole proof of each mutant."""
    oracle, count = Oracle(scheme), 0
    for mutation in chosen:
        assert prove_scheme(mutant(scheme, mutation)).holds == oracle.is_correct(mutation), mutation
        count += 1
    return count


LONG = ["walk_444_mod2", "dps_444", "smirnov_336", "moosbauer_poole_555", "perminov_435", "alphaevolve_444", "perminov_5_5_12"]
NAMES = [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in sorted(set(shipped()) - {"classical"})]


@pytest.mark.parametrize("name", NAMES)  # one product has too few mutants to count
def test_mutants_of_a_shipped_scheme(name: str) -> None:
    """All, or some thousands of a large scheme, of every table."""
    scheme = expanded(load(name).scheme)
    assert prove_scheme(scheme).holds
    step = 1 + positions(scheme) // 1000
    assert agree(scheme, islice(mutations(scheme), 0, None, step))[0] > positions(scheme) // step
    assert whole_gate_agrees(scheme, islice(mutations(scheme), 0, None, 1 + positions(scheme) // 60)) > min(50, positions(scheme))


def with_idle_parts(scheme: Scheme) -> Scheme:
    """A correct scheme with three products more: one not used, one without a left factor, one without a right factor."""
    rank = scheme.rank
    u = LinearMap(scheme.u.inputs, (*scheme.u.outputs, ((0, 1),), (), ((1, 1),)))
    v = LinearMap(scheme.v.inputs, (*scheme.v.outputs, ((0, 1),), ((2, 1),), ()))
    rows = [form([*row, (rank + 1, 1), (rank + 2, -1)]) for row in scheme.w.outputs]
    names = (*scheme.products, "idle", "leftless", "rightless")
    return replace(scheme, u=u, v=v, w=LinearMap(rank + 3, tuple(rows)), products=names, places=None)


@each("ring", ["Z", "Q", "Z/2", "Z/3", "Q[sqrt(3)]", "Q[i]"])
def test_a_mutant_is_right_where_a_partner_is_zero(ring: str) -> None:
    scheme = replace(with_idle_parts(expanded(load("strassen").scheme)), ring=Ring(ring))
    count, correct = agree(scheme, mutations(scheme))
    assert 0 < correct < count // 2
    assert whole_gate_agrees(scheme, mutations(scheme)) == count


def test_a_mutant_of_positive_order_is_right_over_lambda() -> None:
    x, y = generator("lambda", 2), generator("lambda", -1)
    plain = expanded(load("strassen").scheme)
    u = LinearMap(4, (*(form((i, c * x) for i, c in row) for row in plain.u.outputs[:3]), *plain.u.outputs[3:]))
    w = LinearMap(7, tuple(form((p, c * y * y if p < 3 else c) for p, c in row) for row in plain.w.outputs))
    v = LinearMap(4, (*plain.v.outputs[:6], form((i, c * x) for i, c in plain.v.outputs[6])))
    w = LinearMap(7, tuple(form((p, c * y * y if p == 6 else c) for p, c in row) for row in w.outputs))
    scheme = replace(plain, u=u, v=v, w=w, ring=Ring("Q[lambda]"))
    count, correct = agree(scheme, mutations(scheme))
    assert 0 < correct < count
    assert whole_gate_agrees(scheme, mutations(scheme)) == count


def few() -> Iterator[Scheme]:
    """The published schemes that have at most `MOST_POSITIONS` coefficients."""
    for read in published().values():
        scheme = expanded(read())
        if positions(scheme) <= MOST_POSITIONS:
            yield scheme


@needs_folder
def test_every_mutant_of_a_hundred_published_schemes() -> None:
    schemes = mutants = 0
    for scheme in few():
        mutants += agree(scheme, mutations(scheme))[0]
        whole_gate_agrees(scheme, islice(mutations(scheme), schemes % 97, None, 997))
        schemes += 1
    assert schemes >= 100 and mutants > 300_000


def test_the_oracle_itself_is_right_by_plain_arithmetic() -> None:
    scheme = with_idle_parts(expanded(load("strassen").scheme))
    oracle = Oracle(scheme)
    for mutation in islice(mutations(scheme), 0, None, 7):
        assert oracle.is_correct(mutation) == multiplies(mutant(scheme, mutation)), mutation


def multiplies(scheme: Scheme) -> bool:
    """Whether the equations hold over Q, by plain loops over all of them."""
    u, v, w = (tuple(dict(row) for row in table) for table in scheme.tables)
    zero = Fraction(0)
    for a in range(4):
        for b in range(4):
            for c in range(4):
                found = sum((w[c].get(p, 0) * u[p].get(a, 0) * v[p].get(b, 0) for p in range(scheme.rank)), zero)
                if found != (a % 2 == b // 2 and a // 2 == c // 2 and b % 2 == c % 2):
                    return False
    return True


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
