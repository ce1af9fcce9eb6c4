"""PyTorch's tensors on a GPU: multiplied as CuPy arrays on PyTorch's stream, in memory of PyTorch's pool."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

from bilinear.errors import fail
from bilinear.ir.matrix import Array


def torch_of(*arrays: Array) -> ModuleType | None:
    """PyTorch, where one of the operands is a tensor of its own on a GPU; else None. Nothing is imported."""
    kind = getattr(sys.modules.get("torch"), "Tensor", None)  # a thread may be importing it
    if kind is None or not any(isinstance(x, kind) and x.is_cuda for x in arrays):
        return None
    return sys.modules["torch"]


@contextmanager
def surroundings(torch: ModuleType, stream: Any, *tensors: Array) -> Iterator[None]:
    """The tensors' device, PyTorch's current stream unless another is given, and PyTorch's memory for CuPy's arrays.

    A stream is PyTorch's or CuPy's. Tensors of several devices are refused (E511).
    """
    import cupy

    devices = {x.device for x in tensors if isinstance(x, torch.Tensor)}
    if len(devices) > 1:
        raise fail(
            "E511", f"the operands live on different devices: {', '.join(sorted(map(str, devices)))}", "move them to one device first"
        )
    device = devices.pop()
    given = torch.cuda.current_stream(device) if stream is None else stream
    own = _as_cupys(given.cuda_stream) if hasattr(given, "cuda_stream") else given
    with cupy.cuda.Device(device.index), own, cupy.cuda.using_allocator(_pool().malloc):
        yield


class _Stream:
    """A stream of another library, as the CUDA stream protocol hands it on."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


def _as_cupys(handle: int) -> Any:
    """A stream as CuPy's; before version 14 it took the handle itself."""
    import cupy

    make = getattr(cupy.cuda.Stream, "from_external", None)
    return cupy.cuda.ExternalStream(handle) if make is None else make(_Stream(handle))


def adopt_tensor(torch: ModuleType, array: Array) -> Array:
    """A tensor as a CuPy array of the same memory; everything else as it is.

    Refused are gradients, which are not recorded (E516), and what is not what lies in memory (E517): sparse tensors, views that conjugate
    or negate (PyTorch would export the latter without their sign), and element types that CuPy does not know.
    """
    if not isinstance(array, torch.Tensor):
        return array
    if array.requires_grad and torch.is_grad_enabled():
        raise fail(
            "E516", "a tensor asks for gradients, which this multiply does not record", "give tensor.detach(), or use torch.no_grad()"
        )
    import cupy

    try:
        if array.is_neg():
            raise BufferError("it is a view that negates its memory")
        return cupy.from_dlpack(array.detach())
    except (BufferError, RuntimeError, TypeError, ValueError) as error:  # of PyTorch and of CuPy, by version
        hint = "give a dense tensor, of resolve_conj() and resolve_neg()"
        raise fail("E517", f"a tensor cannot be multiplied as it lies in memory: {error}", hint) from None


@cache
def _pool() -> Any:
    """CuPy's way to PyTorch's caching allocator: memory belongs to the stream that asks for it, and goes back to it."""
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
