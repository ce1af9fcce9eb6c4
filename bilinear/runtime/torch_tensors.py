"""PyTorch's tensors, multiplied where they lie: as CuPy arrays on PyTorch's stream, with memory from its pool, or as NumPy's arrays."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache, partial
from types import ModuleType
from typing import Any

import numpy as np

from bilinear.errors import fail
from bilinear.frontend import load_for_arrays
from bilinear.ir.element import FLOAT32, HALVES, Element
from bilinear.ir.matrix import Array
from bilinear.runtime.accept import accept, stream_for
from bilinear.runtime.arrays import NUMPY, cupy_module
from bilinear.runtime.named import algorithm_as_it_is
from bilinear.runtime.on_arrays import Asked, matmul_arrays
from bilinear.runtime.options import Options, check_options, check_plan_options
from bilinear.runtime.unused import warn_unused

_ONLY_AS_ARRAYS = {"bool", "uint16", "uint32", "uint64"}
"""The types that NumPy multiplies and PyTorch does not."""
TYPES = {"float32", "float64", "complex64", "complex128", "int8", "int16", "int32", "int64", "uint8"} | _ONLY_AS_ARRAYS
"""The types that are multiplied as arrays; PyTorch multiplies its other types by itself."""

OnArrays = Callable[[Array, Array, Array, Asked, None], Array]
"""A multiply of arrays: of A, B and `out`, by what is asked for, on the current stream."""


def torch_of(*arrays: Array) -> ModuleType | None:
    """The module `torch` if an operand is a PyTorch tensor, else None. Nothing is imported."""
    kind = getattr(sys.modules.get("torch"), "Tensor", None)  # while another thread imports torch, it has no `Tensor`
    if kind is None or not any(isinstance(x, kind) for x in arrays):
        return None
    return sys.modules["torch"]


def records_gradients(torch: ModuleType, *arrays: Array) -> bool:
    """Whether a gradient is asked for, and recorded."""
    return bool(torch.is_grad_enabled()) and any(isinstance(x, torch.Tensor) and x.requires_grad for x in arrays)


def check_recorded(torch: ModuleType, a: Array, b: Array, out: Array, asked: Asked, stream: object) -> None:
    """Refuse (E516) what the operators, which record gradients, do not compute."""
    if not _is_product(torch, a, b, out, asked, stream):
        raise unrecorded("operators compute the product of two tensors, into a new one")
    if not isinstance(asked[2], str):
        raise unrecorded("operators take an algorithm by its name or path")


def _is_product(torch: ModuleType, a: Array, b: Array, out: Array, asked: Asked, stream: object) -> bool:
    """Whether a call asks for the product of two tensors by some algorithm and levels, and for nothing else."""
    alpha, beta, _, _, inputs, *others = asked
    plain = type(alpha) in (int, float) and alpha == 1 and type(beta) in (int, float) and beta == 0 and inputs == "preserve"
    return plain and all(x is None for x in (out, stream, *others)) and isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)


def multiplies_by_itself(a: Array, b: Array, asked: Options) -> bool:
    """Whether PyTorch's own multiply is to run for two tensors; warns if it does so in place of a named algorithm.

    It runs for types, layouts and devices that no schedule runs on, and on processors for `auto` that has nothing to weigh. Raises
    `BilinearError` for options that have no meaning.
    """
    check_options(asked, None)
    is_unnamed = asked.is_plain(NUMPY)
    named = None if is_unnamed else asked.algorithm
    named = algorithm_as_it_is(named, load_for_arrays) if isinstance(named, str) else named
    reason = _why_itself(a) or _why_itself(b)
    if reason is None:
        is_pytorchs = not a.is_cuda and _name(a.dtype) not in _ONLY_AS_ARRAYS
        return is_unnamed and is_pytorchs and asked.described_cpu(NUMPY, a, b) is None
    if named is not None:
        warn_unused(named.name, reason)
    return True


def _why_itself(tensor: Array) -> str | None:
    dtype, reason = _name(tensor.dtype), _why_not_dense(tensor)
    if reason is not None:
        return reason
    if not tensor.is_cuda and str(tensor.device).partition(":")[0] != "cpu":
        return f"no schedule runs on the device {tensor.device}"
    return None if dtype in TYPES else f"no schedule runs on {dtype}"


def _why_not_dense(tensor: Array) -> str | None:
    layout = _name(tensor.layout)
    return None if layout == "strided" else f"no schedule runs on tensors of layout {layout}"


def _name(what: object) -> str:
    """The name of a type or of a layout, without that of PyTorch."""
    return str(what).removeprefix("torch.")


def matmul_tensors(torch: ModuleType, a: Array, b: Array, out: Array, asked: Asked, stream: AbstractContextManager[object] | None) -> Array:
    """`matmul` of tensors whose gradients are not recorded, or of tensors and arrays."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.dtype != b.dtype:
        with suppress(RuntimeError):  # two types without a common one are refused as they are
            common = torch.promote_types(a.dtype, b.dtype)  # which PyTorch's products leave to the caller
            a, b = a.to(common), b.to(common)
    element = half_of(torch, a, b, out)
    if element is not None:
        half = _by_half(torch, element, a, b, out, asked, stream)
        if half is not None:
            return half
    if _is_product(torch, a, b, out, asked, stream) and a.dtype == b.dtype and multiplies_by_itself(a, b, Options(*asked)):
        return torch.matmul(a, b)
    conjugated = "".join(name for name, x in zip("AB", (a, b), strict=True) if isinstance(x, torch.Tensor) and x.is_conj())
    a, b = (x.conj() if name in conjugated else x for name, x in zip("AB", (a, b), strict=True))  # the memory as it is
    return on_arrays_of(torch, a, b, out, asked, stream, partial(matmul_arrays, conjugated=conjugated))


def half_of(torch: ModuleType, a: Array, b: Array, out: Array = None) -> Element | None:
    """The type of 16 bits of A, B and, if it is given, `out`, or with an `out` of float32: dense tensors on a GPU, in the memory that holds
    their elements. None for others.
    """
    given = [a, b, *(() if out is None else (out,))]
    if not all(isinstance(x, torch.Tensor) for x in given) or a.dtype != b.dtype:
        return None
    name = _name(a.dtype)
    is_dense = all(x.is_cuda and _why_not_dense(x) is None and not x.is_neg() for x in given)
    return HALVES.get(name) if is_dense and {_name(x.dtype) for x in given} <= {name, FLOAT32.name} else None


def _by_half(torch: ModuleType, element: Element, a: Array, b: Array, out: Array, asked: Asked, stream: object) -> Array | None:
    """The product of such tensors, as CuPy's arrays of their 16 bits: CuPy need not know bfloat16. None for what PyTorch is to multiply."""
    from bilinear.runtime.half import by_half  # most calls need none of it

    options = Options(*asked)
    check_options(options, out)
    if options.plan is not None:
        check_plan_options(options.plan, options.algorithm, options.levels, options.inputs)
    if options.algorithm != "auto" and isinstance(options.algorithm, str):
        options = options._replace(algorithm=algorithm_as_it_is(options.algorithm))
    with surroundings(torch, stream, a, b, out, options.workspace):
        left, right, target = (adopt_bits(torch, x) for x in (a, b, out))
        options = options._replace(workspace=adopt_tensor(torch, options.workspace, False))
        kind, (left, right), (target,), _ = accept({"a": left, "b": right}, {"out": target}, options.workspace)
        result = by_half(options, kind, element, left, right, target)
        if result is None or out is not None:
            return None if result is None else out
        return give_tensor(torch, result).view(a.dtype)


def adopt_bits(torch: ModuleType, tensor: Array) -> Array:
    """A tensor on a GPU as CuPy's array, one of 16 bits as integers, for CuPy need not know its type; None for None."""
    if tensor is None:
        return None
    own = tensor.detach()
    return _on_gpu(own.view(torch.int16) if _name(own.dtype) in HALVES else own)


def on_arrays_of(
    torch: ModuleType, a: Array, b: Array, out: Array, asked: Asked, stream: AbstractContextManager[object] | None, multiply: OnArrays
) -> Array:
    """What a multiply of arrays gives for tensors: on the tensors' device, stream and memory."""
    before, workspace, after = asked[:5], asked[5], asked[6:]
    with as_arrays(torch, stream, (a, b), (out, workspace)) as (left, right, target, buffer):
        result = multiply(left, right, target, (*before, buffer, *after), None)
        return give_tensor(torch, result) if out is None else out


@contextmanager
def as_arrays(torch: ModuleType, stream: Any, read: Sequence[Array], written: Sequence[Array] = ()) -> Iterator[list[Array]]:
    """In their `surroundings`, tensors that are read and others that are written, as arrays; what is no tensor stays as it is.

    On a stream that is given nothing is copied: PyTorch would copy on its current one.
    """
    with surroundings(torch, stream, *read, *written):
        yield [*(adopt_tensor(torch, x, stream is None) for x in read), *(adopt_tensor(torch, x, False) for x in written)]


@contextmanager
def surroundings(torch: ModuleType, stream: Any, *arrays: Array) -> Iterator[None]:
    """Make CuPy use the tensors' device, PyTorch's current stream or the given one, and PyTorch's memory pool; nothing on processors.

    The given stream is PyTorch's or CuPy's; on processors it is refused (E510). Tensors of several devices are refused (E511).
    """
    devices = {x.device for x in arrays if isinstance(x, torch.Tensor)}
    if len(devices) > 1:
        raise fail(
            "E511", f"the operands live on different devices: {', '.join(sorted(map(str, devices)))}", "move them to one device first"
        )
    if not any(isinstance(x, torch.Tensor) and x.is_cuda for x in arrays):
        with stream_for(False, stream):
            yield
        return
    cupy, device = cupy_module(), devices.pop()
    given = torch.cuda.current_stream(device) if stream is None else stream
    own = _as_cupys(given.cuda_stream) if hasattr(given, "cuda_stream") else given
    own = stream_for(True, own)
    with cupy.cuda.Device(device.index), own, cupy.cuda.using_allocator(_pool().malloc):
        yield


class _Stream:
    """A stream of another library that speaks the CUDA stream protocol."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


def _as_cupys(handle: int) -> Any:
    """A stream of this handle as CuPy's; before version 14 CuPy took the handle itself."""
    import cupy

    make = getattr(cupy.cuda.Stream, "from_external", None)
    return cupy.cuda.ExternalStream(handle) if make is None else make(_Stream(handle))


def adopt_tensor(torch: ModuleType, array: Array, reads: bool = True) -> Array:
    """A tensor as a CuPy or NumPy array of the same memory; anything else unchanged.

    If it is only read, a view that conjugates or negates its memory is copied. Refused are tensors that ask for gradients, which are not
    recorded (E516), and those whose memory does not hold their elements (E517): sparse ones, such views if they are not only read, types
    that CuPy or NumPy does not know, and tensors inside of a transformation such as `torch.vmap`.
    """
    if not isinstance(array, torch.Tensor):
        return array
    if array.requires_grad and torch.is_grad_enabled():
        raise unrecorded("there is no operator for this multiply")
    try:
        own = array.detach()
        if reads and (own.is_conj() or own.is_neg()):
            own = own.resolve_conj().resolve_neg()
        if own.is_neg():  # PyTorch would export it without its sign
            raise BufferError("it is a view that negates its memory")
        return _on_gpu(own) if own.is_cuda else own.numpy()
    except (BufferError, RuntimeError, TypeError, ValueError) as error:  # which one depends on the versions of PyTorch and CuPy
        hint = "give a dense tensor, not conjugated or negated; inside of torch.func and torch.compile, use bilinear.torch.matmul"
        if _name(array.dtype) not in TYPES:
            hint = f"convert it: these options are for tensors of {', '.join(sorted(TYPES))}"
        raise fail("E517", f"a tensor cannot be multiplied as it lies in memory: {error}", hint) from None


def _on_gpu(tensor: Array) -> Array:
    import cupy

    return cupy.from_dlpack(tensor)


def give_tensor(torch: ModuleType, result: Array) -> Array:
    """A result as a tensor of the same memory."""
    return torch.from_dlpack(np.asarray(result) if isinstance(result, np.generic) else result)


def unrecorded(reason: str) -> Exception:
    """The refusal of a multiply whose gradient would be lost."""
    hint = "give two tensors and the name of an algorithm, and no other options; or tensor.detach(), or use torch.no_grad()"
    return fail("E516", f"a tensor asks for gradients, which are not recorded: {reason}", hint)


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
