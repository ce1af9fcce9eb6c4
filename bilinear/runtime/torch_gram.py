"""`gram` of PyTorch's tensors that ask for gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

from bilinear.ir.matrix import Array
from bilinear.runtime.torch_matmul import as_how, product
from bilinear.runtime.torch_operators import How

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


def recorded_gram(gram: Gram, a: Array, transposed: bool, triangle: str | None, how: tuple[str, int | str]) -> Array:
    """`gram` of a tensor that asks for gradients, which are recorded; `how` multiplies two matrices in them."""
    found: Array = _Gram.apply(a, gram, transposed, triangle, as_how(*how))
    return found
