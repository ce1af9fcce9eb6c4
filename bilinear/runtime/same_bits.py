"""Calls with `reproducible="bitwise"`: an element of C depends on its row of A and its column of B alone (docs/how-to/reproducible.md).

On processors NumPy multiplies integers exactly, on a GPU kernels multiply their residues, or their bytes. Both take the moduli, scales and
roundings that `analysis/digit_bounds.py` and `backends/same_bits.py` define. A call for which nothing keeps the promise is refused.
"""

from __future__ import annotations

from math import prod

import numpy as np

from bilinear.backends.factor import factor
from bilinear.backends.machine import has_digit_units
from bilinear.backends.same_bits import same_bits_product, subnormals_kept
from bilinear.errors import fail
from bilinear.ir.element import Element
from bilinear.ir.matrix import Array, Dtype, layout_of, real_type
from bilinear.ir.reference import with_factors
from bilinear.ir.tile import BYTE_TILES
from bilinear.methods.digits.choice import Digits, same_bits_products
from bilinear.methods.digits.plans import same_bits_choice
from bilinear.methods.registry import bind
from bilinear.runtime import devices_here
from bilinear.runtime.accept import shares_memory
from bilinear.runtime.arrays import Kind
from bilinear.runtime.auto import problem_of
from bilinear.runtime.complex_parts import formed
from bilinear.runtime.decide import Decision
from bilinear.runtime.devices_here import uses_library
from bilinear.runtime.half import FLOAT
from bilinear.runtime.operands import as_matrices, fit, layouts_of, matrix_at
from bilinear.runtime.options import Options
from bilinear.runtime.repeat import LibraryRepeat, Repeat
from bilinear.runtime.run import require_out, run_direct_plan

KEPT = ("float64", "float32", "float16", "complex128", "complex64")  # Whose products have the same bits.


def is_exact(a: Array, b: Array, out: Array) -> bool:
    """Whether this is a product of integers, which is exact in any case."""
    return fit(layouts_of(a, b, out))[1].kind in "biu"


def by_same_bits(asked: Options, kind: Kind, a: Array, b: Array, out: Array, element: Element | None = None) -> tuple[Array, Repeat | None]:
    """alpha * a @ b + beta * out, with bits that depend on the numbers alone, and what ran on a GPU on three matrices where they lie, to be
    repeated.

    Arrays on a GPU may hold the bits of an `element` type of 16 bits; in the host's memory they are float32 numbers of it.
    The product v is exact for the scaled integers of A and B, and rounded once to the type. Then C = v, or alpha v, rounded, or this plus
    beta C, where beta C and the sum are rounded, too. A NaN is the one that NumPy calls so. For 16 bits all of this is computed in float32,
    and rounded at the end, to the type of C.
    Raises `BilinearError` (E821) where nothing keeps the promise, and what `fit` raises.
    """
    shape, dtype = look_at_same_bits(kind, a, b, out, element)
    wide = FLOAT if dtype.itemsize == 2 else dtype
    name = dtype.name if element is None else element.name
    if out is not None and out.itemsize > dtype.itemsize and wide is FLOAT:
        name = FLOAT.name  # products of 16 bits that are not rounded to them
    alpha, beta = factor("alpha", asked.alpha, wide), factor("beta", asked.beta, wide)
    if kind.on_gpu:
        require_out(kind, out)
    is_new = out is None
    if is_new:
        out = kind.module.empty(shape, dtype)
    left, right, target = as_matrices(*formed(asked.conjugated, a, b), out)
    if kind.on_gpu:
        choice = _on_gpu(asked._replace(kind=kind), left, right, target, (alpha, beta), name)
        if choice is not None and a.ndim == b.ndim == out.ndim == 2:
            layouts = layout_of(a), layout_of(b), layout_of(out)
            bound = bind(choice, *layouts)
            if bound is not None:
                decision = Decision(shape, dtype, None, choice=choice)
                return out, LibraryRepeat(kind.module, decision, layouts, bound, bound.workspace * dtype.itemsize)
        return out, None
    with np.errstate(all="ignore"), subnormals_kept():
        value = _stack(left, right, target.shape, (wide, name), asked.accuracy) if alpha != 0 else np.zeros(target.shape, wide)
        if alpha != 1 or beta != 0:
            value = with_factors(value, target.astype(wide) if beta != 0 else value, alpha, beta)
        if is_new:
            return value.astype(dtype, copy=False).reshape(shape), None
        np.copyto(target, value, "unsafe")
    return out, None


def look_at_same_bits(kind: Kind, a: Array, b: Array, out: Array, element: Element | None = None) -> tuple[tuple[int, ...], Dtype]:
    """Shape and dtype of the result; refuses (E821) what would not have the same bits everywhere."""
    layouts = layouts_of(a, b, out)
    shape, dtype = fit(layouts)
    if dtype.kind in "biu" and element is None:
        return shape, dtype
    if kind.on_gpu and (len(types := {str(x.dtype) for x in layouts.given}) > 1 or (element is None and dtype.name not in KEPT)):
        raise fail("E821", f"no kernels keep these bits for {', '.join(sorted(types))}", "convert all arrays to one type of floats")
    if kind.on_gpu and 0 in (*shape, layouts.a.shape[-1]):
        raise fail("E821", "no kernels keep these bits: there are no numbers to multiply", "multiply in the host's memory")
    require_same_bits(dtype if element is None else FLOAT, kind.on_gpu, layouts.own_multiply)
    return shape, dtype


def require_same_bits(dtype: Dtype, on_gpu: bool, own_multiply: str | None = None) -> None:
    """Refuse (E821) types, environments and GPUs with which no product has the same bits everywhere."""
    if dtype.kind in "biu":
        return
    if uses_library() or own_multiply is not None or dtype.name not in KEPT:
        own = "BILINEAR_USE_LIBRARY is set, and the library" if uses_library() else f"the multiply of {own_multiply or dtype}"
        raise fail("E821", f"{own} promises no bits", f"give plain arrays of {', '.join(KEPT)}, without that variable")
    if on_gpu and not has_digit_units():
        raise fail("E821", "no kernels keep these bits: this GPU has no matrix units for int8", "multiply in the host's memory")


def require_kernels(dtype: Dtype, factors: tuple[Array, Array]) -> None:
    """Refuse (E821) factors that no kernel multiplies by."""
    if factors[0] == 0:
        raise fail("E821", "with alpha = 0 nothing is multiplied, and no kernel rounds beta * out so", "scale out itself")
    if dtype.kind == "c" and factors != (1, 0):
        raise fail("E821", "no kernel scales complex numbers so", "leave alpha= and beta= out, and scale the result")


def _on_gpu(options: Options, a: Array, b: Array, out: Array, factors: tuple[Array, Array], name: str) -> Digits | None:
    """The product of matrices, or of each of a stack, of the type of this name; complex numbers in two products of real ones.

    Numbers of 16 bits are multiplied in bytes, where the rule says so, else as float32. Returns what multiplied the operands themselves,
    where they lie, for calls that are alike.
    """
    xp, dtype = options.kind.module, out.dtype
    require_kernels(dtype, factors)
    products, _ = same_bits_products(name, a.shape[-1], options.accuracy)
    if dtype.kind == "c":
        left, down, part = xp.concatenate([a.real, a.imag], -1), (b.real, b.imag), xp.empty(out.shape, real_type(dtype))
        real, imaginary = (xp.concatenate(x, -2) for x in (down, down[::-1]))  # before anything is written, which may lie where B does
        signs = real[..., b.shape[-2] :, :].view(f"u{part.itemsize}")
        signs ^= signs.dtype.type(1 << (8 * part.itemsize - 1))  # CuPy's negation flushes subnormal numbers to zero
        _each(options, left, real, part, factors, products)
        out.real[...] = part
        _each(options, left, imaginary, part, factors, products)
        out.imag[...] = part
    elif dtype.itemsize == 2 and products not in BYTE_TILES:
        value = out.astype(FLOAT)
        _each(options, a.astype(FLOAT), b.astype(FLOAT), value, factors, products)
        out[...] = value
        xp.copyto(out, dtype.type(np.nan), where=xp.isnan(value))
    else:
        aside = shares_memory(out, a) or shares_memory(out, b)
        choice = _each(options, a.copy() if aside else a, b.copy() if aside else b, out, factors, products, name)
        return None if aside else choice
    return None


def _each(options: Options, a: Array, b: Array, out: Array, factors: tuple[Array, Array], products: str, name: str = "") -> Digits | None:
    """Each product of a stack of real matrices, where `out` overlaps no operand; what multiplied the last one."""
    choice = None
    for index in np.ndindex(*out.shape[:-2]):
        left, right = matrix_at(a, index), matrix_at(b, index)
        layouts = layouts_of(left, right, out[index])
        problem = problem_of(layouts, "preserve", options.most_bytes, bool(factors[1] != 0), name)
        choice = same_bits_choice(problem, devices_here.current_device(), products)
        run_direct_plan(options, choice, left, right, out[index], False, factors)
    return choice


def _stack(a: Array, b: Array, shape: tuple[int, ...], types: tuple[Dtype, str], accuracy: float | str | None) -> Array:
    """The products of stacks of matrices, in a type, of numbers of the type of a name; rows that one matrix multiplies are rows of one
    product.
    """
    if b.ndim == 2:
        found = _product(a.reshape(prod(a.shape[:-1]), a.shape[-1]), b, types, accuracy).reshape(*a.shape[:-1], b.shape[-1])
        return found if found.shape == shape else np.broadcast_to(found, shape).copy()
    value = np.empty(shape, types[0])
    lefts, rights = (np.broadcast_to(x, (*shape[:-2], *x.shape[-2:])) for x in (a, b))
    for index in np.ndindex(*shape[:-2]):
        value[index] = _product(lefts[index], rights[index], types, accuracy)
    return value


def _product(a: Array, b: Array, types: tuple[Dtype, str], accuracy: float | str | None) -> Array:
    """One product. Complex numbers are lines of both parts, so a part of C is a real product of sums of 2K terms."""
    dtype, name = types
    inner, real = a.shape[-1], real_type(dtype)
    if inner == 0:
        return np.zeros((len(a), b.shape[1]), dtype)
    _, limit = same_bits_products(name, inner, accuracy)
    if dtype.kind != "c":
        return same_bits_product(a.astype(float, copy=False), b.astype(float, copy=False), limit, real)
    rows, columns = np.concatenate([a.real, a.imag], 1).astype(float), [b.real.astype(float), b.imag.astype(float)]
    found = np.empty((len(a), b.shape[1]), dtype)
    found.real = same_bits_product(rows, np.concatenate([columns[0], -columns[1]]), limit, real)
    found.imag = same_bits_product(rows, np.concatenate(columns[::-1]), limit, real)
    return found
