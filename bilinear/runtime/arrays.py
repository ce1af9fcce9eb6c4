"""The caller's arrays as NumPy's or CuPy's, PyTorch's tensors among them; results as the caller's kind; the backend of a kind."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from numbers import Number
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from bilinear.errors import ArrayTypeError, BilinearError, fail, install
from bilinear.ir.element import FLOAT32, HALVES, Element
from bilinear.ir.matrix import Array, Factor

if TYPE_CHECKING:
    from bilinear.backends.cuda_executor import CudaExecutor
    from bilinear.backends.executor import Executor

INSTEAD = {
    "scipy": "call toarray(), or multiply by @, which stays sparse",
    "cupyx": "call toarray(), or multiply by @, which stays sparse",
    "sparse": "call todense(), or multiply by @, which stays sparse",
    "dask": "use bilinear.dask.matmul, or call compute()",
    "pandas": "call to_numpy(); the result has no labels",
    "polars": "call to_numpy()",
    "xarray": "call to_numpy(); the result has no labels",
    "jax Tracer": "inside of jax.jit, jax.grad and jax.vmap, use bilinear.jax.matmul",
}
"""What to do with other libraries' arrays that are not matrices in memory, by the library, or the library and the class."""


@dataclass(frozen=True)
class Kind:
    """A kind of array: the module that computes on it, and the function that turns a result into the caller's type."""

    module: ModuleType
    on_gpu: bool
    give_back: Callable[[Array], Array]


class Kept:
    """An operand that is not an array and has a multiply of its own (`runtime/prepared.py`)."""

    def matmul(self, other: Array, out: Array = None, *, alpha: Factor = 1, beta: Factor = 0, workspace: Array = None) -> Array:
        """alpha * A * B + beta * out."""
        raise NotImplementedError

    side: str  # The operand for which it stands, A or B.


def is_on_gpu(array: Array) -> bool:
    """Whether an array lives on a CUDA device."""
    if isinstance(array, np.ndarray | np.generic) or np.isscalar(array):
        return False
    if hasattr(array, "__dlpack_device__"):
        return bool(array.__dlpack_device__()[0] == 2)  # `kDLCUDA` of the DLPack specification
    return hasattr(array, "__cuda_array_interface__")


def kind_of(*arrays: Array) -> Kind:
    """The common kind of the operands. Operands on different devices are refused (E511)."""
    known = _known_kind(arrays)
    if known is not None:
        return known
    given = [array for array in arrays if array is not None]
    if any(type(array).__module__.startswith("cupyx.distributed") for array in given):
        raise fail("E511", "an operand lies on several GPUs", "bilinear.distributed.matmul multiplies distributed arrays")
    for array in given:
        for kind in type(array).__mro__:
            library = kind.__module__.partition(".")[0]
            hint = INSTEAD.get(library) or INSTEAD.get(f"{library} {kind.__name__}")
            if hint is not None:
                raise _no_array(array, hint)
    gpu = {is_on_gpu(array) for array in given}
    if len(gpu) > 1:
        raise fail("E511", "the operands live on different devices", "move them to one device first")
    on_gpu = gpu.pop()
    module = cupy_module() if on_gpu else np
    others = (x for x in given if hasattr(x, "__dlpack__") and not isinstance(x, module.ndarray | np.generic))
    foreign = next(others, None)  # of a library that speaks DLPack
    return Kind(module, on_gpu, _giver(foreign) if foreign is not None or on_gpu else _wrapper(given))


def _known_kind(arrays: tuple[Array, ...]) -> Kind | None:
    """The kind of operands that are all NumPy's or all CuPy's own arrays, found by type alone; None for others."""
    kinds = {type(array) for array in arrays if array is not None}
    if kinds == {np.ndarray}:
        return NUMPY
    cupy = sys.modules.get("cupy")
    return _cupy_kind(cupy) if cupy is not None and kinds == {cupy.ndarray} else None


@cache
def _cupy_kind(module: ModuleType) -> Kind:
    return Kind(module, True, _giver(None))


def multiplies_itself(array: Array) -> bool:
    """Whether an array is of a NumPy subclass with a multiply of its own, such as a masked array."""
    kind = type(array)
    if kind is np.ndarray or not isinstance(array, np.ndarray):
        return False
    return isinstance(array, np.ma.MaskedArray) or kind.__array_ufunc__ is not np.ndarray.__array_ufunc__


def adopt(array: Array, kind: Kind) -> Array:
    """The array as one of the kind's own type, a view if the memory allows it."""
    if isinstance(array, kind.module.ndarray):
        return array
    if kind.on_gpu:
        return kind.module.from_dlpack(array) if hasattr(array, "__dlpack__") else kind.module.asarray(array)
    view = np.from_dlpack(array) if hasattr(array, "__dlpack__") and not hasattr(array, "__array__") else np.asarray(array)
    if view.ndim == 0 and view.dtype == object and not isinstance(array, np.generic | Number):
        raise _no_array(array, "give an array of NumPy, CuPy, PyTorch, or of another library that speaks DLPack")
    return view


def _no_array(array: object, hint: str) -> BilinearError:
    library, _, _ = type(array).__module__.partition(".")
    return fail("E518", f"{type(array).__name__} of {library} is not multiplied", hint, kind=ArrayTypeError)


def adopt_out(array: Array, kind: Kind) -> Array:
    """`out` as a view. Refused (E518) if its memory cannot be viewed: a result in a copy would be lost."""
    view = adopt(array, kind)
    if view is array or kind.on_gpu or view.size == 0:
        return view
    if isinstance(array, np.generic) or not np.may_share_memory(view, adopt(array, kind)):
        message = f"out of type {type(array).__name__} is not an array whose memory can be written"
        raise fail("E518", message, "give an array of NumPy", kind=ArrayTypeError)
    return view


def stream_for(on_gpu: bool, stream: object) -> AbstractContextManager[object]:
    """What is entered to run on a stream; refused (E510) for arrays in the host's memory, and if it is no stream."""
    if stream is None:
        return _NO_STREAM
    if not on_gpu:
        raise fail("E510", "stream= is for arrays on a GPU, and these lie in the host's memory", "leave stream= out")
    if not isinstance(stream, AbstractContextManager):
        raise fail("E510", f"stream={stream!r:.60} is not a stream", "give a stream of CuPy, or for tensors one of PyTorch")
    return stream


def cupy_module() -> ModuleType:
    """CuPy, for arrays on a GPU; refused (E512) if it is not installed."""
    try:
        return import_module("cupy")
    except ImportError:
        hint = f"{install('cuda13')} (or cuda12, after the driver's version)"
        raise fail("E512", "these arrays live on a GPU, but CuPy is not installed", hint) from None


def _giver(foreign: Array) -> Callable[[Array], Array]:
    """The function that turns a result into an array of the caller's library, if that library can import it."""
    if foreign is None:
        return lambda result: result[()] if type(result) is np.ndarray and result.ndim == 0 else result
    library = sys.modules.get(type(foreign).__module__.split(".")[0])
    namespace = foreign.__array_namespace__() if hasattr(foreign, "__array_namespace__") else library
    places = (namespace, type(foreign), library)
    importers = [place.from_dlpack for place in places if place is not None and hasattr(place, "from_dlpack")]
    if not importers:
        return lambda result: result
    return lambda result: importers[0](np.asarray(result) if isinstance(result, np.generic) else result)


def _wrapper(operands: list[Array]) -> Callable[[Array], Array]:
    """The function that turns a result into the operands' subclass, chosen as NumPy does: the highest priority, then the first."""
    plain = _giver(None)
    arrays = [x for x in operands if isinstance(x, np.ndarray)]
    if all(type(x) is np.ndarray for x in arrays):
        return plain
    chosen = max(arrays, key=lambda x: (getattr(x, "__array_priority__", 0.0), type(x) is not np.ndarray))
    return lambda result: plain(chosen.__array_wrap__(result)) if type(result) is np.ndarray else result


NUMPY = Kind(np, False, _giver(None))
_NO_STREAM = nullcontext()


ONLY_AS_ARRAYS = {"bool", "uint16", "uint32", "uint64"}  # What NumPy multiplies and PyTorch does not.
TYPES = {"float32", "float64", "complex64", "complex128", "int8", "int16", "int32", "int64", "uint8"} | ONLY_AS_ARRAYS
"""The types that are multiplied as arrays; PyTorch multiplies its other types by itself."""


def torch_of(*arrays: Array) -> ModuleType | None:
    """The module `torch` if an operand is a PyTorch tensor, else None. Nothing is imported."""
    torch = sys.modules.get("torch")
    kind = getattr(torch, "Tensor", None)  # while another thread imports torch, it has no `Tensor`
    if kind is None:
        return None
    for x in arrays:
        if isinstance(x, kind):
            return torch
    return None


def records_gradients(torch: ModuleType, *arrays: Array) -> bool:
    """Whether a gradient is asked for, and recorded."""
    for x in arrays:
        if isinstance(x, torch.Tensor) and x.requires_grad:
            return bool(torch.is_grad_enabled())
    return False


def is_plain(torch: ModuleType, *arrays: Array) -> bool:
    """Whether tensors, among them perhaps None and arrays, lie in memory and nobody but this call sees them.

    Compilers, transformations, dispatch modes, tangents and subclasses must see operators, and meta tensors have no memory.
    """
    if torch.compiler.is_compiling():
        return False
    kinds = torch.Tensor, torch.nn.Parameter
    for x in arrays:
        if isinstance(x, torch.Tensor) and (type(x) not in kinds or x.is_meta):
            return False
    return not watcher(torch)()


@cache
def watcher(torch: ModuleType) -> Callable[[], bool]:
    """What tells whether something that must see operators is active; always, in a release of PyTorch that does not say it."""
    core, tangents = torch._C, torch.autograd.forward_ad
    try:
        level, modes = core._functorch.maybe_current_level, core._len_torch_dispatch_stack
        includes = core._dispatch_tls_is_dispatch_key_included
        older_vmap = core._parse_dispatch_key("VmapMode")  # which batched gradients use
    except AttributeError:
        return lambda: True
    return lambda: level() is not None or modes() > 0 or includes(older_vmap) or tangents._current_level >= 0


def why_not_dense(tensor: Array) -> str | None:
    """Why no schedule runs on a tensor of this layout; None for one that lies in memory as it is."""
    layout = name_of(tensor.layout)
    return None if layout == "strided" else f"no schedule runs on tensors of layout {layout}"


def name_of(what: object) -> str:
    """The name of a type or of a layout, without that of PyTorch."""
    return str(what).removeprefix("torch.")


def half_of(torch: ModuleType, a: Array, b: Array, out: Array = None) -> Element | None:
    """The type of 16 bits of A, B and, if it is given, `out`, or with an `out` of float32: dense tensors on a GPU, in the memory that holds
    their elements. None for others.
    """
    given = [a, b, *(() if out is None else (out,))]
    if not all(isinstance(x, torch.Tensor) for x in given) or a.dtype != b.dtype:
        return None
    name = name_of(a.dtype)
    is_dense = all(x.is_cuda and why_not_dense(x) is None and not x.is_neg() for x in given)
    return HALVES.get(name) if is_dense and {name_of(x.dtype) for x in given} <= {name, FLOAT32.name} else None


def adopt_bits(torch: ModuleType, tensor: Array) -> Array:
    """A tensor on a GPU as CuPy's array, one of 16 bits as integers, for CuPy need not know its type; None for None."""
    if tensor is None:
        return None
    own = tensor.detach()
    return _on_gpu(own.view(torch.int16) if name_of(own.dtype) in HALVES else own)


@contextmanager
def as_arrays(
    torch: ModuleType, stream: object, read: Sequence[Array], written: Sequence[Array], bits: bool = False
) -> Iterator[list[Array]]:
    """In their `surroundings`, tensors that are read and others that are written, as arrays; what is no tensor stays as it is.

    With `bits` those of 16 bits are integers; the last one that is written, the workspace, is not. A view that conjugates or negates its
    memory is copied, and one that is written back afterwards. On a stream that is given nothing is copied: PyTorch would not copy there.
    """
    with surroundings(torch, stream, *read, *written):
        if bits:
            yield [*(adopt_bits(torch, x) for x in (*read, *written[:-1])), adopt_tensor(torch, written[-1], False)]
            tell_written(torch, *written)
            return
        views = [stream is None and isinstance(x, torch.Tensor) and (x.is_conj() or x.is_neg()) for x in written]
        copies = [x.resolve_conj().resolve_neg() if is_view else x for x, is_view in zip(written, views, strict=True)]
        yield [*(adopt_tensor(torch, x, stream is None) for x in read), *(adopt_tensor(torch, x, False) for x in copies)]
        for x, copy in zip(written, copies, strict=True):
            if copy is not x:
                x.copy_(copy)
        tell_written(torch, *written)


def tell_written(torch: ModuleType, *arrays: Array) -> None:
    """Let PyTorch refuse gradients that need what these tensors held before, as after writes of its own."""
    for x in arrays:
        if isinstance(x, torch.Tensor) and not x.is_inference():
            torch.autograd.graph.increment_version(x)


@contextmanager
def surroundings(torch: ModuleType, stream: object, *arrays: Array) -> Iterator[None]:
    """Make CuPy use the tensors' device, PyTorch's current stream or the given one, and PyTorch's memory pool; nothing on processors.

    The given stream is PyTorch's or CuPy's; on processors it is refused (E510). Tensors of several devices are refused (E511).
    """
    devices = {x.device for x in arrays if isinstance(x, torch.Tensor)}
    if len(devices) > 1:
        what = f"the operands live on different devices: {', '.join(sorted(map(str, devices)))}"
        raise fail("E511", what, "move them to one device first")
    if not any(isinstance(x, torch.Tensor) and x.is_cuda for x in arrays):
        with stream_for(False, stream):
            yield
        return
    cupy, device = cupy_module(), devices.pop()
    given = torch.cuda.current_stream(device) if stream is None else stream
    own = cupy_stream(given.cuda_stream) if hasattr(given, "cuda_stream") else given
    own = stream_for(True, own)
    with cupy.cuda.Device(device.index), own, cupy.cuda.using_allocator(_pool().malloc):
        yield


def adopt_tensor(torch: ModuleType, array: Array, reads: bool = True) -> Array:
    """A tensor as a CuPy or NumPy array of the same memory; anything else unchanged.

    If it is only read, a view that conjugates or negates its memory is copied. Refused are tensors that require gradients, which this call
    does not record (E516), and those whose memory does not hold their elements (E517): sparse ones, such views if they are not only read,
    types that CuPy or NumPy does not know, and tensors inside of a transformation such as `torch.vmap`, or with a tangent.
    """
    if not isinstance(array, torch.Tensor):
        return array
    if array.requires_grad and torch.is_grad_enabled():
        raise unrecorded("there is no derivative for it")
    try:
        if _has_tangent(torch, array):
            raise ValueError("it has a tangent, which would be lost")
        if torch._is_functional_tensor(array):  # its memory may be older than what it stands for
            raise ValueError("it stands for another one in torch.func.functionalize")
        own = array.detach()
        if reads and (own.is_conj() or own.is_neg()):
            own = own.resolve_conj().resolve_neg()
        if own.is_neg():  # PyTorch would export it without its sign
            raise BufferError("it is a view that negates its memory")
        return _on_gpu(own) if own.is_cuda else own.numpy()
    except (BufferError, RuntimeError, TypeError, ValueError) as error:  # which one depends on the versions of PyTorch and CuPy
        hint = "give a dense tensor, not conjugated or negated; inside of torch.func and torch.compile, use bilinear.torch.matmul"
        if name_of(array.dtype) not in TYPES:
            hint = f"convert it: these options are for tensors of {', '.join(sorted(TYPES))}"
        raise fail("E517", f"a tensor cannot be multiplied as it lies in memory: {error}", hint) from None


def _has_tangent(torch: ModuleType, tensor: Array) -> bool:
    tangents = torch.autograd.forward_ad
    try:
        return tangents._current_level >= 0 and tangents.unpack_dual(tensor).tangent is not None
    except RuntimeError:  # inside of an operator, below derivatives, PyTorch refuses to look
        return False


def _on_gpu(tensor: Array) -> Array:
    import cupy

    return cupy.from_dlpack(tensor)


def give_tensor(torch: ModuleType, result: Array) -> Array:
    """A result as a tensor of the same memory."""
    return torch.from_dlpack(np.asarray(result) if isinstance(result, np.generic) else result)


def unrecorded(reason: str) -> Exception:
    """The refusal of a multiply whose gradient would be lost."""
    hint = "leave the other options out; or use tensor.detach() or torch.no_grad()"
    return fail("E516", f"a tensor requires gradients, and this call records none: {reason}", hint)


def untraced(what: str) -> Exception:
    """The refusal of a call that PyTorch traces or transforms, with what may be such a call."""
    hint = "leave the other options out, or call it outside of torch.compile, torch.func and other modes, with plain tensors"
    return fail("E517", f"PyTorch traces or transforms this call, which may be {what}", hint)


@cache
def _pool() -> Any:
    """PyTorch's caching allocator for CuPy: memory belongs to the stream that asked for it, and returns to it."""
    import cupy
    import torch

    def allocate(size: int, device: int) -> int:
        try:
            return int(torch.cuda.caching_allocator_alloc(size, device, cupy.cuda.get_current_stream().ptr))
        except torch.cuda.OutOfMemoryError as error:
            raise MemoryError(str(error)) from None

    def free(pointer: int, _: int) -> None:
        torch.cuda.caching_allocator_delete(pointer)

    return cupy.cuda.PythonFunctionAllocator(allocate, free)


@cache
def cupy_stream(handle: int) -> AbstractContextManager[object]:
    """A stream of this handle as CuPy's; before version 14 CuPy took the handle itself."""
    import cupy

    make = getattr(cupy.cuda.Stream, "from_external", None)
    stream: AbstractContextManager[object] = cupy.cuda.ExternalStream(handle) if make is None else make(_Stream(handle))
    return stream


class _Stream:
    """A stream of another library that speaks the CUDA stream protocol."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


def make_executor(kind: Kind) -> Executor:
    """The backend for a kind of array."""
    if kind.on_gpu:
        return gpu_executor()
    from bilinear.backends.numpy_executor import NumpyExecutor

    return NumpyExecutor()


@cache
def gpu_executor() -> CudaExecutor:
    """The backend for the arrays of CuPy."""
    from bilinear.backends.cuda_executor import CudaExecutor

    return CudaExecutor()
