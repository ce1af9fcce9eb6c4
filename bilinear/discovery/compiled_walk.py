"""The walk in machine code. As a program: compile the walk over a ring and keep it in a folder, both given as arguments.

Another process compiles because numba would answer a Ctrl-C only after the compilation, which takes half a minute on a busy machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from bilinear.discovery.binary import binary_walker
from bilinear.discovery.engine import kernels
from bilinear.discovery.walker import classical_masks, ternary_walker

Walk = Callable[..., None]


def compiled_walk(folder: Path | None, ring: str) -> Walk:
    """The walk over Z or Z/2 in machine code, which is kept in `folder`; raises as `engine.kernels`.

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
    with subprocess.Popen(command, env=environment, stdin=none, stdout=none, stderr=none) as process:
        try:
            process.wait()
        finally:
            process.kill()
            process.wait()


if __name__ == "__main__":
    _called(Path(sys.argv[1]) if sys.argv[1] else None, sys.argv[2])
