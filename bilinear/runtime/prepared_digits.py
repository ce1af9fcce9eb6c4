"""Prepared operands of products of digits and residues: an operand's scales and digits, kept for many calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bilinear.backends.capture import is_captured, not_captured
from bilinear.backends.factor import factor
from bilinear.errors import fail
from bilinear.ir.matrix import Array, Layout, indices, layout_of
from bilinear.methods.digits.choice import Digits
from bilinear.methods.method import Bindable
from bilinear.planner.library import Library
from bilinear.runtime.arrays import Kind
from bilinear.runtime.direct import NEW, run_direct_plan, workspace_address
from bilinear.runtime.layouts import Layouts, fit
from bilinear.runtime.operands import accumulate
from bilinear.runtime.options import Options

if TYPE_CHECKING:  # imported with the first call on a GPU
    from bilinear.methods.digits.binding import Form

KEPT_BY_AUTO = False
"""Whether digits are kept where `auto` chose them, not a plan of the caller's. Not before a GPU has run them."""


@dataclass(frozen=True, eq=False)
class KeptDigits:
    """How products with a prepared operand run, and what is kept: its digits, scales and flag.

    `buffer` is None if the operand holds an Inf or a NaN: its products are the classical ones, and nothing is read but the operand.
    `form` is that of the product which it was cut for.
    """

    side: int
    digits: Digits
    form: Form
    buffer: Array

    @property
    def name(self) -> str:
        """What runs, in words."""
        return self.digits.name

    def multiply(self, options: Options, layouts: Layouts, a: Array, b: Array, out: Array) -> Array:
        """alpha * A * B + beta * out of matrices, or of a batch of the other operand, of the dtype that was prepared.

        If `out` has another dtype, or overlaps an operand, the result is computed aside from it. Raises what a call with the plan raises,
        and `BilinearError` (E538) if C lies by columns or an operand otherwise than the kernels read.
        """
        shape, dtype = fit(layouts)
        aside = out is not None and (layouts.overlaps or out.dtype != dtype)
        if out is None and is_captured():
            raise not_captured(*NEW)
        result = options.kind.module.empty(shape, dtype) if out is None or aside else out
        beta = 0 if aside else options.beta
        one = options._replace(beta=beta)
        for index in indices(shape[:-2]) if result.size else ():
            self._run(one, _at(a, index), _at(b, index), _at(result, index), result.size if aside else 0)
        if aside:
            accumulate(out, result, factor("beta", options.beta, out.dtype))
        return out if aside else result

    def _run(self, options: Options, a: Array, b: Array, c: Array, aside: int) -> None:
        from bilinear.methods.digits.binding import kept_multiply_of

        factors = factor("alpha", options.alpha, c.dtype), factor("beta", options.beta, c.dtype)
        if self.buffer is None:
            run_direct_plan(options, self.digits, a, b, c, False, factors)
            return
        own = kept_multiply_of(layout_of(a), layout_of(b), layout_of(c), self.digits, self.side)
        if own is None:
            what = f"the {Digits.title} whose digits are kept {Digits.needs}, which lies by rows"
            raise fail("E538", what, "give such arrays, or multiply without preparation")
        if own.form != self.form:
            raise fail(
                "E538", "its levels name other algorithms, or it was cut for another chip, since it was prepared", "prepare it again"
            )
        workspace = workspace_address(options, self.digits, own, a, b, c, aside)
        own(a.data.ptr, b.data.ptr, c.data.ptr, *factors, workspace, self.buffer.data.ptr)


def _at(x: Array, index: tuple[int, ...]) -> Array:
    """The matrix of a batch that belongs to this place of the result's."""
    own = index[len(index) - (x.ndim - 2) :]
    return x[tuple(min(i, extent - 1) for i, extent in zip(own, x.shape, strict=False))] if own else x


def digits_to_keep(choice: Library | Bindable, is_asked: bool, kind: Kind) -> Digits | None:
    """The product of digits that an operand of this kind is prepared for.

    None if nothing of it can be kept, which is refused (E539) if the caller's own plan says so.
    """
    if not isinstance(choice, Digits):
        reason = f"{choice.title} computes nothing from one operand alone"
    elif not kind.on_gpu:
        reason = "products of digits run on a GPU, and the library's multiply runs for arrays in the host's memory"
    elif choice.cut != (1, 1) or choice.rest:
        reason = "the plan computes C in blocks, and makes their digits one after the other"
    elif choice.needs_little:
        reason = "the plan cuts operands on their way to the unit, and holds no digits"
    else:
        return choice
    if is_asked:
        raise fail("E539", reason, "plan with memory for a product of digits of all of C, or for a schedule that expands its operands")
    return None


def kept_digits(digits: Digits, layouts: Layouts, kind: Kind, matrix: Array, side: str) -> KeptDigits:
    """The digits and scales of an operand. They are computed now, and there is a wait for the flag.

    Refused (E536) while the stream is captured, and (E538) for an operand that the kernels cannot read.
    """
    from bilinear.methods.digits.binding import kept_multiply_of

    if is_captured():
        raise not_captured("nothing can wait for what tells whether an operand holds an Inf or a NaN", "prepare it before")
    number, (m, _, n) = "AB".index(side), layouts.extents
    size = matrix.dtype.itemsize
    result = Layout((m, n), (n * size, size), matrix.dtype)
    own = kept_multiply_of(layouts.a, layouts.b, result, digits, number)
    if own is None:
        raise fail("E538", f"the {Digits.title} {Digits.needs}", "give such arrays, or multiply without preparation")
    buffer = kind.module.empty(own.kept_bytes, "uint8")
    own.fill(matrix.data.ptr, buffer.data.ptr)
    flag = int(buffer[own.flag_at :].max())
    return KeptDigits(number, digits, own.form, None if flag else buffer)
