"""Run what was decided for a call: the library's multiply, a method's own launches on matrices as they lie, or a schedule."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from bilinear.backends.capture import not_captured
from bilinear.backends.cublas import Multiply, multiply_of
from bilinear.backends.executor import Executor, allocate_workspace, execute, operands_of
from bilinear.backends.factor import check_object_factors, check_scaling, factor
from bilinear.errors import fail
from bilinear.ir.matrix import Array, Call, Matrix, indices, layout_of, matrix_of, real_type
from bilinear.ir.placement import Placement
from bilinear.lowering.prepare import check_promise
from bilinear.methods.registry import bind
from bilinear.planner.library import Library
from bilinear.planner.library_points import CUBLAS
from bilinear.planner.plan import LIBRARIES, LIBRARY, Choice
from bilinear.runtime import devices_here
from bilinear.runtime.accept import check_written_inputs
from bilinear.runtime.arrays import Kind, make_executor
from bilinear.runtime.complex_parts import Turns, formed
from bilinear.runtime.decide import THE_LIBRARY, Decision, check_library_accuracy
from bilinear.runtime.magnitudes import check_tolerance
from bilinear.runtime.operands import accumulate, as_matrices, fresh, given_workspace, layouts_of, require_budget
from bilinear.runtime.options import Options
from bilinear.runtime.recipe import Recipe, largest_scaling, placement_for
from bilinear.runtime.repeat import Operands

if TYPE_CHECKING:
    from bilinear.methods.program import Program

log = logging.getLogger("bilinear")


NEW = "a new result would have to live as long as the graph", "give out=, an array that does"
"""The message and the hint of a refusal during capture."""


def require_out(kind: Kind, out: Array) -> None:
    """Refuse (E536) a new result while the stream is captured."""
    if out is None and kind.on_gpu and make_executor(kind).is_captured():
        raise not_captured(*NEW)


def library_of(layouts: Operands, choice: Choice) -> Multiply | None:
    """The library's call for matrices of these layouts; None for what is left to `cupy.matmul`."""
    rules, points = devices_here.library_choice(layouts[2].dtype.name)
    return multiply_of(*layouts, choice.name if choice.name in LIBRARIES else LIBRARY, rules, points)


def direct_multiply(options: Options, a: Array, b: Array, out: Array, choice: Choice) -> Multiply | None:
    """What multiplies CuPy's arrays without a schedule, or None; the library only if it keeps the asked bound (else E519)."""
    layouts = _own_layouts(a, b, out)
    own = None if layouts is None else bind(choice, *layouts)
    if own is not None:
        return within_limits(options, choice, own, a, b, out)
    if choice.is_bound:
        check_library_accuracy(options.accuracy, a.shape[-1], out.dtype)
    return None if layouts is None else library_of(layouts, choice)


def _own_layouts(a: Array, b: Array, out: Array) -> Operands | None:
    cupy = sys.modules.get("cupy")
    if cupy is None or not type(a) is type(b) is type(out) is cupy.ndarray:
        return None
    return layout_of(a), layout_of(b), layout_of(out)


def within_limits(options: Options, choice: Choice, own: Program, a: Array, b: Array, out: Array, aside: int = 0) -> Multiply:
    """A product whose workspace is the caller's, or memory of the pool; see `workspace_address`."""
    address = workspace_address(options, choice, own, a, b, out, aside)
    return own.within(address) if address else own


def workspace_address(options: Options, choice: Choice, own: Program, a: Array, b: Array, out: Array, aside: int = 0) -> int:
    """The address of the caller's workspace for a product; 0 if it takes memory of the pool, or needs none.

    Refuses (E535) a product that needs more than is allowed, together with a result of `aside` elements that is computed apart from `out`.
    """
    if own.workspace and options.buffer is not None:
        return int(given_workspace(options, own.workspace, out, a, b, alignment=own.alignment).data.ptr)
    needed = (own.workspace + aside) * out.dtype.itemsize
    is_allowed = options.budget == 0 and not aside and choice.needs_little
    if not is_allowed:
        name = f"{choice.title}, with a result aside from out," if aside else choice.title
        require_budget(options, name, needed, "give an out that overlaps no operand" if aside else choice.less)
    return 0


def run_direct_plan(options: Options, choice: Choice, a: Array, b: Array, out: Array, overlaps: bool, factors: tuple[Array, Array]) -> None:
    """Run a plan's own kernels; a vector is a row on the left, a column on the right.

    If `out` overlaps an operand, or if it cannot lend memory that the plan needs, the result is computed aside from it, and added to it
    afterwards. What the kernels cannot multiply is refused (E544).
    """
    left, right, target = as_matrices(a, b, out)
    alpha, beta = factors
    aside = overlaps or not choice.suits(layout_of(target), beta)
    result = fresh(options.kind.module, target.shape, target.dtype, choice.by_columns) if aside else target
    layouts = _own_layouts(left, right, result)
    found = None if layouts is None else bind(choice, *layouts)
    if found is None:
        raise fail("E544", f"the plan's {choice.title} {choice.needs}", "give such arrays, or leave plan= out")
    run = within_limits(options, choice, found, left, right, target, target.size if aside else 0)
    run(left.data.ptr, right.data.ptr, result.data.ptr, alpha, 0 if aside else beta)
    if aside:
        accumulate(target, result, beta)


def _factors(options: Options, decision: Decision, a: Array, b: Array, out: Array) -> tuple[Array, Array]:
    """alpha as a number of the product's type, beta of the type of `out`."""
    target = decision.dtype if out is None else out.dtype
    alpha, beta = factor("alpha", options.alpha, decision.dtype), factor("beta", options.beta, target)
    if "O" in (decision.dtype.kind, target.kind):
        check_object_factors(alpha if decision.dtype.kind == "O" else 0, beta if target.kind == "O" else 0, a, b, out)
    return alpha, beta


def by_library(options: Options, decision: Decision, a: Array, b: Array, out: Array, overlaps: bool, choice: Choice = THE_LIBRARY) -> Array:
    """The product by the library, or by what a method binds to these arrays."""
    xp, on_gpu = options.kind.module, options.kind.on_gpu
    is_pinned = choice.is_bound and on_gpu and options.alpha != 0 and not options.is_automatic
    conjugating = choice.conjugated_as(options.conjugated) if is_pinned else None
    if conjugating is None:
        a, b = formed(options.conjugated, a, b)
    if options.alpha == 1 and options.beta == 0 and not on_gpu:
        return np.matmul(a, b, out=out)
    alpha, beta = _factors(options, decision, a, b, out)
    if out is None and options.alpha != 0 and not on_gpu:  # keeps the subclass that NumPy chooses, and its mask
        return _scaled(alpha, np.matmul(a, b))
    out = xp.empty(decision.shape, decision.dtype) if out is None else out
    if is_pinned:
        run_direct_plan(options, conjugating or choice, a, b, out, overlaps, (alpha, beta))
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
    if placement is None or not adds_with(options, placement):
        left, right = left.astype(dtype, copy=False), right.astype(dtype, copy=False)
        layouts = layouts_of(left, right, target)
        aside = aside or target.dtype != dtype or layouts.overlaps or not recipe.suits(layouts.out)
        if not aside and target.size:
            aside = not adds_with(options, placement_for(recipe, layouts))
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


def adds_with(options: Options, placement: Placement) -> bool:
    """Whether a placement can add to C if beta asks for it; some overwrite C."""
    return not (placement.overwrites and options.beta != 0)


def check_budget(options: Options, placement: Placement, itemsize: int, aside: int) -> None:
    """Refuse (E535) a placement if its workspace and a result of `aside` bytes, computed aside from `out`, exceed the budget."""
    needed = placement.allocated_elements * itemsize + aside
    log.debug("%s: workspace of %d bytes", placement.schedule.name, needed)
    require_budget(options, placement.schedule.name + (", with a result aside from out," if aside else ""), needed)


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
