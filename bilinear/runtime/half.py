"""Products of float16 and bfloat16 matrices on a GPU: sums of blocks in float32, rounded once, around the library's products."""

from __future__ import annotations

import logging

import numpy as np

from bilinear.backends.capture import is_captured, not_captured
from bilinear.backends.factor import check_scaling, factor
from bilinear.errors import BilinearError, fail
from bilinear.frontend import Loaded
from bilinear.ir.element import FLOAT32, HALVES, Element
from bilinear.ir.matrix import Array, call_of, layout_of, matrix_of
from bilinear.methods.halves import PLACED, WAYS, HalfExecutor, require_single_targets
from bilinear.planner.ways import algorithm_named
from bilinear.runtime.arrays import Kind
from bilinear.runtime.complex_parts import require_complex
from bilinear.runtime.devices_here import policy_here, uses_library
from bilinear.runtime.operands import Layouts, as_matrices, fit, layouts_of, workspace_array
from bilinear.runtime.options import Options
from bilinear.runtime.recipe import Recipe, chosen_recipe, fitted_placement, largest_scaling
from bilinear.runtime.run import NEW, run_all

FLOAT = np.dtype(FLOAT32.name)  # The type of alpha and beta, and that of C if it is not the operands'.

log = logging.getLogger("bilinear")


def element_of(a: Array, b: Array, out: Array) -> Element | None:
    """The element type of 16 bits that both operands hold, with an `out` of this type or of float32; None if there is none."""
    names = {str(x.dtype) for x in (a, b, out) if x is not None and not (x is out and x.dtype == FLOAT)}
    return HALVES.get(names.pop()) if len(names) == 1 else None


def by_half(asked: Options, kind: Kind, element: Element, a: Array, b: Array, out: Array) -> Array | None:
    """alpha * a @ b + beta * out on CuPy's arrays of 16 bits, whose numbers are of this type, whatever dtype they name.

    `out` may be float32: then products are never rounded to 16 bits, and without an algorithm it is one product of the library.

    Returns None, with nothing written, if the library is to multiply: for `levels=0`, if `auto` chooses it, for empty matrices and alpha =
    0, and if `auto` cannot build or allocate. Raises `BilinearError` (E775, E776, E777; E535, E536, E544) for an algorithm that is named.
    """
    require_complex(asked.algorithm, a, b, out)
    if not kind.on_gpu:
        if asked.plan is not None and asked.plan.problem.dtype in HALVES and not uses_library():
            raise fail("E778", f"the plan is one of {asked.plan.problem.dtype} on a GPU, and these arrays are not there", "leave plan= out")
        return None
    layouts, is_auto = layouts_of(a, b, out), asked.algorithm == "auto" and asked.plan is None
    recipe = _recipe(asked, layouts, element)
    if recipe is None and layouts.out is not None and layouts.out.dtype == FLOAT and _is_product(asked, layouts):
        recipe = Recipe((algorithm_named("classical"),), 1, "preserve")
    if recipe is None:
        return None
    if recipe.inputs != "preserve" or asked.inputs != "preserve":
        what = f"inputs={asked.inputs!r} lets a schedule write A and B, and sums in them would be rounded to {element}"
        raise fail("E775", what, "use inputs='preserve'")
    shape, _ = fit(layouts, a.dtype)
    try:
        if out is None and is_captured():
            raise not_captured(*NEW)
        result = kind.module.empty(shape, a.dtype) if out is None else out
        _run(asked._replace(kind=kind), element, recipe, (a, b, result), layouts.overlaps)
    except (BilinearError, MemoryError) as error:
        if not is_auto:
            raise
        log.info("matmul %s by %s of %s cannot run (%s); the library's multiply", a.shape, b.shape, element, error)
        return None
    log.debug("matmul %s by %s of %s: %s", a.shape, b.shape, element, recipe.loaded.name)
    return result


def by_half_itself(asked: Options, kind: Kind, element: Element, a: Array, b: Array, out: Array) -> None:
    """The same, for types that nothing else multiplies: without an algorithm or with 0 levels, the library computes one product."""
    if asked.algorithm == "auto" or asked.levels == 0:
        asked = asked._replace(algorithm=algorithm_named("classical"), levels=1)
    if asked.alpha == 0 or a.shape[-1] == 0:  # sums of one zero
        zeros = kind.module.zeros
        a, b, asked = zeros((*a.shape[:-1], 1), a.dtype), zeros((*b.shape[:-2], 1, b.shape[-1]), b.dtype), asked._replace(alpha=1)
    by_half(asked, kind, element, a, b, out)


def _recipe(asked: Options, layouts: Layouts, element: Element) -> Recipe | None:
    extents = layouts.extents
    if not _is_product(asked, layouts) or uses_library():
        return None
    if asked.plan is not None:
        p = asked.plan.problem
        if (p.m, p.k, p.n, p.dtype) != (*extents, element.name):
            planned, given = (f"{' x '.join(map(str, x))} of {name}" for x, name in (((p.m, p.k, p.n), p.dtype), (extents, element)))
            raise fail("E544", f"the plan is for {planned}, these arrays are {given}", "plan for this problem")
        return chosen_recipe(asked.plan)
    if asked.levels == 0 or (asked.algorithm == "auto" and min(extents) < policy_here().least_halves):
        return None
    if isinstance(asked.algorithm, Loaded):
        return Recipe(asked.algorithm.by_level, asked.levels, asked.inputs)
    return Recipe((algorithm_named(WAYS[0][0]),), len(WAYS[0]), "preserve")


def _is_product(asked: Options, layouts: Layouts) -> bool:
    return min(layouts.a.ndim, layouts.b.ndim) > 0 and asked.alpha != 0 and 0 not in (*layouts.a.shape, *layouts.b.shape)


def _run(options: Options, element: Element, recipe: Recipe, arrays: tuple[Array, Array, Array], overlaps: bool) -> None:
    """The product of every matrix of a batch, in one workspace. Operands that cuBLAS cannot read are copied; `out` is computed aside."""
    left, right, target = as_matrices(*arrays)
    alpha, beta = (factor(name, value, FLOAT) for name, value in (("alpha", options.alpha), ("beta", options.beta)))
    left, right = (x if _lies_plainly(x) else x.copy() for x in (left, right))
    aside = overlaps or not _lies_plainly(target)
    by_column = frozenset(name for name, x in zip("ABC", (left, right, target), strict=True) if not aside and layout_of(x).is_by_column)
    extents = left.shape[-2], left.shape[-1], right.shape[-1]
    result_type = FLOAT32 if target.dtype == FLOAT else element
    placement = fitted_placement(recipe, extents, FLOAT if result_type is FLOAT32 else PLACED, by_column)
    require_single_targets(placement.schedule)
    if placement.overwrites:
        what = f"{placement.schedule.name} keeps sums in C, and they would be rounded to 16 bits once more"
        raise fail("E777", what, "take a scheme without a schedule, such as winograd")
    check_scaling(alpha, largest_scaling(placement), FLOAT)
    elements, apart = placement.allocated_elements, target.nbytes if aside else 0
    buffer = workspace_array(options, placement.schedule.name, elements, target, left, right, aside=apart)
    result = target.copy() if aside else target
    call = call_of(left, right, result, alpha, beta, matrix_of(buffer) if elements else None)
    run_all(HalfExecutor(element, result_type), placement, call)
    if aside:
        target[...] = result


def _lies_plainly(x: Array) -> bool:
    """Whether the rows or the columns of each matrix are contiguous and do not overlap, as cuBLAS needs them."""
    (m, n), (down, along), size = x.shape[-2:], x.strides[-2:], x.itemsize
    by_row, by_column = (along == size and down >= n * size), (down == size and along >= m * size)
    return bool((by_row or by_column) and down % size == along % size == 0)
