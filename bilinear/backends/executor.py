"""What a backend does for the engine, and the engine: run a plan's stages in order, and leave A and B whole whatever happens."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from bilinear.backends.chain import Arrays, Lines, lines_of, pieces_of
from bilinear.backends.held_signals import HeldSignals, nothing
from bilinear.errors import StageError
from bilinear.ir.placement import Plan, Strip
from bilinear.ir.schedule import LinearStage, ProductStage, Stage
from bilinear.ir.tile import TILES, USUAL
from bilinear.lowering.place import make_plan
from bilinear.lowering.prepare import plain
from bilinear.verify.inverse import invert_stage

if sys.version_info >= (3, 13):
    pass
else:  # where `signal` looks for every handler in an enumeration, which takes longer than several launches
    pass

Step = Callable[[], None]
Parts = tuple[Strip | Stage, ...]


class Executor(Protocol):
    """A backend: where arrays live and how a stage runs on them."""

    name: str

    def allocate(self, elements: int, like: Any) -> Any:
        """One uninitialised buffer of this many elements, of the type of `like` and on its device."""

    def steps(self, plan: Plan, stages: tuple[Stage, ...], spaces: dict[str, Any], alpha: Any, beta: Any) -> list[Step]:
        """One call for each stage; whatever it needs is allocated here."""

    def ready(self, plan: Plan, a: Any, b: Any, c: Any, buffer: Any, alpha: Any, beta: Any) -> AbstractContextManager[Sequence[Step]]:
        """One call for each strip, then for each stage of the core; whatever they need is allocated here, and lives inside the block."""

    def wait(self) -> None:
        """Return when the steps that were called have ended."""

    def is_captured(self) -> bool:
        """Whether what is launched goes into a CUDA graph, which can hold no memory of a pool, and in which nothing can be waited for."""

    def is_finite(self, *matrices: Any) -> bool:
        """Whether every element of some matrices is finite."""

    def magnitudes(self, array: Any, rows: int, columns: int) -> Any:
        """max|x| of each block of a matrix of floats cut into rows x columns equal blocks, as a NumPy array; not finite where x is not."""


def execute(executor: Executor, plan: Plan, a: Any, b: Any, c: Any, alpha: Any, beta: Any, workspace: Any = None) -> None:
    """Run a plan on 2-D arrays: c = alpha * a @ b + beta * c.

    `workspace` is the plan's buffer as `allocate_workspace` gives it (allocated here by default); where the schedule overwrites C, beta
    is 0. Everything is allocated before the first write. Strips run first (but see `parts_of`), while A and B are still the caller's.
    Where the plan writes A and B, a signal waits for the end of a stage; if its handler raises, the inverse of the stages that have
    run brings A and B back (to rounding) before the exception leaves. After the last stage C is complete, and an interrupt finds A and B
    as the plan leaves them. An error inside a stage becomes a `StageError` that lists the blocks that are not what they were; an
    exception that is no error, such as an interrupt of a plan that never writes A and B, leaves as it is, with that list as its note.
    """
    buffer = allocate_workspace(executor, plan, c) if workspace is None else workspace
    pieces = pieces_of(plan, a, b, c, buffer)
    ready = [executor.ready(own, *arrays, alpha, beta) for own, arrays in pieces]
    for (own, arrays), steps, lines in zip(pieces, ready, lines_of(plan), strict=True):
        run_parts(executor, own, parts_of(own), arrays, steps, lines)


def run_parts(
    executor: Executor, plan: Plan, parts: Parts, arrays: Arrays, ready: AbstractContextManager[Sequence[Step]], lines: Lines | None = None
) -> None:
    """Run the parts of a plan that an executor has made ready for these arrays, as `execute` promises; `lines` are its own in a chain."""
    with ready as steps, HeldSignals() if plan.schedule.writes_operands else _NOT_HELD as deliver:
        for number, (part, step) in enumerate(zip(parts, steps, strict=True)):
            try:
                step()
            except Exception as error:
                raise _Run(executor, plan, arrays, parts[:number], lines).recover(part, error) from error
            except BaseException as error:
                error.add_note(str(_Run(executor, plan, arrays, parts[:number], lines).recover(part, error)))
                raise
            try:
                deliver()
            except BaseException as stop:
                if number + 1 < len(parts):
                    _Run(executor, plan, arrays, parts[: number + 1], lines).go_back(stop)
                raise


def allocate_workspace(executor: Executor, plan: Plan, like: Any) -> Any:
    """The one buffer of all workspaces of a plan, or None where it has none; a `MemoryError` says how much was asked for.

    Of a chain it is that of its last plan.
    """
    plan = plan.chain[-1]
    if not plan.slots:
        return None
    size = plan.workspace_elements * like.dtype.itemsize
    try:
        return executor.allocate(plan.workspace_elements, like)
    except MemoryError as error:
        message = f"{plan.schedule.name} needs a workspace of {size} bytes; fewer levels, or an in-place schedule, need less"
        raise MemoryError(message) from error


def lay_out(plan: Plan, a: Any, b: Any, c: Any, buffer: Any) -> dict[str, Any]:
    """The core of each operand, and each workspace as a view of one buffer."""
    m, k, n = plan.core
    spaces = {"A": a[:m, :k], "B": b[:k, :n], "C": c[:m, :n]}
    for slot in plan.slots:
        shape = plan.schedule.space(slot.space).shape
        if shape in plan.column_major:
            whole = buffer[slot.offset : slot.offset + slot.leading * slot.columns].reshape(slot.columns, slot.leading)
            spaces[slot.space] = whole[:, : slot.rows].T
        else:
            whole = buffer[slot.offset : slot.offset + slot.rows * slot.leading].reshape(slot.rows, slot.leading)
            spaces[slot.space] = whole[:, : slot.columns]
    return spaces


def ready_on_views(
    executor: Executor, plan: Plan, a: Any, b: Any, c: Any, buffer: Any, alpha: Any, beta: Any
) -> AbstractContextManager[Sequence[Step]]:
    """The strips and the stages of the core, on views of the operands and of the workspace."""
    stages = plan.schedule.stages if plan.core[0] else ()
    adds = 1 if plan.core_is_begun else beta
    core = executor.steps(plan, stages, lay_out(plan, a, b, c, buffer), alpha, beta if ends_with_strip(plan) else adds)
    if not ends_with_strip(plan):
        return nullcontext([_strip(executor, plan, strip, a, b, c, alpha, beta) for strip in plan.strips] + core)
    rest, *strips = (partial(_strip, executor, plan, strip, a, b, c, alpha) for strip in plan.strips)
    return nullcontext([*(strip(beta) for strip in strips), *core, rest(1)])


def ends_with_strip(plan: Plan) -> bool:
    """Whether the core overwrites what the strip for the rest of the sum would have begun, so that this strip is added after it.

    It reads nothing that the core may write: columns of A and rows of B beyond those of the core.
    """
    return plan.schedule.overwrites and plan.core_is_begun


def parts_of(plan: Plan) -> Parts:
    """The strips and the stages of the core in the order in which they run."""
    stages = plan.schedule.stages if plan.core[0] else ()
    late = int(ends_with_strip(plan))
    return (*plan.strips[late:], *stages, *plan.strips[:late])


def _strip(executor: Executor, plan: Plan, strip: Strip, a: Any, b: Any, c: Any, alpha: Any, beta: Any) -> Step:
    rows, inner, columns = slice(*strip.rows), slice(*strip.inner), slice(*strip.columns)
    thin = strip_plan(strip, c.dtype, plan.tile)
    spaces = {"A": a[rows, inner], "B": b[inner, columns], "C": c[rows, columns]}
    (step,) = executor.steps(thin, thin.schedule.stages, spaces, alpha, beta)
    return step


def strip_plan(strip: Strip, dtype: Any, core: str) -> Plan:
    """A thin product that peeling left over, beside a core in this tile, as a plan of the plain schedule."""
    schedule = plain().schedule
    m, k, n = (stop - start for start, stop in (strip.rows, strip.inner, strip.columns))
    if k == 0:
        return Plan(schedule, m, k, n, (m, k, n), (), (), 0)
    tile = strip.tile(dtype.name, core) if dtype.name in TILES else USUAL  # the engine for NumPy multiplies other types, without tiles
    return make_plan(schedule, m, k, n, dtype.itemsize, tile=tile)


_NOT_HELD = nullcontext(nothing)


def _are_operands(names: Iterable[str]) -> bool:
    """Whether a block of A or B is among some names of blocks."""
    return any(name[0] in "AB" for name in names)


@dataclass(frozen=True)
class _Run:
    """A plan that was stopped: the strips and stages that have run, and how to go back."""

    executor: Executor
    plan: Plan
    arrays: Arrays
    done: Parts
    lines: Lines | None = None

    def go_back(self, stop: BaseException) -> None:
        """Before an interrupt leaves: bring A and B back; what cannot be brought back becomes a note of the exception."""
        try:
            self.undo()
        except Exception as error:
            changed = dict.fromkeys(name for part in self.done for name in self._written(part))
            told = changed if self.lines is None else (name for names in self.lines.told(changed, ()) for name in names)
            stop.add_note(f"A and B could not be restored: {error}; changed: {', '.join(told)}")

    def undo(self) -> None:
        """Run the inverses of what the linear stages that have run did to A and B, last first; all are found before the first runs."""
        found = (invert_stage(stage) for stage in reversed(self.done) if isinstance(stage, LinearStage))
        inverses = tuple(inverse for inverse in found if inverse.maps)
        for step in self.executor.steps(self.plan, inverses, lay_out(self.plan, *self.arrays), 1, 0):
            step()
        self.executor.wait()

    def recover(self, failing: Strip | Stage, error: BaseException) -> StageError:
        """After an error inside a strip or a stage: bring A and B back where that is possible, and say what is not what it was.

        A stage that fails while it writes A or B leaves in them what no inverse takes back.
        """
        what = {Strip: "a strip", ProductStage: "a product stage", LinearStage: "a linear stage"}[type(failing)]
        message = f"{what} failed: {type(error).__name__}: {error}"
        undefined = self._written(failing)
        changed = dict.fromkeys(name for part in self.done for name in self._written(part))
        if _are_operands(changed) and not _are_operands(undefined):
            try:
                self.undo()
            except Exception as second:
                message += f"; A and B could not be restored: {second}"
            else:
                message += "; A and B are restored"
                changed = dict.fromkeys(name for name in changed if not _are_operands((name,)))
        remaining = tuple(name for name in changed if name not in undefined)
        return StageError(message, *((remaining, undefined) if self.lines is None else self.lines.told(remaining, undefined)))

    def _written(self, part: Strip | Stage) -> tuple[str, ...]:
        """The names of what a strip or a stage writes of A, B and C: blocks, or a range of C beyond its blocks."""
        lent = () if self.plan.rest is None or isinstance(part, Strip) else ("C",)
        if isinstance(part, Strip) and part.inner[0] == 0:
            return (f"C[{part.rows[0]}:{part.rows[1]}, {part.columns[0]}:{part.columns[1]}]",)
        if isinstance(part, Strip):
            blocks = list(self.plan.schedule.space("C").blocks)
        elif isinstance(part, LinearStage):
            blocks = [target for block_map in part.maps for target in block_map.targets]
        else:
            blocks = [target.block for product in part.products for target in product.targets]
        return (*dict.fromkeys(str(block) for block in blocks if block.space in ("A", "B", "C")), *lent)
