"""Matrices over meshes as DTensors lay them: products in one process, against exact integers, in every pair of placements."""

from __future__ import annotations

import random
from contextlib import suppress
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from each_case import each
from network.lockstep import Network, indices, run_all, times
from numpy.typing import NDArray

from bilinear.distributed.distributions import Pieces, Spread
from bilinear.distributed.dtensor import Mesh, MeshPlacement, MeshPlacements, MeshPlan, chunk, held, mesh_steps, of_product, plan_over
from bilinear.distributed.rank_plan import Extents, RankPlan, decompose
from bilinear.frontend import load
from bilinear.ir.scheme import Scheme

Matrix = NDArray[np.int64]
ROOT = Path(__file__).resolve().parents[2]
ROWS, COLUMNS, COPIES, SUMMANDS = MeshPlacement
SCHEME = load("strassen").scheme
ONE = {ranks: Mesh((ranks,), tuple(range(ranks))) for ranks in (1, 2, 3, 4)}
TWO = Mesh((2, 2), (2, 0, 3, 1)), Mesh((3, 2), (0, 1, 2, 3, 4, 5)), Mesh((1, 2), (1, 0)), Mesh((2, 1, 2), (0, 1, 2, 3))


def over(mesh: Mesh, placements: MeshPlacements, matrix: Matrix, seed: int = 0) -> list[Matrix]:
    """What each rank holds: where summands are asked for, random ones, whose sum is the matrix."""
    if SUMMANDS not in placements:
        rows, columns = matrix.shape
        found = [np.arange(rows)] * len(mesh.ranks), [np.arange(columns)] * len(mesh.ranks)
        for rank, place in mesh.places.items():
            for at, placement in enumerate(placements):
                if placement in (ROWS, COLUMNS):
                    cut = found[placement is COLUMNS]
                    size = -(-len(cut[rank]) // mesh.shape[at])
                    cut[rank] = cut[rank][place[at] * size : (place[at] + 1) * size]
        return [matrix[np.ix_(*which)] for which in zip(*found, strict=True)]
    at, generator = placements.index(SUMMANDS), np.random.default_rng(seed)
    summands = [generator.integers(-9, 10, matrix.shape) for _ in range(mesh.shape[at] - 1)]
    summands.append(matrix - sum(summands))
    rest = (*placements[:at], COPIES, *placements[at + 1 :])
    laid = [over(mesh, rest, summand, seed + place + 1) for place, summand in enumerate(summands)]
    return [laid[mesh.places[rank][at]][rank] for rank in range(len(mesh.ranks))]


def planned(mesh: Mesh, extents: Extents, placements: tuple[MeshPlacements, ...], scheme: Scheme | None) -> MeshPlan:
    def by_all(a: Spread, b: Spread, c: Spread) -> RankPlan:
        return decompose(extents, len(mesh.ranks), (Pieces(a), Pieces(b), Pieces(c)), scheme)

    return plan_over(mesh, extents, placements, by_all, stay=scheme is None)


def multiply(
    mesh: Mesh, extents: Extents, placements: tuple[MeshPlacements, ...], scheme: Scheme | None = None
) -> tuple[MeshPlan, Network]:
    """Multiply random matrices, and require that C is exact and lies as it should."""
    m, k, n = extents
    generator = np.random.default_rng(m + 3 * k + 7 * n)
    a, b = generator.integers(-9, 10, (m, k)), generator.integers(-9, 10, (k, n))
    plan = planned(mesh, extents, placements, scheme)
    pieces = zip(over(mesh, placements[0], a), over(mesh, placements[1], b, 50), strict=True)
    found, network = run_all([mesh_steps(plan, rank, *own, times) for rank, own in enumerate(pieces)])
    assert all(x.flags.c_contiguous for x in found)
    summed = tuple(COPIES if placement is SUMMANDS else placement for placement in placements[2])
    for rank, wanted in enumerate(over(mesh, summed, a @ b)):
        got = sum(found[other] for other in mesh.beside(rank, placements[2], SUMMANDS))
        assert np.array_equal(got, wanted), (mesh, extents, placements)
    return plan, network


@pytest.mark.parametrize(("whole", "parts"), [((0, 7), 3), ((2, 5), 4), ((0, 0), 2), ((0, 8), 4), ((3, 4), 3)])
def test_chunks_are_those_of_torch(whole: tuple[int, int], parts: int) -> None:
    """Of ceil(length / parts), then what is left, then nothing."""
    start, stop = whole
    size = max(1, -(-(stop - start) // parts))
    parted = [list(range(start, stop))[at * size : (at + 1) * size] for at in range(parts)]
    assert [list(range(*chunk(whole, parts, at))) for at in range(parts)] == parted


@each("mesh", [*ONE.values(), *TWO])
def test_ranks_hold_what_dtensors_hold(mesh: Mesh) -> None:
    matrix = np.arange(5 * 7).reshape(5, 7)
    for placements in product((ROWS, COLUMNS, COPIES), repeat=len(mesh.shape)):
        spread = held(mesh, placements, 5, 7)
        for part, piece in zip(spread, over(mesh, placements, matrix), strict=True):
            assert np.array_equal(matrix[np.ix_(indices(part.rows), indices(part.columns))], piece)


@pytest.mark.sample(3)
@pytest.mark.parametrize("scheme", [None, SCHEME], ids=["2d", "strassen"])
@pytest.mark.parametrize("ranks", ONE)
def test_every_pair_of_placements_is_exact_in_every_placement(ranks: int, scheme: Scheme | None) -> None:
    for a, b in product(MeshPlacement, repeat=2):
        for extents in ((6, 8, 4), (5, 7, 3), (1, 2, 1), (2, 1, 5)):
            multiply(ONE[ranks], extents, ((a,), (b,), of_product((a,), (b,))), scheme)
        for c in MeshPlacement:
            multiply(ONE[ranks], (7, 5, 6), ((a,), (b,), (c,)), scheme)


@pytest.mark.sample(1)
@pytest.mark.parametrize("mesh", TWO, ids=str)
def test_meshes_of_more_dimensions_are_exact(mesh: Mesh) -> None:
    pairs = list(product(product(MeshPlacement, repeat=len(mesh.shape)), repeat=2))
    others = random.Random(5)
    for at, (a, b) in enumerate(others.sample(pairs, min(256, len(pairs)))):
        own = of_product(a, b)
        asked = own if at % 2 else tuple(others.choice(tuple(MeshPlacement)) for _ in mesh.shape)
        multiply(mesh, ((9, 11, 7), (3, 2, 5))[at % 3 // 2], (a, b, asked), SCHEME if at % 5 == 0 else None)


def test_the_table_of_the_page_is_what_is_done() -> None:
    """A in the rows, B in the columns; a star where nothing travels."""
    table = (ROOT / "docs" / "distributed.md").read_text().partition("<!-- the table of placements -->")[2].partition("<!-- end -->")[0]
    head, _, *rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in table.strip().splitlines()]
    names = {"Shard(0)": ROWS, "Shard(1)": COLUMNS, "Replicate()": COPIES, "Partial()": SUMMANDS}
    assert head[1:] == [row[0] for row in rows] == list(names)
    for a, *cells in rows:
        for b, cell in zip(head[1:], cells, strict=True):
            assert of_product((names[a],), (names[b],)) == (names[cell.rstrip("* `")],), (a, b)
            assert cell.endswith("*") == ((names[a], names[b]) in WITHOUT_MESSAGES)


WITHOUT_MESSAGES = {
    (ROWS, COPIES): ROWS,
    (COPIES, COLUMNS): COLUMNS,
    (COLUMNS, ROWS): SUMMANDS,
    (COLUMNS, COPIES): SUMMANDS,
    (COPIES, ROWS): SUMMANDS,
}


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_what_each_rank_has_is_multiplied_without_messages(ranks: int) -> None:
    mesh, (m, k, n) = ONE[ranks], (10, 9, 11)
    for (a, b), c in WITHOUT_MESSAGES.items():
        assert of_product((a,), (b,)) == (c,)
        plan, network = multiply(mesh, (m, k, n), ((a,), (b,), (c,)))
        assert plan.plan is None and not network.sent
    plan, network = multiply(mesh, (m, k, n), ((COPIES,), (COPIES,), (COPIES,)))
    assert plan.plan is None and network.sent.total() == (ranks - 1) * m * n  # copies of C
    plan, network = multiply(mesh, (m, k, n), ((SUMMANDS,), (COPIES,), (ROWS,)))
    assert plan.plan is None and network.sent.total() == (ranks - 1) * m * k  # summands of A
    plan, network = multiply(mesh, (m, k, n), ((COPIES,), (SUMMANDS,), (COLUMNS,)))
    assert plan.plan is None and network.sent.total() == (ranks - 1) * k * n


def test_dimensions_of_a_mesh_that_need_no_messages_need_none_together() -> None:
    pairs = [((ROWS, COPIES), (COPIES, COLUMNS)), ((ROWS, COLUMNS), (COPIES, ROWS)), ((COLUMNS, COLUMNS), (ROWS, ROWS))]
    for mesh in TWO[:3]:
        for a, b in [*pairs, *((a[::-1], b[::-1]) for a, b in pairs)]:
            plan, network = multiply(mesh, (9, 11, 10), (a, b, of_product(a, b)))
            assert plan.plan is None and not network.sent


def test_products_of_what_each_rank_has_are_all_of_the_product() -> None:
    """In every placement of A, B and C on a mesh: no product of elements is missing, or there twice, where a rank asks no other."""
    mesh, extents, found = TWO[0], (4, 4, 4), 0
    for placements in product(product(MeshPlacement, repeat=2), repeat=3):
        with suppress(LookupError):
            plan_over(mesh, extents, placements, no_plan, stay=True)
            multiply(mesh, extents, placements)
            found += 1
    assert found > 100


def no_plan(*_: Spread) -> RankPlan:
    raise LookupError


@pytest.mark.parametrize("a", [(COPIES, COPIES), (COLUMNS, COPIES)])
def test_products_that_ranks_have_twice_are_not_added_up(a: MeshPlacements) -> None:
    """With copies, and C asked for as a sum, each rank would have the whole of it; with half of k on two ranks, half of it twice."""
    plan, _ = multiply(TWO[0], (4, 4, 4), (a, (COPIES, COPIES), (ROWS, SUMMANDS)))
    assert plan.plan is not None
