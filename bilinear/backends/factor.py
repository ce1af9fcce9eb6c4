"""alpha and beta as numbers of an element type."""

from __future__ import annotations

import numbers
from contextlib import suppress

import numpy as np

from bilinear.errors import fail
from bilinear.ir.matrix import Array, Dtype, Factor
from bilinear.ir.number import Coefficient
from bilinear.ir.schedule import BETA

MOST_PLAIN = 65504  # The largest number of float16: up to it, a number is in the range of every float.
MOST_SHOWN = 60  # The most characters of a factor in a message.


def factor(name: str, value: Array, dtype: Dtype) -> Array:
    """alpha or beta as a number of this type. A value that the type cannot hold is refused (E528).

    No value is rounded to an integer or to Inf, or loses its imaginary part. Inf and NaN are numbers of the floating-point types.
    """
    if type(value) in (int, float) and dtype.kind == "f" and abs(value) <= MOST_PLAIN:  # the usual case
        return dtype.type(value)
    value = value.item() if getattr(value, "shape", None) == () else value
    if dtype.kind == "O":
        return value
    if dtype.kind in "iub" and isinstance(value, float) and value.is_integer():
        value = int(value)
    fits = isinstance(value, numbers.Integral if dtype.kind in "iub" else numbers.Number)
    fits = fits and (dtype.kind == "c" or not isinstance(value, complex)) and (dtype.kind != "b" or value in (0, 1))
    if fits:
        with suppress(OverflowError, TypeError, ValueError), np.errstate(all="ignore"):
            number = dtype.type(complex(value) if dtype.kind == "c" else value)
            if np.isfinite(number) or not _is_finite(value):
                return number
    raise fail("E528", f"{name}={_shown(value)} is not a number that {dtype} can hold", "convert the operands, or the factor")


def kept_factor(factor: Coefficient, beta: Factor) -> Factor | Coefficient:
    """The number by which an old value is multiplied in a call with this beta."""
    return beta if factor == BETA else factor


def check_scaling(alpha: Array, largest: float, dtype: Dtype) -> None:
    """Refuse (E528) an alpha that overflows when it is multiplied by the largest coefficient of a schedule's products."""
    if largest <= 1 or dtype.kind != "f" or not np.isfinite(alpha):
        return
    with np.errstate(all="ignore"):
        fits = np.isfinite(alpha * dtype.type(largest))
    if not fits:
        message = f"alpha={alpha:g} times {largest:g}, a coefficient of the schedule, is too large for {dtype}"
        raise fail("E528", message, "scale an operand, or use levels=0")


def check_object_factors(alpha: Factor, beta: Factor, a: Array, b: Array, out: Array) -> None:
    """Refuse (E528), before anything is written, factors that cannot multiply the objects in the arrays; first elements are tried."""
    product: Array = None
    if alpha != 0 and a.size and b.size:
        with suppress(Exception):  # operands that cannot be multiplied are not the factor's fault
            product = _first(a) * _first(b)
    elif alpha != 0 and a.shape[-1] == 0:  # sums of no terms are the integer 0
        product = 0
    if product is not None:
        _check_multiplies("alpha", alpha, product, product)
    if beta != 0 and out is not None and out.size:
        _check_multiplies("beta", beta, _first(out), 0 if product is None else product)


def _check_multiplies(name: str, value: Array, element: Array, addend: Array) -> None:
    try:
        addend + value * element
    except Exception as error:
        message = f"{name}={_shown(value)} cannot multiply the objects in the arrays: {type(error).__name__}: {error}"
        raise fail("E528", message, "give a number, or convert the arrays") from None


def _first(array: Array) -> Array:
    """The first element, as an array of objects holds it."""
    return array[(slice(0, 1),) * array.ndim].astype(object).item() if array.ndim else array.item()


def _is_finite(value: Array) -> bool:
    """Whether a number of any type is finite: only then x - x is 0."""
    try:
        return bool(value - value == 0)
    except ArithmeticError:
        return False


def _shown(value: Array) -> str:
    try:
        text = repr(value)
    except ValueError:  # more digits than Python prints
        return f"an integer of {value.bit_length()} bits"
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}..."
