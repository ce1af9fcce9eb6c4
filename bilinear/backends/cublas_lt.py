"""cublasLt by its C interface, which CuPy does not bind. The kernel for a product of known layouts is looked up once.

For some problems cublasLt has faster kernels than `cublasSgemm` and `cublasDgemm` choose (`cublas.suits_lt`), apparently because it splits
the sums differently. Constants are those of `cublasLt.h`.
"""

from __future__ import annotations

import ctypes
import logging
import sys
import weakref
from collections.abc import Callable
from functools import cache, cached_property, lru_cache

import numpy as np

from bilinear.backends.capture import memory_of_graph
from bilinear.backends.gemm import Gemm
from bilinear.ir.element import ELEMENTS, Element
from bilinear.ir.matrix import Array, Dtype
from bilinear.planner.library import by_columns
from bilinear.planner.library_points import Kernels
from bilinear.planner.problem import Problem

log = logging.getLogger("bilinear")

COMPUTE_TYPES = {"float32": 68, "float64": 70}  # `CUBLAS_COMPUTE_32F`, which narrows nothing, and `64F`.
WORKSPACE, MOST_WORKSPACE = 1, 2**20
"""`CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES`, and the limit. With this limit times are those of PyTorch's cublasLt."""
LARGE_WORKSPACE = 2**25  # The limit with which cublasLt proposes the kernels that cuBLAS mostly runs.
OPERATIONS = 3, 4  # `CUBLASLT_MATMUL_DESC_TRANSA` and `TRANSB`.
ALIGNMENTS = 5, 6, 7, 8  # `CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES`, and the same for B, C and D.
KERNEL = 0, 1, 6  # `CUBLASLT_ALGO_CONFIG_ID`, `TILE_ID` and `STAGES_ID`, which tell kernels apart.
UNKNOWN_KERNEL = "0.0.0"
ALIGNMENT = 16  # Addresses of matrices must be multiples of so many bytes, which kernels read at once.
RESULT_BYTES, NEEDED, STATE = 96, slice(64, 72), slice(72, 76)
"""The bytes of a `cublasLtMatmulHeuristicResult_t`, which begins with its `cublasLtMatmulAlgo_t`, and where `workspaceSize` and `state`
lie in it."""
MULTIPLY = (*(ctypes.c_void_p,) * 14, ctypes.c_size_t, ctypes.c_void_p)
"""The argument types of `cublasLtMatmul`; the size is that of the workspace, and the stream comes last."""
MOST_KEPT = 256

Launch = Callable[[int, int, int, int, int, int, int], bool]
"""(handle, first operand, second, result, address of alpha, of beta, stream) to whether a kernel was launched. If not, nothing happened."""


def launch_of(gemm: Gemm, dtype: Dtype, device: int, workspace: int = MOST_WORKSPACE) -> Launch | None:
    """The call that multiplies float32 or float64 matrices of a layout on the current device, `device`; None if cublasLt has no kernel.

    It takes at most `workspace` bytes from CuPy's pool, or from the graph that is being captured. A refusal is not cached, because the next
    call may succeed.
    """
    library = _library()
    if library is None:
        return None
    try:
        return _product(library, gemm, ELEMENTS[dtype.name], device, workspace).launch
    except _RequestError as refused:
        log.debug("cublasLt has no kernel for %s: %s", gemm, refused)
        return None


def proposed(gemm: Gemm, dtype: Dtype, device: int) -> Kernels | None:
    """The kernels that cublasLt proposes with a small and with a large workspace; None if it has none for `launch_of`."""
    library = _library()
    if library is None:
        return None
    names = []
    for workspace in (MOST_WORKSPACE, LARGE_WORKSPACE):
        try:
            names.append(_product(library, gemm, ELEMENTS[dtype.name], device, workspace).kernel)
        except _RequestError:
            names.append(UNKNOWN_KERNEL)
    small, large = names
    return None if small == UNKNOWN_KERNEL else (small, large)


def proposed_for(problem: Problem, device: int) -> Kernels | None:
    """The same for matrices without gaps that lie as a problem says."""
    order, (m, n, k) = by_columns(problem)
    first, second = (letter == "T" for letter in order)
    gemm = Gemm(False, (int(first), int(second)), (m, n, k), (k if first else m, n if second else k, m))
    return proposed(gemm, np.dtype(problem.dtype), device)


Made = tuple[Callable[[ctypes.c_void_p], int], ctypes.c_void_p]  # What destroys a descriptor; the descriptor.
CNumber = ctypes.c_int | ctypes.c_int64 | ctypes.c_uint32 | ctypes.c_uint64


class _RequestError(Exception):
    """The reason for which cublasLt refuses a request."""


class _LtProduct:
    """The descriptors of one product, destroyed with it, and the kernel that cublasLt proposes."""

    def __init__(self, library: ctypes.CDLL, gemm: Gemm, element: Element, handle: int, workspace: int) -> None:
        (m, n, k), kind = gemm.extents, ctypes.c_int(element.library)
        shapes = [(k, m) if gemm.operations[0] else (m, k), (n, k) if gemm.operations[1] else (k, n), (m, n)]
        made: list[Made] = []
        weakref.finalize(self, _destroy, made).atexit = False
        self._library, self._multiply = library, library.cublasLtMatmul
        self._descriptor = _made(library, "MatmulDesc", made, ctypes.c_int(COMPUTE_TYPES[element.name]), kind)
        for attribute, operation in zip(OPERATIONS, gemm.operations, strict=True):
            _set(library.cublasLtMatmulDescSetAttribute, self._descriptor, attribute, ctypes.c_int(operation))
        self._layouts = [
            _made(library, "MatrixLayout", made, kind, *map(ctypes.c_uint64, shape), ctypes.c_int64(leading))
            for shape, leading in zip(shapes, gemm.leading, strict=True)
        ]
        preference = _made(library, "MatmulPreference", made)
        _set(library.cublasLtMatmulPreferenceSetAttribute, preference, WORKSPACE, ctypes.c_uint64(workspace))
        for attribute in ALIGNMENTS:
            _set(library.cublasLtMatmulPreferenceSetAttribute, preference, attribute, ctypes.c_uint32(ALIGNMENT))
        self._algorithm, found = ctypes.create_string_buffer(RESULT_BYTES), ctypes.c_int(0)
        first, second, result = self._layouts
        asked = (ctypes.c_void_p(handle), self._descriptor, first, second, result, result, preference, 1)
        _check(library.cublasLtMatmulAlgoGetHeuristic(*asked, self._algorithm, ctypes.byref(found)))
        if not found.value:
            raise _RequestError("none found")
        _check(int.from_bytes(self._algorithm.raw[STATE], sys.byteorder))
        self.needed = int.from_bytes(self._algorithm.raw[NEEDED], sys.byteorder)

    @cached_property
    def kernel(self) -> str:
        """What tells the kernel apart from others."""
        value, written = ctypes.c_uint32(), ctypes.c_size_t()
        numbers = []
        for attribute in KERNEL:
            asked = attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)), ctypes.byref(written)
            _check(self._library.cublasLtMatmulAlgoConfigGetAttribute(self._algorithm, *asked))
            numbers.append(str(value.value))
        return ".".join(numbers)

    def launch(self, handle: int, a: int, b: int, c: int, alpha: int, beta: int, stream: int) -> bool:
        """Launch the kernel; False if cublasLt refuses. The result is read and written in place; the factors are read before this returns.

        The workspace is freed at once: the pool gives it only to later work on the same stream.
        """
        first, second, result = self._layouts
        operands = alpha, a, first, b, second, beta, c, result, c, result
        try:
            memory = _memory(self.needed) if self.needed else None
        except MemoryError as error:
            log.debug("no workspace of %d bytes for cublasLt: %s", self.needed, error)
            return False
        workspace = None if memory is None else memory.ptr
        status = self._multiply(handle, self._descriptor, *operands, self._algorithm, workspace, self.needed, stream)
        if status:
            log.debug("cublasLt refuses to run the kernel that it proposed: status %d", status)
        return not status


@lru_cache(maxsize=MOST_KEPT)
def _product(library: ctypes.CDLL, gemm: Gemm, element: Element, device: int, workspace: int) -> _LtProduct:
    """The product, made once. A handle of cuBLAS is also one of cublasLt."""
    import cupy

    return _LtProduct(library, gemm, element, int(cupy.cuda.Device(device).cublas_handle), workspace)


def _memory(count: int) -> Array:
    """So many bytes from CuPy's memory pool, which keeps the memory of each stream apart, or of the graph that is being captured."""
    import cupy

    with memory_of_graph():
        return cupy.cuda.alloc(count)


def _made(library: ctypes.CDLL, kind: str, made: list[Made], *arguments: CNumber) -> ctypes.c_void_p:
    """A new descriptor of this kind, added to those that are to be destroyed."""
    descriptor = ctypes.c_void_p()
    _check(getattr(library, f"cublasLt{kind}Create")(ctypes.byref(descriptor), *arguments))
    made.append((getattr(library, f"cublasLt{kind}Destroy"), descriptor))
    return descriptor


def _destroy(made: list[Made]) -> None:
    for destroy, descriptor in reversed(made):
        destroy(descriptor)


def _set(setter: Callable[..., int], descriptor: ctypes.c_void_p, attribute: int, value: CNumber) -> None:
    _check(setter(descriptor, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value))))


def _check(status: int) -> None:
    if status:
        raise _RequestError(f"status {status}")


@cache
def _library() -> ctypes.CDLL | None:
    """cublasLt of the same release as CuPy's cuBLAS, which has loaded it; None if it is not found by its name."""
    import cupy

    try:
        from cupy_backends.cuda.libs import cublas
    except ImportError:  # planning asks, too, and shall not fail for it
        return None
    library = loaded_library("cublasLt", cublas.getVersion(cupy.cuda.Device().cublas_handle) // 10000)
    if library is not None:
        library.cublasLtMatmul.argtypes = MULTIPLY
    return library


def loaded_library(stem: str, major: int) -> ctypes.CDLL | None:
    """A library of this release; None if it is not found by its name."""
    for name in (f"lib{stem}.so.{major}", f"{stem}64_{major}.dll"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    log.info("%s %d cannot be found", stem, major)
    return None
