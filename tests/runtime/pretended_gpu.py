"""A pretended GPU: a `cupy` whose arrays lie in ordinary memory, and whose launches run what kernels mean, or their text, on the CPU."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache, partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from codegen.emulated import address, c_type
from runtime.blas import gemm, gemm_ex
from runtime.operands import laid

import bilinear
from bilinear.backends import cublas as library
from bilinear.backends import cublas_lt, cuda_executor, loaded_kernels
from bilinear.codegen import build as building
from bilinear.codegen.cuda.nvrtc import Built
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.codegen.render import render
from bilinear.emulator import CompiledModule, compile_on_cpu
from bilinear.ir.digit_kernel import LargestIntegersKernel
from bilinear.ir.kernel import DigestKernel, MagnitudeKernel, ProductKernel
from bilinear.ir.reference import KernelValues
from bilinear.ir.residue_kernel import ScaleKernel
from bilinear.methods import program
from bilinear.planner.device_files import load_device
from bilinear.planner.plan import Plan
from bilinear.runtime import arrays, auto, call, decide, devices_here, repeat

READERS: dict[str, Any] = {"double": ctypes.c_double, "float": ctypes.c_float}
RUNS = os.environ.get("RUNS", "reference")
"""What launches run: the `reference` of a kernel, its `text` on the emulator, or `both`, whose results are compared."""
MAGNITUDES = "X", "X_rs", "X_cs", "rows", "columns", "across", "largest"
NEAR = {"f": 1e-5, "F": 1e-5, "d": 1e-12, "D": 1e-12}
"""How near results are, relative to the largest: sums are added up in another order."""


class Array:
    """The parts of a CuPy array that `matmul` uses. NumPy's functions do not accept it as an array."""

    __array_ufunc__ = None

    def __init__(self, host: Any) -> None:
        self.host = host

    def __getattr__(self, name: str) -> Any:
        if name not in ("shape", "strides", "dtype", "ndim", "size", "itemsize", "nbytes", "flags"):
            raise AttributeError(name)
        return getattr(self.host, name)

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=address(self.host))

    @property
    def __cuda_array_interface__(self) -> Any:
        return self.host.__array_interface__

    def __getitem__(self, index: Any) -> Array:
        return Array(self.host[index])

    def __setitem__(self, index: Any, value: Any) -> None:
        self.host[index] = value.host if isinstance(value, Array) else value

    def __imul__(self, factor: Any) -> Array:
        self.host *= factor
        return self

    def __iadd__(self, other: Array) -> Array:
        self.host += other.host
        return self

    def __mod__(self, modulus: Any) -> Array:
        return Array(self.host % modulus)

    def __imod__(self, modulus: Any) -> Array:
        self.host %= modulus
        return self

    def __ne__(self, other: Any) -> Any:
        return Array(self.host != other)

    __hash__ = None  # type: ignore[assignment]  # as of an array

    def __invert__(self) -> Array:
        return Array(~self.host)

    def __neg__(self) -> Array:
        """CuPy's own arithmetic flushes subnormal numbers of float32 to zero."""
        found = -self.host
        if found.dtype == np.float32:
            found[abs(found) < np.finfo(np.float32).tiny] *= 0
        return Array(found)

    def __ixor__(self, other: Any) -> Array:
        self.host ^= other
        return self

    def __mul__(self, factor: Any) -> Array:
        return Array((factor.host if isinstance(factor, Array) else factor) * self.host)

    __rmul__ = __mul__

    def min(self) -> Array:
        return Array(self.host.min())

    def max(self) -> Array:
        return Array(self.host.max())

    def any(self) -> bool:
        return bool(self.host.any())

    def __int__(self) -> int:
        return int(self.host)

    def astype(self, dtype: Any, copy: bool = True) -> Array:
        return self if not copy and self.dtype == dtype else Array(self.host.astype(dtype))

    @property
    def real(self) -> Array:
        return Array(self.host.real)

    @property
    def imag(self) -> Array:
        return Array(self.host.imag)

    def conj(self) -> Array:
        return Array(self.host.conj())

    def view(self, dtype: Any) -> Array:
        return Array(self.host.view(dtype))

    def reshape(self, *shape: int) -> Array:
        return Array(self.host.reshape(*shape))

    def swapaxes(self, x: int, y: int) -> Array:
        return Array(self.host.swapaxes(x, y))

    def transpose(self, *axes: int) -> Array:
        return Array(self.host.transpose(*axes))

    def copy(self) -> Array:
        return Array(self.host.copy())

    def get(self) -> Any:
        return self.host.copy()

    def diagonal(self, axis1: int, axis2: int) -> Array:
        return Array(self.host.diagonal(axis1=axis1, axis2=axis2))

    def sum(self, axis: tuple[int, ...], dtype: Any, keepdims: bool) -> Array:
        return Array(self.host.sum(axis=axis, dtype=dtype, keepdims=keepdims))

    @property
    def T(self) -> Array:  # NumPy's name
        return Array(self.host.T)


class Stream:
    """A stream of another library, which may be entered again."""

    def __init__(self, gpu: Gpu, handle: int) -> None:
        self._gpu, self._handle, self._entered = gpu, handle, list[Any]()

    def __enter__(self) -> None:
        self._entered.append(self._gpu.using(stream=self._handle))
        self._entered[-1].__enter__()

    def __exit__(self, *error: Any) -> None:
        self._entered.pop().__exit__(*error)


class PinnedMemory:
    """Host memory that a kernel may write; as with CuPy, it is not zeroed."""

    def __init__(self, size: int) -> None:
        self.memory = ctypes.create_string_buffer(b"\xff" * size, size)
        self.ptr = ctypes.addressof(self.memory)


class Device(nullcontext[None]):
    """The only device there is; each thread has a handle of its own."""

    id = 0
    compute_capability = "90"
    attributes = {"MultiProcessorCount": 2, "MaxSharedMemoryPerBlockOptin": 227 * 1024}  # noqa: RUF012  # as CuPy has it

    @property
    def cublas_handle(self) -> int:
        return threading.get_ident()


class Memory:
    """Memory from `cupy.cuda.alloc`, which returns to the pool with its last reference."""

    def __init__(self, ptr: int) -> None:
        self.ptr = ptr


@dataclass(frozen=True)
class Function:
    """A kernel's function: its handle, and what CuPy launches it by."""

    ptr: int
    gpu: Gpu

    def __call__(self, grid: tuple[int, int, int], block: tuple[int, int, int], arguments: tuple[Any, ...]) -> None:
        self.gpu.run(self.ptr, grid, block, [int(x) for x in arguments], 0)


class Touched(KernelValues):
    """The arguments of a reference, which remember what it reads and writes, and what was there before."""

    def __init__(self, numbers: dict[str, float], blocks: tuple[int, int]) -> None:
        super().__init__(numbers, blocks)
        self.views, self._before = list[Any](), list[tuple[int, bytes]]()

    def view(self, *place: Any) -> Any:
        found = super().view(*place)
        if found.size:
            low, high = np.lib.array_utils.byte_bounds(found)
            self.views.append(found)
            self._before.append((low, ctypes.string_at(low, high - low)))
        return found

    def restore(self) -> None:
        for low, content in reversed(self._before):
            ctypes.memmove(low, content, len(content))


def require_same(kernel: Any, found: Any, wanted: Any) -> None:
    """Require that the text and the reference left the same in a place: bit by bit, but for sums of floats in another order."""
    if isinstance(kernel, LargestIntegersKernel | MagnitudeKernel | DigestKernel):  # blocks of threads share the work as they like
        found, wanted = (x.sum() if isinstance(kernel, DigestKernel) else x.max() for x in (found, wanted))
    if wanted.dtype == np.int8:  # half of an even modulus has two signs
        off = (found.astype(int) - wanted)[abs(found.astype(int)) != abs(wanted.astype(int))]
        np.testing.assert_array_equal(off, 0, kernel.name)
        return
    near, finite = NEAR.get(wanted.dtype.char, 0.0), wanted[np.isfinite(wanted)]
    np.testing.assert_allclose(found, wanted, near, near * float(abs(finite).max(initial=0)) if near else 0.0, err_msg=kernel.name)


@dataclass
class Gpu:
    """A record of what happened: launches (function, stream), the library's multiplies, contexts made. Each launch is announced by number.

    `by_cublas` lists the calls of cuBLAS: `s` or `d`, the stream, the arguments without the handle. `scans` lists the streams of scans for
    Inf and NaN, `tiles` the tiles of products. `allocate` is called with the bytes of new arrays. `lt` is cublasLt or None, and `taken`
    lists the bytes of its workspaces, which all begin at `WORKSPACE`. `of_graph` lists the bytes of memory that belongs to graphs.
    """

    WORKSPACE = 0x7000

    stream: int = 77
    launches: list[tuple[str, int]] = field(default_factory=list)
    scans: list[int] = field(default_factory=list)
    library: int = 0
    by_cublas: list[tuple[Any, ...]] = field(default_factory=list)
    contexts: int = 0
    before_launch: Callable[[int], None] = lambda number: None
    allocate: Callable[[int], Any] | None = None
    runs: str = field(default_factory=lambda: RUNS)
    functions: dict[int, tuple[CompiledModule | None, Any, list[str]]] = field(default_factory=dict)
    tiles: list[Any] = field(default_factory=list)
    lt: Any = None
    taken: list[int] = field(default_factory=list)
    is_capturing: bool = False
    of_graph: list[int] = field(default_factory=list)
    status: int = 0
    free: int = 2**40
    math_mode: int = 0
    last_taken: Callable[[], Any] = lambda: None

    def launch(self, function: int, *rest: int) -> None:
        """`cuLaunchKernel`: grid, block, shared bytes, stream, and the address of the addresses of the arguments."""
        grid, block, (shared, stream, parameters, extra) = rest[:3], rest[3:6], rest[6:]
        _, kernel, types = self.functions[function]
        name = kernel.name
        assert extra == 0
        if isinstance(kernel, ProductKernel):
            self.tiles.append(kernel.tile)
        if name.startswith(("scan", "digest", "integer_largest")):
            self.scans += [stream] if name.startswith("scan") else []
            grid = (2, grid[1], 1)  # any width will do; a larger one takes longer here
        else:
            self.before_launch(len(self.launches))
            self.launches.append((name, stream))
        places = (ctypes.c_uint64 * len(types)).from_address(parameters)
        values = [READERS.get(kind, ctypes.c_int64).from_address(place).value for kind, place in zip(types, places, strict=True)]
        self.run(function, grid, block, values, shared)

    def run(self, function: int, grid: Any, block: Any, values: list[Any], shared: int) -> None:
        """Run the kernel's reference, its text, or both, and compare them."""
        module, kernel, types = self.functions[function]
        if module is None and self.runs != "reference":
            module = compiled(kernel)[0]
            self.functions[function] = module, kernel, types
        if module is not None and self.runs == "text":
            module.launch(kernel.name, grid, block, values, shared_bytes=shared)
            return
        names = [argument.name for argument in kernel.arguments] if not isinstance(kernel, MagnitudeKernel) else MAGNITUDES
        touched = Touched(dict(zip(names, values, strict=True)), (grid[0], grid[1]))
        with np.errstate(all="ignore"):
            kernel.reference(touched)
        if module is None or self.runs == "reference":
            return
        places = tuple(touched.views)
        results = [view.copy() for view in places]
        touched.restore()
        module.launch(kernel.name, grid, block, values, shared_bytes=shared)
        if isinstance(kernel, ScaleKernel) and touched.is_set():  # of what is not finite there is no scale
            return
        for found, wanted in zip(places, results, strict=True):
            require_same(kernel, found, wanted)

    def function(self, kernel: Any, built: Built) -> Any:
        """Stands for loading an image; the text is compiled before its first launch."""
        handle = len(self.functions) + 1
        self.functions[handle] = None, kernel, types_of(kernel)
        return Function(handle, self)

    def empty(self, shape: Any, dtype: Any = float) -> Array:
        array = Array(np.full(shape, -99).astype(dtype))
        assert not self.is_capturing or self.allocate == self.malloc_async, "memory of the pool would be given to others"
        if self.allocate is not None:
            self.allocate(array.nbytes)
        return array

    def take(self, count: int) -> Any:
        """`cupy.cuda.alloc`."""
        assert not self.is_capturing or self.allocate == self.malloc_async, "memory of the pool would be given to others"
        self.taken.append(count)
        if self.allocate is not None:
            self.allocate(count)
        memory = Memory(self.WORKSPACE)
        self.last_taken = weakref.ref(memory)
        return memory

    def malloc_async(self, size: int) -> None:
        """`cupy.cuda.malloc_async`, which adds a node to the graph while a stream is captured."""
        self.of_graph.append(size)

    def holds(self) -> bool:
        """Whether somebody still holds the memory that was taken last."""
        return self.last_taken() is not None

    @contextmanager
    def using(self, **values: Any) -> Iterator[None]:
        """Other values of some fields inside the block."""
        before = {name: getattr(self, name) for name in values}
        vars(self).update(values)
        try:
            yield
        finally:
            vars(self).update(before)

    def refuse_capture(self) -> None:
        """Refuse while a stream is captured, as CuPy does before it calls cuBLAS."""
        if self.is_capturing:
            raise NotImplementedError("calling cuBLAS API during stream capture is currently unsupported")

    def matmul(self, a: Array, b: Array, out: Array | None = None) -> Array:
        assert not self.is_capturing, "it may copy operands into memory of the pool before it refuses"
        self.library += 1
        if out is None:
            return Array(a.host @ b.host)
        np.matmul(a.host, b.host, out=out.host)
        return out

    def captured(self, multiply: Callable[..., None], *arguments: int) -> int:
        """cuBLAS by its C interface, which does not refuse; it gives its status."""
        if not self.status:
            with self.using(is_capturing=False):
                multiply(*arguments)
        return self.status

    def gemm(self, kind: str, handle: int, *arguments: int) -> None:
        """`cublasSgemm` and `cublasDgemm`."""
        assert handle == threading.get_ident()
        self.refuse_capture()
        self.library += 1
        self.by_cublas.append((kind, self.stream, *arguments))
        gemm(kind, *arguments)

    def gemm_of_halves(self, handle: int, *arguments: int) -> None:
        """`cublasGemmEx`."""
        assert handle == threading.get_ident()
        self.refuse_capture()
        self.library += 1
        self.by_cublas.append(("h", self.stream, self.math_mode, *arguments))
        gemm_ex(*arguments)

    def batch_of_halves(self, handle: int, *arguments: int) -> int:
        """`cublasGemmBatchedEx`, by its C interface."""
        *front, count, compute, algorithm = arguments
        for number in range(0 if self.status else count):
            lists = ((ctypes.c_uint64 * count).from_address(front[place]) for place in (6, 9, 13))
            own = dict(zip((6, 9, 13), (addresses[number] for addresses in lists), strict=True))
            one: list[int] = [*(own.get(place, x) for place, x in enumerate(front)), compute, algorithm]
            gemm_ex(*one)
        self.by_cublas.append(("batch", self.stream, self.math_mode, *arguments))
        self.library += 1
        return self.status


def types_of(kernel: Any) -> list[str]:
    """The types of a kernel's parameters."""
    if isinstance(kernel, MagnitudeKernel):
        return [f"{kernel.element.bits} *", *["long long"] * 5, f"{kernel.element.bits} *"]
    return [c_type(argument, kernel.element) for argument in kernel.arguments]


def compiled(kernel: Any) -> tuple[CompiledModule, list[str]]:
    """A kernel for the CPU, and the types of its parameters. `compile_on_cpu` keeps what it compiled, by the text."""
    types = types_of(kernel)
    return compile_on_cpu(render(kernel), {kernel.name: types}), types


def built(source: str, name: str, target: CudaTarget) -> Built:
    """No image: launches run references, or texts that are compiled for the CPU."""
    return Built(target, b"", (), "", cached=False)


def pretend(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """Make `Array` CuPy's array until the test ends, on a GPU without a description."""
    gpu = Gpu()
    arrays.cupy_stream.cache_clear()
    monkeypatch.setattr(repeat.Repeat, "offers", 0)  # to C, which is not built here
    monkeypatch.setattr(call, "_repeats", {})
    device = Device()
    free = lambda pointer: setattr(gpu, "contexts", gpu.contexts + 1)  # noqa: E731
    cuda: Any = ModuleType("cupy.cuda")
    cuda.driver = SimpleNamespace(launchKernel=gpu.launch)
    cuda.runtime = SimpleNamespace(getDevice=lambda: 0, free=free, streamIsCapturing=lambda stream: gpu.is_capturing)
    cuda.runtime.memGetInfo = lambda: (gpu.free, 2**40)
    cuda.get_allocator = lambda: gpu.allocate
    cuda.Device = lambda *_: device
    cuda.alloc_pinned_memory = PinnedMemory
    cuda.alloc, cuda.malloc_async = gpu.take, gpu.malloc_async
    cuda.get_current_stream = lambda: SimpleNamespace(ptr=gpu.stream, synchronize=lambda: None)
    cupy: Any = ModuleType("cupy")
    cupy.cuda, cupy.ndarray, cupy.matmul, cupy.dtype = cuda, Array, gpu.matmul, np.dtype
    cuda.Stream = SimpleNamespace(from_external=lambda stream: Stream(gpu, stream.__cuda_stream__()[1]))
    cuda.using_allocator = lambda allocate: gpu.using(allocate=allocate)
    cuda.PythonFunctionAllocator = lambda allocate, free: SimpleNamespace(malloc=lambda size: allocate(size, 0))
    cupy.empty = gpu.empty
    cupy.get_default_memory_pool = lambda: SimpleNamespace(free_bytes=lambda: 0)
    cupy.zeros = lambda shape, dtype: Array(np.zeros(shape, dtype))
    cupy.tri = lambda n, dtype: Array(np.tri(n, dtype=dtype))
    cupy.copyto = lambda target, source, where: np.copyto(
        target.host, source.host if isinstance(source, Array) else source, where=where.host
    )
    cupy.concatenate = lambda arrays, axis: Array(np.concatenate([x.host for x in arrays], axis))
    cupy.isnan = lambda x: Array(np.isnan(x.host))
    cupy.from_dlpack = lambda tensor: tensor.array
    cupy.zeros = lambda shape, dtype: Array(np.zeros(shape, dtype))
    cupy.array = lambda array: Array(array.host.copy())
    cupy.asarray = lambda array, dtype=None: Array(array) if isinstance(array, np.ndarray) else array
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)
    cublas = SimpleNamespace(sgemm=partial(gpu.gemm, "s"), dgemm=partial(gpu.gemm, "d"), gemmEx=gpu.gemm_of_halves)
    cublas.getMathMode = lambda handle: gpu.math_mode
    cublas.setMathMode = lambda handle, mode: setattr(gpu, "math_mode", mode)
    monkeypatch.setitem(sys.modules, "cupy_backends.cuda.libs", SimpleNamespace(cublas=cublas))
    calls: dict[str, Callable[..., int]] = {name: partial(gpu.captured, getattr(cublas, name)) for name in ("sgemm", "dgemm", "gemmEx")}
    calls |= {"gemmBatchedEx": gpu.batch_of_halves, "SetStream": lambda handle, stream: 0, "SetWorkspace": lambda handle, address, count: 0}
    monkeypatch.setattr(library, "_c_interface", lambda: calls)
    monkeypatch.setattr(cublas_lt, "_library", lambda: gpu.lt)
    monkeypatch.setattr(cublas_lt, "_product", lru_cache(cublas_lt._product.__wrapped__))
    monkeypatch.setattr(devices_here, "_described", lambda named, index: None)
    monkeypatch.setattr(devices_here, "_identity", lambda index: ("a pretended GPU", 13000))
    monkeypatch.delenv("CUPY_TF32", raising=False)
    monkeypatch.setattr(building, "build_all", lambda requests, done: tuple(built(*request) for request in requests))
    monkeypatch.setattr(loaded_kernels, "_function", gpu.function)
    monkeypatch.setattr(loaded_kernels, "_functions", {})
    monkeypatch.setattr(loaded_kernels, "_loaded", {})
    monkeypatch.setattr(cuda_executor, "_bounds", {})
    monkeypatch.setattr(repeat, "_repeats", {})
    monkeypatch.setattr(library, "_handles", library._Handles())
    monkeypatch.setattr(cuda_executor, "_thread", cuda_executor._ThreadDevice())
    monkeypatch.setattr(cuda_executor, "_idle_flags", [])
    for cached in (cuda_executor._look, program._kept):
        cached.cache_clear()
    return gpu


@contextmanager
def undescribed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    """`pretend` with no cached decisions, before and after. `auto` is the library's multiply, because the GPU has no description."""
    decide._decisions.clear()
    yield pretend(monkeypatch)
    decide._decisions.clear()


def describe(monkeypatch: pytest.MonkeyPatch, name: str | None) -> None:
    """Describe the pretended GPU as one whose description is shipped."""
    if name is not None:
        found = load_device(name)
        monkeypatch.setattr(devices_here, "_described", lambda named, index: found)


def described(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The same, and let CuPy copy arrays to it and back."""
    describe(monkeypatch, name)
    cupy = sys.modules["cupy"]
    monkeypatch.setattr(cupy, "asarray", lambda array, dtype=None: array if isinstance(array, Array) else Array(array))
    monkeypatch.setattr(cupy, "asnumpy", lambda array: array.host, raising=False)


def forget_devices() -> None:
    """Forget what was found for a GPU: its description, and plans."""
    for cached in (devices_here._described, devices_here._identity, auto._chosen, auto._logged):
        cached.cache_clear()


def require_exact(plan: Plan, by_columns: Sequence[str] = (), *, most: int = 30, padded: int = 0, apart: int = 1, **options: Any) -> None:
    """By this plan integers, complex ones too, are multiplied exactly in these orders, with factors; operands stay as they are."""
    p, draw = plan.problem, np.random.default_rng(plan.problem.m)
    is_complex = np.dtype(p.dtype).kind == "c"
    whole = [draw.integers(-most, most + 1, (2, *shape)) for shape in ((p.m, p.k), (p.k, p.n), (p.m, p.n))]
    whole = [re + 1j * im if is_complex else re for re, im in whole]
    a, b, out = (laid(x, p.dtype, name in by_columns, padded, apart) for name, x in zip("ABC", whole, strict=True))
    for alpha, beta in ((1, 0), (3, -2), *(((2 - 1j, 0), (1j, 2 + 3j)) if is_complex else ())):
        out[...], target = np.nan if beta == 0 else whole[2], Array(out)
        assert bilinear.matmul(Array(a), Array(b), target, plan=plan, alpha=alpha, beta=beta, **options) is target
        np.testing.assert_array_equal(out, alpha * (whole[0] @ whole[1]) + (beta * whole[2] if beta else 0))
    np.testing.assert_array_equal(a, whole[0])
    np.testing.assert_array_equal(b, whole[1])
