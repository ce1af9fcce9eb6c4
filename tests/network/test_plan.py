"""Plans and distributions, run in one process against exact integers; their traffic, counted, by formula and beside the bounds; memory."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from each_case import each
from hypothesis import given
from hypothesis import strategies as st
from network.lockstep import Network, Rank, indices, pieces, run, run_all, times

from bilinear.backends.array_sums import evaluate
from bilinear.distributed import BlockCyclic, BlockNonCyclic, Pieces, ProcessGrid, Slab, from_descriptor, home, shape
from bilinear.distributed.distributions import LAYOUTS, Distribution, Rect, inside, joined, meet, near_even
from bilinear.distributed.multiply import Request, local_multiply, plan_for
from bilinear.distributed.rank import Post, steps_of
from bilinear.distributed.rank_plan import (
    Extents,
    RankPlan,
    busiest,
    classical_bound,
    decompose,
    recursive_order,
    shared_products,
    tiles,
    traffic,
    workspace,
)
from bilinear.errors import BilinearError
from bilinear.frontend import load

RANKS = 1, 2, 3, 4, 6, 7
EXTENTS: tuple[Extents, ...] = (1, 1, 1), (16, 16, 16), (13, 17, 11), (5, 30, 2)
SCHEMES = {name: load(name).scheme for name in ("strassen", "winograd", "laderman", "hopcroft_kerr")}


def integers(extents: Extents) -> tuple[np.ndarray, np.ndarray]:
    """As float64: exact, and multiplied by BLAS."""
    m, k, n = extents
    generator = np.random.default_rng(sum(extents))
    return generator.integers(-9, 10, (m, k)).astype(float), generator.integers(-9, 10, (k, n)).astype(float)


def check(plan: RankPlan) -> Counter[tuple[int, int]]:
    """Run a plan; C must be exact, and the traffic that of the plan's messages."""
    a, b = integers(plan.extents)
    found, network = run(plan, a, b)
    for own, wanted in zip(found, pieces(a @ b, plan.given[2]), strict=True):
        assert own.shape == wanted.shape and (own == wanted).all()
    assert network.sent == traffic(plan)
    return network.sent


@pytest.mark.sample(8)
@pytest.mark.parametrize("consumes", [False, True])
@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", [None, *SCHEMES])
def test_plans_are_exact_in_all_distributions(name: str | None, ranks: int, consumes: bool) -> None:
    """Also if products write their operands, of which no message and no later product then reads anything."""
    known = distributions(ranks)
    for at, extents in enumerate(EXTENTS):
        for first in range(at % 2, len(known), 3):
            given = [known[(first + at + step) % len(known)] for step in (0, 3, 5)]
            check(decompose(extents, ranks, given, SCHEMES.get(name or ""), consumes=consumes))


@pytest.mark.parametrize(("ranks", "levels"), [(1, 2), (2, 2), (3, 2), (7, 2), (5, 3)])
def test_more_levels_are_exact(ranks: int, levels: int) -> None:
    check(decompose((19, 16, 21), ranks, [Slab.X, Slab.Y, Slab.X], SCHEMES["winograd"], levels))


@each("name", ["winograd", "laderman"])
@each("ranks", [1, 2, 4])
def test_depth_first_levels_save_memory_and_are_exact(name: str, ranks: int) -> None:
    scheme = SCHEMES[name]
    free = decompose((64, 60, 72), ranks, [Slab.X] * 3, scheme, 1)
    budget = workspace(free) * 4 // 5
    plan = decompose((64, 60, 72), ranks, [Slab.X] * 3, scheme, 1, budget)
    assert (free.depth, plan.depth, plan.breadth) == ((), (scheme,), (scheme,))
    assert workspace(plan) <= budget
    assert plan.rounds == scheme.rank
    check(plan)


def test_panels_save_memory() -> None:
    free = decompose((32, 2048, 32), 4, [Slab.X] * 3)
    plan = decompose((32, 2048, 32), 4, [Slab.X] * 3, memory=workspace(free) * 4 // 5)
    longest, shorter = (max(task.extents[1] for task in each.tasks[0]) for each in (free, plan))
    assert shorter < longest
    check(plan)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("distribution", "ranks", "first"),
    [
        (Slab.X, 2, [((0, 600),), ((600, 1200),)]),  # what each rank has, and then the rest
        (Slab.X, 3, [((0, 400),), ((400, 800),), ((800, 1200),)]),
        (BlockNonCyclic(ProcessGrid((2, 2))), 4, [((0, 80),), ((600, 680),), ((600, 680),), ((0, 80),)]),  # nobody is asked twice at once
        (Slab.Y, 2, [((0, 600),), ((600, 1200),)]),
        ((Slab.X, Slab.Y, Slab.X), 2, [((0, 1200),), ((0, 1200),)]),  # no sum is needed
    ],
)
def test_ranks_begin_with_what_they_have_or_ask_different_ones(distribution: object, ranks: int, first: list[object]) -> None:
    three = distribution if isinstance(distribution, tuple) else (distribution,) * 3
    plan = decompose((1200, 1200, 1200), ranks, three)
    assert [tasks[0].inner for tasks in plan.tasks] == first
    check(plan)
    for tasks in plan.tasks:
        widths = [task.extents[1] if three[1] is three[0] else task.extents[2] for task in tasks]
        assert sum(widths) == 1200 and all(after < 3 * before for before, after in pairwise(widths))


def test_whole_products_begin_with_the_columns_that_a_rank_has() -> None:
    plan = decompose((1200, 1200, 1200), 3, (Slab.X, Slab.Y, Slab.X), whole=True)
    assert [tasks[0].columns for tasks in plan.tasks] == [(0, 400), (400, 800), (800, 1200)]
    assert [[task.columns for task in tasks[1:]] for tasks in plan.tasks] == [
        [(400, 800), (800, 1200)],
        [(800, 1200), (0, 400)],
        [(0, 400), (400, 800)],
    ]
    check(plan)
    plan = decompose((1200, 1200, 1200), 3, (Slab.X, Slab.Y, Slab.Y))
    assert [tasks[0].rows for tasks in plan.tasks] == [(0, 400), (400, 800), (800, 1200)]
    check(plan)


@each("ranks", [1, 2, 3, 4])
@each("is_tight", [False, True])
def test_k_is_whole_where_an_accuracy_is_promised(ranks: int, is_tight: bool) -> None:
    free = decompose((300, 200, 400), ranks, [Slab.X] * 3, whole=True)
    memory = workspace(free) * 97 // 100 if is_tight else workspace(free)
    plan = decompose((300, 200, 400), ranks, [Slab.X] * 3, memory=memory, whole=True)
    assert {task.inner for tasks in plan.tasks for task in tasks} == {((0, 200),)}
    assert workspace(plan) <= memory
    assert ranks == 1 or len(plan.tasks[0]) > (len(free.tasks[0]) if is_tight and ranks < 3 else 1)
    check(plan)


def test_an_accuracy_is_refused_where_it_cannot_be_promised() -> None:
    for options in ({"decomposition": "winograd"}, {"algorithm": "winograd"}):
        with pytest.raises(BilinearError, match=r"E760.*accuracy="):
            plan_for(Request((8, 8, 8), (Slab.X,) * 3, accuracy="twice", **options), "float64", 2)  # type: ignore[arg-type]
    with pytest.raises(BilinearError, match="E543"):
        plan_for(Request((8, 8, 8), (Slab.X,) * 3, accuracy=-1.0), "float64", 2)
    same = Request((8, 8, 8), (Slab.X,) * 3, reproducible="bitwise")
    for asked in (replace(same, decomposition="winograd"), replace(same, algorithm="winograd"), replace(same, local_levels=0)):
        with pytest.raises(BilinearError, match=r"E760.*reproducible="):
            plan_for(asked, "float64", 2)
    with pytest.raises(BilinearError, match="E821"):
        same.require_bits(np.dtype("longdouble"), on_gpu=False)


def test_too_little_memory_is_refused_with_what_is_needed() -> None:
    with pytest.raises(BilinearError, match=r"E762.*at most 10 bytes a rank\n  hint: allow ([0-9]+)") as caught:
        decompose((32, 32, 32), 2, [Slab.X] * 3, SCHEMES["winograd"], memory=10)
    least = int(str(caught.value).split("allow ")[1].split(",")[0])
    assert workspace(decompose((32, 32, 32), 2, [Slab.X] * 3, SCHEMES["winograd"], memory=least)) == least


@each("consumes", [False, True])
@each("ranks", [1, 2, 4])
@each(("name", "levels"), [(None, None), ("winograd", 1), ("winograd", 2), ("laderman", 1)])
def test_no_more_memory_is_taken_than_is_told(name: str | None, levels: int | None, ranks: int, consumes: bool) -> None:
    """All ranks run in one process here, and what is under way is in memory, too: that is at most the whole traffic."""
    plan = decompose((96, 96, 96), ranks, [Slab.X, Slab.Y, Slab.X], SCHEMES.get(name or ""), levels, consumes=consumes)
    a = [np.ones(part.shape) for part in plan.given[0]]
    b = [np.ones(part.shape) for part in plan.given[1]]
    tracemalloc.start()
    network = Network()
    running = [Rank(at, steps_of(plan, at, a[at], b[at], times), network) for at in range(ranks)]
    while any(rank.advance() for rank in running):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    allowed = ranks * workspace(plan) + 96 * 96 + sum(traffic(plan).values())
    assert peak <= 8 * allowed + 400_000  # beside arrays there are the plan's own objects


@pytest.mark.sample(0)
@pytest.mark.parametrize("decomposition", ["2d", "winograd"])
def test_in_place_a_rank_needs_no_workspace_and_writes_no_piece(decomposition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes counted while a rank multiplies: no more in place for matrices four times as large, but more blocks for a scheme."""
    monkeypatch.setattr("bilinear.backends.workers.worker_count", lambda: 1)  # each has a buffer of a fixed size
    grown = {}
    for local in ("msmes", "winograd_in_place", "strassen"):
        peaks = []
        for n in (512, 1024):
            asked = Request((n, n, n), (Slab.X,) * 3, decomposition, algorithm=local, local_levels=1)
            plan, _ = plan_for(asked, "float64", 2)
            multiply, most = local_multiply(asked, plan, 0, False, 8), [0]

            def counted(*given: Any, multiply: Any = multiply, most: list[int] = most, **options: Any) -> Any:
                tracemalloc.start()
                found = multiply(*given, **options)
                most[0] = max(most[0], tracemalloc.get_traced_memory()[1])
                tracemalloc.stop()
                return found

            a, b = integers((n, n, n))
            found, _ = run(plan, a, b, counted)
            assert all(np.array_equal(own, wanted) for own, wanted in zip(found, pieces(a @ b, plan.given[2]), strict=True))
            peaks.append(most[0])
        grown[local] = peaks[1] - peaks[0]
        assert plan.consumes == (local != "strassen")
    assert max(grown["msmes"], grown["winograd_in_place"]) < 8 * 256**2 / 10 < 8 * 256**2 < grown["strassen"]


@each("ranks", RANKS)
def test_blocks_by_a_queue_are_exact_in_all_distributions(ranks: int) -> None:
    known = distributions(ranks)
    for at, extents in enumerate(EXTENTS):
        given = [known[(at + step) % len(known)] for step in (0, 3, 5)]
        a, b = integers(extents)
        for consumes in (False, True):
            plan = decompose(extents, ranks, given, consumes=consumes, balance="queue")
            found, _ = run(plan, a, b)
            assert all(np.array_equal(own, wanted) for own, wanted in zip(found, pieces(a @ b, plan.given[2]), strict=True))


@pytest.mark.parametrize("slowed", [0, 2])
def test_blocks_move_from_a_slow_rank_and_bits_do_not(slowed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("bilinear.distributed.rank._seconds", lambda *_: clock[0])
    a, b = (np.random.default_rng(seed).standard_normal((96, 96)) for seed in (1, 2))
    bits, computed = [], []
    for balance in ("static", "queue"):
        plan, count = decompose((96, 96, 96), 3, [Slab.X] * 3, balance=balance), [0, 0, 0]

        def product(rank: int, count: list[int] = count) -> Any:
            def multiply(*given: Any, **options: Any) -> Any:
                count[rank] += 1
                clock[0] += 10.0 if rank == slowed else 1.0
                return times(*given, **options)

            return multiply

        own = zip(pieces(a, plan.given[0]), pieces(b, plan.given[1]), strict=True)
        found, _ = run_all([steps_of(plan, rank, *each, product(rank)) for rank, each in enumerate(own)])
        bits.append(b"".join(x.tobytes() for x in found))
        computed.append(count)
    assert computed[0] == [8, 8, 8] and sum(computed[1]) == 24 and computed[1][slowed] <= 3
    assert bits[0] == bits[1] and np.allclose(np.frombuffer(bits[0]).reshape(96, 96), a @ b)


def test_only_what_can_be_written_is_consumed() -> None:
    def consumes(algorithm: str, dtype: str = "float64", levels: Any = "auto") -> bool:
        return plan_for(Request((8, 8, 8), (Slab.X,) * 3, algorithm=algorithm, local_levels=levels), dtype, 2)[0].consumes

    assert consumes("msmes") and consumes("msmes:2") and consumes("winograd_in_place+strassen", "int32")
    assert not any(consumes(name) for name in ("auto", "winograd", "winograd_depth_first", "classical", "winograd+msmes"))
    assert not consumes("msmes", "complex128") and not consumes("msmes", levels=0)
    with pytest.raises(BilinearError, match="E121"):
        consumes("msmess")


def of_whole_products(rounds: int, products: int, block: tuple[int, int, int], ranks: int) -> int:
    """What all ranks send in `rounds` if each multiplies `products / ranks` whole products of the breadth-first levels.

    A rank holds a strip of rows of each factor, so of a product's factors and of the product all strips but one travel: over all ranks
    rounds * products / ranks * (ranks - 1) * (m k + k n + m n), for strips of any heights.
    """
    m, k, n = block
    return rounds * products // ranks * (ranks - 1) * (m * k + k * n + m * n)


def of_tiles(extents: tuple[int, int, int], grid: tuple[int, int]) -> int:
    """What all ranks send for the classical multiply on p x q blocks of A, B and C: q - 1 times A, p - 1 times B."""
    (m, k, n), (p, q) = extents, grid
    return (q - 1) * m * k + (p - 1) * k * n


@each(("ranks", "levels", "depth"), [(2, 2, 0), (7, 1, 0), (7, 2, 0), (7, 1, 1), (49, 2, 0), (1, 1, 0)])
def test_traffic_of_whole_products_is_the_formula(ranks: int, levels: int, depth: int) -> None:
    """From the home distributions nothing else travels; 49 products over two ranks leave one that is cut, and are counted without."""
    scheme, side = SCHEMES["strassen"], 2 ** (levels + depth) * 7
    plan = decompose((side, side, side), ranks, [Slab.X] * 3, scheme, levels)
    if depth:
        memory = workspace(plan) - 1
        plan = decompose((side, side, side), ranks, [Slab.X] * 3, scheme, levels, memory)
    assert len(plan.depth) == depth
    at_home = decompose((side, side, side), ranks, [Pieces(spread) for spread in plan.home], scheme, levels, None)
    if depth:
        at_home = RankPlan(plan.extents, plan.depth, plan.breadth, plan.home, plan.home, plan.form, plan.tasks)
    whole = [[task for task in tasks if task.extents == (7, 7, 7)] for tasks in at_home.tasks]
    counted = sum(check(at_home).values())
    wanted = of_whole_products(at_home.rounds, 7**levels // ranks * ranks, (7, 7, 7), ranks)
    if 7**levels % ranks == 0:
        assert counted == wanted
    else:
        rest = [task for tasks in at_home.tasks for task in tasks if task.extents != (7, 7, 7)]
        assert sum(map(len, whole)) + 1 == 7**levels and len(rest) == 2
        assert wanted < counted < wanted + 4 * 3 * 49


@pytest.mark.parametrize("grid", [(1, 1), (1, 2), (2, 2), (3, 2), (2, 4)])
def test_traffic_of_tiles_is_the_formula(grid: tuple[int, int]) -> None:
    extents = 24, 24, 48
    ranks = grid[0] * grid[1]
    plan = decompose(extents, ranks, [BlockNonCyclic(ProcessGrid(grid))] * 3)
    assert [x.result for tasks in plan.tasks for x in tasks[:1]] == list(plan.given[2]), "C is computed where it is to lie"
    assert sum(check(plan).values()) == of_tiles(extents, grid)
    assert busiest(traffic(plan), ranks) >= classical_bound(extents, ranks) - 1e-9


@pytest.mark.sample(5)
@pytest.mark.parametrize("ranks", [2, 3, 4, 7, 8, 64])
@pytest.mark.parametrize("extents", [(64, 64, 64), (512, 16, 16), (16, 512, 512)])
def test_no_plan_is_below_the_bound(extents: Extents, ranks: int) -> None:
    plan = decompose(extents, ranks, [Slab.X] * 3)
    assert busiest(traffic(plan), ranks) >= classical_bound(extents, ranks) - 1e-9


def test_the_bound_is_continuous_and_that_of_cubes() -> None:
    """Of n^3 over p^3 ranks, each reads two blocks and adds to one: 3 (n / p)^2, less what it holds."""
    assert classical_bound((60, 60, 60), 27) == pytest.approx(3 * 20 * 20 - 3 * 3600 / 27)
    for extents, edge in (((1000, 100, 10), 10), ((1000, 100, 10), 1000)):
        assert classical_bound(extents, edge) == pytest.approx(classical_bound(extents, edge + 1), rel=0.1)


def test_the_order_of_a_breadth_first_level_is_reached() -> None:
    """With 7^L ranks a rank has one product: 3 (n / 2^L)^2 elements travel, three times n^2 / P^(2 / omega), less its own strips."""
    plan = decompose((196, 196, 196), 49, [Slab.X] * 3, SCHEMES["strassen"], 2)
    assert recursive_order(plan, 49) == pytest.approx((196 / 4) ** 2)
    at_home = RankPlan(plan.extents, (), plan.breadth, plan.home, plan.home, plan.form, plan.tasks)
    moved = Counter(traffic(at_home))
    received = [sum(size for (_, target), size in moved.items() if target == rank) for rank in range(49)]
    assert max(received) <= 3 * recursive_order(plan, 49)


@each("ranks", [*range(1, 12), 30, 49, 50])
@each("products", [1, 7, 23, 49])
def test_products_are_shared_evenly(products: int, ranks: int) -> None:
    """Every element of every product is computed once, and no rank has more than its share but for a strip of each product it cuts."""
    block = 12, 5, 10
    shares = shared_products(range(products)[::-1], block, ranks)
    cells = Counter((task.product, i, j) for tasks in shares for task in tasks for i, j in product(range(*task.rows), range(*task.columns)))
    assert cells == Counter((p, i, j) for p, i, j in product(range(products), range(12), range(10)))
    work = [sum((task.rows[1] - task.rows[0]) * (task.columns[1] - task.columns[0]) for task in tasks) for tasks in shares]
    assert max(work) <= products * 120 / ranks + 2 * 12


def test_blocks_of_first_tasks_travel_while_sums_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two ranks begins Winograd's scheme with a block of A times one of B. Strassen's has no such product."""
    summed: list[object] = []

    def recorded(*given: Any) -> Any:
        summed.append(given)
        return evaluate(*given)

    monkeypatch.setattr("bilinear.distributed.rank.evaluate", recorded)
    for name, before in (("winograd", 0), ("strassen", 2)):
        plan = decompose((8, 8, 8), 2, home((8, 8, 8), 2, name, levels=1), SCHEMES[name], 1)
        a, b = (np.ones(spread[1].shape) for spread in plan.given[:2])
        steps = steps_of(plan, 1, a, b, times)
        assert isinstance(next(steps), Post) and len(summed) == before
        summed.clear()


@pytest.mark.parametrize(("ranks", "columns"), [(1, 1), (4, 2), (7, 3), (9, 3), (64, 8)])
def test_tiles_cover_in_columns(ranks: int, columns: int) -> None:
    found = tiles(504, 504, ranks)
    assert len({column for _, column in found}) == columns
    assert sum((r[1] - r[0]) * (c[1] - c[0]) for r, c in found) == 504 * 504
    assert max((r[1] - r[0]) * (c[1] - c[0]) for r, c in found) <= 1.02 * 504 * 504 / ranks


def test_a_plan_of_a_scheme_is_proved_first(tmp_path_factory: pytest.TempPathFactory) -> None:
    wrong = tmp_path_factory.mktemp("wrong") / "wrong.bl"
    wrong.write_text("scheme wrong <1,1,1;1>\n  M1: 1 | 1 | 2\n")
    with pytest.raises(BilinearError, match="E301"):
        plan_for(Request((8, 8, 8), (Slab.X,) * 3, str(wrong)), "float64", 2)


@each(
    ("asked", "code"),
    [
        (Request((8, 8), (Slab.X,) * 3), "E760"),  # type: ignore[arg-type]
        (Request((8, 0, 8), (Slab.X,) * 3), "E760"),
        (Request((8, 8, 8), (Slab.X,) * 3, "winograd", 0), "E760"),
        (Request((8, 8, 8), (Slab.X,) * 3, "winograd", 6), "E760"),
        (Request((8, 8, 8), (Slab.X,) * 2), "E761"),  # type: ignore[arg-type]
        (Request((8, 8, 8), (BlockNonCyclic(ProcessGrid((2, 2))),) * 3), "E761"),
        (Request((8, 8, 8), (Slab.X,) * 3, memory=8), "E762"),
        (Request((8, 8, 8), (Slab.X,) * 3, "strasen"), "E121"),
        (Request((8, 8, 8), (Slab.X,) * 3, balance="fair"), "E760"),  # type: ignore[arg-type]
        (Request((8, 8, 8), (Slab.X,) * 3, "winograd", balance="queue"), "E760"),
        (Request((8, 8, 8), (Slab.X,) * 3, memory=10**6, balance="static"), "E760"),
    ],
)
def test_what_cannot_be_planned_is_refused(asked: Request, code: str) -> None:
    with pytest.raises(BilinearError, match=code):
        plan_for(asked, "float64", 2)


@pytest.mark.parametrize("name", ["accurate_halves", "accurate_sqrt3"])
def test_integers_hold_no_fraction(name: str) -> None:
    with pytest.raises(BilinearError, match="E528"):
        plan_for(Request((8, 8, 8), (Slab.X,) * 3, name), "int64", 2)


@pytest.mark.parametrize("name", ["accurate_sqrt3", "karstadt_schwartz", "smirnov_333", "alphatensor_424"])
def test_fractions_roots_and_changes_of_basis(name: str) -> None:
    extents = 40, 36, 44
    plan, _ = plan_for(Request(extents, (Slab.Y,) * 3, name), "float64", 3)
    a, b = (x.astype("float64") for x in integers(extents))
    found, _ = run(plan, a, b)
    for own, wanted in zip(found, pieces(a @ b, plan.given[2]), strict=True):
        assert np.allclose(own, wanted, rtol=0, atol=1e-9 * 36 * 81)


def test_the_same_call_has_the_same_digest_and_another_plan_another_one() -> None:
    asked = Request((8, 8, 8), (Slab.X,) * 3, "winograd")
    assert plan_for(asked, "float64", 2)[1] == plan_for(asked, "float64", 2)[1]
    assert plan_for(asked, "float64", 2)[1] != plan_for(Request((8, 8, 8), (Slab.X,) * 3, "strassen"), "float64", 2)[1]


RUNS = st.sets(st.integers(0, 40)).map(lambda found: joined((at, at + 1) for at in sorted(found)))


@given(RUNS, RUNS)
def test_runs_meet_as_sets_do(left: tuple[tuple[int, int], ...], right: tuple[tuple[int, int], ...]) -> None:
    assert indices(meet(left, right)) == sorted({*indices(left)} & {*indices(right)})


@given(RUNS, RUNS)
def test_places_inside_are_those_in_the_list_of_indices(left: tuple[tuple[int, int], ...], right: tuple[tuple[int, int], ...]) -> None:
    held = indices(left)
    assert [held[at] for at in indices(inside(meet(left, right), left))] == indices(meet(left, right))


@pytest.mark.parametrize(("extent", "parts"), [(0, 3), (2, 3), (7, 3), (12, 4)])
def test_slabs_are_as_long_as_nvmath_says(extent: int, parts: int) -> None:
    lengths = [stop - start for start, stop in near_even(extent, parts)]
    assert lengths == [extent // parts + 1] * (extent % parts) + [extent // parts] * (parts - extent % parts)


def distributions(ranks: int) -> list[Distribution]:
    shapes = [(p, ranks // p) for p in range(1, ranks + 1) if ranks % p == 0]
    grids = [ProcessGrid(each, layout) for each, layout in product(shapes, LAYOUTS)]
    cyclic = [BlockCyclic(grid, (2, 3), (grid.shape[0] - 1, grid.shape[1] // 2)) for grid in grids]
    return [Slab.X, Slab.Y, *map(BlockNonCyclic, grids), *cyclic]


@each("ranks", [1, 2, 3, 4, 6, 7])
@each(("rows", "columns"), [(1, 1), (9, 14), (3, 20)])
def test_every_element_lies_on_one_rank(ranks: int, rows: int, columns: int) -> None:
    for distribution in distributions(ranks):
        spread = distribution.spread(rows, columns, ranks)
        held = [place for part in spread for place in product(indices(part.rows), indices(part.columns))]
        assert sorted(held) == list(product(range(rows), range(columns)))
        assert Pieces(spread).spread(rows, columns, ranks) == spread
        assert all(shape(distribution, rank, (rows, columns), ranks) == part.shape for rank, part in enumerate(spread))


def test_seven_strips_are_those_of_the_thesis() -> None:
    """A. G. Krishnan's thesis: a seventh of the rows of every block (figure 4.2), and rows of tiles (figure 4.3)."""
    a, _, c = home((56, 28, 28), 7, "winograd")
    for rank, (strips, tiles_) in enumerate(zip(a.spread(56, 28, 7), Slab.X.spread(49, 49, 7), strict=True)):
        assert strips == Rect(((4 * rank, 4 * rank + 4), (28 + 4 * rank, 32 + 4 * rank)), ((0, 28),))
        assert tiles_ == Rect(((7 * rank, 7 * rank + 7),), ((0, 49),))
    assert c.spread(56, 28, 7) == a.spread(56, 28, 7)


@pytest.mark.parametrize(("layout", "wanted"), [("row-major", [0, 1, 2, 3, 4, 5]), ("column-major", [0, 2, 4, 1, 3, 5])])
def test_block_cyclic_is_scalapacks(layout: str, wanted: list[int]) -> None:
    """Element (i, j) lies on the process ((i // MB + RSRC) mod P, (j // NB + CSRC) mod Q); processes as the grid numbers them."""
    (m, n), distribution = from_descriptor((1, 0, 11, 13, 2, 3, 1, 2, 11), ProcessGrid((2, 3), layout))
    spread = distribution.spread(m, n, 6)
    for i, j in product(range(m), range(n)):
        rank = wanted[(i // 2 + 1) % 2 * 3 + (j // 3 + 2) % 3]
        assert i in indices(spread[rank].rows) and j in indices(spread[rank].columns)


@each(
    ("make", "message"),
    [
        (lambda: Slab(2), "a slab along axis 2"),
        (lambda: ProcessGrid((2, 0)), "a process grid of shape"),
        (lambda: ProcessGrid((2, 2), "spiral"), "layout='spiral'"),
        (lambda: BlockCyclic(ProcessGrid((2, 2)), (0, 1)), "blocks of size"),
        (lambda: BlockNonCyclic(ProcessGrid((2, 2)), (2, 0)), "outside of a grid of 2 x 2"),
        (lambda: BlockNonCyclic(ProcessGrid((2, 2))).spread(4, 4, 3), "a grid of 2 x 2 processes, and there are 3"),
        (lambda: from_descriptor((7, 0, 4, 4, 2, 2, 0, 0, 4), ProcessGrid((1, 1))), "not a descriptor"),
        (lambda: Pieces((Rect(((0, 2),), ((0, 2),)),)).spread(3, 2, 1), "do not hold each element once"),
        (lambda: Pieces((Rect(((0, 2),), ((0, 2),)),)).spread(2, 2, 2), "pieces for 1 ranks"),
    ],
)
def test_wrong_distributions_are_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(BilinearError, match="E761") as caught:
        make()
    assert message in str(caught.value)
