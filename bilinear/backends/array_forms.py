"""Linear maps of arrays: sums of a scheme's blocks, by the steps that its author wrote."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bilinear.backends.array_sums import combine
from bilinear.ir.linear import Form, LinearMap
from bilinear.ir.matrix import Array

Sum = Callable[[Form, list[Array]], Array]
"""What computes a linear form of arrays."""


def blocks_of(x: Array, rows: int, columns: int) -> list[Array]:
    """The blocks of a matrix, row by row, as views; rows and columns divide its shape."""
    height, width = x.shape[0] // rows, x.shape[1] // columns
    return [x[i * height : (i + 1) * height, j * width : (j + 1) * width] for i in range(rows) for j in range(columns)]


def added_up(form: Form, values: list[Array]) -> Array:
    """A linear form of arrays of NumPy or CuPy: a new array, or the value itself if the form is one."""
    if len(form) == 1 and form[0][1] == 1:
        return values[form[0][0]]
    out = np.empty_like(values[0], order="C")
    combine(form, values, out, scratch_for(form, out))
    return out


def scratch_for(form: Form, out: Array) -> Array:
    """An array for what is multiplied by a coefficient, if the form needs one."""
    return np.empty_like(out) if any(c not in (1, -1) for _, c in form[1:]) else out


def evaluate(linear: LinearMap, values: Sequence[Array], add_up: Sum = added_up) -> list[Array]:
    """The outputs of a linear map of arrays of one shape."""
    known = list(values)
    for step in linear.steps:
        known.append(add_up(step, known))
    return [add_up(output, known) for output in linear.outputs]
