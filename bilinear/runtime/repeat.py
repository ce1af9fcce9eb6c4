"""Repeat: a multiply on a GPU that ran before, found again by its options and layouts, so that little but launches is left."""

from __future__ import annotations

import sys
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

from bilinear.backends.capture import is_captured
from bilinear.backends.cublas import Multiply
from bilinear.backends.executor import execute, parts_of, run_parts
from bilinear.backends.factor import check_scaling, factor
from bilinear.backends.newest import keep
from bilinear.ir.matrix import Array, Call, Factor, Layout, Matrix
from bilinear.ir.placement import Placement
from bilinear.runtime.decide import Decision
from bilinear.runtime.environment import DEVICE, USE_LIBRARY, uses_library, value_of
from bilinear.runtime.recipe import largest_scaling
from bilinear.runtime.same import Same

if TYPE_CHECKING:  # imported with the first call on a GPU
    from bilinear.backends.cuda_executor import CudaExecutor

Key = tuple[object, ...]
Operands = tuple[Layout, Layout, Layout]
"""How A, B and C lie."""

MOST_REPEATS = 512
"""Calls that are kept; the oldest goes first."""
_NUMBERS = (int, float)
_PLAIN = (int, str, type(None))


class Reaches:
    """Between which distances of their first elements two operands and a result of known layouts may have bytes in common."""

    def __init__(self, left: Layout, right: Layout, target: Layout) -> None:
        self._left, self._right, self._operands = _near(left, target), _near(right, target), _near(left, right)

    def may_overlap(self, left: int, right: int, target: int, writes_inputs: bool) -> bool:
        """Whether what is written and another array may overlap, at these addresses; no target is a fresh one."""
        if target and (self._left[0] < left - target < self._left[1] or self._right[0] < right - target < self._right[1]):
            return True
        return writes_inputs and self._operands[0] < left - right < self._operands[1]


def _near(x: Layout, y: Layout) -> tuple[int, int]:
    (x_low, x_high), (y_low, y_high) = x.reach, y.reach
    return y_low - x_high, y_high - x_low


class LibraryRepeat:
    """The library's multiply of matrices of known layouts on one device."""

    def __init__(self, module: ModuleType, decision: Decision, reaches: Reaches, multiply: Multiply) -> None:
        self._empty = module.empty
        self._shape, self._dtype = decision.shape, decision.dtype
        self._reaches = reaches
        self._multiply = multiply

    def run(self, a: Array, b: Array, out: Array, alpha: Factor, beta: Factor) -> Array:
        """alpha * a @ b + beta * out; None, with nothing written, where arrays may overlap, or a stream is captured without out."""
        left, right = a.data.ptr, b.data.ptr
        if out is None:
            if is_captured():
                return None
            out = self._empty(self._shape, self._dtype)
            target = out.data.ptr
        else:
            target = out.data.ptr
            if self._reaches.may_overlap(left, right, target, False):
                return None
        self._multiply(left, right, target, alpha, beta)
        return out


class CupyRepeat:
    """`cupy.matmul` of arrays of known layouts."""

    def __init__(self, module: ModuleType, decision: Decision, reaches: Reaches) -> None:
        self._module = module
        self._shape, self._dtype = decision.shape, decision.dtype
        self._reaches = reaches

    def run(self, a: Array, b: Array, out: Array, alpha: Factor, beta: Factor) -> Array:
        """a @ b; None, with nothing written, where factors, arrays that may overlap or a captured stream ask for more."""
        if alpha != 1 or beta != 0 or is_captured():
            return None
        if out is None:
            out = self._module.empty(self._shape, self._dtype)
        elif self._reaches.may_overlap(a.data.ptr, b.data.ptr, out.data.ptr, False):
            return None
        return self._module.matmul(a, b, out=out)


class PlacementRepeat:
    """A placement for three matrices of its own type and of known layouts, on one device."""

    def __init__(
        self, module: ModuleType, executor: CudaExecutor, decision: Decision, placement: Placement, inputs: str, layouts: Operands
    ) -> None:
        self._executor = executor
        self._empty = module.empty
        self._shape, self._dtype = decision.shape, decision.dtype
        self._one: Array
        self._zero: Array
        self._one, self._zero = decision.dtype.type(1), decision.dtype.type(0)
        self._plan = placement
        self._parts = parts_of(placement)
        self._elements = placement.allocated_elements
        self._layouts = layouts
        self._bound = executor.bind(placement, *layouts) if placement.rest is None else None  # in a chain each placement has its own
        self._largest = largest_scaling(placement)
        self._reaches = Reaches(*layouts)
        self._writes_inputs = inputs != "preserve"
        self._scans = inputs == "restore"
        self._needs_more = bool(self._elements) or self._scans

    def run(self, a: Array, b: Array, out: Array, alpha: Factor, beta: Factor) -> Array:
        """alpha * a @ b + beta * out; None, with nothing written, where a longer look must tell what happens.

        That is where arrays may overlap, A or B have an Inf or a NaN that would not be given back, memory is short, or the stream is
        captured and there is no out, or the placement needs more than launches.
        """
        executor, placement, dtype = self._executor, self._plan, self._dtype
        left, right, target = a.data.ptr, b.data.ptr, 0 if out is None else out.data.ptr
        if self._reaches.may_overlap(left, right, target, self._writes_inputs) or ((self._needs_more or out is None) and is_captured()):
            return None
        if self._scans and not executor.is_finite(Matrix(left, self._layouts[0]), Matrix(right, self._layouts[1])):
            return None
        try:
            buffer = executor.allocate(self._elements, dtype) if self._elements else None
            if out is None:
                out = self._empty(self._shape, dtype)
                target = out.data.ptr
        except MemoryError:
            return None
        factors = self._one if alpha == 1 else factor("alpha", alpha, dtype), self._zero if beta == 0 else factor("beta", beta, dtype)
        if self._largest > 1:
            check_scaling(factors[0], self._largest, dtype)
        if self._bound is None:
            execute(executor, placement, self._call(left, right, target, factors, buffer))
            return out
        bases = left, right, target, 0 if buffer is None else buffer.address
        ready = self._bound.ready(bases, *factors, executor.stream())
        run_parts(executor, placement, self._parts, partial(self._call, left, right, target, factors, buffer), ready)
        return out

    def _call(self, left: int, right: int, target: int, factors: tuple[Factor, Factor], workspace: Matrix | None) -> Call:
        a, b, c = map(Matrix, (left, right, target), self._layouts)
        return Call(a, b, c, *factors, workspace)


Repeat = PlacementRepeat | LibraryRepeat | CupyRepeat

_repeats: dict[Key, Repeat] = {}


def repeated(a: Array, b: Array, out: Array, asked: tuple[Array, ...]) -> tuple[Key | None, Repeat | None]:
    """What a call is found again by, and what was kept with that key. No key for what is looked at anew each time.

    `asked` are the first fields of `Options`, up to the plan. The key is all that decides what runs and whether it may. Only CuPy's own
    arrays, and options of the plainest types, have one, so that what is equal is the same. Values and addresses play no part, and of the
    factors only whether they are 0. An algorithm is `auto` or what a name meant when the call was made. What describes the device follows
    from its number and BILINEAR_DEVICE.
    """
    cupy = sys.modules.get("cupy")
    alpha, beta, algorithm, levels, inputs, workspace, tolerance, plan = asked
    if cupy is None or not type(a) is type(b) is cupy.ndarray or (out is not None and type(out) is not cupy.ndarray):
        return None, None
    if type(alpha) not in _NUMBERS or type(beta) not in _NUMBERS or type(levels) not in _PLAIN or type(workspace) not in _PLAIN:
        return None, None
    if tolerance is not None or type(inputs) is not str or (value_of(USE_LIBRARY) is not None and uses_library()):
        return None, None
    named, settled = algorithm if type(algorithm) is str else Same(algorithm), None if plan is None else Same(plan)
    shape, strides, dtype = (None, None, None) if out is None else (out.shape, out.strides, out.dtype)
    device, described = cupy.cuda.runtime.getDevice(), value_of(DEVICE)
    own = named, levels, inputs, workspace, settled, alpha != 0, beta != 0, device, described
    key = a.shape, a.strides, a.dtype, b.shape, b.strides, b.dtype, shape, strides, dtype, own
    return key, _repeats.get(key)


def keep_repeat(key: Key, repeat: Repeat) -> None:
    """Keep a call that has run."""
    keep(_repeats, key, repeat, MOST_REPEATS)


def is_kept(key: Key) -> bool:
    """Whether a call is kept with this key: while this one ran, another may have been."""
    return key in _repeats
