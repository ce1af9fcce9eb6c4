"""Equal up to the symmetries of the tensor: schemes turned at random, theorems of the literature, and ranks that numpy finds."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, permutations

import numpy as np
import pytest
from shell import Shell

from bilinear.algebra import composition
from bilinear.algebra.change_basis import Matrix, change_basis, equivalent
from bilinear.frontend import load
from bilinear.ir.linear import LinearMap, form, transposed_rows
from bilinear.ir.number import to_float
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Scheme
from bilinear.verify.scheme import prove_scheme

SEVEN = "strassen", "winograd", "karstadt_schwartz", "accurate_halves", "accurate_sqrt3"
TWENTY_THREE = "laderman", "smirnov_333", "perminov_333"


def unimodular(rng: random.Random, size: int) -> Matrix:
    rows = [[int(i == j) for j in range(size)] for i in range(size)]
    for _ in range(2 * size):
        i, j = rng.randrange(size), rng.randrange(size)
        if i != j:
            rows[i] = [x + rng.choice((1, -1)) * y for x, y in zip(rows[i], rows[j], strict=True)]
    return rows


def turned(scheme: Scheme, seed: int) -> Scheme:
    """The scheme rotated or transposed, in other bases, with its products in another order and scaled; proved again."""
    rng = random.Random(seed)
    found = rng.choice(composition.permutations(scheme))
    found = change_basis(found, *(unimodular(rng, size) for size in (found.m, found.k, found.n)))
    u, v, w = found.tables
    order = rng.sample(range(found.rank), found.rank)
    halves = [rng.choice((1, -1, 2, -3)) for _ in order]
    left = tuple(form((i, c * Fraction(halves[p], 2)) for i, c in u[p]) for p in order)
    columns = transposed_rows(w, found.rank)
    outputs = transposed_rows([tuple((i, c * Fraction(2, halves[p])) for i, c in columns[p]) for p in order], len(w))
    made = replace(
        found,
        u=LinearMap(found.m * found.k, left),
        v=LinearMap(found.k * found.n, tuple(v[p] for p in order)),
        w=LinearMap(found.rank, tuple(form(row) for row in outputs)),
        bases=None,
        places=None,
    )
    assert prove_scheme(made).holds and made.tables != scheme.tables
    return made


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", ["strassen", "laderman", "winograd_223", "hopcroft_kerr", "smirnov_334", "dps_444"])
@pytest.mark.parametrize("seed", range(3))
def test_a_scheme_turned_at_random_is_the_same(name: str, seed: int) -> None:
    scheme = load(name).scheme
    assert equivalent(scheme, turned(scheme, seed)) is True


def test_all_schemes_of_seven_products_are_the_same() -> None:
    """H. F. de Groote, On varieties of optimal algorithms II, Theoret. Comput. Sci. 7 (1978), 127-148."""
    assert all(equivalent(load(one).scheme, load(other).scheme) for one, other in combinations(SEVEN, 2))


def ranks(scheme: Scheme) -> list[Counter[tuple[int, ...]]]:
    """How often a product has factors of these ranks, for each order of the three."""
    u, v, w = scheme.tables
    shapes = (scheme.m, scheme.k), (scheme.k, scheme.n), (scheme.m, scheme.n)
    found = []
    for table, shape in zip((u, v, transposed_rows(w, scheme.rank)), shapes, strict=True):
        dense = np.zeros((scheme.rank, shape[0] * shape[1]))
        for number, row in enumerate(table):
            for index, value in row:
                dense[number, index] = to_float(value)
        found.append(np.linalg.matrix_rank(dense.reshape(scheme.rank, *shape)))
    return [Counter(zip(*(map(int, found[i]) for i in order), strict=True)) for order in permutations(range(3))]


@pytest.mark.parametrize(("one", "other"), list(combinations(TWENTY_THREE, 2)))
def test_schemes_whose_factors_have_other_ranks_are_not_the_same(one: str, other: str) -> None:
    mine, theirs = load(one).scheme, load(other).scheme
    assert ranks(mine)[0] not in ranks(theirs)
    assert equivalent(mine, theirs) is equivalent(theirs, turned(mine, 5)) is False


def points(*matrices: list[int]) -> Scheme:
    """Left factors that no rank and trace tells apart: V and W are one nilpotent matrix."""
    rows, one = tuple(form(enumerate(matrix)) for matrix in matrices), ((1, 1),)
    w = ((), (), tuple((i, 1) for i in range(len(rows))), ())
    names = tuple(f"M{i + 1}" for i in range(len(rows)))
    return Scheme("points", 2, 2, 2, LinearMap(4, rows), LinearMap(4, (one,) * len(rows)), LinearMap(len(rows), w), names)


@pytest.mark.slow
def test_where_invariants_do_not_tell_relations_decide_and_the_limit_is_told() -> None:
    """Six points of projective 3-space: five can be moved to any other five, and the sixth decides."""
    basis = [[1, 0, 0, 1], [0, 1, 1, 0], [1, 1, -1, 1], [1, 2, 3, -1]]
    fifth = [sum(column) for column in zip(*basis, strict=True)]

    def with_sixth(*weights: int) -> Scheme:
        return points(*basis, fifth, [sum(w * x for w, x in zip(weights, column, strict=True)) for column in zip(*basis, strict=True)])

    one = with_sixth(1, 2, 3, 5)
    assert equivalent(one, with_sixth(5, 3, 1, 2)) is True
    assert equivalent(one, with_sixth(1, 2, 3, 7), steps=5000) is False
    assert equivalent(one, with_sixth(1, 2, 3, 7), steps=20) is None


def test_what_cannot_be_compared_is_undecided() -> None:
    strassen, modulo_2 = load("strassen").scheme, load("walk_444_mod2").scheme
    assert equivalent(strassen, replace(strassen, ring=Ring("Z/2"))) is None
    assert equivalent(load("bini").scheme, load("bini").scheme) is None
    assert equivalent(modulo_2, modulo_2) is True and equivalent(modulo_2, strassen) is False


def test_verify_names_the_shipped_schemes_that_are_the_same(shell: Shell) -> None:
    def told(scheme: Scheme) -> str:
        from bilinear.frontend.printer import print_scheme

        path = f"{scheme.name}.bl"
        with open(path, "w", encoding="utf-8") as file:
            file.write(print_scheme(scheme))
        same: str = shell.json("verify", path)["same_as"]
        return same

    assert told(replace(turned(load("laderman").scheme, 7), name="mine")) == "laderman"
    assert told(replace(composition.classical(2, 3, 2), name="mine")) == "no shipped scheme of this format and rank: it is new here"
    assert shell.json("verify", "laderman")["same_as"] == "no other shipped scheme"
    assert shell.json("verify", "winograd")["same_as"] == "accurate_halves, accurate_sqrt3, karstadt_schwartz, strassen"
    assert shell.json("verify", "winograd")["known"].startswith("best known 7, here 7 (V. Strassen")
