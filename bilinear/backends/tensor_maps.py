"""A*A^T of 16-bit matrices by a kernel of its own: the driver's maps of matrices for copies of boxes, and the launch."""

from __future__ import annotations

import ctypes
from functools import cache

from bilinear.backends.cuda_executor import launch_kernel
from bilinear.backends.loaded_kernels import built_function
from bilinear.backends.machine import target_here
from bilinear.ir.element import Element
from bilinear.ir.kernel import GramHalvesKernel

MOST_ROWS = 12288
"""Above it, blocks by the library are as fast: panels of more rows do not stay in the L2 cache."""
_KINDS = {"float16": 6, "bfloat16": 9}  # `CUtensorMapDataType`.
_SWIZZLE_128B, _L2_PROMOTION_128B = 3, 2


@cache
def _encode() -> ctypes._NamedFuncPointer | None:
    """The driver's `cuTensorMapEncodeTiled`; None where the driver lacks it."""
    try:
        return ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled
    except (OSError, AttributeError):
        return None


@cache
def clusters_here(device: int) -> int:
    """Clusters of two blocks that a device runs at once; 0 if the kernel is not built for it, or the driver makes no maps."""
    import cupy

    is_able = _encode() is not None and target_here(device).has_warpgroups
    return cupy.cuda.Device(device).attributes["MultiProcessorCount"] // 2 if is_able else 0


def takes(n: int, k: int, *places: int) -> bool:
    """Whether the kernel multiplies n x k matrices whose addresses and bytes from line to line are `places`."""
    return 0 < n <= MOST_ROWS and 0 < k < 2**31 and not (n % 8 or k % 8 or any(place % 16 for place in places))


def gram_halves(
    element: Element, x: tuple[int, int], c: tuple[int, int], n: int, k: int, factors: tuple[float, float], device: int, stream: int
) -> bool:
    """factors[0] * X X^T + factors[1] * C on the current device; x and c are addresses and bytes from line to line, which `takes` took.

    C may not overlap X. False, with nothing written, if the driver makes no map of X.
    """
    encode, kernel, clusters = _encode(), GramHalvesKernel(element), clusters_here(device)
    if encode is None or not clusters:
        return False
    memory = (ctypes.c_uint64 * 24)()
    at = -(-ctypes.addressof(memory) // 64) * 64  # where a map must begin
    extents, box = (ctypes.c_uint64 * 2)(k, n), (ctypes.c_uint32 * 2)(64, 64)
    place = _KINDS[element.name], 2, ctypes.c_void_p(x[0]), extents, (ctypes.c_uint64 * 1)(x[1]), box, (ctypes.c_uint32 * 2)(1, 1)
    if encode(ctypes.c_void_p(at), *place, 0, _SWIZZLE_128B, _L2_PROMOTION_128B, 0):
        return False
    values = ctypes.c_void_p(c[0]), *map(ctypes.c_int64, (c[1] // element.bytes, n, k)), *map(ctypes.c_float, factors)
    arguments = (ctypes.c_void_p * 7)(at, *map(ctypes.addressof, values))
    blocks, threads = 2 * min(clusters, kernel.pairs(n)), kernel.threads[0]
    function = built_function(kernel, device)
    launch_kernel()(function.ptr, blocks, 1, 1, threads, 1, 1, kernel.shared_bytes, stream, ctypes.addressof(arguments), 0)
    return True
