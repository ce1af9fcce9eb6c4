"""A*A^T on arrays, block by block: one triangle is multiplied, the other one mirrored or left as it is."""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

from bilinear.backends.capture import is_captured, not_captured
from bilinear.errors import BilinearError, fail
from bilinear.frontend import Loaded
from bilinear.ir.matrix import Array, layout_of
from bilinear.planner.gram import GramPlan
from bilinear.planner.plan import LIBRARY
from bilinear.runtime.arrays import Kind, multiplies_itself
from bilinear.runtime.budgets import over_budget
from bilinear.runtime.decide import check_library_accuracy
from bilinear.runtime.gram_plans import TILE, Asked, described_plan, plan_for_call
from bilinear.runtime.layouts import check_out
from bilinear.runtime.multiply import multiply
from bilinear.runtime.named import algorithm_as_it_is
from bilinear.runtime.options import Options
from bilinear.runtime.repeat import repeated
from bilinear.runtime.safety import is_writable, shares_memory


def gram_arrays(asked: Options, kind: Kind, x: Array, out: Array, triangle: str | None, plan: GramPlan | None = None) -> Array:
    """alpha * x @ x^T + beta * out on arrays of one kind, with options that were checked, by a plan or the one that is found."""
    xp, shape = kind.module, (*x.shape[:-1], x.shape[-2])
    if kind.on_gpu and is_captured():
        raise not_captured("A*A^T takes small buffers from the pool", "multiply by the transpose with matmul and out=")
    if out is not None:
        check_out(layout_of(out), is_writable(out), shape[:-2], shape[-2:], x.dtype)
        if out.shape != shape:
            raise fail("E791", f"out has shape {out.shape}, the product {shape}", "give an out of that shape, or none")
        x = _apart(x, out, asked.budget)
    if asked.buffer is not None and any(y is not None and shares_memory(asked.buffer, y) for y in (x, out)):
        raise fail("E529", "workspace shares memory with a or out", "give a separate one")
    if asked.algorithm != "auto" and not isinstance(asked.algorithm, Loaded):
        asked = asked._replace(algorithm=algorithm_as_it_is(str(asked.algorithm)))
    plan = plan or plan_for_call(Asked(asked, kind, triangle is not None), x)
    if any(step.plan == LIBRARY for step in plan.steps):
        check_library_accuracy(asked.accuracy, x.shape[-1], x.dtype)
    result = (xp.empty if triangle is None else xp.zeros)(shape, x.dtype) if out is None else out
    lower = result.swapaxes(-1, -2) if triangle == "upper" else result
    _run(plan, _Multiplies(asked, kind), x, lower, triangle is not None)
    if triangle is None:
        _mirror(xp, lower, TILE[kind.on_gpu])
    return result


def own_product(asked: Options, kind: Kind, x: Array, out: Array) -> Array:
    """alpha * x @ x^T for `matmul`, where a plan of blocks is predicted to gain; None, with nothing written, elsewhere."""
    if multiplies_itself(x) or multiplies_itself(out):
        return None
    if out is not None and (out.dtype != x.dtype or out.shape != (*x.shape[:-1], x.shape[-2]) or shares_memory(out, x)):
        return None
    try:
        plan = described_plan(Asked(asked, kind, False), x)
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


class _Multiplies(NamedTuple):
    """The multiplies of a call, with its options: by what it names, and by the library."""

    asked: Options
    kind: Kind

    def named(self, a: Array, b: Array, out: Array) -> None:
        """The product by what the call asks for. A block that ran before on a GPU is found first."""
        key, repeat = repeated(a, b, out, self.asked[:9])
        if repeat is None or repeat.run(a, b, out, self.asked.alpha, self.asked.beta) is None:
            multiply(self.asked, self.kind, key, a, b, out)

    def library(self, a: Array, b: Array, out: Array) -> None:
        """The product by the library."""
        library = self._replace(asked=self.asked._replace(algorithm="auto", levels=0, workspace=None))
        library.named(a, b, out)


def _run(plan: GramPlan, multiplies: _Multiplies, x: Array, lower: Array, one_triangle: bool) -> None:
    """Compute the lower triangle block by block, and write nothing above it if there is to be `one_triangle`."""
    xp = multiplies.kind.module
    for step in plan.steps:
        rows, columns = slice(*step.rows), slice(*step.columns)
        block, left, right = lower[..., rows, columns], x[..., rows, :], x[..., columns, :].swapaxes(-1, -2)
        multiply_block = multiplies.library if step.plan == LIBRARY else multiplies.named
        if not (step.is_diagonal and one_triangle):
            multiply_block(left, right, block)
        else:
            aside = xp.empty(block.shape, block.dtype) if multiplies.asked.beta == 0 else block.copy()
            multiply_block(left, right, aside)
            xp.copyto(block, aside, where=xp.tri(block.shape[-1], dtype=bool))


def _mirror(xp: ModuleType, lower: Array, tile: int) -> None:
    """Copy the lower triangle to the upper one, tile by tile, so that what is read by columns stays in a cache."""
    n = lower.shape[-1]
    for start in range(0, n, tile):
        rows = slice(start, min(start + tile, n))
        for before in range(0, start, tile):
            columns = slice(before, before + tile)
            lower[..., columns, rows] = lower[..., rows, columns].swapaxes(-1, -2)
        square = lower[..., rows, rows]
        xp.copyto(square, square.swapaxes(-1, -2).copy(), where=~xp.tri(square.shape[-1], dtype=bool))
