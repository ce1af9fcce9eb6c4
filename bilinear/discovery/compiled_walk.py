"""The walk in machine code, compiled by numba, which is imported lazily.

No machine code is kept in a file: numba would load it as a pickle, and a pickle runs whatever the file says (docs/trust.md).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from importlib import import_module
from threading import Thread
from types import ModuleType

import numpy as np

from bilinear.discovery.walker import binary_walker, classical_masks, ternary_walker
from bilinear.errors import fail, install

Walk = Callable[..., None]


def compiled_walk(ring: str) -> Walk:
    """The walk over Z or Z/2 in machine code, compiled once a process, in some seconds; raises as `kernels`.

    A thread compiles, and a Ctrl-C does not wait for it: numba would answer only after the compilation, or lose it.
    """
    found = Future[Walk]()

    def compile() -> None:
        try:
            found.set_result(_called(ring))
        except BaseException as error:
            found.set_exception(error)

    Thread(target=compile, daemon=True).start()
    return found.result()


def _called(ring: str) -> Walk:
    """The walk after a first call, of no steps, which compiles it."""
    walk: Walk = kernels("binary_kernels" if ring == "Z/2" else "kernels").walk
    walk((binary_walker if ring == "Z/2" else ternary_walker)(classical_masks(2, 2, 2), 0, 0), 0, 0, 0, np.zeros(1, np.int64))
    return walk


def kernels(module: str = "kernels") -> ModuleType:
    """`kernels` or `binary_kernels`, whose moves are compiled when they are called. Raises `BilinearError` (E662) without numba."""
    try:
        import numba  # noqa: F401
    except ImportError as error:
        raise fail("E662", f"the walk is compiled by numba, which cannot be imported: {error}", install("discover")) from None
    return import_module(f"bilinear.discovery.{module}")
