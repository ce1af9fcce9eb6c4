"""Memory of the GPU, and streams that are captured in a CUDA graph: how much a call can still get, and what belongs to a graph."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial

from bilinear.backends.bound_launches import CELL, MOST_ARGUMENTS, MOST_BYTES, InC
from bilinear.errors import BilinearError, fail

RELAXED = 2  # `CU_STREAM_CAPTURE_MODE_RELAXED` of the CUDA driver.
DRIVERS = "libcuda.so.1", "nvcuda.dll"  # The names of the CUDA driver's library.


def is_captured(stream: int | None = None) -> bool:
    """Whether a stream, by default CuPy's current one, is being captured."""
    import cupy

    cuda = cupy.cuda
    return bool(cuda.runtime.streamIsCapturing(cuda.get_current_stream().ptr if stream is None else stream))


@contextmanager
def memory_of_graph(on_gpu: bool = True) -> Iterator[None]:
    """While CuPy's current stream is captured, make CuPy allocate by it: nodes of the graph allocate an array and free it.

    Without arrays `on_gpu` nothing is asked of CuPy, which may lack a driver. The array must be dropped before the capture ends.
    Memory from a pool would be given to others while the graph goes on writing to it.
    """
    cupy = sys.modules.get("cupy")
    if not on_gpu or cupy is None or not is_captured():
        yield
        return
    with cupy.cuda.using_allocator(cupy.cuda.malloc_async):
        yield


@contextmanager
def capturing_relaxed() -> Iterator[None]:
    """Let this thread load kernels while a stream is captured, which the capture modes "global" (PyTorch's) and "thread_local" forbid.

    Loading adds nothing to the graph and waits for no stream that is captured. CuPy does not bind the driver's function.
    """
    driver = cuda_driver()
    if driver is None:
        yield
        return
    mode = ctypes.c_int(RELAXED)
    driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    try:
        yield
    finally:
        driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))  # `mode` holds what the thread had


@cache
def cuda_driver() -> ctypes.CDLL | None:
    """The CUDA driver's library; None if it is not found."""
    for name in DRIVERS:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


class _KernelNode(ctypes.Structure):
    """`CUDA_KERNEL_NODE_PARAMS_v2`."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("shape", ctypes.c_uint * 7),
        ("parameters", ctypes.POINTER(ctypes.c_void_p)),
        *((name, ctypes.c_void_p) for name in ("extra", "kernel", "context")),
    )


SPECIAL = 2, 4, 6, 7, 10  # `CUlaunchAttributeID`: what `cuLaunchKernel` cannot ask for, such as clusters.


def captured_launch(issue: Callable[[int, int, int], bool], use_stream: Callable[[int], bool]) -> InC | None:
    """The one launch of a library's product as C repeats it, without the 6 to 9 us (on one host) in which the library chooses it again.

    `issue` multiplies at the addresses of A, B and C on the stream that it is to use. It is captured twice, at other addresses, and the
    arguments must differ exactly where these are. None for several launches, for memory of a graph, for arguments that hold more of an
    address, and for a driver that does not tell the arguments' sizes (before CUDA 12.4).
    """
    import cupy

    driver = cuda_driver()
    if driver is None or not hasattr(driver, "cuFuncGetParamInfo"):
        return None
    memory = [cupy.empty((1, 512), "u1") for _ in "ABC"]  # nothing is read or written
    before = [int(x.data.ptr) for x in memory]
    after = [*before[1:], before[0]]
    home = cupy.cuda.get_current_stream().ptr
    with capturing_relaxed():
        first, second = (_launch_at(driver, partial(issue, *own), use_stream, home) for own in (before, after))
    if first is None or second is None or first[:3] != second[:3]:
        return None
    function, shape, offsets, arguments = first
    pointers = []
    for at in range(0, len(arguments), CELL):
        old, new = (int.from_bytes(own[3][at : at + CELL], "little") for own in (first, second))
        if old == new:
            continue
        if (old, new) not in zip(before, after, strict=True):
            return None
        pointers.append((at, before.index(old), 0))
    if {base for _, base, _ in pointers} != {0, 1, 2} or len(arguments) > MOST_BYTES or len(offsets) > MOST_ARGUMENTS:
        return None
    numbers = [len(pointers), *(x for own in pointers for x in own), 1, function, *shape, len(offsets), *offsets]
    return InC(tuple(numbers), arguments, is_aligned=True)


def _launch_at(driver: ctypes.CDLL, issue: Callable[[], bool], use_stream: Callable[[int], bool], home: int) -> _Launch | None:
    """The function, the grid, threads and shared bytes, where each argument lies, and all arguments, if exactly one kernel is captured."""
    stream, graph, node, count = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
    if driver.cuStreamCreate(ctypes.byref(stream), 1):
        return None
    try:
        if not use_stream(stream.value or 0) or driver.cuStreamBeginCapture_v2(stream, RELAXED):
            return None
        is_issued = False
        with suppress(Exception):  # of CuPy; the call itself will tell it
            is_issued = issue()
        if driver.cuStreamEndCapture(stream, ctypes.byref(graph)) or not graph.value:
            return None
        if driver.cuGraphGetNodes(graph, None, ctypes.byref(count)) or count.value != 1 or not is_issued:
            return None
        driver.cuGraphGetNodes(graph, ctypes.byref(node), ctypes.byref(count))
        return _arguments_of(driver, node)
    finally:
        if graph.value:
            driver.cuGraphDestroy(graph)
        use_stream(home)  # before its own is no more
        driver.cuStreamDestroy_v2(stream)


def _arguments_of(driver: ctypes.CDLL, node: ctypes.c_void_p) -> _Launch | None:
    kind, found, special = ctypes.c_int(), _KernelNode(), ctypes.create_string_buffer(64)
    if driver.cuGraphNodeGetType(node, ctypes.byref(kind)) or kind.value or driver.cuGraphKernelNodeGetParams_v2(node, ctypes.byref(found)):
        return None
    is_special = (not driver.cuGraphKernelNodeGetAttribute(node, attribute, special) and any(special.raw) for attribute in SPECIAL)
    function, offset, size = ctypes.c_void_p(found.function), ctypes.c_size_t(), ctypes.c_size_t()
    if not function and found.kernel:
        driver.cuKernelGetFunction(ctypes.byref(function), ctypes.c_void_p(found.kernel))
    if not function.value or not found.parameters or any(is_special):
        return None
    offsets: list[int] = []
    arguments = bytearray()
    while not driver.cuFuncGetParamInfo(function, ctypes.c_size_t(len(offsets)), ctypes.byref(offset), ctypes.byref(size)):
        offsets.append(len(arguments))
        arguments += ctypes.string_at(found.parameters[len(offsets) - 1], size.value)
        arguments += bytes(-len(arguments) % 16)
    return function.value, tuple(found.shape), tuple(offsets), bytes(arguments)


_Launch = tuple[int, tuple[int, ...], tuple[int, ...], bytes]


def not_captured(why: str, hint: str) -> BilinearError:
    """The refusal (E536) of a call that a graph cannot hold."""
    return fail("E536", f"the stream is being captured: {why}", hint)


LARGE = 2**28  # Bytes of workspace from which a call asks for room first; the 20 us are little there.
SHARE = 0.95  # How much of the room a call may take: pools round up, and other processes ask, too.


def free_bytes(of_torch: bool) -> int:
    """The bytes that CuPy's allocator or PyTorch's can still give: those free on the GPU, and those that it holds and nobody uses."""
    import cupy

    free = int(cupy.cuda.runtime.memGetInfo()[0])
    if not of_torch:
        return free + int(cupy.get_default_memory_pool().free_bytes())
    cuda = sys.modules["torch"].cuda
    return free + int(cuda.memory_reserved() - cuda.memory_allocated())


def is_torchs() -> bool:
    """Whether arrays of CuPy are allocated by PyTorch, as while tensors are multiplied."""
    import cupy

    return "torch" in sys.modules and getattr(cupy.cuda.get_allocator(), "__self__", None) is not cupy.get_default_memory_pool()


def fitting(workspace: int, result: int, of_torch: bool | None = None) -> int | None:
    """None if there is room for so many bytes of workspace beside a new result; otherwise the most bytes that a plan should take.

    They are rounded down to one of a few numbers, so that few plans are made while memory comes and goes.
    """
    if workspace < LARGE or "cupy" not in sys.modules:
        return None
    room = max(0, int(free_bytes(is_torchs() if of_torch is None else of_torch) * SHARE) - result)
    step = 1 << max(0, room.bit_length() - 4)
    return None if workspace <= room else room // step * step


def free() -> int:
    """Give back the GPU memory that calls keep for the next ones, on all GPUs that this process uses.

    That is what nobody uses of the pools from which workspace and results come: CuPy's, of GPUs and of pinned memory, PyTorch's if it is in
    use, and the driver's of CUDA graphs. Arrays and graphs keep theirs. It waits for the GPUs. On processors nothing is kept.

    Returns
    -------
    int
        The bytes that CuPy's and PyTorch's pools of GPU memory gave back.

    Raises
    ------
    BilinearError
        E536, if the current stream is captured.

    Examples
    --------
    >>> import bilinear
    >>> bilinear.free()  # no GPU was used
    0
    """
    cupy, torch = sys.modules.get("cupy"), sys.modules.get("torch")
    cupy = cupy if cupy is not None and cupy.cuda.is_available() else None
    torch = torch if torch is not None and torch.cuda.is_initialized() else None
    if (cupy and is_captured()) or (torch and torch.cuda.is_current_stream_capturing()):
        raise not_captured("memory cannot be given back meanwhile", "call it before or afterwards")
    found = 0
    if torch:
        devices = range(torch.cuda.device_count())
        found += sum(map(torch.cuda.memory_reserved, devices))
        torch.cuda.empty_cache()
        found -= sum(map(torch.cuda.memory_reserved, devices))
    driver = cuda_driver()
    if not cupy or driver is None:
        return found
    pool = cupy.get_default_memory_pool()
    for device in range(cupy.cuda.runtime.getDeviceCount()):
        flags, is_used = ctypes.c_uint(), ctypes.c_int()
        driver.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(is_used))
        if is_used:  # on another GPU, CuPy would take memory to ask
            with cupy.cuda.Device(device):
                found += pool.total_bytes()
                pool.free_all_blocks()
                found -= pool.total_bytes()
            driver.cuDeviceGraphMemTrim(device)
    cupy.get_default_pinned_memory_pool().free_all_blocks()
    return int(found)
