"""Calls with `reproducible="bitwise"`: an element of C depends on its row of A and its column of B alone (docs/how-to/reproducible.md).

On processors NumPy multiplies integers exactly, on a GPU kernels multiply their residues. Both take the moduli, scales and roundings that
`analysis/digit_bounds.py` and `backends/same_bits.py` define. A call for which nothing keeps the promise is refused.
"""

from __future__ import annotations

from math import prod

import numpy as np

from bilinear.analysis.digit_bounds import largest_scaled
from bilinear.backends.factor import factor
from bilinear.backends.same_bits import same_bits_product
from bilinear.errors import fail
from bilinear.ir.matrix import Array, Dtype, real_type
from bilinear.methods.digits.geometry import same_bits_residues
from bilinear.runtime.arrays import Kind
from bilinear.runtime.complex_parts import formed
from bilinear.runtime.devices_here import uses_library
from bilinear.runtime.operands import as_matrices, fit, layouts_of
from bilinear.runtime.options import Options

KEPT = ("float64", "float32", "float16", "complex128", "complex64")
"""The types whose products have the same bits in NumPy."""


def by_same_bits(asked: Options, kind: Kind, a: Array, b: Array, out: Array) -> Array | None:
    """alpha * a @ b + beta * out, with bits that depend on the numbers alone. None for integers, whose products are exact in any case.

    The product v is exact for the scaled integers of A and B, and rounded once to the type. Then C = v, or alpha v, rounded, or this plus
    beta C, where beta C and the sum are rounded, too. A NaN is the one that NumPy calls so.
    Raises `BilinearError` (E821) where nothing keeps the promise, and what `fit` raises.
    """
    shape, dtype = look_at_same_bits(kind, a, b, out)
    if dtype.kind in "biu":
        return None
    alpha, beta = factor("alpha", asked.alpha, dtype), factor("beta", asked.beta, dtype)
    if out is None:
        out = np.zeros(shape, dtype)
    left, right, target = as_matrices(*formed(asked.conjugated, a, b), out)
    value = _stack(left, right, target.shape, dtype, asked.accuracy) if alpha != 0 else np.zeros(target.shape, dtype)
    with np.errstate(all="ignore"):
        value = value if alpha == 1 else _times(value, alpha)
        value = value if beta == 0 else value + _times(target.astype(dtype), beta)
        for part in (value.real, value.imag) if dtype.kind == "c" else (value,):
            part[np.isnan(part)] = np.nan
        target[...] = value.astype(target.dtype)
    return out


def look_at_same_bits(kind: Kind, a: Array, b: Array, out: Array) -> tuple[tuple[int, ...], Dtype]:
    """Shape and dtype of the result; refuses (E821) what would not have the same bits everywhere."""
    layouts = layouts_of(a, b, out)
    shape, dtype = fit(layouts)
    if dtype.kind in "biu":
        return shape, dtype
    if kind.on_gpu:
        raise fail("E821", "no kernels keep these bits on this GPU", "multiply in the host's memory")
    if uses_library() or layouts.own_multiply is not None or dtype.name not in KEPT:
        own = "BILINEAR_USE_LIBRARY is set, and the library" if uses_library() else f"the multiply of {layouts.own_multiply or dtype}"
        raise fail("E821", f"{own} promises no bits", f"give plain arrays of {', '.join(KEPT)}, without that variable")
    return shape, dtype


def _stack(a: Array, b: Array, shape: tuple[int, ...], dtype: Dtype, accuracy: float | str | None) -> Array:
    """The products of stacks of matrices; rows that one matrix multiplies are rows of one product."""
    if b.ndim == 2:
        found = _product(a.reshape(prod(a.shape[:-1]), a.shape[-1]), b, dtype, accuracy).reshape(*a.shape[:-1], b.shape[-1])
        return found if found.shape == shape else np.broadcast_to(found, shape).copy()
    value = np.empty(shape, dtype)
    lefts, rights = (np.broadcast_to(x, (*shape[:-2], *x.shape[-2:])) for x in (a, b))
    for index in np.ndindex(*shape[:-2]):
        value[index] = _product(lefts[index], rights[index], dtype, accuracy)
    return value


def _product(a: Array, b: Array, dtype: Dtype, accuracy: float | str | None) -> Array:
    """One product. Complex numbers are lines of both parts, so a part of C is a real product of sums of 2K terms."""
    inner, real = a.shape[-1] * (2 if dtype.kind == "c" else 1), real_type(dtype)
    if inner == 0:
        return np.zeros((len(a), b.shape[1]), dtype)
    limit = largest_scaled(same_bits_residues(dtype.name, a.shape[-1], accuracy), inner)
    if dtype.kind != "c":
        return same_bits_product(a.astype(float), b.astype(float), limit, real)
    rows, columns = np.concatenate([a.real, a.imag], 1).astype(float), [b.real.astype(float), b.imag.astype(float)]
    found = np.empty((len(a), b.shape[1]), dtype)
    found.real = same_bits_product(rows, np.concatenate([columns[0], -columns[1]]), limit, real)
    found.imag = same_bits_product(rows, np.concatenate(columns[::-1]), limit, real)
    return found


def _times(value: Array, by: Array) -> Array:
    """Numbers times a factor, each operation rounded; a real one multiplies each part of complex numbers."""
    if value.dtype.kind != "c":
        return value * by
    found = np.empty_like(value)
    found.real = value.real * by.real if by.imag == 0 else value.real * by.real - value.imag * by.imag
    found.imag = value.imag * by.real if by.imag == 0 else value.real * by.imag + value.imag * by.real
    return found
