"""A program: launches over named buffers that multiply matrices of known layouts, laid out once, when they are bound to a device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from math import ceil
from typing import TypeVar, cast

import numpy as np

from bilinear.backends.bound_launches import BoundLaunches, InC, MatrixPlace, Values, run_launches
from bilinear.backends.cublas import Multiply
from bilinear.backends.cuda_executor import CudaExecutor, launch_kernel
from bilinear.backends.factor import factor
from bilinear.backends.gemm import ALIGNMENT
from bilinear.backends.loaded_kernels import built_functions
from bilinear.ir.element import Element, IntegerElement
from bilinear.ir.kernel import Cover, Grid
from bilinear.ir.launch import Launch, PlainLaunch
from bilinear.ir.matrix import Array, Dtype, Factor, Layout
from bilinear.planner.ways import kept_by_names

A, B, C, WORKSPACE, BESIDE = range(5)  # The bases. `BESIDE` is memory that C lends, or what was prepared.
LENT_CELL = 256  # C lends memory from its first address on that is a multiple of so many bytes.
MOST_KEPT = 1024  # The most programs that are kept with their launches; the least used is dropped.
GRID = Grid(((Cover("blocks", 1),),), 1)  # Blocks of threads, as many as an argument says.
NamedLaunch = tuple[Launch | PlainLaunch, Values]  # A launch; a `Place` among arguments is in a buffer.
Buffers = Mapping[str, tuple[int, int]]  # Where buffers lie: a base, and bytes behind it.
T = TypeVar("T")


class Program(ABC):
    """C = alpha * A * B + beta * C for matrices of these layouts, called with addresses like a library's multiply.

    If it `swaps`, A and B change places: its layouts are those of C^T = B^T A^T. `workspace` is the number of elements that a call
    allocates from CuPy's pool. The caller's memory, in its place, must begin at a multiple of `alignment` bytes. `what` names the product
    where a launch fails, and `writing` is the number of the last launches that write C. It may `lend` memory of C to itself.
    """

    alignment = ALIGNMENT
    what = "a product"
    writing = 1
    lends = False

    def __init__(
        self, layouts: tuple[Layout, Layout, Layout], swaps: bool, element: Element | IntegerElement, is_complex: bool = False
    ) -> None:
        self._layouts, self.swaps, self._element, self._is_complex = layouts, swaps, element, is_complex
        self._dtype: Dtype = layouts[2].dtype
        self._bound: dict[bool, BoundLaunches] = {}
        self._executor = CudaExecutor()
        self._number: Dtype = self._dtype if element.wider is None else np.dtype(element.wider.name)
        self._usual_factors: tuple[Factor, Factor] = factor("alpha", 1, self._number), factor("beta", 0, self._number)
        self.workspace = 0

    @abstractmethod
    def launches(self, is_aligned: bool, multiprocessors: int) -> list[NamedLaunch]:
        """The launches in their order, for operands at multiples of 16 bytes, or at any address."""

    def buffers(self) -> Buffers:
        """Where named buffers lie."""
        return {"A": (A, 0), "B": (B, 0), "C": (C, 0)}

    def __call__(self, a: int, b: int, c: int, alpha: Factor, beta: Factor, workspace: int = 0, kept: int = 0) -> None:
        """Launch on CuPy's current stream; `workspace` is the address of the caller's memory, if there is one.

        `kept` is the address of what was prepared, for a product that reads it. Raises `StageError` if a launch fails, and before any
        launch the errors of missing kernels and memory.
        """
        if self.swaps:
            a, b = b, a
        pooled = None
        if self.workspace and not workspace:
            pooled = self.allocate()  # freed in stream order
            workspace = pooled.data.ptr
        bound = self.bound((a | b | c | workspace) % ALIGNMENT == 0)
        bases = a, b, c, workspace, ceil(c / LENT_CELL) * LENT_CELL if self.lends else kept
        with bound.ready(bases, *self.factors(alpha, beta), self._executor.stream()) as steps:
            run_launches(steps, self.what, self.writing)

    def allocate(self) -> Array:
        """The workspace, from CuPy's pool."""
        import cupy

        return cupy.empty(self.workspace, self._dtype)

    def within(self, workspace: int) -> Multiply:
        """The same, in the caller's memory at this address."""
        return lambda a, b, c, alpha, beta: self(a, b, c, alpha, beta, workspace)

    def factors(self, alpha: Factor, beta: Factor) -> tuple[Factor, Factor]:
        """alpha and beta as numbers of the type in which kernels compute."""
        if alpha == 1 and beta == 0:  # most calls; to make these numbers takes as long as three launches
            return self._usual_factors
        return factor("alpha", alpha, self._number), factor("beta", beta, self._number)

    def in_c(self) -> InC | None:
        """The launches for operands at multiples of 16 bytes and the usual factors, for C to issue; None if C cannot."""
        is_other = self.lends or self._is_complex or type(self).__call__ is not Program.__call__
        found = None if is_other else self.bound(True).in_c(*self._usual_factors)
        return None if found is None else replace(found, is_aligned=True, swaps=self.swaps, workspace=self.workspace * self._dtype.itemsize)

    def bound(self, is_aligned: bool) -> BoundLaunches:
        """The launches for operands at multiples of 16 bytes, or at any address."""
        found = self._bound.get(is_aligned)
        if found is None:
            import cupy

            count = cupy.cuda.Device().attributes["MultiProcessorCount"]
            found = self._bound[is_aligned] = self.laid_out(self.launches(is_aligned, count), self.buffers())
        return found

    def laid_out(self, launches: list[NamedLaunch], buffers: Buffers) -> BoundLaunches:
        """Launches with their buffers at these places."""
        import cupy

        functions = built_functions([launch.kernel for launch, _ in launches], cupy.cuda.Device().id)
        loaded = [(launch, function, lay(values, buffers)) for (launch, values), function in zip(launches, functions, strict=True)]
        return BoundLaunches(self._element, loaded, launch_kernel(), self._is_complex)


def lay(values: Values, buffers: Buffers) -> Values:
    """The arguments of a launch with their buffers at these places; what lies at a base already stays there."""

    def laid(place: MatrixPlace) -> MatrixPlace:
        if not isinstance(place.base, str):
            return place
        base, offset = buffers[place.base]
        return replace(place, base=base, offset=offset + place.offset)

    return {name: laid(value) if isinstance(value, MatrixPlace) else value for name, value in values.items()}


def shift(values: Values, offsets: Mapping[str, int]) -> Values:
    """The arguments of a launch that begins so many bytes later in these buffers."""

    def shifted(place: MatrixPlace) -> MatrixPlace:
        more = offsets.get(place.base, 0) if isinstance(place.base, str) else 0
        return replace(place, offset=place.offset + more) if more else place

    return {name: shifted(value) if isinstance(value, MatrixPlace) else value for name, value in values.items()}


def matrix(name: str, x: Layout) -> Values:
    """The arguments that say where a matrix lies."""
    rows, columns = (stride // x.itemsize for stride in x.strides)
    return {name: MatrixPlace(name, 0, x.strides, x.itemsize), f"{name}_rs": rows, f"{name}_cs": columns}


def once(make: Callable[..., T], *key: Hashable) -> T:
    """What `make` makes of these arguments on the current device, with the launches that it binds: that takes longer than many products."""
    import cupy

    return cast("T", _kept(make, key, cupy.cuda.runtime.getDevice()))


@kept_by_names(MOST_KEPT)
def _kept(make: Callable[..., object], key: tuple[Hashable, ...], device: int) -> object:
    return make(*key)
