"""Chains over ranks, run in one process against exact integers, their plans beside all orders, and the model of time and traffic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from math import prod

import numpy as np
import pytest
from each_case import each
from network.lockstep import pieces, run_all, spoiling, times
from network.test_plan import distributions
from ranks import best_levels, holds
from simulated_ranks import simulate

from bilinear.distributed import BlockNonCyclic, Machine, Pieces, ProcessGrid, Slab, chain_plan, home
from bilinear.distributed.chain import RankChainPlan, chain_steps, estimate, machines, sums
from bilinear.distributed.distributions import Distribution
from bilinear.distributed.rank_plan import RankPlan, decompose, traffic
from bilinear.errors import BilinearError
from bilinear.frontend import load

H200 = machines()["h200"]
SLOW_LINKS = Machine("links of a modem", 8, 8, 1e12, 1e11, 1e9, 1e3, 1e3, 1e-3, 1e-3)
NO_LINKS = Machine("links that take no time", 8, 8, 1e9, 1e18, 1e9, 1e18, 1e18, 0.0, 0.0)
SLOW_STARTS = Machine("messages that start late", 8, 8, 1e9, 1e18, 1e9, 1e18, 1e18, 1e-3, 1e-3)


def check(plan: RankChainPlan) -> None:
    """Run a plan; the product must be exact, also by products that write their operands, and no piece is written."""
    generator = np.random.default_rng(len(plan.extents))
    matrices = [generator.integers(-4, 5, shape) for shape in pairwise(plan.extents)]
    held = [pieces(matrix, spread) for matrix, spread in zip(matrices, plan.given, strict=True)]
    for multiply in (times, spoiling):
        consumes = multiply is spoiling
        found, _ = run_all([chain_steps(plan, rank, [x[rank] for x in held], multiply, consumes) for rank in range(plan.ranks)])
        for own, wanted in zip(found, pieces(reduce(np.matmul, matrices), plan.wanted), strict=True):
            assert own.shape == wanted.shape and (own == wanted).all()
    for matrix, spread, had in zip(matrices, plan.given, held, strict=True):
        assert all(np.array_equal(x, y) for x, y in zip(had, pieces(matrix, spread), strict=True))


@pytest.mark.sample(10)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("extents", [(5, 6, 7), (40, 3, 50, 2, 60), (9,) * 8, (1, 30, 1, 30, 1, 30, 2), (300, 20) * 4])
def test_chains_are_exact_in_all_distributions(extents: tuple[int, ...], ranks: int) -> None:
    known = distributions(ranks)
    for at, (machine, name) in enumerate([(H200, "2d"), (SLOW_STARTS, "winograd"), (NO_LINKS, "strassen"), (SLOW_LINKS, "2d")]):
        given: list[Distribution] = [known[(at + 3 * place) % len(known)] for place in range(len(extents))]
        check(chain_plan(extents, ranks, distributions=given, decomposition=name, machine=machine, dtype="int64"))


def test_independent_products_go_one_to_a_rank() -> None:
    """The example of the thesis's equation 5.1 on three ranks: products that take as long on one of them as in tiles on all."""
    plan = chain_plan((20, 20, 500, 20, 500, 20, 500, 20), 3, machine=replace(H200, local=lambda m, k, n: 1.0 if k > 20 else 1e-3))
    assert sorted(str(part) for part in plan.products if part.group[1] - part.group[0] == 1 and part.seconds == 1.0) == [
        "A2 A3",
        "A4 A5",
        "A6 A7",
    ]
    assert 1 < plan.root.seconds < 1.01 and 3 < plan.together < 3.01
    check(plan)


def test_large_products_run_one_after_another_on_all_ranks() -> None:
    plan = chain_plan((8192,) * 5, 3)
    assert {part.group for part in plan.products} == {(0, 3)}
    assert plan.root.seconds == plan.together == pytest.approx(3 * estimate(H200, (8192,) * 3, 3).seconds)


@pytest.mark.parametrize("extents", [(30, 35, 15, 5, 10, 20, 25), (10, 100, 5, 50), (7, 1, 7, 1, 7, 1)])
def test_without_links_and_on_one_rank_the_order_has_the_fewest_multiplications(extents: tuple[int, ...]) -> None:
    least = min(_all_orders(extents, 0, len(extents) - 2))
    plan = chain_plan(extents, 1, machine=NO_LINKS)
    assert plan.root.seconds == pytest.approx(2 * least / NO_LINKS.products)
    assert sum(prod(part.plan.extents) for part in plan.products if part.plan) == least


def _all_orders(extents: tuple[int, ...], first: int, last: int) -> Iterator[int]:
    """The multiplications of every order, by enumeration."""
    if first == last:
        yield 0
    for split in range(first, last):
        own = extents[first] * extents[split + 1] * extents[last + 1]
        for left in _all_orders(extents, first, split):
            for right in _all_orders(extents, split + 1, last):
                yield own + left + right


def test_a_scheme_is_used_where_the_model_says_that_it_is_faster() -> None:
    plan = chain_plan((30_000, 30_000, 30_000, 4), 7, decomposition="winograd")
    assert {part.plan.name for part in plan.products if part.plan} == {"2d"}, "the last matrix is a few columns"
    plan = chain_plan((30_000,) * 4, 7, decomposition="winograd")
    assert {part.plan.name for part in plan.products if part.plan} == {"winograd^1"}


def test_a_plan_tells_its_order_groups_and_seconds() -> None:
    text = str(chain_plan((400, 2, 400, 2, 400), 2, machine=SLOW_STARTS))
    assert text.splitlines()[0].startswith("A1 ((A2 A3) A4): ") or "(A1 A2) (A3 A4): " in text
    assert " on rank" in text and "one product after another on all ranks" in text
    assert repr(chain_plan((4, 5, 6), 2)) == "<RankChainPlan of 2 matrices on 2 ranks: A1 A2>"


@each(
    ("extents", "options", "code"),
    [
        ((4, 5), {}, "E550"),
        ((4, 5, 0), {}, "E760"),
        ((4, 5, 2.5), {}, "E760"),
        ((4, 5, 6), {"machine": "abacus"}, "E760"),
        ((4, 5, 6), {"distributions": [Slab.X] * 2}, "E761"),
        ((4, 5, 6), {"decomposition": "strasen"}, "E121"),
    ],
)
def test_what_is_no_chain_is_refused(extents: tuple[int, ...], options: dict[str, object], code: str) -> None:
    with pytest.raises(BilinearError) as caught:
        chain_plan(extents, 2, **options)  # type: ignore[arg-type]
    assert caught.value.diagnostics[0].code == code


WINOGRAD = load("winograd").scheme


def at_home(ranks: int, levels: int, n: int) -> RankPlan:
    return decompose((n, n, n), ranks, home((n, n, n), ranks, "winograd", levels=levels), WINOGRAD, levels)


def received(plan: RankPlan) -> int:
    pairs = traffic(plan)
    return max(sum(size for (_, target), size in pairs.items() if target == rank) for rank in range(plan.ranks))


@each(("ranks", "levels", "n"), [(1, 1, 64), (7, 1, 28), (7, 2, 56), (49, 2, 196), (14, 1, 56), (28, 1, 56)])
def test_received_bytes_are_those_of_the_plan(ranks: int, levels: int, n: int) -> None:
    """With more ranks than products their strips do not lie along the tiles, so that a little more or less is a rank's own."""
    found = estimate(H200, (n, n, n), ranks, WINOGRAD, levels).received / H200.itemsize
    assert found == pytest.approx(received(at_home(ranks, levels, n)), rel=1e-12 if ranks <= 7**levels else 0.07)


@pytest.mark.parametrize("grid", [(1, 1), (2, 2), (2, 4), (3, 3)])
def test_received_bytes_of_tiles_are_those_of_the_plan(grid: tuple[int, int]) -> None:
    ranks = grid[0] * grid[1]
    plan = decompose((48, 48, 48), ranks, [BlockNonCyclic(ProcessGrid(grid))] * 3)
    assert estimate(H200, (48, 48, 48), ranks).received / H200.itemsize == pytest.approx(received(plan))


@pytest.mark.parametrize(("ranks", "levels", "n"), [(1, 1, 8192), (7, 1, 57_344), (7, 2, 57_344), (7, 1, 3584), (49, 2, 100_352)])
def test_the_simulation_agrees(ranks: int, levels: int, n: int) -> None:
    found = simulate(at_home(ranks, levels, n), H200)
    assert found == pytest.approx(estimate(H200, (n, n, n), ranks, WINOGRAD, levels).seconds, rel=0.06)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("grid", "within"), [((1, 1), 0.001), ((1, 2), 0.002), ((2, 2), 0.005), ((2, 4), 0.005), ((4, 4), 0.05), ((7, 7), 0.2), ((8, 8), 0.25)]
)
def test_the_simulation_of_tiles_agrees(grid: tuple[int, int], within: float) -> None:
    """From 49 ranks on messages take longer than products, and ranks wait for each other's ports."""
    ranks = grid[0] * grid[1]
    plan = decompose((32_768,) * 3, ranks, [BlockNonCyclic(ProcessGrid(grid))] * 3)
    assert simulate(plan, H200) == pytest.approx(estimate(H200, (32_768, 32_768, 32_768), ranks).seconds, rel=within)


def test_sums_are_counted_as_written() -> None:
    """Strassen's ten sums of two blocks read two and write one; C11 and C22 have four terms, C12 and C21 two."""
    assert sums(load("strassen").scheme, 1, (8.0, 8.0, 8.0)) == (10 * 3 * 16, (5 + 3 + 3 + 5) * 16)
    one, two = (sums(WINOGRAD, levels, (8.0, 8.0, 8.0)) for levels in (1, 2))
    assert two[0] == one[0] + 7 * one[0] / 4 and two[1] == one[1] + 7 * one[1] / 4


def test_memory_limits_the_levels() -> None:
    assert best_levels(H200, 65_536, 1, WINOGRAD) is None
    assert holds(H200, 65_536, 1) and not holds(H200, 2**20, 8)
    levels = best_levels(H200, 65_536, 8, WINOGRAD)
    assert levels is not None and holds(H200, 65_536, 8, WINOGRAD, levels)


def test_pieces_at_home_move_nothing_before_the_sums() -> None:
    plan = at_home(7, 1, 31)
    again = decompose((31, 31, 31), 7, [Pieces(spread) for spread in plan.home], WINOGRAD, 1)
    assert received(again) <= received(at_home(7, 1, 32))
