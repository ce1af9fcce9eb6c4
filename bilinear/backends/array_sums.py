"""Sums of arrays with exact coefficients, each rounded once to the arrays' type. They allocate nothing."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from bilinear.backends.array_tiles import Array
from bilinear.ir.linear import Form
from bilinear.ir.matrix import Dtype, Factor
from bilinear.ir.number import HELD, Coefficient, Symbolic, rounded, to_float


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
    """The number of a floating-point type nearest to a rational."""
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


def multiply(left: Array, right: Array, out: Array) -> None:
    """out = left * right."""
    np.matmul(left, right, out=out)


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
        multiply(left, right, out)
