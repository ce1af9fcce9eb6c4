"""Repeat: find a multiply that ran on a GPU before by its options and layouts, and only launch its kernels again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from math import prod
from types import ModuleType
from typing import TYPE_CHECKING

from bilinear.backends.bound_launches import InC
from bilinear.backends.caches import keep
from bilinear.backends.capture import LARGE, fitting, is_captured
from bilinear.backends.executor import Stopped, execute, parts_of, run_parts
from bilinear.backends.factor import check_scaling, factor
from bilinear.errors import BilinearError
from bilinear.ir.matrix import Array, Call, Factor, Layout, Matrix, flat, is_own_transpose
from bilinear.ir.placement import Placement
from bilinear.runtime.decide import Decision
from bilinear.runtime.devices_here import DEVICE, USE_LIBRARY, uses_library, value_of
from bilinear.runtime.options import Options
from bilinear.runtime.recipe import largest_scaling

if TYPE_CHECKING:  # imported with the first call on a GPU
    from bilinear.backends.cuda_executor import CudaExecutor

Key = tuple[object, ...]
Operands = tuple[Layout, Layout, Layout]  # The layouts of A, B and C.
MOST_REPEATS = 512  # The most calls that are kept; the oldest is dropped.
_NUMBERS = (int, float)
_PLAIN = (type(None), str, int)
_ACCURACIES = (*_PLAIN, float)


def _near(x: Layout, y: Layout) -> tuple[int, int]:
    """The distances between the addresses of arrays of two layouts within which they may share bytes."""
    (x_low, x_high), (y_low, y_high) = x.reach, y.reach
    return y_low - x_high, y_high - x_low


class Repeat:
    """A multiply for arrays of known layouts on one device, in `workspace` bytes."""

    is_launched = True  # Whether a call is launches and nothing else.
    writes_inputs = False
    offers = 64
    """How often it is still offered to C, which drops it for others, and never answers for some addresses."""

    def __init__(self, module: ModuleType, decision: Decision, layouts: Operands, workspace: int = 0) -> None:
        self._module, self._empty = module, module.empty
        self._shape, self._dtype, self._layouts, self.workspace = decision.shape, decision.dtype, layouts, workspace
        a, b, c = layouts
        self._left, self._right, self._operands = _near(a, c), _near(b, c), _near(a, b)

    def run(self, a: Array, b: Array, out: Array, alpha: Factor, beta: Factor) -> Array:
        """alpha * a @ b + beta * out. None, with nothing written, if `multiply` must decide anew."""
        raise NotImplementedError

    def launch(self, left: int, right: int, target: int, alpha: Factor, beta: Factor, workspace: int) -> None:
        """Launch by addresses on CuPy's current stream, with `workspace` bytes at an address. Raises before anything is written."""
        raise NotImplementedError

    @cached_property
    def in_c(self) -> InC | None:
        """The same with the usual factors, for C to issue; None if C cannot."""
        return None

    @property
    def reaches(self) -> tuple[int, int, int, int]:
        """The distances of A and C, and of B and C, above the first and below the second of which they may share bytes."""
        return *self._left, *self._right

    def may_overlap(self, left: int, right: int, target: int) -> bool:
        """Whether an array that is written may overlap another one at these addresses. A target of 0 is a new result."""
        if target and (self._left[0] < left - target < self._left[1] or self._right[0] < right - target < self._right[1]):
            return True
        return self.writes_inputs and self._operands[0] < left - right < self._operands[1]

    def result_bytes(self, out: Array) -> int:
        """The bytes of a new result; 0 if there is an `out`."""
        return 0 if out is not None else prod(self._shape) * self._dtype.itemsize


class LibraryRepeat(Repeat):
    """The library's multiply, or a thin product."""

    def __init__(self, module: ModuleType, decision: Decision, layouts: Operands, multiply: Callable[..., None], workspace: int) -> None:
        super().__init__(module, decision, layouts, workspace)
        self._multiply = multiply

    def run(self, a: Array, b: Array, out: Array, alpha: Factor, beta: Factor) -> Array:
        """alpha * a @ b + beta * out. None, with nothing written, if `multiply` must decide anew.

        That is so if arrays may overlap, if memory is short or needed during capture, or if a kernel cannot be built for these addresses.
        """
        left, right = a.data.ptr, b.data.ptr
        if (out is None or self.workspace) and is_captured():
            return None
        if self.workspace >= LARGE and fitting(self.workspace, self.result_bytes(out)) is not None:
            return None
        if out is None:
            out = self._empty(self._shape, self._dtype)
            target = out.data.ptr
        else:
            target = out.data.ptr
            if self.may_overlap(left, right, target):
                return None
        try:
            self._multiply(left, right, target, alpha, beta)
        except (BilinearError, MemoryError):
            return None
        return out

    def launch(self, left: int, right: int, target: int, alpha: Factor, beta: Factor, workspace: int) -> None:
        """Launch by addresses."""
        if workspace:
            self._multiply(left, right, target, alpha, beta, workspace)
        else:
            self._multiply(left, right, target, alpha, beta)

    @cached_property
    def in_c(self) -> InC | None:
        """The same with the usual factors, for C to issue; None if C cannot."""
        made = getattr(self._multiply, "in_c", None)  # some are launched otherwise
        return None if made is None or self.workspace >= LARGE else made()


class CupyRepeat(Repeat):
    """`cupy.matmul`."""

    is_launched = False

    def run(self, a: Array, b: Array, out: Array, alpha: Factor, beta: Factor) -> Array:
        """a @ b. None, with nothing written, if there are factors, if arrays may overlap, or if the stream is captured."""
        if alpha != 1 or beta != 0 or is_captured():
            return None
        if out is None:
            out = self._empty(self._shape, self._dtype)
        elif self.may_overlap(a.data.ptr, b.data.ptr, out.data.ptr):
            return None
        return self._module.matmul(a, b, out=out)


class PlacementRepeat(Repeat):
    """A placement for matrices of one dtype."""

    def __init__(
        self, module: ModuleType, executor: CudaExecutor, decision: Decision, placement: Placement, inputs: str, layouts: Operands
    ) -> None:
        self._elements = placement.allocated_elements
        super().__init__(module, decision, layouts, self._elements * decision.dtype.itemsize)
        self._executor, self._is_captured = executor, module.cuda.runtime.streamIsCapturing
        self._one: Array
        self._zero: Array
        self._one, self._zero = decision.dtype.type(1), decision.dtype.type(0)
        self._placement, self._parts, self._largest = placement, parts_of(placement), largest_scaling(placement)
        self._bound = executor.bind(placement, *layouts) if placement.rest is None else None  # those of a chain are bound one by one
        self.writes_inputs, self._scans = inputs != "preserve", inputs == "restore"
        self._needs_more = bool(self._elements) or self._scans
        self.is_launched = self._bound is not None and not self._scans

    def run(self, a: Array, b: Array, out: Array, alpha: Factor, beta: Factor) -> Array:
        """alpha * a @ b + beta * out. None, with nothing written, if `multiply` must decide anew.

        That is so if arrays may overlap, if A or B holds an Inf or a NaN, which cannot be restored, if memory is short, or if the stream is
        captured and there is no `out` or the placement needs more than launches.
        """
        executor, dtype = self._executor, self._dtype
        left, right, target = a.data.ptr, b.data.ptr, 0 if out is None else out.data.ptr
        if self.may_overlap(left, right, target):
            return None
        stream = executor.stream()
        if (self._needs_more or out is None) and self._is_captured(stream):
            return None
        if self.workspace >= LARGE and fitting(self.workspace, self.result_bytes(out)) is not None:
            return None
        if self._scans and not executor.is_finite(Matrix(left, self._layouts[0]), Matrix(right, self._layouts[1])):
            return None
        try:
            buffer = self._empty(self._elements, dtype) if self._elements else None
            if out is None:
                out = self._empty(self._shape, dtype)
                target = out.data.ptr
        except MemoryError:
            return None
        self.launch(left, right, target, alpha, beta, 0 if buffer is None else buffer.data.ptr, stream)
        return out

    def launch(self, left: int, right: int, target: int, alpha: Factor, beta: Factor, workspace: int, stream: int | None = None) -> None:
        """Launch by addresses on CuPy's current stream, whose handle may be given, with `workspace` bytes at an address."""
        dtype = self._dtype
        factors = self._one if alpha == 1 else factor("alpha", alpha, dtype), self._zero if beta == 0 else factor("beta", beta, dtype)
        if self._largest > 1:
            check_scaling(factors[0], self._largest, dtype)
        bases = left, right, target, workspace
        if self._bound is None:
            execute(self._executor, self._placement, self._call(bases, factors))
            return
        ready = self._bound.ready(bases, *factors, self._executor.stream() if stream is None else stream)
        call = partial(self._call, bases, factors)
        run_parts(self._placement, self._parts, ready, lambda done: Stopped(self._executor, self._placement, call(), None, done))

    @cached_property
    def in_c(self) -> InC | None:
        """The same with the usual factors, for C to issue; None if C cannot, or if A and B would have to be restored after an error."""
        if self._bound is None or self.writes_inputs or self.workspace >= LARGE:
            return None
        found = self._bound.in_c(self._one, self._zero)
        return None if found is None else replace(found, workspace=self.workspace)

    def _call(self, bases: tuple[int, ...], factors: tuple[Factor, Factor]) -> Call:
        a, b, c = map(Matrix, bases[:3], self._layouts)
        workspace = Matrix(bases[3], flat(self._elements, self._dtype)) if self._elements else None
        return Call(a, b, c, *factors, workspace)


_repeats: dict[Key, tuple[Repeat, Options]] = {}
"""Each with what was asked for, which keeps alive what its key names by identity."""


def repeated(a: Array, b: Array, out: Array, asked: Options) -> tuple[Key | None, Repeat | None]:
    """The key of a call, and what is kept under it. The key is None for a call that is never kept.

    The key holds everything that decides what runs and whether it may run: no
    values, of the factors only whether they are 0, and of the addresses only whether B is A^T. Only calls with CuPy's own arrays and
    options of built-in types have one, because their equality is reliable. An algorithm is `auto` or the one that its name meant at the
    call. The number of the device and BILINEAR_DEVICE stand for the description of the device. Calls that the environment makes the
    library's multiply have none.
    """
    cupy = sys.modules.get("cupy")
    if cupy is None or not type(a) is type(b) is cupy.ndarray or (out is not None and type(out) is not cupy.ndarray):
        return None, None
    own = asked_key(asked)
    if own is None:
        return None, None
    left, right = a.strides, b.strides  # CuPy makes a new tuple each time
    shape, strides, dtype = (None, None, None) if out is None else (out.shape, out.strides, out.dtype)
    is_transposed = left == right[::-1] and is_own_transpose(a, b)  # most calls are spared the look at addresses
    key = a.shape, left, a.dtype, b.shape, right, b.dtype, shape, strides, dtype, cupy.cuda.runtime.getDevice(), is_transposed, own
    found = _repeats.get(key)
    return key, None if found is None else found[0]


def asked_key(asked: Options) -> Key | None:
    """What the options say of what runs; None if a call with them is never kept."""
    alpha, beta, algorithm, levels, inputs, workspace, tolerance, plan, accuracy, *_ = asked
    if type(alpha) not in _NUMBERS or type(beta) not in _NUMBERS or type(levels) not in _PLAIN or type(workspace) not in _PLAIN:
        return None
    if (
        tolerance is not None
        or type(asked.reproducible) not in _PLAIN
        or asked.conjugated
        or (value_of(USE_LIBRARY) is not None and uses_library())
        or type(inputs) is not str
        or type(accuracy) not in _ACCURACIES
        or type(asked.contention) is not str
    ):
        return None
    named, settled = algorithm if type(algorithm) is str else id(algorithm), None if plan is None else id(plan)
    promised = asked.reproducible, asked.contention
    return named, levels, inputs, workspace, settled, accuracy, promised, alpha != 0, beta != 0, value_of(DEVICE)


def keep_repeat(key: Key, asked: Options, repeat: Repeat) -> None:
    """Keep a call that has run."""
    keep(_repeats, key, (repeat, asked), MOST_REPEATS)


def is_kept(key: Key) -> bool:
    """Whether a call is kept under this key. Another one may have been kept while this one ran."""
    return key in _repeats
