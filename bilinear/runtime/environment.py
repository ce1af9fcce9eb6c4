"""The environment variables of a multiply. Every call reads them, so that a change takes effect at once."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

USE_LIBRARY, DEVICE = b"BILINEAR_USE_LIBRARY", b"BILINEAR_DEVICE"


def _reader() -> Callable[[bytes], bytes | None]:
    """A function that reads a variable: on POSIX the C library's `getenv`, because `os.environ.get` takes five times as long.

    `os.environ` writes to the C library, too. Both hold the GIL, so no variable changes while it is read.
    """
    if os.name != "posix":
        return lambda name: os.fsencode(os.environ.get(name.decode(), "")) or None
    getenv = ctypes.PyDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    return getenv


value_of = _reader()
"""The value of a variable, as bytes; None if it is not set."""


def uses_library() -> bool:
    """Whether BILINEAR_USE_LIBRARY makes every call the library's multiply."""
    value = value_of(USE_LIBRARY)
    return value is not None and value not in (b"", b"0")
