"""What a backend does for the engine, and the engine: run a placement's stages in order, and leave A and B whole whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from bilinear.backends.chain import Lines, lines_of, pieces_of
from bilinear.backends.held_signals import HeldSignals, nothing
from bilinear.errors import StageError
from bilinear.ir.matrix import Array, Call, Dtype, Factor, Matrix
from bilinear.ir.placement import Placement, Strip
from bilinear.ir.schedule import LinearStage, ProductStage, Stage
from bilinear.ir.tile import TILES, USUAL
from bilinear.lowering.place import place_schedule
from bilinear.lowering.prepare import plain
from bilinear.verify.inverse import invert_stage

Step = Callable[[], None]
Parts = tuple[Strip | Stage, ...]


class Executor(Protocol):
    """A backend: where arrays live and how a stage runs on them."""

    name: str

    def allocate(self, elements: int, dtype: Dtype) -> Matrix:
        """One uninitialised buffer of this many elements."""

    def steps(self, placement: Placement, stages: tuple[Stage, ...], spaces: dict[str, Matrix], alpha: Factor, beta: Factor) -> list[Step]:
        """One call for each stage; whatever it needs is allocated here."""

    def ready(self, placement: Placement, call: Call) -> AbstractContextManager[Sequence[Step]]:
        """One call for each strip, then for each stage of the core; whatever they need is allocated here, and lives inside the block."""

    def wait(self) -> None:
        """Return when the steps that were called have ended."""

    def is_captured(self) -> bool:
        """Whether what is launched goes into a CUDA graph, which can hold no memory of a pool, and in which nothing can be waited for."""

    def is_finite(self, *matrices: Matrix) -> bool:
        """Whether every element of some matrices is finite."""

    def magnitudes(self, matrix: Matrix, rows: int, columns: int) -> Array:
        """max|x| of each block of a matrix of floats cut into rows x columns equal blocks, as a NumPy array; not finite where x is not."""


def execute(executor: Executor, placement: Placement, call: Call) -> None:
    """Run a placement: c = alpha * a @ b + beta * c.

    Its workspace is a buffer as `allocate_workspace` gives it (allocated here by default); where the schedule overwrites C, beta is 0.
    Everything is allocated before the first write. Strips run first (but see `parts_of`), while A and B are still the caller's.
    Where the placement writes A and B, a signal waits for the end of a stage; if its handler raises, the inverse of the stages that have
    run brings A and B back (to rounding) before the exception leaves. After the last stage C is complete, and an interrupt finds A and B
    as the placement leaves them. An error inside a stage becomes a `StageError` that lists the blocks that are not what they were; an
    exception that is no error, such as an interrupt of a placement that never writes A and B, leaves as it is, with that list as its note.
    """
    if call.workspace is None:
        call = call._replace(workspace=allocate_workspace(executor, placement, call.c.layout.dtype))
    pieces = pieces_of(placement, call)
    ready = [executor.ready(own, part) for own, part in pieces]
    for (own, part), steps, lines in zip(pieces, ready, lines_of(placement), strict=True):
        run_parts(executor, own, parts_of(own), partial(_itself, part), steps, lines)


def _itself(call: Call) -> Call:
    return call


def run_parts(
    executor: Executor,
    placement: Placement,
    parts: Parts,
    call: Callable[[], Call],
    ready: AbstractContextManager[Sequence[Step]],
    lines: Lines | None = None,
) -> None:
    """Run the parts that an executor has made ready, as `execute` promises; `lines` are the placement's in a chain.

    What the call is, is asked only where its stages must be undone.
    """
    with ready as steps, HeldSignals() if placement.schedule.writes_operands else _NOT_HELD as deliver:
        for number, (part, step) in enumerate(zip(parts, steps, strict=True)):
            try:
                step()
            except Exception as error:
                raise _Run(executor, placement, call, parts[:number], lines).recover(part, error) from error
            except BaseException as error:
                error.add_note(str(_Run(executor, placement, call, parts[:number], lines).recover(part, error)))
                raise
            try:
                deliver()
            except BaseException as stop:
                if number + 1 < len(parts):
                    _Run(executor, placement, call, parts[: number + 1], lines).go_back(stop)
                raise


def allocate_workspace(executor: Executor, placement: Placement, dtype: Dtype) -> Matrix | None:
    """The one buffer of all workspaces of a placement, or None where it has none; a `MemoryError` says how much was asked for.

    Of a chain it is that of its last placement.
    """
    placement = placement.chain[-1]
    if not placement.slots:
        return None
    size = placement.workspace_elements * dtype.itemsize
    try:
        return executor.allocate(placement.workspace_elements, dtype)
    except MemoryError as error:
        message = f"{placement.schedule.name} needs a workspace of {size} bytes; fewer levels, or an in-place schedule, need less"
        raise MemoryError(message) from error


def lay_out(placement: Placement, call: Call) -> dict[str, Matrix]:
    """The core of each operand, and each workspace as a matrix inside the buffer."""
    m, k, n = placement.core
    spaces = {"A": call.a.part((0, m), (0, k)), "B": call.b.part((0, k), (0, n)), "C": call.c.part((0, m), (0, n))}
    if call.workspace is None:
        return spaces
    for slot in placement.slots:
        if placement.schedule.space(slot.space).shape in placement.column_major:
            spaces[slot.space] = call.workspace.space(slot.offset, (slot.columns, slot.rows), slot.leading).T
        else:
            spaces[slot.space] = call.workspace.space(slot.offset, (slot.rows, slot.columns), slot.leading)
    return spaces


def ready_on_views(executor: Executor, placement: Placement, call: Call) -> AbstractContextManager[Sequence[Step]]:
    """The strips and the stages of the core, on parts of the operands and of the workspace."""
    stages = placement.schedule.stages if placement.core[0] else ()
    late, begun = ends_with_strip(placement), call._replace(beta=1)
    beta = 1 if placement.core_is_begun and not late else call.beta
    core = executor.steps(placement, stages, lay_out(placement, call), call.alpha, beta)
    strips = [_strip(executor, placement, strip, call) for strip in placement.strips[late:]]
    return nullcontext([*strips, *core, *(_strip(executor, placement, strip, begun) for strip in placement.strips[:late])])


def ends_with_strip(placement: Placement) -> bool:
    """Whether the core overwrites what the strip for the rest of the sum would have begun, so that this strip is added after it.

    It reads nothing that the core may write: columns of A and rows of B beyond those of the core.
    """
    return placement.schedule.overwrites and placement.core_is_begun


def parts_of(placement: Placement) -> Parts:
    """The strips and the stages of the core in the order in which they run."""
    stages = placement.schedule.stages if placement.core[0] else ()
    late = int(ends_with_strip(placement))
    return (*placement.strips[late:], *stages, *placement.strips[:late])


def _strip(executor: Executor, placement: Placement, strip: Strip, call: Call) -> Step:
    thin = place_strip(strip, call.c.layout.dtype, placement.tile)
    parts = call.a.part(strip.rows, strip.inner), call.b.part(strip.inner, strip.columns), call.c.part(strip.rows, strip.columns)
    (step,) = executor.steps(thin, thin.schedule.stages, dict(zip("ABC", parts, strict=True)), call.alpha, call.beta)
    return step


def place_strip(strip: Strip, dtype: Dtype, core: str) -> Placement:
    """A thin product that peeling left over, beside a core in this tile, as a placement of the plain schedule."""
    schedule = plain().schedule
    m, k, n = (stop - start for start, stop in (strip.rows, strip.inner, strip.columns))
    if k == 0:
        return Placement(schedule, m, k, n, (m, k, n), (), (), 0)
    tile = strip.tile(dtype.name, core) if dtype.name in TILES else USUAL  # the engine for NumPy multiplies other types, without tiles
    return place_schedule(schedule, m, k, n, dtype.itemsize, tile=tile)


_NOT_HELD = nullcontext(nothing)


def _are_operands(names: Iterable[str]) -> bool:
    """Whether a block of A or B is among some names of blocks."""
    return any(name[0] in "AB" for name in names)


@dataclass(frozen=True)
class _Run:
    """A placement that was stopped: the strips and stages that have run, and how to go back."""

    executor: Executor
    placement: Placement
    call: Callable[[], Call]
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
        for step in self.executor.steps(self.placement, inverses, lay_out(self.placement, self.call()), 1, 0):
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
        lent = () if self.placement.rest is None or isinstance(part, Strip) else ("C",)
        if isinstance(part, Strip) and part.inner[0] == 0:
            return (f"C[{part.rows[0]}:{part.rows[1]}, {part.columns[0]}:{part.columns[1]}]",)
        if isinstance(part, Strip):
            blocks = list(self.placement.schedule.space("C").blocks)
        elif isinstance(part, LinearStage):
            blocks = [target for block_map in part.maps for target in block_map.targets]
        else:
            blocks = [target.block for product in part.products for target in product.targets]
        return (*dict.fromkeys(str(block) for block in blocks if block.space in ("A", "B", "C")), *lent)
