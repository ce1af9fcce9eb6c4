"""numba, imported lazily, and the folder for its compiled code."""

from __future__ import annotations

from hashlib import sha256
from importlib import import_module
from pathlib import Path
from types import ModuleType

from bilinear.errors import fail, install

SOURCES = ("kernels.py", "walker.py", "binary_kernels.py", "binary.py")
"""The files whose changes invalidate the compiled code; numba itself would check only the first."""


def kernels(folder: Path | None, module: str = "kernels") -> ModuleType:
    """A module of compiled moves, `kernels` or `binary_kernels`.

    The first call in a process decides whether machine code is kept in `folder` or only in memory.

    If numba's own `NUMBA_CACHE_DIR` names a folder, it is used instead. Raises `BilinearError` (E662) without numba.
    """
    try:
        from numba import config
    except ImportError as error:
        raise fail("E662", f"the walk is compiled by numba, which cannot be imported: {error}", install("discover")) from None
    of_others = config.CACHE_DIR
    named = Path(of_others) if of_others else folder
    config.CACHE_DIR = "" if named is None else str(named / _version())
    try:
        return import_module(f"bilinear.discovery.{module}")
    finally:
        config.CACHE_DIR = of_others


def _version() -> str:
    """A hash of the sources."""
    here = Path(__file__).parent
    return sha256(b"\0".join((here / name).read_bytes() for name in SOURCES)).hexdigest()[:16]
