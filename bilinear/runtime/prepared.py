"""Prepared operands: what a plan computes from one operand alone, computed once and kept for many calls."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, cast

from bilinear.backends.caches import Same
from bilinear.backends.capture import is_captured, not_captured
from bilinear.backends.executor import in_buffer
from bilinear.backends.factor import factor
from bilinear.errors import BilinearError, fail
from bilinear.ir.matrix import Array, Factor, Matrix, dense, indices, layout_of, matrix_of
from bilinear.ir.placement import MOST_EXTENT, Placement
from bilinear.methods.digits.choice import Digits
from bilinear.planner.plan import Plan, bytes_text
from bilinear.runtime.accept import accepted
from bilinear.runtime.arrays import Kept, Kind, make_executor
from bilinear.runtime.complex_parts import require_complex
from bilinear.runtime.decide import Decision, decide, placement_as_they_lie
from bilinear.runtime.devices_here import uses_library
from bilinear.runtime.matmul import matmul
from bilinear.runtime.operands import Layouts, accumulate, fit, layouts_of, matrix_at
from bilinear.runtime.options import Accuracy, Named, Options, check_factors, check_options, named_levels
from bilinear.runtime.recipe import Recipe, parted, placement_for
from bilinear.runtime.run import NEW, ready_schedule, run_direct_plan, workspace_address

if TYPE_CHECKING:
    from bilinear.methods.digits.binding import Form


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
            self._run(one, matrix_at(a, index), matrix_at(b, index), result[index], result.size if aside else 0)
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
            what = "its levels name other algorithms, or it was cut for another chip, since it was prepared"
            raise fail("E538", what, "prepare it again")
        workspace = workspace_address(options, self.digits, own, a, b, c, aside)
        own(a.data.ptr, b.data.ptr, c.data.ptr, *factors, workspace, self.buffer.data.ptr)


def kept_digits(digits: Digits, layouts: Layouts, kind: Kind, matrix: Array, side: str) -> KeptDigits:
    """The digits and scales of an operand, computed and waited for now. Refused in a capture (E536), or if unreadable (E538)."""
    from bilinear.methods.digits.binding import kept_multiply_of

    if is_captured():
        raise not_captured("nothing can wait for what tells whether an operand holds an Inf or a NaN", "prepare it before")
    number, (m, _, n) = "AB".index(side), layouts.extents
    own = kept_multiply_of(layouts.a, layouts.b, dense((m, n), matrix.dtype), digits, number)
    if own is None:
        raise fail("E538", f"the {Digits.title} {Digits.needs}", "give such arrays, or multiply without preparation")
    buffer = kind.module.empty(own.kept_bytes, "uint8")
    own.fill(matrix.data.ptr, buffer.data.ptr)
    flag = int(buffer[own.flag_at :].max())
    return KeptDigits(number, digits, own.form, None if flag else buffer)


LEFT, RIGHT = "A", "B"


@dataclass(frozen=True, eq=False)
class Prepared(Kept):
    """An operand with what its plan computes from it alone: the linear forms that are multiplied. `bilinear.prepare` makes it.

    The operand itself is not copied and must not change. Every call checks that it has not, unless `checks` is False.
    """

    operand: Array
    side: str
    options: Options
    checks: bool
    recipe: Recipe | None
    core: tuple[int, int, int]
    buffer: Array
    digest: int | None
    digits: KeptDigits | None = None

    def __repr__(self) -> str:
        m, n = self.operand.shape
        side = "left" if self.side == LEFT else "right"
        name = "the library's multiply" if self.recipe is None else ", then ".join(own.name for own in self.recipe.algorithms)
        name = name if self.digits is None else self.digits.digits.name
        return f"<Prepared {side} operand {m} x {n}, {self.operand.dtype}, for {name}: keeps {bytes_text(self.bytes)}>"

    @property
    def bytes(self) -> int:
        """The bytes that are kept, the operand itself not counted."""
        buffer = self.buffer if self.digits is None else self.digits.buffer
        return 0 if buffer is None else int(buffer.nbytes)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the operand."""
        rows, columns = self.operand.shape
        return rows, columns

    def matmul(self, other: Array, out: Array = None, *, alpha: Factor = 1, beta: Factor = 0, workspace: Array = None) -> Array:
        """alpha * A * B + beta * out, where this is one operand and `other` the other one, a matrix or a batch of them.

        Parameters
        ----------
        other : array
            Of the same kind and dtype as the operand.
        out, alpha, beta, workspace
            As in `bilinear.matmul`.

        Returns
        -------
        array
            `out` if it is given. It has the same bits as from a call with the same algorithm without preparation.

        Raises
        ------
        BilinearError
            E537 if the operand has changed, E538 if what is kept does not fit this call, and what `bilinear.matmul` raises.
        """
        check_factors(self.options._replace(alpha=alpha, beta=beta), out)
        pair = {"a": self.operand, "b": other} if self.side == LEFT else {"a": other, "b": self.operand}
        with accepted(pair, {"out": out}, workspace, own=True) as (kind, (a, b), (target,), buffer):
            options = self.options._replace(alpha=alpha, beta=beta, workspace=buffer, kind=kind)
            if self.digest is not None and _digest(kind, a if self.side == LEFT else b) != self.digest:
                raise fail("E537", "the operand has changed since it was prepared", "prepare it again")
            is_unprepared = (self.recipe is None and self.digits is None) or alpha == 0 or uses_library()
            result = (self._unprepared if is_unprepared else self._multiply)(options, a, b, target)
            return out if out is not None else kind.give_back(result)

    def _unprepared(self, options: Options, a: Array, b: Array, out: Array) -> Array:
        named, (alpha, beta, most) = options.algorithm or "auto", (options.alpha, options.beta, options.workspace)
        accuracy = options.accuracy
        return matmul(a, b, out, alpha=alpha, beta=beta, algorithm=named, levels=options.levels, workspace=most, accuracy=accuracy)

    def _multiply(self, options: Options, a: Array, b: Array, out: Array) -> Array:
        layouts = layouts_of(a, b, out)
        shape, dtype = fit(layouts)
        own, other = (layouts.a, layouts.b) if self.side == LEFT else (layouts.b, layouts.a)
        if other.dtype != own.dtype or other.ndim < 2:
            kept = f"a matrix of {own.dtype}"
            raise fail("E538", f"{kept} was prepared, and this is {other.ndim}-dimensional {other.dtype}", f"give {kept}")
        if self.digits is not None:
            return self.digits.multiply(options, layouts, a, b, out)
        recipe: Recipe = self.recipe  # type: ignore[assignment]
        result = options.kind.module.empty(shape, dtype) if out is None else out
        placement = placement_as_they_lie(recipe, layouts, shape, dtype)
        if 0 not in shape:
            self._check_fits(placement or placement_for(recipe, layouts._replace(out=None)))
        given = matrix_of(self.buffer) if self.bytes else None
        ready_schedule(options, Decision(shape, dtype, recipe, placement), recipe, a, b, result, given)()
        return result

    def _check_fits(self, placement: Placement) -> None:
        """Refuse (E538) a call whose blocks of the operand are others than those that are kept. One without a core reads none."""
        here, kept = (core[:2] if self.side == LEFT else core[1:] for core in (placement.core, self.core))
        if placement.core[0] and here != kept:
            extent = placement.n if self.side == LEFT else placement.m
            cut = f"{here[0]} x {here[1]} of the operand are cut into blocks"
            message = f"with {extent} {_lines(self.side)}, {cut}, and {kept[0]} x {kept[1]} were"
            raise fail("E538", message, f"prepare it with {_lines(self.side)}={extent}")


def prepare(
    operand: Array,
    *,
    rows: int | None = None,
    columns: int | None = None,
    algorithm: Named = "auto",
    levels: int | Literal["auto"] = "auto",
    accuracy: Accuracy = None,
    plan: Plan | None = None,
    check: bool = True,
) -> Prepared:
    """Compute once what a multiply computes from one operand alone, for many calls with that operand.

    Parameters
    ----------
    operand : array of shape (k, n) or (m, k)
        A matrix of NumPy, CuPy, or a library that speaks DLPack. It is kept, not copied, and must not change.
    rows : int
        The number of rows of the other operand, if this is the right one, B, of C = A * B.
    columns : int
        The number of columns of the other operand, if this is the left one, A. Either `rows` or `columns` is given. Calls may have others
        as long as the operand is cut into the same blocks.
    algorithm : str or Algorithm
        As in `matmul`. Under "auto" the plan is the one for a call with these extents.
    levels : int or "auto"
        As in `matmul`.
    accuracy : float or "classical" or "twice", optional
        As in `matmul`.
    plan : Plan
        A plan of `bilinear.plan` for a call with these extents, in place of the three above: one that only reads its operands and is no
        call of the library. One of digits or residues keeps the operand's digits and scales.
    check : bool
        Look at every call whether the operand has changed, which reads it once and, on a GPU, waits. Without it, a changed operand gives
        wrong products.

    Returns
    -------
    Prepared
        `matmul` takes it in place of the operand; `bytes` says what it keeps. If the plan is the library's multiply, that is nothing.

    Raises
    ------
    BilinearError
        E539 if there is nothing to keep for the named algorithm or plan, and what `matmul` raises.

    Examples
    --------
    >>> import numpy as np
    >>> import bilinear
    >>> weights = np.arange(48).reshape(6, 8)
    >>> kept = bilinear.prepare(weights, rows=4, algorithm="strassen", levels=1)
    >>> kept
    <Prepared right operand 6 x 8, int64, for strassen: keeps 512 B>
    >>> x = np.ones((4, 6), int)
    >>> bool((bilinear.matmul(x, kept) == x @ weights).all())
    True
    """
    if (rows is None) is (columns is None):
        what = "prepare() needs rows= or columns=, not both: the extent of the other operand"
        raise fail("E538", what, "give rows= to prepare B, columns= to prepare A")
    side, extent = (RIGHT, rows) if columns is None else (LEFT, columns)
    if not isinstance(extent, int) or isinstance(extent, bool) or not 0 < extent <= MOST_EXTENT:
        raise fail("E538", f"{_lines(side)}={extent!r} is not an extent", f"give an integer from 1 to {MOST_EXTENT}")
    if plan is None and algorithm != "auto":
        algorithm, levels = named_levels(algorithm, levels)
    options = Options(algorithm=algorithm, levels=levels, plan=plan, accuracy=accuracy)
    check_options(options, None)
    with accepted({"the operand": operand}, {}) as (kind, (matrix,), _, _):
        if matrix.ndim != 2:
            raise fail("E538", f"an operand of {matrix.ndim} dimension(s) cannot be prepared", "give a matrix")
        require_complex(options.algorithm, matrix)
        recipe, layouts, settled = _recipe(options, kind, matrix, side, extent)
        make = partial(Prepared, operand if hasattr(operand, "shape") else matrix, side, settled, check)
        if recipe is None:
            return make(None, (0, 0, 0), None, None)
        if not isinstance(recipe, Recipe):
            return make(None, (0, 0, 0), None, _digest(kind, matrix) if check else None, kept_digits(recipe, layouts, kind, matrix, side))
        placement, buffer = _filled(recipe, layouts, kind, matrix, side)
        return make(recipe, placement.core, buffer, _digest(kind, matrix) if check else None)


def _lines(side: str) -> str:
    return "columns" if side == LEFT else "rows"


def _recipe(options: Options, kind: Kind, matrix: Array, side: str, extent: int) -> tuple[Recipe | Digits | None, Layouts, Options]:
    """What runs with such an operand, after it has been prepared; None for the library's multiply and for plans that keep nothing."""
    own, (rows, columns) = layout_of(matrix), matrix.shape
    other = dense((columns, extent) if side == LEFT else (extent, rows), matrix.dtype)
    layouts = Layouts(own, other, None) if side == LEFT else Layouts(other, own, None)
    settled = options.settled(kind)
    decision = decide(settled, layouts)
    recipe, is_asked = decision.recipe, settled.plan is not None
    if recipe is None and 0 not in matrix.shape and is_asked:  # not of digits that `auto` chose: no GPU has run them yet
        reason = decision.choice.why_nothing_kept
        if not reason and not kind.on_gpu:
            reason = "products of digits run on a GPU, and the library's multiply runs for arrays in the host's memory"
        if reason:
            raise fail("E539", reason, "plan with memory for a product of digits of all of C, or for a schedule that expands its operands")
        return cast("Digits", decision.choice), layouts, settled
    if recipe is None or 0 in matrix.shape:
        return None, layouts, options
    levels = recipe.levels if recipe.levels != "auto" else placement_for(recipe, layouts).schedule.levels
    try:
        if recipe.rest is not None:
            raise fail("E539", "the plan computes C in parts")
        if recipe.promise != "preserve":
            raise fail("E539", "the plan writes its operands", "plan with inputs='preserve'")
        if matrix.dtype.kind == "c":
            what = f"what is computed from a matrix of {matrix.dtype} alone is not kept"
            raise fail("E539", what, "use matmul, which multiplies it by real products")
        kept = Recipe(recipe.algorithms, levels, recipe.inputs, recipe.tile, device=recipe.device, kept=side)
        placement_for(kept, layouts)
    except BilinearError:
        if settled.algorithm is not None or is_asked:
            raise
        return None, layouts, options
    return kept, layouts, settled


def _filled(recipe: Recipe, layouts: Layouts, kind: Kind, matrix: Array, side: str) -> tuple[Placement, Array]:
    """The placement of a recipe, and the buffer with everything that it computes from the operand alone; None if there is no core."""
    placement = placement_for(recipe, layouts)
    if not placement.given:
        return placement, None
    executor = make_executor(kind)
    buffer = kind.module.empty(placement.given_elements, matrix.dtype)
    first, _ = parted(Same(placement_for(replace(recipe, kept=""), layouts).schedule), side)
    m, k, n = placement.core
    core = matrix_of(matrix).part((0, m), (0, k)) if side == LEFT else matrix_of(matrix).part((0, k), (0, n))
    spaces: dict[str, Matrix] = {side: core} | in_buffer(placement, placement.given, matrix_of(buffer))
    for step in executor.steps(replace(placement, schedule=first), first.stages, spaces, 1, 0):
        step()
    return placement, buffer


def _digest(kind: Kind, operand: Array) -> int:
    executor = make_executor(kind)
    if executor.is_captured():
        raise not_captured("nothing can wait for what tells whether a prepared operand has changed", "prepare it before, with check=False")
    parts = (operand.real, operand.imag) if operand.dtype.kind == "c" else (operand,)
    return hash(tuple(executor.digest(matrix_of(part)) for part in parts))
