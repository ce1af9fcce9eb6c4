"""What a backend does for the engine, and the engine: run a plan's stages in order, and leave A and B whole whatever happens."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from bilinear.errors import StageError
from bilinear.ir.plan import Plan, Strip
from bilinear.ir.schedule import Block, LinearStage, ProductStage, Stage
from bilinear.planner.plan import make_plan
from bilinear.planner.prepare import plain
from bilinear.verify.inverse import invert_stage

Step = Callable[[], None]


class Executor(Protocol):
    """A backend: where arrays live and how a stage runs on them."""

    name: str

    def allocate(self, elements: int, like: Any) -> Any: ...
    def steps(self, plan: Plan, stages: tuple[Stage, ...], spaces: dict[str, Any], alpha: Any, beta: Any) -> list[Step]: ...
    def wait(self) -> None: ...
    def is_finite(self, array: Any) -> bool: ...


def execute(executor: Executor, plan: Plan, a: Any, b: Any, c: Any, alpha: Any, beta: Any) -> None:
    """Run a plan on 2-D arrays: c = alpha * a @ b + beta * c.

    Everything is allocated before the first write. Where the plan writes A and B, Ctrl-C waits for the end of a stage, and the inverse
    of the stages that have run brings A and B back (to rounding) before the exception leaves; an error inside a stage that leaves
    blocks undefined becomes a `StageError` that lists them. Strips run first, while A and B are still the caller's.
    """
    stages = plan.schedule.stages if plan.core[0] else ()
    spaces = _spaces(executor, plan, a, b, c)
    steps = executor.steps(plan, stages, spaces, alpha, 1 if plan.core_is_begun else beta)
    strips = [_strip(executor, plan, strip, a, b, c, alpha, beta) for strip in plan.strips]
    if not plan.schedule.in_place:
        for step in (*strips, *steps):
            step()
        return
    with _deferred_interrupt() as interrupted:
        for step in strips:
            step()
        for number, (stage, step) in enumerate(zip(stages, steps, strict=True)):
            try:
                step()
            except BaseException as error:
                _recover(executor, plan, stages[:number], stage, spaces, error)
                raise
            if interrupted() and number + 1 < len(stages):
                _undo(executor, plan, stages[: number + 1], spaces)
                raise KeyboardInterrupt
        if interrupted():
            raise KeyboardInterrupt


def _spaces(executor: Executor, plan: Plan, a: Any, b: Any, c: Any) -> dict[str, Any]:
    """The core of each operand, and each workspace as a view of one buffer."""
    m, k, n = plan.core
    spaces = {"A": a[:m, :k], "B": b[:k, :n], "C": c[:m, :n]}
    if not plan.slots:
        return spaces
    buffer = executor.allocate(plan.workspace_elements, c)
    for slot in plan.slots:
        shape = plan.schedule.space(slot.space).shape
        if shape in plan.column_major:
            whole = buffer[slot.offset : slot.offset + slot.leading * slot.columns].reshape(slot.columns, slot.leading)
            spaces[slot.space] = whole[:, : slot.rows].T
        else:
            whole = buffer[slot.offset : slot.offset + slot.rows * slot.leading].reshape(slot.rows, slot.leading)
            spaces[slot.space] = whole[:, : slot.columns]
    return spaces


def _strip(executor: Executor, plan: Plan, strip: Strip, a: Any, b: Any, c: Any, alpha: Any, beta: Any) -> Step:
    """A thin product that peeling left over, by the plain schedule."""
    rows, inner, columns = slice(*strip.rows), slice(*strip.inner), slice(*strip.columns)
    left, right, out = a[rows, inner], b[inner, columns], c[rows, columns]
    schedule = plain().schedule
    m, k, n = left.shape[0], left.shape[1], right.shape[1]
    thin = make_plan(schedule, m, k, n, c.dtype.itemsize)
    whole = Plan(schedule, m, k, n, (m, k, n), (), (), 0) if k == 0 else thin
    (step,) = executor.steps(whole, schedule.stages, {"A": left, "B": right, "C": out}, alpha, beta)
    return step


@contextmanager
def _deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """Hold Ctrl-C back inside the block; the value tells whether it was pressed. Only the main thread receives signals."""
    pressed = [False]
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return

    def remember(signum: int, frame: Any) -> None:
        pressed[0] = True

    previous = signal.signal(signal.SIGINT, remember)
    try:
        yield lambda: pressed[0]
    finally:
        signal.signal(signal.SIGINT, previous)


@dataclass(frozen=True)
class _Written:
    """The blocks of A, B and C that a run of stages has written."""

    operands: tuple[Block, ...]
    results: tuple[Block, ...]


def _written(stages: tuple[Stage, ...]) -> _Written:
    blocks: dict[Block, None] = {}
    for stage in stages:
        if isinstance(stage, LinearStage):
            blocks.update((t, None) for m in stage.maps for t in m.targets)
        else:
            blocks.update((t.block, None) for p in stage.products for t in p.targets)
    return _Written(tuple(b for b in blocks if b.space in "AB"), tuple(b for b in blocks if b.space == "C"))


def _undo(executor: Executor, plan: Plan, done: tuple[Stage, ...], spaces: dict[str, Any]) -> None:
    """Run the inverses of the linear stages that have run, last first."""
    inverses = tuple(invert_stage(stage) for stage in reversed(done) if isinstance(stage, LinearStage))
    for step in executor.steps(plan, inverses, spaces, 1, 0):
        step()
    executor.wait()


def _recover(
    executor: Executor, plan: Plan, done: tuple[Stage, ...], failing: Stage, spaces: dict[str, Any], error: BaseException
) -> None:
    """After an error inside a stage: bring A and B back where that is possible, and say which blocks are not what they were."""
    before, now = _written(done), _written((failing,))
    results = tuple(str(b) for b in before.results if b not in now.results)
    undefined = now.results
    if isinstance(failing, ProductStage):
        try:
            _undo(executor, plan, done, spaces)
        except Exception:
            changed = (*map(str, before.operands), *results)
            raise StageError(f"a product stage failed and A, B could not be restored: {error}", changed, _names(undefined)) from error
        raise StageError(f"a product stage failed, A and B are restored: {error}", results, _names(undefined)) from error
    changed = tuple(str(b) for b in before.operands if b not in now.operands) + results
    raise StageError(f"a linear stage failed: {error}", changed, _names((*now.operands, *undefined))) from error


def _names(blocks: tuple[Block, ...]) -> tuple[str, ...]:
    return tuple(str(block) for block in blocks)
