"""What must hold before a plan may write A and B."""

from __future__ import annotations

from typing import Any

import numpy as np

from bilinear.errors import BilinearError, fail
from bilinear.runtime.executor import Executor

MOST_WORK = 100_000
"""Steps that NumPy may take to decide whether two views share memory."""


def is_writable(array: Any) -> bool:
    """Whether the caller lets us write an array (CuPy's arrays always may be)."""
    return bool(getattr(array.flags, "writeable", True))


def overlaps_itself(array: Any) -> bool:
    """Whether two elements of an array may share memory: a stride smaller than what lies below it."""
    if array.size <= 1:
        return False
    reach = array.itemsize
    for stride, extent in sorted((abs(s), e) for s, e in zip(array.strides, array.shape, strict=True) if e > 1):
        if stride < reach:
            return True
        reach += stride * (extent - 1)
    return False


def shares_memory(x: Any, y: Any) -> bool:
    """Whether two arrays may have an element in common; undecided counts as yes."""
    if x.size == 0 or y.size == 0:
        return False
    if isinstance(x, np.ndarray):
        try:
            return bool(np.shares_memory(x, y, max_work=MOST_WORK))  # type: ignore[arg-type]  # any count is allowed
        except np.exceptions.TooHardError:
            return not _beside_each_other(x, y)
    (x_low, x_high), (y_low, y_high) = _bounds(x), _bounds(y)
    return x_low < y_high and y_low < x_high and not _beside_each_other(x, y)


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0]) if isinstance(array, np.ndarray) else int(array.data.ptr)


def _bounds(array: Any) -> tuple[int, int]:
    low = high = _address(array)
    for stride, extent in zip(array.strides, array.shape, strict=True):
        low += min(0, stride * (extent - 1))
        high += max(0, stride * (extent - 1))
    return low, high + array.itemsize


def _beside_each_other(x: Any, y: Any) -> bool:
    """Whether two matrices are disjoint column (or row) ranges of one larger matrix."""
    if x.ndim != 2 or x.strides != y.strides or min(x.strides) <= 0:
        return False
    pitch = max(x.strides)
    narrow = x.strides.index(min(x.strides))
    width_x, width_y = x.shape[narrow] * x.strides[narrow], y.shape[narrow] * y.strides[narrow]
    gap = (_address(y) - _address(x)) % pitch
    return bool(width_x <= gap and gap + width_y <= pitch)


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
        for name, array in (("a", a), ("b", b)):
            if not all(executor.is_finite(array[index]) for index in np.ndindex(*array.shape[:-2])):
                message = f"{name} has an Inf or a NaN, which the sums of an in-place schedule would spread and not give back"
                problems.append(fail("E524", message, "use inputs='preserve'"))
    if problems:
        raise BilinearError(d for problem in problems for d in problem.diagnostics)
