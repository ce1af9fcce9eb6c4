"""alpha and beta as numbers of an element type."""

from __future__ import annotations

import numbers
from contextlib import suppress
from typing import Any

from bilinear.errors import fail

MOST_PLAIN = 2**53
"""Below this a factor is a float of any width; above it, integers may be too large for one."""


def factor(name: str, value: Any, dtype: Any) -> Any:
    """alpha or beta as a number of this type; what the type cannot hold is refused, not rounded to an integer or made real (E528)."""
    if type(value) in (int, float) and dtype.kind == "f" and abs(value) < MOST_PLAIN:  # what most calls give
        return dtype.type(value)
    value = value.item() if getattr(value, "shape", None) == () else value
    if dtype.kind == "O":
        return value
    kinds = {"c": numbers.Number, "f": numbers.Number, "i": numbers.Integral, "u": numbers.Integral, "b": numbers.Integral}
    fits = isinstance(value, kinds[dtype.kind]) and (dtype.kind == "c" or not isinstance(value, complex))
    if fits and (dtype.kind != "b" or value in (0, 1)):
        with suppress(OverflowError):
            return dtype.type(complex(value) if dtype.kind == "c" else value)
    raise fail("E528", f"{name}={value!r} is no number that {dtype} can hold", "convert the operands, or the factor")
