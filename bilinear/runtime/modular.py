"""`matmul(..., modulus=p)`: products of integers modulo p, exactly, with results from 0 to p - 1."""

from __future__ import annotations

import logging
import operator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache

import numpy as np

from bilinear.analysis.integer_range import LARGEST_MODULUS, way_for
from bilinear.backends.capture import is_captured, not_captured
from bilinear.backends.executor import Executor
from bilinear.backends.modular_arrays import INT64, ModularArithmetic, canonical, is_aligned, largest_of, multiply_modulo
from bilinear.backends.numpy_executor import NumpyExecutor
from bilinear.errors import fail
from bilinear.frontend import Loaded
from bilinear.ir.element import INTEGERS, modular
from bilinear.ir.linear import LinearMap
from bilinear.ir.matrix import Array, Dtype, call_of, indices, matrix_of
from bilinear.ir.placement import Placement
from bilinear.ir.schedule import BETA, Block, BlockMap, LinearStage, Schedule
from bilinear.lowering.prepare import plain
from bilinear.runtime.accept import accepted
from bilinear.runtime.arrays import Kept
from bilinear.runtime.budgets import over_budget
from bilinear.runtime.complex_parts import require_complex
from bilinear.runtime.direct import NEW
from bilinear.runtime.environment import uses_library
from bilinear.runtime.layouts import Layouts, fit, layouts_of
from bilinear.runtime.multiply import check_budget, check_in_place, run_all, workspace_of
from bilinear.runtime.named import algorithm_as_it_is
from bilinear.runtime.on_arrays import Asked
from bilinear.runtime.operands import as_matrices
from bilinear.runtime.options import Options, check_options
from bilinear.runtime.recipe import Recipe, placement_for

Factors = tuple[int, int]
"""alpha and beta, from 0 to p - 1."""

log = logging.getLogger("bilinear")


def matmul_modulo(a: Array, b: Array, out: Array, modulus: object, asked: Asked, stream: AbstractContextManager[object] | None) -> Array:
    """(alpha * a @ b + beta * out) modulo p, as `matmul` says it, for arrays and tensors of integers.

    Raises `BilinearError`: E593 for what is not a modulus, E594 for an algorithm that does not hold modulo it, E598 for arrays, factors and
    options that have no meaning with it, E599 for operands that are to be restored and cannot be, and those of `matmul`.
    """
    p, options = read_modulus(modulus), Options(*asked)
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
    _check_types(layouts, p)
    shape, dtype = fit(layouts, _result_type(a.dtype, b.dtype, p) if out is None else out.dtype)
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
    """Multiply on a GPU by residues of the sums of blocks; False, with nothing written, if a schedule must run."""
    from bilinear.runtime.integers import modulo_on_gpu, require_residue_units, scheme_modulo  # processors need none of it

    if any(str(x.dtype) not in INTEGERS or not is_aligned(x) for x in (a, b, result)):
        what = "on a GPU products modulo p are of integers in native byte order, at multiples of their bytes; bool is none"
        raise fail("E598", what, "convert to int64")
    require_residue_units()
    if recipe is not None and recipe.inputs != "preserve":
        return False
    scheme = plain().scheme if recipe is None else scheme_modulo(options, layouts_of(a, b, result), p)
    if scheme is None:
        return False
    modulo_on_gpu(options, scheme, a, b, result, p, factors, overlaps)
    return True


def _recipe(options: Options, p: int) -> Recipe | None:
    """What is to run; None for the classical product."""
    if options.algorithm in ("auto", None) or options.levels == 0 or uses_library():
        return None
    named = options.algorithm if isinstance(options.algorithm, Loaded) else algorithm_as_it_is(str(options.algorithm))
    return Recipe((named,), options.levels, options.inputs, modulus=p)


def _classical(options: Options, factors: Factors, left: Array, right: Array, target: Array, p: int, overlaps: bool) -> None:
    """The product by definition, of every matrix of a batch; aside from `out` where it overlaps an operand."""
    needed = target.nbytes if overlaps else 0
    if options.budget is not None and needed > options.budget:
        raise over_budget("a result aside from out", needed, options.budget, "give an out that overlaps no operand")
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
        _check_residues(recipe, left, right)
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
    """What computes modulo p on arrays of this kind; refused (E536) while the stream is captured."""
    if not options.kind.on_gpu:
        return NumpyExecutor(arithmetic=ModularArithmetic(p))
    if is_captured():
        raise not_captured("a schedule modulo p looks at A and B, and nothing can wait for it", "take algorithm='classical'")
    from bilinear.methods.digits.modular import ModularExecutor  # processors need none of it

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


def _check_residues(recipe: Recipe, left: Array, right: Array) -> None:
    """Refuse (E599) operands that sums modulo p would not give back as they were."""
    for name, x in (("a", left), ("b", right)):
        if x.dtype != INT64 or not is_aligned(x) or not largest_of(x, recipe.modulus)[1]:
            needed = f"{name}, which is not an aligned array of smaller numbers in int64"
            message = f"inputs={recipe.inputs!r} computes modulo {recipe.modulus} in {needed}"
            raise fail("E599", message, f"give {name} % {recipe.modulus} in int64, or use inputs='preserve'")


def _check_types(layouts: Layouts, p: int) -> None:
    """Refuse (E598) arrays that hold no integers, and an `out` that cannot hold p - 1."""
    for name, x in zip(("a", "b", "out"), layouts.given, strict=False):
        if x.dtype.kind not in ("iub" if name != "out" else "iu"):
            raise fail("E598", f"{name} holds {x.dtype}, and products modulo {p} are of integers", "convert it to int64")
    if layouts.out is not None and not _holds(layouts.out.dtype, p):
        raise fail("E598", f"out of {layouts.out.dtype} cannot hold numbers up to {p - 1}", "give an out of int64")


def _result_type(left: Dtype, right: Dtype, p: int) -> Dtype:
    """The operands' common type if it holds p - 1, else int64."""
    common = np.result_type(left, right)
    return common if common.kind in "iu" and _holds(common, p) else INT64


def _holds(dtype: Dtype, p: int) -> bool:
    return int(np.iinfo(str(dtype)).max) >= p - 1


def _factor(name: str, value: object, p: int) -> int:
    """alpha or beta from 0 to p - 1; refused (E598) if it is not an integer."""
    value = value.item() if getattr(value, "shape", None) == () else value  # type: ignore[attr-defined]  # a number of NumPy
    try:
        return operator.index(value) % p  # type: ignore[arg-type]
    except TypeError:
        raise fail("E598", f"{name}={value!r} is not an integer, and products modulo {p} are of integers", "give an integer") from None
