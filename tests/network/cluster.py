"""A program: a product on two processes of Dask, and one during which one of them is killed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import dask.array
import numpy as np
from distributed import Client, LocalCluster

import bilinear.dask

N, CHUNK = 240, 40


def slowly(x: np.ndarray, folder: str, slowest: int = 0) -> np.ndarray:
    """A chunk, after a moment, and on one process after a long one; says which process computed it."""
    Path(folder, f"{os.getpid()}-{time.monotonic_ns()}").touch()
    time.sleep(2.0 if os.getpid() == slowest else 0.2)
    return x


def main() -> None:
    generator = np.random.default_rng(2)
    a, b = generator.integers(-9, 10, (N, N)), generator.integers(-9, 10, (N, N))
    x, y = dask.array.from_array(a, chunks=CHUNK), dask.array.from_array(b, chunks=CHUNK)
    empty = np.empty((0, 0), a.dtype)  # without it Dask tries the function in this process, too
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with TemporaryDirectory() as folder, TemporaryDirectory() as another, LocalCluster(**options) as cluster, Client(cluster) as client:
        assert (bilinear.dask.matmul(x, y, algorithm="winograd", levels=1).compute() == a @ b).all()
        print("exact on two workers")
        slowest = min(client.run(os.getpid).values())
        lazy = bilinear.dask.matmul(x.map_blocks(slowly, another, slowest, meta=empty), y, algorithm="winograd", levels=1)
        assert (lazy.compute() == a @ b).all()
        names = [path.name for path in Path(another).iterdir()]
        share = sum(name.startswith(f"{slowest}-") for name in names) / len(names)
        print(f"the slow worker had {share:.0%} of the chunks")
        assert share < 0.4
        found = client.compute(bilinear.dask.matmul(x.map_blocks(slowly, folder, meta=empty), y, algorithm="winograd", levels=1))
        while len(computed_by(folder)) < 2:
            assert not found.done()
            time.sleep(0.01)
        victim = computed_by(folder).pop()
        assert victim != os.getpid() and not found.done()
        os.kill(victim, signal.SIGKILL)
        assert (found.result() == a @ b).all()
        print("exact though one was killed")


def computed_by(folder: str) -> set[int]:
    return {int(path.name.split("-")[0]) for path in Path(folder).iterdir()}


if __name__ == "__main__":
    main()
