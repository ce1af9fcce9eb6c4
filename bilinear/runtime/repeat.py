"""Repeat: a multiply on a GPU that ran before, found again by its options and layouts, so that little but launches is left."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from bilinear.ir.plan import Plan
from bilinear.runtime import auto
from bilinear.runtime.bound import Bound
from bilinear.runtime.executor import parts_of, run_parts
from bilinear.runtime.fitted import Same
from bilinear.runtime.kept import keep
from bilinear.runtime.problem import ArrayProblem, factor
from bilinear.runtime.safety import reach

if TYPE_CHECKING:  # imported with the first call on a GPU
    from bilinear.runtime.cuda_executor import CudaExecutor

Key = tuple[Any, ...]

MOST_REPEATS = 512
"""Calls that are kept; the oldest goes first."""
_NUMBERS = (int, float)
_PLAIN = (int, str, type(None))


_SWITCH = "BILINEAR_USE_LIBRARY"
# What `os.environ` keeps. Its own look takes through five functions, which is a third of the time of a call that other work has pushed out
# of the caches.
_kept_environment = getattr(os.environ, "_data", None)
_kept_switch = os.fsencode(_SWITCH) if os.name == "posix" else _SWITCH


def uses_library() -> bool:
    """Whether BILINEAR_USE_LIBRARY asks for the library's multiply everywhere."""
    if _kept_environment is not None and _kept_switch not in _kept_environment:
        return False
    return os.environ.get(_SWITCH, "") not in ("", "0")


def key_of(
    a: Any, b: Any, out: Any, alpha: Any, beta: Any, algorithm: Any, levels: Any, inputs: Any, workspace: Any, tolerance: Any, plan: Any
) -> Key | None:
    """What a call is found again by: all that decides what runs and whether it may; None for what is looked at anew each time.

    That is all but CuPy's own arrays, with options of the plainest types, so that what is equal is the same. Values and addresses play
    no part, and of the factors only whether they are 0. A name that meant a shipped algorithm goes on to mean it.
    """
    cupy = sys.modules.get("cupy")
    if cupy is None or not (type(a) is type(b) is cupy.ndarray) or (out is not None and type(out) is not cupy.ndarray):
        return None
    if type(alpha) not in _NUMBERS or type(beta) not in _NUMBERS or type(levels) not in _PLAIN or type(workspace) not in _PLAIN:
        return None
    if tolerance is not None or type(inputs) is not str or uses_library():
        return None
    device: Any = cupy.cuda.runtime.getDevice()
    if type(algorithm) is not str:
        algorithm = Same(algorithm)
    elif algorithm == levels == "auto":
        device = device, Same(auto.current_device())
    given = None if out is None else (out.shape, out.strides, out.dtype)
    own = a.shape, a.strides, a.dtype, b.shape, b.strides, b.dtype, given
    return own, algorithm, levels, inputs, workspace, None if plan is None else Same(plan), device, alpha != 0, beta != 0


class Reaches:
    """How far two operands and a result of known layouts reach before and behind their first elements."""

    def __init__(self, *arrays: Any) -> None:
        self._left, self._right, self._target = (reach(x.shape, x.strides, x.itemsize) for x in arrays)

    def may_overlap(self, left: int, right: int, target: int, writes_inputs: bool) -> bool:
        """Whether what is written and another array may have bytes in common, at these addresses; no target is a fresh one."""
        left_low, left_high = left + self._left[0], left + self._left[1]
        right_low, right_high = right + self._right[0], right + self._right[1]
        if writes_inputs and left_low < right_high and right_low < left_high:
            return True
        low, high = target + self._target[0], target + self._target[1]
        return target != 0 and ((left_low < high and low < left_high) or (right_low < high and low < right_high))


class LibraryRepeat:
    """The library's multiply of arrays of known layouts."""

    def __init__(self, module: Any, problem: ArrayProblem, reaches: Reaches) -> None:
        self._module = module
        self._problem = problem
        self._reaches = reaches

    def run(self, a: Any, b: Any, out: Any, alpha: Any, beta: Any) -> Any:
        """a @ b; None, with nothing written, where factors or arrays that may overlap ask for more."""
        if alpha != 1 or beta != 0:
            return None
        if out is None:
            out = self._module.empty(self._problem.shape, self._problem.dtype)
        elif self._reaches.may_overlap(a.data.ptr, b.data.ptr, out.data.ptr, False):
            return None
        self._module.matmul(a, b, out=out)
        return out


class PlanRepeat:
    """A plan for three matrices of its own type and of known layouts, on one device."""

    def __init__(self, executor: CudaExecutor, problem: ArrayProblem, plan: Plan, inputs: str, bound: Bound, reaches: Reaches) -> None:
        self._executor = executor
        self._problem = problem
        self._plan = plan
        self._parts = parts_of(plan)
        self._bound = bound
        self._reaches = reaches
        self._writes_inputs = inputs != "preserve"
        self._scans = inputs == "restore"

    def run(self, a: Any, b: Any, out: Any, alpha: Any, beta: Any) -> Any:
        """alpha * a @ b + beta * out; None, with nothing written, where a longer look must tell what happens.

        That is where arrays may overlap, A or B have an Inf or a NaN that would not be given back, or memory is short.
        """
        executor, plan, dtype = self._executor, self._plan, self._problem.dtype
        left, right, target = a.data.ptr, b.data.ptr, 0 if out is None else out.data.ptr
        if self._reaches.may_overlap(left, right, target, self._writes_inputs) or (self._scans and not executor.is_finite(a, b)):
            return None
        try:
            buffer = executor.allocate(plan.workspace_elements, a) if plan.slots else None
            if out is None:
                out = executor.empty(self._problem.shape, a)
                target = out.data.ptr
        except MemoryError:
            return None
        bases = left, right, target, 0 if buffer is None else buffer.data.ptr
        ready = self._bound.ready(bases, factor("alpha", alpha, dtype), factor("beta", beta, dtype), executor.stream())
        run_parts(executor, plan, self._parts, (a, b, out, buffer), ready)
        return out


Repeat = PlanRepeat | LibraryRepeat

_repeats: dict[Key, Repeat] = {}


def repeated(key: Key) -> Repeat | None:
    """The call that was kept with this key."""
    return _repeats.get(key)


def keep_repeat(key: Key, repeat: Repeat) -> None:
    """Keep a call that has run."""
    keep(_repeats, key, repeat, MOST_REPEATS)
