"""The engine: run a placement's stages in order on a backend, and restore A and B if the run is broken off."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Protocol

from bilinear.backends.workers import Deliver, HeldSignals, nothing
from bilinear.errors import StageError
from bilinear.ir.matrix import Array, Call, Dtype, Factor, Matrix, Range
from bilinear.ir.placement import Placement, Slot, Strip
from bilinear.ir.schedule import LinearStage, ProductStage, Schedule, Stage
from bilinear.ir.tile import TILES, USUAL
from bilinear.lowering.place import place_schedule
from bilinear.lowering.prepare import plain, plain_complex
from bilinear.verify.elimination import invert_stage


def pieces_of(placement: Placement, call: Call) -> list[tuple[Placement, Call]]:
    """Each placement of a chain with its own call. Its workspace is the part of C that later placements write; the last uses the buffer."""
    pieces: list[tuple[Placement, Call]] = []
    c, by_column = call.c, "C" in placement.column_major
    for own, (left, right) in operands_of(placement, call.a, call.b):
        m, n = c.layout.shape
        if by_column:
            now, c = c.part((0, m), (0, own.n)), c.part((0, m), (own.n, n))
        else:
            now, c = c.part((0, own.m), (0, n)), c.part((own.m, m), (0, n))
        workspace = call.workspace if own.rest is None else (c.T if by_column else c).start(own.workspace_elements)
        pieces.append((own, call._replace(a=left, b=right, c=now, workspace=workspace)))
    return pieces


def operands_of(placement: Placement, a: Matrix, b: Matrix) -> list[tuple[Placement, tuple[Matrix, Matrix]]]:
    """Each placement of a chain with its operands: its rows of A and all of B, or all of A and its columns of B. They may be batches."""
    found: list[tuple[Placement, tuple[Matrix, Matrix]]] = []
    for own in placement.chain:
        (m, k), n = a.layout.shape[-2:], b.layout.shape[-1]
        if "C" in placement.column_major:
            left, right, b = a, b.part((0, k), (0, own.n)), b.part((0, k), (own.n, n))
        else:
            left, right, a = a.part((0, own.m), (0, k)), b, a.part((own.m, m), (0, k))
        found.append((own, (left, right)))
    return found


@dataclass(frozen=True)
class Lines:
    """Rows `start` to `stop` of C (or columns, `by_columns`) that a chain's placement computes, its workspaces behind them up to `end`."""

    start: int
    stop: int
    end: int
    by_columns: bool

    def told(self, changed: Iterable[str], undefined: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The changed and the undefined blocks of this placement, named as parts of the caller's matrices."""
        changed, undefined = list(changed), list(undefined)
        earlier = [self._range("C", 0, self.start)] if self.start else []
        behind = [self._range("C", self.start, self.end)] if self.start or any(name[0] == "C" for name in (*changed, *undefined)) else []
        return (*earlier, *self._operands(changed)), (*behind, *self._operands(undefined))

    def _operands(self, names: Iterable[str]) -> Iterator[str]:
        cut = "B" if self.by_columns else "A"
        for name in names:
            if name[0] != "C":
                yield f"{name} of {self._range(cut, self.start, self.stop)}" if name[0] == cut else name

    def _range(self, matrix: str, start: int, stop: int) -> str:
        return f"{matrix}[:, {start}:{stop}]" if self.by_columns else f"{matrix}[{start}:{stop}, :]"


def lines_of(placement: Placement) -> list[Lines | None]:
    """The lines of each placement of a chain; a single None if there is only one placement."""
    if placement.rest is None:
        return [None]
    by_columns = "C" in placement.column_major
    ends = list(accumulate(own.n if by_columns else own.m for own in placement.chain))
    return [Lines(start, stop, ends[-1], by_columns) for start, stop in zip((0, *ends), ends, strict=False)]


Step = Callable[[], None]
Parts = tuple[Strip | Stage, ...]


class Executor(Protocol):
    """A backend: where arrays live and how a stage runs on them."""

    name: str

    def allocate(self, elements: int, dtype: Dtype) -> Matrix:
        """One uninitialised buffer of this many elements."""

    def steps(self, placement: Placement, stages: tuple[Stage, ...], spaces: dict[str, Matrix], alpha: Factor, beta: Factor) -> list[Step]:
        """One call for each stage. Everything that the calls need is allocated here."""

    def ready(self, placement: Placement, call: Call) -> AbstractContextManager[Sequence[Step]]:
        """One call for each part in `parts_of`. Everything that the calls need is allocated here, and lives inside the block."""

    def wait(self) -> None:
        """Return when all steps that were called have ended."""

    def is_captured(self) -> bool:
        """Whether launches go into a CUDA graph. A graph cannot hold memory from a pool, and nothing can wait for its results."""

    def is_finite(self, *matrices: Matrix) -> bool:
        """Whether every element of the matrices is finite."""

    def digest(self, matrix: Matrix) -> int:
        """A number that tells whether a matrix has changed: it is the same for the same bytes, and hardly ever for others."""

    def magnitudes(self, matrix: Matrix, rows: int, columns: int) -> Array:
        """max|x| of each of rows x columns equal blocks of a matrix of floats, as a NumPy array. Inf and NaN stay not finite."""


def execute(executor: Executor, placement: Placement, call: Call) -> None:
    """Run a placement: c = alpha * a @ b + beta * c.

    The call's workspace is a buffer of `allocate_workspace`, which is allocated here if the call has none. If the schedule overwrites C,
    beta must be 0. Everything is allocated before the first write. Strips run first (but see `parts_of`), before A and B are written.

    If the placement writes A and B, a signal waits for the end of the current stage. If its handler raises, the inverses of the stages that
    ran restore A and B (to rounding) before the exception leaves. After the last stage C is complete, and nothing is undone.

    An error inside a stage becomes a `StageError`, which lists the blocks that are changed or undefined. An exception that is not an error,
    such as an interrupt of a placement that never writes A and B, leaves as it is, with that list as a note.
    """
    if call.workspace is None:
        call = call._replace(workspace=allocate_workspace(executor, placement, call.c.layout.dtype))
    pieces = pieces_of(placement, call)
    ready = [executor.ready(own, part) for own, part in pieces]
    for (own, part), steps, lines in zip(pieces, ready, lines_of(placement), strict=True):
        run_parts(own, parts_of(own), steps, partial(Stopped, executor, own, part, lines))


def run_parts(
    placement: Placement, parts: Parts, ready: AbstractContextManager[Sequence[Step]], stopped: Callable[[Parts], Stopped]
) -> None:
    """Run the parts that an executor has made ready, as `execute` promises; `stopped` is called only if stages must be undone."""
    with ready as steps:
        if not placement.schedule.writes_operands:
            _run_steps(parts, steps, stopped)
            return
        held = HeldSignals()
        with held as deliver:
            _run_steps(parts, steps, stopped, held.came, deliver)


def _run_steps(
    parts: Parts, steps: Sequence[Step], stopped: Callable[[Parts], Stopped], came: Collection[int] = (), deliver: Deliver = nothing
) -> None:
    for number, (part, step) in enumerate(zip(parts, steps, strict=True)):
        try:
            step()
        except Exception as error:
            raise stopped(parts[:number]).recover(part, error) from error
        except BaseException as error:
            error.add_note(str(stopped(parts[:number]).recover(part, error)))
            raise
        if not came:
            continue
        try:
            deliver()
        except BaseException as stop:
            if number + 1 < len(parts):
                stopped(parts[: number + 1]).go_back(stop)
            raise


def allocate_workspace(executor: Executor, placement: Placement, dtype: Dtype) -> Matrix | None:
    """One buffer for all workspaces, of a chain the last one's; None if there are none. A `MemoryError` says how many bytes."""
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
    spaces = _cut(call, (0, m), (0, k), (0, n))
    for buffer, slots in ((call.workspace, placement.slots), (call.given, placement.given)):
        if buffer is not None:
            spaces |= in_buffer(placement, slots, buffer)
    return spaces


def _cut(call: Call, rows: Range, inner: Range, columns: Range) -> dict[str, Matrix]:
    ranges = {"A": (rows, inner), "B": (inner, columns), "C": (rows, columns)}
    return {name: matrix.part(*ranges[name[0]]) for name, matrix in call.operands.items()}


def in_buffer(placement: Placement, slots: Sequence[Slot], buffer: Matrix) -> dict[str, Matrix]:
    """Workspaces of a placement as matrices inside their buffer."""
    spaces = {}
    for slot in slots:
        if placement.schedule.space(slot.space).shape in placement.column_major:
            spaces[slot.space] = buffer.space(slot.offset, (slot.columns, slot.rows), slot.leading).T
        else:
            spaces[slot.space] = buffer.space(slot.offset, (slot.rows, slot.columns), slot.leading)
    return spaces


def ready_on_views(executor: Executor, placement: Placement, call: Call) -> AbstractContextManager[Sequence[Step]]:
    """The strips and the stages of the core as calls on parts of the operands and of the workspace."""
    stages = placement.schedule.stages if placement.core[0] else ()
    late, begun = ends_with_strip(placement), call._replace(beta=1)
    beta = 1 if placement.core_is_begun and not late else call.beta
    core = executor.steps(placement, stages, lay_out(placement, call), call.alpha, beta)
    strips = [step for strip in placement.strips[late:] for step in _strip(executor, placement, strip, call)]
    return nullcontext([*strips, *core, *(step for strip in placement.strips[:late] for step in _strip(executor, placement, strip, begun))])


def ends_with_strip(placement: Placement) -> bool:
    """Whether the strip for the rest of the sums runs after the core and adds to it, because the core overwrites C.

    This strip reads nothing that the core may write: its columns of A and rows of B lie outside the core.
    """
    return placement.schedule.overwrites and placement.core_is_begun


def parts_of(placement: Placement) -> Parts:
    """The strips, once for each of their stages, and the stages of the core, in the order in which they run."""
    stages = placement.schedule.stages if placement.core[0] else ()
    late, turns = int(ends_with_strip(placement)), len(_plain_beside(placement.schedule).stages) if placement.strips else 0
    first, last = ([strip for strip in strips for _ in range(turns)] for strips in (placement.strips[late:], placement.strips[:late]))
    return (*first, *stages, *last)


def _strip(executor: Executor, placement: Placement, strip: Strip, call: Call) -> list[Step]:
    thin = place_strip(strip, call.c.layout.dtype, placement)
    return executor.steps(thin, thin.schedule.stages, _cut(call, strip.rows, strip.inner, strip.columns), call.alpha, call.beta)


def place_strip(strip: Strip, dtype: Dtype, of: Placement) -> Placement:
    """The placement, by the plain schedule, of a thin product that peeling left over of a placement."""
    core, schedule = of.tile, _plain_beside(of.schedule)
    m, k, n = (stop - start for start, stop in (strip.rows, strip.inner, strip.columns))
    if k == 0:
        return Placement(schedule, m, k, n, (m, k, n), (), (), 0)
    tile = strip.tile(dtype.name, core) if dtype.name in TILES else USUAL  # NumPy multiplies other types, too, without tiles
    return place_schedule(schedule, m, k, n, dtype.itemsize, tile=tile)


def _plain_beside(schedule: Schedule) -> Schedule:
    return plain_complex(schedule.conjugated) if schedule.is_complex else plain().schedule


def _are_operands(names: Iterable[str]) -> bool:
    """Whether one of the named blocks is in A or B."""
    return any(name[0] in "AB" for name in names)


@dataclass(frozen=True)
class Stopped:
    """A placement that was stopped, and the strips and stages that have run; `lines` are its own in a chain."""

    executor: Executor
    placement: Placement
    call: Call
    lines: Lines | None
    done: Parts

    def go_back(self, stop: BaseException) -> None:
        """Restore A and B before an interrupt leaves. If that fails, a note of the exception lists what is changed."""
        try:
            self.undo()
        except Exception as error:
            changed = dict.fromkeys(name for part in self.done for name in self._written(part))
            told = changed if self.lines is None else (name for names in self.lines.told(changed, ()) for name in names)
            stop.add_note(f"A and B could not be restored: {error}; changed: {', '.join(told)}")

    def undo(self) -> None:
        """Undo what the linear stages that ran did to A and B, last first. All inverses are found before the first one runs."""
        found = (invert_stage(stage) for stage in reversed(self.done) if isinstance(stage, LinearStage))
        inverses = tuple(inverse for inverse in found if inverse.maps)
        for step in self.executor.steps(self.placement, inverses, lay_out(self.placement, self.call), 1, 0):
            step()
        self.executor.wait()

    def recover(self, failing: Strip | Stage, error: BaseException) -> StageError:
        """Restore A and B, if possible, after an error inside a strip or a stage, and say what is changed and what is undefined.

        It is impossible if the failing stage itself writes A or B: no inverse undoes half a stage.
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
        """The names of the parts of A, B and C that a strip or a stage writes: blocks, or a range of C outside the blocks."""
        lent = () if self.placement.rest is None or isinstance(part, Strip) else ("C",)
        if isinstance(part, Strip) and part.inner[0] == 0:
            return (f"C[{part.rows[0]}:{part.rows[1]}, {part.columns[0]}:{part.columns[1]}]",)
        if isinstance(part, Strip):
            blocks = list(self.placement.schedule.blocks_of("C"))
        elif isinstance(part, LinearStage):
            blocks = [target for block_map in part.maps for target in block_map.targets]
        else:
            blocks = [target.block for product in part.products for target in product.targets]
        return (*dict.fromkeys(str(block) for block in blocks if block.space in self.call.operands), *lent)
