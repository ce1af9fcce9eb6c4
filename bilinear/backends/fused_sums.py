"""Linear maps of CuPy's arrays in one kernel: each input is read once, sums stay in registers, each output is written once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import cupy
import numpy as np

from bilinear.backends.array_sums import coefficient
from bilinear.ir.linear import Form, LinearMap
from bilinear.ir.matrix import Array

MOST_ARRAYS = 48
"""Inputs and outputs of a kernel: their addresses, shapes and strides are its parameters, of which there are 4 KiB."""
TYPES = "float32", "float64"


def fuses(linear: LinearMap, dtype: np.dtype[np.generic]) -> bool:
    """Whether a map is one kernel."""
    return dtype.name in TYPES and linear.inputs + len(linear.outputs) <= MOST_ARRAYS


def evaluate_fused(linear: LinearMap, values: Sequence[Array], outs: Sequence[Array]) -> None:
    """Write the outputs of a map of arrays of one shape; an output may be None, and is left out then."""
    written = tuple(at for at, out in enumerate(outs) if out is not None)
    if written:
        _kernel(linear, written, values[0].dtype)(*values, *(outs[at] for at in written))


@lru_cache(maxsize=256)
def _kernel(linear: LinearMap, written: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
    names = [f"x{at}" for at in range(linear.inputs)]
    lines = []
    for at, step in enumerate(linear.steps):
        lines.append(f"T t{at} = {_sum(step, names, dtype)};")
        names.append(f"t{at}")
    lines += [f"y{at} = {_sum(linear.outputs[at], names, dtype)};" for at in written]
    given = ", ".join(f"T {name}" for name in names[: linear.inputs])
    return cupy.ElementwiseKernel(given, ", ".join(f"T y{at}" for at in written), " ".join(lines), "bilinear_sums")


def _sum(form: Form, names: Sequence[str], dtype: np.dtype[np.generic]) -> str:
    """A linear form in C, its terms in their order."""
    terms = []
    for index, c in form:
        if c in (1, -1):
            terms.append(f"{'+' if c == 1 else '-'} {names[index]}")
        else:
            terms.append(f"+ (T)({float(coefficient(c, dtype))!r}) * {names[index]}")
    return " ".join(terms).removeprefix("+ ") or "0"
