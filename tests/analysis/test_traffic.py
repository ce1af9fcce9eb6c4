"""The models of traffic beside loops that are run: every element that is read or written is counted."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterator
from itertools import permutations, product
from math import isqrt, log2, sqrt

import pytest
from each_case import each

from bilinear.analysis.traffic import (
    Extents,
    balance,
    balancing_side,
    fitting_side,
    intensity,
    least_traffic,
    operations,
    tiled_traffic,
    traffic_bound,
    traffic_order,
)

Place = tuple[str, int, int]  # An element: its matrix, row and column.
Cell = tuple[int, int, int]  # i, j and l of one multiplication, C[i, j] += A[i, l] B[l, j].


def ranges(extent: int, size: int) -> Iterator[range]:
    return (range(first, min(first + size, extent)) for first in range(0, extent, size))


def tiled(extents: Extents, rows: int, columns: int, depth: int) -> tuple[int, int, set[Cell]]:
    """Run the tiled loops: the elements moved, the most that lay in the fast memory, and the multiplications done."""
    m, k, n = extents
    moved = most = 0
    done: set[Cell] = set()
    for tile_rows, tile_columns in product(ranges(m, rows), ranges(n, columns)):
        results = {("C", i, j) for i in tile_rows for j in tile_columns}
        for inner in ranges(k, depth):
            loaded = {("A", i, p) for i in tile_rows for p in inner} | {("B", p, j) for p in inner for j in tile_columns}
            moved, most = moved + len(loaded), max(most, len(loaded) + len(results))
            done |= {(i, j, p) for i in tile_rows for j in tile_columns for p in inner}
        moved += len(results)
    return moved, most, done


@each("seed", range(30))
def test_tiled_loops_move_what_the_formula_says(seed: int) -> None:
    generator = random.Random(seed)
    m, k, n, rows, columns, depth = (generator.randint(1, 9) for _ in range(6))
    moved, most, done = tiled((m, k, n), rows, columns, depth)
    assert moved == tiled_traffic((m, k, n), rows, columns)
    assert done == set(product(range(m), range(n), range(k))) and len(done) == operations((m, k, n)) // 2
    assert moved >= traffic_bound((m, k, n), most) and moved >= least_traffic((m, k, n))


def test_tiles_that_hold_the_result_move_each_element_once() -> None:
    assert tiled_traffic((5, 7, 6), 5, 6) == least_traffic((5, 7, 6)) == 5 * 7 + 7 * 6 + 5 * 6


def test_the_figures_of_the_lecture() -> None:
    """A Kepler with 2 TFLOP/s and 200 GB/s in float32: three tiles of 40 x 40 take 19.2 kB. Loops without tiles: 1."""
    machine = balance(2e12, 200e9)
    assert machine == 10 and balancing_side(machine, 4) == 40
    assert 3 * 40**2 * 4 == 19200 and fitting_side(19200 // 4) == 40 and fitting_side(19200 // 4 - 1) == 39
    n = 1000
    untiled = tiled_traffic((n, n, n), 1, 1)
    assert untiled == 2 * n**3 + n**2 and intensity(operations((n, n, n)), untiled) == pytest.approx(1, rel=1e-3)
    assert intensity(operations((n, n, n)), tiled_traffic((n, n, n), 40, 40) - n**2) == pytest.approx(40)
    assert intensity(operations((n, n, n)), least_traffic((n, n, n))) == pytest.approx(2 * n / 3)
    assert intensity(2 * n**2, n**2 + 2 * n) == pytest.approx(2, rel=1e-2), "a matrix times a vector"


def cached(cells: Iterator[Cell], fast: int) -> int:
    """The traffic of multiplications in this order, if the fast memory drops what was used least recently; results are kept or written."""
    held: OrderedDict[Place, bool] = OrderedDict()
    moved = 0
    begun: set[Place] = set()
    for i, j, p in cells:
        places: tuple[Place, ...] = (("A", i, p), ("B", p, j), ("C", i, j))
        for place in places:
            if place not in held:
                moved += place[0] != "C" or place in begun
                held[place] = place[0] == "C"
            held.move_to_end(place)
        begun.add(("C", i, j))
        while len(held) > fast:
            moved += held.popitem(last=False)[1]
    return moved + sum(held.values())


@each("fast", [3, 8, 27, 50, 100])
@each("extents", [(9, 9, 9), (12, 5, 8), (3, 20, 6), (14, 14, 2)])
def test_no_order_of_the_loops_moves_less_than_the_bound(extents: Extents, fast: int) -> None:
    m, k, n = extents
    least = traffic_bound(extents, fast)
    for order in permutations(range(3)):
        for side in (1, 2, 4, 7):
            blocks = [list(ranges(extent, side)) for extent in (m, n, k)]
            axes = [[blocks[axis] for axis in order]]
            cells = (
                tuple(dict(zip(order, cell, strict=True))[axis] for axis in range(3))
                for outer in product(*axes[0])
                for cell in product(*outer)
            )
            assert cached(((i, j, p) for i, j, p in cells), fast) >= least


@pytest.mark.parametrize("fast", [900, 10_000, 1_000_000])
def test_the_bound_is_almost_reached(fast: int) -> None:
    """By tiles of C that fill the fast memory but for a column of A and a row of B; three equal tiles move sqrt(3) times as much."""
    n, side = 100 * isqrt(fast), isqrt(fast + 1) - 1
    assert side * side + 2 * side <= fast
    assert 1 <= tiled_traffic((n, n, n), side, side) / traffic_bound((n, n, n), fast) < 1.13
    equal = tiled_traffic((n, n, n), fitting_side(fast), fitting_side(fast))
    assert equal / traffic_bound((n, n, n), fast) == pytest.approx(sqrt(3), rel=0.06)


def strassens(n: int, block: int, fast: int) -> float:
    """The traffic of Strassen's recursion: products of blocks in the fast memory, or in tiles, and sums that are read and written."""
    if 3 * n * n <= fast:
        return 3 * n * n
    if n <= block:
        return tiled_traffic((n, n, n), fitting_side(fast), fitting_side(fast))
    return 7 * strassens(n // 2, block, fast) + 18 * 3 * (n // 2) ** 2


@pytest.mark.parametrize("block", [1, 2**12])
def test_the_order_of_a_recursion_is_that_of_its_traffic(block: int) -> None:
    """However large the matrices and the fast memory are, counted traffic and order differ by a factor of a few."""
    ratios = [
        strassens(n, block, fast) / traffic_order(n, block, log2(7), fast)
        for n, fast in product((2**13, 2**16, 2**20), (2**8, 2**14, 2**20))
        if n * n >= 4 * fast
    ]
    assert min(ratios) > 1 and max(ratios) < 4 * min(ratios), ratios


def test_without_recursion_the_order_is_hongs_and_kungs() -> None:
    assert traffic_order(1000, 1000, 3, 10_000) == pytest.approx(1000**3 / 100)
    assert traffic_order(1000, 1, log2(7), 10_000) == pytest.approx(10 ** log2(7) * 10_000)
