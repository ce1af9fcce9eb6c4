"""PyTorch's operators `bilinear::mm` and `bilinear::bmm`: what they compute, their gradients, shapes, and rules of autocast and vmap.

Importing this module registers the operators. PyTorch's transformations (`torch.func`) do not reach the gradients that are registered for
an operator, so `multiply` calls it through an `autograd.Function`; both have the rules that are written here once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import torch

from bilinear.ir.matrix import Array
from bilinear.runtime.on_arrays import Asked
from bilinear.runtime.options import Options
from bilinear.runtime.torch_memory import TYPES
from bilinear.runtime.torch_repeat import keep_tensors
from bilinear.runtime.torch_tensors import found_again, matmul_tensors, multiplies_by_itself

How = tuple[str, int | None]
"""An algorithm and its levels, as the operators take them; None stands for "auto"."""
Dims = tuple[int | None, ...]
"""For each argument of a vectorised call, the dimension over which it runs."""
_SCHEMA = "(Tensor a, Tensor b, str algorithm='auto', int? levels=None) -> Tensor"


class ProductContext(Protocol):
    """What PyTorch keeps between a product and its gradients."""

    how: How
    needs_input_grad: tuple[bool, ...]
    saved_tensors: tuple[Array, Array]

    def save_for_backward(self, *tensors: Array) -> None:
        """Keep tensors, or None."""


class Batch(Protocol):
    """What PyTorch says of a vectorised call."""

    batch_size: int


def multiply(a: Array, b: Array, how: How) -> Array:
    """a @ b of two matrices, or of two batches of as many, by the operators; gradients, of any order, are products by the same `how`."""
    if is_autocast(a.device.type):
        return _cast(a.device.type, a, b, *how)  # before anything is kept for a gradient
    return (_Eager if _is_eager(a, b) else _ProductOperator).apply(a, b, *how)


class _ProductOperator(torch.autograd.Function):  # type: ignore[misc]
    """An operator with its gradients, also for `torch.func`."""

    @staticmethod
    def forward(a: Array, b: Array, algorithm: str, levels: int | None) -> Array:
        return _OPERATORS[a.ndim](a, b, algorithm, levels)

    @staticmethod
    def setup_context(ctx: ProductContext, inputs: tuple[Array, Array, str, int | None], output: Array) -> None:
        """Keep what the gradients read: each operand for the gradient of the other."""
        (a, b), ctx.how = inputs[:2], inputs[2:]
        of_a, of_b = ctx.needs_input_grad[:2]
        ctx.save_for_backward(a if of_b else None, b if of_a else None)

    @staticmethod
    def backward(ctx: ProductContext, gradient: Array) -> tuple[Array, Array, None, None]:
        """For C = A B and the gradient G of C: G B^H and A^H G."""
        a, b = ctx.saved_tensors
        of_a = None if b is None else multiply(gradient, b.mH, ctx.how)
        of_b = None if a is None else multiply(a.mH, gradient, ctx.how)
        return of_a, of_b, None, None

    @staticmethod
    def vmap(info: Batch, in_dims: Dims, a: Array, b: Array, algorithm: str, levels: int | None) -> tuple[Array, int]:
        return _of_batches(multiply, info, in_dims, a, b, algorithm, levels)


class _Eager(torch.autograd.Function):  # type: ignore[misc]
    """The same without an operator, and with a context that PyTorch fills in a tenth of the time; not for `torch.func`."""

    @staticmethod
    def forward(ctx: ProductContext, a: Array, b: Array, algorithm: str, levels: int | None) -> Array:
        _ProductOperator.setup_context(ctx, (a, b, algorithm, levels), None)
        with torch._C.DisableTorchFunction():  # what it calls is not for a context such as `using`
            return _product(_CLASSICAL[a.ndim], a.ndim, a, b, algorithm, levels)

    backward = _ProductOperator.backward


def _of_batches(
    multiply: Callable[[Array, Array, How], Array],
    info: Batch,
    in_dims: Dims,
    a: Array,
    b: Array,
    algorithm: str = "auto",
    levels: int | None = None,
) -> tuple[Array, int]:
    """The rule of vmap: a batch by one matrix is one product of more rows, one by a batch of more columns; the rest are larger batches."""
    count, (of_a, of_b, *_), how = info.batch_size, in_dims, (algorithm, levels)
    is_flat = max(a.ndim - (of_a is not None), b.ndim - (of_b is not None)) == 2
    if is_flat and of_b is None:
        a = a.movedim(of_a, 0)
        return multiply(a.reshape(count * a.shape[1], a.shape[2]), b, how).reshape(count, a.shape[1], b.shape[1]), 0
    if is_flat and of_a is None:
        b = b.movedim(of_b, 1)
        return multiply(a, b.reshape(b.shape[0], count * b.shape[2]), how).reshape(a.shape[0], count, b.shape[2]), 1
    a = a.expand(count, *a.shape) if of_a is None else a.movedim(of_a, 0)
    b = b.expand(count, *b.shape) if of_b is None else b.movedim(of_b, 0)
    if is_flat:
        return multiply(a, b, how), 0
    left, right = (x.reshape(count * x.shape[1], *x.shape[2:]) for x in (a, b))
    return multiply(left, right, how).reshape(*a.shape[:3], b.shape[3]), 0


def _is_eager(a: Array, b: Array) -> bool:
    """Whether nobody but this call sees the tensors: no tracing, transformation or mode, which need the operator and its 0.1 ms."""
    kinds = torch.Tensor, torch.nn.Parameter
    if type(a) not in kinds or type(b) not in kinds or torch.compiler.is_compiling():
        return False
    if any(x.is_meta or x.is_conj() or x.is_neg() for x in (a, b)):  # operators are given what they read as it lies in memory
        return False
    return bool(_level() is None and _modes() == 0)


_level: Callable[[], object] = getattr(getattr(torch._C, "_functorch", None), "maybe_current_level", lambda: "unknown")
_modes: Callable[[], int] = getattr(torch._C, "_len_torch_dispatch_stack", lambda: -1)
"""The transformation of `torch.func` and the number of dispatch modes that are active; a release of PyTorch without them is never eager."""


def _product(
    classical: Callable[[Array, Array], Array], dims: int, a: Array, b: Array, algorithm: str = "auto", levels: int | None = None
) -> Array:
    """a @ b of two matrices, or of two batches of them, as a new tensor by rows."""
    asked: Asked = (1, 0, algorithm, "auto" if levels is None else levels, "preserve", None, None, None, None)
    a, b = a.detach(), b.detach()
    fits = a.ndim == b.ndim == dims and a.shape[-1] == b.shape[-2] and a.shape[:-2] == b.shape[:-2]
    if not fits or a.dtype != b.dtype or a.device != b.device:
        return classical(a, b)  # which refuses it
    out, key = torch.empty((*a.shape[:-1], b.shape[-1]), dtype=a.dtype, device=a.device), None
    if a.is_cuda:
        asked, key, result = found_again(torch, a, b, out, asked)
        if result is not None:
            return result
    if multiplies_by_itself(a, b, Options(*asked)):
        result = classical(a, b)
        if key is not None and algorithm == "auto":
            keep_tensors(torch, key, None, asked, result)
        return result
    return matmul_tensors(torch, a, b, out, asked, None)


def _operator(name: str, classical: Callable[[Array, Array], Array], dims: int) -> Callable[..., Array]:
    """An operator with all its rules. It allocates and may compile, which CUDA graphs cannot record; its tag says so to PyTorch."""
    tag = getattr(torch.Tag, "cudagraph_unsafe", None)
    run, tags = partial(_product, classical, dims), () if tag is None else (tag,)
    operator = torch.library.custom_op(f"bilinear::{name}", run, mutates_args=(), schema=_SCHEMA, tags=tags)
    operator.register_fake(lambda a, b, algorithm="auto", levels=None: classical(a, b))
    operator.register_autograd(_ProductOperator.backward, setup_context=_ProductOperator.setup_context)
    operator.register_vmap(partial(_of_batches, lambda a, b, how: _OPERATORS[a.ndim](a, b, *how)))
    for device in ("cpu", "cuda"):
        torch.library.impl(f"bilinear::{name}", f"Autocast{device.upper()}", partial(_cast, device))
    return operator  # type: ignore[no-any-return]


def _cast(device: str, a: Array, b: Array, algorithm: str = "auto", levels: int | None = None) -> Array:
    """The rule of autocast, as for `torch.mm`: floating-point operands other than float64 are cast to the type of the region."""
    a, b = (x.to(multiplied_type(x)) if x.device.type == device else x for x in (a, b))
    with torch.autocast(device, enabled=False):
        return multiply(a, b, (algorithm, levels))


def is_autocast(device: str) -> bool:
    """Whether PyTorch casts what is multiplied on a type of device; it knows nothing of that for `meta`."""
    return bool(device != "meta" and torch.is_autocast_enabled(device))


def multiplied_type(tensor: Array) -> torch.dtype:
    """The type in which a tensor is multiplied: inside of autocast that of the region, for floating-point types other than float64."""
    device, dtype = tensor.device.type, tensor.dtype
    is_cast = dtype.is_floating_point and dtype != torch.float64 and is_autocast(device)
    return torch.get_autocast_dtype(device) if is_cast else dtype


SCHEDULED = frozenset(getattr(torch, name) for name in TYPES if hasattr(torch, name))
"""The types that schedules run on."""
_CLASSICAL = {2: torch.mm, 3: torch.bmm}
_OPERATORS = {dims: _operator(name, _CLASSICAL[dims], dims) for dims, name in ((2, "mm"), (3, "bmm"))}
