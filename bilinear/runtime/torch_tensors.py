"""PyTorch's tensors on a GPU, multiplied as CuPy arrays on PyTorch's stream with memory from PyTorch's pool."""

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
    """The module `torch` if an operand is a PyTorch tensor on a GPU, else None. Nothing is imported."""
    kind = getattr(sys.modules.get("torch"), "Tensor", None)  # while another thread imports torch, it has no `Tensor`
    if kind is None or not any(isinstance(x, kind) and x.is_cuda for x in arrays):
        return None
    return sys.modules["torch"]


@contextmanager
def surroundings(torch: ModuleType, stream: Any, *tensors: Array) -> Iterator[None]:
    """Make CuPy use the tensors' device, PyTorch's current stream or the given one, and PyTorch's memory pool.

    The given stream is PyTorch's or CuPy's. Tensors of several devices are refused (E511).
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


def adopt_tensor(torch: ModuleType, array: Array) -> Array:
    """A tensor as a CuPy array of the same memory; anything else unchanged.

    Refused are tensors that ask for gradients, which are not recorded (E516), and tensors whose memory does not hold their elements (E517):
    sparse ones, views that conjugate or negate (PyTorch would export the latter without their sign), and types that CuPy does not know.
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
    except (BufferError, RuntimeError, TypeError, ValueError) as error:  # which one depends on the versions of PyTorch and CuPy
        hint = "give a dense tensor, after resolve_conj() and resolve_neg()"
        raise fail("E517", f"a tensor cannot be multiplied as it lies in memory: {error}", hint) from None


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
