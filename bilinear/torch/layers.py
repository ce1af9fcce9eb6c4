"""`linear` and `Linear`: a matrix of weights by any number of inputs, and a bias."""

from __future__ import annotations

from typing import Literal

import torch

from bilinear.ir.matrix import Array
from bilinear.runtime.options import named_levels, warn_unused
from bilinear.runtime.torch_operators import SCHEDULED, How, as_how, is_autocast, multiplied_type, product, require_tensors


def linear(x: Array, weight: Array, bias: Array = None, *, algorithm: str = "auto", levels: int | Literal["auto"] = "auto") -> Array:
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
    return weighted(x, weight, bias, as_how(algorithm, levels))


def weighted(x: Array, weight: Array, bias: Array, how: How) -> Array:
    """`linear` with options that were checked. PyTorch multiplies types that no schedule runs on."""
    require_tensors(x=x, weight=weight)
    reason = why_pytorchs(x)
    if reason is not None:
        leave(how, reason)
        return torch.nn.functional.linear(x, weight, bias)
    result = product(x, weight.mT if weight.ndim > 1 else weight, how)
    return result if bias is None else result + in_type_of(result, bias)


def why_pytorchs(tensor: Array) -> str | None:
    """Why PyTorch multiplies a tensor by itself, as far as the type says it; None otherwise."""
    dtype = multiplied_type(tensor)
    return None if dtype in SCHEDULED else f"no schedule runs on {str(dtype).removeprefix('torch.')}"


def leave(how: How, reason: str) -> None:
    """Warn, if an algorithm is named, that it does not run."""
    algorithm, levels = how
    if algorithm != "auto" and levels != 0:
        _warn(algorithm, reason)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _warn(algorithm: str, reason: str) -> bool:
    """Warn; while PyTorch traces a function, once for the trace."""
    warn_unused(algorithm, reason)
    return True


def in_type_of(product: Array, addend: Array) -> Array:
    """What is added to a product, in the product's type where autocast chose that, as in PyTorch's own functions."""
    return addend.to(product.dtype) if is_autocast(product.device.type) else addend


def checked_how(algorithm: str, levels: int | str) -> How:
    """An algorithm and its levels, for the operators. Refuses (E121 and others) what cannot be found or read, and (E514) wrong levels.

    No file is read while PyTorch traces a function; the operator reads it when it runs.
    """
    if algorithm != "auto" and not torch.compiler.is_compiling():
        named_levels(algorithm, levels if isinstance(levels, int) else "auto")
    return as_how(algorithm, levels)


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

    Raises
    ------
    BilinearError
        At once for an algorithm that cannot be found (E121 and others), and for wrong levels (E514).

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
    ) -> None:
        how = checked_how(algorithm, levels)
        super().__init__(in_features, out_features, bias, device, dtype)
        self.algorithm, self.levels, self._how = algorithm, levels, how

    def forward(self, x: Array) -> Array:
        """x @ weight.T + bias."""
        return weighted(x, self.weight, self.bias, self._how)

    def extra_repr(self) -> str:
        """What a printed module shows of the layer."""
        return f"{super().extra_repr()}, algorithm={self.algorithm!r}, levels={self.levels!r}"
