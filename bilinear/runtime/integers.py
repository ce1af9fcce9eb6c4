"""Integers: their products by residues on a GPU, wrapping around as NumPy's do, and products modulo p, from 0 to p - 1. All exact."""

from __future__ import annotations

import logging
import operator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache, lru_cache, reduce
from math import prod

import numpy as np

from bilinear.algebra.composition import tensor
from bilinear.algebra.maps import fold_bases
from bilinear.analysis.integer_range import LARGEST_MODULUS, way_for
from bilinear.backends.caches import Same
from bilinear.backends.capture import is_captured, not_captured
from bilinear.backends.executor import Executor
from bilinear.backends.factor import factor
from bilinear.backends.machine import has_digit_units, multiplies_by_warps
from bilinear.backends.modular_arrays import INT64, ModularArithmetic, canonical, is_aligned, largest_of, multiply_modulo
from bilinear.backends.numpy_executor import NumpyExecutor
from bilinear.errors import BilinearError, fail
from bilinear.frontend import Loaded
from bilinear.ir.element import INTEGERS, modular
from bilinear.ir.linear import LinearMap
from bilinear.ir.matrix import Array, Dtype, Factor, call_of, indices, layout_of, matrix_of
from bilinear.ir.placement import Placement
from bilinear.ir.schedule import BETA, Block, BlockMap, LinearStage, Schedule
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
from bilinear.runtime.accept import accepted
from bilinear.runtime.arrays import Kept, Kind
from bilinear.runtime.complex_parts import require_complex
from bilinear.runtime.devices_here import policy_here, uses_library
from bilinear.runtime.operands import Layouts, as_matrices, fit, layouts_of, matrix_at, require_budget, workspace_array
from bilinear.runtime.options import Options, algorithm_as_it_is, check_options
from bilinear.runtime.recipe import Recipe, placement_for
from bilinear.runtime.run import NEW, check_budget, check_in_place, run_all, workspace_of

SMALL = 2  # Integers of this many bytes are not read to bound them: their range takes few moduli.

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
        scheme = scheme_for(options, layouts)
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


def look_at_residues(asked: Options, kind: Kind, a: Array, b: Array, out: Array) -> bool:
    """Whether residues would multiply these; what they would refuse is refused, if need be for the largest numbers of the types."""
    layouts, is_auto = layouts_of(a, b, out), asked.algorithm == "auto"
    if not _suits(asked, layouts, is_auto):
        return False
    if not is_auto:  # where `auto` is refused, the library multiplies
        options = asked._replace(kind=kind)
        moduli = moduli_for_integers(a.shape[-1], *(INTEGERS[str(x.dtype)].largest for x in (a, b)))
        ready(options, scheme_for(options, layouts), moduli, 0, as_matrices(a, b, out))
    return True


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
    """Whether residues are to multiply arrays of these layouts where they lie: for `auto` by warpgroups alone, which were measured."""
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
    return (
        all(stride % x.itemsize == 0 for x in layouts.given for stride in x.strides)
        and has_digit_units()
        and not (is_auto and multiplies_by_warps())
    )


def _largest(a: Array, b: Array) -> tuple[int, int]:
    """Bounds of the magnitudes: of the integers themselves, or of their types if reading the integers is not allowed or would not help."""
    elements = INTEGERS[str(a.dtype)], INTEGERS[str(b.dtype)]
    if max(x.bytes for x in elements) <= SMALL or is_captured():
        return elements[0].largest, elements[1].largest
    if a.ndim == b.ndim == 2:
        return largest_magnitudes(a, b)
    found = (max(int(x.max()), -int(x.min())) for x in (a, b))  # of a batch; kernels read numbers of uint64 above 2^63 as negative ones
    left, right = (min(most, e.largest) if most < 2**63 else e.largest for most, e in zip(found, elements, strict=True))
    return left, right


def scheme_for(options: Options, layouts: Layouts) -> Scheme:
    """The scheme of all levels, proved; that of one product for `auto`. Raises `BilinearError` (E501) for too many blocks."""
    if options.algorithm in ("auto", None) or options.levels == 0 or uses_library():
        return plain().scheme
    loaded, levels = _named_levels(options, layouts)
    if (blocks := _blocks(loaded, levels)) > MOST_BLOCKS:
        message = f"{levels} levels of {loaded.name} cut an operand into {blocks} blocks"
        raise fail("E501", message, f"at most {MOST_BLOCKS} blocks of a matrix are read at once: name fewer levels")
    return _levels_of(Same(loaded), levels, 0)


def scheme_modulo(options: Options, layouts: Layouts, p: int) -> Scheme | None:
    """The scheme of all levels of a named algorithm, proved; None if residues do not hold its coefficients or its sums of blocks."""
    loaded, levels = _named_levels(options, layouts)
    if _blocks(loaded, levels) > MOST_BLOCKS:
        return None
    scheme = _levels_of(Same(loaded), levels, p)
    return scheme if not obstacles(scheme, moduli_modulo(p, layouts.extents[1]), p) else None


def _named_levels(options: Options, layouts: Layouts) -> tuple[Loaded, int]:
    loaded = options.algorithm if isinstance(options.algorithm, Loaded) else algorithm_as_it_is(str(options.algorithm))
    automatic = isinstance(options.levels, str)
    return loaded, max(1, choose_levels(loaded.scheme, *layouts.extents)) if automatic else int(options.levels)


def _schemes(loaded: Loaded, levels: int) -> list[Scheme]:
    return [x.scheme for x in loaded.by_level] if loaded.below else [loaded.scheme] * levels


def _blocks(loaded: Loaded, levels: int) -> int:
    m, k, n = (prod(extents) for extents in zip(*((s.m, s.k, s.n) for s in _schemes(loaded, levels)), strict=True))
    return int(max(m * k, k * n, m * n))


@lru_cache(maxsize=64)
def _levels_of(loaded: Same[Loaded], levels: int, modulus: int) -> Scheme:
    schemes = _schemes(loaded.what, levels)
    for scheme in dict.fromkeys(schemes):
        require_numbers(scheme, proved(scheme), modulus)
        if modulus:
            require_residues(scheme, (c for table in scheme.tables for row in table for _, c in row), modulus)
    return reduce(tensor, map(fold_bases, schemes))


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
    multiply, workspace = ready(options, scheme, moduli, modulus, (left, right, target))
    for index in indices(target.shape[:-2]):
        x, y, z = (matrix_at(each, index) for each in (left, right, target))
        multiply(x.data.ptr, y.data.ptr, z.data.ptr, *factors, workspace.data.ptr)


def ready(
    options: Options, scheme: Scheme, moduli: tuple[int, ...], modulus: int, matrices: tuple[Array, Array, Array]
) -> tuple[IntegerMultiply, Array]:
    """What multiplies matrices, or those of a batch, and its workspace."""
    a, b, c = (layout_of(x)._replace(shape=x.shape[-2:], strides=x.strides[-2:]) for x in matrices)
    multiply = integer_multiply_of(a, b, c, scheme, moduli, modulus)
    left, right, target = matrices
    what, hint = "a product of residues", "allow that many bytes, or, without a modulus, use algorithm='auto'"
    space = workspace_array(options, what, multiply.workspace, target, left, right, alignment=multiply.alignment, hint=hint)
    return multiply, space


Factors = tuple[int, int]  # alpha and beta, from 0 to p - 1.


def matmul_modulo(
    a: Array, b: Array, out: Array, modulus: object, options: Options, stream: AbstractContextManager[object] | None
) -> Array:
    """(alpha * a @ b + beta * out) modulo p, as `matmul` says it, for arrays and tensors of integers.

    Raises `BilinearError`: E593 for what is not a modulus, E594 for an algorithm that does not hold modulo it, E598 for arrays, factors and
    options that have no meaning with it, E599 for operands that are to be restored and cannot be, and those of `matmul`.
    """
    p = read_modulus(modulus)
    check_options(options, out)
    if options.tolerance is not None or options.accuracy is not None or options.plan is not None:
        raise fail("E598", "tolerance=, accuracy= and plan= are for rounded numbers", "leave them out: products modulo p are exact")
    if isinstance(a, Kept) or isinstance(b, Kept):
        raise fail("E598", "a prepared operand holds sums that are not reduced modulo p", "give both operands as arrays")
    with accepted({"a": a, "b": b}, {"out": out}, options.workspace, stream) as (kind, (left, right), (target,), buffer):
        require_complex(options.algorithm, left, right)
        result = _multiply(options._replace(kind=kind, workspace=buffer), left, right, target, p)
        return out if out is not None else kind.give_back(result)


def read_modulus(modulus: object) -> int:
    """A modulus as an integer; refused (E593) if it is none from 2 to 2^62."""
    try:
        p = 0 if isinstance(modulus, bool | np.bool) else operator.index(modulus)  # type: ignore[arg-type]  # anything may be given
    except TypeError:
        p = 0
    if not 2 <= p <= LARGEST_MODULUS:
        raise fail("E593", f"modulus={modulus!r} is not a modulus", "give an integer from 2 to 2^62")
    return p


def _multiply(options: Options, a: Array, b: Array, out: Array, p: int) -> Array:
    layouts = layouts_of(a, b, out)
    for name, x in zip(("a", "b", "out"), layouts.given, strict=False):
        if x.dtype.kind not in ("iub" if name != "out" else "iu"):
            raise fail("E598", f"{name} holds {x.dtype}, and products modulo {p} are of integers", "convert it to int64")
    if layouts.out is not None and not _holds(layouts.out.dtype, p):
        raise fail("E598", f"out of {layouts.out.dtype} cannot hold numbers up to {p - 1}", "give an out of int64")
    common = np.result_type(a.dtype, b.dtype)
    shape, dtype = fit(layouts, (common if common.kind in "iu" and _holds(common, p) else INT64) if out is None else out.dtype)
    factors = _factor("alpha", options.alpha, p), _factor("beta", options.beta, p)
    if out is None and options.kind.on_gpu and is_captured():
        raise not_captured(*NEW)
    result = options.kind.module.empty(shape, dtype) if out is None else out
    recipe = _recipe(options, p)
    is_zero = factors[0] == 0 and not options.kind.on_gpu  # there the classical product needs more memory than a schedule in place
    if is_zero or result.size == 0 or a.shape[-1] == 0:
        recipe = None
    if options.kind.on_gpu and _by_residues(options, recipe, a, b, result, p, factors, layouts.overlaps):
        return result
    left, right, target = as_matrices(a, b, result)
    if recipe is None:
        _classical(options, factors, left, right, target, p, layouts.overlaps)
    else:
        _by_schedule(options, factors, recipe, left, right, target, layouts.overlaps)
    return result


def _by_residues(
    options: Options, recipe: Recipe | None, a: Array, b: Array, result: Array, p: int, factors: Factors, overlaps: bool
) -> bool:
    """Multiply on a GPU by residues of the sums of blocks, modulo p itself or as many numbers as p needs.

    False, with nothing written, if a schedule must run. Raises `BilinearError`: E567 for more terms than the moduli hold, and E598.
    """
    if any(str(x.dtype) not in INTEGERS or not is_aligned(x) for x in (a, b, result)):
        what = "on a GPU products modulo p are of integers in native byte order, at multiples of their bytes; bool is none"
        raise fail("E598", what, "convert to int64")
    if not has_digit_units():
        raise fail("E598", "products modulo p run on GPUs from sm_80 on", "give arrays of NumPy")
    if recipe is not None and recipe.inputs != "preserve":
        return False
    scheme = plain().scheme if recipe is None else scheme_modulo(options, layouts_of(a, b, result), p)
    if scheme is None:
        return False
    xp, (left, right, target) = options.kind.module, as_matrices(a, b, result)
    if target.size and left.shape[-1] == 0:  # sums of one zero
        left, right = xp.zeros((*left.shape[:-1], 1), left.dtype), xp.zeros((*right.shape[:-2], 1, right.shape[-1]), right.dtype)
    if target.size:
        found = xp.array(target) if overlaps else target
        run(options, scheme, moduli_modulo(p, left.shape[-1]), p, (left, right, found), factors)
        if overlaps:
            target[...] = found
    return True


def _recipe(options: Options, p: int) -> Recipe | None:
    if options.algorithm in ("auto", None) or options.levels == 0 or uses_library():
        return None
    named = options.algorithm if isinstance(options.algorithm, Loaded) else algorithm_as_it_is(str(options.algorithm))
    return Recipe(named.by_level, options.levels, options.inputs, modulus=p)


def _classical(options: Options, factors: Factors, left: Array, right: Array, target: Array, p: int, overlaps: bool) -> None:
    """The product by definition, of every matrix of a batch; aside from `out` where it overlaps an operand."""
    require_budget(options, "a result aside from out", target.nbytes if overlaps else 0, "give an out that overlaps no operand")
    result = np.array(target) if overlaps else target
    way = way_for(p, largest_of(left, p)[0], largest_of(right, p)[0], left.shape[-1])
    log.debug("matmul %s by %s modulo %d: %d products of %s", left.shape, right.shape, p, len(way.pairs), way.element)
    batch = target.shape[:-2]
    lefts, rights = (np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (left, right))
    for index in indices(batch):
        multiply_modulo(lefts[index], rights[index], result[index], way, *factors)
    if overlaps:
        target[...] = result


def _by_schedule(
    options: Options, factors: tuple[int, int], recipe: Recipe, left: Array, right: Array, target: Array, overlaps: bool
) -> None:
    """The product by a schedule, whose stages compute modulo p on numbers from 0 to p - 1 in int64.

    The result is computed aside from `out` where that is of another type, overlaps an operand, or holds what an algorithm overwrites.
    """
    p, executor = recipe.modulus, _executor(options, recipe.modulus)
    if recipe.promise != "preserve":
        check_in_place(options, executor, recipe, left, right, target)
        for name, x in (("a", left), ("b", right)):
            if x.dtype != INT64 or not is_aligned(x) or not largest_of(x, recipe.modulus)[1]:
                needed = f"{name}, which is not an aligned array of smaller numbers in int64"
                message = f"inputs={recipe.inputs!r} computes modulo {recipe.modulus} in {needed}"
                raise fail("E599", message, f"give {name} % {recipe.modulus} in int64, or use inputs='preserve'")
    left, right = canonical(left, p), canonical(right, p)
    aside = overlaps or target.dtype != INT64 or not is_aligned(target)
    alpha, beta = factors
    placement = placement_for(recipe, layouts_of(left, right, None if aside else target))
    if placement.overwrites and beta != 0 and not aside:
        aside, placement = True, placement_for(recipe, layouts_of(left, right, None))
    check_budget(options, placement, INT64.itemsize, target.size * INT64.itemsize if aside else 0)
    result = options.kind.module.empty(target.shape, INT64) if aside else target
    workspace = workspace_of(options, executor, placement, result, left, right, target)
    if beta != 0 and not aside:
        target %= p
    run_all(executor, placement, call_of(left, right, result, alpha, 0 if aside else beta, workspace))
    if aside:
        target[...] = result if beta == 0 else _sum(executor, result, canonical(target, p).copy(), beta)


def _executor(options: Options, p: int) -> Executor:
    if not options.kind.on_gpu:
        return NumpyExecutor(arithmetic=ModularArithmetic(p))
    if is_captured():
        raise not_captured("a schedule modulo p looks at A and B, and nothing can wait for it", "take algorithm='classical'")
    from bilinear.methods.digits.integers import ModularExecutor  # processors need none of it

    return ModularExecutor(modular(p))


def _sum(executor: Executor, values: Array, old: Array, beta: int) -> Array:
    """The values + beta * old, in `old`."""
    spaces = {"A": matrix_of(values), "C": matrix_of(old)}
    m, n = values.shape[-2:]
    placement = Placement(_adding(), m, n, n, (m, n, n), (), (), 0)
    for index in indices(values.shape[:-2]):
        own = {name: x.at(index) for name, x in spaces.items()}
        for step in executor.steps(placement, placement.schedule.stages, own, 1, beta):
            step()
    return old


@cache
def _adding() -> Schedule:
    """A schedule that adds A to beta * C."""
    identity = LinearMap(1, (((0, 1),),))
    stage = LinearStage((BlockMap((Block("A", 0, 0),), (Block("C", 0, 0),), identity, (BETA,)),))
    return replace(plain().schedule, name="sum", stages=(stage,))


def _holds(dtype: Dtype, p: int) -> bool:
    return int(np.iinfo(str(dtype)).max) >= p - 1


def _factor(name: str, value: object, p: int) -> int:
    value = value.item() if getattr(value, "shape", None) == () else value  # type: ignore[attr-defined]  # a number of NumPy
    try:
        return operator.index(value) % p  # type: ignore[arg-type]
    except TypeError:
        raise fail("E598", f"{name}={value!r} is not an integer, and products modulo {p} are of integers", "give an integer") from None
