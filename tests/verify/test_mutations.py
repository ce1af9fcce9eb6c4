"""Every coefficient of every shipped scheme, and of every small published one, replaced by -1, 0, 1 and 1/2: what the gate must say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import islice

import pytest
from mutants import Mutation, Oracle, expanded, mutant, mutations, verdicts
from published import needs_folder, published

from bilinear.frontend import load
from bilinear.frontend.algorithms import shipped
from bilinear.ir.linear import LinearMap, form
from bilinear.ir.number import generator
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Scheme
from bilinear.verify.scheme import prove_scheme

MOST_POSITIONS = 2500
"""Larger published schemes have too many positions for a test."""


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


LONG = "walk_444_mod2", "dps_444", "smirnov_336", "moosbauer_poole_555", "perminov_435"  # a second or more each
NAMES = [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in sorted(set(shipped()) - {"classical"})]


@pytest.mark.parametrize("name", NAMES)  # one product has too few mutants to count
def test_every_mutant_of_a_shipped_scheme(name: str) -> None:
    scheme = expanded(load(name).scheme)
    assert prove_scheme(scheme).holds
    assert agree(scheme, mutations(scheme))[0] > positions(scheme)
    assert whole_gate_agrees(scheme, islice(mutations(scheme), 0, None, 1 + positions(scheme) // 200)) > min(100, 2 * positions(scheme))


def with_idle_parts(scheme: Scheme) -> Scheme:
    """A correct scheme with three products more: one not used, one without a left factor, one without a right factor."""
    rank = scheme.rank
    u = LinearMap(scheme.u.inputs, (*scheme.u.outputs, ((0, 1),), (), ((1, 1),)))
    v = LinearMap(scheme.v.inputs, (*scheme.v.outputs, ((0, 1),), ((2, 1),), ()))
    rows = [form([*row, (rank + 1, 1), (rank + 2, -1)]) for row in scheme.w.outputs]
    names = (*scheme.products, "idle", "leftless", "rightless")
    return replace(scheme, u=u, v=v, w=LinearMap(rank + 3, tuple(rows)), products=names, places=None)


@pytest.mark.parametrize("ring", ["Z", "Q", "Z/2", "Z/3", "Q[sqrt(3)]", "Q[i]"])
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


def small() -> Iterator[Scheme]:
    """The published schemes that have at most `MOST_POSITIONS` coefficients."""
    for read in published().values():
        scheme = expanded(read())
        if positions(scheme) <= MOST_POSITIONS:
            yield scheme


@needs_folder
def test_every_mutant_of_a_hundred_published_schemes() -> None:
    schemes = mutants = 0
    for scheme in small():
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
