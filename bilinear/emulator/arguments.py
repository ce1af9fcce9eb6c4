"""The arguments of a launch as C values, and the argument that an address belongs to."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]


Value = Array | tuple[Array, int] | int | float | np.generic | None


SCALARS: dict[str, Any] = {
    "double": ctypes.c_double,
    "float": ctypes.c_float,
    "bool": ctypes.c_bool,
    "char": ctypes.c_int8,
    "short": ctypes.c_short,
    "int": ctypes.c_int,
    "unsigned": ctypes.c_uint,
    "unsigned int": ctypes.c_uint,
    "long": ctypes.c_long,
    "unsigned long": ctypes.c_ulong,
    "size_t": ctypes.c_size_t,
    "long long": ctypes.c_longlong,
    "unsigned long long": ctypes.c_ulonglong,
    "cuda_on_cpu::Field": ctypes.c_uint64,
    "Residue": ctypes.c_uint64,  # of templates/modular.cu.j2
}


ELEMENTS = {
    "double": "f8",
    "float": "f4",
    "int": "i4",
    "unsigned": "u4",
    "unsigned int": "u4",
    "long long": "i8",
    "unsigned long long": "u8",
    "cuda_on_cpu::Field": "u8",
}


def _words(ctype: str) -> str:
    return " ".join(re.sub(r"\b(const|volatile|__restrict__)\b", " ", ctype).replace("*", " * ").split())


def _pointer(ctype: str, value: Value) -> int:
    """The address passed for a pointer parameter."""
    if value is None:
        return 0
    if isinstance(value, (int, np.integer)):
        return int(value)
    array, offset = value if isinstance(value, tuple) else (value, 0)
    if not isinstance(array, np.ndarray):
        raise TypeError(f"a parameter of type {ctype} takes an array, an (array, offset) pair or an address, not {value!r}")
    element = ELEMENTS.get(_words(ctype).removesuffix("*").strip())
    if element is not None and array.dtype != np.dtype(element):
        raise TypeError(f"a parameter of type {ctype} does not take an array of {array.dtype}")
    return array.ctypes.data + offset * array.itemsize


def marshal(ctype: str, value: Value) -> Any:
    """A ctypes object that holds the value of one parameter.

    Raises TypeError for a value of the wrong kind and OverflowError for an integer that the parameter cannot hold.
    """
    words = _words(ctype)
    if "*" in words:
        return ctypes.c_void_p(_pointer(ctype, value))
    kind = SCALARS.get(words)
    if kind is None:
        raise TypeError(f"no parameter of type {ctype!r} can be passed")
    if isinstance(value, (np.ndarray, tuple)) or value is None:
        raise TypeError(f"a parameter of type {ctype} takes a number, not {type(value).__name__}")
    if kind in (ctypes.c_double, ctypes.c_float):
        return kind(float(value))
    if not isinstance(value, (int, np.integer, np.bool_)):
        raise TypeError(f"a parameter of type {ctype} takes an integer, not {value!r}")
    held = kind(int(value))
    if held.value != int(value):
        raise OverflowError(f"{value} does not fit a parameter of type {ctype}")
    return held


def nearest(address: int, args: Sequence[Value]) -> str:
    """Describe an address relative to the closest array that was passed."""
    best: tuple[int, str] | None = None
    for number, value in enumerate(args):
        array = value[0] if isinstance(value, tuple) else value
        if not isinstance(array, np.ndarray):
            continue
        low, high = _byte_bounds(array)
        if address < low:
            found = (low - address, f", {low - address} bytes before argument {number}")
        elif address >= high:
            found = (address - high, f", {address - high} bytes past the end of argument {number}")
        else:
            found = (0, f", byte {address - low} of argument {number}")
        if best is None or found[0] < best[0]:
            best = found
    return "" if best is None else best[1]


def _byte_bounds(array: Array) -> tuple[int, int]:
    steps = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True) if size]
    low = array.ctypes.data + sum(step for step in steps if step < 0)
    high = array.ctypes.data + sum(step for step in steps if step > 0)
    return low, high + (array.itemsize if array.size else 0)
