"""Products of integer and of bool matrices on a GPU by residues: exactly what NumPy gives, wrapping around, or modulo a number."""

from __future__ import annotations

import logging
from functools import lru_cache, reduce

import numpy as np

from bilinear.algebra.composition import tensor
from bilinear.algebra.maps import fold_bases
from bilinear.backends.caches import Same
from bilinear.backends.capture import is_captured, not_captured
from bilinear.backends.factor import factor
from bilinear.backends.target_here import has_digit_units, multiplies_by_warps
from bilinear.errors import BilinearError, fail
from bilinear.frontend import Loaded
from bilinear.ir.element import INTEGERS
from bilinear.ir.matrix import Array, Factor, indices, layout_of
from bilinear.ir.scheme import Scheme
from bilinear.ir.tile import MOST_BLOCKS
from bilinear.lowering.place import choose_levels
from bilinear.lowering.prepare import plain, proved, require_numbers, require_residues
from bilinear.methods.digits.integers import (
    IntegerMultiply,
    integer_multiply_of,
    largest_magnitudes,
    moduli_for_integers,
    moduli_modulo,
    obstacles,
)
from bilinear.runtime.arrays import Kind
from bilinear.runtime.budgets import over_budget
from bilinear.runtime.devices_here import policy_here
from bilinear.runtime.direct import NEW
from bilinear.runtime.environment import uses_library
from bilinear.runtime.layouts import Layouts, fit, layouts_of
from bilinear.runtime.named import algorithm_as_it_is
from bilinear.runtime.operands import as_matrices, given_workspace
from bilinear.runtime.options import Options

SMALL = 2
"""Integers of this many bytes are not read to bound them: their range takes few moduli."""

log = logging.getLogger("bilinear")


def by_residues(asked: Options, kind: Kind, a: Array, b: Array, out: Array, wider: str = "") -> Array | None:
    """alpha * a @ b + beta * out for integer matrices on a GPU; None, with nothing written, if CuPy is to multiply.

    Without `out` the result is of the type that NumPy promotes to, or of the `wider` one.

    CuPy multiplies for `levels=0`, if `auto` expects no gain, if an operand is no matrix of integers that kernels can read in place, and if
    `auto` cannot build or allocate. Raises `BilinearError` for a named algorithm that residues do not hold (E591, E592), and E535, E536.
    """
    layouts = layouts_of(a, b, out)
    is_auto = asked.algorithm == "auto"
    if not _suits(asked, layouts, is_auto):
        return None
    if out is None and is_captured():
        raise not_captured(*NEW)
    shape, promoted = fit(layouts)
    dtype = np.dtype(wider or promoted)
    alpha, beta = factor("alpha", asked.alpha, dtype), factor("beta", asked.beta, dtype)
    options = asked._replace(kind=kind)
    try:
        scheme = scheme_for(options, layouts, 0)
        moduli = moduli_for_integers(a.shape[-1], *_largest(a, b))
        result = kind.module.empty(shape, dtype) if out is None else out
        run(options, scheme, moduli, 0, (a, b, result), (alpha, beta))
    except (BilinearError, MemoryError) as error:
        if not is_auto:
            raise
        log.info("matmul %s by %s: residues cannot run (%s); the library's multiply", a.shape, b.shape, error)
        return None
    log.debug("matmul %s by %s: %d residues", a.shape, b.shape, len(moduli))
    return result


def by_counts(asked: Options, kind: Kind, a: Array, b: Array, out: Array) -> Array | None:
    """The product of bool matrices, by any scheme over Z: whether any term holds both in A and in B, from counts of them.

    None, with nothing written, as in `by_residues`, with factors, and with a limit of the workspace, which the counts would exceed.
    """
    is_limited = asked.budget is not None or asked.buffer is not None
    if is_limited or asked.alpha != 1 or asked.beta != 0 or (out is not None and out.dtype != a.dtype):
        return None
    fit(layouts_of(a, b, out))  # an out that does not fit is refused before the product
    counts = by_residues(asked, kind, a.view("uint8"), b.view("uint8"), None, "int32")
    if counts is None or out is None:
        return None if counts is None else counts != 0
    out[...] = counts != 0
    return out


def _suits(asked: Options, layouts: Layouts, is_auto: bool) -> bool:
    """Whether residues are to multiply arrays of these layouts where they lie."""
    if asked.plan is not None or asked.levels == 0 or asked.inputs != "preserve" or asked.alpha == 0 or uses_library():
        return False
    dtype = np.result_type(layouts.a.dtype, layouts.b.dtype)
    if any(x.ndim < 2 or str(x.dtype) not in INTEGERS for x in layouts.given) or str(dtype) not in INTEGERS:
        return False
    least = policy_here().least_integers if is_auto else 1
    if layouts.overlaps or min((*layouts.extents, *layouts.a.shape, *layouts.b.shape)) < 1 or min(layouts.extents) < least:
        return False
    if layouts.out is not None and layouts.out.dtype != dtype:
        return False
    return all(stride % x.itemsize == 0 for x in layouts.given for stride in x.strides) and _has_units(is_auto)


def _has_units(is_auto: bool) -> bool:
    """Whether the current device multiplies residues; `auto` uses only warpgroups, because only they were measured."""
    return has_digit_units() and not (is_auto and multiplies_by_warps())


def _largest(a: Array, b: Array) -> tuple[int, int]:
    """Bounds of the magnitudes: of the integers themselves, or of their types if reading the integers is not allowed or would not help."""
    elements = INTEGERS[str(a.dtype)], INTEGERS[str(b.dtype)]
    if max(x.bytes for x in elements) <= SMALL or is_captured():
        return elements[0].largest, elements[1].largest
    if a.ndim == b.ndim == 2:
        return largest_magnitudes(a, b)
    left, right = (_bounded(max(int(x.max()), -int(x.min())), x) for x in (a, b))  # of a batch
    return left, right


def _bounded(found: int, x: Array) -> int:
    """A magnitude, as kernels read it: numbers of uint64 above 2^63 as negative ones."""
    largest = INTEGERS[str(x.dtype)].largest
    return min(found, largest) if found < 2**63 else largest


def scheme_for(options: Options, layouts: Layouts, modulus: int) -> Scheme:
    """The scheme of all levels, proved; that of one product for `auto`. Raises `BilinearError` (E501) for too many blocks."""
    if options.algorithm in ("auto", None) or options.levels == 0 or uses_library():
        return plain().scheme
    loaded, levels = _named_levels(options, layouts)
    if (blocks := _blocks(loaded.scheme, levels)) > MOST_BLOCKS:
        message = f"{levels} levels of {loaded.name} cut an operand into {blocks} blocks"
        raise fail("E501", message, f"at most {MOST_BLOCKS} blocks of a matrix are read at once: name fewer levels")
    return _levels_of(Same(loaded), levels, modulus)


def scheme_modulo(options: Options, layouts: Layouts, p: int) -> Scheme | None:
    """The scheme of all levels of a named algorithm, proved; None if residues do not hold its coefficients or its sums of blocks."""
    loaded, levels = _named_levels(options, layouts)
    if _blocks(loaded.scheme, levels) > MOST_BLOCKS:
        return None
    scheme = _levels_of(Same(loaded), levels, p)
    return scheme if not obstacles(scheme, moduli_modulo(p, layouts.extents[1]), p) else None


def _named_levels(options: Options, layouts: Layouts) -> tuple[Loaded, int]:
    """The algorithm that is named, and how many levels of it."""
    loaded = options.algorithm if isinstance(options.algorithm, Loaded) else algorithm_as_it_is(str(options.algorithm))
    automatic = isinstance(options.levels, str)
    return loaded, max(1, choose_levels(loaded.scheme, *layouts.extents)) if automatic else int(options.levels)


def _blocks(scheme: Scheme, levels: int) -> int:
    """The most blocks into which levels cut an operand or C."""
    return max(int(x**levels) for x in (scheme.m * scheme.k, scheme.k * scheme.n, scheme.m * scheme.n))


@lru_cache(maxsize=64)
def _levels_of(loaded: Same[Loaded], levels: int, modulus: int) -> Scheme:
    scheme = loaded.what.scheme
    require_numbers(scheme, proved(scheme), modulus)
    if modulus:
        require_residues(scheme, (c for table in scheme.tables for row in table for _, c in row), modulus)
    return reduce(tensor, [fold_bases(scheme)] * levels)


def run(
    options: Options,
    scheme: Scheme,
    moduli: tuple[int, ...],
    modulus: int,
    arrays: tuple[Array, Array, Array],
    factors: tuple[Factor, Factor],
) -> None:
    """The product of every matrix of a batch, in one workspace: the caller's, or memory of the pool."""
    left, right, target = as_matrices(*arrays)
    a, b, c = (layout_of(x)._replace(shape=x.shape[-2:], strides=x.strides[-2:]) for x in (left, right, target))
    multiply = integer_multiply_of(a, b, c, scheme, moduli, modulus)
    workspace = _workspace(options, multiply, left, right, target)
    batch = target.shape[:-2]
    for index in indices(batch):
        x, y, z = (each[_own(index, each)] if batch else each for each in (left, right, target))
        multiply(x.data.ptr, y.data.ptr, z.data.ptr, *factors, workspace.data.ptr)


def _own(index: tuple[int, ...], array: Array) -> tuple[int, ...]:
    """The index of an operand's matrix in a batch: extents that are missing or 1 repeat."""
    shape = array.shape[:-2]
    return tuple(0 if extent == 1 else i for i, extent in zip(index[len(index) - len(shape) :], shape, strict=True))


def _workspace(options: Options, multiply: IntegerMultiply, left: Array, right: Array, target: Array) -> Array:
    needed = multiply.workspace * target.dtype.itemsize
    if options.buffer is not None:
        return given_workspace(options, multiply.workspace, target, left, right, alignment=multiply.alignment)
    if options.budget is not None and needed > options.budget:
        raise over_budget(
            "a product of residues", needed, options.budget, "allow that many bytes, or, without a modulus, use algorithm='auto'"
        )
    return options.kind.module.empty(multiply.workspace, target.dtype)


def require_residue_units() -> None:
    """Refuse (E598) a GPU without the instructions that multiply residues."""
    if not has_digit_units():
        raise fail("E598", "products modulo p run on GPUs from sm_80 on", "give arrays of NumPy")


def modulo_on_gpu(
    options: Options, scheme: Scheme, a: Array, b: Array, out: Array, p: int, factors: tuple[int, int], overlaps: bool
) -> None:
    """out = alpha * a @ b + beta * out modulo p, by residues modulo p itself, or modulo as many numbers as p needs.

    Raises `BilinearError`: E567 for more terms than the moduli hold, and those of `by_residues`.
    """
    xp = options.kind.module
    if 0 in out.shape:
        return
    left, right, target = as_matrices(a, b, out)
    if left.shape[-1] == 0:  # sums of one zero
        left, right = xp.zeros((*left.shape[:-1], 1), left.dtype), xp.zeros((*right.shape[:-2], 1, right.shape[-1]), right.dtype)
    result = xp.array(target) if overlaps else target
    run(options, scheme, moduli_modulo(p, left.shape[-1]), p, (left, right, result), factors)
    if overlaps:
        target[...] = result
