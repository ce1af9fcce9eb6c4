"""The model of time and traffic against plans that are counted, and against their discrete simulation."""

from __future__ import annotations

import pytest
from ranks import best_levels, holds
from simulated_ranks import simulate

from bilinear.distributed import BlockNonCyclic, Pieces, ProcessGrid, home
from bilinear.distributed.chain import estimate, machines, sums
from bilinear.distributed.rank_plan import RankPlan, decompose, traffic
from bilinear.frontend import load

H200 = machines()["h200"]
WINOGRAD = load("winograd").scheme


def at_home(ranks: int, levels: int, n: int) -> RankPlan:
    return decompose((n, n, n), ranks, home((n, n, n), ranks, "winograd", levels=levels), WINOGRAD, levels)


def received(plan: RankPlan) -> int:
    pairs = traffic(plan)
    return max(sum(size for (_, target), size in pairs.items() if target == rank) for rank in range(plan.ranks))


@pytest.mark.parametrize(("ranks", "levels", "n"), [(1, 1, 64), (7, 1, 28), (7, 2, 56), (49, 2, 196), (14, 1, 56), (28, 1, 56)])
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
