"""Bounds for elements that are stored in 8 bits and computed in float32, beside schedules that are run that way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bilinear.analysis.accuracy import classical_bound, drift_bound, error_bound, probable_error, run_error_bound, schedule_bound
from bilinear.frontend import load
from bilinear.ir.element import FLOAT32, Element
from bilinear.ir.linear import LinearMap
from bilinear.ir.number import to_float
from bilinear.ir.schedule import Block, BlockMap, LinearStage, Schedule
from bilinear.lowering.prepare import prepare

STORED = Element("stored", 2, 8, -133, 128, "", "", "", 0, FLOAT32)
U, SUMMED = STORED.roundoffs
Blocks = dict[Block, Any]


def rounded(x: Any) -> Any:
    """float32 to 8 significant bits, ties to even."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def combined(terms: Any, values: list[Any]) -> Any:
    total = np.zeros((), np.float32)
    for index, c in terms:
        total = total + np.float32(to_float(c)) * values[index]
    return total


def run(schedule: Schedule, state: Blocks) -> None:
    """The schedule on blocks, C overwritten: computed in float32, and rounded wherever a block is written."""
    for stage in schedule.stages:
        if isinstance(stage, LinearStage):
            written: Blocks = {}
            for block_map in stage.maps:
                values = [state[block] for block in block_map.sources]
                for step in block_map.map.steps:
                    values.append(combined(step, values))
                for target, output, kept in zip(block_map.targets, block_map.map.outputs, block_map.kept, strict=True):
                    old = state[target] if kept == 1 else np.float32(0)
                    written[target] = rounded(old + combined(output, values))
            state.update(written)
            continue
        for product in stage.products:
            value = state[product.left] @ state[product.right]
            for t in product.targets:
                old = state[t.block] if t.kept == 1 else np.float32(0)
                state[t.block] = rounded(old + np.float32(to_float(t.coefficient)) * value)


def grid_of(x: Any, rows: int, columns: int) -> list[Any]:
    return [part for row in np.split(x, rows) for part in np.split(row, columns, axis=1)]


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize(
    ("name", "inputs"), [("strassen", "preserve"), ("winograd", "preserve"), ("laderman", "preserve"), ("msmes", "restore")]
)
def test_the_bounds_hold(name: str, inputs: str, levels: int, positive: bool) -> None:
    loaded, size = load(name), 72
    schedule = prepare(loaded.scheme, loaded.schedule, levels, inputs).schedule
    generator = np.random.default_rng(levels)
    draw = generator.random if positive else generator.standard_normal
    a, b = (rounded(draw((size, size)).astype(np.float32)) for _ in "AB")
    state: Blocks = {}
    for space, x in (("A", a), ("B", b)):
        own = schedule.space(space)
        state |= zip(own.blocks, grid_of(x, own.rows, own.columns), strict=True)
    run(schedule, state)
    c = np.block([[state[Block("C", i, j)] for j in range(schedule.n)] for i in range(schedule.m)])
    error = abs(c - a.astype(np.float64) @ b).max() / (abs(a).max() * abs(b).max())
    traced = run_error_bound(schedule, size, U, SUMMED).product * U
    bound = schedule_bound(loaded.scheme, schedule, size, U, SUMMED).product * U
    probable = probable_error(loaded.scheme, levels, (size, size, size), 0.99, (0.87 * positive,) * 2, SUMMED / U) * U
    assert error <= probable * np.sqrt((a**2).mean() * (b**2).mean()) / (abs(a).max() * abs(b).max())
    assert classical_bound(size, U, SUMMED) * U < bound and 0 < error <= bound and error <= traced
    assert bound < error_bound(loaded.scheme, levels, size, U).product * U, "as if every sum were rounded to 8 bits"
    for space, x in (("A", a), ("B", b)):
        own = schedule.space(space)
        moved = max(abs(state[block] - part).max() for block, part in zip(own.blocks, grid_of(x, own.rows, own.columns), strict=True))
        assert moved <= drift_bound(schedule, U, SUMMED).worst() * U * abs(x).max()
        assert (moved > 0) == (inputs == "restore")


def test_a_shared_value_is_rounded_in_every_block_that_it_is_written_to() -> None:
    """A11 and A21 become s and s + A21 with s = A11 + A12. Restored, A21 keeps two roundings of s, which do not cancel as s itself does."""
    a11, a12, a21 = blocks = Block("A", 0, 0), Block("A", 0, 1), Block("A", 1, 0)
    both, added, back = ((0, 1), (1, 1)), ((3, 1), (2, 1)), ((0, 1), (1, -1))
    begin = BlockMap(blocks, (a11, a21), LinearMap(3, (((3, 1),), added), (both,)), (0, 0))
    ends = [BlockMap((x, y), (x,), LinearMap(2, (back,)), (0,)) for x, y in ((a21, a11), (a11, a12))]
    schedule = Schedule("shared", "shared", 2, 2, 1, tuple(LinearStage((m,)) for m in (begin, *ends)))
    sizes = {a11: 0.5, a12: 0.5 + 2.0**-8, a21: 2.0**-20}
    state: Blocks = {block: np.float32(size) for block, size in sizes.items()}
    run(schedule, state)
    stored, finer = (
        sum(weight * sizes.get(block, 0) for drift in bound.blocks if drift.block == a21 for block, weight in drift.weights)
        for bound in (drift_bound(schedule, U, SUMMED), drift_bound(schedule))
    )
    moved = abs(float(state[a21]) - sizes[a21])
    assert 1.9 * 2.0**-8 < moved <= stored * U
    assert stored > finer + 1, "in float32 s is rounded once, and its error cancels"


def test_types_that_are_stored_as_they_are_computed_keep_their_bounds() -> None:
    schedule, u = prepare(load("winograd").scheme, None, 1, "preserve").schedule, FLOAT32.unit_roundoff
    assert FLOAT32.roundoffs == (u, u)
    assert run_error_bound(schedule, 64, u, u) == run_error_bound(schedule, 64, u)
    assert error_bound(load("winograd").scheme, 1, 64, u, u) == error_bound(load("winograd").scheme, 1, 64, u)
    assert drift_bound(schedule, u, u) == drift_bound(schedule)


@pytest.mark.parametrize("inner", [1024, 4096, 65536])
def test_long_sums_have_bounds(inner: int) -> None:
    """If each of their terms were rounded to 8 bits, there would be none."""
    scheme = load("strassen").scheme
    assert error_bound(scheme, 1, inner, U).product == float("inf")
    assert error_bound(scheme, 1, inner, U, SUMMED).product * U < inner and classical_bound(inner, U, SUMMED) * U < inner * 8 * U
