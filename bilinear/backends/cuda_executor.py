"""Placements on a GPU: generated kernels, built once for a device and launched through the driver."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import lru_cache, partial
from math import ceil
from threading import local

import numpy as np

from bilinear.backends.bound_launches import CELL, BoundLaunches, Function, MatrixPlace, Values, launch_values, run_alone
from bilinear.backends.caches import keep
from bilinear.backends.capture import is_captured
from bilinear.backends.executor import ends_with_strip, place_strip
from bilinear.backends.loaded_kernels import built_function, loaded_launches
from bilinear.ir.element import ELEMENTS, Element
from bilinear.ir.kernel import Cover, DigestKernel, Grid, MagnitudeKernel, MirrorKernel, ScanKernel
from bilinear.ir.launch import Launch, PlainLaunch
from bilinear.ir.matrix import Array, Call, Dtype, Factor, Layout, Matrix, flat, indices
from bilinear.ir.placement import Placement, Strip
from bilinear.ir.schedule import Stage

Step = Callable[[], None]
Strides = tuple[int, ...]
Loaded = tuple[Launch, Function, Values]

SCAN_BLOCKS, MOST_MIRRORING = 1024, 2**16  # Blocks of threads that read a matrix; that copy a triangle.
OPERAND_BASES = (0, 1, 2, 5, 6, 7)  # Of A, B, C and their imaginary parts; 3: workspace, 4: what is given.
MOST_BOUND = 256  # The most placements that are kept bound to layouts; the oldest is dropped.


class CudaExecutor:
    """Runs placements on matrices of any strides, in float32 or float64, on the current device and stream."""

    name = "cuda"

    def allocate(self, elements: int, dtype: Dtype) -> Matrix:
        """One uninitialised workspace buffer from CuPy's memory pool, to which it returns with its last reference."""
        import cupy

        buffer = cupy.empty(elements, dtype)
        return Matrix(buffer.data.ptr, flat(elements, dtype), buffer)

    def ready(self, placement: Placement, call: Call) -> AbstractContextManager[Sequence[Step]]:
        """Each strip and each stage of the core as a call that launches its kernel. They are cached by the layouts of the operands."""
        matrices = *call[:3], call.workspace, call.given, *call.imaginary
        bases = [0 if matrix is None else matrix.address for matrix in matrices]
        operands = (x.layout for x in call.operands.values())
        return self.bind(placement, *operands).ready(bases, call.alpha, call.beta, self.stream())

    def bind(self, placement: Placement, *operands: Layout) -> BoundLaunches:
        """The launches of a placement for these layouts. The bases are A, B, C, the workspace, what is given, imaginary parts."""
        import cupy

        strides, dtype = tuple(x.strides for x in operands), operands[0].dtype
        key = (id(placement), strides, dtype, cupy.cuda.runtime.getDevice())
        found = _bounds.get(key)
        if found is None:
            found = placement, BoundLaunches(ELEMENTS[dtype.name], _all_launches(placement, strides, dtype), launch_kernel())
            keep(_bounds, key, found, MOST_BOUND)
        return found[1]

    def stream(self) -> int:
        """The handle of the current stream. The thread gets a context first, because the driver's launches need one."""
        import cupy

        device = cupy.cuda.runtime.getDevice()
        if _thread.device != device:
            cupy.cuda.runtime.free(0)  # nothing is freed: the first call of the runtime in a thread makes the context current
            _thread.device = device
        stream: int = cupy.cuda.get_current_stream().ptr
        return stream

    def steps(self, placement: Placement, stages: tuple[Stage, ...], spaces: dict[str, Matrix], alpha: Factor, beta: Factor) -> list[Step]:
        """Each stage as a call that launches its kernel. These launches are not cached."""
        if not stages:
            return []
        schedule = placement.schedule
        if stages is not schedule.stages:
            schedule = replace(schedule, stages=stages, name=f"{schedule.name}-undo")
        places = {name: MatrixPlace(number, 0, x.layout.strides, x.layout.itemsize) for number, (name, x) in enumerate(spaces.items())}
        element = ELEMENTS[next(iter(spaces.values())).layout.dtype.name]
        bound = BoundLaunches(
            element,
            _launches(replace(placement, schedule=schedule), element, launch_values(placement, places, "alpha", "beta")),
            launch_kernel(),
        )
        with bound.ready([x.address for x in spaces.values()], alpha, beta, self.stream()) as steps:
            return [partial(run_alone, step, bound) for step in steps]

    def wait(self) -> None:
        """Wait for the current stream."""
        import cupy

        cupy.cuda.get_current_stream().synchronize()

    def is_captured(self) -> bool:
        """Whether CuPy's current stream is being captured in a graph."""
        return is_captured()

    def is_finite(self, *matrices: Matrix) -> bool:
        """Whether every element is finite. A kernel reads each matrix once and sets a flag in host memory; there is one wait for all."""
        import cupy

        try:
            flag = _idle_flags.pop()
        except IndexError:
            flag = _Flag(cupy.cuda.alloc_pinned_memory(CELL))
        flag.value.value = 0
        stream, device = self.stream(), cupy.cuda.runtime.getDevice()
        for matrix in matrices:
            with _look(ScanKernel, matrix.layout, device).ready((matrix.address, flag.address), 1, 0, stream) as steps:
                steps[0]()
        self.wait()
        is_finite = flag.value.value == 0
        _idle_flags.append(flag)
        return is_finite

    def digest(self, matrix: Matrix) -> int:
        """A number that tells whether a matrix has changed, in one pass. Blocks of threads write to host memory, and there is a wait."""
        import cupy

        memory = cupy.cuda.alloc_pinned_memory(SCAN_BLOCKS * CELL)
        sums = (ctypes.c_uint64 * SCAN_BLOCKS).from_address(int(memory.ptr))
        ctypes.memset(sums, 0, ctypes.sizeof(sums))
        look = _look(DigestKernel, matrix.layout, cupy.cuda.runtime.getDevice())
        with look.ready((matrix.address, int(memory.ptr)), 1, 0, self.stream()) as steps:
            steps[0]()
        self.wait()
        return sum(sums) % 2**64

    def magnitudes(self, matrix: Matrix, rows: int, columns: int) -> Array:
        """max|x| of each of rows x columns equal blocks, in one pass over the matrix. Inf and NaN stay not finite."""
        import cupy

        shape, strides, dtype = matrix.layout
        element = ELEMENTS[dtype.name]
        function = built_function(MagnitudeKernel(f"magnitudes_{element.cuda}", element), cupy.cuda.Device().id)
        sharing = max(1, SCAN_BLOCKS // (rows * columns))
        largest = cupy.empty((rows, columns, sharing), dtype)
        apart = (np.int64(stride // dtype.itemsize) for stride in strides)
        extents = (np.int64(shape[0] // rows), np.int64(shape[1] // columns), np.int64(columns))
        function((sharing, rows * columns, 1), (256, 1, 1), (np.uint64(matrix.address), *apart, *extents, np.uint64(largest.data.ptr)))
        return largest.get().max(2)

    def mirror(self, lower: Matrix) -> None:
        """Copy the lower triangles of square matrices to the upper ones, in one launch for all matrices along the last axis of a batch."""
        import cupy

        shape, strides, dtype = lower.layout
        batch, n = shape[:-2], shape[-1]
        kernel = MirrorKernel(dtype.itemsize)
        function = built_function(kernel, cupy.cuda.Device().id)
        count, apart = (batch[-1], strides[-3]) if batch else (1, 0)
        numbers = [np.int64(x) for x in (*(s // dtype.itemsize for s in strides[-2:]), n, apart // dtype.itemsize, count)]
        tiles = ceil(n / kernel.threads[0])
        blocks = min(MOST_MIRRORING, count * (tiles * (tiles + 1) // 2))
        for index in indices(batch[:-1]) if n and count else ():
            address = np.uint64(lower.address + sum(i * s for i, s in zip(index, strides, strict=False)))
            function((blocks, 1, 1), (*kernel.threads, 1), (address, *numbers, np.uint64(0)))


class _Flag:
    """An int in host memory that kernels write directly (zero-copy). One call uses it at a time.

    The flag of an interrupted call is not used again, and its memory is never freed, because a kernel may still write it.
    """

    def __init__(self, memory: Array) -> None:
        self.address = int(memory.ptr)
        self.value = ctypes.c_int.from_address(self.address)
        _flag_memories.append(memory)


_flag_memories: list[object] = []
_idle_flags: list[_Flag] = []


class _ThreadDevice(local):
    device: int | None = None


_thread = _ThreadDevice()


def launch_kernel() -> Callable[..., None]:
    """The driver's launch: (function, 3 x blocks, 3 x threads, shared bytes, stream, addresses of the arguments, 0)."""
    from cupy.cuda import driver

    launch: Callable[..., None] = driver.launchKernel
    return launch


_bounds: dict[tuple[object, ...], tuple[Placement, BoundLaunches]] = {}


def _all_launches(placement: Placement, strides: tuple[Strides, ...], dtype: Dtype) -> Iterator[Loaded]:
    """The launches of the strips and of the core, in the order of `parts_of`. The bases are those of `CudaExecutor.bind`."""
    element = ELEMENTS[dtype.name]
    spaces = zip(placement.schedule.operands, OPERAND_BASES, strides, strict=False)
    operands = {space.name: MatrixPlace(base, 0, own, dtype.itemsize) for space, base, own in spaces}

    def thin_launches(strip: Strip, beta: Factor) -> Iterator[Loaded]:
        starts = {"A": (strip.rows[0], strip.inner[0]), "B": (strip.inner[0], strip.columns[0]), "C": (strip.rows[0], strip.columns[0])}
        places = {name: _moved(place, *starts[name[0]]) for name, place in operands.items()}
        thin = place_strip(strip, dtype, placement)
        yield from _launches(thin, element, launch_values(thin, places, "alpha", beta))

    late = ends_with_strip(placement)
    for strip in placement.strips[late:]:
        yield from thin_launches(strip, "beta")
    if placement.core[0]:
        places = operands | _workspaces(placement, dtype.itemsize)
        beta = 1 if placement.core_is_begun and not late else "beta"
        yield from _launches(placement, element, launch_values(placement, places, "alpha", beta))
    for strip in placement.strips[:late]:
        yield from thin_launches(strip, 1)


def _launches(placement: Placement, element: Element, values: Values) -> Iterator[Loaded]:
    for launch, function in loaded_launches(placement.schedule, element, placement.tile, placement.mode):
        yield launch, function, values


def _moved(place: MatrixPlace, row: int, column: int) -> MatrixPlace:
    return replace(place, offset=place.offset + row * place.strides[0] + column * place.strides[1])


def _workspaces(placement: Placement, itemsize: int) -> dict[str, MatrixPlace]:
    """Where the workspaces of a placement lie in its buffer, which is base 3, and in that of the given ones, base 4."""
    places = {}
    for base, slot in (*((3, slot) for slot in placement.slots), *((4, slot) for slot in placement.given)):
        along = slot.leading * itemsize, itemsize
        by_column = placement.schedule.space(slot.space).shape in placement.column_major
        places[slot.space] = MatrixPlace(base, slot.offset * itemsize, (along[1], along[0]) if by_column else along, itemsize)
    return places


@lru_cache(maxsize=MOST_BOUND)
def _look(kind: type[ScanKernel | DigestKernel], layout: Layout, device: int) -> BoundLaunches:
    """The launch of a kernel that reads a matrix of a layout, on the current device. The bases are X and what the kernel writes."""
    shape, strides, dtype = layout
    element = ELEMENTS[dtype.name]
    kernel = kind(f"{kind.__name__.removesuffix('Kernel').lower()}_{element.cuda}", element)
    function = built_function(kernel, device)
    launch = PlainLaunch(kernel, Grid(((Cover("blocks", 1),),), 1))
    x, written = MatrixPlace(0, 0, (strides[0], strides[1]), dtype.itemsize), MatrixPlace(1, 0, (0, 0), CELL)
    values: Values = {"X": x, "X_rs": strides[0] // dtype.itemsize, "X_cs": strides[1] // dtype.itemsize}
    values |= {"found": written, "sums": written, "rows": shape[0], "columns": shape[1], "blocks": SCAN_BLOCKS}
    return BoundLaunches(element, [(launch, function, values)], launch_kernel())
