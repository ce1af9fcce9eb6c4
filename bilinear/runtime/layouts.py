"""The layouts of a call's arrays, and the shape and dtype of the result by the rules of `numpy.matmul`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bilinear.errors import ArrayValueError, fail
from bilinear.ir.matrix import Array, Dtype, Layout, layout_of
from bilinear.runtime.accept import broadcast, check_out, shares_memory
from bilinear.runtime.arrays import multiplies_itself


class Layouts(NamedTuple):
    """The layouts of a call's arrays, without values and addresses: they decide what runs. `out` is None for a new result."""

    a: Layout
    b: Layout
    out: Layout | None
    overlaps: bool = False
    """Whether `out` shares memory with an operand."""
    own_multiply: str | None = None
    """The type name of an array whose class has its own multiply, or None."""

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
    """Shape and dtype of the result; refuses shapes (E520) and types (E530) as `numpy.matmul` does.

    A `dtype` is that of a result which is not what NumPy's rules give.
    """
    a, b, out = layouts.a, layouts.b, layouts.out
    if a.ndim == 0 or b.ndim == 0:
        raise fail("E520", "a scalar operand has no rows and columns", "use * to scale", kind=ArrayValueError)
    if a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
        raise fail(
            "E520", f"the inner dimensions of {a.shape} and {b.shape} differ", "give A (..., m, k) and B (..., k, n)", kind=ArrayValueError
        )
    batch = broadcast(a.shape[:-2], b.shape[:-2])
    core = a.shape[-2:-1] * (a.ndim > 1) + b.shape[-1:] * (b.ndim > 1)
    dtype = np.result_type(a.dtype, b.dtype) if dtype is None else dtype
    if out is not None:
        check_out(out, batch, core, dtype)
    return batch + core if out is None else out.shape, dtype
