"""The problem that operands make, as `numpy.matmul` has it: shapes and dtypes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bilinear.runtime.safety import is_writable, overlaps_itself


@dataclass(frozen=True)
class ArrayProblem:
    """Shape and dtype of a result, as `numpy.matmul` has them."""

    shape: tuple[int, ...]
    dtype: Any


def fit(a: Any, b: Any, out: Any) -> ArrayProblem:
    """The problem that the operands make; raises `ValueError` and `TypeError` where `numpy.matmul` does."""
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError("matmul: a scalar operand has no rows and columns (use * to scale)")
    if a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
        raise ValueError(f"matmul: the inner dimensions of {a.shape} and {b.shape} differ")
    batch = _broadcast(a.shape[:-2], b.shape[:-2])
    core = a.shape[-2:-1] * (a.ndim > 1) + b.shape[-1:] * (b.ndim > 1)
    dtype = np.result_type(a.dtype, b.dtype)
    if out is not None:
        _check_out(out, batch, core, dtype)
    return ArrayProblem(batch + core if out is None else out.shape, dtype)


def _broadcast(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of two batches together, of any number of dimensions; NumPy's own ends at 32."""
    longer, shorter = (first, second) if len(first) >= len(second) else (second, first)
    filled = (1,) * (len(longer) - len(shorter)) + shorter
    if any(x != y and 1 not in (x, y) for x, y in zip(longer, filled, strict=True)):
        raise ValueError(f"matmul: batches of shapes {first} and {second} do not go together")
    return tuple(y if x == 1 else x for x, y in zip(longer, filled, strict=True))


def _check_out(out: Any, batch: tuple[int, ...], core: tuple[int, ...], dtype: Any) -> None:
    leading = out.shape[: max(0, out.ndim - len(core))]
    if leading + core != out.shape or _broadcast(batch, leading) != leading:
        raise ValueError(f"matmul: out has shape {out.shape}, the result {batch + core}")
    if not np.can_cast(dtype, out.dtype, "same_kind"):
        raise TypeError(f"matmul: out of {out.dtype} cannot hold {dtype}")
    if not is_writable(out):
        raise ValueError("matmul: out is read-only")
    if overlaps_itself(out):
        raise ValueError("matmul: elements of out share memory")
