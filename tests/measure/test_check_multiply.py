"""The check of one multiply: bit for bit where floating point is exact, else within the bound that always holds."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from each_case import each

import bilinear
from bilinear.errors import BilinearError
from bilinear.frontend import Loaded, load, parse_source
from bilinear.measure import check_multiply as module
from bilinear.measure.check_multiply import Check, check
from bilinear.source import Source

ONE = "scheme one <1,1,1;1>\n  M1: 1 | 1 | 1\n"
ROOT = "scheme root <1,2,1;2> over Q[sqrt(3)]\n  M1: sqrt(3)/2 1/2 | sqrt(3)/2 1/2 | 1\n  M2: -1/2 sqrt(3)/2 | -1/2 sqrt(3)/2 | 1\n"
THIRDS = "scheme thirds <1,2,1;2>\n  M1: 1/3 2/3 | 1 1 | 1\n  M2: 2/3 -2/3 | 1 -1/2 | 1\n"
HALVES = "scheme halves <1,2,1;2>\n  M1: 1/2 1/2 | 1 1 | 1\n  M2: 1/2 -1/2 | 1 -1 | 1\n"
TURNED = "scheme turned <1,2,1;2> over Q[i]\n  M1: i 0 | -i 0 | 1\n  M2: 0 1+i | 0 1/2-i/2 | 1\n"
COMPLEX = "scheme complex <1,2,1;2> over Q[i]\n  M1: 1 i | 1/2 -i/2 | 1\n  M2: 1 -i | 1/2 i/2 | 1\n"
THIRD_IN_PLACE = (
    f"{ONE}schedule third of one: in-place, restores A B\n  stage {{ A11 = 1/3 A11 }}\n  stage {{ 3 C11 += A11 * B11 }}\n"
    "  restore stage { A11 = 3 A11 }\n"
)


def parsed(text: str) -> Loaded:
    source = Source("given.bl", text)
    found = parse_source(source)
    return replace(load("strassen"), scheme=found.schemes[0], schedule=next(iter(found.schedules), None), source=source)


def checked(text: str, inputs: str = "preserve", dtype: str = "float32", levels: int = 1) -> Check:
    return check(parsed(text), (37, 41, 29), dtype, levels, inputs)


@each("dtype", ["float32", "float64"])
@each(
    ("text", "inputs", "exact"),
    [
        (ROOT, "preserve", None),
        (THIRDS, "preserve", None),
        (THIRD_IN_PLACE, "restore", None),
        (HALVES, "preserve", True),
        (TURNED, "preserve", True),
        (ONE, "preserve", True),
    ],
)
def test_integers_are_exact_where_floating_point_is_and_within_the_bound_elsewhere(
    text: str, inputs: str, exact: bool | None, dtype: str
) -> None:
    """A scheme with i runs on reals where its products multiply the i away."""
    for levels in (1, 2):
        found = checked(text, inputs, dtype, levels)
        assert found.passed and found.exact is exact and found.restored and found.integers_within
        assert json.loads(json.dumps(found.to_json()))["exact"] is exact


def wrong_by(size: float, which: int) -> Any:
    """A multiply that is `size` off in one element of an operand or of C."""

    def multiply(a: Any, b: Any, out: Any = None, **options: Any) -> Any:
        bilinear.matmul(a, b, out, **options)
        (a, b, out)[which][0, 0] += np.float32(size)

    return multiply


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize(("text", "inputs"), [(THIRD_IN_PLACE, "restore"), (ONE, "preserve")])
def test_a_wrong_element_fails_the_check(text: str, inputs: str, which: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nothing has to be exact: one unit is far above what rounding does to sums of 41 products of small integers."""
    monkeypatch.setattr(module, "matmul", wrong_by(1.0, which))
    found = checked(text, inputs)
    assert not found.passed
    assert not (found.exact and found.restored) if text == ONE else not (found.restored and found.integers_within)


def test_what_is_allowed_to_integers_is_not_rounded_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """2**-40 is a wrong bit to an exact schedule in float64 and within the bound of one with thirds."""
    monkeypatch.setattr(module, "matmul", wrong_by(2.0**-40, 2))
    exact, rounded = checked(ONE, dtype="float64"), checked(THIRDS, dtype="float64")
    assert exact.exact is False and not exact.passed
    assert rounded.exact is None and rounded.passed


def test_coefficients_that_are_no_real_numbers_are_refused() -> None:
    with pytest.raises(BilinearError, match="E528"):
        checked(COMPLEX)


def test_a_scale_that_leaves_no_bits_is_not_held_to_every_bit() -> None:
    """What is a multiple of 2**-24 and as large as 1 takes more bits than float32 has."""
    text = THIRD_IN_PLACE.replace("1/3", "1/16777216").replace("3 C11", "16777216 C11").replace("3 A11", "16777216 A11")
    assert checked(text, "restore").exact is None and checked(text, "restore").passed
    assert checked(text, "restore", "float64").exact is True
