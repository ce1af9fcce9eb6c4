"""numba, imported when it is needed, and the folder of what it compiles."""

from __future__ import annotations

from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

from bilinear.errors import fail

SOURCES = ("kernels.py", "walker.py")
"""What goes into the machine code; numba itself would look at the first one alone."""


def kernels(folder: Path | None) -> Any:
    """The module of compiled moves; machine code is kept in `folder`, or in memory alone, as the first call in a process says.

    Where numba's own `NUMBA_CACHE_DIR` names a folder, that one is taken. Raises `BilinearError` (E662) where there is no numba.
    """
    try:
        from numba import config
    except ImportError as error:
        raise fail(
            "E662", f"the walk is compiled by numba, which cannot be imported: {error}", "pip install 'bilinear[discover]'"
        ) from None
    of_others = config.CACHE_DIR
    named = Path(of_others) if of_others else folder
    config.CACHE_DIR = "" if named is None else str(named / _version())
    try:
        return import_module("bilinear.discovery.kernels")
    finally:
        config.CACHE_DIR = of_others


def _version() -> str:
    """A hash of the sources."""
    here = Path(__file__).parent
    return sha256(b"\0".join((here / name).read_bytes() for name in SOURCES)).hexdigest()[:16]
