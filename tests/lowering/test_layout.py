"""Workspaces share memory where they are never alive at once, and only there."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import classical, execute, random_state

from bilinear.frontend import load
from bilinear.ir.schedule import Block, Product, ProductStage, Schedule, Space, Target
from bilinear.lowering.place import Room, buffer_size, lay_out, lifetimes, place
from bilinear.lowering.prepare import prepare, runnable
from bilinear.passes.nest_levels import nest_levels
from bilinear.scheduling.depth_first.find import find_depth_first

ROOMS = st.lists(st.builds(Room, st.integers(0, 9), st.integers(0, 63)), max_size=8)
SPANS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 5)), min_size=1, max_size=12)


def expanded(name: str, levels: int) -> Schedule:
    return prepare(load(name).scheme, None, levels, "preserve").schedule


def depth_first(name: str, levels: int) -> Schedule:
    return runnable(nest_levels([find_depth_first(load(name).scheme).schedule] * levels))


@given(ROOMS)
def test_rooms_alive_at_once_lie_apart(rooms: list[Room]) -> None:
    offsets = place(rooms)
    for i, one in enumerate(rooms):
        for j, other in enumerate(rooms[:i]):
            if one.alive & other.alive and one.size and other.size:
                assert offsets[i] >= offsets[j] + other.size or offsets[j] >= offsets[i] + one.size
    needed = max((sum(r.size for r in rooms if r.alive >> stage & 1) for stage in range(6)), default=0)
    assert needed <= buffer_size(rooms, offsets) <= sum(room.size for room in rooms)


@given(SPANS)
def test_rooms_of_one_size_take_no_more_than_are_alive_at_once(spans: list[tuple[int, int]]) -> None:
    rooms = [Room(4, (2 << length) - 1 << first) for first, length in spans]
    needed = max(sum(room.alive >> stage & 1 for room in rooms) for stage in range(20))
    assert buffer_size(rooms, place(rooms)) == 4 * needed


def test_a_large_room_is_filled_by_small_ones() -> None:
    rooms = [Room(2, 0b110), Room(6, 0b001), Room(4, 0b010), Room(3, 0b100)]
    assert buffer_size(rooms, place(rooms)) == 6


@pytest.mark.parametrize(("levels", "name"), [(1, "winograd"), (2, "winograd"), (1, "strassen"), (2, "strassen"), (1, "hopcroft_kerr")])
def test_expansions_take_no_more_than_side_by_side(name: str, levels: int) -> None:
    schedule = expanded(name, levels)
    extents = {"A": (64, 96), "B": (96, 32), "C": (64, 32)}
    core = (schedule.m * 64, schedule.k * 96, schedule.n * 32)
    sizes = [s.rows * s.columns * extents[s.shape][0] * extents[s.shape][1] for s in schedule.workspaces]
    assert max(sizes) < lay_out(schedule, core, 8, frozenset())[1] <= sum(sizes)


@pytest.mark.parametrize(("levels", "share"), [(1, 1 / 2), (2, 5 / 8), (3, 21 / 32)])
def test_depth_first_takes_two_blocks_a_level(levels: int, share: float) -> None:
    schedule = depth_first("winograd", levels)
    assert lay_out(schedule, (4096, 4096, 4096), 8, frozenset())[1] == share * 4096**2
    rows, columns = 4096 // 2, max(1024 // 2, 2048 // 2)
    wide = lay_out(find_depth_first(load("winograd").scheme).schedule, (4096, 1024, 2048), 8, frozenset())[1]
    assert wide == rows * columns + (1024 // 2) * (2048 // 2), "what holds sums of A holds products at another time"


@pytest.mark.parametrize(
    "schedule", [expanded("winograd", 1), expanded("strassen", 2), depth_first("winograd", 2), depth_first("strassen", 1)]
)
def test_what_is_not_alive_may_be_written_over(schedule: Schedule) -> None:
    """Every stage runs with rubbish in all workspaces that are not alive in it; what is alive comes out right."""
    alive = lifetimes(schedule)
    generator = random.Random(0)
    start = random_state(schedule, generator)
    state: Any = dict(start)
    for number, stage in enumerate(schedule.stages):
        one = Schedule("one", "one", schedule.m, schedule.k, schedule.n, (stage,), schedule.workspaces)
        for space in schedule.workspaces:
            if not alive[space.name] >> number & 1:
                state |= {block: np.array([[generator.randint(-9, 9) for _ in range(2)] for _ in range(2)]) for block in space.blocks}
        state = execute(one, state, 3, 0, generator)
    assert all(np.array_equal(state[block], value) for block, value in classical(schedule, start, 3, 0).items())


def test_a_space_is_not_alive_between_its_last_read_and_the_next_write() -> None:
    x, c = Block("X", 0, 0), Block("C", 0, 0)
    fill = ProductStage((Product(Block("A", 0, 0), Block("B", 0, 0), (Target(x, kept=0),)),))
    use = ProductStage((Product(x, Block("B", 0, 0), (Target(c),)),))
    other = ProductStage((Product(Block("A", 0, 0), Block("B", 0, 0), (Target(c),)),))
    more = ProductStage((Product(Block("A", 0, 0), Block("B", 0, 0), (Target(x),)),))
    schedule = Schedule(
        "x", "x", 1, 1, 1, (other, fill, other, more, use, other, fill, use), (Space("X", "A", 1, 1), Space("Y", "A", 1, 1))
    )
    assert lifetimes(schedule) == {"X": 0b11011110, "Y": 0}
