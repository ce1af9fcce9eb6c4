"""The walk in machine code, compiled by numba, which is imported lazily. As a program: compile and keep it, for a folder and a ring.

Another process compiles because numba would answer a Ctrl-C only after the compilation, which takes half a minute on a busy machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np

from bilinear.discovery.walker import binary_walker, classical_masks, ternary_walker
from bilinear.errors import fail, install

Walk = Callable[..., None]
SOURCES = ("kernels.py", "walker.py", "binary_kernels.py")
"""The files whose changes invalidate the compiled code; numba itself would check only the first."""


def compiled_walk(folder: Path | None, ring: str) -> Walk:
    """The walk over Z or Z/2 in machine code, which is kept in `folder`; raises as `kernels`.

    A process that ends with this call compiles it. Where no code is kept, or that process fails, this one compiles it.
    """
    with ThreadPoolExecutor(1) as pool:  # a Ctrl-C while numba calls back would be lost there, and comes to the main thread alone
        if pool.submit(_is_missing, folder, ring).result():
            _compile_apart(folder, ring)
        return pool.submit(_called, folder, ring).result()


def _walk(folder: Path | None, ring: str) -> Walk:
    walk: Walk = kernels(folder, "binary_kernels" if ring == "Z/2" else "kernels").walk
    return walk


def _called(folder: Path | None, ring: str) -> Walk:
    """The walk after a first call, of no steps, which loads it where it is kept and otherwise compiles it."""
    walk = _walk(folder, ring)
    walk((binary_walker if ring == "Z/2" else ternary_walker)(classical_masks(2, 2, 2), 0, 0), 0, 0, 0, np.zeros(1, np.int64))
    return walk


def _is_missing(folder: Path | None, ring: str) -> bool:
    """Load the walk; returns whether it is kept in a folder but has to be compiled first."""
    walk = _walk(folder, ring)
    if walk.stats.cache_path is None:  # type: ignore[attr-defined]  # of numba's dispatcher
        return False
    from numba.core import event

    class MissingError(Exception):
        pass

    class Refusal(event.Listener):  # type: ignore[misc]
        def on_start(self, event: event.Event) -> None:
            if event.data["dispatcher"] is walk:
                raise MissingError

        def on_end(self, event: event.Event) -> None:
            pass

    with event.install_listener("numba:compile", Refusal()):
        try:
            _called(folder, ring)
        except MissingError:
            return True
    return False


def _compile_apart(folder: Path | None, ring: str) -> None:
    """Compile and keep the walk in another process, which ends with this call."""
    command = (sys.executable, "-P", "-m", __name__, str(folder or ""), ring)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    none = subprocess.DEVNULL
    with suppress(OSError), subprocess.Popen(command, env=environment, stdin=none, stdout=none, stderr=none) as process:
        try:
            process.wait()
        finally:
            process.kill()
            process.wait()


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


if __name__ == "__main__":
    _called(Path(sys.argv[1]) if sys.argv[1] else None, sys.argv[2])
