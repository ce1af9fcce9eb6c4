"""PyTorch's tensors where they lie: as CuPy's arrays, on PyTorch's stream and with memory from its pool, or as NumPy's arrays."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from bilinear.errors import fail
from bilinear.ir.element import HALVES
from bilinear.ir.matrix import Array
from bilinear.runtime.arrays import cupy_module, stream_for

ONLY_AS_ARRAYS = {"bool", "uint16", "uint32", "uint64"}
"""The types that NumPy multiplies and PyTorch does not."""
TYPES = {"float32", "float64", "complex64", "complex128", "int8", "int16", "int32", "int64", "uint8"} | ONLY_AS_ARRAYS
"""The types that are multiplied as arrays; PyTorch multiplies its other types by itself."""


def torch_of(*arrays: Array) -> ModuleType | None:
    """The module `torch` if an operand is a PyTorch tensor, else None. Nothing is imported."""
    kind = getattr(sys.modules.get("torch"), "Tensor", None)  # while another thread imports torch, it has no `Tensor`
    if kind is None or not any(isinstance(x, kind) for x in arrays):
        return None
    return sys.modules["torch"]


def records_gradients(torch: ModuleType, *arrays: Array) -> bool:
    """Whether a gradient is asked for, and recorded."""
    return bool(torch.is_grad_enabled()) and any(isinstance(x, torch.Tensor) and x.requires_grad for x in arrays)


def why_not_dense(tensor: Array) -> str | None:
    """Why no schedule runs on a tensor of this layout; None for one that lies in memory as it is."""
    layout = name_of(tensor.layout)
    return None if layout == "strided" else f"no schedule runs on tensors of layout {layout}"


def name_of(what: object) -> str:
    """The name of a type or of a layout, without that of PyTorch."""
    return str(what).removeprefix("torch.")


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

    With `bits` those of 16 bits are integers; the last one that is written, the workspace, is not. On a stream that is given nothing is
    copied: PyTorch would copy on its current one.
    """
    with surroundings(torch, stream, *read, *written):
        if bits:
            yield [*(adopt_bits(torch, x) for x in (*read, *written[:-1])), adopt_tensor(torch, written[-1], False)]
        else:
            yield [*(adopt_tensor(torch, x, stream is None) for x in read), *(adopt_tensor(torch, x, False) for x in written)]


@contextmanager
def surroundings(torch: ModuleType, stream: object, *arrays: Array) -> Iterator[None]:
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
    own = cupy_stream(given.cuda_stream) if hasattr(given, "cuda_stream") else given
    own = stream_for(True, own)
    with cupy.cuda.Device(device.index), own, cupy.cuda.using_allocator(_pool().malloc):
        yield


def adopt_tensor(torch: ModuleType, array: Array, reads: bool = True) -> Array:
    """A tensor as a CuPy or NumPy array of the same memory; anything else unchanged.

    If it is only read, a view that conjugates or negates its memory is copied. Refused are tensors that require gradients, which this call
    does not record (E516), and those whose memory does not hold their elements (E517): sparse ones, such views if they are not only read,
    types that CuPy or NumPy does not know, and tensors inside of a transformation such as `torch.vmap`.
    """
    if not isinstance(array, torch.Tensor):
        return array
    if array.requires_grad and torch.is_grad_enabled():
        raise unrecorded("there is no derivative for it")
    try:
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


def _on_gpu(tensor: Array) -> Array:
    import cupy

    return cupy.from_dlpack(tensor)


def give_tensor(torch: ModuleType, result: Array) -> Array:
    """A result as a tensor of the same memory."""
    return torch.from_dlpack(np.asarray(result) if isinstance(result, np.generic) else result)


def unrecorded(reason: str) -> Exception:
    """The refusal of a multiply whose gradient would be lost."""
    hint = "give two tensors and the name of an algorithm, and no other options; or tensor.detach(), or use torch.no_grad()"
    return fail("E516", f"a tensor requires gradients, and this call records none: {reason}", hint)


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
def cupy_stream(handle: int) -> Any:
    """A stream of this handle as CuPy's; before version 14 CuPy took the handle itself."""
    import cupy

    make = getattr(cupy.cuda.Stream, "from_external", None)
    return cupy.cuda.ExternalStream(handle) if make is None else make(_Stream(handle))


class _Stream:
    """A stream of another library that speaks the CUDA stream protocol."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle
