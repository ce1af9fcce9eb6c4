"""PyTorch's operators `bilinear::mm` and `bilinear::bmm`: what they compute, their gradients, shapes, and rules of autocast and vmap.

Importing this module registers the operators. PyTorch's transformations (`torch.func`) do not reach the gradients that are registered for
an operator, so `multiply` calls it through an `autograd.Function`; both have the rules that are written here once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, Protocol

import torch

from bilinear.errors import ArrayTypeError, fail
from bilinear.ir.matrix import Array
from bilinear.runtime.arrays import TYPES
from bilinear.runtime.call import found_again, keep_tensors, matmul_tensors, multiplies_by_itself
from bilinear.runtime.options import Options, check_levels, check_options

How = tuple[str, int | None, str | None]
"""An algorithm, its levels, where None stands for "auto", and `reproducible`, as the operators take them."""
Dims = tuple[int | None, ...]
"""For each argument of a vectorised call, the dimension over which it runs."""
_SCHEMA = "(Tensor a, Tensor b, str algorithm='auto', int? levels=None, str? reproducible=None) -> Tensor"


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
    def forward(a: Array, b: Array, algorithm: str, levels: int | None, reproducible: str | None) -> Array:
        return _OPERATORS[a.ndim](a, b, algorithm, levels, reproducible)

    @staticmethod
    def setup_context(ctx: ProductContext, inputs: tuple[Array, Array, *How], output: Array) -> None:
        """Keep what the gradients read: each operand for the gradient of the other."""
        (a, b), ctx.how = inputs[:2], inputs[2:]
        of_a, of_b = ctx.needs_input_grad[:2]
        ctx.save_for_backward(a if of_b else None, b if of_a else None)

    @staticmethod
    def backward(ctx: ProductContext, gradient: Array) -> tuple[Array, Array, None, None, None]:
        """For C = A B and the gradient G of C: G B^H and A^H G."""
        a, b = ctx.saved_tensors
        of_a = None if b is None else multiply(gradient, b.mH, ctx.how)
        of_b = None if a is None else multiply(a.mH, gradient, ctx.how)
        return of_a, of_b, None, None, None

    @staticmethod
    def vmap(info: Batch, in_dims: Dims, a: Array, b: Array, *how: *How) -> tuple[Array, int]:
        return _of_batches(multiply, info, in_dims, a, b, *how)


class _Eager(torch.autograd.Function):  # type: ignore[misc]
    """The same without an operator, and with a context that PyTorch fills in a tenth of the time; not for `torch.func`."""

    @staticmethod
    def forward(ctx: ProductContext, a: Array, b: Array, *how: *How) -> Array:
        _ProductOperator.setup_context(ctx, (a, b, *how), None)
        with torch._C.DisableTorchFunction():  # what it calls is not for a context such as `using`
            return _product(_CLASSICAL[a.ndim], a.ndim, a, b, *how)

    backward = _ProductOperator.backward


def _of_batches(
    multiply: Callable[[Array, Array, How], Array],
    info: Batch,
    in_dims: Dims,
    a: Array,
    b: Array,
    algorithm: str = "auto",
    levels: int | None = None,
    reproducible: str | None = None,
) -> tuple[Array, int]:
    """The rule of vmap: a batch by one matrix is one product of more rows, one by a batch of more columns; the rest are larger batches."""
    count, (of_a, of_b, *_), how = info.batch_size, in_dims, (algorithm, levels, reproducible)
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
    classical: Callable[[Array, Array], Array],
    dims: int,
    a: Array,
    b: Array,
    algorithm: str = "auto",
    levels: int | None = None,
    reproducible: str | None = None,
) -> Array:
    """a @ b of two matrices, or of two batches of them, as a new tensor by rows."""
    asked = Options(algorithm=algorithm, levels="auto" if levels is None else levels, reproducible=reproducible).as_named()
    a, b = a.detach(), b.detach()
    fits = a.ndim == b.ndim == dims and a.shape[-1] == b.shape[-2] and a.shape[:-2] == b.shape[:-2]
    if not fits or a.dtype != b.dtype or a.device != b.device:
        return classical(a, b)  # which refuses it
    out, key = torch.empty((*a.shape[:-1], b.shape[-1]), dtype=a.dtype, device=a.device), None
    if a.is_cuda:
        key, result = found_again(torch, a, b, out, asked)
        if result is not None:
            return result
    if multiplies_by_itself(a, b, asked):
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
    operator.register_fake(lambda a, b, algorithm="auto", levels=None, reproducible=None: classical(a, b))
    operator.register_autograd(_ProductOperator.backward, setup_context=_ProductOperator.setup_context)
    operator.register_vmap(partial(_of_batches, lambda a, b, how: _OPERATORS[a.ndim](a, b, *how)))
    for device in ("cpu", "cuda"):
        torch.library.impl(f"bilinear::{name}", f"Autocast{device.upper()}", partial(_cast, device))
    return operator  # type: ignore[no-any-return]


def _cast(device: str, a: Array, b: Array, algorithm: str = "auto", levels: int | None = None, reproducible: str | None = None) -> Array:
    """The rule of autocast, as for `torch.mm`: floating-point operands other than float64 are cast to the type of the region."""
    a, b = (x.to(multiplied_type(x)) if x.device.type == device else x for x in (a, b))
    with torch.autocast(device, enabled=False):
        return multiply(a, b, (algorithm, levels, reproducible))


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


def matmul(
    a: Array,
    b: Array,
    *,
    algorithm: str = "auto",
    levels: int | Literal["auto"] = "auto",
    reproducible: Literal["bitwise"] | None = None,
) -> Array:
    """a @ b for tensors, with the shapes of `torch.matmul`, by the operators: recorded for gradients, traced, cast and vectorised.

    A batch times one matrix is one product of more rows.

    Parameters
    ----------
    a : tensor of shape (..., m, k)
        Or a vector, as in `torch.matmul`.
    b : tensor of shape (..., k, n)
        The same.
    algorithm : str
        `auto`, or the name or path of a scheme or schedule. It multiplies the gradients, too.
    levels : int or "auto"
        As in `bilinear.matmul`.
    reproducible : "bitwise", optional
        As in `bilinear.matmul`, for the gradients, too.

    Returns
    -------
    tensor of shape (..., m, n)

    Raises
    ------
    RuntimeError
        As `torch.matmul` does.
    BilinearError
        E514 for wrong levels, E820 and E821 for bits that nothing promises, and what `bilinear.matmul` raises.

    Examples
    --------
    >>> import torch
    >>> import bilinear.torch
    >>> a, b = torch.eye(4, requires_grad=True), torch.ones(4, 4)
    >>> bilinear.torch.matmul(a, b, algorithm="strassen", levels=1).sum().backward()
    >>> a.grad[0]
    tensor([4., 4., 4., 4.])
    """
    require_tensors(a=a, b=b)
    return product(a, b, as_how(algorithm, levels, reproducible))


def require_tensors(**operands: Array) -> None:
    """Refuse (E518) what is no tensor."""
    for name, x in operands.items():
        if not isinstance(x, torch.Tensor):
            what = f"{name} is of type {type(x).__name__}, and bilinear.torch multiplies tensors"
            raise fail("E518", what, "use bilinear.matmul for arrays, or convert it, as by torch.as_tensor()", kind=ArrayTypeError)


def product(a: Array, b: Array, how: How) -> Array:
    """`matmul` with options that were checked."""
    if not a.ndim or not b.ndim:
        return torch.matmul(a, b)  # which refuses it
    left, right = a if a.ndim > 1 else a[None], b if b.ndim > 1 else b[:, None]
    if left.shape[-1] != right.shape[-2]:
        return torch.matmul(a, b)  # which refuses it
    result = _folded(left, right, how) if right.ndim == 2 else _batched(left, right, how)
    result = result if a.ndim > 1 else result.squeeze(-2)
    return result if b.ndim > 1 else result.squeeze(-1)


def as_how(algorithm: str, levels: int | Literal["auto"] = "auto", reproducible: str | None = None) -> How:
    """What multiplies, for the operators. Raises `BilinearError` (E514, E820)."""
    check_levels(levels, algorithm)
    if reproducible is not None and not torch.compiler.is_compiling():  # what runs later refuses it, too
        check_options(Options(algorithm=algorithm, reproducible=reproducible), None)
    return algorithm, None if isinstance(levels, str) else int(levels), reproducible


def _folded(left: Array, right: Array, how: How) -> Array:
    if left.ndim == 2:
        return multiply(left, right, how)
    rows = left.shape[:-1]
    return multiply(left.reshape(rows.numel(), left.shape[-1]), right, how).reshape(*rows, right.shape[-1])


def _batched(left: Array, right: Array, how: How) -> Array:
    try:
        batch = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    except RuntimeError:
        return torch.matmul(left, right)  # which refuses it in its words
    left, right = left.expand(*batch, *left.shape[-2:]), right.expand(*batch, *right.shape[-2:])
    if len(batch) == 1:
        return multiply(left, right, how)
    products = torch.Size(batch).numel()
    a, b = (x.reshape(products, *x.shape[-2:]) for x in (left, right))
    return multiply(a, b, how).reshape(*batch, left.shape[-2], right.shape[-1])


def recorded(a: Array, b: Array, how: How) -> Array:
    """`bilinear.matmul` of tensors that ask for gradients. It multiplies in their own type, inside of autocast, too."""
    if not is_autocast(a.device.type):
        return product(a, b, how)
    with torch.autocast(a.device.type, enabled=False):
        return product(a, b, how)


Gram = Callable[[Array], Array]
"""A*A^T, or A^T*A, or a triangle of it."""


class GramContext(Protocol):
    """What PyTorch keeps between a product and its gradient."""

    transposed: bool
    triangle: str | None
    how: How
    saved_tensors: tuple[Array]

    def save_for_backward(self, *tensors: Array) -> None:
        """Keep tensors."""


class _Gram(torch.autograd.Function):  # type: ignore[misc]
    """A*A^T with its gradient: for C = A A^T and the gradient G of C it is (G + G^T) A, without the triangle that was not written."""

    @staticmethod
    def forward(a: Array, gram: Gram, transposed: bool, triangle: str | None, how: How) -> Array:
        return gram(a.detach())

    @staticmethod
    def setup_context(ctx: GramContext, inputs: tuple[Array, Gram, bool, str | None, How], output: Array) -> None:
        """Keep A, which the gradient reads."""
        a, _, ctx.transposed, ctx.triangle, ctx.how = inputs
        ctx.save_for_backward(a)

    @staticmethod
    def backward(ctx: GramContext, gradient: Array) -> tuple[Array, None, None, None, None]:
        """A product of two matrices, of which gradients can be taken again."""
        (a,) = ctx.saved_tensors
        own = {"lower": torch.tril, "upper": torch.triu}[ctx.triangle](gradient) if ctx.triangle else gradient
        both = own + own.mT
        return product(a, both, ctx.how) if ctx.transposed else product(both, a, ctx.how), None, None, None, None


def recorded_gram(gram: Gram, a: Array, transposed: bool, triangle: str | None, how: How) -> Array:
    """`gram` of a tensor that asks for gradients, which are recorded; `how` multiplies two matrices in them."""
    found: Array = _Gram.apply(a, gram, transposed, triangle, how)
    return found
