"""NumPy's arrays tile by tile, their sums with exact coefficients, each rounded once to the arrays' type, and linear maps of arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from bilinear.ir.linear import Form, LinearMap
from bilinear.ir.matrix import Array, Dtype, Factor
from bilinear.ir.number import HELD, Coefficient, Symbolic, rounded, to_float

Tile = tuple[slice, slice]


def tile_shape(extents: tuple[int, int], elements: int) -> tuple[int, int]:
    """The shape of tiles of at most `elements` elements: whole rows if one fits, else equal pieces of a row."""
    height, width = extents
    pieces = -(-width // elements)
    columns = -(-width // max(1, pieces))
    return max(1, min(height, elements // max(1, columns))), max(1, columns)


def tiles_by_row(height: int, width: int, elements: int) -> Iterator[Tile]:
    """Tiles of at most `elements` elements that cover height x width."""
    rows, columns = tile_shape((height, width), elements)
    for i in range(0, height, rows):
        for j in range(0, width, columns):
            yield slice(i, min(i + rows, height)), slice(j, min(j + columns, width))


def tiles_along(extents: tuple[int, int], by_column: bool, elements: int) -> Iterator[Tile]:
    """Tiles of whole rows, or of whole columns where those are contiguous."""
    if not by_column:
        return tiles_by_row(*extents, elements)
    return ((rows, columns) for columns, rows in tiles_by_row(extents[1], extents[0], elements))


def tile_count(extents: tuple[int, int], elements: int) -> int:
    """How many tiles of at most `elements` elements cover these extents."""
    rows, columns = tile_shape(extents, elements)
    return -(-extents[0] // rows) * -(-extents[1] // columns)


def is_by_column(array: Array) -> bool:
    """Whether neighbours in a column lie closer together than neighbours in a row."""
    return bool(abs(array.strides[0]) < abs(array.strides[1]))


def shaped(buffer: Array, shape: tuple[int, int], by_column: bool) -> Array:
    """The start of a buffer as a matrix of this shape."""
    start = buffer[: shape[0] * shape[1]]
    return start.reshape(shape[::-1]).T if by_column else start.reshape(shape)


def is_readable(array: Array) -> bool:
    """Whether NumPy multiplies the array where it lies; if not, it first copies the whole array."""
    if array.dtype.char not in "fd" or array.size == 0:
        return bool(array.flags.aligned)
    row, column = array.strides if not is_by_column(array) else array.strides[::-1]
    width = array.shape[0] if is_by_column(array) else array.shape[1]
    return bool(array.flags.aligned and column == array.itemsize and row % column == 0 and row >= column * width)


def coefficient(value: Coefficient, dtype: Dtype) -> Any:
    """An exact coefficient as a number of the array's type: rounded once for floats, modulo the range for integers, exact for objects."""
    if dtype.kind == "O":
        return value
    if isinstance(value, Symbolic):
        return dtype.type(to_float(value))
    if dtype.kind in "iu":
        if value.denominator != 1:
            raise ArithmeticError(f"{dtype} cannot hold the coefficient {value}")
        return np.uint64(int(value) % 2**64).astype(dtype)
    if max(abs(value.numerator), value.denominator) <= HELD:
        number: Any = dtype.type
        return number(value.numerator) / number(value.denominator)
    return _nearest(value, dtype)


@lru_cache(maxsize=4096)
def _nearest(value: int | Fraction, dtype: Dtype) -> Any:
    kind = np.finfo(str(dtype))
    mantissa, exponent = rounded(value, kind.nmant + 1, kind.minexp - kind.nmant)
    return np.ldexp(dtype.type(mantissa), exponent)


def combine(terms: Form, values: list[Array], out: Array, scratch: Array) -> None:
    """out = the linear form over the values; `out` may be the value of the first term."""
    if not terms:
        out[...] = 0
        return
    (index, first), *rest = terms
    if first == 1 and rest and rest[0][1] in (1, -1):
        (other, sign), *rest = rest
        (np.add if sign == 1 else np.subtract)(values[index], values[other], out=out)
    elif first == 1:
        np.copyto(out, values[index])
    else:
        np.multiply(values[index], coefficient(first, out.dtype), out=out)
    for index, c in rest:
        add(out, values[index], scratch, c if c in (1, -1) else coefficient(c, out.dtype), 1)


def add(out: Array, value: Array, scratch: Array, factor: Any, keep: Any) -> None:
    """out = keep * out + factor * value; with keep = 0 the old value is not read, and `value` may be `out` itself."""
    if keep == 0:
        if factor != 1:
            np.multiply(value, factor, out=out)
        elif value is not out:
            np.copyto(out, value)
        return
    if keep != 1:
        np.multiply(out, keep, out=out)
    if factor == 1:
        np.add(out, value, out=out)
    elif factor == -1:
        np.subtract(out, value, out=out)
    else:
        np.multiply(value, factor, out=scratch)
        np.add(out, scratch, out=out)


class ElementArithmetic:
    """How sums and products of elements are computed: in their own type, in which integers wrap around."""

    def factor(self, value: Coefficient, alpha: Factor, dtype: Dtype) -> Any:
        """alpha times a coefficient, by which a product is multiplied."""
        with np.errstate(over="ignore"):
            return alpha * coefficient(value, dtype)

    def combine(self, terms: Form, values: list[Array], out: Array, scratch: Array) -> None:
        """out = the linear form over the values; `out` may be the value of the first term."""
        combine(terms, values, out, scratch)

    def add(self, out: Array, value: Array, scratch: Array, factor: Any, keep: Any) -> None:
        """out = keep * out + factor * value; with keep = 0 the old value is not read, and `value` may be `out` itself."""
        add(out, value, scratch, factor, keep)

    def multiply(self, left: Array, right: Array, out: Array) -> None:
        """out = left * right."""
        np.matmul(left, right, out=out)


Sum = Callable[[Form, list[Array]], Array]  # What computes a linear form of arrays.


def blocks_of(x: Array, rows: int, columns: int) -> list[Array]:
    """The blocks of a matrix, row by row, as views; rows and columns divide its shape."""
    height, width = x.shape[0] // rows, x.shape[1] // columns
    return [x[i * height : (i + 1) * height, j * width : (j + 1) * width] for i in range(rows) for j in range(columns)]


def added_up(form: Form, values: list[Array]) -> Array:
    """A linear form of arrays of NumPy or CuPy: a new array, or the value itself if the form is one."""
    if len(form) == 1 and form[0][1] == 1:
        return values[form[0][0]]
    out = np.empty_like(values[0], order="C")
    combine(form, values, out, np.empty_like(out) if any(c not in (1, -1) for _, c in form[1:]) else out)
    return out


def evaluate(linear: LinearMap, values: Sequence[Array], add_up: Sum = added_up) -> list[Array]:
    """The outputs of a linear map of arrays of one shape."""
    known = _with_steps(linear, values, add_up)
    return [add_up(output, known) for output in linear.outputs]


def evaluate_into(linear: LinearMap, values: Sequence[Array], outs: Sequence[Array]) -> None:
    """Write the outputs of a linear map of arrays of NumPy or CuPy to arrays that share no memory with the values."""
    known = _with_steps(linear, values, added_up)
    has_factors = any(c not in (1, -1) for output in linear.outputs for _, c in output[1:])
    scratch = np.empty_like(known[0], order="C") if has_factors else known[0]
    for output, out in zip(linear.outputs, outs, strict=True):
        combine(output, known, out, scratch)


def _with_steps(linear: LinearMap, values: Sequence[Array], add_up: Sum) -> list[Array]:
    """The values, and the named sums of a linear map of them."""
    known = list(values)
    for step in linear.steps:
        known.append(add_up(step, known))
    return known
