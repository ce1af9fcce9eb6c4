"""`linear` and `Linear`, weights by any number of inputs, and a bias; `using`, a context for the products of PyTorch's functions."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Literal

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from bilinear.errors import fail
from bilinear.ir.matrix import Array, Factor
from bilinear.runtime.options import named_levels, warn_unused
from bilinear.runtime.torch_operators import SCHEDULED, How, as_how, multiplied_type, product, require_tensors


def linear(
    x: Array,
    weight: Array,
    bias: Array = None,
    *,
    algorithm: str = "auto",
    levels: int | Literal["auto"] = "auto",
    reproducible: Literal["bitwise"] | None = None,
) -> Array:
    """x @ weight.T + bias, as `torch.nn.functional.linear`.

    Parameters
    ----------
    x : tensor of shape (..., inputs)
        The inputs.
    weight : tensor of shape (outputs, inputs)
        The weights.
    bias : tensor of shape (outputs,), optional
        What is added.
    algorithm : str
        As in `bilinear.torch.matmul`, also for the gradients.
    levels : int or "auto"
        As in `bilinear.matmul`.
    reproducible : "bitwise", optional
        As in `bilinear.torch.matmul`.

    Returns
    -------
    tensor of shape (..., outputs)

    Raises
    ------
    RuntimeError
        As `torch.nn.functional.linear` does.
    BilinearError
        As `bilinear.torch.matmul` does.

    Examples
    --------
    >>> import torch
    >>> import bilinear.torch
    >>> bilinear.torch.linear(torch.ones(2, 4), torch.ones(3, 4), torch.ones(3), algorithm="strassen", levels=1)
    tensor([[5., 5., 5.],
            [5., 5., 5.]])
    """
    return weighted(x, weight, bias, as_how(algorithm, levels, reproducible))


def weighted(x: Array, weight: Array, bias: Array, how: How) -> Array:
    """`linear` with options that were checked. PyTorch multiplies types that no schedule runs on."""
    require_tensors(x=x, weight=weight)
    reason = why_pytorchs(x, how)
    is_usual = weight.ndim == 2 and (bias is None or (bias.ndim < 2 and multiplied_type(bias) == multiplied_type(x)))
    if reason is not None or not is_usual:
        leave(how, reason or "this form of linear has no algorithm")
        return torch.nn.functional.linear(x, weight, bias)  # which may refuse it
    result = product(x, weight.mT, how)
    return result if bias is None else result + bias.to(result.dtype)


def why_pytorchs(tensor: Array, how: How) -> str | None:
    """Why PyTorch multiplies a tensor by itself, as far as the type says it; None otherwise."""
    dtype = multiplied_type(tensor)
    is_taken = dtype in SCHEDULED or (how.reproducible is not None and dtype in (torch.float16, torch.bfloat16))
    return None if is_taken else f"no schedule runs on {str(dtype).removeprefix('torch.')}"


def leave(how: How, reason: str) -> None:
    """Warn, if an algorithm is named, that it does not run. Refuses (E821) what is to have the same bits."""
    if how.reproducible is not None:
        raise fail("E821", f"PyTorch's own multiply promises no bits, and {reason}", "convert the tensors, or leave reproducible= out")
    if how.algorithm != "auto" and how.levels != 0:
        _warn(str(how.algorithm), reason)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _warn(algorithm: str, reason: str) -> bool:
    """Warn; while PyTorch traces a function, once for the trace."""
    warn_unused(algorithm, reason)
    return True


def checked_how(algorithm: str, levels: int | Literal["auto"], reproducible: str | None) -> How:
    """What multiplies, for the operators. Refuses (E121 and others) what cannot be found or read, and (E514, E820) wrong options.

    No file is read while PyTorch traces a function; the operator reads it when it runs.
    """
    if algorithm != "auto" and not torch.compiler.is_compiling():
        named_levels(algorithm, levels if isinstance(levels, int) else "auto")
    return as_how(algorithm, levels, reproducible)


class Linear(torch.nn.Linear):  # type: ignore[misc]
    """`torch.nn.Linear`, whose products forwards and backwards run by an algorithm; weights and initial values are the same.

    Parameters
    ----------
    in_features, out_features : int
        The lengths of an input and of an output.
    bias : bool
        Whether a bias is added.
    device : device, optional
        Where the weights are, as in `torch.nn.Linear`.
    dtype : dtype, optional
        The type of the weights, as there.
    algorithm : str
        As in `bilinear.torch.matmul`.
    levels : int or "auto"
        As in `bilinear.matmul`.
    reproducible : "bitwise", optional
        As in `bilinear.torch.matmul`.

    Raises
    ------
    BilinearError
        At once for an algorithm that cannot be found (E121 and others), and for wrong levels (E514) and options (E820).

    Examples
    --------
    >>> import bilinear.torch
    >>> bilinear.torch.Linear(64, 256, algorithm="winograd", levels=1)
    Linear(in_features=64, out_features=256, bias=True, algorithm='winograd', levels=1)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        algorithm: str = "auto",
        levels: int | Literal["auto"] = "auto",
        reproducible: Literal["bitwise"] | None = None,
    ) -> None:
        how = checked_how(algorithm, levels, reproducible)
        super().__init__(in_features, out_features, bias, device, dtype)
        self.algorithm, self.levels, self._how = algorithm, levels, how

    def forward(self, x: Array) -> Array:
        """x @ weight.T + bias."""
        return weighted(x, self.weight, self.bias, self._how)

    def extra_repr(self) -> str:
        """What a printed module shows of the layer."""
        same = "" if self._how.reproducible is None else f", reproducible={self._how.reproducible!r}"
        return f"{super().extra_repr()}, algorithm={self.algorithm!r}, levels={self.levels!r}{same}"


Function = Callable[..., Array]
Kinds = tuple[type, ...]
Tensors = tuple[Array, ...]
Named = dict[str, Array]


class using(TorchFunctionMode):  # type: ignore[misc]  # noqa: N801  (it is called like a function)
    """A context in which PyTorch's matrix products run by an algorithm.

    These are `mm`, `bmm`, `matmul`, `@`, `addmm`, `baddbmm` and `linear`, also if modules such as `MultiheadAttention` call them. The
    algorithm multiplies their gradients, too, even if `backward` runs later. A compiled model may be called inside, or may open the
    context itself.

    If you name an algorithm and a product cannot run by it, PyTorch multiplies and a `UserWarning` says why. This happens for types that
    no schedule runs on, sparse tensors, subclasses, `out=`, and functions such as `einsum` and `addmm_` that multiply inside PyTorch.
    Fused functions (attention, convolutions, recurrent layers) are not matrix products and stay as they are.

    Parameters
    ----------
    algorithm : str
        As in `bilinear.torch.matmul`.
    levels : int or "auto"
        As in `bilinear.matmul`.
    reproducible : "bitwise", optional
        As in `bilinear.torch.matmul`. Products that PyTorch would compute are refused (E821), and so is fused attention.

    Raises
    ------
    BilinearError
        At once for an algorithm that cannot be found (E121 and others), and for wrong levels (E514) and options (E820).

    Examples
    --------
    >>> import torch
    >>> import bilinear.torch
    >>> a = torch.ones(2, 2)
    >>> with bilinear.torch.using("strassen", levels=1):
    ...     a @ a
    tensor([[2., 2.],
            [2., 2.]])
    """

    def __init__(
        self,
        algorithm: str = "auto",
        levels: int | Literal["auto"] = "auto",
        *,
        reproducible: Literal["bitwise"] | None = None,
    ) -> None:
        self._how = checked_how(algorithm, levels, reproducible)
        super().__init__()

    def __torch_function__(self, func: Function, types: Kinds, args: Tensors = (), kwargs: Named | None = None) -> Array:
        """Run a function of PyTorch, or what stands for it here."""
        given = kwargs or {}
        if func in _OPENED:
            with self:
                return _OPENED[func](*args, **given)
        if func in _TAKEN:
            instead, count = _TAKEN[func]
            reason = _why_not(self._how, func, types, args[:count] if len(args) <= count else None, given)
            if reason is None:
                return instead(self._how, *args, **given)
            leave(self._how, reason)
        elif func in _BESIDE or (func is functional.scaled_dot_product_attention and self._how.reproducible is not None):
            leave(self._how, f"{func.__name__} multiplies inside of PyTorch")
        return func(*args, **given)


def _why_not(how: How, func: Function, types: Kinds, tensors: Tensors | None, given: Named) -> str | None:
    if tensors is None or not given.keys() <= _KNOWN:
        return f"this form of {func.__name__} has no algorithm"
    operands = [x for x in (*tensors, *given.values()) if isinstance(x, torch.Tensor)]
    if any(kind not in (torch.Tensor, torch.nn.Parameter) for kind in types):
        return "a tensor is of a subclass, which may multiply otherwise"
    if any(x.layout is not torch.strided or x.is_nested for x in operands):
        return "a tensor is sparse or nested"
    if any(multiplied_type(x) != multiplied_type(operands[0]) for x in operands):
        return f"the operands of {func.__name__} are of different types"
    return why_pytorchs(operands[0], how)


def _mm(how: How, input: Array, mat2: Array) -> Array:
    return product(input, mat2, how) if input.ndim == mat2.ndim == 2 else torch.mm(input, mat2)


def _bmm(how: How, input: Array, mat2: Array) -> Array:
    are_batches = input.ndim == mat2.ndim == 3 and input.shape[0] == mat2.shape[0]
    return product(input, mat2, how) if are_batches else torch.bmm(input, mat2)


def _addmm(how: How, input: Array, mat1: Array, mat2: Array, *, beta: Factor = 1, alpha: Factor = 1) -> Array:
    if alpha == 0 or not _are_held(input, beta, alpha):  # of 0 nothing is multiplied, and no NaN spreads
        return torch.addmm(input, mat1, mat2, beta=beta, alpha=alpha)
    return _added(input, _mm(how, mat1, mat2), beta, alpha)


def _baddbmm(how: How, input: Array, batch1: Array, batch2: Array, *, beta: Factor = 1, alpha: Factor = 1) -> Array:
    if alpha == 0 or not _are_held(input, beta, alpha):
        return torch.baddbmm(input, batch1, batch2, beta=beta, alpha=alpha)
    return _added(input, _bmm(how, batch1, batch2), beta, alpha)


def _are_held(addend: Array, *factors: Factor) -> bool:
    """Whether factors are numbers of the tensors' kind; PyTorch converts others in its own way."""
    kind = complex if addend.is_complex() else float if addend.is_floating_point() else int
    return all(isinstance(x, int | float | kind) and not isinstance(x, bool) and (kind is not int or isinstance(x, int)) for x in factors)


def _added(addend: Array, product: Array, beta: Factor, alpha: Factor) -> Array:
    """beta * addend + alpha * product, of the shape of the product; with beta = 0 the addend is not read, and its gradient is 0."""
    scaled = product if alpha == 1 else product * alpha
    whole = addend.to(product.dtype).expand(product.shape)  # refuses another shape
    if beta != 0:
        return torch.add(scaled, whole, alpha=beta)
    every = torch.ones((), dtype=torch.bool, device=whole.device)
    return scaled + whole.masked_fill(every, 0) if addend.requires_grad else scaled


_KNOWN = {"input", "mat1", "mat2", "batch1", "batch2", "other", "weight", "bias", "tensor1", "tensor2", "beta", "alpha"}
_TAKEN: dict[Function, tuple[Function, int]] = {
    **dict.fromkeys((torch.mm, torch.Tensor.mm), (_mm, 2)),
    **dict.fromkeys((torch.bmm, torch.Tensor.bmm), (_bmm, 2)),
    **dict.fromkeys(
        (torch.matmul, torch.linalg.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__),
        (lambda how, input, other: product(input, other, how), 2),
    ),
    torch.Tensor.__rmatmul__: (lambda how, input, other: product(other, input, how), 2),
    functional.linear: (lambda how, input, weight, bias=None: weighted(input, weight, bias, how), 3),
    **dict.fromkeys((torch.addmm, torch.Tensor.addmm), (_addmm, 3)),
    **dict.fromkeys((torch.baddbmm, torch.Tensor.baddbmm), (_baddbmm, 3)),
}
"""Functions that have a product of ours in their place, and how many operands they take."""
_BESIDE = {
    *(torch.einsum, torch.tensordot, torch.chain_matmul, torch.linalg.multi_dot, torch.addbmm, functional.bilinear),
    *(torch.Tensor.addmm_, torch.Tensor.baddbmm_, torch.Tensor.addbmm, torch.Tensor.addbmm_),
}
"""Functions that multiply matrices where no other product can stand."""


def _opened(function: FunctionType) -> Function:
    """A function of PyTorch that is written in Python, without its first step, which hands it over to contexts like ours as a whole."""
    alike = FunctionType(function.__code__, {**function.__globals__, "has_torch_function": lambda _: False}, function.__name__)
    alike.__defaults__, alike.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    return alike


_OPENED = {functional.multi_head_attention_forward: _opened(functional.multi_head_attention_forward)}
"""Functions whose products are taken one by one."""
