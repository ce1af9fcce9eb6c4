"""The conditions under which a plan may write A and B."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import TYPE_CHECKING

import numpy as np

from bilinear.errors import BilinearError, fail
from bilinear.ir.matrix import Array, Matrix, layout_of, matrix_of

if TYPE_CHECKING:  # `bilinear.plan` needs none of what an executor imports
    from bilinear.backends.executor import Executor

Extents = tuple[int, ...]

MOST_WORK = 100_000
"""Steps that NumPy may take to decide whether two views share memory."""


def is_writable(array: Array) -> bool:
    """Whether an array may be written; CuPy's arrays always may."""
    return bool(getattr(array.flags, "writeable", True))


def shares_memory(x: Array, y: Array) -> bool:
    """Whether two arrays may have an element in common; undecided counts as yes."""
    if isinstance(x, np.ndarray):
        if x.size == 0 or y.size == 0:
            return False
        try:
            return bool(np.shares_memory(x, y, max_work=MOST_WORK))  # type: ignore[arg-type]  # any count is allowed
        except np.exceptions.TooHardError:
            return not _beside_each_other(x, y)
    (x_low, x_high), (y_low, y_high) = _bounds(x), _bounds(y)
    return x_low < y_high and y_low < x_high and x.size > 0 and y.size > 0 and not _beside_each_other(x, y)


def _bounds(array: Array) -> tuple[int, int]:
    """The address of an array's first byte, and the address behind its last."""
    address, layout, _ = matrix_of(array)
    low, high = layout.reach
    return address + low, address + high


def _beside_each_other(x: Array, y: Array) -> bool:
    """Whether two matrices are disjoint column (or row) ranges of one larger matrix."""
    if x.ndim != 2 or x.strides != y.strides or min(x.strides) <= 0:
        return False
    pitch = max(x.strides)
    narrow = x.strides.index(min(x.strides))
    width_x, width_y = x.shape[narrow] * x.strides[narrow], y.shape[narrow] * y.strides[narrow]
    gap = (matrix_of(y).address - matrix_of(x).address) % pitch
    return bool(width_x <= gap and gap + width_y <= pitch)


def check_apart(operands: Sequence[Array]) -> None:
    """Refuse (E523) an operand that one product would consume and another one reads."""
    for (first, x), (second, y) in combinations(enumerate(operands, 1), 2):
        if shares_memory(x, y):
            message = f"inputs='consume' needs operands {first} and {second} apart, but they share memory"
            raise fail("E523", message, "pass a copy of one of them or inputs='preserve'")


def indices(shape: Extents) -> Iterator[Extents]:
    """The indices of an array, row by row. NumPy's function stops at 32 dimensions; this one does not."""
    return product(*map(range, shape))


def _matrices(array: Array) -> list[Matrix]:
    """The matrices of a batch."""
    whole = matrix_of(array)
    return [whole.at(index) for index in indices(array.shape[:-2])]


def check_writable_inputs(executor: Executor, a: Array, b: Array, out: Array, inputs: str) -> None:
    """Refuse `restore` and `consume` (E521 to E524) if writing A and B could lose data; `restore` also needs finite values.

    The operands are whole batches, so everything is checked before anything is written.
    """
    problems: list[BilinearError] = []
    for name, array in (("a", a), ("b", b)):
        if not is_writable(array):
            message = f"inputs={inputs!r} writes {name}, which is read-only"
            problems.append(fail("E521", message, "pass a writable array or inputs='preserve'"))
        if layout_of(array).overlaps_itself:
            problems.append(fail("E522", f"inputs={inputs!r} writes {name}, whose elements share memory", "pass a copy of it"))
    for first, x, second, y in (("a", a, "b", b), ("a", a, "out", out), ("b", b, "out", out)):
        if shares_memory(x, y):
            message = f"inputs={inputs!r} needs {first} and {second} apart, but they share memory"
            problems.append(fail("E523", message, "pass a copy of one of them or inputs='preserve'"))
    if not problems and inputs == "restore":
        matrices = {name: _matrices(array) for name, array in (("a", a), ("b", b))}
        if not executor.is_finite(*matrices["a"], *matrices["b"]):  # both at once: a GPU is waited for once
            for name in (name for name, own in matrices.items() if not executor.is_finite(*own)):
                message = f"{name} has an Inf or a NaN, which an in-place schedule would spread and could not restore"
                problems.append(fail("E524", message, "use inputs='preserve'"))
    if problems:
        raise BilinearError(d for problem in problems for d in problem.diagnostics)
