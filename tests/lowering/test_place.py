"""Plans: every element of C is covered as often as it must be, and workspaces lie apart, aligned, in one buffer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bilinear.backends.executor import lay_out
from bilinear.frontend import load
from bilinear.ir.matrix import call_of, layout_of, matrix_of
from bilinear.ir.placement import Placement
from bilinear.lowering.place import ALIGNMENT, PEELED_FROM, SMALLEST_BLOCK, choose_levels, core_of, place_schedule
from bilinear.lowering.prepare import prepare

SCHEDULES = [
    prepare(load(name).scheme, load(name).schedule, levels, inputs).schedule
    for name, levels, inputs in (
        ("strassen", 1, "preserve"),
        ("winograd", 2, "preserve"),
        ("hopcroft_kerr", 1, "preserve"),
        ("msmes", 2, "restore"),
    )
]
SIDES = st.integers(0, 40)
COLUMNS = st.sets(st.sampled_from("ABC")).map(frozenset)


@given(schedule=st.sampled_from(SCHEDULES), m=SIDES, k=SIDES, n=SIDES)
def test_core_and_strips_cover_every_product_once(schedule: Any, m: int, k: int, n: int) -> None:
    plan = place_schedule(schedule, m, k, n, 8)
    times, writes = np.zeros((m, k, n), int), np.zeros((m, n), int)
    times[: plan.core[0], : plan.core[1], : plan.core[2]] += 1
    assert all(extent % grid == 0 for extent, grid in zip(plan.core, (schedule.m, schedule.k, schedule.n), strict=True))
    for strip in plan.strips:
        rows, inner, columns = (slice(*extent) for extent in (strip.rows, strip.inner, strip.columns))
        times[rows, inner, columns] += 1
        writes[rows, columns] += 1
    assert (times == 1).all()
    assert len(plan.strips) <= 3
    core = writes[: plan.core[0], : plan.core[2]]
    assert (core == plan.core_is_begun).all(), "the core adds to C only where a strip has begun it"
    writes[: plan.core[0], : plan.core[2]] = 1
    assert (writes == 1).all()


LARGE = st.integers(PEELED_FROM, 10_000)


@given(schedule=st.sampled_from(SCHEDULES), m=LARGE, k=LARGE, n=LARGE, itemsize=st.sampled_from([4, 8, 16]))
def test_blocks_of_large_cores_are_whole_sectors_and_the_largest_such(schedule: Any, m: int, k: int, n: int, itemsize: int) -> None:
    plan = place_schedule(schedule, m, k, n, itemsize)
    assert all(extent * itemsize % 32 == 0 for extent in plan.block)
    for extent, core, parts in zip((m, k, n), plan.core, (schedule.m, schedule.k, schedule.n), strict=True):
        assert 0 <= extent - core < parts * 32 // itemsize


def test_sectors_are_not_asked_for_where_they_cost_much() -> None:
    assert core_of((4, 4, 4), (4095, 9999, 9999), 8) == (4092, 9996, 9996), "one extent is small"
    assert core_of((1, 1, 1), (5001, 5001, 5001), 8) == (5001, 5001, 5001), "there is one block"
    assert core_of((1, 1100, 1), (4097, 4098, 4099), 8) == (4097, 3300, 4099), "sectors would leave nothing"
    assert core_of((1, 80, 1), (4097, 5119, 4099), 8) == (4097, 5040, 4099), "blocks are narrow"
    assert core_of((2, 2, 2), (1, 5000, 5000), 8) == (0, 5000, 5000), "an extent is smaller than the grid"


@given(schedule=st.sampled_from(SCHEDULES), m=SIDES, k=SIDES, n=SIDES, itemsize=st.sampled_from([4, 8, 16]), columns=COLUMNS)
def test_workspaces_lie_apart_aligned_in_one_buffer(schedule: Any, m: int, k: int, n: int, itemsize: int, columns: Any) -> None:
    plan = place_schedule(schedule, m, k, n, itemsize, columns)
    ends = [0]
    for slot in sorted(plan.slots, key=lambda slot: slot.offset):
        assert slot.offset * itemsize % ALIGNMENT == 0 and slot.leading * itemsize % 16 == 0
        assert slot.offset >= ends[-1]
        by_column = schedule.space(slot.space).shape in columns
        assert slot.leading >= (slot.rows if by_column else slot.columns)
        ends.append(slot.offset + slot.leading * (slot.columns if by_column else slot.rows))
    assert plan.workspace_elements >= ends[-1]
    if schedule.in_place:
        assert plan.workspace_elements == 0
    check_views(plan, itemsize)


def check_views(plan: Placement, itemsize: int) -> None:
    """The executor's views of the buffer share no element."""
    buffer = np.zeros(plan.workspace_elements, {4: np.float32, 8: np.float64, 16: np.complex128}[itemsize])
    a, b, c = (np.empty(shape, buffer.dtype) for shape in ((plan.m, plan.k), (plan.k, plan.n), (plan.m, plan.n)))
    spaces = lay_out(plan, call_of(a, b, c, workspace=matrix_of(buffer)))
    for slot in plan.slots:
        assert spaces[slot.space].layout == layout_of(spaces[slot.space].memory)
        assert spaces[slot.space].layout.shape == (slot.rows, slot.columns)
        spaces[slot.space].memory[...] += 1
    assert buffer.max(initial=0) <= 1


@pytest.mark.parametrize(("side", "levels"), [(1, 0), (2 * SMALLEST_BLOCK - 1, 0), (2 * SMALLEST_BLOCK, 1), (8 * SMALLEST_BLOCK, 3)])
def test_levels_are_chosen_while_blocks_stay_large(side: int, levels: int) -> None:
    assert choose_levels(load("strassen").scheme, side, side, side) == levels
    assert choose_levels(load("strassen").scheme, side, 1, side) == 0
