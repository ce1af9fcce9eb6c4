"""Multiply: carry out a decision on the caller's arrays, by the library or by a schedule."""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import prod
from typing import Unpack

import numpy as np

from bilinear.backends.capture import not_captured
from bilinear.backends.executor import Executor, allocate_workspace, execute
from bilinear.backends.factor import check_object_factors, check_scaling, factor
from bilinear.backends.panels import operands_of
from bilinear.backends.room import LARGE
from bilinear.errors import BilinearError, fail
from bilinear.frontend import load_for_arrays
from bilinear.ir.element import HALVES
from bilinear.ir.matrix import Array, Call, Matrix, indices, layout_of, matrix_of, real_type
from bilinear.ir.placement import Placement
from bilinear.lowering.prepare import check_promise
from bilinear.methods.method import Bindable
from bilinear.methods.registry import bind
from bilinear.planner.library import Library
from bilinear.planner.library_points import CUBLAS
from bilinear.runtime.accept import check_written_inputs
from bilinear.runtime.arrays import Kind
from bilinear.runtime.budgets import over_budget
from bilinear.runtime.complex_parts import Turns, formed, require_complex
from bilinear.runtime.decide import THE_LIBRARY, Decision, check_library_accuracy, decide
from bilinear.runtime.direct import NEW, direct_multiply, library_of, run_direct_plan
from bilinear.runtime.environment import uses_library
from bilinear.runtime.executors import gpu_executor, make_executor
from bilinear.runtime.layouts import fit, layouts_of
from bilinear.runtime.magnitudes import check_tolerance
from bilinear.runtime.named import algorithm_as_it_is
from bilinear.runtime.operands import accumulate, as_matrices, fresh, given_workspace
from bilinear.runtime.options import Options, ProductOptions, check_options
from bilinear.runtime.recipe import Recipe, largest_scaling, placement_for
from bilinear.runtime.repeat import CupyRepeat, Key, LibraryRepeat, PlacementRepeat, Reaches, is_kept, keep_repeat

log = logging.getLogger("bilinear")


def multiply(asked: Options, kind: Kind, key: Key | None, a: Array, b: Array, out: Array) -> Array:
    """alpha * a @ b + beta * out on arrays of one kind, with the options asked for. What ran is kept under `key`, to be repeated."""
    require_complex(asked.algorithm, a, b, out)
    cpu = asked.described_cpu(kind, a, b)
    if cpu is None and asked.accuracy is None and asked.is_plain(kind):
        log.debug("matmul %s by %s: the library's multiply (algorithm is auto, or levels is 0)", a.shape, b.shape)
        try:
            return np.matmul(*formed(asked.conjugated, a, b), out=out)
        except (TypeError, ValueError):
            fit(layouts_of(a, b, out))  # which says it with a code
            raise
    if kind.on_gpu and a.dtype.kind in "biu" and b.dtype.kind in "biu":
        whole = _by_residues(asked, kind, a, b, out)
        if whole is not None:
            return whole
    if str(a.dtype) in HALVES:
        half = _by_half(asked, kind, a, b, out)
        if half is not None:
            return half
    options = asked.settled(kind, cpu)
    layouts = layouts_of(a, b, out)
    decision = decide(options, layouts)
    if out is None and options.kind.on_gpu and make_executor(options.kind).is_captured():
        raise not_captured(*NEW)
    if decision.recipe is None:
        result = None
        try:
            result = _by_library(options, decision, a, b, out, layouts.overlaps, decision.choice)
        except (BilinearError, MemoryError) as error:  # our own kernels raise them before anything is written
            if not options.is_automatic or isinstance(decision.choice, Library):
                raise
            log.info("matmul %s by %s: %s cannot run (%s)", a.shape, b.shape, decision.choice.title, error)
            less = _less(options, decision, error)
        if result is None and less is not None:
            return multiply(asked._replace(workspace=less), kind, key, a, b, out)
        if result is None:
            check_library_accuracy(options.accuracy, layouts.extents[1], decision.dtype)
            return _by_library(options, decision, a, b, out, layouts.overlaps)
        if not layouts.overlaps:  # the key does not tell of overlap, and arrays that do not overlap may run by a schedule
            _keep(asked, kind, key, decision, a, b, result)
        return result
    result = options.kind.module.empty(decision.shape, decision.dtype) if out is None else out
    try:
        by_schedule(options, decision, decision.recipe, a, b, result)
    except (BilinearError, MemoryError) as error:  # raised before anything was written, unless A and B are consumed
        if not options.is_automatic or (isinstance(error, MemoryError) and decision.recipe.promise == "consume"):
            raise
        log.info("matmul %s by %s: %s cannot run (%s)", a.shape, b.shape, decision.recipe.loaded.name, error)
        less = _less(options, decision, error)
    else:
        _keep(asked, kind, key, decision, a, b, result)
        return result
    if less is None:
        return _by_library(options, decision, a, b, result, layouts.overlaps)
    del result
    return multiply(asked._replace(workspace=less), kind, key, a, b, out)


def _less(options: Options, decision: Decision, error: Exception) -> int | None:
    """The bytes that another plan may take after one could not be allocated, because memory is free in pieces; None for the library."""
    is_large = decision.workspace >= LARGE and options.buffer is None
    return decision.workspace // 2 if isinstance(error, MemoryError) and is_large else None


def _by_residues(asked: Options, kind: Kind, a: Array, b: Array, out: Array) -> Array | None:
    from bilinear.runtime.integers import by_counts, by_residues  # most calls need none of it

    return (by_counts if a.dtype == b.dtype == bool else by_residues)(asked, kind, a, b, out)


def _by_half(asked: Options, kind: Kind, a: Array, b: Array, out: Array) -> Array | None:
    from bilinear.runtime.half import by_half, element_of  # most calls need none of it

    element = element_of(a, b, out)
    return None if element is None else by_half(asked, kind, element, a, b, out)


def _keep(asked: Options, kind: Kind, key: Key | None, decision: Decision, a: Array, b: Array, out: Array) -> None:
    """Keep what ran, to be repeated: the library's multiply, or a placement on three matrices where they lie."""
    if key is None or is_kept(key):
        return
    placement, layouts = decision.placement, (layout_of(a), layout_of(b), layout_of(out))
    if decision.recipe is None:
        known = kind.module, decision, Reaches(*layouts)
        choice = decision.choice
        if isinstance(choice, Bindable) and not choice.suits(layouts[2], asked.beta):
            return  # it ran aside from out
        own = bind(choice, *layouts) if isinstance(choice, Bindable) and asked.alpha != 0 else None
        if own is None and asked.plan is not None and isinstance(choice, Bindable) and asked.alpha != 0:
            return  # it ran on vectors as matrices
        direct = own or (library_of(layouts, choice) if asked.alpha != 0 else None)
        workspace = 0 if own is None else own.workspace * decision.dtype.itemsize
        keep_repeat(key, asked, CupyRepeat(*known) if direct is None else LibraryRepeat(*known, direct, workspace))
    elif placement is None or placement.schedule.is_complex:
        return
    elif a.ndim == b.ndim == out.ndim == 2 and _adds_with(asked, placement):
        repeat = PlacementRepeat(kind.module, gpu_executor(), decision, placement, decision.recipe.promise, layouts)
        keep_repeat(key, asked, repeat)


def _factors(options: Options, decision: Decision, a: Array, b: Array, out: Array) -> tuple[Array, Array]:
    """alpha as a number of the product's type, beta of the type of `out`."""
    target = decision.dtype if out is None else out.dtype
    alpha, beta = factor("alpha", options.alpha, decision.dtype), factor("beta", options.beta, target)
    if "O" in (decision.dtype.kind, target.kind):
        check_object_factors(alpha if decision.dtype.kind == "O" else 0, beta if target.kind == "O" else 0, a, b, out)
    return alpha, beta


def _by_library(
    options: Options, decision: Decision, a: Array, b: Array, out: Array, overlaps: bool, choice: Library | Bindable = THE_LIBRARY
) -> Array:
    xp, on_gpu = options.kind.module, options.kind.on_gpu
    pinned = choice if isinstance(choice, Bindable) and on_gpu and options.alpha != 0 and not options.is_automatic else None
    conjugating = None if pinned is None else pinned.conjugated_as(options.conjugated)
    if conjugating is None:
        a, b = formed(options.conjugated, a, b)
    if options.alpha == 1 and options.beta == 0 and not on_gpu:
        return np.matmul(a, b, out=out)
    alpha, beta = _factors(options, decision, a, b, out)
    if out is None and options.alpha != 0 and not on_gpu:  # keeps the subclass that NumPy chooses, and its mask
        return _scaled(alpha, np.matmul(a, b))
    out = xp.empty(decision.shape, decision.dtype) if out is None else out
    if pinned is not None:
        run_direct_plan(options, conjugating or pinned, a, b, out, overlaps, (alpha, beta))
        return out
    is_direct = on_gpu and options.alpha != 0 and not overlaps
    direct = direct_multiply(options, a, b, out, choice) if is_direct else None
    is_captured = direct is None and on_gpu and make_executor(options.kind).is_captured()
    if is_captured and is_direct:  # CuPy's own multiply may allocate
        direct = direct_multiply(options, a, b, out, Library(CUBLAS))
    if direct is not None:
        direct(a.data.ptr, b.data.ptr, out.data.ptr, alpha, beta)
    elif options.alpha == 0 and options.beta == 0:
        out[...] = 0
    elif options.alpha == 0:
        out *= beta
    elif is_captured:
        hint = "give row-major or column-major matrices of float32 or float64, or algorithm='classical'"
        raise not_captured("CuPy multiplies these operands, and calls no cuBLAS then", hint)
    elif options.alpha == 1 and options.beta == 0 and not overlaps:
        xp.matmul(a, b, out=out)
    else:
        product = xp.matmul(a, b)
        product = product if options.alpha == 1 else _scaled(alpha, product)
        accumulate(out, xp.asarray(product, decision.dtype), beta)
    return out


def _scaled(alpha: Array, product: Array) -> Array:
    """alpha * product; NumPy would convert an object, which is what two vectors of objects give, to a type of limited range."""
    is_object = not isinstance(product, np.ndarray | np.generic)
    return alpha * product if is_object else np.multiply(alpha, product)


def looked_at(kind: Kind, a: Array, b: Array, out: Array = None, **given: Unpack[ProductOptions]) -> Array:
    """`matmul` of arrays of one kind without multiplying: what would be refused is refused, and the result is `out` as it is, or zeros.

    A chain of products is looked through by it, before the first one writes its operands.
    """
    asked = Options(1, 0, "auto", "auto", "preserve", None, None, None)._replace(**given)
    if isinstance(asked.algorithm, str) and asked.algorithm != "auto" and not uses_library():
        asked = asked._replace(algorithm=algorithm_as_it_is(asked.algorithm, load_for_arrays))
    check_options(asked, out)
    require_complex(asked.algorithm, a, b, out)
    options = asked.settled(kind, asked.described_cpu(kind, a, b))
    decision = decide(options, layouts_of(a, b, out))
    result = kind.module.zeros(decision.shape, decision.dtype) if out is None else out
    if decision.recipe is not None and not options.is_automatic:
        ready_schedule(options, decision, decision.recipe, a, b, result)
    return result


def by_schedule(options: Options, decision: Decision, recipe: Recipe, a: Array, b: Array, out: Array, given: Matrix | None = None) -> None:
    """Run the decision's placement on every matrix of the batch."""
    ready_schedule(options, decision, recipe, a, b, out, given)()


def ready_schedule(
    options: Options, decision: Decision, recipe: Recipe, a: Array, b: Array, out: Array, given: Matrix | None = None
) -> Callable[[], None]:
    """What runs the decision's placement. Without one, convert the operands to the product's type, and make one.

    Everything that can be refused is refused here, and nothing is written.

    `given` is the buffer with everything that was prepared from an operand.

    The result is computed aside from `out`, and added to it afterwards, if `out` has another dtype, overlaps an operand or does not suit
    the recipe, or if the schedule cannot add to it.
    """
    alpha, beta = _factors(options, decision, a, b, out)
    executor = make_executor(options.kind)
    left, right, target = as_matrices(a, b, out)
    placement, dtype = decision.placement, decision.dtype
    turns = Turns.of(alpha, beta)
    aside = turns.needs_result
    if (recipe.promise == "restore" or options.tolerance is not None) and executor.is_captured():
        raise not_captured("A and B cannot be scanned for Inf, NaN and magnitudes", "use inputs='preserve', without tolerance=")
    if recipe.promise != "preserve":
        check_in_place(options, executor, recipe, left, right, target)
    if placement is None or not _adds_with(options, placement):
        left, right = left.astype(dtype, copy=False), right.astype(dtype, copy=False)
        layouts = layouts_of(left, right, target)
        aside = aside or target.dtype != dtype or layouts.overlaps or not recipe.suits(layouts.out)
        if not aside and target.size:
            aside = not _adds_with(options, placement_for(recipe, layouts))
        placement = placement_for(recipe, layouts._replace(out=None) if aside else layouts) if target.size else None
    if placement is not None:
        check_scaling(turns.alpha, largest_scaling(placement), real_type(dtype))
        check_budget(options, placement, real_type(dtype).itemsize, target.size * dtype.itemsize if aside else 0)
    is_by_columns = placement is not None and "C" in placement.column_major
    result = fresh(options.kind.module, target.shape, dtype, is_by_columns) if aside else target
    if placement is not None:
        workspace = workspace_of(options, executor, placement, result, left, right, target)

    def run() -> None:
        if placement is not None:
            call = turns.call_of(left, right, result, 0 if aside else beta, workspace)
            run_all(executor, placement, call._replace(given=given))
            turns.finish(result)
        if aside:
            accumulate(target, result, beta)

    return run


def _adds_with(options: Options, placement: Placement) -> bool:
    """Whether a placement can add to C if beta asks for it; some overwrite C."""
    return not (placement.overwrites and options.beta != 0)


def check_budget(options: Options, placement: Placement, itemsize: int, aside: int) -> None:
    """Refuse (E535) a placement if its workspace and a result of `aside` bytes, computed aside from `out`, exceed the budget."""
    needed = placement.allocated_elements * itemsize + aside
    log.debug("%s: workspace of %d bytes", placement.schedule.name, needed)
    if options.budget is not None and needed > options.budget:
        name = placement.schedule.name + (", with a result aside from out," if aside else "")
        raise over_budget(name, needed, options.budget)


def run_all(executor: Executor, placement: Placement, batch: Call) -> None:
    """Run one placement, in one workspace, for every matrix of the batch."""
    for index in indices(batch.c.layout.shape[:-2]):
        execute(executor, placement, batch.at(index))


def workspace_of(options: Options, executor: Executor, placement: Placement, result: Array, *others: Array) -> Matrix | None:
    """One buffer for all workspaces of a placement: the caller's, if given. None if the placement needs none."""
    if options.buffer is None or not placement.allocated_elements:
        return allocate_workspace(executor, placement, real_type(result.dtype))
    result = result.real if result.dtype.kind == "c" else result
    return matrix_of(given_workspace(options, placement.allocated_elements, result, *others))


def check_in_place(options: Options, executor: Executor, recipe: Recipe, left: Array, right: Array, target: Array) -> None:
    """Refuse (E521 to E527) a recipe that writes A and B where they cannot be written, or where its promise cannot be kept."""
    writing = recipe.writing
    check_promise(writing.loaded.scheme, writing.loaded.schedule, writing.inputs)
    if not left.dtype == right.dtype == target.dtype or not left.dtype.isnative:
        message = f"inputs={writing.inputs!r} runs in the caller's arrays, so a, b and out must have one dtype, in native byte order"
        raise fail("E526", message, "convert them first, or use inputs='preserve'")
    shares = not left.shape[:-2] == right.shape[:-2] == target.shape[:-2] and prod(target.shape[:-2]) > 1
    if writing.inputs == "consume" and shares:
        raise fail("E527", "inputs='consume' cannot use one matrix in several products of a batch", "use inputs='restore'")
    check_written_inputs(executor, left, right, target, writing.inputs)
    if options.tolerance is None or not target.size:
        return
    products = prod(target.shape[:-2])
    calls = products // max(1, prod(left.shape[:-2])), products // max(1, prod(right.shape[:-2]))
    for placement, operands in operands_of(placement_for(recipe, layouts_of(left, right, target)), matrix_of(left), matrix_of(right)):
        check_tolerance(executor, placement, operands, calls, float(options.tolerance))
