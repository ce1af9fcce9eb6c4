"""Runs against sets of indices, distributions against their definitions."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from network.lockstep import indices

from bilinear.distributed import BlockCyclic, BlockNonCyclic, Pieces, ProcessGrid, Slab, from_descriptor, shape
from bilinear.distributed.distributions import LAYOUTS, Distribution, Rect, inside, joined, meet, near_even
from bilinear.errors import BilinearError

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


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6, 7])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (9, 14), (3, 20)])
def test_every_element_lies_on_one_rank(ranks: int, rows: int, columns: int) -> None:
    for distribution in distributions(ranks):
        spread = distribution.spread(rows, columns, ranks)
        held = [place for part in spread for place in product(indices(part.rows), indices(part.columns))]
        assert sorted(held) == list(product(range(rows), range(columns)))
        assert Pieces(spread).spread(rows, columns, ranks) == spread
        assert all(shape(distribution, rank, (rows, columns), ranks) == part.shape for rank, part in enumerate(spread))


@pytest.mark.parametrize(("layout", "wanted"), [("row-major", [0, 1, 2, 3, 4, 5]), ("column-major", [0, 2, 4, 1, 3, 5])])
def test_block_cyclic_is_scalapacks(layout: str, wanted: list[int]) -> None:
    """Element (i, j) lies on the process ((i // MB + RSRC) mod P, (j // NB + CSRC) mod Q); processes as the grid numbers them."""
    (m, n), distribution = from_descriptor((1, 0, 11, 13, 2, 3, 1, 2, 11), ProcessGrid((2, 3), layout))
    spread = distribution.spread(m, n, 6)
    for i, j in product(range(m), range(n)):
        rank = wanted[(i // 2 + 1) % 2 * 3 + (j // 3 + 2) % 3]
        assert i in indices(spread[rank].rows) and j in indices(spread[rank].columns)


@pytest.mark.parametrize(
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
