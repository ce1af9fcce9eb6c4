"""PyTorch's operators `bilinear::mm` and `bilinear::bmm`: what they compute, their gradients, shapes, and rules of autocast and vmap.

Importing this module registers the operators. PyTorch's transformations (`torch.func`) do not reach the gradients that are registered for
an operator, so `multiply` calls it through an `autograd.Function`; both have the rules that are written here once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Literal, NamedTuple, Protocol

import torch

from bilinear.errors import ArrayTypeError, ArrayValueError, fail
from bilinear.frontend import Loaded, LoadedGram, load_any, names_of_levels
from bilinear.ir.matrix import Array, Factor
from bilinear.runtime.arrays import TYPES, is_plain, records_gradients, unrecorded, untraced
from bilinear.runtime.call import found_again, is_product, keep_pytorchs, matmul_tensors, multiplies_by_itself
from bilinear.runtime.gram_blocks import gram_of_array, require_gram
from bilinear.runtime.options import Accuracy, Options, algorithm_as_it_is, check_levels, check_options, spelled
from bilinear.runtime.replay import asked_of, replays

Dims = tuple[int | None, ...]  # For each argument of a vectorised call, the dimension over which it runs.
_SCHEMA = (
    "(Tensor a, Tensor b, str algorithm='auto', int? levels=None, Scalar alpha=1, float? accuracy=None, str? probable=None, "
    "str? reproducible=None, int? workspace=None) -> Tensor"
)


class How(NamedTuple):
    """What an operator takes beside its operands: `accuracy` is a number, `probable` a named one, and None of levels "auto"."""

    algorithm: str | Loaded = "auto"
    levels: int | None = None
    alpha: Factor = 1
    accuracy: float | None = None
    probable: str | None = None
    reproducible: str | None = None
    workspace: int | None = None

    def options(self) -> Options:
        """The options of a call, with the algorithm that its name means now."""
        if self == _AUTO:
            return _PLAIN
        algorithm, levels, alpha, bound, probable, reproducible, workspace = self
        accuracy: Accuracy = bound if probable is None else probable  # type: ignore[assignment]
        asked = Options(alpha, algorithm=algorithm, levels="auto" if levels is None else levels, workspace=workspace, accuracy=accuracy)
        return asked._replace(reproducible=reproducible).as_named()

    def conjugate(self) -> How:
        """That of a gradient: the factor is conjugated."""
        return self._replace(alpha=self.alpha.conjugate()) if isinstance(self.alpha, complex) else self


_AUTO, _PLAIN = How(), Options()


class ProductContext(Protocol):
    """What PyTorch keeps between a product, of two matrices or A*A^T, and its derivatives."""

    how: How
    transposed: bool
    triangle: str | None
    needs_input_grad: tuple[bool, ...]
    saved_tensors: tuple[Array, ...]

    def save_for_backward(self, *tensors: Array) -> None:
        """Keep tensors, or None."""

    def save_for_forward(self, *tensors: Array) -> None:
        """Keep tensors until the tangent is computed."""


class Batch(Protocol):
    """What PyTorch says of a vectorised call."""

    batch_size: int


def multiply(a: Array, b: Array, how: How) -> Array:
    """alpha * a @ b of two matrices, or of two batches of as many, by the operators; so are derivatives of any order."""
    if is_autocast(a.device.type):
        return _cast(a.device.type, a, b, *how)  # before anything is kept for a gradient
    if is_plain(torch, a, b):
        return _Eager.apply(a, b, how)
    if not isinstance(how.algorithm, str):
        raise untraced("a product by an algorithm that is given by its name or path")
    if "torch.distributed.tensor" in sys.modules and not torch.compiler.is_compiling():
        _let_shards_lie()
    return _seen(_PRODUCT, _OPERATORS[a.ndim] if a.ndim in _OPERATORS else _CLASSICAL[2])(a, b, *how)


def _seen(functions: dict[bool, Array], operator: Callable[..., Array]) -> Callable[..., Array]:
    """What is called where PyTorch sees operators: a function with the derivatives that its compiler or `torch.func` takes.

    `torch.func.functionalize` takes the operator alone. A tangent of a tangent is refused (E517): PyTorch loses it in such functions.
    """
    if torch.compiler.is_compiling():
        return functions[True].apply  # type: ignore[no-any-return]
    kinds = [level.key() for level in torch._C._functorch.get_interpreter_stack() or ()]
    if kinds.count(_KINDS.Jvp) > 1:
        raise untraced("a tangent of a tangent; jacrev of jvp or of jacfwd has none")
    if _KINDS.Functionalize in kinds and not {_KINDS.Grad, _KINDS.Jvp} & set(kinds):
        return operator
    return functions[False].apply  # type: ignore[no-any-return]


_KINDS = torch._C._functorch.TransformType


@cache
def _let_shards_lie() -> None:
    """Tell PyTorch how DTensors lie whose products need no messages: the rows, the columns, the summands or the matrices of a batch."""
    from torch.distributed.tensor import Partial, Replicate, Shard
    from torch.distributed.tensor.experimental import register_sharding

    def placements(batch: int, a: Array, b: Array, *how: Array) -> list[tuple[list[Array], list[Array]]]:
        rows, columns, copies = Shard(batch), Shard(batch + 1), Replicate()
        found = [(rows, rows, copies), (columns, copies, columns), (copies, copies, copies)]
        if How(*how).reproducible is None:  # sums over ranks have other bits
            found.append((Partial(), columns, rows))
        if batch:
            found.append((Shard(0),) * 3)
        return [([c], [left, right, *[None] * len(how)]) for c, left, right in found]

    for batch, name in enumerate(("mm", "bmm")):
        register_sharding(getattr(torch.ops.bilinear, name).default)(partial(placements, batch))


class _Traced(torch.autograd.Function):  # type: ignore[misc]
    """An operator with its gradients, also for `torch.func`."""

    @staticmethod
    def forward(  # PyTorch's compiler counts the parameters
        a: Array, b: Array, algorithm: str, levels: int, alpha: Factor, accuracy: float, probable: str, reproducible: str, workspace: int
    ) -> Array:
        return _OPERATORS[a.ndim](a, b, algorithm, levels, alpha, accuracy, probable, reproducible, workspace)

    @staticmethod
    def setup_context(ctx: ProductContext, inputs: tuple[Array, ...], output: Array) -> None:
        """Keep what the gradients read: each operand for the gradient of the other."""
        (a, b), ctx.how = inputs[:2], How(*inputs[2:])
        of_a, of_b = ctx.needs_input_grad[:2]
        ctx.save_for_backward(a if of_b else None, b if of_a else None)

    @staticmethod
    def backward(ctx: ProductContext, gradient: Array) -> tuple[Array | None, ...]:
        """For C = alpha A B and the gradient G of C: conj(alpha) G B^H and conj(alpha) A^H G."""
        (a, b), how = ctx.saved_tensors, ctx.how.conjugate()
        of_a = None if b is None else multiply(gradient, b.mH, how)
        of_b = None if a is None else multiply(a.mH, gradient, how)
        return of_a, of_b, *(None for _ in how)

    @staticmethod
    def vmap(info: Batch, in_dims: Dims, a: Array, b: Array, *how: object) -> tuple[Array, int]:
        return _of_batches(multiply, info, in_dims, a, b, *how)

    @staticmethod
    def tangent(ctx: ProductContext, of_a: Array, of_b: Array, *_: None) -> Array:
        """alpha (dA B + A dB)."""
        a, b = ctx.saved_tensors
        return multiply(of_a, b, ctx.how) + multiply(a, of_b, ctx.how)


def _with_tangent(traced: Array) -> Array:
    """A function with its tangent, for `torch.func` and forward-mode derivatives. PyTorch's compiler traces none that has one."""

    class Transformed(traced):  # type: ignore[misc]
        @staticmethod
        def setup_context(ctx: ProductContext, inputs: tuple[Array, ...], output: Array) -> None:
            traced.setup_context(ctx, inputs, output)
            ctx.save_for_forward(*(x for x in inputs if isinstance(x, torch.Tensor)))

        jvp = staticmethod(traced.tangent)

    return Transformed


_PRODUCT = {True: _Traced, False: _with_tangent(_Traced)}


class _Eager(torch.autograd.Function):  # type: ignore[misc]
    """The same without an operator, and with a context that PyTorch fills in a tenth of the time; for plain tensors."""

    @staticmethod
    def forward(ctx: ProductContext, a: Array, b: Array, how: How) -> Array:
        ctx.how = how
        of_a, of_b, _ = ctx.needs_input_grad
        ctx.save_for_backward(a if of_b else None, b if of_a else None)
        with torch._C.DisableTorchFunction():  # what it calls is not for a context such as `using`
            return _product(a.ndim, a, b, how)

    @staticmethod
    def backward(ctx: ProductContext, gradient: Array) -> tuple[Array | None, ...]:
        return _Traced.backward(ctx, gradient)[:3]


replays.record = lambda a, b: NotImplemented if is_autocast(a.device.type) else _Eager.apply(a, b, _AUTO)


def _of_batches(
    multiply: Callable[[Array, Array, How], Array], info: Batch, in_dims: Dims, a: Array, b: Array, *how: object
) -> tuple[Array, int]:
    """The rule of vmap: a batch by one matrix is one product of more rows, one by a batch of more columns; the rest are larger batches."""
    count, (of_a, of_b, *_), asked = info.batch_size, in_dims, How(*how)  # type: ignore[arg-type]
    is_flat = max(a.ndim - (of_a is not None), b.ndim - (of_b is not None)) == 2
    if is_flat and of_b is None:
        a = a.movedim(of_a, 0)
        return multiply(a.reshape(count * a.shape[1], a.shape[2]), b, asked).reshape(count, a.shape[1], b.shape[1]), 0
    if is_flat and of_a is None:
        b = b.movedim(of_b, 1)
        return multiply(a, b.reshape(b.shape[0], count * b.shape[2]), asked).reshape(a.shape[0], count, b.shape[2]), 1
    a = a.expand(count, *a.shape) if of_a is None else a.movedim(of_a, 0)
    b = b.expand(count, *b.shape) if of_b is None else b.movedim(of_b, 0)
    if is_flat:
        return multiply(a, b, asked), 0
    left, right = (x.reshape(count * x.shape[1], *x.shape[2:]) for x in (a, b))
    return multiply(left, right, asked).reshape(*a.shape[:3], b.shape[3]), 0


def _product(dims: int, a: Array, b: Array, how: How) -> Array:
    """alpha * a @ b of two matrices, or of two batches of them, as a new tensor by rows. Gradients are not recorded here."""
    asked, classical = how.options(), _CLASSICAL[dims]
    if not a.ndim == b.ndim == dims or (dims == 3 and a.shape[0] != b.shape[0]):
        return classical(a, b)  # which refuses it
    if replays.again is not None and (result := replays.again(asked_of(a, b, None, asked))) is not NotImplemented:
        return result
    key, result = found_again(torch, a, b, None, asked)
    if result is not None:
        return result
    if a.shape[-1] != b.shape[-2] or a.dtype != b.dtype or a.device != b.device:
        return classical(a, b)
    if is_product(asked) and multiplies_by_itself(a, b, asked):
        if key is not None:
            keep_pytorchs(torch, key, a, b, asked)
        return classical(a, b)
    is_found_by_layout = a.is_cuda and not torch.cuda.is_current_stream_capturing()  # a graph keeps what PyTorch allocates in it
    out = None if is_found_by_layout else torch.empty((*a.shape[:-1], b.shape[-1]), dtype=a.dtype, device=a.device)
    return matmul_tensors(torch, a, b, out, asked, None)


_TAGS = tuple(filter(None, [getattr(torch.Tag, "cudagraph_unsafe", None)]))
"""The operators allocate and may compile, which CUDA graphs cannot record."""


def _operator(name: str, classical: Callable[[Array, Array], Array], dims: int) -> Callable[..., Array]:
    """An operator with all its rules."""

    def run(a: Array, b: Array, *how: object) -> Array:
        return _product(dims, a.detach(), b.detach(), How(*how))  # type: ignore[arg-type]

    operator = torch.library.custom_op(f"bilinear::{name}", run, mutates_args=(), schema=_SCHEMA, tags=_TAGS)
    operator.register_fake(lambda a, b, *_, **__: classical(a, b))
    operator.register_autograd(_Traced.backward, setup_context=_Traced.setup_context)
    operator.register_vmap(partial(_of_batches, lambda a, b, how: _OPERATORS[a.ndim](a, b, *how)))
    for device in ("cpu", "cuda"):
        torch.library.impl(f"bilinear::{name}", f"Autocast{device.upper()}", partial(_cast, device))
    return operator  # type: ignore[no-any-return]


def _cast(device: str, a: Array, b: Array, *how: object) -> Array:
    """The rule of autocast, as for `torch.mm`: floating-point operands other than float64 are cast to the type of the region."""
    a, b = (x.to(multiplied_type(x)) if x.device.type == device else x for x in (a, b))
    with torch.autocast(device, enabled=False):
        return multiply(a, b, How(*how))  # type: ignore[arg-type]


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
    a, b : tensors of shapes (..., m, k) and (..., k, n)
        Or vectors, as in `torch.matmul`.
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
    if a.ndim == b.ndim == 2:
        return multiply(a, b, how)  # which refuses what does not fit
    if not a.ndim or not b.ndim:
        return torch.matmul(a, b)  # which refuses it
    left, right = a if a.ndim > 1 else a[None], b if b.ndim > 1 else b[:, None]
    if left.shape[-1] != right.shape[-2]:
        return torch.matmul(a, b)  # which refuses it
    if right.ndim > 2:
        result = _batched(left, right, how)
    else:
        rows = left.shape[:-1]
        flat = left if left.ndim == 2 else left.reshape(rows.numel(), left.shape[-1])
        result = multiply(flat, right, how)
        result = result if left.ndim == 2 else result.reshape(*rows, right.shape[-1])
    result = result if a.ndim > 1 else result.squeeze(-2)
    return result if b.ndim > 1 else result.squeeze(-1)


def as_how(algorithm: str, levels: int | Literal["auto"] = "auto", reproducible: str | None = None) -> How:
    """What multiplies, for the operators. Raises `BilinearError` (E514, E820)."""
    check_levels(levels, algorithm)
    if reproducible is not None and not torch.compiler.is_compiling():  # what runs later refuses it, too
        check_options(Options(algorithm=algorithm, reproducible=reproducible), None)
    return How(algorithm, None if isinstance(levels, str) else int(levels), reproducible=reproducible)


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


_RECORDED = "a product of two tensors without plan=, inputs=, tolerance=, stream=, an array as workspace=, and with gradients without out="


def recorded(a: Array, b: Array, out: Array, asked: Options, stream: object) -> Array:
    """`bilinear.matmul` of tensors that PyTorch sees: for gradients or tangents, in a trace, a transformation or a mode.

    It multiplies in their own type, inside of autocast, too. Raises `BilinearError`: E516 for options whose gradients are not computed,
    E517 for those that are not traced, and what `matmul` raises.
    """
    records = records_gradients(torch, a, b, out)
    is_known = isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and stream is None
    is_simple = is_known and out is None and a.device == b.device and asked == _PLAIN
    how = _AUTO if is_simple else _how_of(a, b, out, asked, records, is_known)
    if a.dtype != b.dtype:
        common = torch.promote_types(a.dtype, b.dtype)
        a, b = a.to(common), b.to(common)
    if not is_autocast(a.device.type):
        result = product(a, b, how)
    else:
        with torch.autocast(a.device.type, enabled=False):
            result = product(a, b, how)
    if out is None:
        return result
    if out.shape != result.shape:
        message = f"out has shape {tuple(out.shape)}, the result {tuple(result.shape)}"
        raise fail("E520", message, "give an out of that shape, or none", kind=ArrayValueError)
    if _rank(result.dtype) > _rank(out.dtype):
        raise fail("E530", f"out of {out.dtype} cannot hold {result.dtype}", "give an out of that type, or none", kind=ArrayTypeError)
    return out.copy_(result if asked.beta == 0 else torch.add(result, out, alpha=asked.beta))


def _how_of(a: Array, b: Array, out: Array, asked: Options, records: bool, is_known: bool) -> How:
    """The options of such a call for the operators, which must be `is_known` already to be one of two tensors on no stream."""
    others = asked._replace(alpha=1, beta=0, algorithm="auto", levels="auto", workspace=None, accuracy=None, reproducible=None)
    if not is_known or others != _PLAIN or asked.buffer is not None or (records and out is not None):
        raise unrecorded(f"gradients are recorded of {_RECORDED}") if records else untraced(_RECORDED)
    if len({x.device for x in (a, b, out) if x is not None}) > 1:
        raise fail("E511", "the operands live on different devices", "move them to one device first")
    asked = asked._replace(algorithm=spelled(asked.algorithm))  # type: ignore[arg-type]
    if not isinstance(asked.algorithm, str):
        asked = asked.as_named()
    check_options(asked, out)
    bound, probable = (None, asked.accuracy) if isinstance(asked.accuracy, str) else (asked.accuracy, None)
    levels = None if asked.levels == "auto" else asked.levels
    return How(asked.algorithm, levels, asked.alpha, bound, probable, asked.reproducible, asked.budget)  # type: ignore[arg-type]


def _rank(dtype: torch.dtype) -> int:
    """Of the kinds of types, from bool to complex. PyTorch's compiler does not trace `torch.can_cast`."""
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else int(dtype != torch.bool)


class _Gram(torch.autograd.Function):  # type: ignore[misc]
    """The operator `bilinear::gram` with its gradient, also for `torch.func`."""

    @staticmethod
    def forward(
        a: Array, transposed: bool, triangle: str, algorithm: str, levels: int, reproducible: str, products: str, is_own: bool
    ) -> Array:
        return torch.ops.bilinear.gram(a, transposed, triangle, algorithm, levels, reproducible, products, is_own)

    @staticmethod
    def setup_context(ctx: ProductContext, inputs: tuple[Array, ...], output: Array) -> None:
        """Keep A, which the derivatives read."""
        a, ctx.transposed, ctx.triangle, algorithm, levels, reproducible, products, is_own = inputs
        ctx.how = How(products) if is_own else How(algorithm, levels, reproducible=reproducible)
        ctx.save_for_backward(a)

    @staticmethod
    def backward(ctx: ProductContext, gradient: Array) -> tuple[Array | None, ...]:
        """For C = A A^T and the gradient G of C: (G + G^T) A, without the triangle that was not written."""
        (a,) = ctx.saved_tensors
        own = _triangle(gradient, ctx.triangle)
        both = own + own.mT
        return product(a, both, ctx.how) if ctx.transposed else product(both, a, ctx.how), *[None] * 7

    @staticmethod
    def tangent(ctx: ProductContext, of_a: Array, *_: None) -> Array:
        """dA A^T + A dA^T."""
        (a,) = ctx.saved_tensors
        half = product(a.mT, of_a, ctx.how) if ctx.transposed else product(of_a, a.mT, ctx.how)
        return _triangle(half + half.mT, ctx.triangle)

    @staticmethod
    def vmap(info: Batch, in_dims: Dims, a: Array, *options: Array) -> tuple[Array, int]:
        return _GRAM[torch.compiler.is_compiling()].apply(a.movedim(in_dims[0], 0), *options), 0


def _triangle(x: Array, triangle: str | None) -> Array:
    return {None: lambda x: x, "lower": torch.tril, "upper": torch.triu}[triangle](x)


_GRAM = {True: _Gram, False: _with_tangent(_Gram)}


def _gram(
    a: Array, transposed: bool, triangle: str, algorithm: str, levels: int | None, reproducible: str, products: str, is_own: bool
) -> Array:
    asked = Options(levels="auto" if levels is None else levels, reproducible=reproducible)
    return gram_of_array(a.detach(), None, transposed, triangle, algorithm, products, asked, None)


_gram_operator = torch.library.custom_op(
    "bilinear::gram",
    _gram,
    mutates_args=(),
    schema="(Tensor a, bool transposed, str? triangle, str algorithm, int? levels, str? reproducible, str products, bool is_own) -> Tensor",
    tags=_TAGS,
)
_gram_operator.register_fake(lambda a, transposed, *_: a.new_empty((*a.shape[:-2], *[a.shape[-1 if transposed else -2]] * 2)))
_gram_operator.register_autograd(_Gram.backward, setup_context=_Gram.setup_context)
_gram_operator.register_vmap(lambda info, in_dims, a, *options: (torch.ops.bilinear.gram(a.movedim(in_dims[0], 0), *options), 0))


def recorded_gram(a: Array, transposed: bool, triangle: str | None, how: How, products: str) -> Array:
    """`gram` of a tensor that PyTorch sees. Its derivatives multiply two matrices, by `products` if the algorithm is one for A*A^T."""
    require_gram(a.ndim, "c" if a.is_complex() else "f", a.dtype)
    options = transposed, triangle, how.algorithm, how.levels, how.reproducible, products, _is_of_gram(str(how.algorithm))
    return _seen(_GRAM, torch.ops.bilinear.gram)(a, *options)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _is_of_gram(algorithm: str) -> bool:
    """Whether an algorithm is one for A*A^T; files are read, which PyTorch does not trace."""
    return algorithm != "auto" and not names_of_levels(algorithm) and isinstance(algorithm_as_it_is(algorithm, load_any), LoadedGram)
