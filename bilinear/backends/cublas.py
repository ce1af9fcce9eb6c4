"""The library's multiply of matrices on a GPU: direct calls of `cublasSgemm`, `cublasDgemm` or cublasLt.

`cupy.matmul` copies operands with gaps, needs a row-major C without gaps, and has neither alpha nor beta. It calls `cublasGemmEx`, which is
slower for some shapes, and its checks at every call take longer than small products.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache
from threading import local

from bilinear.backends.bound_launches import InC
from bilinear.backends.capture import captured_launch, memory_of_graph, not_captured
from bilinear.backends.cublas_lt import ALIGNMENT, MOST_KEPT, Launch, launch_of, loaded_library, proposed
from bilinear.backends.factor import factor
from bilinear.backends.gemm import Gemm, gemm_of
from bilinear.ir.matrix import Dtype, Factor, Layout
from bilinear.planner.device import USUAL_RULES, LibraryRules
from bilinear.planner.library_points import CUBLASLT, Kernels, LibraryPoints, Shape
from bilinear.planner.plan import LIBRARY
from bilinear.planner.problem import SHORT

Multiply = Callable[[int, int, int, Factor, Factor], None]
"""C = alpha * A * B + beta * C on CuPy's current stream, by the addresses of A, B and C, and the factors. With beta = 0 C is not read."""


def multiply_of(
    a: Layout,
    b: Layout,
    c: Layout,
    library: str = LIBRARY,
    rules: LibraryRules = USUAL_RULES,
    points: LibraryPoints | None = None,
) -> Multiply | None:
    """The multiply of matrices of these layouts on the current device; None if `cupy.matmul` is to run.

    `library` names cuBLAS or cublasLt; otherwise the `points` that were measured on the device choose for a thin product that they know,
    and for others the device's `rules`. If cublasLt refuses a product, cuBLAS computes it.
    `cupy.matmul` is to run if `gemm_of` finds no call, for other types than float32 and float64, and for float32 if CUPY_TF32 asks for
    TF32. If the rules choose, it also runs dot products of medium length that cublasLt refuses.
    """
    import cupy

    if not a.dtype == b.dtype == c.dtype or a.dtype.char not in "fd":
        return None
    if a.dtype.char == "f" and asks_for_tf32():
        return None
    gemm, device = gemm_of(a, b, c), cupy.cuda.runtime.getDevice()
    if gemm is None:
        return None
    if library == LIBRARY and points is not None:
        library = _by_points(gemm, a.dtype, device, points) or LIBRARY
    is_ruled = library == LIBRARY
    lt = launch_of(gemm, a.dtype, device) if (suits_lt(gemm, a.dtype, rules) if is_ruled else library == CUBLASLT) else None
    return None if is_ruled and _is_dot(gemm, rules) and lt is None else _bound(gemm, a.dtype, device, lt)


def suits_lt(gemm: Gemm, dtype: Dtype, rules: LibraryRules = USUAL_RULES) -> bool:
    """Whether the rules of a device try cublasLt first."""
    m, n, k = gemm.extents
    is_uneven = any(apart * dtype.itemsize % ALIGNMENT for apart in gemm.leading)
    if dtype.char == "d":
        is_medium = is_uneven and min(m, n) >= rules.many and k <= rules.medium_sum
        is_wide = m >= rules.wide and rules.some_least <= n <= rules.some_most and k >= rules.deep
        return is_medium or (m <= rules.few and n > rules.long) or is_wide or _is_dot(gemm, rules)
    if k <= rules.short_sum:
        return is_uneven or m * n <= rules.most_even
    return is_uneven and k <= rules.medium_sum and m * n >= rules.many_results


def _by_points(gemm: Gemm, dtype: Dtype, device: int, points: LibraryPoints) -> str | None:
    """The call that is faster by measured points; None for products that are not thin, and where cublasLt proposes nothing."""
    kernels = proposed(gemm, dtype, device) if min(gemm.extents) <= SHORT else None
    order = "".join("NT"[operation] for operation in gemm.operations)
    return None if kernels is None else _faster(points, order, gemm.extents, ALIGNMENT // dtype.itemsize, kernels)


@lru_cache(maxsize=MOST_KEPT)
def _faster(points: LibraryPoints, order: str, extents: Shape, lanes: int, kernels: Kernels) -> str | None:
    return points.faster(order, extents, lanes, kernels)


def _is_dot(gemm: Gemm, rules: LibraryRules) -> bool:
    m, n, k = gemm.extents
    return m == n == 1 and rules.dot_least <= k <= rules.dot_most


def asks_for_tf32() -> bool:
    """Whether CUPY_TF32 makes CuPy multiply float32 as TF32, with 10 of its 23 bits. Settings made in CuPy itself are not read."""
    return os.environ.get("CUPY_TF32", "0") not in ("", "0")


def _bound(gemm: Gemm, dtype: Dtype, device: int, lt: Launch | None) -> Multiply:
    """The multiply, with everything that depends on layouts prepared. CuPy's binding of cuBLAS uses CuPy's current stream.

    Each call has its own factors in host memory, which are read before it returns. cuBLAS computes what cublasLt refuses, and products of
    matrices whose addresses are no multiples of 16.
    """
    import cupy
    from cupy_backends.cuda.libs import cublas

    name, number = ("sgemm", ctypes.c_float) if dtype.char == "f" else ("dgemm", ctypes.c_double)
    call = getattr(cublas, name)
    pair, size = number * 2, ctypes.sizeof(number)
    plain = pair(1, 0)
    at_plain = ctypes.addressof(plain)  # `multiply` keeps `plain` alive
    current = cupy.cuda.get_current_stream
    swaps, (first, second), (m, n, k), (lda, ldb, ldc) = gemm.swaps, gemm.operations, gemm.extents, gemm.leading

    def in_c() -> InC | None:
        """The kernel that runs for the usual factors and addresses at multiples of 16, for C to launch; None if it is not one launch."""
        calls = _c_interface()
        if lt is not None and lt.__self__.needed:  # type: ignore[attr-defined]  # its memory would not be found among the arguments
            return None

        handle, used = handle_on(device), [0]

        def use(stream: int) -> bool:
            used[0] = stream
            return calls is not None and not calls["SetStream"](handle, stream)

        def issue(a: int, b: int, c: int) -> bool:
            if lt is not None:
                return lt(handle, a, b, c, at_plain, at_plain + size, used[0])
            assert calls is not None
            return not calls[name](handle, first, second, m, n, k, at_plain, a, lda, b, ldb, at_plain + size, c, ldc)

        found = captured_launch(issue, use)
        return None if found is None else replace(found, swaps=swaps)

    def multiply(a: int, b: int, c: int, alpha: Factor, beta: Factor) -> None:
        factors = plain
        address = at_plain
        if alpha != 1 or beta != 0:
            factors = pair(factor("alpha", alpha, dtype), factor("beta", beta, dtype))
            address = ctypes.addressof(factors)
        handle = _handles.of.get(device) or handle_on(device)  # a function more would cost a repeated call
        if swaps:
            a, b = b, a
        if lt is not None and (a | b | c) % ALIGNMENT == 0 and lt(handle, a, b, c, address, address + size, current().ptr):
            return
        arguments = first, second, m, n, k, address, a, lda, b, ldb, address + size, c, ldc
        try:
            call(handle, *arguments)
        except NotImplementedError:
            call_captured(name, handle, *arguments)

    multiply.in_c = in_c  # type: ignore[attr-defined]
    return multiply


CAPTURED_WORKSPACE = 2**25  # Bytes of workspace of cuBLAS in a graph, as NVIDIA recommends for Hopper.
_INT, _POINTER = ctypes.c_int, ctypes.c_void_p
_OPERANDS = (_POINTER, _INT) * 2
_C_INTERFACE = {
    "SetStream": (_POINTER,),
    "SetWorkspace": (_POINTER, ctypes.c_size_t),
    "sgemm": (*(_INT,) * 5, _POINTER, *_OPERANDS, _POINTER, _POINTER, _INT),
    "dgemm": (*(_INT,) * 5, _POINTER, *_OPERANDS, _POINTER, _POINTER, _INT),
    "gemmEx": (*(_INT,) * 5, _POINTER, *(_POINTER, _INT, _INT) * 2, _POINTER, _POINTER, *(_INT,) * 4),
    "gemmBatchedEx": (*(_INT,) * 5, _POINTER, *(_POINTER, _INT, _INT) * 2, _POINTER, _POINTER, *(_INT,) * 5),
}
"""By CuPy's names of the calls of cuBLAS: their argument types behind the handle."""


DEFAULT_ALGORITHM = -1  # `CUBLAS_GEMM_DEFAULT`.


def gemm_ex(handle: int, *arguments: int) -> None:
    """`cublasGemmEx` by its default algorithm, on CuPy's current stream, which may be captured."""
    from cupy_backends.cuda.libs import cublas

    try:
        cublas.gemmEx(handle, *arguments, DEFAULT_ALGORITHM)
    except NotImplementedError:
        call_captured("gemmEx", handle, *arguments, DEFAULT_ALGORITHM)


def call_captured(name: str, handle: int, *arguments: int) -> None:
    """Call a multiply of cuBLAS on CuPy's current stream while it is captured, which CuPy refuses to do.

    cuBLAS gets a workspace that belongs to the graph: graphs that share one could not run at the same time. Raises `BilinearError` (E536)
    if cuBLAS is not found by its name, or refuses.
    """
    import cupy

    calls, stream = _c_interface(), cupy.cuda.get_current_stream().ptr
    if calls is None:
        raise not_captured("CuPy calls no cuBLAS then, and the library is not found by its name", "give algorithm='classical'")
    with memory_of_graph():
        workspace = cupy.cuda.alloc(CAPTURED_WORKSPACE)
    statuses = [calls["SetStream"](handle, stream), calls["SetWorkspace"](handle, workspace.ptr, CAPTURED_WORKSPACE)]
    if not any(statuses):
        statuses.append(calls[name](handle, *arguments))
    calls["SetStream"](handle, stream)  # which gives cuBLAS its own workspace back
    if any(statuses):
        raise not_captured(f"cuBLAS refuses it (status {max(statuses)})", "give algorithm='classical'")


def multiplies_batch(handle: int, *arguments: int) -> bool:
    """Call `cublasGemmBatchedEx`, which CuPy does not bind, on CuPy's current stream. False, with nothing written, if that fails."""
    import cupy

    calls, stream = _c_interface(), cupy.cuda.get_current_stream().ptr
    return calls is not None and not any((calls["SetStream"](handle, stream), calls["gemmBatchedEx"](handle, *arguments)))


@cache
def _c_interface() -> dict[str, Callable[..., int]] | None:
    """The calls of the cuBLAS that CuPy has loaded; None if it is not found by its name."""
    import cupy
    from cupy_backends.cuda.libs import cublas

    major = cublas.getVersion(cupy.cuda.Device().cublas_handle) // 10000
    library = loaded_library("cublas", major)
    if library is None:
        return None
    calls = {}
    for name, types in _C_INTERFACE.items():
        symbol = f"cublas{name[0].upper()}{name[1:]}"
        calls[name] = getattr(library, symbol if name.endswith("Ex") else f"{symbol}_v2")
        calls[name].argtypes = _POINTER, *types
    return calls


class _Handles(local):
    """A thread's cuBLAS handles by device. CuPy makes them, and keeps them as long as the thread lives."""

    def __init__(self) -> None:
        self.of: dict[int, int] = {}


_handles = _Handles()


def handle_on(device: int) -> int:
    """The handle of this thread on the current device, `device`."""
    if device not in _handles.of:
        import cupy

        _handles.of[device] = int(cupy.cuda.Device(device).cublas_handle)
    return _handles.of[device]
