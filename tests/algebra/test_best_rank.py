"""Compositions: their ranks against a search that knows nothing of recipes, and what they make against the proof."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import permutations, product

import pytest
from each_case import each

from bilinear.algebra.change_basis import change_basis
from bilinear.algebra.composition import MOST_SIZE, SchemeTree, best_compositions, joined
from bilinear.algebra.maps import bases_of, fold_bases
from bilinear.errors import BilinearError
from bilinear.frontend import load
from bilinear.frontend.algorithms import compose
from bilinear.ir.scheme import Scheme
from bilinear.verify.scheme import prove_scheme

NAMES = ("strassen", "winograd", "hopcroft_kerr", "laderman")
LIBRARY = [(name, load(name).scheme) for name in NAMES]


def ranks_by_exhaustion(bound: int, library: list[Scheme]) -> dict[tuple[int, ...], int]:
    """The least rank of every format up to a bound: any two known formats are combined in every way until nothing improves."""
    every = list(product(range(1, bound + 1), repeat=3))
    rank = {shape: math.prod(shape) for shape in every}
    for scheme in library:
        for shape in permutations((scheme.m, scheme.k, scheme.n)):
            rank[shape] = min(rank.get(shape, scheme.rank), scheme.rank)
    changed = True
    while changed:
        changed = False
        for one, other in product(every, repeat=2):
            made = [(tuple(x * y for x, y in zip(one, other, strict=True)), rank[one] * rank[other])]
            for axis in range(3):
                if all(one[i] == other[i] for i in range(3) if i != axis):
                    made.append(
                        (tuple(x + y if i == axis else x for i, (x, y) in enumerate(zip(one, other, strict=True))), rank[one] + rank[other])
                    )
            for shape, found in made:
                if found < rank.get(shape, 0):
                    rank[shape], changed = found, True
    return {shape: rank[shape] for shape in every}


@pytest.mark.parametrize("names", [(), ("strassen",), ("hopcroft_kerr", "winograd"), NAMES], ids=str)
def test_ranks_are_the_least(names: tuple[str, ...]) -> None:
    library = [(name, scheme) for name, scheme in LIBRARY if name in names]
    best = best_compositions((6, 6, 6), library)
    assert {shape: recipe.rank for shape, recipe in best.items()} == ranks_by_exhaustion(6, [scheme for _, scheme in library])


def test_known_ranks() -> None:
    """Of Hopcroft and Kerr 1971: <2,2,n> takes ceil(7n/2); of Strassen and Laderman with their products."""
    best = best_compositions((9, 9, 9), LIBRARY)
    wanted = {
        (2, 2, 2): 7,
        (2, 2, 3): 11,
        (2, 2, 4): 14,
        (2, 2, 5): 18,
        (3, 3, 2): 15,
        (3, 3, 3): 23,
        (4, 4, 4): 49,
        (6, 6, 6): 161,
        (9, 9, 9): 529,
    }
    assert {shape: best[shape].rank for shape in wanted} == wanted
    assert best[9, 9, 9].expression == "laderman (x) laderman"


def test_every_recipe_makes_what_it_says() -> None:
    for shape, recipe in best_compositions((4, 3, 5), LIBRARY).items():
        scheme = recipe.made()
        assert (scheme.m, scheme.k, scheme.n, scheme.rank) == (*shape, recipe.rank)
        assert prove_scheme(scheme).holds
        assert (scheme.u.additions, scheme.v.additions, scheme.w.additions) == recipe.additions
        assert compose(recipe.expression, "made").scheme.tables == scheme.tables


OPERATORS = ("(x)", "(+m)", "(+k)", "(+n)")


@each("outer", OPERATORS)
@each("inner", OPERATORS)
def test_parentheses_stand_where_they_are_needed(outer: str, inner: str) -> None:
    strassen = LIBRARY[0][1]
    leaf = SchemeTree(2, 2, 2, 7, (5, 5, 8), text="strassen", leaf=strassen)
    part = joined(inner, leaf, fitting(inner, leaf))
    for recipe in (joined(outer, part, fitting(outer, part)), joined(outer, fitting(outer, part), part)):
        found, scheme = compose(recipe.expression, "made").scheme, recipe.made()
        assert (found.format, found.tables, found.additions) == (recipe.format, scheme.tables, sum(recipe.additions))


def fitting(operator: str, other: SchemeTree) -> SchemeTree:
    """A classical scheme that the operator joins to another scheme."""
    m, k, n = (
        (1, 2, 1) if operator == "(x)" else (1 if axis == operator[2] else size for axis, size in zip("mkn", other.shape, strict=True))
    )
    return SchemeTree(m, k, n, m * k * n, (0, 0, m * (k - 1) * n), text=f"<{m},{k},{n}>")


def test_ties_go_to_fewer_additions_then_to_fewer_parts() -> None:
    best = best_compositions((4, 4, 4), LIBRARY)
    assert best[2, 2, 2].text == "winograd"
    assert best[4, 4, 4].expression == "winograd (x) winograd"
    assert best[1, 1, 4].expression == "<1,1,4>"
    assert best[2, 2, 4].expression == "winograd (x) <1,1,2>"
    assert best[2, 3, 3].expression == "rotate(hopcroft_kerr)"
    assert best_compositions((2, 2, 2), [("a", LIBRARY[0][1]), ("b", LIBRARY[0][1])])[2, 2, 2].text == "a"


def test_changes_of_basis_count_as_additions() -> None:
    winograd = load("winograd").scheme
    shear = [[1, 1], [0, 1]]
    changed = change_basis(replace(winograd, bases=bases_of(winograd)), shear, shear, shear)
    assert changed.bases is not None and changed.additions == 15
    assert sum(best_compositions((2, 2, 2), [("changed", changed)])[2, 2, 2].additions) == fold_bases(changed).additions > 15
    assert best_compositions((2, 2, 2), [("changed", changed), *LIBRARY])[2, 2, 2].text == "winograd"


def test_the_tree_and_the_exponent() -> None:
    recipe = best_compositions((2, 2, 3), LIBRARY)[2, 2, 3]
    assert list(recipe.lines()) == ["<2,2,3;11> = (+n)", "  <2,2,2;7> = winograd", "  <2,2,1;4> = <2,2,1>"]
    assert recipe.exponent == pytest.approx(3 * math.log(11) / math.log(12))
    assert [part.text for part in recipe.used()] == ["winograd", "<2,2,1>"]


@pytest.mark.parametrize("shape", [(40, 40, 40), (1, 1, MOST_SIZE + 1)])
def test_formats_that_are_too_many(shape: tuple[int, int, int]) -> None:
    with pytest.raises(BilinearError, match="E648"):
        best_compositions(shape, LIBRARY)


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    best_compositions((2, 2, 1), [], lambda done, of: told.append((done, of)))
    assert told == [(0, 4), (1, 4), (2, 4), (3, 4)]
