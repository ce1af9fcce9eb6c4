"""Schedules that overwrite C: beta is applied aside, and the strip for the rest of the sums is added last."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from runtime.operands import integers

import bilinear
from bilinear.backends import executor
from bilinear.backends.executor import parts_of
from bilinear.errors import StageError
from bilinear.frontend import load
from bilinear.ir.placement import Strip
from bilinear.lowering.place import place_schedule
from bilinear.lowering.prepare import prepare

CASES: list[tuple[str, Any]] = [("winograd_depth_first", "preserve"), ("winograd_in_place", "restore"), ("winograd_in_place", "consume")]
SHAPES = [(8, 8, 8), (9, 8, 11), (8, 9, 8), (9, 11, 13)]


def operands(shape: tuple[int, int, int]) -> tuple[Any, Any, Any]:
    m, k, n = shape
    generator = np.random.default_rng(m + k + n)
    return integers(generator, (m, k)), integers(generator, (k, n)), integers(generator, (m, n))


@pytest.mark.parametrize("beta", [0, 1, -2])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("name", "inputs"), CASES)
def test_every_shape_and_beta(name: str, inputs: Any, shape: tuple[int, int, int], beta: int) -> None:
    a, b, c = operands(shape)
    wanted, kept = 3 * (a @ b) + beta * c, (a.copy(), b.copy())
    if beta == 0:
        c[...] = np.nan
    bilinear.matmul(a, b, c, alpha=3, beta=beta, algorithm=name, levels=1, inputs=inputs)
    np.testing.assert_array_equal(c, wanted)
    if inputs != "consume":
        np.testing.assert_array_equal(a, kept[0])
        np.testing.assert_array_equal(b, kept[1])


def test_the_rest_of_the_sum_is_the_last_part() -> None:
    loaded = load("winograd_depth_first")
    schedule = prepare(loaded.scheme, loaded.schedule, 1, "preserve").schedule
    parts = parts_of(place_schedule(schedule, 9, 9, 9, 8))
    assert [isinstance(part, Strip) for part in parts] == [True, True, *[False] * len(schedule.stages), True]
    assert parts[-1] == Strip((0, 8), (8, 9), (0, 8))


@pytest.mark.parametrize("inputs", ["restore", "consume"])
def test_an_error_in_the_last_strip_leaves_the_operands(inputs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even consumed operands are restored, by the inverses of the stages that ran."""
    strip = executor._strip

    def broken(backend: Any, plan: Any, part: Strip, *rest: Any) -> Any:
        def fail() -> None:
            raise FloatingPointError("broken")

        return [fail] if part.inner[0] else strip(backend, plan, part, *rest)

    monkeypatch.setattr(executor, "_strip", broken)
    a, b, c = operands((9, 11, 13))
    kept = a.copy(), b.copy()
    with pytest.raises(StageError, match="a strip failed") as caught:
        bilinear.matmul(a, b, c, algorithm="winograd_in_place", levels=1, inputs=inputs)
    np.testing.assert_array_equal(a, kept[0])
    np.testing.assert_array_equal(b, kept[1])
    assert caught.value.undefined == ("C11", "C12", "C21", "C22")
