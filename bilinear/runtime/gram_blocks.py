"""A*A^T on arrays, block by block: one triangle is multiplied, the other one mirrored or left as it is."""

from __future__ import annotations

from bilinear.backends.capture import is_captured, not_captured
from bilinear.backends.factor import factor
from bilinear.errors import BilinearError, fail
from bilinear.ir.element import Element
from bilinear.ir.matrix import Array, Dtype, layout_of
from bilinear.planner.gram import GramPlan
from bilinear.planner.plan import LIBRARY
from bilinear.runtime.accept import check_out, shares_memory
from bilinear.runtime.arrays import Kind, multiplies_itself
from bilinear.runtime.budgets import over_budget
from bilinear.runtime.decide import check_library_accuracy
from bilinear.runtime.gram_plans import GramCall, described_plan, plan_for_call
from bilinear.runtime.gram_products import GramMultiplies
from bilinear.runtime.half import FLOAT
from bilinear.runtime.options import Options


def gram_arrays(
    asked: Options, kind: Kind, x: Array, out: Array, triangle: str | None, plan: GramPlan | None = None, element: Element | None = None
) -> Array:
    """alpha * x @ x^T + beta * out on arrays of one kind, with options that were checked, by a plan or the one that is found.

    The algorithm is `auto` or was loaded. Arrays of integers hold the bits of an `element` of 16 bits if one is named.
    """
    xp, shape = kind.module, (*x.shape[:-1], x.shape[-2])
    x = checked_operand(asked, kind, x, out, x.dtype if element is None else FLOAT)
    plan = plan or plan_for_call(GramCall(asked, kind, triangle is not None), x)
    if any(step.plan == LIBRARY for step in plan.steps):
        check_library_accuracy(asked.accuracy, x.shape[-1], x.dtype)
    result = (xp.empty if triangle is None else xp.zeros)(shape, x.dtype) if out is None else out
    products = GramMultiplies(asked, kind, element)
    products.blocks(plan, x, lower_of(result, triangle), (asked.alpha, asked.beta), triangle is not None)
    if triangle is None:
        products.mirror_blocks(plan, result)
    return result


def lower_of(result: Array, triangle: str | None) -> Array:
    """The result, turned so that the triangle to be computed is the lower one."""
    return result.swapaxes(-1, -2) if triangle == "upper" else result


def checked_operand(asked: Options, kind: Kind, x: Array, out: Array, dtype: Dtype) -> Array:
    """The operand, or a copy of one that `out` overlaps. Raises what refuses the arrays and factors of a call, before anything is written.

    Alpha is to be a number of this type.
    """
    shape = (*x.shape[:-1], x.shape[-2])
    if kind.on_gpu and is_captured():
        raise not_captured("A*A^T takes small buffers from the pool", "multiply by the transpose with matmul and out=")
    factor("alpha", asked.alpha, dtype)
    if out is None:
        return x
    factor("beta", asked.beta, out.dtype if dtype == x.dtype else dtype)
    check_out(layout_of(out), shape[:-2], shape[-2:], x.dtype)
    if out.shape != shape:
        raise fail("E791", f"out has shape {out.shape}, the product {shape}", "give an out of that shape, or none")
    return _apart(x, out, asked.budget)


def own_product(asked: Options, kind: Kind, x: Array, out: Array) -> Array:
    """alpha * x @ x^T for `matmul`, where a plan of blocks is predicted to gain; Otherwise None, and nothing is written."""
    if multiplies_itself(x) or multiplies_itself(out):
        return None
    if out is not None and (out.dtype != x.dtype or out.shape != (*x.shape[:-1], x.shape[-2]) or shares_memory(out, x)):
        return None
    try:
        plan = described_plan(GramCall(asked, kind, False), x)
        if plan is None or not plan.gains or (kind.on_gpu and is_captured()):
            return None
        return gram_arrays(asked, kind, x, out, None, plan)
    except BilinearError:  # raised before anything was written: a block has no plan within the limits
        return None


def _apart(x: Array, out: Array, budget: int | None) -> Array:
    """The operand, or a copy of one that `out` overlaps, which counts as workspace."""
    if not shares_memory(out, x):
        return x
    if budget is not None and x.nbytes > budget:
        raise over_budget("a copy of an operand that out overlaps", x.nbytes, budget, "give another out")
    return x.copy()
