"""Every move of the compiled walk, against its definition in Python's integers."""

from __future__ import annotations

import random
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from discovery.flips import (
    BLOCKS,
    Product,
    Vector,
    all_flips,
    all_pluses,
    is_ternary,
    multiplication,
    pairs,
    plus_minus,
    products,
    relation,
    tensor,
    walker_of,
)

from bilinear.discovery import flip_search
from bilinear.discovery.walker import BEST, BEST_AT, RANK, ROOM, STEPS, Walker, classical_masks, ternary_walker

FORMATS = ((2, 2, 2), (2, 3, 2), (3, 1, 4), (3, 3, 3))


@pytest.fixture(scope="module")
def kernels() -> Any:
    return flip_search.kernels()


def linked_pairs(walker: Walker, mode: int) -> list[frozenset[int]]:
    return [frozenset(map(int, pair)) for pair in walker.pairs[mode, : walker.counts[mode]]]


def state(walker: Walker) -> tuple[Product, ...]:
    return tuple(products(walker))


def reached(move: Callable[[Walker], bool], begin: Walker, link: Callable[[Walker], None], tries: int) -> set[tuple[Product, ...]]:
    """What a move makes of one walker, over many random numbers."""
    found = set()
    for number in range(tries):
        walker = deepcopy(begin)
        walker.random[0] = number
        link(walker)
        move(walker)
        found.add(state(walker))
    return found - {state(begin)}


@pytest.mark.parametrize("blocks", FORMATS)
def test_a_walk_begins_at_the_classical_scheme(blocks: tuple[int, int, int]) -> None:
    walker = ternary_walker(classical_masks(*blocks), 0, 0)
    assert tensor(products(walker)) == multiplication(*blocks)
    assert len(products(walker)) == np.prod(blocks)


@pytest.mark.parametrize("blocks", FORMATS)
def test_flips_keep_the_tensor_and_the_list_of_pairs(kernels: Any, blocks: tuple[int, int, int]) -> None:
    walker = ternary_walker(classical_masks(*blocks), 1, 0)
    kernels.link_all(walker)
    seen = set()
    for number in range(1500):
        kernels.flip(walker)
        if number % 50 == 0:
            now = products(walker)
            seen.add(tuple(now))
            assert tensor(now) == multiplication(*blocks)
            for mode in range(3):
                linked = linked_pairs(walker, mode)
                assert len(linked) == len(set(linked)) and set(linked) == pairs(now, mode)
    assert len(seen) > 20  # it went somewhere


def test_the_flips_are_all_flips(kernels: Any) -> None:
    begin = ternary_walker(classical_masks(2, 2, 2), 3, 0)
    kernels.link_all(begin)
    for _ in range(2):  # at the classical scheme, and where signs and longer factors are
        assert reached(kernels.flip, begin, kernels.link_all, 1500) == set(all_flips(products(begin))) - {state(begin)}
        for _ in range(12):
            kernels.flip(begin)


def test_a_flip_tells_whether_there_may_be_a_reduction(kernels: Any) -> None:
    """Three products with a common factor, of which another is a sum: reductions are one flip away, in every mode."""
    generator = random.Random(3)

    def vector() -> Vector:
        return tuple(generator.choice((-1, 0, 1)) for _ in range(4)) + (0,) * (BLOCKS - 4)

    opened = [0, 0, 0]
    for attempt in range(900):
        one, signs = vector(), [generator.choice((-1, 1)) for _ in range(3)]
        commons = [plus_minus((0,) * BLOCKS, sign, one) for sign in signs]
        summed, free = [vector(), vector()], [vector() for _ in range(3)]
        columns = [commons, [*summed, plus_minus(summed[0], signs[2], summed[1])], free]
        modes = generator.sample(range(3), 3)
        terms = [(columns[modes[0]][p], columns[modes[1]][p], columns[modes[2]][p]) for p in range(3)]
        if not all(map(is_ternary, columns[1])) or reducible(terms):
            continue
        for number in range(attempt, attempt + 6):
            walker = walker_of(terms, (2, 2, 2))
            walker.random[0] = number
            kernels.link_all(walker)
            told = kernels.flip(walker)
            if reducible(products(walker)):
                assert told
                opened[modes.index(0)] += 1
    assert min(opened) > 20


def test_plus_transitions_keep_the_tensor_and_add_a_product(kernels: Any) -> None:
    walker = ternary_walker(classical_masks(2, 3, 2), 2, 0)
    for more in range(1, ROOM + 2):
        assert kernels.plus(walker)
        assert walker.tally[RANK] == 12 + more
        assert tensor(products(walker)) == multiplication(2, 3, 2)
    assert not kernels.plus(walker)  # there is no room for another


def test_the_plus_transitions_are_all_of_them(kernels: Any) -> None:
    begin = ternary_walker(classical_masks(1, 2, 2), 0, 0)
    assert reached(kernels.plus, begin, lambda walker: None, 3000) == set(all_pluses(products(begin)))


def test_there_is_no_plus_transition_of_products_that_share_a_factor(kernels: Any) -> None:
    assert not kernels.plus(ternary_walker(classical_masks(1, 1, 5), 0, 0))
    assert not kernels.plus(ternary_walker(classical_masks(1, 1, 1), 0, 0))


def reducible(terms: list[Product]) -> bool:
    """Whether a factor is zero, or two products share two factors and the sum of the third is ternary."""
    if any(not any(factor) for term in terms for factor in term):
        return True
    for p in range(len(terms)):
        for q in range(p):
            signs = [relation(x, y) for x, y in zip(terms[p], terms[q], strict=True)]
            for mode in range(3):
                sign = signs[mode - 1] * signs[mode - 2]
                if sign and is_ternary(plus_minus(terms[p][mode], sign, terms[q][mode])):
                    return True
    return False


def test_reductions_keep_the_tensor_and_leave_nothing_to_reduce(kernels: Any) -> None:
    generator = random.Random(7)

    def vector() -> Vector:
        return tuple(generator.choice((-1, 0, 0, 1)) for _ in range(2)) + (0,) * (BLOCKS - 2)

    saved = 0
    for _ in range(150):
        terms = [(vector(), vector(), vector()) for _ in range(8)]
        walker = walker_of(terms, (2, 2, 2))
        assert products(walker) == terms
        while kernels.reduce_once(walker):
            saved += 1
            assert tensor(products(walker)) == tensor(terms)
        assert not reducible(products(walker))
    assert saved > 300


def test_a_sum_with_a_coefficient_two_is_no_reduction(kernels: Any) -> None:
    one = (1,) + (0,) * (BLOCKS - 1)
    walker = walker_of([(one, one, one), (one, one, one)], (1, 1, 2))
    assert not kernels.reduce_once(walker)
    walker = walker_of([(one, one, one), (one, plus_minus(one, -2, one), one)], (1, 1, 2))
    assert kernels.reduce_once(walker) and kernels.reduce_once(walker)
    assert walker.tally[RANK] == 0


def test_a_walk_of_all_moves_keeps_the_tensor(kernels: Any) -> None:
    walker = ternary_walker(classical_masks(3, 3, 3), 11, 2)
    ranks = []
    for _ in range(12):
        kernels.walk(walker, 60_000, 0, 2, np.array([8]))
        ranks.append(int(walker.tally[RANK]))
        best = products(walker, walker.best, int(walker.tally[BEST]))
        assert tensor(products(walker)) == tensor(best) == multiplication(3, 3, 3)
        assert walker.tally[RANK] <= walker.tally[BEST] + ROOM
    assert walker.tally[STEPS] == 12 * 60_000 >= walker.tally[BEST_AT]
    assert len(set(ranks)) > 1 and walker.tally[BEST] < 25


def test_going_back_is_to_the_best(kernels: Any) -> None:
    walker = ternary_walker(classical_masks(2, 2, 2), 4, 0)
    kernels.walk(walker, 10**6, 7, 0, np.array([1]))
    assert walker.tally[BEST] == walker.tally[RANK] == 7
    best = state(walker)
    kernels.plus(walker)
    assert state(walker) != best
    kernels.go_back(walker)
    assert state(walker) == best and walker.tally[RANK] == 7
    assert set(linked_pairs(walker, 0)) == pairs(products(walker), 0)


def test_a_walk_halts_for_a_winner_of_a_lower_number(kernels: Any) -> None:
    walker = ternary_walker(classical_masks(3, 3, 3), 0, 5)
    kernels.walk(walker, 10**9, 0, 5, np.array([4]))
    assert walker.tally[STEPS] == 0
    kernels.walk(walker, 5000, 0, 5, np.array([5]))
    assert walker.tally[STEPS] == 5000


def test_a_walk_stops_at_its_target(kernels: Any) -> None:
    walker = ternary_walker(classical_masks(2, 2, 2), 0, 0)
    kernels.walk(walker, 10**6, 7, 0, np.array([1]))
    assert walker.tally[BEST] == 7 and walker.tally[STEPS] == walker.tally[BEST_AT] < 10**6


def test_walkers_have_random_numbers_of_their_own(kernels: Any) -> None:
    streams = [
        [kernels.below(walker.random, 1000) for _ in range(20)]
        for walker in (ternary_walker(classical_masks(2, 2, 2), seed, number) for seed in (0, 1) for number in (0, 1))
    ]
    assert len(set(map(tuple, streams))) == 4
    assert all(0 <= x < 1000 for stream in streams for x in stream)
    many = [kernels.below(ternary_walker(classical_masks(1, 1, 2), s, 0).random, 6) for s in range(600)]
    assert min(many.count(face) for face in range(6)) > 60
