"""Repeat a multiply of PyTorch's tensors on a GPU: found by their own layouts in one look-up, and launched by their addresses.

A call runs on PyTorch's current stream, in memory of its allocator. No tensor becomes an array of another library on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import ModuleType

from bilinear.backends.caches import keep
from bilinear.backends.room import LARGE, fitting
from bilinear.errors import BilinearError
from bilinear.ir.matrix import Array, Factor
from bilinear.runtime.repeat import MOST_REPEATS, Key, LibraryRepeat, PlacementRepeat, asked_key, repeated
from bilinear.runtime.torch_memory import cupy_stream


class TensorRepeat:
    """What was kept for CuPy's arrays, for tensors of the same layouts on a device."""

    def __init__(self, torch: ModuleType, repeat: LibraryRepeat | PlacementRepeat, result: Array) -> None:
        from cupy.cuda import runtime

        self._torch, self._repeat = torch, repeat
        self._shape, self._dtype, self._device = tuple(result.shape), result.dtype, result.device
        self._index, self._here, self._is_captured = result.device.index, runtime.getDevice, runtime.streamIsCapturing

    def run(self, a: Array, b: Array, out: Array, alpha: Factor, beta: Factor) -> Array | None:
        """alpha * a @ b + beta * out. None, with nothing written, if the call must be decided anew.

        That is so on another current device, while the stream is captured, if tensors may overlap, or if memory is short.
        """
        torch, repeat = self._torch, self._repeat
        handle = stream_of(torch)(self._index)
        left, right, target = a.data_ptr(), b.data_ptr(), 0 if out is None else out.data_ptr()
        if self._here() != self._index or self._is_captured(handle) or repeat.may_overlap(left, right, target):
            return None
        if repeat.workspace >= LARGE and fitting(repeat.workspace, repeat.result_bytes(out), of_torch=True) is not None:
            return None
        try:
            space = torch.empty(repeat.workspace, dtype=torch.uint8, device=self._device) if repeat.workspace else None
            if out is None:
                out = torch.empty(self._shape, dtype=self._dtype, device=self._device)
                target = out.data_ptr()
            with cupy_stream(handle):
                repeat.launch(left, right, target, alpha, beta, 0 if space is None else space.data_ptr())
        except (BilinearError, MemoryError, torch.cuda.OutOfMemoryError):
            return None
        return out


class TorchRepeat:
    """PyTorch's own multiply, where it is what a call runs."""

    def __init__(self, torch: ModuleType) -> None:
        self._torch = torch

    def run(self, a: Array, b: Array, out: Array, alpha: Factor, beta: Factor) -> Array | None:
        """a @ b; None, with nothing written, for factors, and for an `out` that PyTorch would refuse or resize."""
        if alpha != 1 or beta != 0:
            return None
        return by_torch(self._torch, a, b, out)


def by_torch(torch: ModuleType, a: Array, b: Array, out: Array) -> Array | None:
    """a @ b by PyTorch itself; None for an `out` that it would refuse or resize."""
    if out is None:
        return torch.matmul(a, b)
    fits = a.ndim == b.ndim == 2 and a.shape[1] == b.shape[0] and out.shape == (a.shape[0], b.shape[1]) and out.dtype == a.dtype
    memory = out.untyped_storage().data_ptr()
    if not fits or memory in (a.untyped_storage().data_ptr(), b.untyped_storage().data_ptr()):
        return None
    return torch.mm(a, b, out=out)


Repeat = TensorRepeat | TorchRepeat

_repeats: dict[Key, tuple[Repeat | None, object]] = {}
"""Each with what was asked for, which keeps alive what its key names by identity; None for calls of which nothing can be repeated."""


def repeated_tensors(torch: ModuleType, a: Array, b: Array, out: Array, asked: tuple[Array, ...]) -> tuple[Key | None, Repeat | None]:
    """The key of a call, and what is kept under it. The key is None for a call that is never kept, or of which nothing can be repeated.

    Only calls with dense tensors on a GPU, in the memory that holds their elements, have one. As for CuPy's arrays it holds no values, and
    of the addresses only whether B is A^T.
    """
    kinds = torch.Tensor, torch.nn.Parameter
    given = (a, b) if out is None else (a, b, out)
    if any(type(x) not in kinds or not x.is_cuda or x.layout is not torch.strided or x.is_conj() or x.is_neg() for x in given):
        return None, None
    own = asked_key(asked)
    if own is None:
        return None, None
    left, right = a.stride(), b.stride()
    is_transposed = left == right[::-1] and a.data_ptr() == b.data_ptr()
    shape, strides, dtype = (None, None, None) if out is None else (out.shape, out.stride(), out.dtype)
    key = a.shape, left, a.dtype, b.shape, right, b.dtype, shape, strides, dtype, a.device, b.device, is_transposed, own
    found = _repeats.get(key)
    if found is None:
        return key, None
    return None if found[0] is None else key, found[0]


def keep_tensors(torch: ModuleType, key: Key, arrays: tuple[Array, Array, Array] | None, asked: tuple[Array, ...], result: Array) -> None:
    """Keep a call that has run: what was kept of it for arrays, or PyTorch's own multiply if it ran, and no arrays."""
    kept: Repeat | None = None
    repeat = None if arrays is None else repeated(*arrays, asked)[1]
    if arrays is None:
        kept = TorchRepeat(torch)
    elif isinstance(repeat, LibraryRepeat) or (isinstance(repeat, PlacementRepeat) and repeat.is_launched):
        kept = TensorRepeat(torch, repeat, result)
    keep(_repeats, key, (kept, asked), MOST_REPEATS)


@cache
def stream_of(torch: ModuleType) -> Callable[[int], int]:
    """What gives the handle of the current stream of a device. PyTorch's public function makes an object each time."""
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return raw or (lambda index: torch.cuda.current_stream(index).cuda_stream)
