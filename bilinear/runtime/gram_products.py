"""The steps of A*A^T on arrays: multiply two blocks by the named algorithm, or one by its transpose by the library; mirror a triangle."""

from __future__ import annotations

from typing import NamedTuple

from bilinear.ir.element import Element
from bilinear.ir.matrix import Array, Factor, layout_of
from bilinear.methods.digits.choice import Digits
from bilinear.planner.gram import TRIANGLE_TILE, GramPlan, plan_by_size
from bilinear.planner.plan import LIBRARY
from bilinear.runtime.arrays import Kind
from bilinear.runtime.direct import within_limits
from bilinear.runtime.gram_plans import TILE
from bilinear.runtime.half import by_half_itself
from bilinear.runtime.multiply import multiply
from bilinear.runtime.options import Options
from bilinear.runtime.repeat import repeated


class GramMultiplies(NamedTuple):
    """The multiplies of a call, with its options; of arrays that hold the bits of an `element` of 16 bits if one is named."""

    asked: Options
    kind: Kind
    element: Element | None = None

    def general(self, a: Array, b: Array, out: Array, alpha: Factor, beta: Factor) -> None:
        """alpha * a @ b + beta * out by what the call asks for. A product that ran before on a GPU is found first."""
        asked = self.asked._replace(alpha=alpha, beta=beta)
        if self.element is not None:
            by_half_itself(asked, self.kind, self.element, a, b, out)
            return
        key, repeat = repeated(a, b, out, asked[:9])
        if repeat is None or repeat.run(a, b, out, alpha, beta) is None:
            multiply(asked, self.kind, key, a, b, out)

    def library(self, a: Array, b: Array, out: Array, alpha: Factor, beta: Factor) -> None:
        """The same by the library."""
        library = self._replace(asked=self.asked._replace(algorithm="auto", levels=0, workspace=None))
        library.general(a, b, out, alpha, beta)

    def own(self, x: Array, out: Array, alpha: Factor) -> None:
        """alpha * x @ x^T, both triangles."""
        self.library(x, x.swapaxes(-1, -2), out, alpha, 0)

    def triangle(self, x: Array, lower: Array, alpha: Factor, beta: Factor) -> None:
        """The lower triangle of alpha * x @ x^T + beta * lower by the library; nothing above the diagonal is read or written."""
        plan = plan_by_size(x.shape[-2], x.shape[-1], str(x.dtype), TILE[self.kind.on_gpu], LIBRARY)
        self.blocks(plan, x, lower, (alpha, beta), True)

    def blocks(self, plan: GramPlan, x: Array, lower: Array, factors: tuple[Factor, Factor], one_triangle: bool) -> None:
        """Compute the lower triangle block by block, and write nothing above it if there is to be `one_triangle`."""
        xp = self.kind.module
        for step in plan.steps:
            rows, columns = slice(*step.rows), slice(*step.columns)
            block, left, right = lower[..., rows, columns], x[..., rows, :], x[..., columns, :].swapaxes(-1, -2)
            if step.is_mirrored:
                self.by_triangle(left, right, block, *factors)
                continue
            multiply_block = self.library if step.plan == LIBRARY else self.general
            if not (step.is_diagonal and one_triangle):
                multiply_block(left, right, block, *factors)
            else:
                aside, mask = xp.zeros(block.shape, block.dtype), xp.tri(block.shape[-1], dtype=bool)
                if factors[1] != 0:
                    xp.copyto(aside, block, where=mask)
                multiply_block(left, right, aside, *factors)
                xp.copyto(block, aside, where=mask)

    def by_triangle(self, x: Array, transposed: Array, out: Array, alpha: Factor, beta: Factor) -> None:
        """Both triangles of alpha * x @ x^T + beta * out, of which the lower one is read, by digits in one launch; else by two matrices."""
        from bilinear.methods.digits.triangle import triangle_multiply_of

        digits = Digits((), TRIANGLE_TILE)
        own = triangle_multiply_of(layout_of(x), layout_of(out), digits)
        if own is None:
            self.general(x, transposed, out, alpha, beta)
            self.mirror(out)
            return
        run = within_limits(self.asked, digits, own, x, transposed, out)
        run(x.data.ptr, x.data.ptr, out.data.ptr, alpha, beta)

    def mirror_blocks(self, plan: GramPlan, lower: Array) -> None:
        """Copy the lower triangle to the upper one, where a block's own multiply has not done so."""
        if not any(step.is_mirrored for step in plan.steps):
            self.mirror(lower)
            return
        for step in plan.steps:
            rows, columns = slice(*step.rows), slice(*step.columns)
            if not step.is_diagonal:
                lower[..., columns, rows] = lower[..., rows, columns].swapaxes(-1, -2)
            elif not step.is_mirrored:
                self.mirror(lower[..., rows, rows])

    def mirror(self, lower: Array) -> None:
        """Copy the lower triangle to the upper one, tile by tile, so that what is read by columns stays in a cache."""
        xp, n, tile = self.kind.module, lower.shape[-1], TILE[self.kind.on_gpu]
        for start in range(0, n, tile):
            rows = slice(start, min(start + tile, n))
            for before in range(0, start, tile):
                columns = slice(before, before + tile)
                lower[..., columns, rows] = lower[..., rows, columns].swapaxes(-1, -2)
            square = lower[..., rows, rows]
            xp.copyto(square, square.swapaxes(-1, -2).copy(), where=~xp.tri(square.shape[-1], dtype=bool))
