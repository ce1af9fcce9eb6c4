"""What must hold before a plan may write A and B."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from bilinear.errors import BilinearError, fail

if TYPE_CHECKING:  # `bilinear.plan` needs none of what an executor imports
    from bilinear.backends.executor import Executor

Extents = tuple[int, ...]

MOST_WORK = 100_000
"""Steps that NumPy may take to decide whether two views share memory."""


def is_writable(array: Any) -> bool:
    """Whether the caller lets us write an array (CuPy's arrays always may be)."""
    return bool(getattr(array.flags, "writeable", True))


def overlaps_itself(array: Any) -> bool:
    """Whether two elements of an array may share memory: a stride smaller than what lies below it."""
    return _overlaps_itself(array.shape, array.strides, array.itemsize)


@lru_cache(maxsize=1024)
def _overlaps_itself(shape: Extents, strides: Extents, itemsize: int) -> bool:
    if prod(shape) <= 1:
        return False
    reach = itemsize
    for stride, extent in sorted((abs(s), e) for s, e in zip(strides, shape, strict=True) if e > 1):
        if stride < reach:
            return True
        reach += stride * (extent - 1)
    return False


def shares_memory(x: Any, y: Any) -> bool:
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


def is_by_column(x: Any) -> bool:
    """Whether the columns of a matrix, or of a batch of them, are contiguous."""
    return bool(x.strides[-2] == x.itemsize != x.strides[-1])


def has_gaps(matrix: Any) -> bool:
    """Whether the elements of a matrix, or of each of a batch, do not lie one behind the other, row by row or column by column."""
    (m, n), strides, size = matrix.shape[-2:], matrix.strides[-2:], matrix.itemsize
    return tuple(strides) not in ((n * size, size), (size, m * size))


def lies_evenly(matrix: Any) -> bool:
    """Whether it is one matrix, whose rows are apart by a multiple of 16 bytes."""
    return bool(matrix.ndim == 2 and matrix.strides[0] % 16 == 0)


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0]) if isinstance(array, np.ndarray) else int(array.data.ptr)


def _bounds(array: Any) -> tuple[int, int]:
    """The addresses of its first byte, and behind its last."""
    low, high = reach(array.shape, array.strides, array.itemsize)
    address = _address(array)
    return address + low, address + high


@lru_cache(maxsize=1024)
def reach(shape: Extents, strides: Extents, itemsize: int) -> tuple[int, int]:
    """How many bytes before its first element an array starts, and behind it ends."""
    moves = [stride * (extent - 1) for stride, extent in zip(strides, shape, strict=True)]
    return sum(min(0, move) for move in moves), sum(max(0, move) for move in moves) + itemsize


def _beside_each_other(x: Any, y: Any) -> bool:
    """Whether two matrices are disjoint column (or row) ranges of one larger matrix."""
    if x.ndim != 2 or x.strides != y.strides or min(x.strides) <= 0:
        return False
    pitch = max(x.strides)
    narrow = x.strides.index(min(x.strides))
    width_x, width_y = x.shape[narrow] * x.strides[narrow], y.shape[narrow] * y.strides[narrow]
    gap = (_address(y) - _address(x)) % pitch
    return bool(width_x <= gap and gap + width_y <= pitch)


def indices(shape: Extents) -> Iterator[Extents]:
    """The indices of an array of any number of dimensions, row by row; NumPy's own end at 32."""
    return product(*map(range, shape))


def _matrices(array: Any) -> list[Any]:
    """The matrices of a batch."""
    return [array] if array.ndim == 2 else [array[index] for index in indices(array.shape[:-2])]


def check_writable_inputs(executor: Executor, a: Any, b: Any, out: Any, inputs: str) -> None:
    """Refuse `restore` and `consume` where writing A and B could lose data; `restore` also needs finite values (E52x).

    The operands are whole batches: everything is refused before anything is written.
    """
    problems: list[BilinearError] = []
    for name, array in (("a", a), ("b", b)):
        if not is_writable(array):
            message = f"inputs={inputs!r} writes {name}, which is read-only"
            problems.append(fail("E521", message, "pass a writable array or inputs='preserve'"))
        if overlaps_itself(array):
            problems.append(fail("E522", f"inputs={inputs!r} writes {name}, whose elements share memory", "pass a copy of it"))
    for first, x, second, y in (("a", a, "b", b), ("a", a, "out", out), ("b", b, "out", out)):
        if shares_memory(x, y):
            message = f"inputs={inputs!r} needs {first} and {second} apart, but they share memory"
            problems.append(fail("E523", message, "pass a copy of one of them or inputs='preserve'"))
    if not problems and inputs == "restore":
        matrices = {name: _matrices(array) for name, array in (("a", a), ("b", b))}
        if not executor.is_finite(*matrices["a"], *matrices["b"]):  # both at once: on a GPU one answer is waited for
            for name in (name for name, own in matrices.items() if not executor.is_finite(*own)):
                message = f"{name} has an Inf or a NaN, which the sums of an in-place schedule would spread and not give back"
                problems.append(fail("E524", message, "use inputs='preserve'"))
    if problems:
        raise BilinearError(d for problem in problems for d in problem.diagnostics)
