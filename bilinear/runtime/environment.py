"""What the environment asks of a multiply. Every call looks, so that a change takes effect at once."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

USE_LIBRARY, DEVICE = b"BILINEAR_USE_LIBRARY", b"BILINEAR_DEVICE"


def _reader() -> Callable[[bytes], bytes | None]:
    """On POSIX `getenv` of the C library, to which `os.environ` writes through: `os.environ.get` takes five times as long.

    It holds the GIL, as does whoever sets a variable in Python.
    """
    if os.name != "posix":
        return lambda name: os.fsencode(os.environ.get(name.decode(), "")) or None
    getenv = ctypes.PyDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    return getenv


value_of = _reader()
"""The value of a variable, as bytes; None where it is not set."""


def uses_library() -> bool:
    """Whether BILINEAR_USE_LIBRARY asks for the library's multiply everywhere."""
    value = value_of(USE_LIBRARY)
    return value is not None and value not in (b"", b"0")
