"""What `tolerance=` promises: how far a call may move A and B, from the magnitudes of their blocks, before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from numbers import Real
from typing import Any

import numpy as np

from bilinear.analysis.drift import BlockDrift, DriftBound, drift_bound
from bilinear.backends.executor import Executor
from bilinear.errors import BilinearError, Diagnostic, fail
from bilinear.ir.matrix import Matrix
from bilinear.ir.placement import Placement
from bilinear.ir.schedule import Block, Schedule
from bilinear.runtime.safety import indices
from bilinear.runtime.same import Same

Array = np.ndarray[Any, np.dtype[Any]]


def check_tolerance_option(tolerance: object, inputs: str) -> None:
    """Refuse what is no tolerance (E532)."""
    if tolerance is None:
        return
    if isinstance(tolerance, bool) or not isinstance(tolerance, Real) or not _is_relative(tolerance):
        raise fail("E532", f"tolerance={tolerance!r} is no relative error", "give a number of at least 0, such as 1e-6, or None")
    if inputs == "consume":
        raise fail("E532", "inputs='consume' leaves a and b undefined, within no tolerance", "use inputs='restore'")


def _is_relative(tolerance: Real) -> bool:
    try:
        return float(tolerance) >= 0
    except OverflowError:
        return False


def check_tolerance(
    executor: Executor, placement: Placement, operands: tuple[Matrix, Matrix], calls: tuple[int, int], limit: float
) -> None:
    """Refuse a restoring multiply (E533) that could move an element of A or B by more than `limit` times its block's largest.

    The bound is that of the schedule, whatever its levels are. The operands are whole batches; `calls` says in how many products of the
    batch each matrix of A, and of B, takes part, for it drifts in each of them. Exact types do not drift, nor does what is never written.
    It takes one pass over the blocks, and writes nothing.
    """
    if not placement.core[0] or operands[0].layout.dtype.kind != "f" or not placement.schedule.writes_operands:
        return
    drift = _drift(Same(placement.schedule))
    m, k, n = placement.core
    problems = []
    for space, operand, (rows, columns), count in zip("AB", operands, ((m, k), (k, n)), calls, strict=True):
        grid = placement.schedule.space(space)
        numbers = np.finfo(str(operand.layout.dtype))
        own = _Operand.of(drift, space, numbers, count, limit)
        core = operand.part((0, rows), (0, columns))
        for index in indices(operand.layout.shape[:-2]):
            sizes = executor.magnitudes(core.at(index), grid.rows, grid.columns)
            problem = own.problem(sizes.ravel(), index, float(numbers.max))
            if problem is not None:
                problems.append(problem)
                break
    if problems:
        raise BilinearError(problems)


@dataclass(frozen=True)
class _Operand:
    """What may happen to the blocks of A, or of B.

    How far they are from what they were is bounded by `moves` times their magnitudes, and by `losses` times which of them are not zeros.
    """

    drift: DriftBound
    space: str
    moves: Array
    losses: Array
    limit: float

    @classmethod
    def of(cls, drift: DriftBound, space: str, numbers: np.finfo[Any], calls: int, limit: float) -> _Operand:
        """The bounds after this many calls in a type."""
        moves = _moves(drift, space, float(numbers.eps) / 2, calls)
        own = [block for block in drift.blocks if block.block.space == space]
        once = _matrix([block.losses for block in own], [block.block for block in own])
        losses = calls * (once + moves @ once) if once.any() else once  # each loss is carried on by the calls after it
        return cls(drift, space, moves, losses * np.longdouble(numbers.smallest_subnormal), limit)

    def problem(self, sizes: Array, index: tuple[int, ...], largest: float) -> Diagnostic | None:
        """What is wrong with a matrix whose blocks are of these magnitudes, in a type with this largest number."""
        name = self.space.lower() + (str(list(index)) if index else "")
        if not float(sizes.max()) <= largest / self.drift.growth:
            return _overflow(name, self.drift.growth)
        wide = sizes.astype(np.longdouble)
        rounded, lost = self.moves @ wide, self.losses @ (wide > 0)
        moved = rounded + lost
        with np.errstate(divide="ignore", invalid="ignore"):  # a block of zeros that may move is infinitely far off
            relative = np.where(moved > 0, moved / wide, 0)
        position = int(np.argmax(relative))
        if relative[position] <= self.limit:
            return None
        own = [drift for drift in self.drift.blocks if drift.block.space == self.space]
        by_block = dict(zip([d.block for d in own], sizes, strict=True))
        return _refusal(name, own[position], float(relative[position]), by_block, self.limit, bool(lost[position] > rounded[position]))


@lru_cache(maxsize=64)
def _drift(schedule: Same[Schedule]) -> DriftBound:
    """The drift bound of a lowered schedule, which many placements share and which takes long to hash."""
    return drift_bound(schedule.what)


def _moves(drift: DriftBound, space: str, unit_roundoff: float, calls: int) -> Array:
    """F with |moved| <= F * sizes after this many calls, block by block: (I + u*D)**calls - I, without cancellation."""
    own = [block for block in drift.blocks if block.block.space == space]
    once = _matrix([block.weights for block in own], [block.block for block in own]) * unit_roundoff
    total = np.zeros_like(once)
    while calls:
        if calls & 1:
            total = total + once + total @ once
        once = 2 * once + once @ once
        calls >>= 1
    return total


def _matrix(rows: Sequence[tuple[tuple[Block, float], ...]], blocks: Sequence[Block]) -> Array:
    """Weights by block as a matrix over the blocks."""
    place = {block: i for i, block in enumerate(blocks)}
    matrix = np.zeros((len(blocks), len(blocks)), np.longdouble)
    for i, row in enumerate(rows):
        for met, weight in row:
            matrix[i, place[met]] = weight
    return matrix


def _overflow(name: str, growth: float) -> Diagnostic:
    if growth == inf:
        message, note = f"nothing is known of how far restoring {name} moves it", "a coefficient is too large or too small for float32"
        return Diagnostic("E533", message, notes=(note,), hints=("use inputs='preserve'",))
    message = f"sums of blocks of {name} may overflow, and what has overflowed is not given back"
    notes = (f"a sum grows up to {growth:.3g} times as large as the largest entry",)
    return Diagnostic("E533", message, notes=notes, hints=("scale the operand down, or use inputs='preserve'",))


def _refusal(name: str, drift: BlockDrift, relative: float, sizes: dict[Block, float], limit: float, underflows: bool) -> Diagnostic:
    """Which block moves, by how much, and which larger block is to blame."""
    block, largest = drift.block, max(drift.met, key=lambda met: (sizes[met], met))
    message = f"restoring {name} may move block {block} by {relative:.2g} times its largest entry, and tolerance={limit:g}"
    if relative == inf:
        message = f"restoring {name} may leave something else in block {block}, which is all zeros, and tolerance={limit:g}"
    note = f"the largest entry of {block} is {sizes[block]:.3g}; {largest}, which it meets in sums, reaches {sizes[largest]:.3g}"
    hint = "use inputs='preserve', fewer levels, or a larger tolerance"
    if underflows:
        note = f"the largest entry of {block} is {sizes[block]:.3g}; the schedule multiplies by fractions, and what underflows is lost"
        hint = "use inputs='preserve', scale the operand up, or use a larger tolerance"
    return Diagnostic("E533", message, notes=(note,), hints=(hint,))
