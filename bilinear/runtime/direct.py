"""Direct multiplies of matrices where they lie on a GPU, without a schedule: the library's calls, thin products, and digits."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

from bilinear.backends.cublas import Multiply, multiply_of
from bilinear.errors import fail
from bilinear.ir.matrix import Array, layout_of
from bilinear.methods.method import Bindable
from bilinear.methods.registry import bind
from bilinear.planner.library import Library
from bilinear.planner.plan import LIBRARY
from bilinear.runtime import devices_here
from bilinear.runtime.budgets import over_budget
from bilinear.runtime.decide import check_library_accuracy
from bilinear.runtime.operands import accumulate, as_matrices, fresh, given_workspace
from bilinear.runtime.options import Options
from bilinear.runtime.repeat import Operands

if TYPE_CHECKING:  # which is imported with the first call on a GPU
    from bilinear.methods.program import Program

log = logging.getLogger("bilinear")

NEW = "a new result would have to live as long as the graph", "give out=, an array that does"
"""The message and the hint of a refusal during capture."""


def library_of(layouts: Operands, choice: Library | Bindable) -> Multiply | None:
    """The library's call for matrices of these layouts; None for what is left to `cupy.matmul`."""
    rules, points = devices_here.library_choice(layouts[2].dtype.name)
    return multiply_of(*layouts, choice.name if isinstance(choice, Library) else LIBRARY, rules, points)


def direct_multiply(options: Options, a: Array, b: Array, out: Array, choice: Library | Bindable) -> Multiply | None:
    """What multiplies CuPy's own arrays where they lie, without a schedule; None if there is nothing.

    The library takes the place of our own kernels only if it keeps the bound that is asked for (else E519).
    """
    layouts = _own_layouts(a, b, out)
    if isinstance(choice, Library):
        return None if layouts is None else library_of(layouts, choice)
    own = None if layouts is None else bind(choice, *layouts)
    if own is not None:
        return within_limits(options, choice, own, a, b, out)
    check_library_accuracy(options.accuracy, a.shape[-1], out.dtype)
    return None if layouts is None else library_of(layouts, choice)


def _own_layouts(a: Array, b: Array, out: Array) -> Operands | None:
    """The layouts of CuPy's own arrays; None if one is of another kind."""
    cupy = sys.modules.get("cupy")
    if cupy is None or not type(a) is type(b) is type(out) is cupy.ndarray:
        return None
    return layout_of(a), layout_of(b), layout_of(out)


def within_limits(options: Options, choice: Bindable, own: Program, a: Array, b: Array, out: Array, aside: int = 0) -> Multiply:
    """A product whose workspace is the caller's, or memory of the pool; see `workspace_address`."""
    address = workspace_address(options, choice, own, a, b, out, aside)
    return own.within(address) if address else own


def workspace_address(options: Options, choice: Bindable, own: Program, a: Array, b: Array, out: Array, aside: int = 0) -> int:
    """The address of the caller's workspace for a product; 0 if it takes memory of the pool, or needs none.

    Refuses (E535) a product that needs more than is allowed, together with a result of `aside` elements that is computed apart from `out`.
    """
    if own.workspace and options.buffer is not None:
        return int(given_workspace(options, own.workspace, out, a, b, alignment=own.alignment).data.ptr)
    needed = (own.workspace + aside) * out.dtype.itemsize
    is_allowed = options.budget == 0 and not aside and choice.needs_little
    if options.budget is not None and needed > options.budget and not is_allowed:
        name = f"{choice.title}, with a result aside from out," if aside else choice.title
        raise over_budget(name, needed, options.budget, "give an out that overlaps no operand" if aside else choice.less)
    return 0


def run_direct_plan(
    options: Options, choice: Bindable, a: Array, b: Array, out: Array, overlaps: bool, factors: tuple[Array, Array]
) -> None:
    """Run a plan's own kernels; a vector is a row on the left, a column on the right.

    If `out` overlaps an operand, or if it cannot lend memory that the plan needs, the result is computed aside from it, and added to it
    afterwards. What the kernels cannot multiply is refused (E544).
    """
    left, right, target = as_matrices(a, b, out)
    alpha, beta = factors
    lends = choice.suits(layout_of(target), beta)
    aside = overlaps or not lends
    result = fresh(options.kind.module, target.shape, target.dtype, choice.lies_by_columns) if aside else target
    layouts = _own_layouts(left, right, result)
    found = None if layouts is None else bind(choice, *layouts)
    if found is None:
        raise fail("E544", f"the plan's {choice.title} {choice.needs}", "give such arrays, or leave plan= out")
    run = within_limits(options, choice, found, left, right, target, target.size if aside else 0)
    run(left.data.ptr, right.data.ptr, result.data.ptr, alpha, 0 if aside else beta)
    if aside:
        accumulate(target, result, beta)
