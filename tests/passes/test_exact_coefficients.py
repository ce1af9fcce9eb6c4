"""Coefficients that passes multiply out: an integer stays an `int`, so that integer types take it and messages name true fractions."""

from __future__ import annotations

from fractions import Fraction

import pytest

from bilinear.frontend import parse_source
from bilinear.ir.schedule import LinearStage, Schedule
from bilinear.passes.nest_levels import nest_levels
from bilinear.passes.scheme_to_schedule import scheme_to_schedule
from bilinear.source import Source

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
