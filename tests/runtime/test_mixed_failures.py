"""A failure or an interrupt at every step of plans that write A, B, workspaces and C: A and B are restored."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from runtime.operands import integers

import bilinear
from bilinear.backends.numpy_executor import NumpyExecutor
from bilinear.errors import StageError
from bilinear.frontend import Loaded, load, parse_source
from bilinear.ir.linear import LinearMap
from bilinear.ir.schedule import Block, BlockMap, LinearStage, Stage
from bilinear.lowering.prepare import Level, prepare, prepare_levels
from bilinear.source import Source
from bilinear.verify.elimination import invert_stage

Step = Callable[[], None]
SHAPE = (19, 24, 23)
"""Strips of C run, too, before the stages. There is no strip for the rest of the sums: it might run after the stages."""
PLANS = [("msmes", "winograd"), ("winograd_in_place", "winograd"), ("msmes", "msmes", "winograd")]

STAGED = """schedule staged of winograd: C = A*B, restores A B, temporary S1 like A, temporary T1 like B
  stage         { A11 -= A21 ; B12 -= B11 + B22 }
  stage         { A22 -= A11 ; T1 = -B11 - B12 }
  stage         { S1 = A12 - A22 }
  stage         { C21, C22 = A11 * T1 ; C12 = S1 * B22 }
  stage         { -C12, -C21, -C22 += A22 * B12 }
  stage         { A11 += A21 ; A22 += A11 ; B12 += B22 }
  stage         { S1 = A21 + A22 ; T1 = B22 - B12 - B21 }
  stage         { C11 = A11 * B11 }
  stage         { C12, C21, C22 += A11 * B11 ; C12, C22 += S1 * B12 ; C11 += A12 * B21 ; C21 -= A22 * T1 }
  restore stage { B12 += B11 }
"""

KEEPING = """schedule keeping of naive2x2: C = A*B, restores A B, temporary X like A
  stage         { X = A11 ; A11 += A12 }
  stage         { C11 = A11 * B11 ; C12 = X * B12 ; C21 = A21 * B11 ; C22 = A22 * B22 }
  stage         { C11 -= A12 * B11 ; C12 += A12 * B22 ; C21 += A22 * B21 ; C22 += A21 * B12 }
  stage         { A11 = X }
  stage         { C11 += A12 * B21 }
"""


@pytest.fixture(autouse=True)
def handler() -> Any:
    """Python's own handler, which must be back after every call."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


@lru_cache(maxsize=4)
def written(text: str, scheme: str) -> Loaded:
    own = load(scheme)
    source = Source("own.bl", text)
    (schedule,) = parse_source(source).schedules
    return replace(own, schedule=schedule, source=source)


def operands() -> tuple[Any, Any, Any]:
    generator = np.random.default_rng(4)
    m, k, n = SHAPE
    return integers(generator, (m, k)), integers(generator, (k, n)), integers(generator, (m, n))


def mixed(levels: tuple[str, ...]) -> tuple[tuple[Stage, ...], dict[str, Any]]:
    """The stages of a plan, and the options that run it."""
    each = tuple(Level(one.scheme, one.schedule) for one in map(load, levels))
    choice = bilinear.plan(*SHAPE, device="h200", inputs="restore", levels=levels)
    return prepare_levels(each, "restore").stages, {"plan": choice}


def own(text: str, scheme: str) -> tuple[tuple[Stage, ...], dict[str, Any]]:
    """The stages of a schedule that is not shipped, and the options that run it."""
    loaded = written(text, scheme)
    return prepare(loaded.scheme, loaded.schedule, 1, "restore").schedule.stages, {"algorithm": loaded, "levels": 1, "inputs": "restore"}


def disturbed(monkeypatch: pytest.MonkeyPatch, stages: tuple[Stage, ...], at: int, disturb: Callable[[], None]) -> None:
    """Disturb the stage with this number at its end, but no strip and no stage that undoes others."""
    steps = NumpyExecutor.steps

    def changed(self: NumpyExecutor, plan: Any, given: Any, *rest: Any) -> list[Step]:
        made = steps(self, plan, given, *rest)
        if given != stages:
            return made

        def run() -> None:
            made[at]()
            disturb()

        return [*made[:at], run, *made[at + 1 :]]

    monkeypatch.setattr(NumpyExecutor, "steps", changed)


def break_down() -> None:
    raise FloatingPointError("broken")


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def steps_of(stages: tuple[Stage, ...]) -> list[int]:
    """Every step of two levels. Three levels have seven times as many steps: every third one, odd and even, and the last."""
    return sorted({*range(0, len(stages), 3 if len(stages) > 40 else 1), len(stages) - 1})


def targets(stage: Stage) -> set[str]:
    """The blocks of A and B that a stage writes."""
    maps = stage.maps if isinstance(stage, LinearStage) else ()
    return {str(target) for block_map in maps for target in block_map.targets if target.space in "AB"}


CASES = [*(pytest.param(mixed, (levels,), id=" ".join(levels)) for levels in PLANS), pytest.param(own, (STAGED, "winograd"), id="staged")]


@pytest.mark.sample(0)
@pytest.mark.parametrize(("make", "arguments"), CASES)
def test_an_interrupt_at_any_step_leaves_the_operands(make: Any, arguments: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stages, options = make(*arguments)
    written = {target.space for stage in stages if isinstance(stage, LinearStage) for m in stage.maps for target in m.targets}
    assert {"A", "B"} < written, "linear stages write workspaces or C too"
    for at in steps_of(stages):
        a, b, c = operands()
        kept, wanted = (a.copy(), b.copy()), a @ b
        with monkeypatch.context() as patch:
            disturbed(patch, stages, at, press)
            with pytest.raises(KeyboardInterrupt) as caught:
                bilinear.matmul(a, b, c, **options)
        assert not getattr(caught.value, "__notes__", [])
        assert np.array_equal(a, kept[0]) and np.array_equal(b, kept[1]), at
        assert at + 1 < len(stages) or np.array_equal(c, wanted)


@pytest.mark.sample(0)
@pytest.mark.parametrize(("make", "arguments"), CASES)
def test_an_error_at_any_step_that_does_not_write_the_operands_leaves_them(
    make: Any, arguments: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages, options = make(*arguments)
    for at in steps_of(stages):
        stage = stages[at]
        a, b, c = operands()
        kept = a.copy(), b.copy()
        with monkeypatch.context() as patch:
            disturbed(patch, stages, at, break_down)
            with pytest.raises(StageError, match="broken") as caught:
                bilinear.matmul(a, b, c, **options)
        named = {name for name in (*caught.value.changed, *caught.value.undefined) if name[0] in "AB"}
        if targets(stage):
            assert targets(stage) <= named
            continue
        assert not named and "could not" not in str(caught.value)
        assert np.array_equal(a, kept[0]) and np.array_equal(b, kept[1]), at


def test_the_operands_come_back_to_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    stages, options = mixed(PLANS[0])
    draw = np.random.default_rng(5)
    a, b = draw.standard_normal(SHAPE[:2]), draw.standard_normal(SHAPE[1:])
    kept = a.copy(), b.copy()
    disturbed(monkeypatch, stages, len(stages) // 2, press)
    with pytest.raises(KeyboardInterrupt):
        bilinear.matmul(a, b, **options)
    for array, old in zip((a, b), kept, strict=True):
        np.testing.assert_allclose(array, old, rtol=0, atol=1e-14)


def test_what_a_workspace_gives_back_is_said_not_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage that reads A11 back from X has no inverse, so an interrupt after it says so, although A and B happen to be whole here."""
    stages, options = own(KEEPING, "naive2x2")
    reads = next(i for i, stage in enumerate(stages) if i > 0 and targets(stage))
    for at in range(len(stages)):
        a, b, c = operands()
        kept = a.copy(), b.copy()
        with monkeypatch.context() as patch:
            disturbed(patch, stages, at, press)
            with pytest.raises(KeyboardInterrupt) as caught:
                bilinear.matmul(a, b, c, **options)
        notes = getattr(caught.value, "__notes__", [])
        assert len(notes) == (reads <= at < len(stages) - 1)
        assert all("could not be restored: the stage writes A or B from X_A11, which" in note for note in notes)
        assert np.array_equal(a, kept[0]) and np.array_equal(b, kept[1])


def block(name: str) -> Block:
    return Block(name[0], int(name[1]) - 1, int(name[2]) - 1)


def stage_of(sources: str, targets: str, *rows: tuple[int, ...]) -> LinearStage:
    """One map of a stage, as a dense matrix."""
    forms = tuple(tuple((i, c) for i, c in enumerate(row) if c) for row in rows)
    before, after = (tuple(map(block, names.split())) for names in (sources, targets))
    return LinearStage((BlockMap(before, after, LinearMap(len(before), forms)),))


def test_the_inverse_is_that_of_the_operands_blocks_alone() -> None:
    stage = stage_of("A11 A12 W11", "A11 W11 C11", (1, 2, 0), (1, 1, 5), (0, 3, 1))
    (inverse,) = invert_stage(stage).maps
    assert inverse.targets == (block("A11"),)
    assert dict(zip(inverse.sources, (1, -2), strict=True)) == {block("A11"): 1, block("A12"): -2}
    assert {inverse.sources[i]: c for i, c in inverse.map.matrix[0]} == {block("A11"): 1, block("A12"): -2}


def test_a_stage_that_writes_no_operand_has_nothing_to_undo() -> None:
    assert invert_stage(stage_of("A11 W11", "W11", (1, 1))).maps == ()


def test_what_comes_from_a_workspace_has_no_inverse() -> None:
    with pytest.raises(ArithmeticError, match="writes A or B from W11"):
        invert_stage(stage_of("A11 W11", "A11", (1, 1)))
    with pytest.raises(ZeroDivisionError, match="singular"):
        invert_stage(stage_of("A11 A12", "A11", (0, 1)))
