"""Fusing linear stages: how few elements the passes move, where a run is cut, and that nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from oracle import computes

from bilinear.analysis.block_maps import components
from bilinear.frontend import load
from bilinear.ir.linear import LinearMap
from bilinear.ir.number import Coefficient
from bilinear.ir.schedule import BETA, Block, BlockMap, LinearStage, Product, ProductStage, Schedule, Space, Target
from bilinear.ir.tile import CUDA_THREAD
from bilinear.lowering.prepare import runnable
from bilinear.passes.fuse_linear_stages import fuse_linear_stages
from bilinear.passes.nest_levels import nest_levels
from bilinear.passes.scheme_to_schedule import scheme_to_schedule


def nested(name: str, levels: int) -> Schedule:
    return nest_levels([scheme_to_schedule(load(name).scheme)] * levels)


def sizes(schedule: Schedule) -> list[list[tuple[int, int, int]]]:
    """By linear stage: how many places there are, and how many blocks are read and written at each."""
    found = []
    for stage in schedule.stages:
        if isinstance(stage, LinearStage):
            parts = [(len(p.sources), len(p.targets)) for m in stage.maps for p in components(m)]
            found.append([(parts.count(part), *part) for part in dict.fromkeys(parts)])
    return found


def additions(schedule: Schedule) -> int:
    return sum(m.map.additions for stage in schedule.stages if isinstance(stage, LinearStage) for m in stage.maps)


def test_three_levels_take_one_pass_over_memory_and_no_addition_more() -> None:
    apart, fused = nested("winograd", 3), fuse_linear_stages(nested("winograd", 3))
    assert sizes(fused) == [[(2, 64, 316)], [(1, 343, 64)]]
    assert additions(fused) == additions(apart) == (2 * 4 + 7) * (16 + 7 * 4 + 49)
    assert computes(runnable(fused), trials=1)


@pytest.mark.parametrize(
    ("most", "wanted"),
    [
        (96, [[(2, 64, 316)], [(1, 343, 64)]]),
        # Two passes move 128 + 392 blocks an operand where the outermost level is alone, and 448 + 392 where the innermost is.
        (24, [[(32, 4, 4)], [(14, 16, 40)], [(7, 49, 16)], [(16, 7, 4)]]),
        (4, [[(32, 4, 4)], [(56, 4, 4)], [(98, 4, 4)], [(49, 7, 4)], [(28, 7, 4)], [(16, 7, 4)]]),
    ],
)
def test_a_run_is_cut_where_the_passes_move_least(most: int, wanted: Any) -> None:
    fused = fuse_linear_stages(nested("winograd", 3), replace(CUDA_THREAD, most_live=most))
    assert sizes(fused) == wanted
    assert computes(runnable(fused), trials=1)


def test_a_part_of_too_much_work_is_cut() -> None:
    fused = sizes(fuse_linear_stages(nested("winograd", 2), replace(CUDA_THREAD, most_work=99)))
    assert fused == [[(8, 4, 4)], [(14, 4, 4)], [(7, 7, 4)], [(4, 7, 4)]]


def test_stages_that_both_add_to_c_stay_apart() -> None:
    """A map into C adds to what is there; the product of two maps would forget what the first one added."""
    c, copy = Block("C", 0, 0), LinearMap(1, (((0, 1),),))
    stages = tuple(LinearStage((BlockMap((Block("M", i, 0),), (c,), copy, kept=(1,)),)) for i in range(2))
    schedule = Schedule("twice", "plain", 1, 1, 1, stages, (Space("M", "C", 2, 1),))
    assert fuse_linear_stages(schedule).stages == stages


def test_a_form_over_blocks_of_another_size_waits_for_them() -> None:
    """C11 is scratch for a sum of A here, as square blocks allow: it is formed of what the stage before made."""
    a11, a12, c11 = Block("A", 0, 0), Block("A", 0, 1), Block("C", 0, 0)
    total = LinearMap(2, (((0, 1), (1, 1)),))
    stages = (LinearStage((BlockMap((a11, a12), (a11,), total),)), LinearStage((BlockMap((a11, a12), (c11,), total),)))
    schedule = Schedule("scratch", "naive2x2", 2, 2, 2, stages)
    assert fuse_linear_stages(schedule).stages == stages


def test_stages_that_cancel_leave_no_stage() -> None:
    a11, a12 = Block("A", 0, 0), Block("A", 0, 1)
    stages = tuple(LinearStage((BlockMap((a11, a12), (a12,), LinearMap(2, (((0, sign), (1, 1)),))),)) for sign in (1, -1))
    assert fuse_linear_stages(Schedule("nothing", "naive2x2", 2, 2, 2, stages)).stages == ()


def multiplied(target: Block, kept: Coefficient) -> ProductStage:
    return ProductStage((Product(Block("A", 0, 0), Block("B", 0, 0), (Target(target, 1, kept),)),))


def added(target: Block, kept: Coefficient, **terms: int) -> LinearStage:
    sources = tuple(Block(name, 0, 0) for name in terms)
    return LinearStage((BlockMap(sources, (target,), LinearMap(len(terms), (tuple(enumerate(terms.values())),)), kept=(kept,)),))


def test_what_a_map_adds_to_c_is_read_in_a_later_pass() -> None:
    """No form says what is kept: composed with the copy, it would be that of the product alone."""
    c, m, x = (Block(name, 0, 0) for name in "CMX")
    stages = (multiplied(m, 0), added(c, BETA, M=1), added(x, 0, C=1), multiplied(m, 0), added(c, 1, X=1, C=-1))
    schedule = Schedule("copied", "plain", 1, 1, 1, stages, (Space("M", "C", 1, 1), Space("X", "C", 1, 1)))
    assert computes(schedule) and computes(fuse_linear_stages(schedule))
