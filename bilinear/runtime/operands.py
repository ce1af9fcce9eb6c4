"""Operands of a call: their layouts, the shape and type of the result, and what the backends take."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bilinear.errors import ArrayValueError, fail
from bilinear.ir.matrix import Array, Dtype, Factor, Layout, layout_of, matrix_of
from bilinear.runtime.accept import UNFIT, broadcast, can_serve, check_out, shares_memory
from bilinear.runtime.arrays import multiplies_itself

if TYPE_CHECKING:  # a plan needs none of what options import
    from bilinear.runtime.options import Options

LESS = "use fewer levels, algorithm='auto', or msmes"  # Where a schedule needs too much workspace.


class Layouts(NamedTuple):
    """The layouts of a call's arrays, without values and addresses: they decide what runs. `out` is None for a new result."""

    a: Layout
    b: Layout
    out: Layout | None
    overlaps: bool = False  # Whether `out` shares memory with an operand.
    own_multiply: str | None = None  # The type name of an array whose class has its own multiply, or None.

    @property
    def given(self) -> tuple[Layout, ...]:
        """The layouts of A, B and, if it is given, `out`."""
        return (self.a, self.b) if self.out is None else (self.a, self.b, self.out)

    @property
    def extents(self) -> tuple[int, int, int]:
        """m, k and n of each product; a vector is a row on the left, a column on the right."""
        return (self.a.shape[-2] if self.a.ndim > 1 else 1, self.a.shape[-1], self.b.shape[-1] if self.b.ndim > 1 else 1)

    @property
    def by_column(self) -> tuple[str, ...]:
        """Which of matrices A, B and C have contiguous columns."""
        return tuple(name for name, x in zip("ABC", self.given, strict=False) if x.is_by_column)

    def are_matrices_of(self, dtype: Dtype) -> bool:
        """Whether all are matrices, or batches of them, of this dtype."""
        return all(x.ndim > 1 and x.dtype == dtype for x in self.given)


def layouts_of(a: Array, b: Array, out: Array) -> Layouts:
    """The layouts of NumPy or CuPy arrays."""
    own = next((type(x).__name__ for x in (a, b, out) if multiplies_itself(x)), None)
    if out is None:
        return Layouts(layout_of(a), layout_of(b), None, own_multiply=own)
    overlaps = shares_memory(out, a) or shares_memory(out, b)
    return Layouts(layout_of(a), layout_of(b), layout_of(out), overlaps, own)


def fit(layouts: Layouts, dtype: Dtype | None = None) -> tuple[tuple[int, ...], Dtype]:
    """Shape and dtype of the result (`dtype`, if NumPy's rules do not give it); refuses E520 and E530 as `numpy.matmul` does."""
    a, b, out = layouts.a, layouts.b, layouts.out
    if a.ndim == 0 or b.ndim == 0:
        raise fail("E520", "a scalar operand has no rows and columns", "use * to scale", kind=ArrayValueError)
    if a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
        what = f"the inner dimensions of {a.shape} and {b.shape} differ"
        raise fail("E520", what, "give A (..., m, k) and B (..., k, n)", kind=ArrayValueError)
    batch = broadcast(a.shape[:-2], b.shape[:-2])
    core = a.shape[-2:-1] * (a.ndim > 1) + b.shape[-1:] * (b.ndim > 1)
    dtype = np.result_type(a.dtype, b.dtype) if dtype is None else dtype
    if out is not None:
        check_out(out, batch, core, dtype)
    return batch + core if out is None else out.shape, dtype


def as_matrices(a: Array, b: Array, out: Array) -> tuple[Array, Array, Array]:
    """Operands and result as plain (..., rows, columns) arrays: a vector is a row on the left, a column on the right."""
    left, right, target = (np.asarray(x) if isinstance(x, np.ndarray) else x for x in (a, b, out))
    if a.ndim == 1:
        left, target = left[None, :], target[..., None, :] if b.ndim > 1 else target[..., None]
    if b.ndim == 1:
        right, target = right[:, None], target[..., None]
    return left, right, target


def matrix_at(x: Array, index: tuple[int, ...]) -> Array:
    """The matrix of a batch that belongs to this place of a broadcast batch: extents that are missing or 1 repeat."""
    own = index[len(index) - (x.ndim - 2) :]
    return x[tuple(i if extent > 1 else 0 for i, extent in zip(own, x.shape, strict=False))]


def fresh(xp: ModuleType, shape: tuple[int, ...], dtype: Dtype, by_columns: bool) -> Array:
    """An uninitialised matrix, or a batch of them, by rows or by columns."""
    return xp.empty((*shape[:-2], shape[-1], shape[-2]), dtype).swapaxes(-1, -2) if by_columns else xp.empty(shape, dtype)


def accumulate(out: Array, product: Array, beta: Factor) -> None:
    """out = product + beta * out, in the type of `out`; with beta = 0 `out` is not read."""
    if beta == 0:
        out[...] = product
        return
    added = product.astype(out.dtype, copy=False)  # allocated before the first write: memory may be short
    out *= beta
    out += added


def require_budget(options: Options, name: str, needed: int, hint: str = LESS) -> None:
    """Refuse (E535) what needs more bytes of workspace than are allowed."""
    if options.budget is not None and needed > options.budget:
        raise fail("E535", f"{name} needs {needed} bytes of workspace, {options.budget} are allowed", hint)


def workspace_array(
    options: Options, name: str, elements: int, result: Array, *others: Array, aside: int = 0, alignment: int = 1, hint: str = LESS
) -> Array:
    """A workspace of so many elements of the result's type: the caller's, as `given_workspace` says, or a new one.

    Refuses (E535) one that, together with a result of `aside` bytes that is computed apart from `out`, needs more than is allowed.
    """
    if options.buffer is not None and elements:
        return given_workspace(options, elements, result, *others, alignment=alignment)
    require_budget(options, name, elements * result.dtype.itemsize + aside, hint)
    return options.kind.module.empty(elements, result.dtype)


def given_workspace(options: Options, elements: int, result: Array, *others: Array, alignment: int = 1) -> Array:
    """The caller's buffer as elements of the result's type; refused (E529) if it cannot be used so, or shares memory with an array.

    On a GPU its address must be a multiple of an element's bytes, and of `alignment`.
    """
    buffer, needed = options.buffer, elements * result.dtype.itemsize
    if not can_serve(buffer, options.kind):
        raise fail("E529", UNFIT, f"give one of {needed} bytes")
    if buffer.dtype != result.dtype and (buffer.dtype.hasobject or result.dtype.hasobject):
        message = f"workspace holds {buffer.dtype}, but must hold {result.dtype}"
        raise fail("E529", message, f"give {elements} elements of {result.dtype}")
    multiple = max(alignment, result.dtype.itemsize)
    if options.kind.on_gpu and matrix_of(buffer).address % multiple:
        reason = "which bulk copies read" if alignment > 1 else f"the bytes of {result.dtype}"
        message = f"workspace begins at an address that is not a multiple of {multiple}, {reason}"
        raise fail("E529", message, f"give {elements} elements of {result.dtype}")
    if buffer.nbytes < needed or any(shares_memory(buffer, x) for x in (result, *others)):
        message = f"workspace has {buffer.nbytes} bytes; it must have {needed}, and share no memory with a, b and out"
        raise fail("E529", message, "give a larger buffer, or a separate one")
    return buffer if buffer.dtype == result.dtype else buffer.view(np.uint8)[:needed].view(result.dtype)
