"""The walk over Z/2: every move against its definition in Python's integers, and short searches that must succeed."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bilinear.algebra.composition import classical
from bilinear.discovery import flip_search
from bilinear.discovery.flip_search import Found
from bilinear.discovery.lift import lift
from bilinear.discovery.walker import BEST, FIELD, PAIRS, RANK, BinaryWalker, SearchTask, binary_walker, classical_masks
from bilinear.errors import BilinearError
from bilinear.frontend.algorithms import load_shipped
from bilinear.ir.linear import LinearMap
from bilinear.ir.scheme import Scheme
from bilinear.verify.scheme import prove_scheme

Products = tuple[tuple[int, ...], ...]


@pytest.fixture(scope="module")
def kernels() -> Any:
    return flip_search.kernels("binary_kernels")


def products(walker: BinaryWalker) -> Products:
    rank = int(walker.tally[RANK])
    return tuple(tuple(int(walker.factors[mode, p]) for mode in range(3)) for p in range(rank))


def tensor(terms: Products) -> set[tuple[int, int, int]]:
    """The places where the sum of the products is odd."""
    odd: set[tuple[int, int, int]] = set()
    for a, b, c in terms:
        odd ^= {(i, j, k) for i in _bits(a) for j in _bits(b) for k in _bits(c)}
    return odd


def _bits(mask: int) -> list[int]:
    return [i for i in range(64) if mask >> i & 1]


def multiplication(m: int, k: int, n: int) -> set[tuple[int, int, int]]:
    return {(i * k + p, p * n + j, i * n + j) for i in range(m) for p in range(k) for j in range(n)}


def walker_of(terms: Products) -> BinaryWalker:
    masks = np.zeros((3, 2, len(terms)), np.uint64)
    masks[:, 0] = np.array(terms, np.uint64).T
    return binary_walker(masks, 0, 0)


def reducible(terms: Products) -> bool:
    """True if factors of products that share another factor are dependent: some of them add up to zero."""
    for mode, other in permutations(range(3), 2):
        for size in range(1, len(terms) + 1):
            for chosen in combinations(terms, size):
                total = 0
                for product in chosen:
                    total ^= product[other]
                if total == 0 and len({product[mode] for product in chosen}) == 1:
                    return True
    return False


def all_flips(terms: Products) -> Iterator[Products]:
    for p, q in permutations(range(len(terms)), 2):
        for a, b, c in permutations(range(3)):
            if terms[p][a] == terms[q][a]:
                new = [list(product) for product in terms]
                new[p][b] ^= terms[q][b]
                new[q][c] ^= terms[p][c]
                yield tuple(map(tuple, new))


def all_pluses(terms: Products) -> Iterator[Products]:
    for p, q in permutations(range(len(terms)), 2):
        for a, b, c in permutations(range(3)):
            if not any(x == y for x, y in zip(terms[p], terms[q], strict=True)):
                new = [list(product) for product in terms] + [[0, 0, 0]]
                new[-1][a], new[-1][b], new[-1][c] = terms[p][a], terms[q][b], terms[p][c] ^ terms[q][c]
                new[p][b] ^= terms[q][b]
                new[q][a] ^= terms[p][a]
                yield tuple(map(tuple, new))


def reached(move: Any, link: Any, begin: BinaryWalker, tries: int) -> set[Products]:
    found = set()
    for number in range(tries):
        walker = deepcopy(begin)
        walker.random[0] = number
        link(walker)
        move(walker)
        found.add(products(walker))
    return found


@pytest.mark.slow
def test_the_flips_are_all_flips_and_keep_the_tensor(kernels: Any) -> None:
    begin = binary_walker(classical_masks(2, 2, 2), 5, 0)
    kernels.link_all(begin)
    for _ in range(3):
        assert reached(kernels.flip, kernels.link_all, begin, 1500) == set(all_flips(products(begin)))
        for _ in range(9):
            kernels.flip(begin)
        assert tensor(products(begin)) == multiplication(2, 2, 2)


@pytest.mark.slow
def test_the_plus_transitions_are_all_and_keep_the_tensor(kernels: Any) -> None:
    begin = walker_of(((1, 2, 4), (3, 5, 9), (3, 6, 10)))
    found = reached(kernels.plus, kernels.link_all, begin, 600)
    assert found == set(all_pluses(products(begin))) and found
    assert all(tensor(terms) == tensor(products(begin)) for terms in found)
    alike = walker_of(((1, 2, 4), (1, 5, 9)))  # no pair without a common factor
    assert not kernels.plus(alike) and products(alike) == ((1, 2, 4), (1, 5, 9))


@pytest.mark.slow
def test_chains_and_pairs_are_kept_up_to_date(kernels: Any) -> None:
    walker = binary_walker(classical_masks(2, 3, 3), 1, 0)
    kernels.link_all(walker)
    for number in range(3000):
        kernels.flip(walker)
        if number % 100 == 0:
            assert listed(walker) == defined(products(walker))
            assert tensor(products(walker)) == multiplication(2, 3, 3)


def listed(walker: BinaryWalker) -> list[tuple[int, frozenset[int]]]:
    low = (1 << FIELD) - 1
    found = []
    for place, pair in enumerate(map(int, walker.pairs[: walker.tally[PAIRS]])):
        mode, p, q = pair >> 2 * FIELD, pair >> FIELD & low, pair & low
        assert walker.places[mode, p, q] == walker.places[mode, q, p] == place
        found.append((mode, frozenset((p, q))))
    return sorted(found, key=lambda at: (at[0], sorted(at[1])))


def defined(terms: Products) -> list[tuple[int, frozenset[int]]]:
    alike = [
        (mode, frozenset((p, q))) for mode in range(3) for p, q in combinations(range(len(terms)), 2) if terms[p][mode] == terms[q][mode]
    ]
    return sorted(alike, key=lambda at: (at[0], sorted(at[1])))


@pytest.mark.slow
def test_a_flip_tells_whether_there_is_a_reduction(kernels: Any) -> None:
    """Few blocks, so that factors are often dependent; before the flip none are."""
    random, told = np.random.default_rng(7), [0, 0]
    while min(told) < 60:
        terms = tuple(tuple(int(x) for x in random.integers(1, 8, 3)) for _ in range(5))
        if reducible(terms):
            continue
        walker = walker_of(terms)
        kernels.link_all(walker)
        if walker.tally[PAIRS]:
            walker.random[0] = np.uint64(random.integers(2**32))
            opened = bool(kernels.flip(walker))
            assert opened == reducible(products(walker))
            told[opened] += 1


@pytest.mark.slow
def test_reductions_are_found_exactly_where_there_are_any(kernels: Any) -> None:
    random, told = np.random.default_rng(3), [0, 0]
    while min(told) < 60:
        terms = tuple(tuple(int(x) for x in random.integers(0 if told[1] < 20 else 1, 16, 3)) for _ in range(5))
        walker = walker_of(terms)
        assert kernels.reduce_once(walker) == reducible(terms)
        assert tensor(products(walker)) == tensor(terms)
        assert walker.tally[RANK] == 5 - reducible(terms)
        told[reducible(terms)] += 1


@pytest.mark.slow
def test_three_products_with_dependent_factors_become_two(kernels: Any) -> None:
    walker = walker_of(((1, 2, 4), (1, 8, 16), (1, 10, 32)))
    assert kernels.reduce_once(walker)
    assert set(products(walker)) == {(1, 2, 4 ^ 32), (1, 8, 16 ^ 32)}


def discover(task: SearchTask, seconds: float = 600, **options: Any) -> Found:
    return flip_search.discover(task, seconds, **options)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("blocks", "rank"), [((2, 2, 2), 7), ((2, 2, 3), 11), ((2, 3, 3), 15), ((3, 3, 3), 23)])
def test_known_ranks_are_found_and_lifted(blocks: tuple[int, int, int], rank: int) -> None:
    """A search ends by itself here; that the time would end it is no more than a way out."""
    found = discover(SearchTask(blocks, rank, seed=1, ring="Z/2"))
    assert found.reached and found.scheme is not None and found.scheme.ring.name == "Z/2"
    assert prove_scheme(found.scheme).holds and found.scheme.rank == found.rank == rank
    lifted = lift(found.scheme).scheme
    assert lifted.ring.name == "Z" and lifted.rank == rank and prove_scheme(lifted).holds


def test_the_command_that_finds_it_again_is_its_source() -> None:
    found = discover(SearchTask((2, 2, 2), 7, seed=5, walkers=2, ring="Z/2"))
    assert found.scheme is not None
    assert f"`bilinear discover 2,2,2 --rank {found.rank} --over Z/2 --seed 5 --walkers 2`" in found.scheme.citation
    again = discover(SearchTask((2, 2, 2), 7, seed=5, walkers=2, ring="Z/2"))
    assert again.scheme == found.scheme and (again.walker, again.steps) == (found.walker, found.steps)


def padded(scheme: Scheme) -> Scheme:
    """The first product split in two, and a product added and taken away again."""
    u, v, w = scheme.u.matrix, scheme.v.matrix, scheme.w.matrix
    first, *others = u[0]
    assert others
    extra = scheme.rank
    rows = tuple((*row, *((extra, c) for p, c in row if p == 0)) for row in w)
    rows = ((*rows[0], (extra + 1, 1), (extra + 2, -1)), *rows[1:])
    left = ((first,), *u[1:], tuple(others), u[1], u[1])
    right = (*v, v[0], v[2], v[2])
    names = (*scheme.products, "P1", "P2", "P3")
    maps = (LinearMap(scheme.u.inputs, left), LinearMap(scheme.v.inputs, right), LinearMap(extra + 3, rows))
    return replace(scheme, u=maps[0], v=maps[1], w=maps[2], products=names, places=None)


@pytest.mark.parametrize("ring", [pytest.param("Z", marks=pytest.mark.slow), "Z/2"])
def test_a_walk_from_a_padded_scheme_drops_what_is_too_much(ring: str) -> None:
    start = padded(load_shipped("strassen").scheme)
    assert prove_scheme(start).holds and start.rank == 10
    found = discover(SearchTask((2, 2, 2), 7, ring=ring, start=start, named="padded.bl"))
    assert found.reached and found.scheme is not None and found.scheme.ring.name == ("Z/2" if ring == "Z/2" else "Q")
    assert "--from padded.bl" in found.scheme.citation and prove_scheme(found.scheme).holds


@pytest.mark.parametrize("ring", [pytest.param("Z", marks=pytest.mark.slow), "Z/2"])
def test_a_walk_from_the_classical_scheme_by_name_is_the_walk_from_it(ring: str) -> None:
    """The order of the products differs, but no other thing."""
    found = discover(SearchTask((2, 2, 2), 7, ring=ring, start=classical(2, 2, 2), named="classical"))
    assert found.reached and found.rank == 7


@pytest.mark.parametrize(
    ("task", "code", "message"),
    [
        (SearchTask((2, 2, 2), 7, ring="Z/3"), "E740", "no walk goes over 'Z/3'"),
        (SearchTask((2, 2, 3), 7, start=load_shipped("strassen").scheme), "E741", "it is <2,2,2;7>, and <2,2,3> is looked for"),
        (SearchTask((4, 4, 4), 47, start=load_shipped("dps_444").scheme), "E741", "its coefficients must be -1, 0 and 1"),
        (SearchTask((4, 4, 4), 47, ring="Z/2", start=load_shipped("dps_444").scheme), "E741", "no residues modulo 2"),
        (SearchTask((2, 2, 2), 7, ring="Z/2", start=load_shipped("strassen").scheme), "E660", "strassen has rank 7"),
    ],
)
def test_where_no_walk_can_begin(task: SearchTask, code: str, message: str) -> None:
    with pytest.raises(BilinearError) as refused:
        discover(task)
    (diagnostic,) = refused.value.diagnostics
    assert diagnostic.code == code and message in diagnostic.message and diagnostic.hints


def test_a_start_that_does_not_multiply_is_refused() -> None:
    good = load_shipped("strassen").scheme
    wrong = replace(good, u=replace(good.u, outputs=(good.u.outputs[1], *good.u.outputs[1:])), places=None)
    with pytest.raises(BilinearError, match="E301"):
        discover(SearchTask((2, 2, 2), 6, ring="Z/2", start=wrong))


@pytest.mark.slow
def test_a_walk_that_goes_on_is_the_walk_that_was_not_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ended after every round, and begun again from the file, until it finds what the walk finds that is never ended."""
    monkeypatch.setattr(flip_search, "ROUND", 2**12)
    for ring in ("Z/2", "Z"):
        task = SearchTask((2, 3, 3), 15, seed=2, walkers=3, ring=ring)
        whole = discover(task)
        path = tmp_path / f"{ring[-1]}.json"
        monkeypatch.setattr(flip_search._WalkerSearch, "_round", one_round(flip_search._WalkerSearch._round))
        count = 0
        for _ in range(10_000):
            found = discover(task, state=path)
            count += 1
            if found.reached:
                break
        monkeypatch.undo()
        monkeypatch.setattr(flip_search, "ROUND", 2**12)
        assert count > 1
        assert (found.scheme, found.walker, found.steps) == (whole.scheme, whole.walker, whole.steps)


def one_round(original: Any) -> Any:
    """A round that says that the time is over: the second of a search."""

    def run(self: Any, *arguments: Any) -> bool:
        if getattr(self, "has_run", False):
            return False
        self.has_run = True
        return bool(original(self, *arguments))

    return run


def test_a_lower_rank_goes_on_from_the_same_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "walk.json"
    task = SearchTask((2, 2, 4), 15, seed=3, walkers=2, ring="Z/2")
    found = discover(task, state=path)
    assert found.reached and path.exists()
    lower = discover(replace(task, rank=14), state=path)
    assert lower.reached and lower.rank == 14 and lower.total > found.total


def test_the_walker_keeps_what_it_found(kernels: Any) -> None:
    walker = binary_walker(classical_masks(2, 2, 2), 1, 0)
    kernels.walk(walker, 10**6, 7, 0, np.zeros(1, np.int64))
    assert walker.tally[BEST] == 7
    best = tuple(tuple(int(x) for x in walker.best[:, p]) for p in range(7))
    assert tensor(best) == multiplication(2, 2, 2)


def test_a_walk_goes_on_until_a_scheme_is_lifted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first two that are tried are said not to be lifted; what is tried is over Z/2 and has the rank."""
    tried: list[Scheme] = []

    def unwilling(scheme: Scheme) -> Any:
        tried.append(scheme)
        if len(tried) < 3:
            raise BilinearError([])
        return lift(scheme)

    monkeypatch.setattr(flip_search, "ROUND", 2**12)
    monkeypatch.setattr(flip_search, "lift", unwilling)
    found = discover(SearchTask((2, 2, 2), 7, seed=1, ring="Z/2", lifted=True))
    assert len(tried) == 3 and all(scheme.rank == 7 and scheme.ring.name == "Z/2" for scheme in tried)
    assert found.reached and found.scheme is not None and found.scheme.ring.name == "Z" and prove_scheme(found.scheme).holds
    assert "--over Z/2 --lift --seed 1" in found.scheme.citation
    with pytest.raises(BilinearError, match="E740"):
        discover(SearchTask((2, 2, 2), 7, lifted=True))
