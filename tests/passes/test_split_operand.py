"""Stages that are split and cut: the whole computes the same, maps are simultaneous, and an integer coefficient stays an int."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from each_case import each

import bilinear
from bilinear.algorithm import Algorithm, load
from bilinear.frontend import parse_source
from bilinear.ir.linear import LinearMap
from bilinear.ir.schedule import Block, BlockMap, LinearStage, Product, ProductStage, Schedule, Target
from bilinear.lowering.prepare import prepare
from bilinear.passes.nest_levels import nest_levels
from bilinear.passes.scheme_to_schedule import scheme_to_schedule
from bilinear.passes.split_operand import split_operand
from bilinear.source import Source
from bilinear.verify.schedule import prove_schedule

EXPANDED = ["strassen", "winograd", "laderman", "alphatensor_424"]


def lowered(name: str, levels: int) -> Schedule:
    loaded = bilinear.load(name)
    return prepare(loaded.scheme, loaded.schedule, levels, "preserve").schedule


@each("operand", ["A", "B"])
@each(("name", "levels"), [*((name, 1) for name in EXPANDED), ("strassen", 2), ("msmes", 2), ("winograd_depth_first", 1)])
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


FIRST, SECOND = Block("A", 0, 0), Block("A", 0, 1)
ONE = LinearMap(1, (((0, 1),),))
BY_TWO = LinearStage((BlockMap((SECOND,), (FIRST,), ONE), BlockMap((FIRST,), (SECOND,), ONE)))
BY_ONE = LinearStage((BlockMap((FIRST, SECOND), (SECOND, FIRST), LinearMap(2, (((0, 1),), ((1, 1),)))),))


def exchanging(exchange: LinearStage, folder: Path) -> Algorithm:
    """C = A1*B1 + A2*B2 in which the blocks of A change places, and come back."""
    (folder / "two.bl").write_text("scheme two <1,2,1;2>\n  C11 = A11*B11 + A12*B21\n")
    two = load(folder / "two.bl")
    products = tuple(Product(a, Block("B", i, 0), (Target(Block("C", 0, 0)),)) for i, a in enumerate((SECOND, FIRST)))
    stages = (exchange, ProductStage(products), replace(exchange, restores=True))
    return replace(two, schedule=Schedule("exchanging", "two", 1, 2, 1, stages, restores=("A", "B")))


@pytest.mark.parametrize("exchange", [BY_ONE, BY_TWO], ids=["one map", "two maps"])
@pytest.mark.parametrize("levels", [1, 2])
def test_blocks_change_places(exchange: LinearStage, levels: int, tmp_path: Path) -> None:
    algorithm = exchanging(exchange, tmp_path)
    a, b = np.arange(1.0, 33.0).reshape(4, 8), np.arange(7.0, 39.0).reshape(8, 4)
    before = a.copy()
    assert np.array_equal(algorithm.matmul(a, b, levels=levels, inputs="restore"), before @ b)
    assert np.array_equal(a, before)


SCALED = """scheme two <1,2,1;2>
  M1: 1/2 0 | 2 0 | 1
  M2: 0 1 | 0 1 | 1
schedule scaled of two: in-place, restores A B
  stage { A11 = 1/2 A11 ; A12 = 2 A12 }
  stage { 2 C11 += A11 * B11 }
  stage { 1/2 C11 += A12 * B21 }
  restore stage { A11 = 2 A11 ; A12 = 1/2 A12 }
"""


def found_in(schedule: Schedule) -> list[object]:
    """The coefficients of all products."""
    products = [product for stage in schedule.stages if not isinstance(stage, LinearStage) for product in stage.products]
    return [target.coefficient for product in products for target in product.targets]


@pytest.mark.parametrize(("in_place", "levels", "wanted"), [(False, 1, {1}), (False, 2, {1}), (True, 2, {4, 1, Fraction(1, 4)})])
def test_products_have_integers_where_the_number_is_one(in_place: bool, levels: int, wanted: set[object]) -> None:
    parsed = parse_source(Source("scaled.bl", SCALED))
    schedule = parsed.schedules[0] if in_place else scheme_to_schedule(parsed.schemes[0])
    assert isinstance(schedule, Schedule)
    coefficients = found_in(nest_levels([schedule] * levels))
    assert set(coefficients) == wanted
    assert not any(isinstance(c, Fraction) and c.denominator == 1 for c in coefficients)
