"""Keep the promise of `tolerance=`: bound how far a call may move A and B, from the magnitudes of their blocks, before it writes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import inf
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from bilinear.analysis.accuracy import BlockDrift, DriftBound, drift_bound
from bilinear.backends.caches import Same
from bilinear.backends.executor import Executor
from bilinear.errors import BilinearError, Diagnostic, fail
from bilinear.ir.matrix import Matrix, indices
from bilinear.ir.placement import Placement
from bilinear.ir.schedule import Block, Schedule

Array = NDArray[np.floating]


def check_tolerance_option(tolerance: object, inputs: str) -> None:
    """Refuse (E532) a value that is not a tolerance."""
    if tolerance is None:
        return
    if isinstance(tolerance, bool) or not isinstance(tolerance, Real) or not _is_relative(tolerance):
        raise fail("E532", f"tolerance={tolerance!r} is not a relative error", "give a number of at least 0, such as 1e-6, or None")
    if inputs == "consume":
        raise fail("E532", "inputs='consume' leaves a and b undefined, so no tolerance can hold", "use inputs='restore'")


def _is_relative(tolerance: Real) -> bool:
    try:
        return float(tolerance) >= 0
    except OverflowError:
        return False


def check_tolerance(
    executor: Executor, placement: Placement, operands: tuple[Matrix, Matrix], calls: tuple[int, int], limit: float
) -> None:
    """Refuse (E533) a restoring multiply that could move an element of A or B by more than `limit` times the largest of its block.

    The bound is that of the whole schedule, with all its levels. The operands are whole batches. `calls` says in how many products of the
    batch each matrix of A, and of B, takes part, because it drifts in each of them. Exact types and operands that are never written do
    not drift. The check reads the blocks once and writes nothing.
    """
    if not placement.core[0] or operands[0].layout.dtype.kind != "f" or not placement.schedule.writes_operands:
        return
    drift = _drift(Same(placement.schedule))
    m, k, n = placement.core
    problems = []
    for space, operand, (rows, columns), count in zip("AB", operands, ((m, k), (k, n)), calls, strict=True):
        grid, numbers = placement.schedule.space(space), np.finfo(str(operand.layout.dtype))
        moves, own = _moves(drift, space, float(numbers.eps) / 2, count), [block for block in drift.blocks if block.block.space == space]
        losses = _matrix([block.losses for block in own], [block.block for block in own]) * np.longdouble(numbers.smallest_subnormal)
        losses = count * (losses + moves @ losses) if losses.any() else losses  # later calls also move earlier losses
        core = operand.part((0, rows), (0, columns))
        for index in indices(operand.layout.shape[:-2]):
            sizes = executor.magnitudes(core.at(index), grid.rows, grid.columns).ravel()
            name = space.lower() + (str(list(index)) if index else "")
            if not float(sizes.max()) <= float(numbers.max) / drift.growth:
                problem: Diagnostic | None = _overflow(name, drift.growth)
            else:
                problem = _refusal(name, own, sizes, moves, losses, limit)
            if problem is not None:
                problems.append(problem)
                break
    if problems:
        raise BilinearError(problems)


@lru_cache(maxsize=64)
def _drift(schedule: Same[Schedule]) -> DriftBound:
    """The drift bound of a lowered schedule. The key is its identity, because hashing it is slow; many placements share one."""
    return drift_bound(schedule.what)


def _moves(drift: DriftBound, space: str, unit_roundoff: float, calls: int) -> Array:
    """The matrix F with |moved| <= F * sizes, block by block, after this many calls:

    (I + u*D)**calls - I, computed without cancellation.
    """
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
    place = {block: i for i, block in enumerate(blocks)}
    matrix = np.zeros((len(blocks), len(blocks)), np.longdouble)
    for i, row in enumerate(rows):
        for met, weight in row:
            matrix[i, place[met]] = weight
    return matrix


def _overflow(name: str, growth: float) -> Diagnostic:
    if growth == inf:
        message, note = f"no bound is known for how far restoring {name} may move it", "a coefficient is too large or too small for float32"
        return Diagnostic("E533", message, notes=(note,), hints=("use inputs='preserve'",))
    message = f"sums of blocks of {name} may overflow, and then {name} cannot be restored"
    notes = (f"a sum grows up to {growth:.3g} times as large as the largest entry",)
    return Diagnostic("E533", message, notes=notes, hints=("scale the operand down, or use inputs='preserve'",))


def _refusal(name: str, own: list[BlockDrift], magnitudes: Array, moves: Array, losses: Array, limit: float) -> Diagnostic | None:
    """Why a matrix with blocks of these magnitudes is refused: which block may move, by how much, and which larger block causes it.

    Blocks move by at most `moves` @ magnitudes, for rounding, plus `losses` @ (magnitudes > 0), for underflow.
    """
    wide = magnitudes.astype(np.longdouble)
    rounded, lost = moves @ wide, losses @ (wide > 0)
    with np.errstate(divide="ignore", invalid="ignore"):  # infinite for a block of zeros that may move
        relatives = np.where(rounded + lost > 0, (rounded + lost) / wide, 0)
    position = int(np.argmax(relatives))
    relative, drift = float(relatives[position]), own[position]
    if relatives[position] <= limit:
        return None
    sizes = dict(zip([each.block for each in own], magnitudes, strict=True))
    block, largest = drift.block, max(drift.met, key=lambda met: (sizes[met], met))
    message = f"restoring {name} may move block {block} by {relative:.2g} times its largest entry, but tolerance={limit:g}"
    if relative == inf:
        message = f"restoring {name} may leave other numbers in block {block}, which is all zeros, but tolerance={limit:g}"
    note = f"the largest entry of {block} is {sizes[block]:.3g}; {largest}, which is in sums with it, reaches {sizes[largest]:.3g}"
    hint = "use inputs='preserve', fewer levels, or a larger tolerance"
    if lost[position] > rounded[position]:
        note = f"the largest entry of {block} is {sizes[block]:.3g}; the schedule multiplies by fractions, and products may underflow"
        hint = "use inputs='preserve', scale the operand up, or use a larger tolerance"
    return Diagnostic("E533", message, notes=(note,), hints=(hint,))
