"""Pruning: the published levels beside the published conditions, and what a search leaves out by them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import ceil

import pytest

from bilinear.ir.tile import LARGE, SMALL, TILES, USUAL
from bilinear.measure.time_plans import ACTIVE, ARRAY, KERNEL, LEVELS, Multiprocessor, level_of, multiprocessor_of, prune
from bilinear.methods.digits.choice import Digits
from bilinear.methods.planning import contenders
from bilinear.methods.thin.choice import Thin
from bilinear.planner.device_files import load_device
from bilinear.planner.library import Library
from bilinear.planner.plan import Candidate, Panel
from bilinear.planner.problem import Problem
from bilinear.planner.scheduled import Scheduled

H200 = load_device("h200")
K20 = Multiprocessor(64, 65536, 256, 48 * 1024, 48 * 1024, 0)
"""That of the paper's GPU: compute capability 3.5."""
ADA = Multiprocessor(48, 65536, 256, 100 * 1024, 99 * 1024, 1024)
"""Compute capability 8.9, with less shared memory than an H200."""


def algorithm_1(n: int, tw: int, th: int, registers: int, shared: int) -> bool:
    """Whether the published algorithm runs a kernel with this tile, by its steps 3 to 24; registers are rounded up to the unit."""
    if n % tw != 0 or n % th != 0 or (n // tw) * (n // th) == 0:
        return False
    rpb, wpb = ceil(registers * tw * th / K20.unit) * K20.unit, ceil(tw * th / 32)
    return K20.warps // wpb > 0 and K20.shared // shared > 0 and K20.registers // rpb > 0


@pytest.mark.parametrize("n", [64, 96, 100, 2048])
def test_the_levels_are_the_published_ones(n: int) -> None:
    found: dict[str, int] = dict.fromkeys(("", *LEVELS), 0)
    for tw, th, registers in product((1, 2, 4, 8, 16, 32, 64, 128), (1, 2, 4, 8, 16, 32, 64, 128), (16, 32, 63)):
        shared = 4 * tw * th
        level = level_of(th, tw, (n, n), K20.active_blocks(tw * th, registers, shared))
        assert (level == "") == algorithm_1(n, tw, th, registers, shared), (tw, th, registers)
        found[level] += 1
    assert found[""] and found[ARRAY if n < 2048 else ACTIVE] and not found[KERNEL], "a tile that divides N is not larger"


def test_the_published_choice_fits_four_times() -> None:
    assert K20.active_blocks(32 * 16, 20, 4 * 32 * 16) == 4, "64 warps in blocks of 16"
    assert K20.active_blocks(32 * 16, 63, 4 * 32 * 16) == 2, "by registers"
    assert K20.active_blocks(32 * 16, 20, 20 * 1024) == 2, "by shared memory"
    assert K20.active_blocks(32, 20, 49 * 1024) == 0


def test_a_tile_larger_than_the_result_is_pruned_by_the_second_level_if_the_first_allows_waste() -> None:
    assert level_of(64, 64, (60, 60), 1, most_idle=0.25) == KERNEL
    assert level_of(64, 64, (60, 60), 1, most_idle=0.25, may_exceed=True) == ""
    assert level_of(64, 64, (100, 100), 1, most_idle=0.25) == ARRAY


def tiled(*levels: str, dtype: str = "float64") -> list[Candidate]:
    return [Candidate(Scheduled(levels, tile=tile), 1.0, 8) for tile in TILES[dtype]]


def tiles_left(problem: Problem, *levels: str, own: Multiprocessor | None = None) -> tuple[set[str], dict[str, int]]:
    kept, left_out = prune(tiled(*levels, dtype=problem.dtype), problem, own or Multiprocessor())
    return {candidate.tile for candidate in kept}, {level: count for level, count in left_out.items() if count}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_nothing_is_left_out_on_large_blocks(dtype: str) -> None:
    for n, levels in product((4096, 4097, 5000), (("winograd",), ("laderman",), ("winograd", "winograd"))):
        assert tiles_left(Problem(n, n, n, dtype), *levels) == (set(TILES[dtype]), {})


def test_small_blocks_keep_the_tiles_that_they_fill() -> None:
    assert tiles_left(Problem(64, 4096, 64), "winograd") == ({SMALL}, {ARRAY: 2})
    assert tiles_left(Problem(160, 4096, 160), "winograd") == ({SMALL}, {ARRAY: 2}), "80 = 32 * 2.5 = 64 * 1.25"
    assert tiles_left(Problem(140, 4096, 140), "winograd") == ({USUAL, SMALL}, {KERNEL: 1}), "all waste much of 70"
    assert tiles_left(Problem(250, 4096, 250), "winograd") == ({USUAL, SMALL, LARGE}, {}), "125 fills 128 as well in all"
    assert tiles_left(Problem(2, 4096, 2), "winograd")[0] == {SMALL}, "one is always left"


def test_a_tile_that_a_device_cannot_hold_is_left_out_even_if_it_is_the_last() -> None:
    assert tiles_left(Problem(4096, 4096, 4096), "winograd", own=ADA) == ({USUAL, SMALL}, {ACTIVE: 1})
    assert tiles_left(Problem(4096, 4096, 4096), "winograd", own=replace(ADA, shared_of_block=1024))[0] == set()
    assert {tile for tile in TILES["float64"] if tile not in (USUAL, SMALL)} == {LARGE}


def test_what_has_no_tiles_to_compare_is_kept_in_its_order() -> None:
    rest = (Panel(8, Scheduled(("classical",), tile=SMALL)),)
    parts = Candidate(Scheduled(("winograd",), "preserve", "borrow", LARGE, rest), 1.0, 0)
    direct = [Candidate(choice, 1.0, 0) for choice in (Library(), Thin("16x16x128-2x2x32"), Digits(("winograd",), "residues14"))]
    given = [direct[0], *tiled("winograd"), parts, *direct[1:]]
    kept, left_out = prune(given, Problem(64, 64, 64), Multiprocessor())
    assert kept == [direct[0], given[3], parts, *direct[1:]] and left_out == {ARRAY: 2, KERNEL: 0, ACTIVE: 0}


def test_a_search_has_less_to_build() -> None:
    """On an H200, 640 x 640: of what may be fastest, tiles that the blocks do not fill."""
    problem = Problem(640, 4096, 640)
    found = contenders(problem, H200)
    kept, left_out = prune(found, problem, Multiprocessor())
    assert len(kept) == len(found) - sum(left_out.values()) < len(found)
    assert {(c.levels, c.promise) for c in kept} == {(c.levels, c.promise) for c in found}


def test_a_multiprocessor_is_what_the_driver_says() -> None:
    properties = {"maxThreadsPerMultiProcessor": 1536, "warpSize": 32, "regsPerMultiprocessor": 65536}
    properties |= {"sharedMemPerMultiprocessor": 102400, "sharedMemPerBlockOptin": 101376, "reservedSharedMemPerBlock": 1024}
    assert multiprocessor_of(properties) == ADA
