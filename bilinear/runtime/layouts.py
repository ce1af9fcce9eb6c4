"""The layouts of a call's arrays, and the shape and dtype of the result by the rules of `numpy.matmul`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bilinear.ir.matrix import Array, Dtype, Layout, layout_of
from bilinear.runtime.arrays import multiplies_itself
from bilinear.runtime.safety import is_writable, shares_memory


class Layouts(NamedTuple):
    """The layouts of a call's arrays, without values and addresses: they decide what runs. `out` is None for a new result."""

    a: Layout
    b: Layout
    out: Layout | None
    overlaps: bool = False
    """Whether `out` shares memory with an operand."""
    is_writable: bool = True
    """Whether `out` may be written."""
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
    return Layouts(layout_of(a), layout_of(b), layout_of(out), overlaps, is_writable(out), own)


def fit(layouts: Layouts, dtype: Dtype | None = None) -> tuple[tuple[int, ...], Dtype]:
    """Shape and dtype of the result; raises `ValueError` and `TypeError` where `numpy.matmul` does.

    A `dtype` is that of a result which is not what NumPy's rules give.
    """
    a, b, out = layouts.a, layouts.b, layouts.out
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError("matmul: a scalar operand has no rows and columns (use * to scale)")
    if a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
        raise ValueError(f"matmul: the inner dimensions of {a.shape} and {b.shape} differ")
    batch = _broadcast(a.shape[:-2], b.shape[:-2])
    core = a.shape[-2:-1] * (a.ndim > 1) + b.shape[-1:] * (b.ndim > 1)
    dtype = np.result_type(a.dtype, b.dtype) if dtype is None else dtype
    if out is not None:
        check_out(out, layouts.is_writable, batch, core, dtype)
    return batch + core if out is None else out.shape, dtype


def _broadcast(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    """The broadcast shape of two batches. NumPy's function stops at 32 dimensions; this one does not."""
    longer, shorter = (first, second) if len(first) >= len(second) else (second, first)
    filled = (1,) * (len(longer) - len(shorter)) + shorter
    if any(x != y and 1 not in (x, y) for x, y in zip(longer, filled, strict=True)):
        raise ValueError(f"matmul: batches of shapes {first} and {second} cannot be broadcast")
    return tuple(y if x == 1 else x for x, y in zip(longer, filled, strict=True))


def check_out(out: Layout, is_writable: bool, batch: tuple[int, ...], core: tuple[int, ...], dtype: Dtype) -> None:
    """Refuse an `out` that cannot take a result of this shape and type, as `numpy.matmul` does."""
    leading = out.shape[: max(0, out.ndim - len(core))]
    if leading + core != out.shape or _broadcast(batch, leading) != leading:
        raise ValueError(f"matmul: out has shape {out.shape}, the result {batch + core}")
    if not np.can_cast(dtype, out.dtype, "same_kind"):
        raise TypeError(f"matmul: out of {out.dtype} cannot hold {dtype}")
    if not is_writable:
        raise ValueError("matmul: out is read-only")
    if out.overlaps_itself:
        raise ValueError("matmul: elements of out share memory")
