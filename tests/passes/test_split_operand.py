"""Splitting a schedule: what comes from one operand alone may run first, and the whole still computes the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

import bilinear
from bilinear.ir.schedule import LinearStage, Schedule
from bilinear.lowering.prepare import prepare
from bilinear.passes.split_operand import split_operand
from bilinear.verify.schedule import prove_schedule

EXPANDED = ["strassen", "winograd", "laderman", "alphatensor_424"]


def lowered(name: str, levels: int) -> Schedule:
    loaded = bilinear.load(name)
    return prepare(loaded.scheme, loaded.schedule, levels, "preserve").schedule


@pytest.mark.parametrize("operand", ["A", "B"])
@pytest.mark.parametrize(
    ("name", "levels"), [*((name, 1) for name in EXPANDED), ("strassen", 2), ("msmes", 2), ("winograd_depth_first", 1)]
)
def test_the_parts_one_after_the_other_multiply(name: str, levels: int, operand: str) -> None:
    schedule = lowered(name, levels)
    parts = split_operand(schedule, operand)
    if name == "winograd_depth_first":
        assert parts is None  # its sums share two temporaries
        return
    assert parts is not None
    first, rest = parts
    joined = replace(schedule, stages=first.stages + rest.stages)
    scheme = bilinear.load(name).scheme
    whole = scheme if levels == 1 else bilinear.load(f"{scheme.name} (x) {scheme.name}").scheme
    prove_schedule(joined, whole).require()


@pytest.mark.parametrize("operand", ["A", "B"])
def test_the_first_part_reads_one_operand_and_the_rest_computes_nothing_from_it_alone(operand: str) -> None:
    parts = split_operand(lowered("winograd", 2), operand)
    assert parts is not None
    first, rest = parts
    kept = {space.name for space in first.workspaces}
    for stage in first.stages:
        assert isinstance(stage, LinearStage)
        assert {block.space for m in stage.maps for block in m.sources} <= kept | {operand}
        assert {block.space for m in stage.maps for block in m.targets} <= kept
    assert kept.isdisjoint(rest.written)
    assert split_operand(rest, operand) is None


def test_a_schedule_that_writes_the_operand_keeps_nothing() -> None:
    loaded = bilinear.load("msmes")
    schedule = prepare(loaded.scheme, loaded.schedule, 1, "restore").schedule
    assert split_operand(schedule, "A") is None and split_operand(schedule, "B") is None
