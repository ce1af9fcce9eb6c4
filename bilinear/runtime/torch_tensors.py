"""PyTorch's tensors, multiplied where they lie: as CuPy arrays on PyTorch's stream, with memory from its pool, or as NumPy's arrays."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache, partial
from types import ModuleType
from typing import Any

import numpy as np

from bilinear.errors import fail
from bilinear.frontend import load_for_arrays
from bilinear.ir.element import FLOAT32, HALVES, Element
from bilinear.ir.matrix import Array
from bilinear.runtime.arrays import NUMPY, cupy_module, kind_of
from bilinear.runtime.environment import USE_LIBRARY, uses_library, value_of
from bilinear.runtime.named import algorithm_as_it_is
from bilinear.runtime.on_arrays import Asked, matmul_arrays
from bilinear.runtime.options import Options, check_options, check_plan_options
from bilinear.runtime.repeat import Key
from bilinear.runtime.torch_repeat import by_torch, cupy_stream, keep_tensors, repeated_tensors
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
        raise unrecorded("gradients are recorded of products of two tensors, without out=, factors and other options")
    if not isinstance(asked[2], str):
        raise unrecorded("gradients are recorded where an algorithm is given by its name or path")


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
    """`matmul` of tensors whose gradients are not recorded, or of tensors and arrays. A call that ran before on a GPU is found first."""
    asked, key, result = (asked, None, None) if stream is not None else found_again(torch, a, b, out, asked)
    if result is not None:
        return result
    result, is_pytorchs = _matmul_anew(torch, a, b, out, asked, stream)
    if key is not None:
        if is_pytorchs and asked[2] == "auto":  # else a warning belongs to each call
            keep_tensors(torch, key, None, asked, result)
        elif not is_pytorchs and _name(a.dtype) not in HALVES:
            keep_tensors(torch, key, (adopt_tensor(torch, a), adopt_tensor(torch, b), adopt_tensor(torch, out)), asked, result)
    return result


def found_again(torch: ModuleType, a: Array, b: Array, out: Array, asked: Asked) -> tuple[Asked, Key | None, Array]:
    """What is asked for, with the algorithm that its name means now; the key under which the call is to be kept, if it is; and the result
    of a call that ran before on a GPU, or None.
    """
    if value_of(USE_LIBRARY) is not None and uses_library():
        return asked, None, None
    if isinstance(asked[2], str) and asked[2] != "auto":
        asked = (*asked[:2], algorithm_as_it_is(asked[2], load_for_arrays), *asked[3:])
    key, repeat = repeated_tensors(torch, a, b, out, asked)
    if repeat is None:
        return asked, key, None
    return asked, None, repeat.run(a, b, out, asked[0], asked[1])


def _matmul_anew(
    torch: ModuleType, a: Array, b: Array, out: Array, asked: Asked, stream: AbstractContextManager[object] | None
) -> tuple[Array, bool]:
    """The same, decided anew, and whether PyTorch multiplied."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.dtype != b.dtype:
        with suppress(RuntimeError):  # two types without a common one are refused as they are
            common = torch.promote_types(a.dtype, b.dtype)  # which PyTorch's products leave to the caller
            a, b = a.to(common), b.to(common)
    element = half_of(torch, a, b, out)
    if element is not None:
        half = _by_half(torch, element, a, b, out, asked, stream)
        if half is not None:
            return half, False
        options = Options(*asked)
        is_plain = options.is_unsaid and options.alpha == 1 and options.accuracy is None and stream is None
        own = by_torch(torch, a, b, out) if is_plain else None
        if own is not None:
            return own, True
    if _is_product(torch, a, b, out, asked, stream) and a.dtype == b.dtype and multiplies_by_itself(a, b, Options(*asked)):
        return torch.matmul(a, b), True
    conjugated = "".join(name for name, x in zip("AB", (a, b), strict=True) if isinstance(x, torch.Tensor) and x.is_conj())
    a, b = (x.conj() if name in conjugated else x for name, x in zip("AB", (a, b), strict=True))  # the memory as it is
    return on_arrays_of(torch, a, b, out, asked, stream, partial(matmul_arrays, conjugated=conjugated)), False


def half_of(torch: ModuleType, a: Array, b: Array, out: Array = None) -> Element | None:
    """The type of 16 bits of A, B and, if it is given, `out`, or with an `out` of float32: dense tensors on a GPU, in the memory that holds
    their elements. None for others.
    """
    given = [x for x in (a, b, out) if x is not None]
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
        options = options._replace(workspace=adopt_tensor(torch, options.workspace))
        result = by_half(options, kind_of(left, right), element, left, right, target)
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
    with surroundings(torch, stream, a, b, out, workspace):
        left, right, target, buffer = (adopt_tensor(torch, x) for x in (a, b, out, workspace))
        result = multiply(left, right, target, (*before, buffer, *after), None)
        return give_tensor(torch, result) if out is None else out


@contextmanager
def surroundings(torch: ModuleType, stream: Any, *arrays: Array) -> Iterator[None]:
    """Make CuPy use the tensors' device, PyTorch's current stream or the given one, and PyTorch's memory pool; nothing on processors.

    The given stream is PyTorch's or CuPy's. Tensors of several devices are refused (E511).
    """
    devices = {x.device for x in arrays if isinstance(x, torch.Tensor)}
    if len(devices) > 1:
        raise fail(
            "E511", f"the operands live on different devices: {', '.join(sorted(map(str, devices)))}", "move them to one device first"
        )
    if not any(isinstance(x, torch.Tensor) and x.is_cuda for x in arrays):
        yield
        return
    cupy, device = cupy_module(), devices.pop()
    given = torch.cuda.current_stream(device) if stream is None else stream
    own = cupy_stream(given.cuda_stream) if hasattr(given, "cuda_stream") else given
    with cupy.cuda.Device(device.index), own, cupy.cuda.using_allocator(_pool().malloc):
        yield


def adopt_tensor(torch: ModuleType, array: Array) -> Array:
    """A tensor as a CuPy or NumPy array of the same memory; anything else unchanged.

    Refused are tensors that require gradients, which this call does not record (E516), and those whose memory does not hold their
    elements (E517): sparse ones, results that conjugate, views that negate (PyTorch would export the latter without their sign), types
    that CuPy or NumPy does not know, and tensors inside of a transformation such as `torch.vmap`.
    """
    if not isinstance(array, torch.Tensor):
        return array
    if array.requires_grad and torch.is_grad_enabled():
        raise unrecorded("there is no derivative for it")
    try:
        if array.is_neg():
            raise BufferError("it is a view that negates its memory")
        return _on_gpu(array.detach()) if array.is_cuda else array.detach().numpy()
    except (BufferError, RuntimeError, TypeError, ValueError) as error:  # which one depends on the versions of PyTorch and CuPy
        hint = (
            "give a dense tensor, after resolve_conj() and resolve_neg(); inside of torch.func and torch.compile, use bilinear.torch.matmul"
        )
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
