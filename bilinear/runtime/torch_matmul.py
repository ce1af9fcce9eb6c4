"""`matmul` of PyTorch's tensors by the operators: vectors, matrices and batches as `torch.matmul` takes them."""

from __future__ import annotations

from typing import Literal

import torch

from bilinear.errors import ArrayTypeError, fail
from bilinear.ir.matrix import Array
from bilinear.runtime.options import check_levels
from bilinear.runtime.torch_operators import How, is_autocast, multiply


def matmul(a: Array, b: Array, *, algorithm: str = "auto", levels: int | Literal["auto"] = "auto") -> Array:
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

    Returns
    -------
    tensor of shape (..., m, n)

    Raises
    ------
    RuntimeError
        As `torch.matmul` does.
    BilinearError
        E514 for wrong levels, and what `bilinear.matmul` raises.

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
    return product(a, b, as_how(algorithm, levels))


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


def as_how(algorithm: str, levels: int | str) -> How:
    """An algorithm and its levels for the operators. Raises `BilinearError` (E514)."""
    check_levels(levels, algorithm)
    return algorithm, None if isinstance(levels, str) else int(levels)


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


def recorded(a: Array, b: Array, algorithm: str, levels: int | Literal["auto"]) -> Array:
    """`bilinear.matmul` of tensors that ask for gradients. It multiplies in their own type, inside of autocast, too."""
    if not is_autocast(a.device.type):
        return matmul(a, b, algorithm=algorithm, levels=levels)
    with torch.autocast(a.device.type, enabled=False):
        return matmul(a, b, algorithm=algorithm, levels=levels)
