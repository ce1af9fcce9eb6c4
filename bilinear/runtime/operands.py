"""Operands of a call as the backends take them: vectors as matrices, results aside from `out`, the caller's workspace."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from bilinear.errors import fail
from bilinear.ir.matrix import Array, Dtype, Factor, matrix_of
from bilinear.runtime.accept import UNFIT, can_serve, shares_memory
from bilinear.runtime.options import Options


def as_matrices(a: Array, b: Array, out: Array) -> tuple[Array, Array, Array]:
    """Operands and result as plain (..., rows, columns) arrays: a vector is a row on the left, a column on the right."""
    left, right, target = (np.asarray(x) if isinstance(x, np.ndarray) else x for x in (a, b, out))
    if a.ndim == 1:
        left, target = left[None, :], target[..., None, :] if b.ndim > 1 else target[..., None]
    if b.ndim == 1:
        right, target = right[:, None], target[..., None]
    return left, right, target


def fresh(xp: ModuleType, shape: tuple[int, ...], dtype: Dtype, by_columns: bool) -> Array:
    """An uninitialised matrix, or a batch of them, by rows or by columns."""
    return xp.empty((*shape[:-2], shape[-1], shape[-2]), dtype).swapaxes(-1, -2) if by_columns else xp.empty(shape, dtype)


def accumulate(out: Array, product: Array, beta: Factor) -> None:
    """out = product + beta * out, in the type of `out`; with beta = 0 `out` is not read."""
    if beta == 0:
        out[...] = product
        return
    added = product.astype(out.dtype, copy=False)  # allocated before the first write: memory may be short
    out *= beta
    out += added


def given_workspace(options: Options, elements: int, result: Array, *others: Array, alignment: int = 1) -> Array:
    """The caller's buffer as elements of the result's type; refused (E529) if it cannot be used so, or shares memory with an array.

    On a GPU its address must be a multiple of an element's bytes, and of `alignment`.
    """
    buffer, needed = options.buffer, elements * result.dtype.itemsize
    if not can_serve(buffer, options.kind):
        raise fail("E529", UNFIT, f"give one of {needed} bytes")
    if buffer.dtype != result.dtype and (buffer.dtype.hasobject or result.dtype.hasobject):
        message = f"workspace holds {buffer.dtype}, but must hold {result.dtype}"
        raise fail("E529", message, f"give {elements} elements of {result.dtype}")
    multiple = max(alignment, result.dtype.itemsize)
    if options.kind.on_gpu and matrix_of(buffer).address % multiple:
        reason = "which bulk copies read" if alignment > 1 else f"the bytes of {result.dtype}"
        message = f"workspace begins at an address that is not a multiple of {multiple}, {reason}"
        raise fail("E529", message, f"give {elements} elements of {result.dtype}")
    if buffer.nbytes < needed or any(shares_memory(buffer, x) for x in (result, *others)):
        message = f"workspace has {buffer.nbytes} bytes; it must have {needed}, and share no memory with a, b and out"
        raise fail("E529", message, "give a larger buffer, or a separate one")
    return buffer if buffer.dtype == result.dtype else buffer.view(np.uint8)[:needed].view(result.dtype)
